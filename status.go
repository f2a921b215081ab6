package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/notify"
	"tickdog/state"

	"github.com/urfave/cli/v2"
)

func (p *program) statusCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:  "status",
		Usage: "what tickdog remembers: everything in its state files, as tables",
		Description: `Reads the state directory and writes nothing, also while a pass is under way.
What it shows of the limits is what this start reads: an Environment= of the
unit is the unit's alone. 'tickdog doctor' says whether all is there to act.`,
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON object: a section a key, a row an object"}},
		Action: p.status,
	}, 0, 0)
}

// section is one part of the status: a line about it, tables, and lines below
// them.
type section struct {
	name   string
	about  string
	tables []table
	below  []string
}

// table has its heads in the first row; without another one it is not shown.
type table struct {
	name string // its key in the JSON
	rows [][]string
}

func (p *program) status(c *cli.Context) error {
	cfg, err := p.loadConfig(c)
	if err != nil {
		return err
	}
	now := p.moment()
	dir := state.View(cfg.StateDir)
	sections := []section{
		stateSection(cfg, dir),
		p.gpuSection(cfg, dir, now),
		p.agentsSection(cfg, dir, now),
		p.cycleSection(cfg, now),
		p.loopsSection(cfg, now),
		p.outboxSection(cfg, dir, now),
		asideSection(cfg.StateDir),
	}
	if c.Bool("json") {
		return p.statusJSON(now, sections)
	}
	return p.statusText(sections)
}

func stateSection(cfg config, dir *state.Dir) section {
	s := section{name: "state", about: dir.Path("") + ", configured by " + cfg.path}
	if cfg.path == "" {
		s.about = dir.Path("") + ", without a configuration file: the defaults"
	}
	if _, err := os.ReadDir(cfg.StateDir); err != nil {
		s.below = append(s.below, err.Error())
	}
	return s
}

// gpuSection is what the GPU guard remembers and by which limits.
func (p *program) gpuSection(cfg config, dir *state.Dir, now check.Moment) section {
	s := section{name: "gpu", about: aboutGuard(cfg.GPU.Name, dir, now)}
	if err := p.gpuLimits(&cfg, func(string) string { return "" }); err != nil {
		s.below = append(s.below, err.Error())
	}
	g := cfg.GPU
	var cards gpuCards
	if bad := dir.Load(g.Name+"-busy", now, cards.parse).Bad; bad != "" {
		s.below = append(s.below, dir.Path(g.Name+"-busy")+": "+bad)
	}
	rows := [][]string{{"CARD", "BUSY", "HOT CHECKS", "CHECKED", "NOTE"}}
	for _, c := range cards {
		rows = append(rows, gpuRow(c, g, now))
	}
	s.below = append(s.below, pauseLine(g.Name, dir, now)...)

	limits := [][]string{{"LIMIT", "VALUE", "FROM"}}
	for _, one := range []struct{ key, value string }{
		{"max_busy", seconds(g.MaxBusy)}, {"busy_above", fmt.Sprintf("%v %%", g.BusyAbove)},
		{"hot_at", fmt.Sprintf("%v °C", g.HotAt)}, {"hot_checks", fmt.Sprint(g.HotChecks)},
		{"max_gap", seconds(g.MaxGap)}, {"min_gap", seconds(g.MinGap)},
		{"container", g.Container}, {"kill", fmt.Sprint(g.Kill)}, {"card", orDash(g.Card)}, {"source", g.Source},
	} {
		limits = append(limits, []string{one.key, one.value, origin(cfg, "gpu."+one.key)})
	}
	s.tables = []table{{"cards", rows}, {"limits", limits}}
	return s
}

func gpuRow(c gpuCard, g gpuConfig, now check.Moment) []string {
	st := c.state
	busy := "-"
	if st.Running {
		busy = fmt.Sprintf("%s of %s", seconds(st.Busy), seconds(g.MaxBusy))
	}
	var notes []string
	if st.Failed > 0 {
		notes = append(notes, count(st.Failed, "stop")+" failed")
	}
	if st.Foreign {
		notes = append(notes, "the load is not the container's")
	}
	if st.Blind > 0 {
		notes = append(notes, "blind for "+count(st.Blind, "pass"))
	}
	return []string{c.name, busy, fmt.Sprintf("%d of %d", st.HotChecks, g.HotChecks), since(now, st.CheckedAt, st.BootID), orDash(strings.Join(notes, "; "))}
}

