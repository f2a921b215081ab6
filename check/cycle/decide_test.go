package cycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tickdog/check"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var lyra = []Stage{
	{"continuity", [][]string{{"dream", "profile"}, {"dream", "era"}, {"dream", "narrative"}}},
	{"coherence", [][]string{{"dream", "reflect"}}},
	{"curiosity", [][]string{{"dream", "think"}}},
}

var usual = Limits{Budget: 20 * time.Minute, CallCeiling: 5 * time.Minute, KillGrace: 10 * time.Second}

func at(elapsed time.Duration) check.Moment {
	begin := time.Date(2026, 7, 4, 3, 30, 0, 0, time.UTC)
	return check.Moment{Wall: begin.Add(elapsed), Boot: 5000 + elapsed.Seconds(), BootID: "b"}
}

func exited(code int) Facts { return Facts{Code: &code, StoppedBy: "none"} }

// play runs the plan with calls that end as ends says, in turn (the last one
// again and again), each taking so long, and returns the record and the calls
// that were run.
func play(stages []Stage, limits Limits, each time.Duration, ends ...Seen) (r Record, ran []string) {
	now := time.Duration(0)
	r = Begin("dream-cycle", stages, at(0), limits)
	var seen Seen
	for {
		var step Step
		r, step = Decide(r, seen, at(now), limits)
		if step.Call < 0 {
			return r, ran
		}
		ran = append(ran, r.Calls[step.Call].Argv[1])
		seen = ends[min(len(ran), len(ends))-1]
		now += each
	}
}

func ends(r Record) string {
	var words []string
	for _, c := range r.Calls {
		words = append(words, string(c.End))
	}
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	ok := Seen{Call: exited(0)}
	fails := Seen{Call: exited(1)}
	cut := Seen{Call: Facts{Code: new(int), TimedOut: true, StoppedBy: "term"}}
	for _, test := range []struct {
		name    string
		each    time.Duration
		seen    []Seen
		outcome Outcome
		ends    string
		skipped string
	}{
		{"inside the budget", time.Minute, []Seen{ok},
			Completed, "ok ok ok ok ok", ""},
		{"the first stage uses it up", 7 * time.Minute, []Seen{ok}, // 3 × 7 = 21
			StoppedEarly, "ok ok ok skipped skipped", "coherence curiosity"},
		{"the second stage uses it up; it ends, the third is skipped", 6 * time.Minute, []Seen{ok}, // 18, then 24
			StoppedEarly, "ok ok ok ok skipped", "curiosity"},
		{"exactly used up is used up", 5 * time.Minute, []Seen{ok}, // 15, then 20
			StoppedEarly, "ok ok ok ok skipped", "curiosity"},
		{"nothing is left to skip", 4*time.Minute + time.Second, []Seen{ok}, // 20:05 after the last
			Completed, "ok ok ok ok ok", ""},
		{"a call fails: its stage ends, the next runs", time.Minute, []Seen{fails, ok},
			Failed, "exit skipped skipped ok ok", ""},
		{"a call is cut, though it said 0", time.Minute, []Seen{ok, cut, ok},
			Failed, "ok timed_out skipped ok ok", ""},
		{"124 is no more than an exit status", time.Minute, []Seen{{Call: exited(124)}, ok},
			Failed, "exit skipped skipped ok ok", ""},
		{"a signal", time.Minute, []Seen{ok, ok, {Call: Facts{Signal: "SIGSEGV", StoppedBy: "none"}}, ok},
			Failed, "ok ok signal ok ok", ""},
		{"none can be started", 0, []Seen{{Call: Facts{NotStarted: true}}},
			Failed, "spawn_failed skipped skipped spawn_failed spawn_failed", ""},
		{"fails and is over", 21 * time.Minute, []Seen{fails},
			StoppedEarly, "exit skipped skipped skipped skipped", "coherence curiosity"},
		{"tickdog is stopped", time.Minute, []Seen{ok, {Call: Facts{Signal: "SIGTERM", Told: true, StoppedBy: "term"}, Stop: true}},
			Interrupted, "ok interrupted skipped skipped skipped", "coherence curiosity"},
		{"stopped and over budget", 21 * time.Minute, []Seen{{Call: Facts{Told: true, StoppedBy: "kill"}, Stop: true}},
			Interrupted, "interrupted skipped skipped skipped skipped", "coherence curiosity"},
		{"stopped between two calls", time.Minute, []Seen{ok, {Call: exited(0), Stop: true}},
			Interrupted, "ok ok skipped skipped skipped", "coherence curiosity"},
		{"stopped when all was done", time.Minute, []Seen{ok, ok, ok, ok, {Call: exited(0), Stop: true}},
			Completed, "ok ok ok ok ok", ""},
	} {
		r, _ := play(lyra, usual, test.each, test.seen...)
		got := fmt.Sprintf("%s: %s: %s", r.Outcome, ends(r), strings.Join(r.Skipped, " "))
		if want := fmt.Sprintf("%s: %s: %s", test.outcome, test.ends, test.skipped); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", test.name, got, want)
		}
		if (r.Action == "stopped early (over budget)") != (r.Outcome == StoppedEarly) {
			t.Errorf("%s: action %q", test.name, r.Action)
		}
		if r.Ended == "" || r.OverrunMS != max(0, r.ElapsedMS-r.BudgetMS) {
			t.Errorf("%s: ended %q, overrun %d", test.name, r.Ended, r.OverrunMS)
		}
	}
}

