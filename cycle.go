package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/check/cycle"
	"tickdog/state"
	"tickdog/units"

	"github.com/urfave/cli/v2"
)

func (p *program) cycleCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:  "cycle",
		Usage: "run a background job of many calls so that every call and the whole end",
		Description: `Runs the configured stages in order, each a list of calls. A call ends within
call_ceiling: then it is asked to, killed after kill_grace, and what escaped
from it is found and killed. TICKDOG_DEADLINE_MS tells it when that will be, in
milliseconds since 1970. A call that fails or is cut ends its stage, and is not
retried. Between stages the budget is checked: past it the remaining stages are
skipped and one alert goes out. --dry-run prints the plan and how long it can
take at worst.

Every cycle leaves a record, and the output of its calls, in
cycles/NAME/ of the state directory; 'tickdog status' shows the last ones.`,
		Flags:  passFlags(),
		Action: p.cyclePass,
	}, 0, 0)
}

// cycleRun is one cycle. It is a pass like every other, but for its length:
// it decides, saves and acts once a call.
type cycleRun struct {
	*pass
	conf    cycleConfig
	limits  cycle.Limits
	stages  []cycle.Stage
	records *state.Dir // cycles/<name>
	stem    string     // of the names of its files
	record  cycle.Record
	show    progress
	unsaved bool // said once that the record cannot be written
	unkept  bool // the same of the calls' output
}

// cyclePass is the pass: lock, load, then decide, save, act for every call → tell.
func (p *program) cyclePass(c *cli.Context) error {
	cfg, err := p.loadConfig(c, "cycle")
	if err != nil {
		return err
	}
	s, err := p.newPass(c, cfg, "cycle", cfg.Cycle.Name, c.Bool("dry-run"))
	if err != nil {
		return err
	}
	s.all = true
	s.end() // a cycle has a budget of its own instead of a pass's limit
	s.ctx, s.end = context.WithCancel(c.Context)

	switch s.lock(cfg.Cycle.Lock) {
	case lockBusy:
		return s.finish(false)
	case lockBroken: // two cycles at once would do the job's work twice
		s.report.Reason = "without its lock a cycle runs nothing"
		return s.finish(false)
	}
	if len(cfg.Cycle.Stage) == 0 {
		s.report.Reason = "no [[cycle.stage]] is configured; nothing to run"
		return s.finish(true)
	}
	r := &cycleRun{pass: s, conf: cfg.Cycle, limits: cfg.Cycle.limits(), stages: cfg.Cycle.stages()}
	if s.dryRun {
		r.plan()
		return s.finish(true)
	}
	if err := r.open(); err != nil {
		return err
	}
	r.lookBack()
	r.begin()
	r.run()
	r.tellOverBudget()
	r.save()
	r.say()
	return s.finish(true)
}

func (c cycleConfig) limits() cycle.Limits {
	return cycle.Limits{Budget: c.Budget, CallCeiling: c.CallCeiling, KillGrace: c.KillGrace}
}

func (c cycleConfig) stages() (stages []cycle.Stage) {
	for _, s := range c.Stage {
		stages = append(stages, cycle.Stage{Name: s.Name, Calls: s.Calls})
	}
	return stages
}

// plan says what would be run and how long it can take, and looks whether the
// programs are there.
func (r *cycleRun) plan() {
	for _, s := range r.stages {
		v := verdict{
			Subject: s.Name, State: "planned", Verdict: check.Act, Result: "dry-run", WouldRun: s.Calls,
			Reason: fmt.Sprintf("%s, each at most %v", count(len(s.Calls), "call"), r.limits.CallCeiling),
		}
		for _, argv := range s.Calls {
			if _, err := units.CallPath(argv); err != nil {
				v.Verdict = check.Hold
				v.Reason += "; " + err.Error()
			}
		}
		r.report.Verdicts = append(r.report.Verdicts, v)
	}
	r.report.Verdicts = append(r.report.Verdicts, verdict{
		Subject: r.name, State: "planned", Verdict: check.Act, Result: "dry-run",
		Reason: fmt.Sprintf("at worst %v: a budget of %v, checked between stages; calls of at most %v, and %v to end one",
			cycle.WorstCase(r.stages, r.limits), r.limits.Budget, r.limits.CallCeiling, r.limits.KillGrace),
	})
}

