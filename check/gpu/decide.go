package gpu

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
)

// Number is a reading that may be missing. The zero value is "no reading",
// which is neither zero nor idle nor cool.
type Number struct {
	Value float64
	Known bool
}

// Known is a number that was read.
func Known(v float64) Number { return Number{Value: v, Known: true} }

// Reading is what one look says about one card.
type Reading struct {
	Card        string // what reports call it: the PCI address (lower case, with domain) where the source gives it, else as the tool prints it (card1, GPU[1], 1), else "gpu"
	Index       string // the source's own number of it ("1"), "" if it gives none
	Unique      string // the unique id in lower-case hex without 0x, "" if the source gives none
	Busy        Number // 0..100 %
	Junction    Number // °C, above 0 and below 150; never edge, never an unlabelled sensor
	Power       Number // W
	HasJunction bool   // it has a junction sensor, readable or not: a discrete card, and not the iGPU beside it
	Suspended   bool   // runtime-suspended: nothing was read, so as not to wake it; it counts as known idle
	Why         string // what could not be read and why, in plain words; "" if everything could
}

// Seen is everything a pass saw of one card. A pass that saw nothing says so
// with a Reading that has no numbers and a Why.
type Seen struct {
	Reading Reading
	Paused  string // until when and why a person has paused this guard, "" if nobody has
}

// Limits are the rules' numbers.
type Limits struct {
	MaxBusy   time.Duration // busy for this long without a break: stop
	BusyAbove float64       // busy is above this, in %
	HotAt     float64       // hot is at or above this, in °C
	HotChecks int           // this many hot checks in a row: stop
	MaxGap    time.Duration // a longer time without a known reading ends a streak
	MinGap    time.Duration // a hot check sooner than this after the last one counted does not count
}

// State is what is remembered of one card between two passes. The zero State
// is "just started": idle, cool, nothing told.
type State struct {
	Busy    time.Duration // how long the streak has lasted, in whole microseconds
	Running bool          // a busy streak is running (its first check has Busy 0)
	BusyAt  float64       // boottime of the last check of the streak whose busy was known

	HotChecks  int     // hot checks counted in a row
	HotAt      float64 // boottime of the last one counted
	JunctionAt float64 // boottime of the last check since then whose junction was known

	Failed  int  // stops in a row after which the container still ran
	Foreign bool // the load was found not to be the container's, and that was told
	Blind   int  // passes in a row in which a rule had no reading
	Paused  bool // the last pass was held by a pause

	CheckedAt float64 // boottime of the last pass
	BootID    string  // the boot that all of these belong to
}

// BlindAfter is how many passes in a row a rule must have been without its
// reading before that is told.
const BlindAfter = 5

// Verdict is what a pass says about one card.
type Verdict struct {
	Word      check.Verdict
	State     string // idle, busy, hot, blind or foreign
	Reason    string // with the numbers
	Stop      bool   // a rule has tripped: the container is to be stopped
	TellBlind bool   // blindness has lasted long enough to be told, now
}

// Decide applies the two rules to one look at one card. It is a pure
// function: same arguments, same answer.
//
// A busy streak starts at 0 with its first busy check and grows by the time
// between checks whose busy was known; known idle ends it. Hot checks are
// counted in a row; a known cool one sets them back to none. What is not known
// changes neither, but a streak that was not confirmed for MaxGap, or that was
// on another boot, is over.
func Decide(prev State, seen Seen, now check.Moment, limits Limits) (State, Verdict) {
	next, v, tooLong, tooHot := follow(prev, seen, now, limits)
	v.Reason = reason(next, seen, limits, tooLong, tooHot)
	return next, v
}

// Follow is Decide without the Reason, for whoever goes through years of
// looks: the words cost more than the decision.
func Follow(prev State, seen Seen, now check.Moment, limits Limits) (State, Verdict) {
	next, v, _, _ := follow(prev, seen, now, limits)
	return next, v
}