// TestOverBudget is the seed's first test of the budget: a pass that goes over
// it skips the later stages and records the action.
func TestOverBudget(t *testing.T) {
	r, ran := play(lyra, usual, 7*time.Minute, Seen{Call: exited(0)})
	if want := []string{"profile", "era", "narrative"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q", ran)
	}
	if r.Action != "stopped early (over budget)" || r.OverrunMS != time.Minute.Milliseconds() || r.Verdict() != check.Act {
		t.Errorf("%+v", r)
	}
	want := "dream cycle over budget — stopped early: 3 of 5 calls in 1260 s of 1200 s; skipped coherence, curiosity"
	if r.Reason() != want {
		t.Errorf("%q\nwant %q", r.Reason(), want)
	}
}

// TestInsideBudget is the seed's second: one that does not, runs them all.
func TestInsideBudget(t *testing.T) {
	r, ran := play(lyra, usual, time.Minute, Seen{Call: exited(0)})
	if want := []string{"profile", "era", "narrative", "reflect", "think"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q", ran)
	}
	if r.Action != "" || r.Reason() != "5 of 5 calls in 300 s of 1200 s" || r.Verdict() != check.Rest {
		t.Errorf("%+v: %s", r, r.Reason())
	}
}

func TestClocks(t *testing.T) {
	begin := func() Record {
		r, step := Decide(Begin("c", lyra, at(0), usual), Seen{}, at(0), usual)
		if step.Call != 0 {
			t.Fatal(step)
		}
		for i := range 2 { // up to the last call of the first stage
			r, step = Decide(r, Seen{Call: exited(0)}, at(time.Duration(i+1)*time.Minute), usual)
		}
		return r
	}
	for name, test := range map[string]struct {
		wall, boot time.Duration
		over       bool
		elapsed    time.Duration
	}{
		"as usual":                           {3 * time.Minute, 3 * time.Minute, false, 3 * time.Minute},
		"the clock is set forward an hour":   {63 * time.Minute, 3 * time.Minute, false, 3 * time.Minute},
		"the clock is set back an hour":      {-57 * time.Minute, 3 * time.Minute, false, 3 * time.Minute},
		"set back, and the budget is used":   {-30 * time.Minute, 30 * time.Minute, true, 30 * time.Minute},
		"an hour of suspend inside the call": {63 * time.Minute, 63 * time.Minute, true, 63 * time.Minute},
		"a boottime that goes back":          {3 * time.Minute, -time.Minute, false, 2 * time.Minute},
	} {
		now := at(test.wall)
		now.Boot = at(test.boot).Boot
		r, step := Decide(begin(), Seen{Call: exited(0)}, now, usual)
		if over := step.Call < 0; over != test.over || r.ElapsedMS != test.elapsed.Milliseconds() || r.OverrunMS < 0 {
			t.Errorf("%s: over %v, elapsed %d ms", name, over, r.ElapsedMS)
		}
	}
	// The reboot that no process lives through, for a record that was edited.
	now := at(time.Hour)
	now.BootID = "another"
	if r, step := Decide(begin(), Seen{Call: exited(0)}, now, usual); step.Call < 0 || r.ElapsedMS != 120_000 {
		t.Errorf("%+v %d", step, r.ElapsedMS)
	}
}

