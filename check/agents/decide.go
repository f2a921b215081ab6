package agents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
)

// Seen is what one pass saw of one agent. What could not be seen is said to be
// unknown; it is never a zero and never an error.
type Seen struct {
	Unit     Unit
	Process  Process
	Health   Health
	Dispatch Dispatch
}

// Unit is what `systemctl show` said of the agent's unit. The stamps are
// CLOCK_MONOTONIC in microseconds, 0 for never, as systemd gives them.
type Unit struct {
	Asked       bool   // systemd answered; false: nothing else here is known
	Detail      string // why systemd could not be asked
	LoadState   string // loaded, not-found, masked, …
	ActiveState string // active, inactive, failed, activating, deactivating, reloading, …
	SubState    string
	Result      string // success, exit-code, signal, timeout, …
	MainPID     int    // 0: none, or not known

	NRestarts      int // automatic restarts since the last start by hand
	NRestartsKnown bool

	InactiveExit uint64 // last left inactive or failed: the start of its present or last life
	ActiveExit   uint64 // last left active
	ExecMainExit uint64 // last end of a main process
	Monotonic    uint64 // CLOCK_MONOTONIC when systemd was asked; 0: not known
}

// Process is what /proc and the unit's accounting said of the main process.
type Process struct {
	State    string  // the letter of /proc/PID/stat (R, S, D, T, Z, …); "" is unknown
	CPU      float64 // seconds of CPU used so far
	CPUKnown bool
}

// HealthClass says how `GET /health` went.
type HealthClass string

const (
	HealthOK      HealthClass = "ok"      // a 2xx JSON object of this agent
	HealthRefused HealthClass = "refused" // nothing listens there
	HealthMute    HealthClass = "mute"    // no complete answer in time, reset, cut off
	HealthSick    HealthClass = "sick"    // 429 or 5xx
	HealthForeign HealthClass = "foreign" // any other answer, or another agent's name
	HealthUnknown HealthClass = "unknown" // we could not ask: no descriptor, say
)

// Health is the answer to `GET /health`. Only an ok one has Status, Task and
// CircuitOpen.
type Health struct {
	Class       HealthClass
	Detail      string // one plain phrase: "no answer in 4 s", "HTTP 503", "names itself luna"
	Status      string // the agent's own word, "" if it gave none
	Task        Task
	CircuitOpen bool
	Ms          int64 // how long the answer, or the want of one, took
	Slow        bool  // answered, but it took more than four fifths of the limit
}

// Task is an agent's current_task. The zero Task is unknown; known and empty
// is none.
type Task struct {
	Known bool
	Text  string
	Ours  bool // the text of our own probe, which says nothing about the agent's work
}

// DispatchClass says how the dispatch probe went.
type DispatchClass string

const (
	DispatchCompleted  DispatchClass = "completed"  // it ran: a message, a task in a final state, or -32603
	DispatchRefused    DispatchClass = "refused"    // the loop is alive and declines
	DispatchOverloaded DispatchClass = "overloaded" // 429, 503
	DispatchFaulty     DispatchClass = "faulty"     // anything else that answered
	DispatchDead       DispatchClass = "dead"       // no complete answer in time, reset, cut off
	DispatchUnknown    DispatchClass = "unknown"    // we could not ask
	DispatchSkipped    DispatchClass = "skipped"    // not sent: health was refused or foreign
)

// Dispatch is the answer to the dispatch probe.
type Dispatch struct {
	Class    DispatchClass
	Detail   string // one plain phrase: "no answer in 15 s", "HTTP 404", "JSON-RPC error -32001: …"
	Ms       int64
	Slow     bool   // answered, but it took more than four fifths of the limit
	Protocol string // the generation that worked: "0.3" or "1.0"; "" if none did
	Repeated bool   // dead without being sent: the agent still shows the text of the last dead probe
}

