package cycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tickdog/check"
)

// Outcome is what became of a whole cycle, in the words that the record, the
// log and the alert share.
type Outcome string

const (
	Running      Outcome = "running"
	Completed    Outcome = "completed"                   // every call of every stage ended well
	StoppedEarly Outcome = "stopped early (over budget)" // the budget was used up before a stage, so it was not started
	Failed       Outcome = "failed"                      // every stage had its turn, and one did not complete
	Interrupted  Outcome = "interrupted"                 // tickdog itself was stopped or killed
)

// OverBudget is the sentence a log is searched for when a cycle was cut short.
const OverBudget = "dream cycle over budget — stopped early"

// End is what became of one call.
type End string

const (
	Planned     End = "planned"
	InProgress  End = "running"
	OK          End = "ok"           // exit status 0, in time
	ExitStatus  End = "exit"         // another exit status, in time
	Signal      End = "signal"       // died of a signal that was not ours
	TimedOut    End = "timed_out"    // its ceiling was reached; whatever it said when asked to end
	SpawnFailed End = "spawn_failed" // it could not be started
	Skipped     End = "skipped"      // its turn never came
	Cut         End = "interrupted"  // it was ended because tickdog was
)

// Limits bound a cycle.
type Limits struct {
	Budget      time.Duration // checked between stages; at or past it no further one is started
	CallCeiling time.Duration // of each call
	KillGrace   time.Duration // from asking a call to end to killing it
}

// Stage is one stage of the plan.
type Stage struct {
	Name  string
	Calls [][]string // each a program and its arguments
}

// Record is a cycle as it is remembered. It is also all the state there is:
// [Decide] goes from one record to the next.
type Record struct {
	Name       string   `json:"name"`
	Outcome    Outcome  `json:"outcome"`
	Action     string   `json:"action,omitempty"` // what tickdog did to the cycle: "stopped early (over budget)"
	Started    string   `json:"started"`          // RFC 3339, local zone
	Ended      string   `json:"ended,omitempty"`  // RFC 3339; "" while it runs, and if nobody saw the end
	ElapsedMS  int64    `json:"elapsed_ms"`       // boottime: suspend counts, clock steps do not
	BudgetMS   int64    `json:"budget_ms"`
	OverrunMS  int64    `json:"overrun_ms,omitempty"` // how far past the budget it ended
	Skipped    []string `json:"skipped,omitempty"`    // stages that were not started
	Boottime   float64  `json:"started_boottime"`
	BootID     string   `json:"boot_id"`
	Runner     int      `json:"runner_pid,omitempty"`         // the tickdog that runs or ran it
	StartTicks uint64   `json:"runner_start_ticks,omitempty"` // with the pid, names that process for as long as it lives
	Calls      []Call   `json:"calls"`                        // every call of the plan, in order
}

// Call is one call of a cycle.
type Call struct {
	Stage      string   `json:"stage"`
	Argv       []string `json:"argv"`
	End        End      `json:"outcome"`
	Started    string   `json:"started,omitempty"`
	DeadlineMS int64    `json:"deadline_ms,omitempty"` // the epoch in ms at which it is asked to end, as it was told in TICKDOG_DEADLINE_MS
	Facts
}

// Facts are what was seen of one call, from its start to the end of the last
// process that it left behind.
type Facts struct {
	Code      *int    `json:"code,omitempty"`       // nil unless it exited
	Signal    string  `json:"signal,omitempty"`     // "SIGKILL", if one ended it
	StoppedBy string  `json:"stopped_by,omitempty"` // "none", "term" or "kill": what it took to end it
	ElapsedMS int64   `json:"elapsed_ms"`           // monotonic: suspend does not count
	Leftovers int     `json:"leftovers,omitempty"`  // processes of its group that outlived it and were killed
	Escaped   int     `json:"escaped,omitempty"`    // processes that had left its group, found and killed
	Left      []int   `json:"left,omitempty"`       // pids that even KILL did not end
	Stdout    *Output `json:"stdout,omitempty"`     // nil: it wrote none
	Stderr    *Output `json:"stderr,omitempty"`
	Reason    string  `json:"reason,omitempty"` // one plain phrase if it did not end well

	TimedOut   bool `json:"-"` // the ceiling was reached
	Told       bool `json:"-"` // tickdog was asked to end, and so ended the call
	NotStarted bool `json:"-"` // the program could not be started
}

// Output is what a call wrote to one stream.
type Output struct {
	File      string `json:"file"` // beside the record
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated,omitempty"` // only the newest part was kept
}

