package main

import (
	"time"

	"tickdog/check"
	"tickdog/check/agents"
)

// agentsReplay is what each set of limits would have made of recorded passes.
type agentsReplay struct {
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Passes int           `json:"passes"`
	Units  []string      `json:"units"`
	Trials []agentsTrial `json:"limits"`
}

// agentsTrial is what one set of limits would have done.
type agentsTrial struct {
	Gate           string  `json:"gate"`
	BusyCapSeconds float64 `json:"busy_cap_s"`
	Restarts       []event `json:"restarts"`
	NearMisses     []event `json:"near_misses"` // deaf spells that ended by themselves
	Incidents      []event `json:"incidents"`   // what a person would have been told beside restarts

	states map[string][]moment // of each unit, pass by pass
}

// moment is a mark in a picture.
type moment struct {
	at   time.Time
	mark string
}

func replayAgents(rec *recording, limits []agents.Limits) *agentsReplay {
	r := &agentsReplay{Passes: len(rec.passes), Units: rec.units}
	r.From, r.To = bounds(len(rec.passes), func(i int) time.Time { return rec.passes[i].now.Wall })
	for _, l := range limits {
		r.Trials = append(r.Trials, tryAgents(rec, l))
	}
	return r
}

// tryAgents runs recorded passes through Decide and Plan. A restart is taken
// to have helped: what was recorded of the agent until it next answers, or is
// another process, would not have happened.
func tryAgents(rec *recording, l agents.Limits) agentsTrial {
	t := agentsTrial{Gate: "off", BusyCapSeconds: l.BusyCap.Seconds(), states: map[string][]moment{}, Restarts: []event{}, NearMisses: []event{}, Incidents: []event{}}
	if l.Gate {
		t.Gate = "on"
	}
	known := map[string]agents.State{}
	restarted := map[string]int{} // its main process then
	var fleet agents.Fleet
	for _, pass := range rec.passes {
		var all []agents.Standing
		for _, unit := range rec.units {
			seen, ok := pass.seen[unit]
			if !ok {
				continue
			}
			if pid, was := restarted[unit]; was {
				if !over(seen, pid) {
					t.mark(unit, pass.now, "restarted")
					continue
				}
				delete(restarted, unit)
			}
			prev := known[unit]
			next, v := agents.Decide(prev, seen, pass.now, l)
			all = append(all, agents.Standing{Unit: unit, Prev: prev, State: next, Seen: seen, Alone: v})
		}
		var course agents.Course
		fleet, course = agents.Plan(fleet, all, "", pass.now, l)
		for _, g := range course.Agents {
			known[g.Unit] = g.State
			t.mark(g.Unit, pass.now, g.Verdict.State)
			if g.Prev.Deaf != 0 && g.Verdict.State == agents.Healthy && g.Prev.BootID == pass.now.BootID {
				deaf := time.Duration((pass.now.Boot - g.Prev.Deaf) * float64(time.Second))
				t.NearMisses = append(t.NearMisses, event{pass.now.Wall, g.Unit, "answered again by itself after " + stretch(deaf)})
			}
		}
		for _, in := range course.Incidents {
			for _, unit := range in.Units {
				t.Incidents = append(t.Incidents, event{pass.now.Wall, unit, in.Kind + ": " + in.Reason})
			}
		}
		for _, i := range course.Queue {
			g := course.Agents[i]
			if g.Verdict.Verdict != check.Act { // in a storm: only if the one before it answers
				continue
			}
			t.Restarts = append(t.Restarts, event{pass.now.Wall, g.Unit, g.Verdict.State + ": " + g.Verdict.Reason})
			t.mark(g.Unit, pass.now, "restart")
			fleet = fleet.Attempted(g.Unit, course.Storm, pass.now, l).Answered(g.Unit)
			restarted[g.Unit] = g.Seen.Unit.MainPID
			known[g.Unit] = agents.State{}
		}
	}
	return t
}

// over tells whether what a restart would have ended is over in what was
// recorded.
func over(seen agents.Seen, pid int) bool {
	switch seen.Dispatch.Class {
	case agents.DispatchCompleted, agents.DispatchRefused:
		return true
	}
	now := seen.Unit.MainPID
	return now != 0 && pid != 0 && now != pid
}

func (t *agentsTrial) mark(unit string, now check.Moment, state string) {
	t.states[unit] = append(t.states[unit], moment{now.Wall, state})
}
