package agents

import (
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
	Gate            bool          // false: the original rule, a dead probe is a wedge
	HealthTimeout   time.Duration // only named in reasons; look keeps them
	DispatchTimeout time.Duration
	BusyCap         time.Duration // a busy agent without evidence of work for so long is wedged
	BusyMax         time.Duration // how long after hard evidence soft evidence counts
	StartGrace      time.Duration // a unit younger than this is starting
	RestartEvery    time.Duration // at most one restart a unit in so long
	FreezeAfter     int           // attempts without 30 minutes of answers before a unit is frozen
	PassBudget      time.Duration // a pass this old starts no further restart
	MaxGap          time.Duration // a longer pause between passes starts the gate afresh
	MinGap          time.Duration // dead probes closer together count once
}

// Verdict is what a pass says about one agent.
type Verdict struct {
	State   string // healthy, stopped, crash loop, starting, down, impostor, faulty, overloaded, busy, suspect, wedged, unknown
	Verdict check.Verdict
	Reason  string // with the numbers
}
