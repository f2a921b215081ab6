package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"tickdog/check/agents"

	"golang.org/x/sys/unix"
)

// picture is how a timeline is drawn.
type picture struct {
	unicode bool // else plain ASCII
	columns int  // of the terminal
	off     bool
}

// unicodeTerminal looks at the locale.
func (p *program) unicodeTerminal() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(p.getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

// columns is the terminal's width, or $COLUMNS, or 80.
func (p *program) columns() int {
	if f, ok := p.stdout.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return min(int(size.Col), 300)
		}
	}
	if n, err := strconv.Atoi(p.getenv("COLUMNS")); err == nil && n > 0 {
		return min(n, 300)
	}
	return 80
}

// timeline is a stretch of time in columns of equal length.
type timeline struct {
	picture
	from, to time.Time
	label    int // width of what stands on the left
	width    int
}

func (pic picture) timeline(from, to time.Time, moments int, labels ...string) timeline {
	t := timeline{picture: pic, from: from, to: to}
	for _, l := range labels {
		t.label = max(t.label, utf8.RuneCountInString(short(l)))
	}
	const right = 10 // for the scale behind a row
	t.width = max(1, min(pic.columns-t.label-2-right, moments))
	return t
}

// short is a label that leaves room for the picture.
func short(label string) string {
	const most = 40
	if runes := []rune(oneLine(label)); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return oneLine(label)
}

// column is where a moment stands.
func (t timeline) column(at time.Time) int {
	span := t.to.Sub(t.from)
	if span <= 0 {
		return 0
	}
	c := int(float64(at.Sub(t.from)) / float64(span) * float64(t.width))
	return min(max(c, 0), t.width-1)
}

// row is a line of the picture: what stands on the left, a mark a column, what
// stands on the right.
func (t timeline) row(label string, marks []rune, right string) string {
	label = short(label)
	pad := strings.Repeat(" ", t.label-utf8.RuneCountInString(label))
	return strings.TrimRight("  "+label+pad+"  "+string(marks)+"  "+right, " ") + "\n"
}

func (t timeline) blank(fill rune) []rune {
	return []rune(strings.Repeat(string(fill), t.width))
}

// level draws a share of the full height.
func (t timeline) level(share float64) rune {
	steps := []rune("_.:-=+*#")
	if t.unicode {
		steps = []rune("▁▂▃▄▅▆▇█")
	}
	i := int(math.Ceil(share * float64(len(steps)-1)))
	return steps[min(max(i, 0), len(steps)-1)]
}

// nothing marks a column in which there was nothing to do.
func (t timeline) nothing() rune {
	if t.unicode {
		return '·'
	}
	return '.'
}

// axis names the times below a picture.
func (t timeline) axis() string {
	layout := "15:04"
	if t.from.Format(time.DateOnly) != t.to.Format(time.DateOnly) {
		layout = "01-02 15:04"
	}
	marks := append(t.blank(' '), []rune(strings.Repeat(" ", len(layout)))...) // a short one shows its beginning all the same
	put := func(column int, text string) { copy(marks[column:], []rune(text)) }
	every := len(layout) + 8
	last := t.width - len(layout)
	for column := 0; column == 0 || column+every <= last; column += every {
		at := t.from.Add(time.Duration(float64(t.to.Sub(t.from)) * float64(column) / float64(t.width)))
		put(column, at.Format(layout))
	}
	if last >= every {
		put(last, t.to.Format(layout))
	}
	return t.row("", marks, "")
}