// count says how many, in the singular and the plural.
func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// open finds the place for the records. A cycle goes on without one, and then
// remembers nothing.
func (r *cycleRun) open() (err error) {
	r.records, err = r.dir.Sub(filepath.Join("cycles", r.name))
	if errors.Is(err, state.ErrForeign) {
		return err
	}
	if err != nil {
		r.note("%v; no record of this cycle is kept, and no output", err)
		r.records = nil
	}
	return nil
}

// lookBack reads the records of earlier cycles. We hold the lock, so one that
// still says running was killed: its record is brought to an end, and what its
// last call left is killed.
func (r *cycleRun) lookBack() {
	if r.records == nil {
		return
	}
	past, err := cycle.Look(r.records.Path(""))
	if err != nil {
		r.note("records: %v", err)
	}
	for _, p := range past {
		switch {
		case p.Bad != "":
			aside := fmt.Sprintf("%s.bad-%d", p.File, r.now.Epoch())
			if err := r.records.Rename(p.File, aside); err != nil {
				r.note("record: %s: %v", p.Bad, err)
				continue
			}
			r.note("%s: %s; set aside as %s", r.records.Path(p.File), p.Bad, aside)
		case p.Record.Outcome == cycle.Running:
			ended := cycle.Interrupt(p.Record)
			text := fmt.Sprintf("the cycle of %s was interrupted: %s", p.Record.Started, ended.Reason())
			if n := killLeftBy(p.Record, r.now); n > 0 {
				text += fmt.Sprintf("; it had left %s, killed now", count(n, "process"))
			}
			if err := r.records.WriteFile(p.File, ended.Text()); err != nil {
				r.note("record: %v", err)
			}
			r.note("%s", text)
			r.log(r.conf.Log, text)
		}
	}
}

// killLeftBy kills what the running call of a killed cycle left.
func killLeftBy(dead cycle.Record, now check.Moment) (killed int) {
	for _, c := range dead.Calls {
		if c.End == cycle.InProgress && c.DeadlineMS > 0 && dead.BootID == now.BootID {
			killed += units.KillMarked(deadlineVariable(c))
		}
	}
	return killed
}

// deadlineVariable tells a call when it will be asked to end.
func deadlineVariable(c cycle.Call) string {
	return fmt.Sprintf("TICKDOG_DEADLINE_MS=%d", c.DeadlineMS)
}

// begin opens the record of this cycle, under a name that is free.
func (r *cycleRun) begin() {
	r.show = r.newProgress()
	r.record = cycle.Begin(r.name, r.stages, r.now, r.limits)
	r.record.Runner, r.record.StartTicks = units.Self()
	if r.records == nil {
		return
	}
	named := r.now
	for {
		r.stem = cycle.Stem(named)
		if _, err := os.Lstat(r.records.Path(r.stem + ".json")); err != nil {
			break
		}
		named.Wall = named.Wall.Add(time.Millisecond)
	}
	r.report.Source = r.records.Path(r.stem + ".json")
	r.save()
	r.prune()
}

// run goes from call to call until the cycle is over.
func (r *cycleRun) run() {
	var seen cycle.Seen
	for {
		r.now = r.moment() // a cycle's moments are its steps'
		next, step := cycle.Decide(r.record, seen, r.now, r.limits)
		r.record = next
		if step.Call < 0 {
			return
		}
		r.save()
		seen = cycle.Seen{Call: r.call(step.Call), Stop: r.ctx.Err() != nil}
	}
}

