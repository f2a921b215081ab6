package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/notify"
	"tickdog/state"
	"tickdog/units"

	"pgregory.net/rapid"
)

// simAgent is an agent of a simulated machine.
type simAgent struct {
	name, unit string
	mode       string
	pid        int
	cures      bool // a restart makes it answer again
	restarted  []float64
}

var simModes = []string{"ok", "ok", "deaf", "busy", "died", "failed", "stopped", "T", "faulty", "foreign", "activating"}

// simWorld is the machine: what systemctl and the probes of a pass meet, and
// the one channel that alerts go to. It can kill the pass at any of its calls.
type simWorld struct {
	t      *rapid.T
	dir    string
	agents []*simAgent
	now    check.Moment

	killAt   int // calls until the pass is killed; negative: it is not
	kills    int
	busy     bool // a restart is under way
	restarts int
	told     []string // alerts as they arrived
}

type passKilled struct{}

func (w *simWorld) call() {
	if w.killAt == 0 {
		w.kills++
		panic(passKilled{})
	}
	w.killAt--
}

func (w *simWorld) of(unit string) *simAgent {
	for _, a := range w.agents {
		if a.unit == unit {
			return a
		}
	}
	w.t.Fatalf("no unit %q", unit)
	return nil
}

// run is systemctl.
func (w *simWorld) run(_ context.Context, c units.Command) units.Result {
	w.call()
	r := units.Result{Argv: c.Argv}
	last := c.Argv[len(c.Argv)-1]
	switch c.Argv[2] {
	case "show":
		_, asked, _ := strings.Cut(strings.Join(c.Argv, " "), " -- ")
		for i, unit := range strings.Fields(asked) {
			if i > 0 {
				r.Stdout = append(r.Stdout, '\n')
			}
			a := w.of(unit)
			words := map[string]string{"died": "died", "failed": "failed", "stopped": "stopped-failed", "activating": "activating"}[a.mode]
			if words == "" {
				words = "active"
			}
			r.Stdout = fmt.Appendf(r.Stdout, "Id=%s\nLoadState=loaded\nNRestarts=0\nMainPID=%d\n%s", unit, a.pid, unitStates[words])
		}
	case "restart":
		w.restart(w.of(last))
	}
	return r
}

// restart holds what must be true of every restart.
func (w *simWorld) restart(a *simAgent) {
	if w.busy {
		w.t.Fatal("two restarts at once")
	}
	w.busy = true
	defer func() { w.busy = false }()
	if a.mode == "ok" || a.mode == "stopped" || a.mode == "faulty" || a.mode == "foreign" || a.mode == "activating" {
		w.t.Fatalf("%s is restarted, and it is %s", a.unit, a.mode)
	}
	if n := len(a.restarted); n > 0 && w.now.Boot-a.restarted[n-1] < 599 {
		w.t.Fatalf("%s is restarted %.0f s after its last restart", a.unit, w.now.Boot-a.restarted[n-1])
	}
	// It was recorded, and its alert written down, before.
	if text := readFile(filepath.Join(w.dir, "state/a2a-selfheal-restarts")); !strings.Contains(text, fmt.Sprintf("%s %d ", a.unit, w.now.Epoch())) {
		w.t.Fatalf("%s is restarted and not recorded at %d:\n%s", a.unit, w.now.Epoch(), text)
	}
	waiting, _ := filepath.Glob(filepath.Join(w.dir, "state/outbox/*"))
	written := false
	for _, file := range waiting {
		written = written || strings.Contains(readFile(file), "restarted "+a.unit)
	}
	if !written {
		w.t.Fatalf("%s is restarted and its alert is not written down", a.unit)
	}
	w.restarts++
	a.restarted = append(a.restarted, w.now.Boot)
	a.pid++
	if a.mode == "died" || a.mode == "failed" || a.cures {
		a.mode = "deaf"
	}
	if a.cures {
		a.mode = "ok"
	}
	w.call()
}

func (w *simWorld) Look(ctx context.Context, subjects []agents.Agent, shown map[string]map[string]string) (all []agents.Seen) {
	for _, s := range subjects {
		a := w.of(s.Unit)
		seen := agents.Seen{Unit: agents.ReadUnit(shown[s.Unit], 3600e6), Process: w.Process(a.pid), Health: w.Health(ctx, s)}
		seen.Dispatch = w.Dispatch(ctx, s)
		switch {
		case seen.Health.Class != agents.HealthOK && a.mode != "T":
			seen.Dispatch = agents.Dispatch{Class: agents.DispatchSkipped}
		case a.mode == "busy":
			seen.Health.Task.Text = fmt.Sprint("task ", w.now.Epoch())
		}
		all = append(all, seen)
	}
	w.call()
	return all
}

