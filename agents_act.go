package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/notify"
)

// act restarts what is in the queue, strictly one after another, until one
// does not answer or the pass is too old.
func (a *agentsPass) act() {
	last, unit := agents.Left, ""
	for n, i := range a.course.Queue {
		g, v := a.course.Agents[i], &a.results[i]
		if a.dryRun {
			a.wouldRestart(g, v)
			continue
		}
		stop := agents.Go(last, unit, time.Since(a.began), a.limits)
		if a.ctx.Err() != nil {
			stop = "the pass was told to end"
		}
		if stop != "" {
			v.Verdict, v.Reason = check.Hold, g.Alone.Reason+"; "+stop
			continue
		}
		last, unit = a.restart(i, n > 0), g.Unit
	}
}

func (a *agentsPass) wouldRestart(g agents.Standing, v *verdict) {
	if g.Verdict.Verdict != check.Act { // in a storm: only if the one before it answers
		return
	}
	v.Action, v.Result = "restart", "dry-run"
	if g.Seen.Unit.ActiveState == "failed" {
		v.WouldRun = append(v.WouldRun, a.systemctl.ResetFailedArgv(g.Unit))
	}
	v.WouldRun = append(v.WouldRun, a.systemctl.RestartArgv(g.Unit))
}

// restart is one turn of the queue: look once more, record, restart, and see
// whether the agent answers.
func (a *agentsPass) restart(i int, probe bool) agents.Outcome {
	g, v := a.course.Agents[i], &a.results[i]
	again, err := a.lookAgain(i, probe)
	if err != nil {
		v.Verdict, v.Reason = check.Hold, fmt.Sprintf("%s; but now systemd cannot be asked: %v", g.Alone.Reason, err)
		return agents.Left
	}
	if is := agents.Recheck(g, again, a.later(), a.limits); is.Verdict != check.Act {
		v.State, v.Verdict, v.Reason = is.State, is.Verdict, "left alone when its turn came: "+is.Reason
		return agents.Left
	}

	// It is recorded before it is done: what cannot be recorded could be done
	// again and again.
	before := a.memory.fleet
	a.memory.fleet = before.Attempted(g.Unit, a.course.Storm, a.later(), a.limits)
	if err := a.memory.saveFleet(); err != nil {
		a.memory.fleet = before
		v.Verdict, v.Reason = check.Hold, fmt.Sprintf("%s; not restarted, because that could not be recorded: %v", g.Alone.Reason, err)
		return agents.Left
	}
	why := g.Alone.State + ": " + g.Alone.Reason
	alert := a.tell(false, []string{"arrows_counterclockwise"}, "restarted %s (%s)", g.Unit, why)

	v.Verdict, v.Action, v.Result = check.Act, "restart", "done"
	began := time.Now()
	outcome, text := agents.Deaf, ""
	if failure := a.restartUnit(g.Unit, why, again); failure != "" {
		v.Result, text = "failed: "+failure, "the restart failed: "+failure
	} else if trouble := a.settle(i); trouble != "" {
		text = "it does not answer yet: " + trouble
	} else {
		outcome, text = agents.Answering, fmt.Sprintf("answering again in %.1f s", time.Since(began).Seconds())
	}
	v.Reason = g.Alone.Reason + "; " + text
	alert.outcome(text)
	if err := a.logRestart(g.Unit, text); err != nil {
		a.note("action log: %v", err)
	}
	if outcome == agents.Answering {
		a.healed[i] = true
		a.memory.fleet = a.memory.fleet.Answered(g.Unit)
	}
	if err := a.memory.saveFleet(); err != nil {
		a.note("%v", err)
	}
	return outcome
}

// logRestart gives a unit's last restart its line in the action log, under the
// time at which it was recorded. A line that is there already is not written
// again.
func (a *agentsPass) logRestart(unit, outcome string) error {
	attempt, at := a.memory.fleet.Attempts[unit], a.now
	at.Wall = time.Unix(attempt.Epoch, 0).In(a.now.Wall.Location())
	if err := notify.LogOnce(a.conf.Log, at, "restart "+unit, oneLine(attempt.Unlogged+"; "+outcome)); err != nil {
		return err
	}
	a.memory.fleet = a.memory.fleet.Owes(unit, "")
	return nil
}

// logLeft writes the lines that earlier passes owe the action log: they were
// killed before they could, or it could not be written, which they said.
func (a *agentsPass) logLeft() {
	for _, unit := range slices.Sorted(maps.Keys(a.memory.fleet.Attempts)) {
		if a.memory.fleet.Attempts[unit].Unlogged != "" && !a.dryRun {
			a.logRestart(unit, "outcome not seen")
		}
	}
}

// lookAgain reads an agent's unit once more; with probe, it asks the agent
// again as well.
func (a *agentsPass) lookAgain(i int, probe bool) (agents.Seen, error) {
	g, subject := a.course.Agents[i], a.subject(i)
	shown, err := a.systemctl.Show(a.ctx, []string{g.Unit}, agents.UnitProperties)
	if err != nil {
		return agents.Seen{}, err
	}
	if probe {
		subject.LastDead = g.Seen.Dispatch.Class == agents.DispatchDead
		return a.prober.Look(a.ctx, []agents.Agent{subject}, shown)[0], nil
	}
	again := g.Seen
	again.Unit = agents.ReadUnit(shown[g.Unit], again.Unit.Monotonic)
	again.Process.State = a.prober.Process(again.Unit.MainPID).State
	return again, nil
}

// restartUnit restarts a unit, bounded; a failed one is first told to forget
// that, and with it its start limit. From the last moment before the restart
// the action log is owed its line: not earlier, for it has nothing but restarts.
func (a *agentsPass) restartUnit(unit, why string, seen agents.Seen) (failure string) {
	if seen.Unit.ActiveState == "failed" {
		if failure := a.systemctl.ResetFailed(a.ctx, unit).Failure(); failure != "" {
			a.note("%s: %s", unit, failure)
		}
	}
	a.memory.fleet = a.memory.fleet.Owes(unit, oneLine(why))
	if err := a.memory.saveRestarts(); err != nil {
		a.note("%v", err)
	}
	return a.systemctl.Restart(a.ctx, unit, a.conf.RestartTimeout).Failure()
}

// settle waits for the agent's health, and then sends it one real message:
// only that says that the restart has helped.
func (a *agentsPass) settle(i int) (trouble string) {
	const pause = 250 * time.Millisecond
	subject := a.subject(i)
	for began := time.Now(); ; {
		h := a.prober.Health(a.ctx, subject)
		if h.Class == agents.HealthOK {
			break
		}
		if time.Since(began) >= a.conf.Settle {
			return fmt.Sprintf("no good health in %s (%s)", seconds(a.conf.Settle), h.Detail)
		}
		select {
		case <-a.ctx.Done():
			return "the pass was told to end"
		case <-time.After(pause):
		}
	}
	d := a.prober.Dispatch(a.ctx, subject)
	switch d.Class {
	case agents.DispatchCompleted, agents.DispatchRefused:
		return ""
	}
	if d.Detail == "" {
		return string(d.Class)
	}
	return d.Detail
}

// later is the moment now: the pass's own moment, and what it has lasted.
func (a *agentsPass) later() check.Moment {
	m, lasted := a.now, time.Since(a.began)
	m.Wall, m.Boot = m.Wall.Add(lasted), m.Boot+lasted.Seconds()
	return m
}
