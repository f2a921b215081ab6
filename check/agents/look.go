package agents

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Agent is one agent to look at.
type Agent struct {
	Name string // as its /health calls itself
	Unit string
	URL  string // http://127.0.0.1:8300

	// What the last pass knows of it.
	Protocol string // the A2A generation that worked, "" if none has yet
	LastDead bool   // its last dispatch was dead
}

// Prober looks at agents. Its limits must be given.
type Prober struct {
	HealthTimeout   time.Duration
	DispatchTimeout time.Duration
	Day             time.Time // the wall clock: an agent keeps our probes in one context a day
	Proc            string    // where /proc is
}

// mostAtOnce bounds the agents that are looked at side by side. Eight dead
// ones cost one timeout; a thousand that are all dead, each worth 4 + 15 s,
// cost four, which still leaves the pass time to act.
const mostAtOnce = 256

// Look sees all agents, side by side, in the order given. units has what
// `systemctl show` printed for each unit (UnitProperties) just now, or is nil
// if it could not be asked.
//
// It returns when every agent was seen, at most 76 s for 1,000 that hang, or
// soon after ctx is done; what was not seen by then is unknown.
func (p Prober) Look(ctx context.Context, agents []Agent, units map[string]map[string]string) []Seen {
	seen := make([]Seen, len(agents))
	asked := monotonic()
	slots := make(chan struct{}, atOnce())
	var wg sync.WaitGroup
	for i, a := range agents {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			seen[i] = p.look(ctx, a, units[a.Unit], asked)
		})
	}
	wg.Wait()
	return seen
}

func (p Prober) look(ctx context.Context, a Agent, properties map[string]string, asked uint64) Seen {
	s := Seen{Unit: ReadUnit(properties, asked)}
	s.Process = ReadProcess(p.Proc, s.Unit.MainPID)
	if ns, ok := number(properties["CPUUsageNSec"]); ok { // the whole unit's, workers included
		s.Process.CPU, s.Process.CPUKnown = float64(ns)/1e9, true
	}
	s.Health = p.Health(ctx, a)
	switch {
	case s.Health.Class == HealthRefused, s.Health.Class == HealthForeign:
		s.Dispatch = Dispatch{Class: DispatchSkipped}
	case a.LastDead && s.Health.Task.Ours:
		s.Dispatch = Dispatch{Class: DispatchDead, Repeated: true, Detail: "still at work on our last message"}
	default:
		s.Dispatch = p.Dispatch(ctx, a)
	}
	return s
}

// atOnce leaves half of the descriptors to the rest of the pass. (Go has
// raised the soft limit to the hard one by itself.)
func atOnce() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return mostAtOnce
	}
	return int(min(mostAtOnce, max(1, files.Cur/2)))
}

// monotonic is the clock of systemd's stamps, in microseconds.
func monotonic() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return uint64(t.Nano() / 1000)
}

// context is the day's conversation. A fixed one costs an agent one session
// instead of one a probe; a new one each day keeps its transcript short.
func (p Prober) context() string { return ourName + "-" + p.Day.Format(time.DateOnly) }

func newRequest(method string, a Agent, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequest(method, strings.TrimRight(a.URL, "/")+path, body)
	if err == nil {
		req.Header.Set("User-Agent", ourName)
		req.Header.Set("Accept", "application/json")
	}
	return req, err
}

// slow: more than four fifths of the limit are gone, and the next one may well
// come too late.
func slow(took, limit time.Duration) bool { return took > limit/5*4 }
