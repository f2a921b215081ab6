package agents

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tickdog/check"
)

// Attempt is the last restart of a unit that was tried, whatever came of it.
type Attempt struct {
	Epoch  int64   // wall clock: what a budget goes by after a reboot
	Count  int     // attempts without 30 minutes of answers between them; those in a storm are not counted
	Boot   float64 // CLOCK_BOOTTIME, seconds
	BootID string

	Unlogged string // why it was restarted, as long as the action log lacks its line
}

// Freeze says since when and why a unit is not restarted any more.
type Freeze struct {
	Epoch  int64
	Reason string
}

// Storm is a time in which so many agents are deaf at once that one cause is
// likelier than many. The zero Storm is none.
type Storm struct {
	Canary string  // the unit restarted last in it; "-": none yet
	Epoch  int64   // when it was, or when the storm was first told of
	Until  float64 // CLOCK_BOOTTIME until which the others wait for it; 0: they do not
	BootID string
}

// Fleet is what is remembered of the restarts of all units.
type Fleet struct {
	Attempts map[string]Attempt
	Frozen   map[string]Freeze
	Storm    Storm
}

// Standing is one agent in a pass.
type Standing struct {
	Unit    string
	Prev    State // before this pass
	State   State
	Seen    Seen
	Alone   Verdict // what Decide says
	Verdict Verdict // what Plan makes of it among the others
}

// Incident is what a person should know of once, because no restart mends it.
type Incident struct {
	Kind   string // frozen, storm, blind, or the state: crash loop, impostor, faulty
	Units  []string
	Reason string
}

// Course is what a pass is going to do.
type Course struct {
	Agents    []Standing
	Queue     []int // the agents to restart, strictly one after another
	Storm     bool
	Incidents []Incident
}

const (
	lasting    = 30 * time.Minute // answers for so long make earlier attempts count no more
	blindAfter = 5                // passes in a row that saw nothing, before a person is told
	stormCount = 3                // at least so many deaf agents, and at least half of those not stopped
)

// Plan decides which of the wanted restarts a pass may do, and in which order.
// A reason in paused forbids all of them, and then no one is told anything:
// what still lasts when the pause ends is told then.
//
// In a storm only the first of the queue may be restarted; the others follow
// one after another as long as each answers, like everywhere (see Go).
func Plan(fleet Fleet, agents []Standing, paused string, now check.Moment, limits Limits) (Fleet, Course) {
	f := fleet.settle(now, limits)
	c := Course{Agents: slices.Clone(agents)}
	for i := range c.Agents {
		c.Agents[i].Verdict = c.Agents[i].Alone
	}
	recovered := f.forgive(c.Agents, now)

	deaf, living := count(c.Agents)
	share := fmt.Sprintf("%d of %d are deaf", deaf, living)
	c.Storm = deaf >= stormCount && 2*deaf >= living
	switch {
	case !c.Storm:
		f.Storm = Storm{}
	case recovered:
		f.Storm.Until = 0
	}

	var wanted []string
	for i := range c.Agents {
		a := &c.Agents[i]
		if a.Verdict.Verdict != check.Act {
			c.notice(a, paused)
			continue
		}
		if paused == "" && f.freeze(*a, now, limits) {
			c.Incidents = append(c.Incidents, Incident{Frozen, []string{a.Unit}, f.Frozen[a.Unit].Reason})
		}
		if frozen, ok := f.Frozen[a.Unit]; ok {
			a.Verdict = Verdict{Frozen, check.Hold, fmt.Sprintf("%s: %s; not restarted any more since %s, until it answers by itself or a person thaws it",
				a.Verdict.State, a.Verdict.Reason, time.Unix(frozen.Epoch, 0).In(now.Wall.Location()).Format(time.DateTime))}
			continue
		}
		wanted = append(wanted, a.Unit)
		attempt, tried := f.Attempts[a.Unit]
		switch age := attempt.age(now); {
		case paused != "":
			a.hold(paused)
		case tried && age < limits.RestartEvery:
			a.hold(fmt.Sprintf("restarted %s ago, may be again at %s", span(age.Seconds()), clock(now, limits.RestartEvery-age)))
		case c.Storm && f.Storm.Until > now.Boot:
			a.hold(fmt.Sprintf("%s: waits until %s for %s to answer", share, clock(now, seconds(f.Storm.Until-now.Boot)), f.Storm.Canary))
		default:
			c.Queue = append(c.Queue, i)
		}
	}

	// Deaf longest comes first, and who was tried since it fell deaf comes
	// after those who were not.
	slices.SortStableFunc(c.Queue, func(i, j int) int {
		a, b := c.Agents[i], c.Agents[j]
		return cmp.Or(cmp.Compare(f.tried(a, now), f.tried(b, now)), cmp.Compare(a.deafSince(now), b.deafSince(now)))
	})
	if c.Storm && paused == "" {
		for n, i := range c.Queue {
			if n > 0 {
				c.Agents[i].hold(fmt.Sprintf("%s: only if %s answers", share, c.Agents[c.Queue[0]].Unit))
			}
		}
		if f.Storm.Epoch == 0 && len(wanted) > 0 {
			f.Storm = Storm{Canary: "-", Epoch: now.Epoch(), BootID: now.BootID}
			c.Incidents = append(c.Incidents, Incident{"storm", wanted, share + "; restarted one at a time, the next only if the one before answers"})
		}
	}
	c.Incidents = merge(c.Incidents)
	return f, c
}