// card draws load and heat, and a row of marks for each set of limits.
func (pic picture) card(r cardReplay) string {
	labels := []string{"junction"}
	for _, trial := range r.Trials {
		labels = append(labels, trial.label())
	}
	t := pic.timeline(r.From, r.To, r.Readings, labels...)

	type bucket struct {
		looks, known  int
		busy, hottest float64
	}
	buckets := make([]bucket, t.width)
	coolest, hottest := math.Inf(1), math.Inf(-1)
	for _, one := range r.looks {
		b := &buckets[t.column(one.now.Wall)]
		b.looks++
		if busy := one.seen.Reading.Busy; busy.Known || one.seen.Reading.Suspended {
			b.known++
			b.busy += busy.Value
		}
		if j := one.seen.Reading.Junction; j.Known {
			b.hottest = max(b.hottest, j.Value)
			coolest, hottest = min(coolest, j.Value), max(hottest, j.Value)
		}
	}
	load, heat := t.blank(' '), t.blank(' ')
	for i, b := range buckets {
		switch {
		case b.known > 0:
			load[i] = t.level(b.busy / float64(b.known) / 100)
		case b.looks > 0:
			load[i] = '?'
		}
		switch {
		case b.hottest > 0:
			heat[i] = t.level((b.hottest - coolest) / max(hottest-coolest, 20))
		case b.looks > 0:
			heat[i] = '?'
		}
	}
	out := t.row("busy", load, "0-100 %")
	if hottest > 0 {
		out += t.row("junction", heat, fmt.Sprintf("%.0f-%.0f °C", coolest, hottest))
	}
	marked := ""
	for _, trial := range r.Trials {
		marks := t.blank(t.nothing())
		for i, b := range buckets {
			if b.looks == 0 {
				marks[i] = ' '
			}
		}
		for _, gone := range trial.away {
			for c := t.column(gone[0]); c <= t.column(gone[1]); c++ {
				marks[c] = '-'
			}
		}
		for _, e := range trial.NearMisses {
			marks[t.column(e.At)] = 'n'
		}
		for _, e := range trial.Stops {
			marks[t.column(e.At)] = 'S'
		}
		marked += string(marks)
		out += t.row(trial.label(), marks, "")
	}
	out += t.axis()
	return out + t.legend(marked+string(load), [][2]string{
		{"S", "stop"}, {"-", "after a stop: would not have happened"}, {"n", "near miss"}, {"?", "no reading"},
	})
}

// legend explains the marks that are there.
func (t timeline) legend(drawn string, marks [][2]string) string {
	var words []string
	for _, m := range marks {
		if strings.Contains(drawn, m[0]) {
			words = append(words, m[0]+" "+m[1])
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "  " + strings.Join(words, ", ") + "\n"
}

// agentMarks are the letters of the agents' states, the mildest first: where a
// column holds several, the last of them is drawn.
var agentMarks = []struct {
	state, mark, meaning string
}{
	{agents.Healthy, ".", ""}, {agents.Stopped, "-", "stopped"}, {agents.Starting, "~", "starting"},
	{"restarted", "=", "after a restart: would not have happened"},
	{agents.Blind, "?", "unknown"}, {agents.Busy, "b", "busy"}, {agents.Suspect, "s", "suspect"}, {agents.Overloaded, "o", "overloaded"},
	{agents.Faulty, "f", "faulty"}, {agents.Impostor, "i", "impostor"}, {agents.CrashLoop, "c", "crash loop"},
	{agents.Down, "D", "down"}, {agents.Wedged, "W", "wedged"}, {agents.Frozen, "F", "frozen"}, {"restart", "R", "restart"},
}

// agents draws a row an agent, for one set of limits.
func (pic picture) agents(r agentsReplay, trial agentsTrial) string {
	t := pic.timeline(r.From, r.To, r.Passes, r.Units...)
	out, marked := "", ""
	for _, unit := range r.Units {
		worst := make([]int, t.width)
		for _, m := range trial.states[unit] {
			for rank, one := range agentMarks {
				if c := t.column(m.at); one.state == m.mark && rank+1 > worst[c] {
					worst[c] = rank + 1
				}
			}
		}
		marks := t.blank(' ')
		for i, rank := range worst {
			if rank > 0 {
				marks[i] = rune(agentMarks[rank-1].mark[0])
			}
			if marks[i] == '.' {
				marks[i] = t.nothing()
			}
		}
		marked += string(marks)
		out += t.row(unit, marks, "")
	}
	var legend [][2]string
	for _, m := range agentMarks {
		if m.meaning != "" {
			legend = append(legend, [2]string{m.mark, m.meaning})
		}
	}
	return out + t.axis() + t.legend(marked, legend)
}

func (t gpuTrial) label() string {
	return fmt.Sprintf("%s %g/%d", plain(t.maxBusy()), t.HotAt, t.HotChecks)
}

func (t gpuTrial) maxBusy() time.Duration {
	return time.Duration(t.MaxBusySeconds * float64(time.Second))
}

func (t agentsTrial) label() string {
	if t.Gate == "off" {
		return "gate off"
	}
	return "gate on, busy cap " + plain(time.Duration(t.BusyCapSeconds*float64(time.Second)))
}

// text is the report for a person.
func (r replayReport) text(pic picture) string {
	var out strings.Builder
	for i, card := range r.Cards {
		if i > 0 {
			out.WriteString("\n")
		}
		card.write(&out, pic)
	}
	if r.Agents != nil {
		r.Agents.write(&out, pic)
	}
	if r.Note != "" {
		out.WriteString("\n" + oneLine(r.Note) + "\n")
	}
	if pic.unicode {
		return out.String()
	}
	return ascii(out.String())
}

// ascii is text for a terminal that knows nothing else: 91 °C becomes 91 C.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '°':
			return -1
		case r > '~':
			return '?'
		}
		return r
	}, text)
}