func TestDeadline(t *testing.T) {
	r, step := Decide(Begin("c", lyra, at(0), usual), Seen{}, at(time.Second), usual)
	want := at(time.Second + usual.CallCeiling).Wall.UnixMilli()
	if got := r.Calls[step.Call].DeadlineMS; got != want {
		t.Errorf("%d, want %d", got, want)
	}
}

func TestInterrupt(t *testing.T) {
	r, _ := Decide(Begin("c", lyra, at(0), usual), Seen{}, at(0), usual)
	r, _ = Decide(r, Seen{Call: exited(0)}, at(time.Minute), usual)
	got := Interrupt(r)
	if got.Outcome != Interrupted || ends(got) != "ok interrupted skipped skipped skipped" || got.Ended != "" || got.Verdict() != check.Hold {
		t.Errorf("%s: %s: %+v", got.Outcome, ends(got), got)
	}
	want := "1 of 5 calls in 60 s of 1200 s; continuity interrupted; skipped coherence, curiosity"
	if got.Reason() != want {
		t.Errorf("%q\nwant %q", got.Reason(), want)
	}
	if ends(r) != "ok running planned planned planned" {
		t.Errorf("the argument was changed: %s", ends(r))
	}
	done, _ := play(lyra, usual, time.Minute, Seen{Call: exited(0)})
	if diff := cmp.Diff(done, Interrupt(done)); diff != "" {
		t.Error(diff)
	}
}

func TestStages(t *testing.T) {
	failed := exited(3)
	failed.Reason, failed.ElapsedMS = "dream: exit 3: no model", 1500
	cut := Facts{TimedOut: true, Reason: "dream: no end in 300 s", ElapsedMS: 300_000, Signal: "SIGTERM"}
	good := exited(0)
	good.ElapsedMS = 2000
	r, _ := play(lyra, usual, 7*time.Minute, Seen{Call: good}, Seen{Call: failed}, Seen{Call: cut})
	want := []StageResult{
		{"continuity", Failed, check.Hold, "1 of 3 calls in 3.5 s; dream: exit 3: no model"},
		{"coherence", Failed, check.Act, "0 of 1 calls in 300 s; dream: no end in 300 s"},
		{"curiosity", StoppedEarly, check.Hold, "0 of 1 calls in 0.0 s; not started"},
	}
	if diff := cmp.Diff(want, r.Stages()); diff != "" {
		t.Error(diff)
	}
}