// Limits are the settings that decide. Zero is no default: the configuration
// gives every one of them.
type Limits struct {
	Gate            bool          // false: the original rule, any failed probe is a restart
	DispatchTimeout time.Duration // named in reasons; look keeps it
	BusyCap         time.Duration // without evidence of work for so long, a deaf agent is wedged
	BusyMax         time.Duration // how long after hard evidence soft evidence counts
	StartGrace      time.Duration // a unit younger than this is starting
	RestartEvery    time.Duration // at most one restart a unit in so long
	FreezeAfter     int           // attempts without 30 minutes of answers before a unit is frozen
	PassBudget      time.Duration // a pass this old starts no further restart
	MaxGap          time.Duration // a longer pause between passes starts the gate afresh
	MinGap          time.Duration // dead probes closer together count once
}

const (
	busyCPU      = 0.01             // of one core: an idle uvicorn uses 0.2 to 0.4 %
	crashWindow  = 10 * time.Minute // systemd restarting a unit crashCount times within it is a crash loop
	crashCount   = 3
	maxTaskRunes = 120 // of a task that is remembered
)

// Evidence says which sign of work came last.
type Evidence string

const (
	EvidenceSeen     Evidence = "seen"     // none yet: watched from then on
	EvidenceAnswered Evidence = "answered" // hard: a probe was answered
	EvidenceProcess  Evidence = "process"  // hard: a new main process
	EvidenceTask     Evidence = "task"     // soft: current_task changed
	EvidenceCPU      Evidence = "cpu"      // soft: CPU was used
)

var signs = map[Evidence]string{
	EvidenceSeen: "first seen", EvidenceAnswered: "answered", EvidenceProcess: "started",
	EvidenceTask: "changed", EvidenceCPU: "used CPU",
}

// Phrase is the evidence as a person reads it before "40 s ago".
func (e Evidence) Phrase() string { return orElse(signs[e], signs[EvidenceSeen]) }

// State is what is remembered of one agent between passes. All stamps are
// CLOCK_BOOTTIME in seconds and count only on the boot BootID; 0 is never.
// The zero State is an agent never seen.
type State struct {
	Checked float64 // the last pass
	BootID  string

	Since    float64  // the last evidence of work that our probe cannot cause
	Evidence Evidence // which
	Hard     float64  // the last hard evidence

	Dead   int     // counted dead probes in a row
	Idle   int     // how many of the latest of them found the agent without a task
	DeadAt float64 // when the last one was counted

	Deaf      float64 // down or without an answer since; 0: it is not
	Answering float64 // answering at every pass since; 0: it is not

	Task     Task // the last one known; our own text is none of them
	PID      int  // the last main process known
	CPU      float64
	CPUAt    float64 // when CPU was read; 0: not known
	Restarts []Count // NRestarts as it grew within crashWindow, oldest first

	Protocol string   // the A2A generation that worked last
	State    string   // the state of the last pass
	Blind    int      // passes in a row that could not see it
	Told     []string // incidents a person has been told of and that last
}

// Count is a counter's value and the boottime at which it was first seen.
type Count struct {
	Value int
	At    float64
}

// The states of an agent, one a row of the table.
const (
	Healthy    = "healthy"
	Stopped    = "stopped"
	CrashLoop  = "crash loop"
	Starting   = "starting"
	Down       = "down"
	Impostor   = "impostor"
	Faulty     = "faulty"
	Overloaded = "overloaded"
	Busy       = "busy"
	Suspect    = "suspect"
	Wedged     = "wedged"
	Frozen     = "frozen" // wanted too many restarts: see Plan
	Blind      = "unknown"
)

// Verdict is what a pass says about one agent. check.Act means that the rules
// for this one agent want a restart; Plan says whether it may have one.
type Verdict struct {
	State   string
	Verdict check.Verdict
	Reason  string // with the numbers
}

