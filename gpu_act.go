package main

import (
	"fmt"
	"time"

	"tickdog/check"
	"tickdog/check/gpu"
	"tickdog/units"
)

// act stops the container: ask whether it runs, stop it, ask again. Every step
// is bounded, and an unclear answer counts as "still runs".
func (g *gpuGuard) act() {
	docker := units.Docker{Program: g.Docker, Run: g.run}
	if g.dryRun {
		g.wouldAct(docker)
		return
	}
	running, known, detail := docker.Running(g.ctx, g.Container)
	switch {
	case known && !running && g.next.Failed > 0: // it needed longer than a pass waits
		g.action = "stop"
		g.seenStopped(nil, "stopped", "after all")
	case known && !running:
		g.foreign(detail)
	case g.next.Foreign && !known:
		g.because(check.Hold, "it is not known whether %s runs: %s", g.Container, detail)
	case g.next.Foreign:
		g.next, g.verdict = gpu.RunsAgain(g.next, g.verdict, g.now)
		g.because(check.Watch, "%s runs again: its count starts now", g.Container)
	default:
		g.stop(docker)
	}
	g.cards.set(g.subject, g.next)
}

// wouldAct says what act would run. It asks nothing.
func (g *gpuGuard) wouldAct(docker units.Docker) {
	if g.next.Foreign {
		g.next, g.verdict, _ = gpu.NotRunning(g.next, g.verdict)
		g.because(check.Hold, "%s was not running at the last pass", g.Container)
		g.wouldRun = [][]string{docker.RunningArgv(g.Container)}
		return
	}
	g.action, g.result = "stop", "dry-run"
	g.wouldRun = [][]string{docker.StopArgv(g.Container, g.StopTimeout)}
	if g.Kill && g.next.Failed > 0 {
		g.wouldRun = append(g.wouldRun, docker.KillArgv(g.Container))
	}
}

// stop stops the container, or kills it from the second failure in a row on,
// if that is allowed.
func (g *gpuGuard) stop(docker units.Docker) {
	g.action = "stop"
	why := g.verdict.Reason
	var alert *told
	if g.next.Failed == 0 { // the failures that follow belong to the same incident
		alert = g.tellStop("stop of", why)
	}
	began := time.Now()
	failure := g.stopped(docker, docker.Stop(g.ctx, g.Container, g.StopTimeout))
	verb := "stopped"
	if failure != "" && g.next.Failed > 0 && g.Kill {
		if killed := g.stopped(docker, docker.Kill(g.ctx, g.Container)); killed == "" {
			failure, verb = "", "killed"
		} else {
			failure += "; " + killed
		}
	}
	if failure == "" {
		g.seenStopped(alert, verb, fmt.Sprintf("in %.1f s", time.Since(began).Seconds()))
		return
	}
	first := false
	g.next, first = gpu.StillRuns(g.next)
	g.result = "failed: " + failure
	g.because(check.Act, "could not stop %s: %s; trying again at the next pass", g.Container, failure)
	g.log(g.Log, fmt.Sprintf("stop %s %s; failed: %s", g.Container, why, failure))
	if first {
		alert.rewrite("could not stop %s (%s): %s; trying again at every pass", g.Container, why, failure)
	}
}

// seenStopped ends the incident. alert is what was written down before the
// stop, nil if an earlier pass's told of a failure.
func (g *gpuGuard) seenStopped(alert *told, verb, how string) {
	why := g.verdict.Reason
	if alert == nil {
		alert = g.tellStop(verb, why)
	}
	alert.rewrite("%s %s (%s)", verb, g.Container, why)
	g.log(g.Log, fmt.Sprintf("stop %s %s; %s %s", g.Container, why, verb, how))
	g.next = gpu.Stopped(g.next)
	g.result = "done"
	g.because(check.Act, "%s %s %s", verb, g.Container, how)
}

// stopped is "" once the container is seen not to run; else why it is not.
func (g *gpuGuard) stopped(docker units.Docker, r units.Result) (failure string) {
	running, known, detail := docker.Running(g.ctx, g.Container)
	switch {
	case known && !running:
		return ""
	case r.Failure() != "":
		return r.Failure()
	case !known:
		return "it is not known whether it still runs: " + detail
	}
	return "it still runs"
}

// foreign holds: the container was not running, so this load is not its own.
func (g *gpuGuard) foreign(detail string) {
	first := false
	g.next, g.verdict, first = gpu.NotRunning(g.next, g.verdict)
	if detail == "" {
		detail = "not running"
	}
	g.because(check.Hold, "%s: %s; %s", g.Container, detail, g.users())
	if !first {
		return
	}
	g.tell(false, []string{"bust_in_silhouette"}, "it is not %s that uses %s (%s)", g.Container, g.subject, g.verdict.Reason)
	g.log(g.Log, fmt.Sprintf("hold %s %s", g.subject, g.verdict.Reason))
}

func (g *gpuGuard) tellStop(verb, why string) *told {
	return g.tell(true, []string{"octagonal_sign"}, "%s %s (%s)", verb, g.Container, why)
}
