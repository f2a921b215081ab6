package gpu

import (
	"strings"
	"testing"
	"time"

	"tickdog/check"
)

var mi50 = Limits{
	MaxBusy: time.Hour, BusyAbove: 0, HotAt: 97, HotChecks: 3,
	MaxGap: 10 * time.Minute, MinGap: time.Minute,
}

// look is one check of a story: after how many seconds, and what it saw.
type look struct {
	after    float64
	busy     Number
	junction Number
	boot     string // another boot from here on
	paused   bool
	asleep   bool
}

func pct(v float64) Number { return Known(v) }
func deg(v float64) Number { return Known(v) }

func (l look) seen() Seen {
	s := Seen{Reading: Reading{Card: "0000:03:00.0", Busy: l.busy, Junction: l.junction, HasJunction: true, Suspended: l.asleep}}
	if l.paused {
		s.Paused = "until 23:00 (benchmark)"
	}
	return s
}

// tell runs a story and returns every verdict. Nothing acts in it.
func tell(limits Limits, story []look) (verdicts []Verdict, states []State) {
	now := check.Moment{Wall: time.Unix(1_800_000_000, 0), Boot: 1000.123456789, BootID: "boot-1"}
	var s State
	for _, l := range story {
		now.Boot += l.after
		if l.boot != "" {
			now.Boot, now.BootID = 1, l.boot
		}
		var v Verdict
		s, v = Decide(s, l.seen(), now, limits)
		verdicts, states = append(verdicts, v), append(states, s)
	}
	return verdicts, states
}

func firstStop(verdicts []Verdict) int {
	for i, v := range verdicts {
		if v.Stop {
			return i + 1
		}
	}
	return 0
}

func times(n int, l look) (story []look) {
	for range n {
		story = append(story, l)
	}
	return story
}

func join(parts ...[]look) (story []look) {
	for _, p := range parts {
		story = append(story, p...)
	}
	return story
}

