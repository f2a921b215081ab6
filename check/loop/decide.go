package loop

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	"tickdog/check"
)

// Next is what a loop should do next. The words are those of the output.
type Next string

const (
	Proceed Next = "proceed"  // nothing stands against it
	Steer   Next = "steer"    // give the text to the model and go on
	BackOff Next = "back_off" // try again, not before the moment
	Freeze  Next = "freeze"   // stop; only a person's thaw ends it
	Halt    Next = "halt"     // stop; a person's brake is on
)

// Retry says whether the same request may succeed later.
type Retry string

const (
	Yes   Retry = "yes"
	No    Retry = "no"
	Maybe Retry = "unknown" // it may have had an effect; waited for like Yes
)

// The reasons of a freeze.
const (
	Stall           = "stall"            // it repeated itself again after a steer
	ProviderRefused = "provider_refused" // waiting cannot help, or is no longer wanted
)

const (
	stallTurns = 3  // so many equal turns in a row are a stall
	pollTurns  = 12 // as many, though their results changed, are one too
	maxPeriod  = 4  // the longest cycle looked for: A-B-C-D
	maxTail    = maxPeriod * pollTurns
	maxEvents  = 512 // verdicts kept for an event that is seen again
	maxThaws   = 10

	// readTime is how long after a steer a stall cannot be held against the
	// run: calls sent side by side were on their way before the text was read.
	readTime = 2.0 // seconds
)

// State is what is remembered of a run. A new run is State{Run: id}.
type State struct {
	Run     string // its id, as the caller gave it
	Created int64  // epochs
	Updated int64
	Episode int    // counts from 1; each thaw begins the next
	Thaws   []Thaw // the last ones, oldest first

	// Totals, over all episodes.
	Actions          int
	ProviderFailures int
	Steers           int

	// This episode.
	Corrections int // steers: the first stall is told, any later one freezes
	Steered     Stamp
	Streak      int      // failures in a row
	Pause       *Pause   // the last failure's wait, until an answer
	Frozen      *Frozen  // sticky
	Tail        []Action // newest last

	Events []Event // newest last
}

// Stamp is a moment as elapsed time counts it; the zero Stamp is never.
type Stamp struct {
	Boot   float64 // CLOCK_BOOTTIME, seconds
	BootID string
}

// Action is one thing that the agent did.
type Action struct {
	Fingerprint string
	Event       string // its id, or ""
	Result      string // digest of what came of it; "" is not known
}

// Pause is a wait for the provider.
type Pause struct {
	UntilMS       int64   // epoch in milliseconds: what the caller is told
	Until         Stamp   // the same moment by boottime: what [State.Remaining] goes by
	Length        float64 // seconds from the failure to that moment
	Code, Subject string
}

// Frozen is why a run stands still.
type Frozen struct {
	Epoch         int64
	Reason        string // [Stall] or [ProviderRefused]
	Code, Subject string // of the provider's failure
	Text          string // what happened, and how a person ends it
}

// Thaw is a person's act.
type Thaw struct {
	Epoch int64
	Why   string
}

// Event is an id that was seen, and what was answered to it.
type Event struct {
	ID      string
	Verdict Verdict
}

// Verdict is the answer to one event.
type Verdict struct {
	Action           Next   `json:"action"`
	Text             string `json:"text,omitempty"` // steer: for the model; freeze: for the person
	Reason           string `json:"reason,omitempty"`
	UntilMS          int64  `json:"until_ms,omitempty"`
	Code             string `json:"code,omitempty"`
	Subject          string `json:"subject,omitempty"`
	Corrections      int    `json:"corrections"`
	ProviderFailures int    `json:"provider_failures"`
}

// Seen is what happened: [Acted], [Resulted], [Failed], [Answered] or [Thawed].
type Seen interface{ event() string }

// Acted is an action that the agent takes, by its fingerprint (see [Fingerprint]).
type Acted struct{ Fingerprint, Event string }

// Resulted is what came of an action, as a digest: of the one with this event
// id or, without one, of the last with this fingerprint.
type Resulted struct{ Event, Fingerprint, Result string }

// Failed is a failure of the provider.
type Failed struct {
	Code, Subject string
	Retry         Retry
	Told          time.Duration // the wait it asked for; 0 if it asked for none
	Event         string
}