// origin is where a value came from: a flag, the environment, the file's line, or nowhere.
func origin(cfg config, key string) string {
	if from := cfg.origin[key]; from != "" {
		return from
	}
	return "default"
}

// agentsSection is what the agents' guard remembers of each unit.
func (p *program) agentsSection(cfg config, dir *state.Dir, now check.Moment) section {
	a := cfg.Agents
	s := section{name: "agents", about: aboutGuard(a.Name, dir, now)}
	known := map[string]bool{}
	for _, one := range a.Agent {
		known[one.Unit] = true
	}
	memory := openAgentsMemory(dir, a.Name)
	memory.load(now, slices.Collect(maps.Keys(known)), func(format string, args ...any) { s.below = append(s.below, fmt.Sprintf(format, args...)) })
	for unit := range memory.agents {
		known[unit] = true
	}
	for unit := range memory.fleet.Frozen {
		known[unit] = true
	}
	rows := [][]string{{"UNIT", "STATE", "WORK SEEN", "DEAD PROBES", "TASK", "LAST RESTART", "NEXT FREE", "ATTEMPTS", "NOTE"}}
	for _, unit := range slices.Sorted(maps.Keys(known)) {
		rows = append(rows, agentRow(unit, memory, a.limits(), now))
	}
	s.tables = []table{{"agents", rows}}
	if storm := memory.fleet.Storm; storm != (agents.Storm{}) {
		text := "a storm since " + onDate(storm.Epoch, now) + ": many agents are deaf at once"
		if storm.Canary != "-" {
			text = fmt.Sprintf("a storm: %s was restarted %s, and the others wait for it", storm.Canary, onDate(storm.Epoch, now))
		}
		s.below = append(s.below, text)
	}
	s.below = append(s.below, pauseLine(a.Name, dir, now)...)
	return s
}

func agentRow(unit string, memory *agentsMemory, limits agents.Limits, now check.Moment) []string {
	row := []string{unit, "-", "-", "-", "-", "-", "now", "-", "-"}
	if st, ok := memory.agents[unit]; ok {
		row[1], row[2], row[3] = orDash(st.State), st.Evidence.Phrase()+" "+since(now, st.Since, st.BootID), fmt.Sprint(st.Dead)
		row[4] = "not known"
		if st.Task.Known {
			row[4] = orDash(oneLine(st.Task.Text))
		}
	}
	if tried, ok := memory.fleet.Attempts[unit]; ok {
		row[5], row[7] = onDate(tried.Epoch, now), fmt.Sprint(tried.Count)
		if left := memory.fleet.Free(unit, now, limits); left > 0 {
			row[6] = "in " + seconds(left)
		}
	}
	if z, ok := memory.fleet.Frozen[unit]; ok {
		row[6] = "never"
		row[8] = fmt.Sprintf("frozen since %s: %s; 'tickdog thaw %s' lifts that", onDate(z.Epoch, now), oneLine(z.Reason), unit)
	}
	return row
}

func onDate(epoch int64, now check.Moment) string {
	return time.Unix(epoch, 0).In(now.Wall.Location()).Format(time.DateTime)
}

func (p *program) cycleSection(cfg config, now check.Moment) section {
	s := section{name: "cycle", about: fmt.Sprintf("%s, budget %v from %s", cfg.Cycle.Name, cfg.Cycle.Budget, origin(cfg, "cycle.budget"))}
	rows, below := p.cycleStatus(cfg.StateDir, now)
	s.tables, s.below = []table{{"cycles", rows}}, below
	return s
}

func (p *program) loopsSection(cfg config, now check.Moment) section {
	s := section{name: "loops"}
	rows, below := p.loopStatus(cfg.StateDir, now)
	s.tables = []table{{"runs", rows}}
	if below != "" {
		s.below = []string{below}
	}
	return s
}

