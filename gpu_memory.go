package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/check/gpu"
	"tickdog/state"
	"tickdog/units"
)

// gpuCard is a line of the state file.
type gpuCard struct {
	name  string
	state gpu.State
}

// gpuCards are all of its lines, in their order.
type gpuCards []gpuCard

// noCard is what a pass calls the card when it cannot see which one it is.
const noCard = "gpu"

// parse adds a line of the state file.
func (c *gpuCards) parse(text string) error {
	line, err := state.ParseLine(text, gpu.StateColumns)
	if err != nil {
		return err
	}
	name, s, err := gpu.ParseState(line.Columns, line.Get)
	if err != nil {
		return err
	}
	if address := gpu.PCIAddress(name); address != "" {
		name = address // a person may have written it as lspci or rocm-smi does
	}
	if c.has(name) {
		return fmt.Errorf("a second line for %s", name)
	}
	c.set(name, s)
	return nil
}

// lines are the lines to save.
func (c gpuCards) lines() (lines []string) {
	for _, one := range c {
		line := state.Line{Columns: one.state.Columns(one.name)}
		for _, pair := range one.state.Pairs() {
			line.Add(pair[0], pair[1])
		}
		lines = append(lines, line.String())
	}
	return lines
}

func (c gpuCards) has(name string) bool {
	for _, one := range c {
		if one.name == name {
			return true
		}
	}
	return false
}

// of is the state of a card; of one that is not known, "just started".
func (c gpuCards) of(name string) gpu.State {
	for _, one := range c {
		if one.name == name {
			return one.state
		}
	}
	return gpu.State{}
}

func (c *gpuCards) set(name string, s gpu.State) {
	for i := range *c {
		if (*c)[i].name == name {
			(*c)[i].state = s
			return
		}
	}
	*c = append(*c, gpuCard{name, s})
}

// running tells whether a card has a busy streak that an idle sample would
// end, so that it must be confirmed.
func (c gpuCards) running(now check.Moment, maxGap time.Duration) bool {
	for _, one := range c {
		gap, ok := now.Since(one.state.BusyAt, one.state.BootID)
		if one.state.Running && ok && gap <= maxGap {
			return true
		}
	}
	return false
}

// watched is the address of the card that the passes have been about until
// now, "" if that is not known or too long ago.
func (c gpuCards) watched(now check.Moment, maxGap time.Duration) (address string) {
	last := maxGap
	for _, one := range c {
		gap, ok := now.Since(one.state.CheckedAt, one.state.BootID)
		if ok && gap <= last && gpu.PCIAddress(one.name) != "" {
			address, last = one.name, gap
		}
	}
	return address
}

// subject is the card that a pass is about. A pass that sees none is about the
// one that is wanted, or else about the one that was watched so far, or about
// the only one it remembers.
func (c gpuCards) subject(r gpu.Reading, want, was string) string {
	switch address := gpu.PCIAddress(want); {
	case r.Card != "":
		return r.Card
	case address != "":
		return address
	case was != "":
		return was
	case len(c) == 1:
		return c[0].name
	}
	return noCard
}

// drop forgets what has no meaning any more: cards of an earlier boot, and
// the nameless one as soon as its name is known.
func (c gpuCards) drop(current, bootID string) (kept gpuCards) {
	for _, one := range c {
		if one.name == current || one.name != noCard && one.state.BootID == bootID {
			kept = append(kept, one)
		}
	}
	return kept
}

// remembered loads the state. One that cannot be understood is set aside, and
// every count starts anew.
func (g *gpuGuard) remembered() {
	file := g.name + "-busy"
	if _, good := g.load(file, g.cards.parse); good {
		return
	}
	g.cards = nil
	if _, err := os.Lstat(g.dir.Path(file)); !errors.Is(err, fs.ErrNotExist) {
		return // it could not be moved, or nothing may be: this would be told at every pass
	}
	g.tell(false, []string{"warning"}, "the state file %s could not be understood and was set aside; every count starts anew", g.dir.Path(file))
}

// save writes the state. That it cannot be written keeps nothing from happening.
func (g *gpuGuard) save() {
	g.cards = g.cards.drop(g.subject, g.now.BootID)
	err := g.dir.Save(g.name+"-busy", gpu.StateHeader, g.cards.lines())
	if err != nil && !g.unsaved {
		g.note("state not saved: %v", err)
	}
	g.unsaved = err != nil
}

// runForLook is the bounded run that check/gpu looks through.
func (g *gpuGuard) runForLook(ctx context.Context, c gpu.Command) gpu.Output {
	r := g.run(ctx, units.Command{Argv: c.Argv, Env: c.Env, Timeout: c.Timeout, Grace: c.Grace, Key: c.Key})
	failure := r.Failure()
	if _, what, ok := strings.Cut(failure, ": "); ok {
		failure = c.Key + ": " + what // "sysfs: no end in 15 s", for it is this program that reads it
	}
	return gpu.Output{Stdout: r.Stdout, Failure: failure, Cut: r.Cut, Complaint: r.Complaint()}
}