// Decide says what one agent's state is and whether it wants a restart. It is
// the whole of the judgement about a single agent: the table, first match wins,
// and behind it the gate that tells busy from wedged.
//
// A provider call may take 180 s and the agents' own cap on a request is 300 s,
// so a dead probe alone proves nothing. It takes two, and either an agent that
// had no task at both or none that showed a sign of work for BusyCap.
func Decide(prev State, seen Seen, now check.Moment, limits Limits) (State, Verdict) {
	next := prev.resume(now, limits)
	next.notice(seen, now, limits)
	v := next.judge(seen, now, limits)
	next.remember(seen, v, now)
	return next, v
}

// resume is the state a pass starts from: what streaks there were, unless the
// machine was rebooted or too long went by unseen. What a person was told lasts.
func (s State) resume(now check.Moment, limits Limits) State {
	s.Told = slices.Clone(s.Told)
	s.Restarts = slices.Clone(s.Restarts)
	if gap, ok := now.Since(s.Checked, s.BootID); ok && gap <= limits.MaxGap {
		// A stamp that a hand put into the future is now: it must block nothing.
		for _, stamp := range []*float64{&s.Since, &s.Hard, &s.DeadAt, &s.Deaf, &s.Answering, &s.CPUAt} {
			*stamp = min(*stamp, now.Boot)
		}
		return s
	}
	return State{
		Checked: now.Boot, BootID: now.BootID,
		Since: now.Boot, Hard: now.Boot, Evidence: EvidenceSeen,
		Protocol: s.Protocol, State: s.State, Blind: s.Blind, Told: s.Told,
	}
}

// notice weighs the evidence of work.
func (s *State) notice(seen Seen, now check.Moment, limits Limits) {
	hard := func(e Evidence) { s.Hard, s.Since, s.Evidence = now.Boot, now.Boot, e }
	// Soft evidence alone does not excuse an agent for ever: callers that knock
	// on a wedged one change its task too, and a stray thread burns CPU.
	soft := func(e Evidence) {
		if now.Boot-s.Hard <= limits.BusyMax.Seconds() {
			s.Since, s.Evidence = now.Boot, e
		}
	}

	sameProcess := s.PID != 0 && s.PID == seen.Unit.MainPID
	newProcess := s.PID != 0 && seen.Unit.MainPID != 0 && !sameProcess

	if p := seen.Process; p.CPUKnown {
		elapsed := now.Boot - s.CPUAt
		measured := s.CPUAt != 0 && sameProcess
		if measured && elapsed >= limits.MinGap.Seconds() && p.CPU-s.CPU > busyCPU*elapsed {
			soft(EvidenceCPU)
		}
		if !measured || elapsed >= limits.MinGap.Seconds() { // over less, our own probe would show
			s.CPU, s.CPUAt = p.CPU, now.Boot
		}
	}
	if t := seen.Health.Task; t.Known && !t.Ours {
		t.Text = shorten(t.Text, maxTaskRunes)
		if s.Task.Known && s.Task != t {
			soft(EvidenceTask)
		}
		s.Task = t
	}
	if newProcess {
		hard(EvidenceProcess)
		s.clear() // dead probes say nothing about another process
	}
	if seen.Unit.MainPID != 0 {
		s.PID = seen.Unit.MainPID
	}
	if seen.Unit.NRestartsKnown {
		s.count(seen.Unit.NRestarts, now)
	}
	switch seen.Dispatch.Class {
	case DispatchCompleted, DispatchRefused:
		hard(EvidenceAnswered)
		s.clear()
	case DispatchOverloaded, DispatchFaulty:
		s.clear()
	}
	if seen.Dispatch.Protocol != "" {
		s.Protocol = seen.Dispatch.Protocol
	}
}

// clear ends the row of dead probes.
func (s *State) clear() { s.Dead, s.Idle, s.DeadAt = 0, 0, 0 }

