package agents

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tickdog/check"
)

// standing is an agent whose pass ended with this state and verdict.
func standing(unit, state string, v check.Verdict) Standing {
	s := Standing{Unit: unit, Alone: Verdict{state, v, "why"}, Seen: up()}
	switch state {
	case Down, Wedged, Busy, Suspect:
		s.Seen.Dispatch.Class = DispatchDead
		s.State.Deaf = at(0).Boot
	case Healthy:
		s.State.Answering = at(0).Boot
	}
	return s
}

func wedged(unit string, deaf float64) Standing {
	s := standing(unit, Wedged, check.Act)
	s.State.Deaf = at(deaf).Boot
	return s
}

func healthyOnes(n int) (all []Standing) {
	for i := range n {
		all = append(all, standing(fmt.Sprintf("ok%d", i), Healthy, check.Rest))
	}
	return all
}

// tried is an attempt so many seconds into the test.
func tried(seconds float64, count int) Attempt {
	m := at(seconds)
	return Attempt{Epoch: m.Epoch(), Count: count, Boot: m.Boot, BootID: m.BootID}
}

// queue are the units of a course in the order of their restarts.
func queue(c Course) (units []string) {
	for _, i := range c.Queue {
		units = append(units, c.Agents[i].Unit)
	}
	return units
}

func TestBudget(t *testing.T) {
	rebooted := at(300)
	rebooted.BootID, rebooted.Boot = "another", 30
	late := at(700)
	late.BootID, late.Boot = "another", 30
	stepped := at(700)
	stepped.Wall = stepped.Wall.Add(-10 * time.Hour)
	for name, test := range map[string]struct {
		last Attempt
		now  check.Moment
		free bool
	}{
		"within ten minutes":        {tried(0, 1), at(599), false},
		"after ten minutes":         {tried(0, 1), at(600), true},
		"a clock set back":          {tried(0, 1), stepped, true},
		"a reboot":                  {tried(0, 1), rebooted, false},
		"a reboot, ten minutes ago": {tried(0, 1), late, true},
		"recorded by a wrong clock": {Attempt{Epoch: at(1e9).Epoch(), BootID: "another", Boot: 5}, at(0), false},
	} {
		f, c := Plan(Fleet{Attempts: map[string]Attempt{"nova": test.last}}, []Standing{wedged("nova", 0)}, "", test.now, testLimits)
		if free := len(c.Queue) == 1; free != test.free {
			t.Errorf("%s: free is %v, want %v", name, free, test.free)
		}
		if v := c.Agents[0].Verdict; !test.free && (v.Verdict != check.Hold || !strings.Contains(v.Reason, "may be again at")) {
			t.Errorf("%s: %s: %s", name, v.Verdict, v.Reason)
		}
		if epoch := f.Attempts["nova"].Epoch; epoch > test.now.Epoch() {
			t.Errorf("%s: the epoch stays in the future", name)
		}
	}
}

func TestFreeze(t *testing.T) {
	three := Fleet{Attempts: map[string]Attempt{"nova": tried(0, 3)}}
	f, c := Plan(three, []Standing{wedged("nova", 0)}, "", at(120), testLimits)
	if len(c.Queue) != 0 || c.Agents[0].Verdict.State != Frozen || c.Agents[0].Verdict.Verdict != check.Hold {
		t.Fatalf("%v %+v", c.Queue, c.Agents[0].Verdict)
	}
	if len(c.Incidents) != 1 || c.Incidents[0].Kind != Frozen {
		t.Fatalf("told %v", c.Incidents)
	}
	f, c = Plan(f, []Standing{wedged("nova", 0)}, "", at(7200), testLimits)
	if len(c.Queue) != 0 || len(c.Incidents) != 0 {
		t.Fatalf("later: %v, told %v", c.Queue, c.Incidents)
	}
	f, _ = Plan(f, []Standing{standing("nova", Healthy, check.Rest)}, "", at(7320), testLimits)
	if len(f.Frozen) != 0 || f.Attempts["nova"].Count != 0 {
		t.Fatalf("after an answer: %+v", f)
	}
	if _, still := three.Frozen["nova"]; still || three.Attempts["nova"].Count != 3 {
		t.Error("Plan changed what it was given")
	}

	// Half an hour of answers makes earlier attempts count no more.
	for _, answering := range []struct{ seconds, count float64 }{{1799, 2}, {1800, 0}} {
		s := standing("nova", Healthy, check.Rest)
		f, _ := Plan(Fleet{Attempts: map[string]Attempt{"nova": tried(0, 2)}}, []Standing{s}, "", at(answering.seconds), testLimits)
		if f.Attempts["nova"].Count != int(answering.count) {
			t.Errorf("after %v s of answers: %d attempts", answering.seconds, f.Attempts["nova"].Count)
		}
	}
}

