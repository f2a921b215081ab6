package agents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tickdog/check"
)

// testLimits are the defaults of the configuration.
var testLimits = Limits{
	Gate: true, DispatchTimeout: 15 * time.Second,
	BusyCap: 5 * time.Minute, BusyMax: 30 * time.Minute, StartGrace: time.Minute,
	RestartEvery: 10 * time.Minute, FreezeAfter: 3, PassBudget: 100 * time.Second,
	MaxGap: 10 * time.Minute, MinGap: time.Minute,
}

// at is a moment so many seconds into the test.
func at(seconds float64) check.Moment {
	return check.Moment{
		Wall: time.Date(2026, 9, 27, 9, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second))),
		Boot: 1000 + seconds, BootID: "boot",
	}
}

// up is a healthy, idle agent that has been up for an hour.
func up() Seen {
	return Seen{
		Unit: Unit{
			Asked: true, LoadState: "loaded", ActiveState: "active", SubState: "running", Result: "success",
			MainPID: 41, NRestartsKnown: true, InactiveExit: 1e6, Monotonic: 3601e6,
		},
		Process:  Process{State: "S"},
		Health:   Health{Class: HealthOK, Status: "running", Task: Task{Known: true}, Ms: 3},
		Dispatch: Dispatch{Class: DispatchCompleted, Ms: 60},
	}
}

// dead is the same agent, deaf, with a task or without.
func dead(task string) Seen {
	s := up()
	s.Health.Task.Text = task
	s.Dispatch = Dispatch{Class: DispatchDead, Detail: "no answer in 15 s", Ms: 15000}
	return s
}