func follow(prev State, seen Seen, now check.Moment, limits Limits) (next State, v Verdict, tooLong, tooHot bool) {
	r := seen.Reading
	next = prev.current(now, limits)
	if next.Paused && seen.Paused == "" {
		next.endStreak() // what ran during a pause was allowed to
	}
	next.Paused = seen.Paused != ""

	idle := r.Suspended || r.Busy.Known && r.Busy.Value <= limits.BusyAbove
	busy := !idle && r.Busy.Known
	hot := r.Junction.Known && r.Junction.Value >= limits.HotAt
	switch {
	case idle:
		next.endStreak()
	case busy:
		next.addBusy(now)
	}
	switch {
	case hot:
		next.addHot(now, limits)
	case r.Junction.Known:
		next.endHeat()
	}

	tooLong, tooHot = next.tripped(limits)
	if next.Failed == 0 { // a stop that failed stays due while nothing is known; nothing else trips blindly
		tooLong, tooHot = tooLong && busy, tooHot && hot
	}
	held := tooLong && !tooHot && next.Paused
	stop := (tooLong || tooHot) && !held
	if !stop {
		next.Failed = 0
	}
	if idle && !tooHot || !next.Running && next.HotChecks == 0 {
		next.Foreign = false
	}
	if blind(r) {
		next.Blind++
	} else {
		next.Blind = 0
	}

	v = Verdict{Stop: stop, TellBlind: next.Blind == BlindAfter}
	switch {
	case hot:
		v.Word, v.State = check.Watch, "hot"
	case busy:
		v.Word, v.State = check.Watch, "busy"
	case idle:
		v.Word, v.State = check.Rest, "idle"
	default:
		v.Word, v.State = check.Unknown, "blind"
	}
	switch {
	case stop:
		v.Word = check.Act
	case held:
		v.Word = check.Hold
	}
	return next, v, tooLong, tooHot
}

// Stopped is the state once the container was seen stopped: should it run
// again, it gets a whole new count.
func Stopped(next State) State {
	return State{Blind: next.Blind, Paused: next.Paused, CheckedAt: next.CheckedAt, BootID: next.BootID}
}

// StillRuns is the state once a stop has failed or the container runs all the
// same: the streak stands, so that the next pass tries again. tell is true for
// the first failure of an incident.
func StillRuns(next State) (after State, tell bool) {
	next.Failed++
	return next, next.Failed == 1
}

// NotRunning is the state once a rule has tripped and the container was not
// running in the first place: somebody else uses the card. tell is true the
// first time since the card was idle.
func NotRunning(next State, v Verdict) (after State, held Verdict, tell bool) {
	tell = !next.Foreign
	next.Failed, next.Foreign = 0, true
	v.Word, v.State, v.Stop = check.Hold, "foreign", false
	return next, v, tell
}

// RunsAgain is the state once the container was seen running in a streak that
// was found not to be its own: its count starts at 0 now.
func RunsAgain(next State, v Verdict, now check.Moment) (State, Verdict) {
	running := next.Running
	next = Stopped(next)
	if running {
		next.addBusy(now)
	}
	v.Word, v.Stop = check.Watch, false
	return next, v
}

// current is the state as far as it still holds: nothing does after a reboot,
// and no streak that was last confirmed longer than MaxGap ago.
func (s State) current(now check.Moment, limits Limits) State {
	if s.BootID != now.BootID {
		s = State{BootID: now.BootID}
	}
	if gap, ok := since(now, s.BusyAt); s.Running && (!ok || gap > limits.MaxGap) {
		s.endStreak()
	}
	if gap, ok := since(now, s.JunctionAt); s.HotChecks > 0 && (!ok || gap > limits.MaxGap) {
		s.endHeat()
	}
	s.CheckedAt = now.Boot
	return s
}

func (s *State) endStreak() { s.Busy, s.Running, s.BusyAt = 0, false, 0 }
func (s *State) endHeat()   { s.HotChecks, s.HotAt, s.JunctionAt = 0, 0, 0 }