func TestPaused(t *testing.T) {
	faulty := standing("echo", Faulty, check.Hold)
	f := Fleet{Attempts: map[string]Attempt{"nova": tried(0, 3)}}
	all := []Standing{wedged("nova", 0), faulty}
	f, c := Plan(f, all, "paused until noon", at(3600), testLimits)
	if len(c.Queue) != 0 || len(c.Incidents) != 0 || len(f.Frozen) != 0 {
		t.Errorf("queue %v, told %v, frozen %v", c.Queue, c.Incidents, f.Frozen)
	}
	if v := c.Agents[0].Verdict; v.Verdict != check.Hold || v.Reason != "why; paused until noon" {
		t.Errorf("%+v", v)
	}
	if _, c = Plan(f, all, "", at(3720), testLimits); len(c.Incidents) != 2 {
		t.Errorf("after the pause: told %v", c.Incidents)
	}
}

func TestStorm(t *testing.T) {
	all := append(healthyOnes(3), wedged("a", 60), wedged("b", 0), standing("c", Busy, check.Watch), standing("s1", Stopped, check.Rest))
	f, c := Plan(Fleet{}, all, "", at(120), testLimits)
	if !c.Storm || !slices.Equal(queue(c), []string{"b", "a"}) {
		t.Fatalf("storm %v, queue %v", c.Storm, queue(c))
	}
	if len(c.Incidents) != 1 || c.Incidents[0].Kind != "storm" {
		t.Fatalf("told %v", c.Incidents)
	}
	if v := c.Agents[c.Queue[1]].Verdict; v.Verdict != check.Hold || !strings.HasSuffix(v.Reason, "3 of 6 are deaf: only if b answers") {
		t.Errorf("%+v", v)
	}
	f = f.Attempted("b", true, at(121), testLimits)
	if f.Attempts["b"].Count != 0 {
		t.Error("an attempt in a storm counts towards a freeze")
	}

	// b does not answer: nothing more for ten minutes, then the next one.
	g, c := Plan(f, all, "", at(240), testLimits)
	if len(c.Queue) != 0 || len(c.Incidents) != 0 {
		t.Errorf("while it waits: queue %v, told %v", queue(c), c.Incidents)
	}
	if _, c = Plan(g, all, "", at(722), testLimits); !slices.Equal(queue(c), []string{"a", "b"}) {
		t.Errorf("after the wait: %v", queue(c))
	}

	// Any that was deaf and answers ends the wait.
	back := slices.Clone(all)
	back[5] = standing("c", Healthy, check.Rest)
	back[5].Prev.Deaf = at(0).Boot
	back[0] = standing("ok0", Suspect, check.Watch)
	if _, c = Plan(g, back, "", at(360), testLimits); !slices.Equal(queue(c), []string{"a"}) {
		t.Errorf("when c answers: %v", queue(c))
	}
	// b answered after its restart, and is deaf again: a goes on.
	if _, c = Plan(f.Answered("b"), all, "", at(240), testLimits); !slices.Equal(queue(c), []string{"a"}) {
		t.Errorf("when b answered: %v", queue(c))
	}
	// It is told of again only after it has ended.
	calm, _ := Plan(g, append(healthyOnes(5), wedged("a", 60)), "", at(360), testLimits)
	if calm.Storm != (Storm{}) {
		t.Errorf("the storm lasts: %+v", calm.Storm)
	}
}

func TestStormNeedsThreeAndHalf(t *testing.T) {
	for _, test := range []struct {
		deaf, healthy, stopped int
		storm                  bool
	}{
		{2, 0, 0, false}, {3, 0, 0, true}, {3, 3, 0, true}, {3, 4, 0, false}, {3, 3, 5, true}, {4, 4, 0, true}, {8, 0, 0, true}, {1, 0, 7, false},
	} {
		all := healthyOnes(test.healthy)
		for i := range test.deaf {
			all = append(all, wedged(fmt.Sprint("w", i), 0))
		}
		for i := range test.stopped {
			all = append(all, standing(fmt.Sprint("s", i), Stopped, check.Rest))
		}
		if _, c := Plan(Fleet{}, all, "", at(0), testLimits); c.Storm != test.storm {
			t.Errorf("%d deaf, %d healthy, %d stopped: storm is %v", test.deaf, test.healthy, test.stopped, c.Storm)
		}
	}
}