// Seen is what is known when [Decide] is asked.
type Seen struct {
	Call Facts // of the call that was running; before the first call, nothing
	Stop bool  // tickdog was asked to end
}

// Step is what to do next.
type Step struct {
	Call int // index into [Record.Calls] of the call to run now; -1: the cycle is over
}

// Begin is the record of a cycle that starts now, none of its calls begun.
func Begin(name string, stages []Stage, now check.Moment, limits Limits) Record {
	r := Record{
		Name: name, Outcome: Running, Started: stamp(now),
		BudgetMS: limits.Budget.Milliseconds(),
		Boottime: now.Boot, BootID: now.BootID,
		Calls: []Call{},
	}
	for _, s := range stages {
		for _, argv := range s.Calls {
			r.Calls = append(r.Calls, Call{Stage: s.Name, Argv: argv, End: Planned})
		}
	}
	return r
}

// Decide takes what was seen since prev and says what comes next. The call
// that was running has ended with seen.Call; a call that did not end well ends
// its stage; before a stage the budget is checked, and once it is used up
// nothing further is started. A stop ends everything, but does not undo a
// cycle whose last call had just ended by itself.
func Decide(prev Record, seen Seen, now check.Moment, limits Limits) (next Record, step Step) {
	if prev.Outcome != Running {
		return prev, Step{Call: -1}
	}
	next = prev
	next.Calls = slices.Clone(prev.Calls)
	next.ElapsedMS = elapsed(prev, now).Milliseconds()

	if at := next.running(); at >= 0 {
		call := &next.Calls[at]
		call.Facts = seen.Call
		call.End = seen.Call.end()
		if call.End != OK {
			next.skipStage(at + 1)
		}
	}
	at := next.planned()
	over := next.ElapsedMS >= limits.Budget.Milliseconds()
	switch {
	case at < 0 && !next.has(Cut):
		return next.ended(outcomeOf(next), now), Step{Call: -1}
	case seen.Stop || next.has(Cut):
		next.skipAll()
		return next.ended(Interrupted, now), Step{Call: -1}
	case over && next.beginsStage(at):
		next.skipAll()
		next.Action = string(StoppedEarly)
		return next.ended(StoppedEarly, now), Step{Call: -1}
	}
	next.Calls[at].End = InProgress
	next.Calls[at].Started = stamp(now)
	next.Calls[at].DeadlineMS = now.Wall.Add(limits.CallCeiling).UnixMilli()
	return next, Step{Call: at}
}

// Interrupt is the record of a cycle whose tickdog is gone without having said
// how it ended. A record that is not running stays as it is.
func Interrupt(prev Record) Record {
	if prev.Outcome != Running {
		return prev
	}
	next := prev
	next.Calls = slices.Clone(prev.Calls)
	if at := next.running(); at >= 0 {
		next.Calls[at].End = Cut
		next.Calls[at].Reason = "tickdog was killed"
	}
	next.skipAll()
	next.Outcome = Interrupted
	return next
}

// end says what became of a call.
func (f Facts) end() End {
	switch {
	case f.NotStarted:
		return SpawnFailed
	case f.TimedOut:
		return TimedOut
	case f.Told:
		return Cut
	case f.Signal != "":
		return Signal
	case f.Code == nil || *f.Code != 0:
		return ExitStatus
	}
	return OK
}

// outcomeOf a cycle in which every stage had its turn.
func outcomeOf(r Record) Outcome {
	for _, c := range r.Calls {
		if c.End != OK {
			return Failed
		}
	}
	return Completed
}

func (r *Record) ended(outcome Outcome, now check.Moment) Record {
	r.Outcome = outcome
	r.Ended = stamp(now)
	r.OverrunMS = max(0, r.ElapsedMS-r.BudgetMS)
	return *r
}

func (r *Record) running() int {
	return slices.IndexFunc(r.Calls, func(c Call) bool { return c.End == InProgress })
}

func (r *Record) planned() int {
	return slices.IndexFunc(r.Calls, func(c Call) bool { return c.End == Planned })
}

func (r *Record) has(end End) bool {
	return slices.ContainsFunc(r.Calls, func(c Call) bool { return c.End == end })
}

// beginsStage tells whether the call is the first of its stage.
func (r *Record) beginsStage(at int) bool {
	return at == 0 || r.Calls[at-1].Stage != r.Calls[at].Stage
}