// Recheck judges an agent once more, just before its restart: from the same
// past, on what is seen now. It must be left alone unless the verdict is to act.
func Recheck(a Standing, again Seen, now check.Moment, limits Limits) Verdict {
	if was, is := a.Seen.Unit.MainPID, again.Unit.MainPID; is != 0 && was != is {
		return Verdict{Starting, check.Rest, fmt.Sprintf("it has another main process now: %d", is)}
	}
	_, v := Decide(a.Prev, again, now, limits)
	return v
}

// Outcome is what came of one turn of the queue.
type Outcome int

const (
	Left      Outcome = iota // left alone after all
	Answering                // restarted, and answers
	Deaf                     // restarted, or tried to; does not answer
)

// Go says whether a pass of that age may go on to the next restart after what
// came of the last; a reason says why not.
func Go(last Outcome, unit string, age time.Duration, limits Limits) (stop string) {
	switch {
	case last == Deaf:
		return unit + " was restarted first and does not answer yet"
	case age >= limits.PassBudget:
		return fmt.Sprintf("the pass is %s old already; the next one goes on", span(age.Seconds()))
	}
	return ""
}

// Attempted records a restart that is about to be done.
func (f Fleet) Attempted(unit string, storm bool, now check.Moment, limits Limits) Fleet {
	f = f.clone()
	a := Attempt{Epoch: now.Epoch(), Count: f.Attempts[unit].Count, Boot: now.Boot, BootID: now.BootID}
	if storm {
		f.Storm = Storm{Canary: unit, Epoch: now.Epoch(), Until: now.Boot + limits.RestartEvery.Seconds(), BootID: now.BootID}
	} else {
		a.Count++
	}
	f.Attempts[unit] = a
	return f
}

// Owes records that the action log lacks the line of a unit's last restart, and
// why that was done; an empty why, that the log has it.
func (f Fleet) Owes(unit, why string) Fleet {
	f = f.clone()
	a := f.Attempts[unit]
	a.Unlogged = why
	f.Attempts[unit] = a
	return f
}

// Answered records that a unit answered after its restart: nobody waits for it.
func (f Fleet) Answered(unit string) Fleet {
	if f.Storm.Canary == unit {
		f.Storm.Until = 0
	}
	return f
}

// Free is how long a unit must still wait for its next restart; 0: it need not.
func (f Fleet) Free(unit string, now check.Moment, limits Limits) time.Duration {
	a, tried := f.Attempts[unit]
	if !tried {
		return 0
	}
	return max(0, limits.RestartEvery-a.age(now))
}

func (f Fleet) clone() Fleet {
	f.Attempts, f.Frozen = maps.Clone(f.Attempts), maps.Clone(f.Frozen)
	if f.Attempts == nil {
		f.Attempts = map[string]Attempt{}
	}
	if f.Frozen == nil {
		f.Frozen = map[string]Freeze{}
	}
	return f
}