// count keeps how NRestarts grew, as far back as the window needs.
func (s *State) count(n int, now check.Moment) {
	if k := len(s.Restarts); k == 0 || n < s.Restarts[k-1].Value { // a start by hand begins at 0 again
		s.Restarts = []Count{{n, now.Boot}}
	} else if n > s.Restarts[k-1].Value {
		s.Restarts = append(s.Restarts, Count{n, now.Boot})
	}
	for len(s.Restarts) > 1 && now.Boot-s.Restarts[1].At >= crashWindow.Seconds() {
		s.Restarts = s.Restarts[1:]
	}
}

// grown is by how much NRestarts grew within the window.
func (s *State) grown() int {
	if len(s.Restarts) == 0 {
		return 0
	}
	return s.Restarts[len(s.Restarts)-1].Value - s.Restarts[0].Value
}

// judge is the table: first match wins.
func (s *State) judge(seen Seen, now check.Moment, limits Limits) Verdict {
	u, h, d := seen.Unit, seen.Health, seen.Dispatch
	young, isYoung := u.younger(limits.StartGrace)
	switch {
	case !u.Asked:
		return Verdict{Blind, check.Unknown, join("systemd cannot be asked", u.Detail, ": ")}
	case u.LoadState != "loaded":
		return Verdict{Blind, check.Unknown, "the unit is " + orElse(u.LoadState, "not known to systemd")}
	case d.Class == DispatchCompleted, d.Class == DispatchRefused:
		return Verdict{Healthy, check.Rest, s.healthy(seen, limits)}
	case !u.known():
		return Verdict{Blind, check.Unknown, fmt.Sprintf("its unit is in a state that is not known: %q", u.ActiveState)}
	case u.ended() && u.askedToStop():
		return Verdict{Stopped, check.Rest, u.ActiveState + ", stopped by a person or never started"}
	case s.grown() >= crashCount:
		return Verdict{CrashLoop, check.Hold, fmt.Sprintf("systemd restarted it %d times in %s; it is at it",
			s.grown(), span(now.Boot-s.Restarts[0].At))}
	case u.changing():
		return Verdict{Starting, check.Rest, join(u.ActiveState, u.SubState, "/")}
	case isYoung:
		return Verdict{Starting, check.Rest, fmt.Sprintf("started %s ago, less than %s", span(young.Seconds()), span(limits.StartGrace.Seconds()))}
	case u.ended():
		return Verdict{Down, check.Act, "died by itself: " + join(u.ActiveState, u.Result, "/")}
	case !limits.Gate && h.Class != HealthOK && h.Class != HealthUnknown:
		return Verdict{Down, check.Act, "health: " + orElse(h.Detail, string(h.Class))}
	case !limits.Gate && (d.Class == DispatchDead || d.Class == DispatchFaulty):
		return Verdict{Wedged, check.Act, deadOrFaulty(d, limits)}
	case h.Class == HealthForeign:
		return Verdict{Impostor, check.Hold, "health: " + orElse(h.Detail, "not this agent") + "; a restart cannot help"}
	case h.Class == HealthRefused:
		return Verdict{Down, check.Act, "health: " + orElse(h.Detail, "connection refused")}
	case seen.Process.State == "T":
		return Verdict{Down, check.Act, fmt.Sprintf("its main process %d is stopped (T)", u.MainPID)}
	case d.Class == DispatchFaulty:
		return Verdict{Faulty, check.Hold, "it answers a message, but wrongly: " + orElse(d.Detail, "faulty") + "; a restart is a person's decision"}
	case d.Class == DispatchOverloaded:
		return s.overloaded(d, now, limits)
	case d.Class == DispatchDead:
		return s.deaf(seen, now, limits)
	}
	return Verdict{Blind, check.Unknown, "no message could be sent: " + orElse(d.Detail, string(d.Class))}
}

