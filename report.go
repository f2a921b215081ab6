package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"tickdog/check"

	"golang.org/x/sys/unix"
)

// report is what one pass says: a line a subject, or one JSON object.
type report struct {
	Pass     string    `json:"pass"`
	At       string    `json:"at"` // RFC 3339, local zone
	DryRun   bool      `json:"dry_run"`
	Source   string    `json:"source"`
	Verdicts []verdict `json:"verdicts"`
	Summary  string    `json:"summary,omitempty"` // the agents' sweep line
	Reason   string    `json:"reason,omitempty"`  // why there are no verdicts
	Notes    []string  `json:"notes,omitempty"`   // what a person should know beside them: a state file set aside, a log that cannot be written
}

// verdict is what a pass says about one subject.
type verdict struct {
	Subject  string        `json:"subject"`
	State    string        `json:"state"`
	Verdict  check.Verdict `json:"verdict"`
	Action   string        `json:"action"` // "", "stop", "restart"
	Result   string        `json:"result"` // "", "done", "dry-run", "failed: …"
	Reason   string        `json:"reason"`
	WouldRun [][]string    `json:"would_run,omitempty"` // under --dry-run: the commands, as argv
	Reading  *gpuReading   `json:"reading,omitempty"`
	*agentSight
}

// gpuReading is what the sensors of a card said; nil (null) is no reading.
type gpuReading struct {
	Busy     *float64 `json:"busy_percent"`
	Junction *float64 `json:"junction_c"`
	Power    *float64 `json:"power_w"`
}

// agentSight is what the three looks at an agent gave.
type agentSight struct {
	Health     string   `json:"health"`
	HealthMS   int64    `json:"health_ms"`
	Dispatch   string   `json:"dispatch"`
	DispatchMS int64    `json:"dispatch_ms"`
	Task       *string  `json:"task"`    // null: not known; "": none
	SinceS     *float64 `json:"since_s"` // seconds since the last evidence of work; null: not known
}

// line is a verdict as a person reads it.
func (v verdict) line() string {
	s := fmt.Sprintf("%s %s %s: %s", v.Subject, v.Verdict, v.State, v.Reason)
	for _, argv := range v.WouldRun {
		s += fmt.Sprintf("; would run %q", argv)
	}
	return oneLine(s)
}

// oneLine keeps what came from outside (a task, an error of a tool) from
// starting lines of its own or steering the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return '?'
		}
		return r
	}, s)
}

// writeJSON writes the report as one line.
func (r report) writeJSON(w io.Writer) error {
	if r.Verdicts == nil {
		r.Verdicts = []verdict{}
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return err
	}
	_, err := w.Write(line.Bytes())
	return err
}

// writeText writes a line a subject; resting subjects only if all are asked for.
func (r report) writeText(w io.Writer, all bool, ink ink) {
	var out strings.Builder
	for _, v := range r.Verdicts {
		if all || v.Verdict != check.Rest {
			out.WriteString(ink.line(v.Verdict, v.line()))
		}
	}
	switch {
	case r.Summary != "":
		out.WriteString(ink.line(check.Rest, oneLine(r.Summary)))
	case r.Reason != "":
		out.WriteString(ink.line(check.Watch, oneLine(r.Reason)))
	}
	io.WriteString(w, out.String())
}

// ink says how lines leave: bare into a file or a pipe, coloured on a
// terminal, with a priority in front under systemd (sd-daemon(3)).
type ink int

const (
	bare ink = iota
	coloured
	journal
)

func (i ink) line(v check.Verdict, text string) string {
	switch i {
	case journal:
		return fmt.Sprintf("<%d>%s\n", priority(v), text)
	case coloured:
		if code := colour(v); code != "" {
			return "\x1b[" + code + "m" + text + "\x1b[0m\n"
		}
	}
	return text + "\n"
}

// priority is the syslog level of a verdict: rest is info, watch is notice,
// and whatever a person may want to look at is a warning.
func priority(v check.Verdict) int {
	switch v {
	case check.Rest:
		return 6
	case check.Watch:
		return 5
	}
	return 4
}

func colour(v check.Verdict) string {
	switch v {
	case check.Watch:
		return "33" // yellow
	case check.Act:
		return "1;31" // bold red
	case check.Hold:
		return "35" // magenta
	case check.Unknown:
		return "36" // cyan
	}
	return ""
}

// inkFor looks at where the lines go.
func (p *program) inkFor(w io.Writer) ink {
	f, ok := w.(*os.File)
	if !ok {
		return bare
	}
	var st unix.Stat_t
	if stream := p.getenv("JOURNAL_STREAM"); stream != "" && unix.Fstat(int(f.Fd()), &st) == nil &&
		stream == fmt.Sprintf("%d:%d", st.Dev, st.Ino) {
		return journal
	}
	if isTerminal(f) && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb" {
		return coloured
	}
	return bare
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// seconds prints a duration as limits are written: 3600 s.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%.0f s", d.Seconds())
}