// The scenarios of the research, as far as the table decides them, with passes
// every two minutes and a message at each. A tick is
//
//	mm:ss | process | health | task | CPU % since the tick before | message | state verdict
//
// The process is its state letter and pid, with +20s for a unit that young; or
// what systemd says of a unit without one. Task: - is none, ? is not known.
// No % is no CPU time known.
const scenarios = `
S01 healthy and idle
00:00 | S/41 | ok | - | 0.3 | completed | healthy rest
02:00 | S/41 | ok | - | 0.3 | completed | healthy rest
04:00 | S/41 | ok | - | 0.3 | completed | healthy rest

S02 busy, and visibly moving
00:00 | S/41 | ok | [Young] Self-he... | 1.8 | dead | busy watch
02:00 | S/41 | ok | [Young] Write t... | 2.4 | dead | busy watch
04:00 | S/41 | ok | [Old] Review th... | 1.1 | dead | busy watch
06:00 | S/41 | ok | [Old] Review it... | 1.1 | dead | busy watch
08:00 | S/41 | ok | - | 1.1 | completed | healthy rest

S03 a legitimate 180 s provider call on a serial agent
00:00 | S/41 | ok | - | 1.2 | completed | healthy rest
02:00 | S/41 | ok | [Young] Self-he... | 0.3 | dead | busy watch
04:00 | S/41 | ok | [Young] Self-he... | 0.3 | dead | busy watch
06:00 | S/41 | ok | - | 2.6 | completed | healthy rest

S04 the fleet's wedge: a hung provider call
00:00 | S/41 | ok | - | 1.5 | completed | healthy rest
02:00 | S/41 | ok | [Young] Self-he... | 0.2 | dead | busy watch
04:00 | S/41 | ok | [Young] Self-he... | 0.2 | dead | busy watch
06:00 | S/41 | ok | [Young] Self-he... | 0.2 | dead | busy watch
08:00 | S/41 | ok | [Young] Self-he... | 0.2 | dead | wedged act

S04b the same, idle: healed within four minutes
00:00 | S/41 | ok | - | 0.3 | completed | healthy rest
02:00 | S/41 | ok | - | 0.2 | dead | suspect watch
04:00 | S/41 | ok | - | 0.2 | dead | wedged act

S05 one call hung, the rest of the agent works
00:00 | S/41 | ok | [Young] Self-he... | 0.3 | completed | healthy rest
06:00 | S/41 | ok | [Young] Self-he... | 0.3 | completed | healthy rest
12:00 | S/41 | ok | [Young] Self-he... | 0.3 | completed | healthy rest

S06 our own text becomes the current task, and is no news
00:00 | S/41 | ok | [Young] Self-he... | 1.4 | completed | healthy rest
02:00 | S/41 | ok | [Young] Self-he... | 0.2 | dead | busy watch
04:00 | S/41 | ok | tickdog live... | 0.2 | repeated | busy watch
06:00 | S/41 | ok | tickdog live... | 0.2 | repeated | wedged act

S06b the same of an agent that was idle before our message
00:00 | S/41 | ok | - | 1.4 | completed | healthy rest
02:00 | S/41 | ok | - | 0.2 | dead | suspect watch
04:00 | S/41 | ok | tickdog live... | 0.2 | repeated | wedged act

S07 truncated labels: ten tasks look like one, but the CPU moves
00:00 | S/42 | ok | [Young] Self-he... | 1.9 | completed | healthy rest
04:00 | S/42 | ok | [Young] Self-he... | 2.1 | dead | busy watch
08:00 | S/42 | ok | [Young] Self-he... | 2.3 | dead | busy watch
12:00 | S/42 | ok | [Young] Self-he... | 2.0 | dead | busy watch

S09 a flapping label excuses for busy_max, not for ever
00:00 | S/41 | ok | - | 1.3 | completed | healthy rest
06:00 | S/41 | ok | B | 0.3 | dead | busy watch
12:00 | S/41 | ok | A | 0.3 | dead | busy watch
18:00 | S/41 | ok | B | 0.3 | dead | busy watch
24:00 | S/41 | ok | A | 0.3 | dead | busy watch
30:00 | S/41 | ok | B | 0.3 | dead | busy watch
36:00 | S/41 | ok | A | 0.3 | dead | wedged act

S10 flapping because it works
00:00 | S/41 | ok | [Young] Self-he... | 1.8 | completed | healthy rest
03:00 | S/41 | ok | [Old] Review th... | 1.2 | dead | busy watch
06:00 | S/41 | ok | [Young] Self-he... | 1.4 | completed | healthy rest

S11 an event loop blocked by a sync provider call, then fine
00:00 | S/41 | mute | ? | 0.00 | dead | suspect watch
02:00 | S/41 | mute | ? | 0.00 | dead | suspect watch
04:00 | S/41 | ok | - | 0.5 | completed | healthy rest

S12 mute for good
00:00 | S/41 | mute | ? | 0.00 | dead | suspect watch
02:00 | S/41 | mute | ? | 0.00 | dead | suspect watch
04:00 | S/41 | mute | ? | 0.00 | dead | suspect watch
06:00 | S/41 | mute | ? | 0.00 | dead | wedged act

S13 a spinning event loop that answers late
00:00 | R/41 | mute | ? | 96 | completed | healthy rest
02:00 | S/41 | ok | - | 20 | completed | healthy rest

S14 health dead, message fine
00:00 | S/41 | mute | ? | 0.2 | completed | healthy rest
04:00 | S/41 | mute | ? | 0.2 | completed | healthy rest

S15 overloaded, and nothing completed for busy_max
00:00 | S/41 | sick | ? | 0.4 | completed | healthy rest
06:00 | S/41 | sick | ? | 0.4 | overloaded | overloaded watch
12:00 | S/41 | sick | ? | 0.4 | overloaded | overloaded watch
18:00 | S/41 | sick | ? | 0.4 | overloaded | overloaded watch
24:00 | S/41 | sick | ? | 0.4 | overloaded | overloaded watch
30:00 | S/41 | sick | ? | 0.4 | overloaded | overloaded act

S16 overloaded but draining
00:00 | S/41 | sick | ? | 8 | overloaded | overloaded watch
03:00 | S/41 | sick | ? | 11 | overloaded | overloaded watch
06:00 | S/41 | ok | [Young] Self-he... | 7 | completed | healthy rest

S18 out of descriptors, burning CPU: excused no longer than busy_max
00:00 | R/41 | mute | ? | 70 | dead | suspect watch
06:00 | R/41 | mute | ? | 70 | dead | suspect watch
12:00 | R/41 | mute | ? | 70 | dead | suspect watch
18:00 | R/41 | mute | ? | 70 | dead | suspect watch
24:00 | R/41 | mute | ? | 70 | dead | suspect watch
30:00 | R/41 | mute | ? | 70 | dead | suspect watch
36:00 | R/41 | mute | ? | 70 | dead | wedged act

S19 a stopped main process is down at once
00:00 | T/41 | mute | ? | 0.00 | dead | down act

S19b but not while it answers all the same
00:00 | T/41 | ok | - | 0.3 | completed | healthy rest

S20 uninterruptible: the gate decides
00:00 | D/41 | mute | ? | 0.00 | dead | suspect watch
04:00 | D/41 | mute | ? | 0.00 | dead | suspect watch
08:00 | D/41 | mute | ? | 0.00 | dead | wedged act

S21 a zombie holds no port
00:00 | Z/41 | refused | ? | 0.00 | skipped | down act

S22 slow start-up within the grace
00:00 | S/50+10s | refused | ? | 30 | skipped | starting rest
00:40 | S/50+50s | refused | ? | 60 | skipped | starting rest
02:00 | S/50+130s | ok | - | 12 | completed | healthy rest

S23 a start-up that never ends
00:00 | S/50+30s | refused | ? | 0.1 | skipped | starting rest
02:00 | S/50+150s | refused | ? | 0.1 | skipped | down act

S24 the listener is closed but the process waits for its last request
00:00 | deactivating | refused | ? | ? | skipped | starting rest
02:00 | S/60+30s | ok | - | 9 | completed | healthy rest

S25 another agent on the port
00:00 | S/41 | foreign | ? | 0.3 | skipped | impostor hold
02:00 | failed-self | foreign | ? | ? | skipped | down act

S26 another one for a moment
00:00 | S/41 | foreign | ? | 0.3 | skipped | impostor hold
02:00 | S/41 | ok | - | 0.3 | completed | healthy rest

S28 an open circuit that answers
00:00 | S/41 | circuit | - | 0.3 | completed | healthy rest
02:00 | S/41 | circuit | - | 0.3 | refused | healthy rest

S32 the answer comes after the deadline: slow, not wedged
00:00 | S/41 | ok | - | 0.3 | completed | healthy rest
02:00 | S/41 | ok | - | 0.3 | dead | suspect watch
04:00 | S/41 | ok | - | 0.3 | completed | healthy rest
06:00 | S/41 | ok | - | 0.3 | dead | suspect watch
08:00 | S/41 | ok | - | 0.3 | completed | healthy rest

S35 after a restart the count starts over
00:00 | S/41 | ok | - | 9 | dead | suspect watch
02:00 | S/41 | ok | - | 9 | dead | wedged act
04:00 | S/50+100s | ok | - | 9 | dead | suspect watch
06:00 | S/50+220s | ok | - | 0.3 | dead | wedged act

S36 the host slept
00:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | busy watch
04:00 | S/41 | ok | [Young] Self-he... | 0.3 | dead | busy watch
124:00 | S/41 | ok | [Young] Self-he... | 0.3 | dead | busy watch
126:00 | S/41 | ok | - | 3.0 | completed | healthy rest

S38 the agent refuses us: it lives
00:00 | S/41 | ok | - | 0.3 | refused | healthy rest
05:00 | S/41 | ok | - | 0.3 | refused | healthy rest

S39 an answer to somebody else: wrong, and never a restart
00:00 | S/41 | ok | - | 0.3 | faulty | faulty hold
05:00 | S/41 | ok | - | 0.3 | faulty | faulty hold
10:00 | S/41 | ok | - | 0.3 | faulty | faulty hold

S39b a wrong answer ends a row of dead ones
00:00 | S/41 | ok | - | 0.3 | dead | suspect watch
02:00 | S/41 | ok | - | 0.3 | faulty | faulty hold
04:00 | S/41 | ok | - | 0.3 | dead | suspect watch

S40 quota reached
00:00 | S/41 | ok | [Young] Self-he... | 1.4 | overloaded | overloaded watch
03:00 | S/41 | ok | [Young] Write t... | 1.2 | overloaded | overloaded watch
06:00 | S/41 | ok | - | 1.1 | completed | healthy rest

S42 wedged, with a chatty background thread
00:00 | S/41 | ok | - | 1.5 | completed | healthy rest
06:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | busy watch
12:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | busy watch
20:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | busy watch
28:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | busy watch
32:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | busy watch
34:00 | S/41 | ok | [Young] Self-he... | 1.4 | dead | wedged act

three looks by hand within a minute count once
00:00 | S/41 | ok | - | 0.3 | dead | suspect watch
00:20 | S/41 | ok | - | 0.3 | dead | suspect watch
00:40 | S/41 | ok | - | 0.3 | dead | suspect watch
01:00 | S/41 | ok | - | 0.3 | dead | wedged act

a task shown at the second look asks for the cap
00:00 | S/41 | ok | - | 0.3 | dead | suspect watch
02:00 | S/41 | ok | A | 0.3 | dead | busy watch
04:00 | S/41 | ok | A | 0.3 | dead | busy watch
06:00 | S/41 | ok | A | 0.3 | dead | busy watch
08:00 | S/41 | ok | A | 0.3 | dead | wedged act

a task that ended and nothing since
00:00 | S/41 | ok | A | 0.3 | dead | busy watch
02:00 | S/41 | ok | - | 0.3 | dead | suspect watch
04:00 | S/41 | ok | - | 0.3 | dead | wedged act

what we could not ask counts as neither
00:00 | S/41 | ok | - | 0.3 | dead | suspect watch
02:00 | S/41 | ok | - | 0.3 | unknown | unknown unknown
04:00 | S/41 | ok | - | 0.3 | dead | wedged act

systemd cannot be asked, whatever the agent says
00:00 | unasked | ok | - | ? | completed | unknown unknown
02:00 | unasked | refused | ? | ? | skipped | unknown unknown

no such unit, or masked
00:00 | not-found | refused | ? | ? | skipped | unknown unknown
02:00 | masked | refused | ? | ? | skipped | unknown unknown

a person stopped it, also when the stop had to kill it
00:00 | stopped | refused | ? | ? | skipped | stopped rest
02:00 | stopped-failed | refused | ? | ? | skipped | stopped rest
04:00 | never | refused | ? | ? | skipped | stopped rest
06:00 | start-called-off | refused | ? | ? | skipped | stopped rest

it died by itself, also when systemd calls that a success
00:00 | failed-self | refused | ? | ? | skipped | down act
02:00 | inactive-self | refused | ? | ? | skipped | down act
04:00 | failed-start | refused | ? | ? | skipped | down act
06:00 | failed-restart | refused | ? | ? | skipped | down act

an orphan answers in place of a unit that is not active
00:00 | failed-self | ok | - | ? | completed | healthy rest

systemd is at it
00:00 | activating | refused | ? | ? | skipped | starting rest
02:00 | reloading | mute | ? | ? | dead | starting rest
`

