package agents

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"tickdog/check"

	"pgregory.net/rapid"
)

// actor is one agent of the simulated world.
type actor struct {
	unit   string
	mode   string
	pid    int
	task   string
	cures  bool // a restart makes it answer again
	nCrash int
}

// What an agent of the world may be like.
var modes = []string{"ok", "ok", "ok", "idle wedge", "busy wedge", "working", "no port", "stopped by a person", "died", "SIGSTOP", "faulty", "overloaded", "foreign", "crash loop", "cannot ask", "declines"}

// look is what a pass sees of it.
func (a *actor) look() Seen {
	s := up()
	s.Unit.MainPID = a.pid
	s.Unit.NRestarts = a.nCrash
	s.Health.Task = Task{Known: true, Text: a.task}
	down := func(unit string) {
		s.Unit, s.Process = unitWords[unit], Process{}
		s.Unit.NRestarts, s.Unit.NRestartsKnown = a.nCrash, true
		s.Health, s.Dispatch = Health{Class: HealthRefused}, Dispatch{Class: DispatchSkipped}
	}
	switch a.mode {
	case "idle wedge":
		s.Health.Task.Text = ""
		s.Dispatch.Class = DispatchDead
	case "busy wedge", "working":
		s.Dispatch.Class = DispatchDead
	case "no port":
		s.Health, s.Dispatch = Health{Class: HealthRefused}, Dispatch{Class: DispatchSkipped}
	case "stopped by a person":
		down("stopped-failed")
	case "died":
		down("inactive-self")
	case "crash loop":
		down("activating")
	case "SIGSTOP":
		s.Process.State = "T"
		s.Health, s.Dispatch.Class = Health{Class: HealthMute}, DispatchDead
	case "faulty":
		s.Dispatch.Class = DispatchFaulty
	case "overloaded":
		s.Dispatch.Class = DispatchOverloaded
	case "declines":
		s.Dispatch.Class = DispatchRefused
	case "foreign":
		s.Health, s.Dispatch = Health{Class: HealthForeign}, Dispatch{Class: DispatchSkipped}
	case "cannot ask":
		s.Unit = Unit{}
	}
	return s
}

func didAnswer(s Seen) bool {
	return s.Dispatch.Class == DispatchCompleted || s.Dispatch.Class == DispatchRefused
}

// memory is what lies on the simulated disk.
type memory struct {
	states map[string]State
	fleet  Fleet
}

func (m memory) clone() memory {
	return memory{states: maps.Clone(m.states), fleet: m.fleet.clone()}
}

// record is one pass that was saved, as the oracle of the gate remembers it.
type record struct {
	now  check.Moment
	seen Seen
}

// attempted is a recorded restart.
type attempted struct {
	now   check.Moment
	age   float64
	steps int
}

// world is a machine, its agents, its disk, and what happened to them.
type world struct {
	t      *rapid.T
	actors []*actor
	now    check.Moment
	disk   memory
	boots  int
	steps  int     // of the wall clock
	age    float64 // seconds that really went by

	seen      map[string][]record
	attempts  map[string][]attempted
	restarts  int
	alerts    int // that tell of a restart
	incidents map[string]int
	open      map[string]bool // incidents that were told of and have not ended
	busy      bool            // a restart is going on
	crashAt   int             // steps until the pass is killed; negative: it is not
	killed    bool            // some pass was
}

type killed struct{}

// step is a point at which a pass may be killed.
func (w *world) step() {
	if w.crashAt == 0 {
		w.killed = true
		panic(killed{})
	}
	w.crashAt--
}