// skipStage skips what is left of a stage, from the call on.
func (r *Record) skipStage(from int) {
	for i := from; i < len(r.Calls) && !r.beginsStage(i); i++ {
		r.Calls[i].End = Skipped
	}
}

// skipAll skips every call whose turn has not come, and names the stages that
// so were never started.
func (r *Record) skipAll() {
	r.Skipped = nil
	for i := range r.Calls {
		if r.Calls[i].End != Planned {
			continue
		}
		r.Calls[i].End = Skipped
		if r.beginsStage(i) {
			r.Skipped = append(r.Skipped, r.Calls[i].Stage)
		}
	}
}

// elapsed is the boottime since the record began; never less than it said before.
func elapsed(r Record, now check.Moment) time.Duration {
	before := time.Duration(r.ElapsedMS) * time.Millisecond
	since, _ := now.Since(r.Boottime, r.BootID)
	return max(before, since)
}

func stamp(now check.Moment) string { return now.Wall.Format("2006-01-02T15:04:05.000Z07:00") }

// WorstCase is how long a cycle can take if everything goes as badly as the
// limits allow: calls that just keep their ceiling, a last one of each stage
// that has to be killed, and a last stage that starts just inside the budget.
func WorstCase(stages []Stage, limits Limits) time.Duration {
	var start, worst time.Duration // the latest start of the stage at hand
	for _, s := range stages {
		start = min(start, limits.Budget)
		start += time.Duration(len(s.Calls))*limits.CallCeiling + limits.KillGrace
		worst = max(worst, start)
	}
	return worst
}

// Verdict is what the record says about the cycle as a whole, and about each
// of its stages.
func (r Record) Verdict() check.Verdict {
	switch r.Outcome {
	case Running:
		return check.Watch
	case Completed:
		return check.Rest
	case StoppedEarly:
		return check.Act
	}
	return check.Hold
}

// Reason says in one line, with the numbers, how the cycle ended or stands.
func (r Record) Reason() string {
	done := 0
	for _, c := range r.Calls {
		if c.End == OK {
			done++
		}
	}
	text := fmt.Sprintf("%d of %d calls in %s of %s", done, len(r.Calls), seconds(r.ElapsedMS), seconds(r.BudgetMS))
	if r.Outcome == StoppedEarly {
		text = OverBudget + ": " + text
	}
	for _, s := range r.Stages() {
		if (s.Outcome == Failed || s.Outcome == Interrupted) && !slices.Contains(r.Skipped, s.Name) {
			text += fmt.Sprintf("; %s %s", s.Name, s.Outcome)
		}
	}
	if len(r.Skipped) > 0 {
		text += "; skipped " + strings.Join(r.Skipped, ", ")
	}
	return text
}

// StageResult is what became of one stage.
type StageResult struct {
	Name    string
	Outcome Outcome // Running also before its turn; StoppedEarly if the budget kept it from starting
	Verdict check.Verdict
	Reason  string
}

// Stages sums the calls up, stage by stage.
func (r Record) Stages() (stages []StageResult) {
	for from := 0; from < len(r.Calls); {
		to := from + 1
		for to < len(r.Calls) && !r.beginsStage(to) {
			to++
		}
		stages = append(stages, r.stage(r.Calls[from:to]))
		from = to
	}
	return stages
}

func (r Record) stage(calls []Call) StageResult {
	s := StageResult{Name: calls[0].Stage, Outcome: Completed, Verdict: check.Rest}
	var took int64
	done := 0
	for _, c := range calls {
		took += c.ElapsedMS
		switch c.End {
		case OK:
			done++
			continue
		case Skipped:
			continue
		case Planned, InProgress:
			s.Outcome, s.Verdict = Running, check.Watch
		case Cut:
			s.Outcome, s.Verdict = Interrupted, check.Hold
		case TimedOut: // the one thing that tickdog itself does to a call
			s.Outcome, s.Verdict = Failed, check.Act
		default:
			s.Outcome, s.Verdict = Failed, check.Hold
		}
		if c.Reason != "" {
			s.Reason = fmt.Sprintf("; %s", c.Reason)
		}
	}
	if calls[0].End == Skipped {
		s.Outcome, s.Verdict = r.Outcome, check.Hold
		s.Reason = "; not started"
	}
	s.Reason = fmt.Sprintf("%d of %d calls in %s", done, len(calls), seconds(took)) + s.Reason
	return s
}

func seconds(ms int64) string {
	if ms < 10_000 {
		return fmt.Sprintf("%.1f s", float64(ms)/1000)
	}
	return fmt.Sprintf("%d s", ms/1000)
}
