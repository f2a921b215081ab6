package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/state"
)

// agentsMemory is what the agents' passes remember, in four files a person can
// read: what each agent showed, the restarts, the frozen units and the storm.
type agentsMemory struct {
	dir    *state.Dir
	name   string // prefix of the files
	agents map[string]agents.State
	fleet  agents.Fleet
}

const (
	gateHeader = "unit since_boottime dead_probes checked_boottime boot_id …; " +
		"what each agent showed: deleting this starts every judgement about busy or wedged afresh"
	restartsHeader = "unit epoch attempts boottime boot_id; " +
		"the last restart of each unit: deleting this allows every unit a restart at once"
	frozenHeader = "unit epoch reason; " +
		"units that restarts did not help: deleting a line lets tickdog restart the unit again"
	stormHeader = "canary epoch until_boottime boot_id; " +
		"many agents are deaf at once: deleting this ends the wait for the one restarted first"
)

func openAgentsMemory(dir *state.Dir, name string) *agentsMemory {
	return &agentsMemory{dir: dir, name: name, agents: map[string]agents.State{},
		fleet: agents.Fleet{Attempts: map[string]agents.Attempt{}, Frozen: map[string]agents.Freeze{}}}
}

// load reads the four files. What is wrong with one is told to note, in one
// sentence. If the restarts can't be read, every one of units counts as just
// restarted, and that is written down at once.
func (m *agentsMemory) load(now check.Moment, units []string, note func(format string, args ...any)) {
	read := func(file string, line func(string) error) (good bool) {
		file = m.name + "-" + file
		got := m.dir.Load(file, now, line)
		switch {
		case got.Bad == "":
			return true
		case got.SetAside != "":
			note("%s: %s; set aside as %s", m.dir.Path(file), got.Bad, got.SetAside)
		default:
			note("%s: %s", m.dir.Path(file), got.Bad)
		}
		return false
	}
	if !read("gate", m.readGate) {
		m.agents = map[string]agents.State{}
	}
	if !read("frozen", m.readFrozen) {
		m.fleet.Frozen = map[string]agents.Freeze{}
	}
	if !read("storm", m.readStorm) {
		m.fleet.Storm = agents.Storm{}
	}
	if !read("restarts", m.readAttempt) {
		m.fleet.Attempts = map[string]agents.Attempt{}
		for _, unit := range units {
			m.fleet.Attempts[unit] = agents.Attempt{Epoch: now.Epoch(), Count: 1, Boot: now.Boot, BootID: now.BootID}
		}
		note("every unit counts as just restarted")
		if err := m.saveRestarts(); err != nil {
			note("%v", err)
		}
	}
}

// saveAgents writes down what the agents showed.
func (m *agentsMemory) saveAgents() error {
	return saveLines(m.dir, m.name+"-gate", gateHeader, m.agents, gateLine)
}

// saveRestarts writes down the budgets.
func (m *agentsMemory) saveRestarts() error {
	return saveLines(m.dir, m.name+"-restarts", restartsHeader, m.fleet.Attempts, attemptLine)
}

// saveFrozen writes down the frozen units; there is no file if there are none.
func (m *agentsMemory) saveFrozen() error {
	if len(m.fleet.Frozen) == 0 {
		return m.dir.Remove(m.name + "-frozen")
	}
	return saveLines(m.dir, m.name+"-frozen", frozenHeader, m.fleet.Frozen, freezeLine)
}

// saveStorm writes down the storm; there is no file if there is none.
func (m *agentsMemory) saveStorm() error {
	if m.fleet.Storm == (agents.Storm{}) {
		return m.dir.Remove(m.name + "-storm")
	}
	return m.dir.Save(m.name+"-storm", stormHeader, []string{stormLine(m.fleet.Storm)})
}

// saveFleet writes down all about restarts.
func (m *agentsMemory) saveFleet() error {
	return errors.Join(m.saveStorm(), m.saveRestarts(), m.saveFrozen())
}

func saveLines[T any](dir *state.Dir, file, header string, of map[string]T, line func(string, T) string) error {
	var lines []string
	for _, unit := range slices.Sorted(maps.Keys(of)) {
		lines = append(lines, line(unit, of[unit]))
	}
	return dir.Save(file, header, lines)
}

func (m *agentsMemory) readAttempt(text string) error {
	l, err := state.ParseLine(text, 5)
	if err != nil {
		return err
	}
	var f fields
	a := agents.Attempt{
		Epoch: f.integer(l.Columns[1]), Count: int(f.integer(l.Columns[2])), Boot: f.number(l.Columns[3]), BootID: l.Columns[4],
	}
	a.Unlogged, _ = l.Get("unlogged")
	m.fleet.Attempts[l.Columns[0]] = a
	return f.err
}

func attemptLine(unit string, a agents.Attempt) string {
	l := state.Line{Columns: []string{unit, strconv.FormatInt(a.Epoch, 10), strconv.Itoa(a.Count), boottime(a.Boot), a.BootID}}
	if a.Unlogged != "" {
		l.Add("unlogged", a.Unlogged)
	}
	return l.String()
}

