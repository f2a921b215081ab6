package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"tickdog/check"
	"tickdog/check/cycle"

	"golang.org/x/sys/unix"
)

// progress shows where a cycle is, on stderr: on a terminal a line that is
// rewritten every second while a call runs, elsewhere a plain line when a call
// begins and one when it ends. With --json only a terminal is shown anything.
type progress struct {
	pass     *pass
	w        io.Writer
	terminal *os.File // nil if it is none
	quiet    bool
	stop     func() // ends the rewriting of the line
}

func (s *pass) newProgress() progress {
	p := progress{pass: s, w: s.stderr, quiet: s.json, stop: func() {}}
	if f, ok := s.stderr.(*os.File); ok && isTerminal(f) && s.getenv("TERM") != "dumb" {
		p.terminal, p.quiet = f, false
	}
	return p
}

// where names a call: "continuity 2/3: python3 -m lyra.dream era". A prompt in
// it is cut: the record has more of it.
func where(r cycle.Record, at int) string {
	n, of := 0, 0
	for i, c := range r.Calls {
		if c.Stage == r.Calls[at].Stage {
			of++
			if i <= at {
				n++
			}
		}
	}
	return oneLine(fmt.Sprintf("%s %d/%d: %s", r.Calls[at].Stage, n, of, cut(strings.Join(r.Calls[at].Argv, " "), 120)))
}

// cut shortens a text to so many characters, and shows that it did.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:max(0, most-1)]) + "…"
	}
	return text
}

// left is what is left of the budget.
func (p *progress) left(r cycle.Record) string {
	since, _ := p.pass.moment().Since(r.Boottime, r.BootID)
	left := time.Duration(r.BudgetMS)*time.Millisecond - since
	if left <= 0 {
		return "over budget"
	}
	return clock(left) + " of the budget left"
}

// clock prints a duration as a person counts it: 4:05, 1:00:00.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

func (p *progress) begins(r cycle.Record, at int) {
	if p.terminal == nil {
		p.line(check.Rest, fmt.Sprintf("%s (%s)", where(r, at), p.left(r)))
		return
	}
	begin, done := time.Now(), make(chan struct{})
	var drawing sync.WaitGroup
	drawing.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			p.redraw(where(r, at), fmt.Sprintf("  %s, %s", clock(time.Since(begin)), p.left(r)))
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	p.stop = func() { close(done); drawing.Wait(); p.redraw("", "") }
}

func (p *progress) ended(r cycle.Record, at int, f cycle.Facts) {
	p.stop()
	p.stop = func() {}
	word, what := check.Rest, "ok"
	if f.Reason != "" {
		word, what = check.Hold, f.Reason
	}
	what = fmt.Sprintf("%s: %s (%.1f s)", where(r, at), what, float64(f.ElapsedMS)/1000)
	if f.Leftovers > 0 {
		what += fmt.Sprintf("; left %s behind, killed", count(f.Leftovers, "process"))
	}
	if f.Escaped > 0 {
		what += fmt.Sprintf("; %s had escaped, killed", count(f.Escaped, "process"))
	}
	p.line(word, what)
}

func (p *progress) line(word check.Verdict, text string) {
	if !p.quiet {
		io.WriteString(p.w, p.pass.inkFor(p.w).line(word, text))
	}
}

// redraw replaces the terminal's last line; no longer than the terminal is
// wide, for a line that wraps cannot be replaced. The call gives way to the
// numbers.
func (p *progress) redraw(call, numbers string) {
	if size, err := unix.IoctlGetWinsize(int(p.terminal.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		room := int(size.Col) - 1
		numbers = cut(numbers, room)
		call = cut(call, room-len([]rune(numbers)))
	}
	fmt.Fprintf(p.terminal, "\r\x1b[K%s%s", call, numbers)
}
