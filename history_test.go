package main

import (
	"reflect"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/check/gpu"

	"pgregory.net/rapid"
)

// What a pass was given comes out of its history line again, whatever a
// stranger's text in it says: replay decides on exactly that.

func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.Just(""), rapid.StringMatching(`[a-z]{1,8}`), rapid.String()).Draw(t, label)
}

func drawMoment(t *rapid.T) check.Moment {
	return check.Moment{
		Wall:   time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "epoch"), 0),
		Boot:   float64(rapid.Int64Range(0, 1e9).Draw(t, "boot")) / 1e3,
		BootID: rapid.SampledFrom([]string{"", "b1", "0f2c61ac-1"}).Draw(t, "boot id"),
	}
}

func drawVerdict(t *rapid.T) verdict {
	return verdict{
		Subject: rapid.SampledFrom([]string{"0000:03:00.0", "GPU[0]", "gpu", "lab-a2a-nova.service"}).Draw(t, "subject"),
		State:   rapid.SampledFrom([]string{"busy", "crash loop", "unknown"}).Draw(t, "state"),
		Verdict: rapid.SampledFrom(check.Verdicts).Draw(t, "verdict"),
		Action:  rapid.SampledFrom([]string{"", "stop", "restart"}).Draw(t, "action"),
		Result:  drawText(t, "result"),
	}
}

func drawNumber(t *rapid.T, label string) gpu.Number {
	if rapid.Bool().Draw(t, label+" known") {
		return gpu.Known(rapid.Float64Range(0, 1e4).Draw(t, label))
	}
	return gpu.Number{}
}

func checkPast(t *rapid.T, got past, now check.Moment, v verdict) {
	t.Helper()
	if want := (past{now, v.Subject, v.State, v.Verdict, v.Action, v.Result}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestGPUHistoryComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, v := drawMoment(t), drawVerdict(t)
		seen := gpu.Seen{Paused: drawText(t, "paused"), Reading: gpu.Reading{
			Card: v.Subject, Busy: drawNumber(t, "busy"), Junction: drawNumber(t, "junction"), Power: drawNumber(t, "power"),
			HasJunction: rapid.Bool().Draw(t, "sensor"), Suspended: rapid.Bool().Draw(t, "asleep"), Why: drawText(t, "why"),
		}}
		line := gpuHistoryLine(now, seen, v)
		got, err := parseGPUHistory(line)
		if err != nil || got.seen != seen {
			t.Fatalf("%s\ngot  %+v (%v)\nwant %+v", line, got.seen, err, seen)
		}
		checkPast(t, got.past, now, v)
	})
}

func TestAgentsHistoryComesBack(t *testing.T) {
	yes := func(t *rapid.T, label string) bool { return rapid.Bool().Draw(t, label) }
	ms := func(t *rapid.T, label string) int64 { return rapid.Int64Range(0, 20000).Draw(t, label) }
	stamp := func(t *rapid.T, label string) uint64 { return uint64(rapid.Int64Range(0, 1e15).Draw(t, label)) }
	rapid.Check(t, func(t *rapid.T) {
		now, v := drawMoment(t), drawVerdict(t)
		seen := agents.Seen{
			Unit: agents.Unit{
				Asked: yes(t, "asked"), Detail: drawText(t, "detail"), LoadState: drawText(t, "load"), ActiveState: drawText(t, "active"),
				SubState: drawText(t, "sub"), Result: drawText(t, "unit result"), MainPID: rapid.IntRange(0, 1<<22).Draw(t, "pid"),
				NRestartsKnown: yes(t, "restarts known"), InactiveExit: stamp(t, "inactive"), ActiveExit: stamp(t, "active exit"),
				ExecMainExit: stamp(t, "exec"), Monotonic: stamp(t, "monotonic"),
			},
			Process: agents.Process{State: drawText(t, "process"), CPUKnown: yes(t, "cpu known")},
			Health: agents.Health{
				Class: agents.HealthClass(drawText(t, "health")), Detail: drawText(t, "health detail"), Status: drawText(t, "status"),
				CircuitOpen: yes(t, "circuit"), Ms: ms(t, "health ms"), Slow: yes(t, "health slow"), Task: agents.Task{Known: yes(t, "task known"), Ours: yes(t, "ours")},
			},
			Dispatch: agents.Dispatch{
				Class: agents.DispatchClass(rapid.SampledFrom([]string{"completed", "dead", "skipped"}).Draw(t, "dispatch")), Detail: drawText(t, "dispatch detail"),
				Ms: ms(t, "dispatch ms"), Slow: yes(t, "dispatch slow"), Protocol: drawText(t, "protocol"), Repeated: yes(t, "repeated"),
			},
		}
		if seen.Unit.NRestartsKnown {
			seen.Unit.NRestarts = rapid.IntRange(0, 99).Draw(t, "restarts")
		}
		if seen.Process.CPUKnown {
			seen.Process.CPU = rapid.Float64Range(0, 1e6).Draw(t, "cpu")
		}
		if seen.Health.Task.Known {
			seen.Health.Task.Text = drawText(t, "task")
		}
		line := agentsHistoryLine(now, seen, v)
		got, err := parseAgentsHistory(line)
		if err != nil || !reflect.DeepEqual(got.seen, seen) {
			t.Fatalf("%s\ngot  %+v (%v)\nwant %+v", line, got.seen, err, seen)
		}
		checkPast(t, got.past, now, v)
	})
}
