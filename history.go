package main

import (
	"fmt"
	"strconv"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/check/gpu"
	"tickdog/state"
)

// The history <name>-history has one line a subject and pass:
//
//	epoch boottime boot_id subject state verdict key=value…
//
// It is everything that Decide was given, so that replay can give it again,
// and what came of it. A key that is missing was not known, or is as usual.

const historyColumns = 6

// past is what every line of a history holds.
type past struct {
	now            check.Moment
	subject        string
	state          string
	verdict        check.Verdict
	action, result string
}

// newHistoryLine is a line as far as all guards' are alike.
func newHistoryLine(now check.Moment, v verdict) (line state.Line) {
	boot := now.BootID
	if boot == "" {
		boot = "-"
	}
	line.Columns = []string{strconv.FormatInt(now.Epoch(), 10), number(now.Boot), boot, v.Subject, v.State, string(v.Verdict)}
	addText(&line, "action", v.Action)
	addText(&line, "result", v.Result)
	return line
}

func parsePast(text string) (p past, line state.Line, err error) {
	if line, err = state.ParseLine(text, historyColumns); err != nil {
		return past{}, line, err
	}
	var f fields
	c := line.Columns
	p = past{subject: c[3], state: c[4], verdict: check.Verdict(c[5])}
	p.now = check.Moment{Wall: time.Unix(f.integer(c[0]), 0), Boot: f.number(c[1]), BootID: c[2]}
	if p.now.BootID == "-" {
		p.now.BootID = ""
	}
	p.action, _ = line.Get("action")
	p.result, _ = line.Get("result")
	return p, line, f.err
}

// gpuHistoryLine is what a pass keeps of its card.
func gpuHistoryLine(now check.Moment, seen gpu.Seen, v verdict) string {
	line, r := newHistoryLine(now, v), seen.Reading
	addNumber(&line, "busy", r.Busy)
	addNumber(&line, "junction", r.Junction)
	addNumber(&line, "power", r.Power)
	addFlag(&line, "sensor", r.HasJunction)
	addFlag(&line, "asleep", r.Suspended)
	addText(&line, "paused", seen.Paused)
	addText(&line, "why", r.Why)
	return line.String()
}

// gpuPast is a line of the GPU guard's history.
type gpuPast struct {
	past
	seen gpu.Seen
}

func parseGPUHistory(text string) (gpuPast, error) {
	p, line, err := parsePast(text)
	if err != nil {
		return gpuPast{}, err
	}
	in := historyPairs{Line: line}
	seen := gpu.Seen{Paused: in.text("paused"), Reading: gpu.Reading{
		Card: p.subject, Busy: in.reading("busy"), Junction: in.reading("junction"), Power: in.reading("power"),
		HasJunction: in.flag("sensor"), Suspended: in.flag("asleep"), Why: in.text("why"),
	}}
	return gpuPast{p, seen}, in.err
}

// agentsHistoryLine is what a pass keeps of one agent.
func agentsHistoryLine(now check.Moment, seen agents.Seen, v verdict) string {
	line := newHistoryLine(now, v)
	u, h, d := seen.Unit, seen.Health, seen.Dispatch
	addText(&line, "dispatch", string(d.Class)) // always there: it tells this history from a GPU's
	addInt(&line, "dispatch_ms", d.Ms)
	addText(&line, "dispatch_says", d.Detail)
	addText(&line, "protocol", d.Protocol)
	addFlag(&line, "repeated", d.Repeated)
	addFlag(&line, "dispatch_slow", d.Slow)

	addUnlike(&line, "health", string(h.Class), "ok")
	addInt(&line, "health_ms", h.Ms)
	addText(&line, "health_says", h.Detail)
	addUnlike(&line, "status", h.Status, "running")
	if h.Task.Known {
		line.Add("task", h.Task.Text)
	}
	addFlag(&line, "task_ours", h.Task.Ours)
	addFlag(&line, "circuit_open", h.CircuitOpen)
	addFlag(&line, "health_slow", h.Slow)

	addFlag(&line, "unasked", !u.Asked)
	addText(&line, "unit_says", u.Detail)
	addUnlike(&line, "load", u.LoadState, "loaded")
	addUnlike(&line, "active", u.ActiveState, "active")
	addUnlike(&line, "sub", u.SubState, "running")
	addUnlike(&line, "unit_result", u.Result, "success")
	addInt(&line, "pid", int64(u.MainPID))
	if u.NRestartsKnown {
		line.Add("restarts", strconv.Itoa(u.NRestarts))
	}
	addInt(&line, "inactive_exit_us", int64(u.InactiveExit))
	addInt(&line, "active_exit_us", int64(u.ActiveExit))
	addInt(&line, "exec_exit_us", int64(u.ExecMainExit))
	addInt(&line, "monotonic_us", int64(u.Monotonic))

	addText(&line, "process", seen.Process.State)
	if seen.Process.CPUKnown {
		line.Add("cpu_s", number(seen.Process.CPU))
	}
	return line.String()
}

