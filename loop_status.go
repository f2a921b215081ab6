package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"tickdog/check"
	"tickdog/check/loop"
	"tickdog/state"
)

// runsShown is how many runs 'tickdog status' shows: what stands still first,
// then what moved last.
const runsShown = 20

// loopStatus is what 'tickdog status' shows of the runs: a table, its heads
// first, and a line below it; none of both if there is nothing to show.
func (p *program) loopStatus(stateDir string, now check.Moment) (table [][]string, below string) {
	l := p.viewLoops(stateDir)
	runs, err := l.list(now)
	if err != nil {
		return nil, fmt.Sprintf("the runs cannot be listed: %v", err)
	}
	all := l.halted("")
	if all {
		below = "all runs are halted; 'tickdog loop unhalt' lifts that"
	}
	if len(runs) == 0 {
		return nil, below
	}
	rank := func(r listed) int {
		switch {
		case r.bad != "" || r.run.Frozen != nil || r.halted:
			return 0
		case r.run.Remaining(now) > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(runs, func(a, b listed) int { return cmp.Compare(rank(a), rank(b)) })
	if more := len(runs) - runsShown; more > 0 {
		runs = runs[:runsShown]
		if below == "" {
			below = fmt.Sprintf("and %d more; 'tickdog loop list' has them all", more)
		}
	}
	table = [][]string{{"RUN", "NOW", "ACTIONS", "CORRECTIONS", "FAILURES", "MOVED", "WHY"}}
	for _, r := range runs {
		what, why := r.standing(now, all)
		name := state.OneLine(cmp.Or(r.id, r.key))
		if r.bad != "" { // none of its numbers is known
			table = append(table, []string{name, what, "?", "?", "?", "?", state.OneLine(why)})
			continue
		}
		table = append(table, []string{
			name, what, strconv.Itoa(r.run.Actions), strconv.Itoa(r.run.Corrections),
			fmt.Sprintf("%d in a row of %d", r.run.Streak, r.run.ProviderFailures),
			time.Unix(r.run.Updated, 0).Format("2006-01-02 15:04:05"), state.OneLine(why),
		})
	}
	return table, below
}

// standing says in two words and a reason where a run stands.
func (r listed) standing(now check.Moment, all bool) (what, why string) {
	if r.bad != "" {
		return "unreadable", r.bad
	}
	v := r.run.Standing(now, loop.Limits{Halted: all || r.halted})
	switch v.Action {
	case loop.Freeze:
		return "frozen: " + v.Reason, v.Text
	case loop.BackOff:
		return "waits " + r.run.Remaining(now).Round(time.Second).String(), v.Code + " " + v.Subject
	case loop.Halt:
		return "halted", ""
	}
	return string(v.Action), ""
}