// overloaded is patient as long as anything was completed within BusyMax.
func (s *State) overloaded(d Dispatch, now check.Moment, limits Limits) Verdict {
	age := now.Boot - s.Hard
	what := orElse(d.Detail, "overloaded") + "; nothing completed for " + span(age)
	if age >= limits.BusyMax.Seconds() {
		return Verdict{Overloaded, check.Act, what}
	}
	return Verdict{Overloaded, check.Watch, what + ", at most " + span(limits.BusyMax.Seconds())}
}

// deaf is the gate: the only place where a dead probe is counted.
func (s *State) deaf(seen Seen, now check.Moment, limits Limits) Verdict {
	told := seen.Health.Task.Known && s.Task.Known // our own text leaves standing what was known before
	idle, busy := told && s.Task.Text == "", told && s.Task.Text != ""
	counts := s.Dead == 0 || now.Boot-s.DeadAt >= limits.MinGap.Seconds()
	if counts {
		s.Dead, s.DeadAt = s.Dead+1, now.Boot
	}
	switch {
	case !idle:
		s.Idle = 0
	case counts:
		s.Idle++
	}

	what := deadOrFaulty(seen.Dispatch, limits)
	task := "task unknown"
	switch {
	case idle:
		task = "no task"
	case busy:
		task = "task " + quote(s.Task.Text)
	}
	if c := seen.Health.Class; c != HealthOK {
		task += " (health: " + orElse(seen.Health.Detail, string(c)) + ")"
	}

	age := now.Boot - s.Since
	if s.Dead >= 2 && (s.Idle >= 2 || age >= limits.BusyCap.Seconds()) {
		times := "twice"
		if s.Dead > 2 {
			times = fmt.Sprintf("%d times", s.Dead)
		}
		reason := fmt.Sprintf("%s, %s; %s", what, times, task)
		if s.Idle < 2 {
			reason += ", no sign of work for " + span(age)
		}
		return Verdict{Wedged, check.Act, reason}
	}

	when := s.Since + limits.BusyCap.Seconds()
	if next := s.DeadAt + limits.MinGap.Seconds(); s.Idle > 0 || s.Dead < 2 && next > when {
		when = next
	}
	at := now.Wall.Add(seconds(when - now.Boot)).Format(time.TimeOnly)
	sign := s.Evidence.Phrase() + " " + span(age) + " ago"
	switch {
	case busy && s.Evidence == EvidenceTask:
		return Verdict{Busy, check.Watch, fmt.Sprintf("%s, but %s %s; would be wedged at %s if nothing moves", what, task, sign, at)}
	case busy:
		return Verdict{Busy, check.Watch, fmt.Sprintf("%s, but %s; %s; would be wedged at %s if nothing moves", what, task, sign, at)}
	}
	if s.Evidence == EvidenceTask {
		sign = "task " + sign
	}
	return Verdict{Suspect, check.Watch, fmt.Sprintf("%s; %s; %s; would be wedged at %s if nothing moves", what, task, sign, at)}
}

// remember closes the pass: since when the agent is deaf or answering, and
// what a person need not be told again.
func (s *State) remember(seen Seen, v Verdict, now check.Moment) {
	s.Checked, s.BootID, s.State = now.Boot, now.BootID, v.State
	if v.Verdict == check.Unknown {
		s.Blind++
		return // no reading ends nothing and begins nothing
	}
	s.Blind = 0
	switch {
	case v.State == Healthy:
		s.Deaf, s.Told = 0, nil
		if s.Answering == 0 {
			s.Answering = now.Boot
		}
		return
	case v.State == Stopped:
		s.Deaf, s.Told = 0, nil
	case v.State == Down || seen.Dispatch.Class == DispatchDead:
		if s.Deaf == 0 {
			s.Deaf = now.Boot
		}
	case v.State == Faulty || v.State == Overloaded:
		s.Deaf = 0
	}
	s.Answering = 0
}