// TestToldOnce: an impostor, a faulty agent, a crash loop and blindness are
// told when they begin, and again only after the agent was well.
func TestToldOnce(t *testing.T) {
	foreign := up()
	foreign.Health, foreign.Dispatch = Health{Class: HealthForeign}, Dispatch{Class: DispatchSkipped}
	unasked := foreign
	unasked.Unit = Unit{}
	faulty := up()
	faulty.Dispatch = Dispatch{Class: DispatchFaulty}
	for name, test := range map[string]struct {
		seen []Seen
		want []int // the passes that tell
	}{
		"impostor":     {[]Seen{foreign, foreign, foreign}, []int{0}},
		"twice":        {[]Seen{faulty, up(), faulty, faulty}, []int{0, 2}},
		"two kinds":    {[]Seen{faulty, foreign, faulty}, []int{0, 1}},
		"blind":        {slices.Repeat([]Seen{unasked}, 8), []int{4}},
		"blind inside": {[]Seen{faulty, unasked, faulty}, []int{0}},
	} {
		var told []int
		states := make([]State, 2)
		for pass, one := range test.seen {
			var all []Standing
			for i := range states {
				next, v := Decide(states[i], one, at(float64(120*pass)), testLimits)
				all = append(all, Standing{Unit: fmt.Sprint("u", i), Prev: states[i], State: next, Seen: one, Alone: v})
			}
			_, c := Plan(Fleet{}, all, "", at(float64(120*pass)), testLimits)
			for i := range states {
				states[i] = c.Agents[i].State
			}
			for _, in := range c.Incidents {
				told = append(told, pass)
				if len(in.Units) != 2 {
					t.Errorf("%s: one cause is told as %v", name, in.Units)
				}
			}
		}
		if !slices.Equal(told, test.want) {
			t.Errorf("%s: told at %v, want %v", name, told, test.want)
		}
	}
}

func TestRecheck(t *testing.T) {
	prev, _ := follow(testLimits, dead(""))
	next, v := Decide(prev, dead(""), at(120), testLimits)
	s := Standing{Unit: "nova", Prev: prev, State: next, Seen: dead(""), Alone: v}
	if v.Verdict != check.Act {
		t.Fatal("not wedged to begin with")
	}
	restarted, stopped, again := dead(""), dead(""), dead("")
	restarted.Unit.MainPID = 99
	stopped.Unit = unitWords["stopped"]
	again.Dispatch.Repeated = true
	for name, test := range map[string]struct {
		seen Seen
		want string
	}{
		"as it was":           {dead(""), Wedged},
		"still at our text":   {again, Wedged},
		"it answers":          {up(), Healthy},
		"it took up a task":   {dead("A"), Busy},
		"another process":     {restarted, Starting},
		"a person stopped it": {stopped, Stopped},
	} {
		if v := Recheck(s, test.seen, at(120), testLimits); v.State != test.want || (v.Verdict == check.Act) != (test.want == Wedged) {
			t.Errorf("%s: %s %s", name, v.State, v.Verdict)
		}
	}

	// A dead unit that a person started while the others were looked at has its
	// first process, and what was seen of its health is of before.
	gone := Seen{Unit: unitWords["died"], Health: Health{Class: HealthRefused}, Dispatch: Dispatch{Class: DispatchSkipped}}
	started := gone
	started.Unit = up().Unit
	if v := Recheck(Standing{Unit: "nova", Seen: gone}, started, at(120), testLimits); v.State != Starting {
		t.Errorf("started by hand: %s %s", v.State, v.Verdict)
	}
}

func TestGo(t *testing.T) {
	for _, test := range []struct {
		last Outcome
		age  time.Duration
		on   bool
	}{
		{Left, 20 * time.Second, true}, {Answering, 99 * time.Second, true},
		{Deaf, 20 * time.Second, false}, {Left, 100 * time.Second, false}, {Answering, 200 * time.Second, false},
	} {
		if stop := Go(test.last, "nova", test.age, testLimits); (stop == "") != test.on {
			t.Errorf("%v after %v: %q", test.last, test.age, stop)
		}
	}
}
