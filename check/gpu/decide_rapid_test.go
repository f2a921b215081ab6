package gpu

import (
	"fmt"
	"testing"
	"time"

	"tickdog/check"

	"pgregory.net/rapid"
)

// story is a drawn run of checks; nothing acts in it.
type story []struct {
	now  check.Moment
	seen Seen
}

func drawStory(t *rapid.T) story {
	busyValues := rapid.SampledFrom([]Number{{}, Known(0), Known(1), Known(60), Known(100), Known(100), Known(100)})
	temps := rapid.SampledFrom([]Number{{}, Known(40), Known(96.9), Known(97), Known(97), Known(99), Known(99)})
	gaps := rapid.SampledFrom([]int{0, 1, 30, 59, 60, 61, 120, 120, 120, 120, 120, 120, 300, 599, 600, 601, 4000})
	now := check.Moment{Wall: time.Unix(1_800_000_000, 0), Boot: rapid.Float64Range(0, 1e7).Draw(t, "boot"), BootID: "boot-0"}
	n := rapid.IntRange(1, 80).Draw(t, "checks")
	s := make(story, n)
	calm := rapid.Bool().Draw(t, "calm") // long streaks are rare among independent draws
	for i := range s {
		gap, busy, temp, odd := 120, Known(100), Known(97), false
		if odd = !calm || rapid.IntRange(0, 19).Draw(t, "odd") == 0; odd {
			gap, busy, temp = gaps.Draw(t, "gap"), busyValues.Draw(t, "busy"), temps.Draw(t, "junction")
		}
		now.Boot += float64(gap)
		if odd && rapid.IntRange(0, 30).Draw(t, "reboots") == 0 {
			now.BootID = fmt.Sprintf("boot-%d", i+1)
			now.Boot = rapid.Float64Range(0, 100).Draw(t, "uptime")
		}
		s[i].now = now
		s[i].seen.Reading = Reading{Card: "card", HasJunction: true, Busy: busy, Junction: temp}
		if odd && rapid.IntRange(0, 10).Draw(t, "sleeps") == 0 {
			s[i].seen.Reading = Reading{Card: "card", HasJunction: true, Suspended: true}
		}
	}
	return s
}

func drawLimits(t *rapid.T) Limits {
	return Limits{
		MaxBusy:   time.Duration(rapid.SampledFrom([]int{1, 120, 121, 600, 3600}).Draw(t, "max_busy")) * time.Second,
		BusyAbove: rapid.SampledFrom([]float64{0, 1, 50}).Draw(t, "busy_above"),
		HotAt:     rapid.SampledFrom([]float64{90, 97, 98}).Draw(t, "hot_at"),
		HotChecks: rapid.IntRange(1, 4).Draw(t, "hot_checks"),
		MaxGap:    10 * time.Minute,
		MinGap:    time.Minute,
	}
}

func (s story) tell(limits Limits) (verdicts []Verdict, states []State) {
	var state State
	for _, c := range s {
		var v Verdict
		state, v = Decide(state, c.seen, c.now, limits)
		verdicts, states = append(verdicts, v), append(states, state)
	}
	return verdicts, states
}

// The two rules once more, told backwards from check i over the whole story
// instead of forwards from a state.

func (s story) shouldStop(i int, l Limits) bool {
	r := s[i].seen.Reading
	return r.Busy.Known && s.busyFor(i, l) >= l.MaxBusy || r.Junction.Known && s.hotChecks(i, l) >= l.HotChecks
}

// busyFor is how long the card has been busy at check i with no known idle and
// no hole over MaxGap; -1 if it is not.
func (s story) busyFor(i int, l Limits) time.Duration {
	last, first := i, -1
	for j := i; j >= 0 && s.joined(j, last, l); j-- {
		r := s[j].seen.Reading
		if r.Suspended || r.Busy.Known && r.Busy.Value <= l.BusyAbove {
			break
		}
		if r.Busy.Known {
			last, first = j, j
		}
	}
	if first < 0 {
		return -1
	}
	return s.between(first, i)
}