func TestDecideStops(t *testing.T) {
	busy := look{after: 120, busy: pct(100), junction: deg(80)}
	idle := look{after: 120, busy: pct(0), junction: deg(40)}
	blind := look{after: 120}
	warm := func(v float64) look { return look{after: 120, busy: pct(0), junction: deg(v)} }
	after := func(s float64, l look) look { l.after = s; return l }

	tests := []struct {
		name   string
		story  []look
		limits func(*Limits)
		stops  int // at which check; 0 = never
	}{
		{name: "busy for an hour stops at the 31st check", story: times(40, busy), stops: 31},
		{name: "40 min, one idle, 40 min never", story: join(times(21, busy), times(1, idle), times(21, busy))},
		{name: "a hole of unknowns is bridged", story: join(times(10, busy), times(4, blind), times(30, busy)), stops: 31},
		{name: "unknown never stops by itself", story: join(times(30, busy), times(40, blind))},
		{name: "a hole of exactly max_gap is bridged", story: join(times(2, busy), []look{after(600, busy)}, times(40, busy)), stops: 27},
		{name: "a longer hole starts afresh", story: join(times(10, busy), []look{after(601, busy)}, times(40, busy)), stops: 41},
		{name: "a long hole of unknowns starts afresh", story: join(times(10, busy), times(6, blind), times(40, busy)), stops: 47},
		{name: "a reboot starts afresh", story: join(times(10, busy), []look{{busy: pct(100), junction: deg(80), boot: "boot-2"}}, times(40, busy)), stops: 41},
		{name: "asleep is idle", story: join(times(30, busy), []look{{after: 120, asleep: true}}, times(30, busy))},
		{name: "busy_above tells what idles", story: times(40, look{after: 120, busy: pct(4), junction: deg(40)}), limits: func(l *Limits) { l.BusyAbove = 4 }},
		{name: "one second of max_busy stops at the second check", story: times(3, busy), limits: func(l *Limits) { l.MaxBusy = time.Second }, stops: 2},

		{name: "three hot in a row stop, idle or not", story: times(5, warm(97)), stops: 3},
		{name: "97, 97, 96.9, 97, 97 never", story: []look{warm(97), warm(97), warm(96.9), warm(97), warm(97)}},
		{name: "97, none, 97, 97 stops at the third hot one", story: []look{warm(97), blind, warm(97), warm(97)}, stops: 4},
		{name: "hot while the load is not known", story: times(3, look{after: 120, junction: deg(98)}), stops: 3},
		{name: "three runs by hand do not trip", story: []look{warm(98), after(1, warm(98)), after(1, warm(98)), after(1, warm(98))}},
		{name: "min_gap is counted from the last one counted", story: []look{warm(98), after(40, warm(98)), after(40, warm(98)), after(40, warm(98)), after(40, warm(98))}, stops: 5},
		{name: "exactly min_gap counts", story: []look{warm(98), after(60, warm(98)), after(60, warm(98))}, stops: 3},
		{name: "after a cool check the next hot one counts at once", story: []look{warm(98), after(30, warm(90)), after(10, warm(98)), after(60, warm(98)), after(60, warm(98))}, stops: 5},
		{name: "a long hole forgets heat", story: join([]look{warm(97), warm(97)}, times(5, blind), []look{warm(97)})},
		{name: "a reboot forgets heat", story: []look{warm(97), warm(97), {busy: pct(0), junction: deg(97), boot: "boot-2"}}},
		{name: "asleep leaves heat as it was", story: []look{warm(97), warm(97), {after: 120, asleep: true}, warm(97)}, stops: 4},

		{name: "a pause holds", story: times(40, look{after: 120, busy: pct(100), junction: deg(80), paused: true})},
		{name: "the count starts over when a pause ends", story: join(times(20, busy), times(20, look{after: 120, busy: pct(100), junction: deg(80), paused: true}), times(35, busy)), stops: 71},
		{name: "heat is never paused", story: times(5, look{after: 120, busy: pct(100), junction: deg(97), paused: true}), stops: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limits := mi50
			if tt.limits != nil {
				tt.limits(&limits)
			}
			verdicts, _ := tell(limits, tt.story)
			if got := firstStop(verdicts); got != tt.stops {
				t.Errorf("stops at check %d, want %d; verdicts:\n%v", got, tt.stops, verdicts)
			}
		})
	}
}