// healthy names all that is odd about an agent that answers.
func (s *State) healthy(seen Seen, limits Limits) string {
	u, h, d := seen.Unit, seen.Health, seen.Dispatch
	r := fmt.Sprintf("answered in %.2f s", float64(d.Ms)/1000)
	if d.Class == DispatchRefused {
		r = fmt.Sprintf("declined in %.2f s: %s", float64(d.Ms)/1000, orElse(d.Detail, "refused"))
	}
	if d.Slow {
		r += ", slow: the limit is " + limits.patience()
	}
	switch {
	case h.Class != HealthOK:
		r += "; health: " + orElse(h.Detail, string(h.Class))
	case h.Slow:
		r += fmt.Sprintf("; health was slow: %.2f s", float64(h.Ms)/1000)
	}
	if h.CircuitOpen {
		r += "; its circuit is open"
	}
	if h.Status != "" && h.Status != "running" && h.Status != "ok" {
		r += "; says " + quote(h.Status)
	}
	if u.ActiveState != "active" {
		r += "; but its unit is " + orElse(u.ActiveState, "in no known state")
	}
	return r
}

func (u Unit) ended() bool { return u.ActiveState == "inactive" || u.ActiveState == "failed" }

func (u Unit) changing() bool {
	switch u.ActiveState {
	case "activating", "deactivating", "reloading", "refreshing", "maintenance":
		return true
	}
	return false
}

func (u Unit) known() bool { return u.ActiveState == "active" || u.ended() || u.changing() }

// askedToStop tells a person's stop from a death. A stop leaves the active
// state first and the process ends after it, whatever Result says: the stop of
// a hung unit ends as failed/timeout, and a unit can die as inactive/success.
// A life that ended before it was ever active was a failure if systemd calls
// it one; otherwise somebody called the start off (or there never was one).
func (u Unit) askedToStop() bool {
	if u.ActiveExit == 0 || u.ActiveExit < u.InactiveExit {
		return u.ActiveState != "failed"
	}
	return u.ActiveExit < u.ExecMainExit
}

// younger says how long ago the unit started, if that is known and less than d.
func (u Unit) younger(d time.Duration) (time.Duration, bool) {
	if u.InactiveExit == 0 || u.Monotonic < u.InactiveExit {
		return 0, false
	}
	age := time.Duration(u.Monotonic-u.InactiveExit) * time.Microsecond
	return age, age < d
}

func deadOrFaulty(d Dispatch, limits Limits) string {
	switch {
	case d.Class == DispatchFaulty:
		return "it answers a message, but wrongly: " + orElse(d.Detail, "faulty")
	case d.Repeated:
		return "no answer to a message in " + limits.patience() + " and it still shows the last one"
	case d.Detail == "", strings.HasPrefix(d.Detail, "no answer"):
		return "no answer to a message in " + limits.patience()
	}
	return "no answer to a message: " + d.Detail
}

// patience is how long a message may take, as it is configured: 15 s, 1.5 s.
func (l Limits) patience() string {
	return strconv.FormatFloat(l.DispatchTimeout.Seconds(), 'g', -1, 64) + " s"
}

// span is a number of seconds as a person says it: 40 s, 12 min, 3 h.
func span(seconds float64) string {
	switch {
	case seconds < 0:
		return "0 s"
	case seconds < 600:
		return strconv.FormatFloat(seconds, 'f', 0, 64) + " s"
	case seconds < 2*3600:
		return strconv.FormatFloat(seconds/60, 'f', 0, 64) + " min"
	}
	return strconv.FormatFloat(seconds/3600, 'f', 0, 64) + " h"
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// quote shows a stranger's text with everything escaped that could move a
// cursor or turn the line around.
func quote(text string) string { return strconv.Quote(shorten(text, 40)) }

func shorten(text string, runes int) string {
	if r := []rune(text); len(r) > runes {
		return string(r[:runes]) + "..."
	}
	return text
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func join(a, b, between string) string {
	if b == "" {
		return a
	}
	return a + between + b
}