func (m *agentsMemory) readFrozen(text string) error {
	words := state.Split(text, 3)
	if len(words) < 2 {
		return errors.New("want: unit epoch reason")
	}
	var f fields
	z := agents.Freeze{Epoch: f.integer(words[1])}
	if len(words) == 3 {
		z.Reason = words[2]
	}
	m.fleet.Frozen[words[0]] = z
	return f.err
}

func freezeLine(unit string, z agents.Freeze) string {
	return strings.TrimRight(fmt.Sprintf("%s %d %s", unit, z.Epoch, strings.Trim(state.OneLine(z.Reason), " \t")), " ")
}

func (m *agentsMemory) readStorm(text string) error {
	l, err := state.ParseLine(text, 4)
	if err != nil {
		return err
	}
	var f fields
	m.fleet.Storm = agents.Storm{Canary: l.Columns[0], Epoch: f.integer(l.Columns[1]), Until: f.number(l.Columns[2]), BootID: l.Columns[3]}
	return f.err
}

func stormLine(s agents.Storm) string {
	return state.Line{Columns: []string{s.Canary, strconv.FormatInt(s.Epoch, 10), boottime(s.Until), s.BootID}}.String()
}

// readGate reads one agent's line. Only the columns must be there: what a pair
// would say is then not known.
func (m *agentsMemory) readGate(text string) error {
	l, err := state.ParseLine(text, 5)
	if err != nil {
		return err
	}
	var f fields
	s := agents.State{
		Since: f.number(l.Columns[1]), Dead: int(f.integer(l.Columns[2])),
		Checked: f.number(l.Columns[3]), BootID: l.Columns[4],
	}
	s.Hard, s.DeadAt, s.Evidence = s.Since, s.Checked, agents.EvidenceSeen
	for _, p := range l.Pairs {
		switch p.Key {
		case "evidence":
			s.Evidence = cmp.Or(agents.Evidence(p.Value), agents.EvidenceSeen)
		case "hard_boottime":
			s.Hard = f.number(p.Value)
		case "idle":
			s.Idle = int(f.integer(p.Value))
		case "dead_boottime":
			s.DeadAt = f.number(p.Value)
		case "deaf_boottime":
			s.Deaf = f.number(p.Value)
		case "answering_boottime":
			s.Answering = f.number(p.Value)
		case "task":
			s.Task = agents.Task{Known: true, Text: p.Value}
		case "pid":
			s.PID = int(f.integer(p.Value))
		case "cpu":
			s.CPU = f.number(p.Value)
		case "cpu_boottime":
			s.CPUAt = f.number(p.Value)
		case "restarted":
			s.Restarts = f.counts(p.Value)
		case "protocol":
			s.Protocol = p.Value
		case "state":
			s.State = p.Value
		case "blind":
			s.Blind = int(f.integer(p.Value))
		case "told":
			s.Told = strings.Split(p.Value, ",")
		}
	}
	if s.Dead == 0 {
		s.DeadAt = 0
	}
	m.agents[l.Columns[0]] = s
	return f.err
}

func gateLine(unit string, s agents.State) string {
	l := state.Line{Columns: []string{unit, boottime(s.Since), strconv.Itoa(s.Dead), boottime(s.Checked), s.BootID}}
	text := func(key, value string) {
		if value != "" {
			l.Add(key, value)
		}
	}
	stamp := func(key string, value float64) {
		if value != 0 {
			l.Add(key, boottime(value))
		}
	}
	count := func(key string, value int) {
		if value != 0 {
			l.Add(key, strconv.Itoa(value))
		}
	}
	text("state", s.State)
	text("evidence", string(s.Evidence))
	stamp("hard_boottime", s.Hard)
	count("idle", s.Idle)
	stamp("dead_boottime", s.DeadAt)
	stamp("deaf_boottime", s.Deaf)
	stamp("answering_boottime", s.Answering)
	if s.Task.Known {
		l.Add("task", s.Task.Text)
	}
	count("pid", s.PID)
	if s.CPUAt != 0 {
		l.Add("cpu", strconv.FormatFloat(s.CPU, 'f', -1, 64))
		stamp("cpu_boottime", s.CPUAt)
	}
	var counts []string
	for _, c := range s.Restarts {
		counts = append(counts, fmt.Sprintf("%d@%s", c.Value, boottime(c.At)))
	}
	text("restarted", strings.Join(counts, ","))
	text("protocol", s.Protocol)
	count("blind", s.Blind)
	text("told", strings.Join(s.Told, ","))
	return l.String()
}

// boottime keeps CLOCK_BOOTTIME to the millisecond.
func boottime(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 3, 64) }

// fields reads the numbers of a line and remembers the first that is none.
// None of them is ever negative.
type fields struct{ err error }

func (f *fields) integer(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		f.wrong(text)
	}
	return n
}

func (f *fields) number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n >= 0 && n < 1e15) {
		f.wrong(text)
	}
	return n
}

func (f *fields) counts(text string) (counts []agents.Count) {
	for _, c := range strings.Split(text, ",") {
		value, at, _ := strings.Cut(c, "@")
		counts = append(counts, agents.Count{Value: int(f.integer(value)), At: f.number(at)})
	}
	return counts
}

func (f *fields) wrong(text string) {
	if f.err == nil {
		f.err = fmt.Errorf("%q is no such number", text)
	}
}