func TestDecideSays(t *testing.T) {
	full := Reading{Busy: Known(100), Junction: Known(91), Power: Known(180), HasJunction: true}
	with := func(change func(*Reading)) Reading { r := full; change(&r); return r }
	tests := []struct {
		name  string
		prev  State
		seen  Seen
		word  check.Verdict
		state string
		want  string
	}{
		{"idle", State{}, Seen{Reading: with(func(r *Reading) { r.Busy = Known(0) })}, check.Rest, "idle",
			"busy 0 %; junction 91 °C; 180 W"},
		{"the first busy check", State{}, Seen{Reading: full}, check.Watch, "busy",
			"busy 0 s of 3600 s at 100 %; junction 91 °C; 180 W"},
		{"too long", State{Running: true, Busy: time.Hour, BusyAt: 500, BootID: "b"}, Seen{Reading: full}, check.Act, "busy",
			"busy 3600 s of 3600 s; junction 91 °C; 180 W"},
		{"almost too long is not shown as if it were", State{Running: true, Busy: time.Hour - time.Millisecond, BusyAt: 500, BootID: "b"}, Seen{Reading: full}, check.Watch, "busy",
			"busy 3599 s of 3600 s at 100 %; junction 91 °C; 180 W"},
		{"too hot", State{HotChecks: 2, HotAt: 400, JunctionAt: 400, BootID: "b"}, Seen{Reading: with(func(r *Reading) { r.Junction = Known(97.96) })}, check.Act, "hot",
			"junction 97.9 °C, hot 3 of 3 checks; busy 0 s of 3600 s at 100 %; 180 W"},
		{"paused", State{Running: true, Busy: time.Hour, BusyAt: 500, BootID: "b", Paused: true}, Seen{Reading: full, Paused: "until 23:00 (benchmark)"}, check.Hold, "busy",
			"busy 3600 s of 3600 s; junction 91 °C; 180 W; paused until 23:00 (benchmark)"},
		{"no reading", State{}, Seen{Reading: Reading{Why: "rocm-smi: no end in 15 s"}}, check.Unknown, "blind",
			"no reading; rocm-smi: no end in 15 s"},
		{"no reading in a streak", State{Running: true, Busy: time.Minute, BusyAt: 400, HotChecks: 1, HotAt: 400, JunctionAt: 400, BootID: "b"}, Seen{Reading: Reading{Why: "gone"}}, check.Unknown, "blind",
			"no reading; busy 60 s of 3600 s stands; hot 1 of 3 checks stands; gone"},
		{"busy not known", State{}, Seen{Reading: with(func(r *Reading) { r.Busy, r.Why = Number{}, "gpu_busy_percent: EINVAL" })}, check.Unknown, "blind",
			"no busy reading; junction 91 °C; 180 W; gpu_busy_percent: EINVAL"},
		{"junction not known", State{}, Seen{Reading: with(func(r *Reading) { r.Junction, r.Why = Number{}, "temp2_input: 511 cannot be true" })}, check.Watch, "busy",
			"busy 0 s of 3600 s at 100 %; no junction reading; 180 W; temp2_input: 511 cannot be true"},
		{"no junction sensor", State{}, Seen{Reading: Reading{Busy: Known(3)}}, check.Watch, "busy",
			"busy 0 s of 3600 s at 3 %; no junction sensor"},
		{"asleep", State{}, Seen{Reading: Reading{Suspended: true, HasJunction: true}}, check.Rest, "idle",
			"asleep (runtime suspended)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, v := Decide(tt.prev, tt.seen, check.Moment{Boot: 500, BootID: "b"}, mi50)
			if v.Word != tt.word || v.State != tt.state || v.Reason != tt.want {
				t.Errorf("got  %s %s: %s\nwant %s %s: %s", v.Word, v.State, v.Reason, tt.word, tt.state, tt.want)
			}
		})
	}
}

func TestBlindnessIsToldOnce(t *testing.T) {
	blind, halfBlind := look{after: 120}, look{after: 120, busy: pct(0)}
	sees := look{after: 120, busy: pct(0), junction: deg(40)}
	verdicts, _ := tell(mi50, join(times(4, blind), times(1, sees), times(3, blind), times(9, halfBlind), times(1, sees), times(5, blind)))
	var told []int
	for i, v := range verdicts {
		if v.TellBlind {
			told = append(told, i+1)
		}
	}
	if len(told) != 2 || told[0] != 10 || told[1] != 23 {
		t.Errorf("told at checks %v, want at the 5th of each incident: 10 and 23", told)
	}
}

// An hour's streak, just tripped.
func trip(t *testing.T) (State, Verdict, check.Moment) {
	t.Helper()
	now := check.Moment{Boot: 5000, BootID: "b"}
	prev := State{Running: true, Busy: time.Hour, BusyAt: 5000, CheckedAt: 5000, BootID: "b"}
	next, v := Decide(prev, look{busy: pct(100), junction: deg(90)}.seen(), now, mi50)
	if !v.Stop {
		t.Fatal("an hour's streak does not stop")
	}
	return next, v, now
}

func later(now check.Moment) check.Moment { now.Boot += 120; return now }

func TestStoppedStartsAnew(t *testing.T) {
	next, _, now := trip(t)
	next, v := Decide(Stopped(next), look{busy: pct(100), junction: deg(90)}.seen(), later(now), mi50)
	if v.Stop || next.Busy != 0 || !next.Running {
		t.Errorf("after a stop: %+v, %+v; want a whole new count", next, v)
	}
}