// agentsPast is a line of the agents' history.
type agentsPast struct {
	past
	seen agents.Seen
}

func parseAgentsHistory(text string) (agentsPast, error) {
	p, line, err := parsePast(text)
	if err != nil {
		return agentsPast{}, err
	}
	in := historyPairs{Line: line}
	seen := agents.Seen{
		Dispatch: agents.Dispatch{
			Class: agents.DispatchClass(in.text("dispatch")), Ms: in.int("dispatch_ms"), Detail: in.text("dispatch_says"),
			Protocol: in.text("protocol"), Repeated: in.flag("repeated"), Slow: in.flag("dispatch_slow"),
		},
		Health: agents.Health{
			Class: agents.HealthClass(in.textOr("health", "ok")), Ms: in.int("health_ms"), Detail: in.text("health_says"),
			Status: in.textOr("status", "running"), CircuitOpen: in.flag("circuit_open"), Slow: in.flag("health_slow"),
			Task: agents.Task{Known: in.has("task"), Text: in.text("task"), Ours: in.flag("task_ours")},
		},
		Unit: agents.Unit{
			Asked: !in.flag("unasked"), Detail: in.text("unit_says"), LoadState: in.textOr("load", "loaded"),
			ActiveState: in.textOr("active", "active"), SubState: in.textOr("sub", "running"), Result: in.textOr("unit_result", "success"),
			MainPID: int(in.int("pid")), NRestarts: int(in.int("restarts")), NRestartsKnown: in.has("restarts"),
			InactiveExit: uint64(in.int("inactive_exit_us")), ActiveExit: uint64(in.int("active_exit_us")),
			ExecMainExit: uint64(in.int("exec_exit_us")), Monotonic: uint64(in.int("monotonic_us")),
		},
		Process: agents.Process{State: in.text("process"), CPU: in.float("cpu_s"), CPUKnown: in.has("cpu_s")},
	}
	return agentsPast{p, seen}, in.err
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func addText(line *state.Line, key, value string) {
	if value != "" {
		line.Add(key, value)
	}
}

// addUnlike leaves out what is as usual: eight agents that are well make most
// of the file.
func addUnlike(line *state.Line, key, value, usual string) {
	if value != usual {
		line.Add(key, value)
	}
}

func addFlag(line *state.Line, key string, set bool) {
	if set {
		line.Add(key, "yes")
	}
}

func addInt(line *state.Line, key string, n int64) {
	if n != 0 {
		line.Add(key, strconv.FormatInt(n, 10))
	}
}

func addNumber(line *state.Line, key string, n gpu.Number) {
	if n.Known {
		line.Add(key, number(n.Value))
	}
}

// historyPairs reads a line's pairs and keeps the first mistake.
type historyPairs struct {
	state.Line
	err error
}

func (in *historyPairs) has(key string) bool {
	_, ok := in.Get(key)
	return ok
}

func (in *historyPairs) text(key string) string {
	value, _ := in.Get(key)
	return value
}

func (in *historyPairs) textOr(key, usual string) string {
	if value, ok := in.Get(key); ok {
		return value
	}
	return usual
}

func (in *historyPairs) flag(key string) bool {
	value, ok := in.Get(key)
	if ok && value != "yes" {
		in.wrong(key, value)
	}
	return ok
}

func (in *historyPairs) float(key string) float64 {
	value, ok := in.Get(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n >= 0 && n < 1e15) {
		in.wrong(key, value)
		return 0
	}
	return n
}

func (in *historyPairs) int(key string) int64 {
	value, ok := in.Get(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > 1e18 {
		in.wrong(key, value)
		return 0
	}
	return n
}

func (in *historyPairs) reading(key string) gpu.Number {
	if !in.has(key) {
		return gpu.Number{}
	}
	return gpu.Known(in.float(key))
}

func (in *historyPairs) wrong(key, value string) {
	if in.err == nil {
		in.err = fmt.Errorf("%s=%s cannot be", key, state.OneLine(value))
	}
}
