package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"tickdog/check"
	"tickdog/check/cycle"
	"tickdog/state"
	"tickdog/units"
)

// cyclesShown is how many cycles of a name 'tickdog status' shows.
const cyclesShown = 5

// cycleStatus is what 'tickdog status' shows of the last cycles, the newest
// first: a table, its heads first, and lines below it.
func (p *program) cycleStatus(stateDir string, now check.Moment) (table [][]string, below []string) {
	dir := state.View(stateDir)
	names, err := os.ReadDir(dir.Path("cycles"))
	if err != nil && !os.IsNotExist(err) {
		return nil, []string{"the records cannot be listed: " + err.Error()}
	}
	for _, name := range names {
		past, err := cycle.Look(dir.Path("cycles/" + name.Name()))
		if err != nil {
			below = append(below, err.Error())
			continue
		}
		slices.Reverse(past)
		for _, one := range past[:min(len(past), cyclesShown)] {
			table = append(table, cycleRow(name.Name(), one, now))
		}
	}
	if len(table) > 0 {
		table = slices.Insert(table, 0, []string{"CYCLE", "STARTED", "OUTCOME", "HOW"})
	}
	return table, below
}

func cycleRow(name string, past cycle.Past, now check.Moment) []string {
	r := past.Record
	if past.Bad != "" {
		return []string{name, past.File, "unreadable", past.Bad}
	}
	outcome, how := string(r.Outcome), r.Reason()
	if r.Outcome == cycle.Running {
		if r.BootID == now.BootID && units.Alive(r.Runner, r.StartTicks) {
			how = runningNow(r, now)
		} else {
			outcome, how = string(cycle.Interrupted), cycle.Interrupt(r).Reason()+" (tickdog was killed; the next cycle writes it down)"
		}
	}
	started := r.Started
	if at, err := time.Parse(time.RFC3339, r.Started); err == nil {
		started = at.In(now.Wall.Location()).Format(time.DateTime)
	}
	return []string{name, started, outcome, oneLine(how)}
}

// runningNow says which call runs and since when.
func runningNow(r cycle.Record, now check.Moment) string {
	since, _ := now.Since(r.Boottime, r.BootID)
	text := fmt.Sprintf("for %s of %s", clock(since), clock(time.Duration(r.BudgetMS)*time.Millisecond))
	for at, c := range r.Calls {
		if c.End == cycle.InProgress {
			text += ", now " + where(r, at)
		}
	}
	return text
}
