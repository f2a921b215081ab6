// Package manner is what the agents of both generations share: how they are
// started, how their /health looks, and how they may misbehave.
package manner

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// How an agent may take a message.
const (
	Answer  = "answer"  // with a message
	Task    = "task"    // with a task that is completed after a moment
	Early   = "early"   // with that task at once, while it still works on it
	Fail    = "fail"    // with a task that failed
	Input   = "input"   // with a task that wants to know more
	Error   = "error"   // the agent's own code returns an error
	Hang    = "hang"    // the provider never answers
	Working = "working" // the same, after the task was handed out
)

// Agent is an agent's behaviour and what its /health shows.
type Agent struct {
	Name  string
	Quota int // requests at once, 0: any number

	mu     sync.Mutex
	manner string
	task   string
}

// Begin takes a message on; the func it returns ends that.
func (a *Agent) Begin(text string) (manner string, end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.task = text
	return a.manner, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.task == text {
			a.task = ""
		}
	}
}

// Hurried tells whether messages are answered before their task has ended.
func (a *Agent) Hurried() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.manner == Early || a.manner == Working
}

// Provide stands for the provider call: a moment, or for ever.
func Provide(ctx context.Context, manner string) {
	if manner == Hang || manner == Working {
		select {} // a hung call does not look at its context either
	}
	select {
	case <-time.After(300 * time.Millisecond):
	case <-ctx.Done():
	}
}

// Serve reads the flags and serves the agent, whose JSON-RPC side rpc makes,
// for ever. The address goes to stdout. POST /manner?is=hang changes the
// manner while it runs.
func Serve(rpc func(*Agent) http.Handler) {
	a := &Agent{}
	listen := flag.String("listen", "127.0.0.1:0", "address")
	flag.StringVar(&a.Name, "name", "sol", "what /health calls the agent")
	flag.StringVar(&a.manner, "manner", Answer, "how it takes a message")
	flag.IntVar(&a.Quota, "quota", 0, "messages at once")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("GET /health", a.health)
	http.HandleFunc("POST /manner", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.manner = r.FormValue("is")
	})
	http.Handle("POST /", rpc(a))
	fmt.Println("http://" + l.Addr().String())
	log.Fatal(http.Serve(l, nil))
}

func (a *Agent) health(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var task any
	if a.task != "" {
		task = fmt.Sprintf("%.15s...", a.task)
	}
	json.NewEncoder(w).Encode(map[string]any{"agent": a.Name, "status": "running", "circuit_open": false, "current_task": task})
}
