package loop

import (
	"reflect"
	"testing"
	"time"

	"tickdog/check"

	"pgregory.net/rapid"
)

// drawSeen draws one thing that may happen to a run.
func drawSeen(t *rapid.T) Seen {
	event := rapid.SampledFrom([]string{"", "", "", "e1", "e2", "e3", "e4"})
	fingerprint := rapid.SampledFrom([]string{"A", "A", "B", "C"})
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1, 2, 3, 4:
		return Acted{fingerprint.Draw(t, "action"), event.Draw(t, "event")}
	case 5:
		return Resulted{Fingerprint: fingerprint.Draw(t, "action"), Result: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "result")}
	case 6, 7:
		return Failed{
			Code: "code", Event: event.Draw(t, "event"),
			Retry: rapid.SampledFrom([]Retry{Yes, Yes, Maybe, Yes, Maybe, No}).Draw(t, "retry"),
			Told:  time.Duration(rapid.SampledFrom([]int{0, 0, 10, 700, 90_000}).Draw(t, "told")) * time.Millisecond,
		}
	case 8:
		return Answered{}
	}
	return Thawed{"drawn"}
}

// Whatever happens to a run, in whatever order.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Run: rapid.SampledFrom([]string{uuidA, uuidB, "nightly"}).Draw(t, "run")}
		now := check.Moment{Wall: time.UnixMilli(1_790_000_000_000), Boot: 100, BootID: "b"}
		limits := Limits{Cycles: rapid.Bool().Draw(t, "cycles")}
		if rapid.Bool().Draw(t, "ceiling") {
			n := rapid.IntRange(0, 4).Draw(t, "at most")
			limits.AtMost = &n
		}
		known := map[string]Verdict{} // the answer to each event
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			gap := time.Duration(rapid.IntRange(0, 5000).Draw(t, "gap")) * time.Millisecond
			now.Wall, now.Boot = now.Wall.Add(gap), now.Boot+gap.Seconds()
			seen := drawSeen(t)
			next, v := Decide(s, seen, now, limits)
			again, v2 := Decide(s, seen, now, limits)
			if v != v2 || !reflect.DeepEqual(next, again) {
				t.Fatal("the same twice gives two answers")
			}
			_, thawed := seen.(Thawed)
			old, repeated := known[seen.event()]
			switch {
			case s.Frozen != nil && !thawed:
				if v.Action != Freeze || !reflect.DeepEqual(next, s) {
					t.Fatalf("frozen, then %T: %+v", seen, v)
				}
			case repeated:
				if v != old || !reflect.DeepEqual(next, s) {
					t.Fatalf("event %s again: %+v, first %+v", seen.event(), v, old)
				}
			default:
				judge(t, s, next, seen, v, now)
				if id := seen.event(); id != "" {
					known[id] = v
				}
			}
			if thawed {
				for id, v := range known {
					if v.Action == Freeze {
						known[id] = Verdict{Action: Proceed, ProviderFailures: next.ProviderFailures}
					}
				}
			} else if next.Corrections < s.Corrections {
				t.Fatal("corrections went down without a thaw")
			}
			s = next
		}
	})
}

// judge checks one step of a run that is not frozen.
func judge(t *rapid.T, s, next State, seen Seen, v Verdict, now check.Moment) {
	switch seen := seen.(type) {
	case Acted:
		if next.Actions != s.Actions+1 || next.Streak != s.Streak || next.ProviderFailures != s.ProviderFailures {
			t.Fatalf("an action changed %+v to %+v", s, next)
		}
		if v.Action == Freeze && s.Corrections == 0 {
			t.Fatal("frozen without a steer")
		}
		if v.Action == Steer && next.Corrections != 1 {
			t.Fatalf("steered, but %d corrections", next.Corrections)
		}
	case Failed:
		if next.Streak != s.Streak+1 || next.ProviderFailures != s.ProviderFailures+1 || !reflect.DeepEqual(next.Tail, s.Tail) {
			t.Fatalf("a failure changed %+v to %+v", s, next)
		}
		if v.Action != BackOff {
			break
		}
		if seen.Retry == No {
			t.Fatal("a refusal is waited for")
		}
		wait := time.Duration(v.UntilMS-now.Wall.UnixMilli()) * time.Millisecond
		base := min(firstWait<<min(next.Streak-1, 10), longWait)
		if own := wait >= base && wait <= base*3/2; !own && wait != seen.Told {
			t.Fatalf("failure %d waits %v: not within [%v, %v], and told was %v", next.Streak, wait, base, base*3/2, seen.Told)
		}
		if wait < seen.Told || wait < base {
			t.Fatalf("waits %v, told %v, base %v", wait, seen.Told, base)
		}
		if wait > seen.Told && wait != Wait(Seed(s.Run), next.Streak) {
			t.Fatal("a run does not replay its own waits")
		}
		if left := next.Remaining(now); left < wait || left > wait+time.Millisecond {
			t.Fatalf("waits %v, but %v remain", wait, left)
		}
	case Answered:
		if next.Streak != 0 || next.Pause != nil || next.Corrections != s.Corrections || v.Action != Proceed {
			t.Fatalf("an answer changed %+v to %+v", s, next)
		}
	case Thawed:
		if v.Action != Proceed || next.Frozen != nil || next.Streak != 0 || next.Corrections != 0 || len(next.Tail) != 0 || next.Actions != s.Actions {
			t.Fatalf("a thaw changed %+v to %+v", s, next)
		}
	}
}