// Answered is an answer of the provider.
type Answered struct{}

// Thawed is a person's decision to let the run go on.
type Thawed struct{ Why string }

func (a Acted) event() string  { return a.Event }
func (f Failed) event() string { return f.Event }
func (Resulted) event() string { return "" }
func (Answered) event() string { return "" }
func (Thawed) event() string   { return "" }

// Limits are what a person or the caller decided.
type Limits struct {
	Halted bool // a brake is on, this run's or everybody's
	Cycles bool // look for A-B-A-B and cycles of three and four too
	AtMost *int // this many failures in a row are waited for; nil: no ceiling
}

// Decide is the whole policy: what is to be remembered after what was seen,
// and what the loop should do next. It changes nothing of prev.
//
// In falling order: a halt and a freeze answer everything and count nothing; an
// event seen before gets its stored verdict and counts nothing; actions never
// touch the streak, failures never the tail, answers never the corrections.
func Decide(prev State, seen Seen, now check.Moment, limits Limits) (State, Verdict) {
	next := prev
	if next.Episode == 0 {
		next.Created, next.Episode = now.Epoch(), 1
	}
	next.Updated = now.Epoch()
	if thawed, ok := seen.(Thawed); ok {
		next = next.thaw(thawed, now)
		if limits.Halted {
			return next, Verdict{Action: Halt}
		}
		return next, next.verdict(Proceed)
	}
	if limits.Halted {
		return prev, Verdict{Action: Halt}
	}
	if prev.Frozen != nil {
		return prev, prev.frozen()
	}
	id := seen.event()
	if v, ok := prev.stored(id); ok {
		return prev, v
	}
	var v Verdict
	switch seen := seen.(type) {
	case Acted:
		v = next.act(seen, now, limits)
	case Failed:
		v = next.fail(seen, now, limits)
	case Answered:
		next.Streak, next.Pause = 0, nil
		v = next.verdict(Proceed)
	case Resulted:
		next.Tail = withResult(next.Tail, seen)
		v = next.verdict(Proceed)
	}
	if id != "" {
		next.Events = appendLast(next.Events, Event{id, v}, maxEvents)
	}
	return next, v
}

// Standing is what the run would be told now if nothing had happened.
func (s State) Standing(now check.Moment, limits Limits) Verdict {
	switch {
	case limits.Halted:
		return Verdict{Action: Halt}
	case s.Frozen != nil:
		return s.frozen()
	case s.Remaining(now) > 0:
		return s.backOff()
	}
	return s.verdict(Proceed)
}

// Remaining is how long the run still has to wait. A stepped clock neither
// prolongs nor shortens it; after a reboot it goes by the wall clock, but is
// never more than the whole wait.
func (s State) Remaining(now check.Moment) time.Duration {
	if s.Pause == nil {
		return 0
	}
	left := s.Pause.Until.Boot - now.Boot
	if s.Pause.Until.BootID != now.BootID {
		left = float64(s.Pause.UntilMS-now.Wall.UnixMilli()) / 1000
	}
	left = max(0, min(left, s.Pause.Length))
	return time.Duration(math.Ceil(left*1000)) * time.Millisecond
}

func (s State) verdict(next Next) Verdict {
	return Verdict{Action: next, Corrections: s.Corrections, ProviderFailures: s.ProviderFailures}
}

func (s State) frozen() Verdict {
	v := s.verdict(Freeze)
	v.Reason, v.Code, v.Subject, v.Text = s.Frozen.Reason, s.Frozen.Code, s.Frozen.Subject, s.Frozen.Text
	return v
}

func (s State) backOff() Verdict {
	v := s.verdict(BackOff)
	v.UntilMS, v.Code, v.Subject = s.Pause.UntilMS, s.Pause.Code, s.Pause.Subject
	return v
}

func (s State) stored(event string) (Verdict, bool) {
	if event == "" {
		return Verdict{}, false
	}
	i := slices.IndexFunc(s.Events, func(e Event) bool { return e.ID == event })
	if i < 0 {
		return Verdict{}, false
	}
	return s.Events[i].Verdict, true
}