// pass is the order of a real one: load, look, decide, save, act, tell.
func (w *world) pass() {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
		w.busy = false
	}()
	began := w.now
	m := w.disk.clone()
	var all []Standing
	for _, a := range w.actors {
		seen := a.look()
		next, v := Decide(m.states[a.unit], seen, w.now, testLimits)
		all = append(all, Standing{Unit: a.unit, Prev: m.states[a.unit], State: next, Seen: seen, Alone: v})
		if v.Verdict == check.Act && (didAnswer(seen) || a.mode == "stopped by a person" || a.mode == "cannot ask") {
			w.t.Fatalf("%s (%s) wants a restart: %s", a.unit, a.mode, v.Reason)
		}
	}
	fleet, course := Plan(m.fleet, all, "", w.now, testLimits)
	m.fleet = fleet
	w.step()
	w.tell(course)
	w.step()
	for _, g := range course.Agents {
		m.states[g.Unit] = g.State
	}
	w.disk = m.clone()
	for _, g := range course.Agents {
		w.seen[g.Unit] = append(w.seen[g.Unit], record{w.now, g.Seen})
	}
	w.step()

	last, unit := Left, ""
	for n, i := range course.Queue {
		if Go(last, unit, seconds(w.now.Boot-began.Boot), testLimits) != "" {
			break
		}
		g, a := course.Agents[i], w.actors[i]
		if n > 0 && rapid.IntRange(0, 3).Draw(w.t, "changes") == 0 {
			a.mode = rapid.SampledFrom(modes).Draw(w.t, "mode meanwhile")
		}
		again := a.look()
		if n == 0 { // only its unit is read again
			again.Health, again.Dispatch = g.Seen.Health, g.Seen.Dispatch
		}
		last, unit = Left, g.Unit
		if Recheck(g, again, began, testLimits).Verdict != check.Act {
			continue
		}
		w.step()
		m.fleet = m.fleet.Attempted(g.Unit, course.Storm, w.now, testLimits)
		w.disk.fleet = m.fleet.clone()
		w.check(g, again)
		w.step()
		w.alerts++
		w.step()
		last = w.restart(a)
		w.step()
		if last == Answering {
			m.fleet = m.fleet.Answered(g.Unit)
			w.disk.fleet = m.fleet.clone()
			w.step()
		}
	}
}

// tell counts the incidents and holds that each is told once.
func (w *world) tell(c Course) {
	for _, g := range c.Agents {
		if g.Verdict.State == Healthy {
			delete(w.open, Frozen+g.Unit)
		}
		if g.Verdict.State == Healthy || g.Verdict.State == Stopped {
			for _, kind := range []string{CrashLoop, Impostor, Faulty, "blind"} {
				delete(w.open, kind+g.Unit)
			}
		}
	}
	if !c.Storm {
		delete(w.open, "storm")
	}
	for _, in := range c.Incidents {
		keys := []string{"storm"}
		if in.Kind != "storm" {
			keys = nil
			for _, unit := range in.Units {
				keys = append(keys, in.Kind+unit)
			}
		}
		for _, key := range keys {
			if w.open[key] && !w.killed { // a killed pass may have told what it could not save
				w.t.Fatalf("%s is told twice", key)
			}
			w.open[key] = true
			w.incidents[key]++
		}
	}
}

// check holds what must be true of every restart at the moment it is recorded.
func (w *world) check(g Standing, again Seen) {
	for _, earlier := range w.attempts[g.Unit] {
		// After a reboot only the wall clock is left, and if a person sets it in
		// between nobody can know.
		known := earlier.now.BootID == w.now.BootID || earlier.steps == w.steps
		if gap := w.age - earlier.age; known && gap < testLimits.RestartEvery.Seconds()-1 {
			w.t.Fatalf("%s is restarted %.0f s after its last restart", g.Unit, gap)
		}
	}
	w.attempts[g.Unit] = append(w.attempts[g.Unit], attempted{w.now, w.age, w.steps})
	if didAnswer(g.Seen) || didAnswer(again) {
		w.t.Fatalf("%s is restarted although it answered", g.Unit)
	}
	if again.Unit.ended() && again.Unit.askedToStop() {
		w.t.Fatalf("%s is restarted although a person stopped it", g.Unit)
	}
	if g.Alone.State == Wedged {
		if why := gateHolds(w.seen[g.Unit]); why != "" {
			w.t.Fatalf("%s is restarted too early: %s", g.Unit, why)
		}
	}
}