var unitWords = map[string]Unit{
	"unasked":      {},
	"not-found":    {Asked: true, LoadState: "not-found", ActiveState: "inactive"},
	"masked":       {Asked: true, LoadState: "masked", ActiveState: "inactive"},
	"activating":   {Asked: true, LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", InactiveExit: 3600e6, ActiveExit: 3599e6, ExecMainExit: 3598e6},
	"deactivating": {Asked: true, LoadState: "loaded", ActiveState: "deactivating", SubState: "stop-sigterm", MainPID: 41, InactiveExit: 1e6, ActiveExit: 3600e6},
	"reloading":    {Asked: true, LoadState: "loaded", ActiveState: "reloading", MainPID: 41, InactiveExit: 1e6},

	"stopped":          {Asked: true, LoadState: "loaded", ActiveState: "inactive", SubState: "dead", Result: "success", InactiveExit: 1e6, ActiveExit: 50e6, ExecMainExit: 51e6},
	"stopped-failed":   {Asked: true, LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "timeout", InactiveExit: 1e6, ActiveExit: 50e6, ExecMainExit: 70e6},
	"never":            {Asked: true, LoadState: "loaded", ActiveState: "inactive", SubState: "dead", Result: "success"},
	"start-called-off": {Asked: true, LoadState: "loaded", ActiveState: "inactive", SubState: "dead", Result: "exit-code", InactiveExit: 60e6, ActiveExit: 50e6, ExecMainExit: 49e6},

	"failed-self":    {Asked: true, LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "exit-code", InactiveExit: 1e6, ActiveExit: 50e6, ExecMainExit: 49e6},
	"inactive-self":  {Asked: true, LoadState: "loaded", ActiveState: "inactive", SubState: "dead", Result: "success", InactiveExit: 1e6, ActiveExit: 50e6, ExecMainExit: 50e6},
	"failed-start":   {Asked: true, LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "exit-code", InactiveExit: 60e6, ExecMainExit: 61e6},
	"failed-restart": {Asked: true, LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "exit-code", InactiveExit: 60e6, ActiveExit: 50e6, ExecMainExit: 61e6},
}

// tick is one line of a scenario.
type tick struct {
	at            float64
	seen          Seen
	cpu           float64 // per cent, -1 if not known
	state, advice string
}

func parseTick(line string) (t tick, err error) {
	f := strings.Split(line, "|")
	if len(f) != 7 {
		return t, fmt.Errorf("%d columns", len(f))
	}
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	var minutes, seconds int
	if _, err := fmt.Sscanf(f[0], "%d:%d", &minutes, &seconds); err != nil {
		return t, err
	}
	t.at = float64(60*minutes + seconds)
	t.seen = up()
	t.seen.Dispatch = Dispatch{Class: DispatchClass(f[5])}
	switch f[5] {
	case "repeated":
		t.seen.Dispatch = Dispatch{Class: DispatchDead, Repeated: true}
	case "dead":
		t.seen.Dispatch.Detail = "no answer in 15 s"
	}
	t.seen.Health = Health{Class: HealthClass(f[2])}
	if f[2] == "circuit" {
		t.seen.Health = Health{Class: HealthOK, CircuitOpen: true}
	}
	switch f[3] {
	case "?":
	case "-":
		t.seen.Health.Task.Known = true
	default:
		t.seen.Health.Task = Task{Known: true, Text: f[3], Ours: ours(f[3])}
	}
	if unit, ok := unitWords[f[1]]; ok {
		t.seen.Unit, t.seen.Process = unit, Process{}
	} else {
		var letter rune
		var age int
		proc := strings.TrimSuffix(f[1], "s")
		if n, _ := fmt.Sscanf(proc, "%c/%d+%d", &letter, &t.seen.Unit.MainPID, &age); n == 3 {
			t.seen.Unit.InactiveExit = t.seen.Unit.Monotonic - uint64(age)*1e6
		} else if n < 2 {
			return t, fmt.Errorf("process %q", f[1])
		}
		t.seen.Process.State = string(letter)
	}
	t.cpu = -1
	if f[4] != "?" {
		if t.cpu, err = strconv.ParseFloat(f[4], 64); err != nil {
			return t, err
		}
	}
	words := strings.Split(f[6], " ")
	t.state, t.advice = strings.Join(words[:len(words)-1], " "), words[len(words)-1]
	return t, nil
}

func TestScenarios(t *testing.T) {
	for _, block := range strings.Split(strings.TrimSpace(scenarios), "\n\n") {
		name, ticks, _ := strings.Cut(block, "\n")
		t.Run(name, func(t *testing.T) {
			var s State
			var cpu, before float64
			for _, line := range strings.Split(ticks, "\n") {
				tick, err := parseTick(line)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if tick.cpu >= 0 {
					cpu += tick.cpu / 100 * (tick.at - before)
					tick.seen.Process.CPU, tick.seen.Process.CPUKnown = cpu, true
				}
				before = tick.at
				var v Verdict
				s, v = Decide(s, tick.seen, at(tick.at), testLimits)
				if v.State != tick.state || string(v.Verdict) != tick.advice {
					t.Errorf("%s\n  got %s %s: %s", line, v.State, v.Verdict, v.Reason)
				}
			}
		})
	}
}

// follow is the verdicts of one agent over so many passes, two minutes apart.
func follow(limits Limits, seen ...Seen) (s State, verdicts []Verdict) {
	for i, one := range seen {
		var v Verdict
		s, v = Decide(s, one, at(float64(120*i)), limits)
		verdicts = append(verdicts, v)
	}
	return s, verdicts
}

func TestReasons(t *testing.T) {
	slow := up()
	slow.Dispatch.Ms, slow.Dispatch.Slow = 14300, true
	odd := up()
	odd.Health = Health{Class: HealthOK, Status: "degraded", CircuitOpen: true}
	odd.Dispatch = Dispatch{Class: DispatchRefused, Detail: "HTTP 401", Ms: 5}
	odd.Unit.ActiveState = "failed"
	reset := dead("")
	reset.Dispatch.Detail = "connection reset"
	reset.Health = Health{Class: HealthMute, Detail: "no answer in 4 s"}
	failed := up()
	failed.Unit, failed.Dispatch.Class, failed.Health.Class = unitWords["failed-self"], DispatchSkipped, HealthRefused
	unasked := up()
	unasked.Unit = Unit{Detail: "systemctl: Failed to connect to bus"}
	nasty := dead("\x1b[31m\u202e" + strings.Repeat("ü", 80))

	for name, test := range map[string]struct {
		seen []Seen
		want string
	}{
		"slow":    {[]Seen{slow}, "answered in 14.30 s, slow: the limit is 15 s"},
		"odd":     {[]Seen{odd}, `declined in 0.01 s: HTTP 401; its circuit is open; says "degraded"; but its unit is failed`},
		"busy":    {[]Seen{up(), dead("A")}, `no answer to a message in 15 s, but task "A" changed 0 s ago; would be wedged at 09:07:00 if nothing moves`},
		"later":   {[]Seen{up(), dead("A"), dead("A")}, `no answer to a message in 15 s, but task "A" changed 120 s ago; would be wedged at 09:07:00 if nothing moves`},
		"new":     {[]Seen{dead("A")}, `no answer to a message in 15 s, but task "A"; first seen 0 s ago; would be wedged at 09:05:00 if nothing moves`},
		"suspect": {[]Seen{up(), dead("")}, `no answer to a message in 15 s; no task; answered 120 s ago; would be wedged at 09:03:00 if nothing moves`},
		"wedged":  {[]Seen{dead(""), dead("")}, `no answer to a message in 15 s, twice; no task`},
		"capped":  {[]Seen{dead("A"), dead("A"), dead("A"), dead("A")}, `no answer to a message in 15 s, 4 times; task "A", no sign of work for 360 s`},
		"reset":   {[]Seen{reset}, `no answer to a message: connection reset; task unknown (health: no answer in 4 s); first seen 0 s ago; would be wedged at 09:05:00 if nothing moves`},
		"failed":  {[]Seen{failed}, `died by itself: failed/exit-code`},
		"unasked": {[]Seen{unasked}, `systemd cannot be asked: systemctl: Failed to connect to bus`},
		"nasty":   {[]Seen{nasty}, `no answer to a message in 15 s, but task "\x1b[31m\u202e` + strings.Repeat("ü", 34) + `..."; first seen 0 s ago; would be wedged at 09:05:00 if nothing moves`},
	} {
		_, v := follow(testLimits, test.seen...)
		if got := v[len(v)-1].Reason; got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, test.want)
		}
	}
	short := testLimits
	short.DispatchTimeout = 1500 * time.Millisecond
	if _, v := follow(short, dead(""), dead("")); v[1].Reason != "no answer to a message in 1.5 s, twice; no task" {
		t.Errorf("a shorter limit: %s", v[1].Reason)
	}
}