// hotChecks is how many hot checks count at check i.
func (s story) hotChecks(i int, l Limits) (n int) {
	last, from := i, i+1
	for j := i; j >= 0 && s.joined(j, last, l); j-- {
		r := s[j].seen.Reading
		if r.Junction.Known && r.Junction.Value < l.HotAt {
			break
		}
		if r.Junction.Known {
			last, from = j, j
		}
	}
	counted := -1
	for j := from; j <= i; j++ {
		if s[j].seen.Reading.Junction.Known && (counted < 0 || s.between(counted, j) >= l.MinGap) {
			n, counted = n+1, j
		}
	}
	return n
}

func (s story) joined(j, last int, l Limits) bool {
	return s[j].now.BootID == s[last].now.BootID && s.between(j, last) <= l.MaxGap
}

func (s story) between(j, i int) time.Duration {
	return time.Duration((s[i].now.Boot - s[j].now.Boot) * 1e9).Round(time.Microsecond)
}

// A stop happens exactly when a rule says so: never before max_busy of busy
// time with no hole over max_gap and no known idle in it, or hot_checks of
// hot, and never later either.
func TestStopsExactlyWhenARuleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, l := drawStory(t), drawLimits(t)
		verdicts, _ := s.tell(l)
		for i, v := range verdicts {
			if want := s.shouldStop(i, l); v.Stop != want {
				t.Fatalf("check %d: stop %v, want %v (busy for %v, %d hot): %s", i, v.Stop, want, s.busyFor(i, l), s.hotChecks(i, l), v.Reason)
			}
			if (v.Word == check.Act) != v.Stop {
				t.Fatalf("check %d: %+v", i, v)
			}
		}
	})
}

func TestNoReadingChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, l := drawStory(t), drawLimits(t)
		_, states := s.tell(l)
		last := states[len(states)-1]
		now := s[len(s)-1].now
		now.Boot += float64(rapid.IntRange(0, 600).Draw(t, "later"))
		next, v := Decide(last, Seen{Reading: Reading{Why: "gone"}}, now, l)
		if v.Stop || v.Word != check.Unknown {
			t.Fatalf("no reading: %+v", v)
		}
		same := next
		same.Blind, same.CheckedAt = last.Blind, last.CheckedAt
		if gap, _ := since(now, last.BusyAt); last.Running && gap > l.MaxGap {
			return
		}
		if gap, _ := since(now, last.JunctionAt); last.HotChecks > 0 && gap > l.MaxGap {
			return
		}
		if same != last {
			t.Fatalf("no reading made of %+v\n%+v", last, next)
		}
	})
}

func TestIdleAlwaysClears(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, l := drawStory(t), drawLimits(t)
		_, states := s.tell(l)
		now := s[len(s)-1].now
		now.Boot += rapid.Float64Range(0, 1000).Draw(t, "later")
		next, v := Decide(states[len(states)-1], Seen{Reading: Reading{Busy: Known(l.BusyAbove), Junction: Known(20)}}, now, l)
		if next.Running || next.Busy != 0 || next.HotChecks != 0 || next.Failed != 0 || next.Foreign || v.Word != check.Rest {
			t.Fatalf("idle and cool: %+v, %+v", next, v)
		}
	})
}

func TestLooserNeverStopsEarlier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, tight := drawStory(t), drawLimits(t)
		loose := tight
		loose.MaxBusy += time.Duration(rapid.SampledFrom([]int{0, 1, 120, 3600}).Draw(t, "busier")) * time.Second
		loose.BusyAbove += rapid.SampledFrom([]float64{0, 0.5, 59}).Draw(t, "above")
		loose.HotAt += rapid.SampledFrom([]float64{0, 0.1, 1, 20}).Draw(t, "hotter")
		loose.HotChecks += rapid.IntRange(0, 3).Draw(t, "more checks")
		early, late := 0, 0
		if v, _ := s.tell(tight); true {
			early = firstStop(v)
		}
		if v, _ := s.tell(loose); true {
			late = firstStop(v)
		}
		if late > 0 && (early == 0 || early > late) {
			t.Fatalf("%+v stops at check %d,\n%+v at check %d", tight, early, loose, late)
		}
	})
}