func (r cardReplay) write(out *strings.Builder, pic picture) {
	fmt.Fprintf(out, "%s: %s, %s to %s (%s)", oneLine(r.Subject), count(r.Readings, "reading"), r.From.Format(minuteLayout), r.To.Format(minuteLayout), stretch(r.To.Sub(r.From)))
	if r.BusyUnknown > 0 || r.JunctionUnknown > 0 {
		fmt.Fprintf(out, "; no busy in %d, no junction in %d", r.BusyUnknown, r.JunctionUnknown)
	}
	out.WriteString("\n")
	if r.LongestFrom == nil {
		out.WriteString("  never busy")
	} else {
		fmt.Fprintf(out, "  longest busy stretch %s, from %s", stretch(time.Duration(r.LongestSeconds*float64(time.Second))), r.LongestFrom.Format(minuteLayout))
	}
	if r.HottestC == nil {
		out.WriteString("; no junction at all\n\n")
	} else {
		fmt.Fprintf(out, "; hottest %s °C, at %s\n\n", number(*r.HottestC), r.HottestAt.Format(minuteLayout))
	}
	if !pic.off {
		out.WriteString(pic.card(r) + "\n")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "  max-busy\thot-at\thot-checks\tstops\tnear\tfirst stop\n")
	for _, t := range r.Trials {
		first := "-"
		if len(t.Stops) > 0 {
			first = t.Stops[0].At.Format(minuteLayout) + " " + t.Stops[0].Reason
		}
		fmt.Fprintf(table, "  %s\t%g\t%d\t%d\t%d\t%s\n", plain(t.maxBusy()), t.HotAt, t.HotChecks, len(t.Stops), len(t.NearMisses), first)
	}
	table.Flush()
	if len(r.Trials) == 1 {
		writeEvents(out, "stop", r.Trials[0].Stops)
		writeEvents(out, "near", r.Trials[0].NearMisses)
	}
}

func (r agentsReplay) write(out *strings.Builder, pic picture) {
	fmt.Fprintf(out, "%d agents: %d passes, %s to %s (%s)\n", len(r.Units), r.Passes, r.From.Format(minuteLayout), r.To.Format(minuteLayout), stretch(r.To.Sub(r.From)))
	for _, t := range r.Trials {
		fmt.Fprintf(out, "\n%s: %s, %s ended by themselves, %s to tell\n", t.label(), count(len(t.Restarts), "restart"), count(len(t.NearMisses), "deaf spell"), count(len(t.Incidents), "incident"))
		if !pic.off {
			out.WriteString(pic.agents(r, t))
		}
		writeEvents(out, "restart", t.Restarts)
		writeEvents(out, "deaf", t.NearMisses)
		writeEvents(out, "tell", t.Incidents)
	}
}

// mostEvents is how many of a kind a person is shown.
const mostEvents = 8

// writeEvents lists what would have happened.
func writeEvents(out *strings.Builder, word string, events []event) {
	for i, e := range events {
		if i == 0 {
			out.WriteString("\n")
		}
		if i == mostEvents {
			fmt.Fprintf(out, "  ... and %d more; --json lists all\n", len(events)-i)
			break
		}
		subject := e.Subject
		if subject != "" {
			subject = " " + subject
		}
		fmt.Fprintf(out, "  %s %s%s: %s\n", e.At.Format(time.DateTime), word, oneLine(subject), oneLine(e.Reason))
	}
}