// call runs one call to its end.
func (r *cycleRun) call(at int) cycle.Facts {
	c := r.record.Calls[at]
	call := units.Call{
		Argv: c.Argv, Env: []string{deadlineVariable(c)},
		Ceiling: r.limits.CallCeiling, Grace: r.limits.KillGrace,
	}
	if r.records != nil {
		file := fmt.Sprintf("%s.%d", r.records.Path(r.stem), at+1)
		call.Stdout, call.Stderr = file+".out", file+".err"
	}
	r.show.begins(r.record, at)
	result := units.RunCall(r.ctx, call)
	facts := callFacts(result)
	r.show.ended(r.record, at, facts)
	if facts.Reason != "" {
		r.log(r.conf.Log, fmt.Sprintf("%s: call %d of %s: %s", r.name, at+1, c.Stage, facts.Reason))
	}
	if err := cmp.Or(result.Stdout.Err, result.Stderr.Err); err != nil && !r.unkept {
		r.note("output of call %d is not kept: %v", at+1, err)
		r.unkept = true
	}
	return facts
}

// callFacts is what the record keeps of a call.
func callFacts(r units.CallResult) cycle.Facts {
	f := cycle.Facts{
		Signal: r.Signal, StoppedBy: r.StoppedBy, ElapsedMS: r.Took.Milliseconds(),
		Leftovers: r.Leftovers, Escaped: r.Escaped, Left: r.Left, Reason: oneLine(r.Failure()),
		TimedOut: r.TimedOut, Told: r.Told, NotStarted: r.Err != nil && !r.Told,
		Stdout: callOutput(r.Stdout), Stderr: callOutput(r.Stderr),
	}
	if r.Code >= 0 {
		f.Code = &r.Code
	}
	return f
}

func callOutput(k units.Kept) *cycle.Output {
	if k.Path == "" {
		return nil
	}
	return &cycle.Output{File: filepath.Base(k.Path), Bytes: k.Bytes, Truncated: k.Truncated}
}

// save writes the record. That it cannot be written is said once and keeps no
// call from running.
func (r *cycleRun) save() {
	if r.records == nil {
		return
	}
	err := r.records.WriteFile(r.stem+".json", r.record.Text())
	if err != nil && !r.unsaved {
		r.note("record: %v", err)
	}
	r.unsaved = err != nil
}

// keptRecords is how many cycles are remembered.
const keptRecords = 100

// prune removes all but the newest records, and the output that belongs to them.
func (r *cycleRun) prune() {
	names, err := r.records.List()
	if err != nil {
		return // lookBack has said so
	}
	var stems []string
	for _, name := range names {
		if stem := cycle.StemOf(name); name == stem+".json" {
			stems = append(stems, stem)
		}
	}
	if len(stems) <= keptRecords {
		return
	}
	slices.Sort(stems)
	oldest := stems[len(stems)-keptRecords]
	for _, name := range names {
		if stem := cycle.StemOf(name); stem != "" && stem < oldest {
			if err := r.records.Remove(name); err != nil {
				r.note("record: %v", err)
			}
		}
	}
}

// tellOverBudget writes the one alert down before the record says that the
// cycle is over: killed in between, it is told once all the same.
func (r *cycleRun) tellOverBudget() {
	if r.record.Outcome == cycle.StoppedEarly {
		r.tell(false, []string{"hourglass"}, "%s", r.record.Reason()).outcome("")
	}
}

// say puts the stages and the whole into the report, and the whole into the log.
func (r *cycleRun) say() {
	for _, s := range r.record.Stages() {
		r.report.Verdicts = append(r.report.Verdicts, verdict{
			Subject: s.Name, State: string(s.Outcome), Verdict: s.Verdict, Reason: s.Reason,
		})
	}
	v := verdict{
		Subject: r.name, State: string(r.record.Outcome), Verdict: r.record.Verdict(),
		Action: r.record.Action, Reason: r.record.Reason(),
	}
	if v.Action != "" {
		v.Result = "done"
	}
	r.report.Verdicts = append(r.report.Verdicts, v)
	r.log(r.conf.Log, fmt.Sprintf("%s %s: %s", r.name, r.record.Outcome, v.Reason))
}