// act records an action and looks whether the run repeats itself.
func (s *State) act(a Acted, now check.Moment, limits Limits) Verdict {
	s.Actions = oneMore(s.Actions)
	s.Tail = appendLast(s.Tail, Action{Fingerprint: a.Fingerprint, Event: a.Event}, maxTail)
	longest := 1
	if limits.Cycles {
		longest = maxPeriod
	}
	r, stalled := repetition(s.Tail, longest)
	switch {
	case !stalled:
		return s.verdict(Proceed)
	case s.Corrections == 0:
		s.Corrections, s.Steers = 1, oneMore(s.Steers)
		s.Steered = Stamp{now.Boot, now.BootID}
	case !s.couldRead(now):
		// Told again; it is the same correction.
	default:
		s.Frozen = &Frozen{
			Epoch: now.Epoch(), Reason: Stall,
			Text: "Frozen: " + r.String() + ", after a correction. " + s.howToThaw(),
		}
		return s.frozen()
	}
	v := s.verdict(Steer)
	v.Text = "Not again: " + r.String() + ". Change the approach, or say why the goal cannot be reached. " +
		"One more repetition freezes this run."
	return v
}

// couldRead says whether the steer was given long enough ago to have been
// read. A steer of another boot was.
func (s *State) couldRead(now check.Moment) bool {
	return s.Steered.BootID != now.BootID || now.Boot-s.Steered.Boot >= readTime
}

// fail counts a failure of the provider and says how long to wait for it.
func (s *State) fail(f Failed, now check.Moment, limits Limits) Verdict {
	s.ProviderFailures, s.Streak = oneMore(s.ProviderFailures), oneMore(s.Streak)
	refused := ""
	switch {
	case f.Retry == No:
		refused = "trying again cannot help"
	case limits.AtMost != nil && s.Streak > *limits.AtMost:
		refused = fmt.Sprintf("%d failures in a row, at most %d were to be waited for", s.Streak, *limits.AtMost)
	}
	if refused != "" {
		s.Pause = nil
		s.Frozen = &Frozen{
			Epoch: now.Epoch(), Reason: ProviderRefused, Code: f.Code, Subject: f.Subject,
			Text: "Frozen: the provider failed (" + f.Code + ") and " + refused + ". " + s.howToThaw(),
		}
		return s.frozen()
	}
	// A told wait is rounded up to the millisecond: never earlier than told.
	wait := max(Wait(Seed(s.Run), s.Streak), f.Told)
	ms := int64((wait + time.Millisecond - 1) / time.Millisecond)
	s.Pause = &Pause{
		UntilMS: now.Wall.UnixMilli() + ms,
		Until:   Stamp{now.Boot + float64(ms)/1000, now.BootID},
		Length:  float64(ms) / 1000,
		Code:    f.Code, Subject: f.Subject,
	}
	return s.backOff()
}

// thaw starts a new episode: streak, corrections and tail start over, the
// totals stay, and so do the events: one that comes late still counts once.
func (s State) thaw(t Thawed, now check.Moment) State {
	s.Episode = oneMore(s.Episode)
	s.Thaws = appendLast(s.Thaws, Thaw{now.Epoch(), t.Why}, maxThaws)
	s.Corrections, s.Steered, s.Streak = 0, Stamp{}, 0
	s.Pause, s.Frozen, s.Tail = nil, nil, nil
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		if s.Events[i].Verdict.Action == Freeze { // no longer true
			s.Events[i].Verdict = s.verdict(Proceed)
		}
	}
	return s
}

func (s *State) howToThaw() string {
	return "A person ends this with: tickdog loop thaw --run " + word(s.Run) + " --why TEXT"
}

// word is an id as it can be pasted into a command line.
func word(id string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@", r))
	}
	if id != "" && id[0] != '-' && strings.IndexFunc(id, func(r rune) bool { return !plain(r) }) < 0 {
		return id
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
}

// repeated is a repetition at the end of the tail.
type repeated struct {
	period  int  // actions in one turn
	turns   int  // whole turns
	changed bool // a result changed from turn to turn
}

func (r repeated) String() string {
	text := fmt.Sprintf("this is the same action %d times in a row", r.turns)
	if r.period > 1 {
		text = fmt.Sprintf("the last %d actions are the same %d over and over, %d times", r.period*r.turns, r.period, r.turns)
	}
	if r.changed {
		text += " (what it gives changes, but it leads nowhere)"
	}
	return text
}