// gateHolds says the busy gate once more, in another way: over the whole
// history of passes instead of from one to the next.
func gateHolds(history []record) (why string) {
	last := history[len(history)-1].now
	begin := len(history) - 1 // where the latest unbroken watch begins
	for begin > 0 {
		before, after := history[begin-1].now, history[begin].now
		if before.BootID != after.BootID || after.Boot-before.Boot > 600 || after.Boot < before.Boot {
			break
		}
		begin--
	}
	watch := history[begin:]
	hard, since, run := watch[0].now.Boot, watch[0].now.Boot, 0
	pid, task, known := 0, "", false
	for i, r := range watch {
		if t := r.seen.Health.Task; t.Known {
			if known && t.Text != task && r.now.Boot-hard <= 1800 {
				since = r.now.Boot
			}
			task, known = t.Text, true
		}
		if p := r.seen.Unit.MainPID; p != 0 {
			if pid != 0 && p != pid {
				hard, since, run = r.now.Boot, r.now.Boot, i
			}
			pid = p
		}
		switch r.seen.Dispatch.Class {
		case DispatchCompleted, DispatchRefused:
			hard, since, run = r.now.Boot, r.now.Boot, i+1
		case DispatchFaulty, DispatchOverloaded:
			run = i + 1
		}
	}
	deadOnes := slices.DeleteFunc(slices.Clone(watch[run:]), func(r record) bool { return r.seen.Dispatch.Class != DispatchDead })
	if len(deadOnes) < 2 || last.Boot-deadOnes[0].now.Boot < 60 {
		return "no two dead probes"
	}
	if last.Boot-since >= 300 {
		return ""
	}
	idle := slices.Clone(deadOnes)
	for i := len(idle) - 1; i >= 0; i-- {
		if t := idle[i].seen.Health.Task; !t.Known || t.Text != "" {
			idle = idle[i+1:]
			break
		}
	}
	if len(idle) < 2 || last.Boot-idle[0].now.Boot < 60 {
		return fmt.Sprintf("a task, and work was seen %.0f s ago", last.Boot-since)
	}
	return ""
}

// restart does it to the world, and says what came of it.
func (w *world) restart(a *actor) Outcome {
	if w.busy {
		w.t.Fatal("two restarts at once")
	}
	w.busy = true
	w.restarts++
	w.lapse(rapid.Float64Range(1, 60).Draw(w.t, "restart takes"))
	a.pid, a.nCrash = a.pid+1, 0
	if a.cures {
		a.mode = "ok"
	}
	w.step()
	w.busy = false
	if didAnswer(a.look()) {
		return Answering
	}
	return Deaf
}

func (w *world) lapse(seconds float64) {
	w.age += seconds
	w.now.Boot += seconds
	w.now.Wall = w.now.Wall.Add(time.Duration(seconds * float64(time.Second)))
}

// change is what happens between two passes.
func (w *world) change() {
	switch rapid.IntRange(0, 19).Draw(w.t, "event") {
	case 0:
		w.steps++
		w.now.Wall = w.now.Wall.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(w.t, "clock step")) * time.Second)
	case 1:
		w.boots++
		w.now.BootID, w.now.Boot = fmt.Sprint("boot", w.boots), 20
		for _, a := range w.actors {
			a.pid++
		}
	case 2:
		w.lapse(rapid.Float64Range(300, 4000).Draw(w.t, "gap"))
	}
	for _, a := range w.actors {
		if rapid.IntRange(0, 9).Draw(w.t, "change") == 0 {
			a.mode = rapid.SampledFrom(modes).Draw(w.t, "mode")
			a.task = rapid.SampledFrom([]string{"", "A", "B"}).Draw(w.t, "task")
		}
		switch a.mode {
		case "working":
			a.task = rapid.SampledFrom([]string{"A", "B", "C"}).Draw(w.t, "task")
		case "crash loop":
			a.nCrash += rapid.IntRange(0, 4).Draw(w.t, "crashes")
		}
	}
}