func TestWorstCase(t *testing.T) {
	for _, test := range []struct {
		name   string
		stages []Stage
		limits Limits
		want   time.Duration
	}{
		// 15:10 for the first, 20:20 for the second, and the third starts at 20:00 at the latest.
		{"the sample", lyra, usual, 25*time.Minute + 10*time.Second},
		{"one call", lyra[1:2], usual, 5*time.Minute + 10*time.Second},
		{"none", nil, usual, 0},
		{"a long first stage", lyra, Limits{Budget: time.Minute, CallCeiling: 5 * time.Minute}, 15 * time.Minute},
	} {
		if got := WorstCase(test.stages, test.limits); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestAnyCycle drives plans of any shape through calls that end in any way at
// any time.
func TestAnyCycle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Budget:      time.Duration(rapid.IntRange(1, 100).Draw(t, "budget")) * time.Second,
			CallCeiling: time.Duration(rapid.IntRange(1, 30).Draw(t, "ceiling")) * time.Second,
			KillGrace:   time.Duration(rapid.IntRange(0, 5).Draw(t, "grace")) * time.Second,
		}
		var stages []Stage
		for i := range rapid.IntRange(1, 5).Draw(t, "stages") {
			s := Stage{Name: fmt.Sprint("s", i)}
			for j := range rapid.IntRange(1, 4).Draw(t, "calls") {
				s.Calls = append(s.Calls, []string{"call", fmt.Sprint(i, ".", j)})
			}
			stages = append(stages, s)
		}
		now := time.Duration(0)
		r := Begin("c", stages, at(now), limits)
		seen, last, began := Seen{}, -1, map[string]time.Duration{}
		for {
			before := ends(r)
			prev := r
			var step Step
			r, step = Decide(prev, seen, at(now), limits)
			if ends(prev) != before {
				t.Fatalf("the argument was changed: %s, %s", before, ends(prev))
			}
			if again, _ := Decide(prev, seen, at(now), limits); cmp.Diff(r, again) != "" {
				t.Fatal("the same question, another answer")
			}
			if step.Call < 0 {
				break
			}
			call := r.Calls[step.Call]
			if step.Call <= last {
				t.Fatalf("call %d after %d: never back, never twice", step.Call, last)
			}
			if r.Outcome != Running || call.End != InProgress || seen.Stop {
				t.Fatalf("%s, %s, stop %v", r.Outcome, call.End, seen.Stop)
			}
			if _, ok := began[call.Stage]; !ok {
				began[call.Stage] = now
				if now >= limits.Budget {
					t.Fatalf("stage %s started at %v of %v", call.Stage, now, limits.Budget)
				}
			} else if seen.Call.end() != OK {
				t.Fatalf("call %d after one of its stage that ended %s", step.Call, seen.Call.end())
			}
			last = step.Call

			took := time.Duration(rapid.Int64Range(0, int64(limits.CallCeiling)).Draw(t, "took"))
			seen = Seen{Stop: rapid.IntRange(0, 30).Draw(t, "stop") == 0}
			switch rapid.IntRange(0, 6).Draw(t, "end") {
			case 0:
				seen.Call = exited(rapid.IntRange(1, 255).Draw(t, "code"))
			case 1:
				took = limits.CallCeiling + limits.KillGrace
				seen.Call = Facts{TimedOut: true, StoppedBy: "kill", Signal: "SIGKILL"}
			case 2:
				seen.Call = Facts{NotStarted: true}
			case 3:
				seen.Call = Facts{Told: true, Signal: "SIGTERM"}
				seen.Stop = true
			default:
				seen.Call = exited(0)
			}
			now += took
		}
		if now > WorstCase(stages, limits) {
			t.Fatalf("took %v, the worst case is %v", now, WorstCase(stages, limits))
		}
		if strings.Contains(ends(r), "planned") || strings.Contains(ends(r), "running") || r.Outcome == Running || r.Ended == "" {
			t.Fatalf("not over: %s: %s", r.Outcome, ends(r))
		}
		if (r.Outcome == StoppedEarly) != (r.Action != "") || r.Outcome == StoppedEarly && (now < limits.Budget || len(r.Skipped) == 0) {
			t.Fatalf("%s at %v of %v, skipped %q", r.Outcome, now, limits.Budget, r.Skipped)
		}
		if (r.Outcome == Completed) != (strings.Trim(ends(r), "ok ") == "") {
			t.Fatalf("%s: %s", r.Outcome, ends(r))
		}
		if again, step := Decide(r, Seen{}, at(now), limits); step.Call >= 0 || again.Outcome != r.Outcome {
			t.Fatalf("it goes on after its end: %+v, %s", step, again.Outcome)
		}
		back, err := Parse(r.Text())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(r.Text()), string(back.Text())); diff != "" {
			t.Fatal(diff)
		}
	})
}