func (s *State) addBusy(now check.Moment) {
	if s.Running {
		d, _ := since(now, s.BusyAt)
		s.Busy += d
	}
	s.Running, s.BusyAt = true, now.Boot
}

// addHot counts a hot check, unless it follows too soon: three passes started
// by hand in a row are one look, not three.
func (s *State) addHot(now check.Moment, limits Limits) {
	if d, _ := since(now, s.HotAt); s.HotChecks == 0 || d >= limits.MinGap {
		s.HotChecks++
		s.HotAt = now.Boot
	}
	s.JunctionAt = now.Boot
}

func (s State) tripped(limits Limits) (tooLong, tooHot bool) {
	return s.Running && s.Busy >= limits.MaxBusy, s.HotChecks > 0 && s.HotChecks >= limits.HotChecks
}

// since is the time from an earlier boottime of this boot. It is rounded to
// microseconds, so that thirty times two minutes are an hour in floats too.
func since(now check.Moment, boot float64) (time.Duration, bool) {
	d, ok := now.Since(boot, now.BootID)
	return d.Round(time.Microsecond), ok
}

// blind says that one of the rules had nothing to go by.
func blind(r Reading) bool {
	return !r.Suspended && (!r.Busy.Known || r.HasJunction && !r.Junction.Known)
}

// reason says what was seen and how far each rule has come, the rule that
// tripped first.
func reason(s State, seen Seen, limits Limits, tooLong, tooHot bool) string {
	r := seen.Reading
	var load, heat, rest []string

	count := fmt.Sprintf("busy %s of %s", seconds(s.Busy), seconds(limits.MaxBusy))
	switch {
	case r.Suspended:
		load = append(load, "asleep (runtime suspended)")
	case !r.Busy.Known && !r.Junction.Known:
		load = append(load, "no reading")
	case !r.Busy.Known:
		load = append(load, "no busy reading")
	case !s.Running:
		load = append(load, "busy "+percent(r.Busy.Value))
	case tooLong:
		load = append(load, count)
	default:
		load = append(load, count+" at "+percent(r.Busy.Value))
	}
	if !r.Busy.Known && s.Running {
		load = append(load, count+" stands")
	}

	switch checks := fmt.Sprintf("hot %d of %d checks", s.HotChecks, limits.HotChecks); {
	case r.Junction.Known && s.HotChecks > 0:
		heat = append(heat, "junction "+degrees(r.Junction.Value)+", "+checks)
	case r.Junction.Known:
		heat = append(heat, "junction "+degrees(r.Junction.Value))
	case r.Busy.Known && r.HasJunction:
		heat = append(heat, "no junction reading")
	case r.Busy.Known:
		heat = append(heat, "no junction sensor")
	}
	if !r.Junction.Known && s.HotChecks > 0 {
		heat = append(heat, fmt.Sprintf("hot %d of %d checks stands", s.HotChecks, limits.HotChecks))
	}

	if r.Power.Known {
		rest = append(rest, fmt.Sprintf("%.0f W", r.Power.Value))
	}
	if r.Why != "" {
		rest = append(rest, r.Why)
	}
	if seen.Paused != "" {
		rest = append(rest, "paused "+seen.Paused)
	}
	if tooHot && !tooLong {
		load, heat = heat, load
	}
	return strings.Join(append(append(load, heat...), rest...), "; ")
}

// Shown numbers are cut, not rounded: nobody should read 3600 s of 3600 s, or
// 97 °C, and wonder why nothing has happened.
func seconds(d time.Duration) string { return fmt.Sprintf("%d s", int64(d/time.Second)) }
func degrees(v float64) string       { return tenths(v) + " °C" }
func percent(v float64) string       { return tenths(v) + " %" }
func tenths(v float64) string {
	return strconv.FormatFloat(math.Floor(v*10+1e-6)/10, 'f', -1, 64)
}