// TestRapidFleet holds what no sequence of passes may break, with up to twelve
// agents, clock steps, reboots, gaps, and passes killed between any two steps.
func TestRapidFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			t: t, now: at(0), disk: memory{states: map[string]State{}},
			seen: map[string][]record{}, attempts: map[string][]attempted{},
			incidents: map[string]int{}, open: map[string]bool{},
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "agents") {
			w.actors = append(w.actors, &actor{
				unit: fmt.Sprint("unit", i), pid: 100 * (i + 1),
				mode:  rapid.SampledFrom(modes).Draw(t, "mode"),
				cures: rapid.Bool().Draw(t, "cures"),
			})
		}
		kills := rapid.Bool().Draw(t, "kills")
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			w.crashAt = -1
			if kills && rapid.IntRange(0, 3).Draw(t, "kill") == 0 {
				w.crashAt = rapid.IntRange(0, 12).Draw(t, "at step")
			}
			w.pass()
			w.change()
			w.lapse(rapid.Float64Range(5, 200).Draw(t, "until the next pass"))
		}
		recorded := 0
		for _, all := range w.attempts {
			recorded += len(all)
		}
		if w.restarts > recorded || w.alerts < w.restarts {
			t.Fatalf("%d restarts, %d recorded, %d told", w.restarts, recorded, w.alerts)
		}
		if !w.killed && (w.restarts != recorded || w.restarts != w.alerts) {
			t.Fatalf("%d restarts, %d recorded, %d told", w.restarts, recorded, w.alerts)
		}
	})
}

// TestRapidDeadForGood: an agent that nothing helps is restarted within the
// passes that the rules give, three times, and then frozen.
func TestRapidDeadForGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &actor{unit: "unit", pid: 1, mode: rapid.SampledFrom([]string{"idle wedge", "busy wedge", "no port", "died", "SIGSTOP"}).Draw(t, "mode"), task: "A"}
		// The latest that a restart may be wanted after the agent was seen first
		// or restarted: 130 s to the next pass, and what the gate asks.
		wanted := map[string]float64{"idle wedge": 2 * 130, "busy wedge": 300 + 2*130, "no port": 130, "died": 130, "SIGSTOP": 130}[a.mode]
		others := healthyOnes(2)
		var s State
		fleet, now, began := Fleet{}, at(0), at(0)
		var restarts []float64
		for frozen := false; !frozen; {
			seen := a.look()
			next, v := Decide(s, seen, now, testLimits)
			var c Course
			fleet, c = Plan(fleet, append([]Standing{{Unit: a.unit, Prev: s, State: next, Seen: seen, Alone: v}}, others...), "", now, testLimits)
			s = c.Agents[0].State
			if frozen = c.Agents[0].Verdict.State == Frozen; frozen && len(restarts) != 3 {
				t.Fatalf("frozen after %d restarts", len(restarts))
			}
			if len(c.Queue) > 0 {
				fleet = fleet.Attempted(a.unit, false, now, testLimits)
				restarts = append(restarts, now.Boot)
				a.pid++
			}
			last, limit := began.Boot, wanted
			if len(restarts) > 0 {
				last, limit = restarts[len(restarts)-1], max(wanted, 600+130)
			}
			if len(restarts) > 3 || now.Boot-last > limit+1 {
				t.Fatalf("%s: %.0f s after the last of %d restarts: %s", a.mode, now.Boot-last, len(restarts), c.Agents[0].Verdict.Reason)
			}
			d := rapid.Float64Range(110, 130).Draw(t, "until the next pass")
			now.Boot += d
			now.Wall = now.Wall.Add(seconds(d))
		}
	})
}