func TestFailedStopIsTriedAgain(t *testing.T) {
	next, _, now := trip(t)
	next, tell := StillRuns(next)
	if !tell || next.Failed != 1 {
		t.Fatalf("first failure: tell %v, %+v", tell, next)
	}
	now = later(now)
	next, v := Decide(next, look{}.seen(), now, mi50)
	if !v.Stop || v.Word != check.Act {
		t.Fatalf("a stop that is due was dropped because nothing was seen: %+v", v)
	}
	next, tell = StillRuns(next)
	if tell || next.Failed != 2 {
		t.Fatalf("second failure: tell %v, %+v", tell, next)
	}
	now = later(now)
	next, v = Decide(next, look{busy: pct(0), junction: deg(50)}.seen(), now, mi50)
	if v.Stop || next.Failed != 0 {
		t.Errorf("an idle card: %+v, %+v; want no stop and the incident over", next, v)
	}
}

func TestFailedStopIsNotTriedBlindForEver(t *testing.T) {
	next, _, now := trip(t)
	next, _ = StillRuns(next)
	now.Boot += 601
	if next, v := Decide(next, look{}.seen(), now, mi50); v.Stop || next.Failed != 0 {
		t.Errorf("blind for longer than max_gap: %+v, %+v; want the streak over", next, v)
	}
}

func TestForeignLoadIsToldOnceAndIsNotTheContainers(t *testing.T) {
	next, v, now := trip(t)
	next, v, told := NotRunning(next, v)
	if !told || v.Word != check.Hold || v.State != "foreign" || v.Stop {
		t.Fatalf("first: %v, %+v", told, v)
	}
	now = later(now)
	next, v = Decide(next, look{busy: pct(100), junction: deg(90)}.seen(), now, mi50)
	if !v.Stop {
		t.Fatal("a foreign load is not asked about again")
	}
	next, v, told = NotRunning(next, v)
	if told {
		t.Error("told twice")
	}
	now = later(now)
	next, v = Decide(next, look{busy: pct(100), junction: deg(90)}.seen(), now, mi50)
	if next, v = RunsAgain(next, v, now); next.Busy != 0 || !next.Running || next.Foreign || v.Stop || v.Word != check.Watch {
		t.Fatalf("the container runs again: %+v, %+v; want its count at 0", next, v)
	}
	now = later(now)
	if next, _ = Decide(next, look{busy: pct(100), junction: deg(90)}.seen(), now, mi50); next.Busy != 2*time.Minute {
		t.Errorf("its second check: busy %v, want 2m", next.Busy)
	}
}

func TestForeignIncidentEndsWithIdle(t *testing.T) {
	next, v, now := trip(t)
	next, _, _ = NotRunning(next, v)
	next, _ = Decide(next, look{busy: pct(0), junction: deg(50)}.seen(), later(now), mi50)
	if next.Foreign {
		t.Error("the card was idle, and the next foreign load will not be told")
	}
}

func TestForeignHeatOnAnIdleCardIsToldOnce(t *testing.T) {
	hot := look{after: 120, busy: pct(0), junction: deg(99)}
	_, states := tell(mi50, times(3, hot))
	next, _, told := NotRunning(states[2], Verdict{Stop: true})
	if !told {
		t.Fatal("not told")
	}
	next, v := Decide(next, hot.seen(), check.Moment{Boot: next.CheckedAt + 120, BootID: "boot-1"}, mi50)
	if _, _, told = NotRunning(next, v); told {
		t.Error("told again while it is still hot")
	}
}

func TestReasonsAreOneLine(t *testing.T) {
	_, v := Decide(State{}, Seen{Reading: Reading{Why: "gone"}}, check.Moment{}, mi50)
	if strings.Contains(v.Reason, "\n") || v.Reason == "" {
		t.Errorf("reason %q", v.Reason)
	}
}