// TestOriginalRule: without the gate any failed probe of an agent that does
// not answer is a restart, at once.
func TestOriginalRule(t *testing.T) {
	limits := testLimits
	limits.Gate = false
	for name, test := range map[string]struct {
		health   HealthClass
		dispatch DispatchClass
		want     string
	}{
		"dead":                 {HealthOK, DispatchDead, "wedged act"},
		"faulty":               {HealthOK, DispatchFaulty, "wedged act"},
		"mute":                 {HealthMute, DispatchDead, "down act"},
		"sick":                 {HealthSick, DispatchOverloaded, "down act"},
		"refused":              {HealthRefused, DispatchSkipped, "down act"},
		"foreign":              {HealthForeign, DispatchSkipped, "down act"},
		"overloaded":           {HealthOK, DispatchOverloaded, "overloaded watch"},
		"mute, but it answers": {HealthMute, DispatchCompleted, "healthy rest"},
		"not asked":            {HealthUnknown, DispatchUnknown, "unknown unknown"},
	} {
		seen := up()
		seen.Health, seen.Dispatch = Health{Class: test.health}, Dispatch{Class: test.dispatch}
		_, v := Decide(State{}, seen, at(0), limits)
		if got := v.State + " " + string(v.Verdict); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	young := dead("")
	young.Unit.InactiveExit = young.Unit.Monotonic - 10e6
	if _, v := Decide(State{}, young, at(0), limits); v.State != Starting {
		t.Errorf("a unit of 10 s is %s", v.State)
	}
}

func TestCrashLoop(t *testing.T) {
	loop := func(n int) Seen {
		s := up()
		s.Unit = unitWords["activating"]
		s.Unit.NRestarts, s.Unit.NRestartsKnown = n, true
		s.Health.Class, s.Dispatch.Class = HealthRefused, DispatchSkipped
		return s
	}
	states := func(seen ...Seen) (states []string) {
		_, verdicts := follow(testLimits, seen...)
		for _, v := range verdicts {
			states = append(states, v.State)
		}
		return states
	}
	for name, test := range map[string]struct{ got, want []string }{
		"three in ten minutes":   {states(loop(7), loop(8), loop(9), loop(10)), []string{Starting, Starting, Starting, CrashLoop}},
		"a big number is no row": {states(loop(50), loop(50)), []string{Starting, Starting}},
		"two are none":           {states(loop(0), loop(1), loop(2), loop(2)), []string{Starting, Starting, Starting, Starting}},
		"slower than that":       {states(loop(0), loop(1), loop(1), loop(1), loop(2), loop(2), loop(2), loop(3)), slices.Repeat([]string{Starting}, 8)},
		"a start by hand":        {states(loop(5), loop(0), loop(2)), []string{Starting, Starting, Starting}},
		"it is over in time":     {states(loop(0), loop(3), loop(3), loop(3), loop(3), loop(3), loop(3)), []string{Starting, CrashLoop, CrashLoop, CrashLoop, CrashLoop, CrashLoop, Starting}},
	} {
		if !slices.Equal(test.got, test.want) {
			t.Errorf("%s: %v, want %v", name, test.got, test.want)
		}
	}
}

// TestAfresh: a reboot and a long gap leave no streak, but what a person was
// told of stays told.
func TestAfresh(t *testing.T) {
	s, _ := follow(testLimits, dead(""))
	s.Told, s.Protocol = []string{Faulty}, "1.0"
	reboot := at(120)
	reboot.BootID, reboot.Boot = "another", 20
	for name, now := range map[string]check.Moment{"reboot": reboot, "gap": at(120 + 601)} {
		next, v := Decide(s, dead(""), now, testLimits)
		if v.State != Suspect || next.Dead != 1 {
			t.Errorf("%s: %s with %d dead probes", name, v.State, next.Dead)
		}
		if !slices.Equal(next.Told, []string{Faulty}) || next.Protocol != "1.0" {
			t.Errorf("%s: told %v, protocol %q", name, next.Told, next.Protocol)
		}
	}
}

// TestFutureStamps: what a hand has put into the future counts as now, and
// delays a restart no longer than that.
func TestFutureStamps(t *testing.T) {
	for name, put := range map[string]func(s *State, future float64){
		"since":   func(s *State, future float64) { s.Since, s.Hard = future, future },
		"dead at": func(s *State, future float64) { s.DeadAt = future },
	} {
		s, _ := follow(testLimits, dead("A"))
		put(&s, at(1e6).Boot)
		var v Verdict
		for now := 120.0; now <= 480; now += 120 {
			s, v = Decide(s, dead("A"), at(now), testLimits)
		}
		if v.State != Wedged {
			t.Errorf("%s in the future: %s, %s", name, v.State, v.Reason)
		}
	}
}