// settle makes what was remembered fit the clocks of now. A stamp in the
// future came from a clock that was wrong; as now, it blocks nothing for ever.
func (f Fleet) settle(now check.Moment, limits Limits) Fleet {
	f = f.clone()
	for unit, a := range f.Attempts {
		a.Epoch = min(a.Epoch, now.Epoch())
		if a.BootID == now.BootID {
			a.Boot = min(a.Boot, now.Boot)
		}
		f.Attempts[unit] = a
	}
	for unit, z := range f.Frozen {
		z.Epoch = min(z.Epoch, now.Epoch())
		f.Frozen[unit] = z
	}
	if f.Storm != (Storm{}) && f.Storm.BootID != now.BootID {
		f.Storm.Until, f.Storm.BootID = 0, now.BootID // the wait is over, but a person knows
	}
	f.Storm.Epoch = min(f.Storm.Epoch, now.Epoch())
	f.Storm.Until = min(f.Storm.Until, now.Boot+limits.RestartEvery.Seconds())
	return f
}

// forgive lets answers end what they end: a freeze at once, the count of
// attempts after half an hour. It says whether any agent that was deaf answers.
func (f *Fleet) forgive(agents []Standing, now check.Moment) (recovered bool) {
	for _, a := range agents {
		if a.Verdict.State != Healthy {
			continue
		}
		recovered = recovered || a.Prev.Deaf != 0
		_, frozen := f.Frozen[a.Unit]
		delete(f.Frozen, a.Unit)
		if at, tried := f.Attempts[a.Unit]; tried && (frozen || now.Boot-a.State.Answering >= lasting.Seconds()) {
			at.Count = 0
			f.Attempts[a.Unit] = at
		}
	}
	return recovered
}

// freeze stops restarting a unit that too many restarts did not help. It says
// whether that is news.
func (f *Fleet) freeze(a Standing, now check.Moment, limits Limits) bool {
	n := f.Attempts[a.Unit].Count
	if _, already := f.Frozen[a.Unit]; already || n < limits.FreezeAfter {
		return false
	}
	f.Frozen[a.Unit] = Freeze{now.Epoch(), fmt.Sprintf("%s: %s; %d restarts did not last", a.Verdict.State, a.Verdict.Reason, n)}
	return true
}

// tried is when a unit was last tried since it fell deaf, 0 if it was not.
func (f Fleet) tried(a Standing, now check.Moment) float64 {
	if at := f.Attempts[a.Unit]; at.BootID == now.BootID && at.Boot >= a.deafSince(now) {
		return at.Boot
	}
	return 0
}

// age is the time since an attempt: by boottime on the same boot, else by the
// wall clock.
func (a Attempt) age(now check.Moment) time.Duration {
	if age, same := now.Since(a.Boot, a.BootID); same {
		return age
	}
	return time.Duration(now.Epoch()-a.Epoch) * time.Second
}

// deafSince is when the agent fell deaf; one that only answers wrongly did so now.
func (a Standing) deafSince(now check.Moment) float64 {
	if a.State.Deaf == 0 {
		return now.Boot
	}
	return a.State.Deaf
}

func (a *Standing) hold(why string) {
	a.Verdict.Verdict = check.Hold
	a.Verdict.Reason += "; " + why
}

// notice finds what a person should know of, beside freezes and storms.
func (c *Course) notice(a *Standing, paused string) {
	kind := a.Verdict.State
	switch {
	case paused != "":
		return
	case a.Verdict.Verdict == check.Unknown && a.State.Blind >= blindAfter:
		kind = "blind"
	case a.Verdict.Verdict != check.Hold:
		return
	}
	if slices.Contains(a.State.Told, kind) {
		return
	}
	a.State.Told = append(slices.Clone(a.State.Told), kind)
	c.Incidents = append(c.Incidents, Incident{kind, []string{a.Unit}, a.Verdict.Reason})
}

// merge makes one incident of those that have the same cause, such as a
// manager that cannot be asked about any unit.
func merge(incidents []Incident) (merged []Incident) {
	for _, in := range incidents {
		i := slices.IndexFunc(merged, func(m Incident) bool { return m.Kind == in.Kind && m.Reason == in.Reason })
		if i < 0 {
			merged = append(merged, in)
		} else {
			merged[i].Units = append(slices.Clone(merged[i].Units), in.Units...)
		}
	}
	return merged
}

// count says how many agents are deaf, and how many there are but for the
// stopped ones.
func count(agents []Standing) (deaf, living int) {
	for _, a := range agents {
		if a.Verdict.State == Stopped {
			continue
		}
		living++
		if a.Verdict.State == Down || a.Seen.Dispatch.Class == DispatchDead {
			deaf++
		}
	}
	return deaf, living
}

// clock is the time of day some time from now.
func clock(now check.Moment, in time.Duration) string {
	return now.Wall.Add(in).Format(time.TimeOnly)
}