// repetition looks for a stall at the end of the tail: the shortest cycle that
// came three times. Only the end counts: what another action has broken has
// recovered. Where a result is known to have changed within those three turns
// the agent is polling, and that is no stall before the twelfth turn.
func repetition(tail []Action, longest int) (repeated, bool) {
	for period := 1; period <= longest; period++ {
		r := repeated{period: period, turns: turns(tail, period)}
		if r.turns < stallTurns {
			continue
		}
		for i := len(tail) - (stallTurns-1)*period; i < len(tail); i++ {
			was, is := tail[i-period].Result, tail[i].Result
			r.changed = r.changed || was != "" && is != "" && was != is
		}
		return r, !r.changed || r.turns >= pollTurns
	}
	return repeated{}, false
}

// turns is how often the last `period` actions came in a row.
func turns(tail []Action, period int) int {
	equal := 0 // actions that are the same as the one a turn before
	for i := len(tail) - 1; i >= period && tail[i].Fingerprint == tail[i-period].Fingerprint; i-- {
		equal++
	}
	if len(tail) < period {
		return 0
	}
	return equal/period + 1
}

// withResult is the tail with what came of one of its actions.
func withResult(tail []Action, r Resulted) []Action {
	for i := len(tail) - 1; i >= 0; i-- {
		a := tail[i]
		mine := r.Event != "" && a.Event == r.Event ||
			r.Event == "" && a.Fingerprint == r.Fingerprint && a.Result == ""
		if mine {
			tail = slices.Clone(tail)
			tail[i].Result = r.Result
			break
		}
	}
	return tail
}

// appendLast is list with one more, no longer than most; list stays as it is.
func appendLast[T any](list []T, item T, most int) []T {
	list = append(slices.Clip(list), item)
	return list[max(0, len(list)-most):]
}

// oneMore never goes past what fits.
func oneMore(n int) int {
	if n == math.MaxInt {
		return n
	}
	return n + 1
}

// The own wait: the first one, and the one at which it stops doubling. Both
// are before the jitter, which adds up to half.
const (
	firstWait = 500 * time.Millisecond
	longWait  = 60 * time.Second
)

// Seed is what a run's waits are drawn from: FNV-1a 64 over the 16 bytes of
// its id. A run so replays its own waits and neighbours differ. An id that is
// no UUID is known by the first 16 bytes of its SHA-256.
func Seed(run string) uint64 {
	id := runID(run)
	h := fnv.New64a()
	h.Write(id[:])
	return h.Sum64()
}

// Wait is the own wait after `streak` failures in a row: 500 ms, doubled for
// each further one, at most 60 s, plus a jitter of 0..half of it, in whole
// milliseconds. The jitter only adds, so that the wait never falls below its
// base. A streak below 1 counts as 1.
func Wait(seed uint64, streak int) time.Duration {
	streak = max(streak, 1)
	base := longWait
	if streak <= 7 { // 500 ms << 6 is 32 s, and the next one is past the most
		base = min(firstWait<<(streak-1), longWait)
	}
	half := uint64(base/time.Millisecond) / 2
	jitter := mix(seed^uint64(streak)) % (half + 1)
	return base + time.Duration(jitter)*time.Millisecond
}

// mix is splitmix64's finishing mix: neighbouring inputs, such as the streaks
// 1, 2, 3 of one run, give unrelated outputs.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Key is the name that a run's files go by: the id itself if it is a UUID, else
// a name made of its SHA-256. No path character of an id reaches a file name.
func Key(run string) string {
	if _, ok := uuid(run); ok {
		return strings.ToLower(run)
	}
	id := runID(run)
	return "x-" + hex.EncodeToString(id[:])
}

// runID is the 16 bytes a run is known by.
func runID(run string) (id [16]byte) {
	if b, ok := uuid(run); ok {
		return b
	}
	sum := sha256.Sum256([]byte(run))
	copy(id[:], sum[:])
	return id
}

// uuid reads the usual form 8-4-4-4-12, in either case.
func uuid(s string) (id [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, true
}