func (w *simWorld) Health(_ context.Context, s agents.Agent) agents.Health {
	switch w.of(s.Unit).mode {
	case "died", "failed", "stopped", "activating":
		return agents.Health{Class: agents.HealthRefused}
	case "T":
		return agents.Health{Class: agents.HealthMute}
	case "foreign":
		return agents.Health{Class: agents.HealthForeign}
	}
	return agents.Health{Class: agents.HealthOK, Task: agents.Task{Known: true}}
}

func (w *simWorld) Dispatch(_ context.Context, s agents.Agent) agents.Dispatch {
	switch w.of(s.Unit).mode {
	case "ok":
		return agents.Dispatch{Class: agents.DispatchCompleted}
	case "faulty":
		return agents.Dispatch{Class: agents.DispatchFaulty}
	}
	return agents.Dispatch{Class: agents.DispatchDead}
}

func (w *simWorld) Process(pid int) agents.Process {
	for _, a := range w.agents {
		if a.pid == pid && a.mode == "T" {
			return agents.Process{State: "T"}
		}
	}
	return agents.Process{State: "S"}
}

func (w *simWorld) Name() string { return "sim" }

func (w *simWorld) Send(_ context.Context, a notify.Alert) error {
	w.told = append(w.told, a.Text)
	return nil
}

// pass is one start of tickdog on this machine.
func (w *simWorld) pass() (killed bool) {
	dir, err := state.Open(filepath.Join(w.dir, "state"))
	if err != nil {
		w.t.Fatal(err)
	}
	p := &program{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, moment: func() check.Moment { return w.now }}
	cfg := p.defaults()
	cfg.Agents.Log, cfg.Agents.Settle = filepath.Join(w.dir, "log"), 0
	for _, a := range w.agents {
		cfg.Agents.Agent = append(cfg.Agents.Agent, agentConfig{Name: a.name, Unit: a.unit})
	}
	s := &pass{program: p, cfg: cfg, name: cfg.Agents.Name, now: w.now, dir: dir, began: time.Now(), measured: metrics{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.outbox = notify.OpenOutbox(dir, w)
	a := newAgentsPass(s)
	a.prober, a.systemctl = w, units.Systemctl{User: true, Run: w.run}
	defer s.end()
	defer func() {
		w.busy = false
		if r := recover(); r != nil {
			if _, ok := r.(passKilled); !ok {
				panic(r)
			}
			killed = true
		}
	}()
	a.run()
	s.finish(true)
	return false
}

// TestRapidAgentsPass walks the real pass, with its real files and outbox, over
// a simulated machine: agents that heal or do not, clock steps, and passes
// killed at any call.
func TestRapidAgentsPass(t *testing.T) {
	home := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(home, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := &simWorld{t: t, dir: dir, now: testMoment("0")}
		for i := range rapid.IntRange(1, 4).Draw(t, "agents") {
			name := fmt.Sprint("a", i)
			w.agents = append(w.agents, &simAgent{
				name: name, unit: name + ".service", pid: 1<<30 + 1000*i,
				mode: rapid.SampledFrom(simModes).Draw(t, "mode"), cures: rapid.Bool().Draw(t, "cures"),
			})
		}
		for range rapid.IntRange(1, 12).Draw(t, "passes") {
			w.killAt = -1
			if rapid.IntRange(0, 3).Draw(t, "kill") == 0 {
				w.killAt = rapid.IntRange(0, 8).Draw(t, "at call")
			}
			w.pass()
			if rapid.IntRange(0, 9).Draw(t, "clock steps") == 0 {
				w.now.Wall = w.now.Wall.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(t, "by")) * time.Second)
			}
			for _, a := range w.agents {
				if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
					a.mode = rapid.SampledFrom(simModes).Draw(t, "mode")
				}
			}
			lapse := rapid.IntRange(60, 400).Draw(t, "until the next pass")
			w.now.Wall, w.now.Boot = w.now.Wall.Add(time.Duration(lapse)*time.Second), w.now.Boot+float64(lapse)
		}
		// A quiet pass, late enough for what a killed one left behind.
		w.killAt = -1
		for _, a := range w.agents {
			a.mode = "ok"
		}
		w.now.Wall, w.now.Boot = w.now.Wall.Add(4*time.Hour), w.now.Boot+4*3600
		w.pass()

		told := 0
		for _, text := range w.told {
			if strings.HasPrefix(text, "a2a-selfheal: restarted ") {
				told++
			}
		}
		if told < w.restarts || told > w.restarts+w.kills {
			t.Fatalf("%d restarts, %d passes killed, but %d told: %q", w.restarts, w.kills, told, w.told)
		}
		// What was recorded and not done, because the pass was killed in between,
		// is logged as a restart whose outcome nobody saw.
		log := readFile(filepath.Join(dir, "log"))
		logged := strings.Count(log, " restart ")
		if logged < w.restarts || logged > w.restarts+w.kills {
			t.Fatalf("%d restarts, %d passes killed, but %d logged:\n%s", w.restarts, w.kills, logged, log)
		}
	})
}