// outboxSection lists the alerts that have not been delivered.
func (p *program) outboxSection(cfg config, dir *state.Dir, now check.Moment) section {
	s := section{name: "outbox"}
	channels, err := p.channels(cfg)
	if err != nil {
		s.below = append(s.below, err.Error())
	}
	rows := [][]string{{"CHANNEL", "WRITTEN", "ATTEMPTS", "NEXT", "ALERT", "LAST FAILURE"}}
	for _, e := range notify.OpenOutbox(dir, channels...).Waiting(now) {
		next := e.Next.In(now.Wall.Location()).Format(time.DateTime)
		switch {
		case e.Parked != "":
			next = "parked: " + e.Parked
		case !e.Configured:
			next = "no such channel is configured"
		case !e.Next.After(now.Wall):
			next = "at the next pass"
		}
		written := "-" // in an entry that cannot be understood
		if !e.At.IsZero() {
			written = e.At.In(now.Wall.Location()).Format(time.DateTime)
		}
		rows = append(rows, []string{e.Channel, written, fmt.Sprint(e.Attempts), next, orDash(oneLine(cmp.Or(e.Text, e.Title))), orDash(oneLine(e.Failure))})
	}
	s.tables = []table{{"alerts", rows}}
	return s
}

// asideSection lists the files that could not be understood.
func asideSection(stateDir string) section {
	s := section{name: "set aside"}
	_ = filepath.WalkDir(stateDir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), ".bad-") {
			s.below = append(s.below, path)
		}
		return nil // what cannot be read, its own section has said
	})
	return s
}

// aboutGuard is a guard's name and when it last remembered something.
func aboutGuard(name string, dir *state.Dir, now check.Moment) string {
	var last time.Time
	files, _ := dir.List()
	for _, file := range files {
		if !strings.HasPrefix(file, name+"-") || strings.HasPrefix(file, name+"-pause") {
			continue
		}
		if info, err := os.Stat(dir.Path(file)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	if last.IsZero() {
		return name + ", no pass yet"
	}
	return fmt.Sprintf("%s, last pass %s", name, last.In(now.Wall.Location()).Format(time.DateTime))
}

// pauseLine is the line of a pause that holds.
func pauseLine(name string, dir *state.Dir, now check.Moment) (lines []string) {
	got := dir.Load(name+"-pause", now, func(text string) error {
		pause, err := parsePause(text, now.Epoch())
		if err == nil && pause.ends > now.Epoch() {
			lines = append(lines, fmt.Sprintf("paused until %s: %s", pause.until(now.Wall.Location()), pause.why))
		}
		return err
	})
	if got.Bad != "" {
		return []string{dir.Path(name+"-pause") + ": " + got.Bad + "; it pauses nothing"}
	}
	return lines
}

// since says how long ago a boottime was.
func since(now check.Moment, boot float64, bootID string) string {
	d, ok := now.Since(boot, bootID)
	if !ok {
		return "before the last boot"
	}
	return seconds(d) + " ago"
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (p *program) statusText(sections []section) error {
	var texts []string
	for _, s := range sections {
		texts = append(texts, s.text())
	}
	_, err := io.WriteString(p.stdout, strings.Join(texts, "\n"))
	return err
}

func (s section) text() string {
	var body bytes.Buffer
	for _, t := range s.tables {
		if len(t.rows) < 2 {
			continue
		}
		w := tabwriter.NewWriter(&body, 0, 0, 2, ' ', 0)
		for _, row := range t.rows {
			fmt.Fprintf(w, "  %s\n", strings.Join(row, "\t"))
		}
		w.Flush()
	}
	for _, line := range s.below {
		fmt.Fprintf(&body, "  %s\n", oneLine(line))
	}
	head := s.name
	switch {
	case s.about != "":
		head += ": " + oneLine(s.about)
	case body.Len() == 0:
		head += ": none"
	}
	return head + "\n" + body.String()
}

// statusJSON prints the same cells: a section is an object with its line, its
// tables with the rows by the names of their columns, and its notes.
func (p *program) statusJSON(now check.Moment, sections []section) error {
	whole := map[string]any{"at": now.Wall.Format(time.RFC3339)}
	for _, s := range sections {
		one := map[string]any{"about": s.about, "notes": append([]string{}, s.below...)}
		for _, t := range s.tables {
			rows := []map[string]string{}
			for _, row := range t.rows[min(1, len(t.rows)):] {
				cells := map[string]string{}
				for i, head := range t.rows[0] {
					cells[jsonName(head)] = row[i]
				}
				rows = append(rows, cells)
			}
			one[t.name] = rows
		}
		whole[jsonName(s.name)] = one
	}
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(whole)
}

func jsonName(head string) string { return strings.ReplaceAll(strings.ToLower(head), " ", "_") }
