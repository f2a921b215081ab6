package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
)

func init() {
	testCommands["systemctl"] = fakeManager
	scriptCommands["fleet"] = startFleet
	scriptCommands["agent"] = setAgent
	scriptCommands["unit"] = setUnit
	scriptCommands["sweep"] = sweepPasses
}

// startFleet is `fleet NAME…`: agents that listen for the rest of the script,
// each with its unit, active and well, and a configuration in tickdog.toml:
// what $WORK/extra.toml says of [agents] and whatever follows it, then them. A name may be
// NAME@PORT, for an agent that does not listen.
func startFleet(ts *testscript.TestScript, neg bool, args []string) {
	text := "state_dir = \"state\"\n[agents]\nlock = \"lock\"\nlog = \"log\"\n"
	if extra, err := os.ReadFile(ts.MkAbs("extra.toml")); err == nil {
		text += os.Expand(string(extra), ts.Getenv)
	}
	ts.Check(os.MkdirAll(ts.MkAbs("fleet"), 0o700))
	for _, arg := range args {
		name, port, silent := strings.Cut(arg, "@")
		url := "http://127.0.0.1:" + port
		if !silent {
			server := httptest.NewServer(&fakeAgent{name: name, file: ts.MkAbs("fleet/" + name)})
			ts.Defer(server.Close)
			ts.Defer(server.CloseClientConnections)
			url = server.URL
		}
		unit := "lab-a2a-" + name + ".service"
		text += fmt.Sprintf("[[agents.agent]]\nname = %q\nunit = %q\nurl = %q\n", name, unit, url)
		setAgent(ts, false, []string{name, "ok"})
		setUnit(ts, false, []string{name, "active"})
	}
	ts.Check(os.WriteFile(ts.MkAbs("tickdog.toml"), []byte(text), 0o600))
}

// setAgent is `agent NAME MODE [TASK]`: what an agent does from now on; after
// a restart it does what `agent NAME.after …` says, if that was given.
func setAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: agent NAME MODE [TASK]")
	}
	ts.Check(os.WriteFile(ts.MkAbs("fleet/"+args[0]), []byte(strings.Join(args[1:], "\n")), 0o600))
}

// fakeAgent is an agent that does what its file says: the mode, and on a
// second line its current task.
type fakeAgent struct{ name, file string }

func (a *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mode, task, _ := strings.Cut(readFile(a.file), "\n")
	if r.Method == http.MethodGet {
		a.health(w, mode, task)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var request struct {
		ID     string `json:"id"`
		Method string `json:"method"`
		Params struct {
			Message struct {
				Parts []struct{ Text string }
			}
		}
	}
	if json.Unmarshal(body, &request) != nil || !strings.HasPrefix(request.Params.Message.Parts[0].Text, "tickdog") {
		mode = "faulty"
	}
	note(a.file+".log", request.Method)
	answer := func(key, value string) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,%q:%s}`, request.ID, key, value)
	}
	switch mode {
	case "cut", "mute": // dead at once, without a timeout to wait for
		panic(http.ErrAbortHandler)
	case "hang", "keeps": // dead, and the agent keeps showing our message as its task
		if mode == "keeps" {
			os.WriteFile(a.file, []byte("keeps\ntickdog live..."), 0o600)
		}
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
		panic(http.ErrAbortHandler)
	case "faulty":
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
	case "full":
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
	case "declines":
		http.Error(w, "no", http.StatusUnauthorized)
	case "1.0":
		if request.Method != "SendMessage" {
			answer("error", `{"code":-32601,"message":"Method not found"}`)
			return
		}
		answer("result", `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"pong"}]}}`)
	default:
		answer("result", `{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"pong"}]}`)
	}
}

func (a *fakeAgent) health(w http.ResponseWriter, mode, task string) {
	name, current := a.name, "null"
	switch mode {
	case "mute":
		panic(http.ErrAbortHandler)
	case "foreign":
		name = "luna"
	}
	if task != "" {
		current = strconv.Quote(task)
	}
	fmt.Fprintf(w, `{"agent":%q,"status":"running","circuit_open":false,"circuit_failures":0,"sessions":2,"current_task":%s}`, name, current)
}

// unitStates are what systemd says of a unit, in words of the scripts.
var unitStates = map[string]string{
	"active":         "ActiveState=active\nSubState=running\nResult=success\nInactiveExitTimestampMonotonic=1000\nActiveExitTimestampMonotonic=0\nExecMainExitTimestampMonotonic=0\n",
	"activating":     "ActiveState=activating\nSubState=auto-restart\nResult=exit-code\nInactiveExitTimestampMonotonic=5000\nActiveExitTimestampMonotonic=4000\nExecMainExitTimestampMonotonic=3900\n",
	"stopped":        "ActiveState=inactive\nSubState=dead\nResult=success\nInactiveExitTimestampMonotonic=1000\nActiveExitTimestampMonotonic=4000\nExecMainExitTimestampMonotonic=4100\n",
	"stopped-failed": "ActiveState=failed\nSubState=failed\nResult=timeout\nInactiveExitTimestampMonotonic=1000\nActiveExitTimestampMonotonic=4000\nExecMainExitTimestampMonotonic=4100\n",
	"died":           "ActiveState=inactive\nSubState=dead\nResult=success\nInactiveExitTimestampMonotonic=1000\nActiveExitTimestampMonotonic=4000\nExecMainExitTimestampMonotonic=3900\n",
	"failed":         "ActiveState=failed\nSubState=failed\nResult=exit-code\nInactiveExitTimestampMonotonic=1000\nActiveExitTimestampMonotonic=4000\nExecMainExitTimestampMonotonic=3900\n",
}

// setUnit is `unit NAME STATE [KEY=VALUE…]`: what systemd says of its unit.
func setUnit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || unitStates[args[1]] == "" {
		ts.Fatalf("usage: unit NAME STATE [KEY=VALUE…]")
	}
	text := fmt.Sprintf("LoadState=loaded\nMainPID=%d\nNRestarts=0\nCPUUsageNSec=[not set]\n", 1<<30) + unitStates[args[1]] + strings.Join(args[2:], "\n") + "\n"
	ts.Check(os.WriteFile(ts.MkAbs("fleet/lab-a2a-"+args[0]+".service"), []byte(text), 0o600))
}

// fakeManager is `systemctl --user` as a pass uses it, over the files that
// fleet, agent and unit write. $HOME/manager says what is special: "down",
// "restart-fails", "restart-hangs", or "heals-all" (one restart makes every
// agent do what comes after). Every call is noted.
func fakeManager() {
	home := os.Getenv("HOME")
	log := filepath.Join(home, "systemctl.log")
	note(log, strings.Join(os.Args[1:], " "))
	fail := func(text string) {
		fmt.Fprintln(os.Stderr, text)
		os.Exit(1)
	}
	special := strings.TrimSpace(readFile(filepath.Join(home, "manager")))
	if special == "down" {
		fail("Failed to connect to bus: No medium found")
	}
	last := os.Args[len(os.Args)-1]
	unit := filepath.Join(home, "fleet", last)
	switch os.Args[2] {
	case "show":
		_, asked, _ := strings.Cut(strings.Join(os.Args[1:], " "), " -- ")
		for i, name := range strings.Fields(asked) {
			if i > 0 {
				fmt.Println()
			}
			fmt.Printf("Id=%s\n", name)
			text, err := os.ReadFile(filepath.Join(home, "fleet", name))
			if err != nil {
				text = []byte("LoadState=not-found\nActiveState=inactive\n")
			}
			os.Stdout.Write(text)
		}
	case "reset-failed":
	case "restart":
		switch special {
		case "restart-fails":
			fail("Job for " + last + " failed because the control process exited with error code.")
		case "restart-hangs":
			time.Sleep(time.Minute)
		}
		note(log, "begin "+last)
		pid := 1 << 30 // above any real one, so that /proc knows nothing of it
		if _, shown, ok := strings.Cut(readFile(unit), "MainPID="); ok {
			fmt.Sscan(shown, &pid)
		}
		os.WriteFile(unit, []byte(fmt.Sprintf("LoadState=loaded\nMainPID=%d\nNRestarts=0\n", pid+1)+unitStates["active"]), 0o600)
		after := strings.TrimSuffix(strings.TrimPrefix(last, "lab-a2a-"), ".service") + ".after"
		if special == "heals-all" {
			after = "*.after"
		}
		healed, _ := filepath.Glob(filepath.Join(home, "fleet", after))
		for _, file := range healed {
			os.Rename(file, strings.TrimSuffix(file, ".after"))
		}
		note(log, "end "+last)
	default:
		fail("unknown command " + os.Args[2])
	}
}

// sweepPasses is `sweep FIRST EVERY N [ARG…]`: N passes of `tickdog agents
// ARG…`, like passes does for gpu. All must exit 0; what they print lands in
// $WORK/passes, each pass under its second.
func sweepPasses(ts *testscript.TestScript, neg bool, args []string) {
	var first, every, n int
	if _, err := fmt.Sscan(strings.Join(args[:min(3, len(args))], " "), &first, &every, &n); neg || err != nil {
		ts.Fatalf("usage: sweep FIRST EVERY N [ARG…]")
	}
	path := ts.MkAbs("passes")
	ts.Check(os.WriteFile(path, nil, 0o600))
	for i := range n {
		ts.Setenv("TEST_AT", fmt.Sprint(first+i*every))
		note(path, fmt.Sprintf("at %d:", first+i*every))
		ts.Check(ts.Exec("tickdog", append([]string{"agents"}, args[3:]...)...))
		note(path, strings.TrimSuffix(ts.ReadFile("stdout"), "\n"))
		if errors := ts.ReadFile("stderr"); errors != "" {
			note(path, strings.TrimSuffix(errors, "\n"))
		}
	}
}

// FuzzAgentsFiles: whatever a line of a state file holds, it is refused or
// means the same again when it is written back.
func FuzzAgentsFiles(f *testing.F) {
	f.Add("u 12.5 1 13 boot state=busy evidence=task idle=1 dead_boottime=13 deaf_boottime=13 task=\"a b\" pid=4 cpu=1.5 cpu_boottime=13 restarted=1@2,2@3 told=faulty")
	f.Add("u 1790546100 3 9700 boot-1")
	f.Add("u 1790546100 3 9700 boot-1 unlogged=\"wedged: no answer\"")
	f.Add("u 1790546100 10000 boot-1")
	f.Add("u 1790546100 wedged: why, twice; no task")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\n\x00") || !utf8.ValidString(text) {
			return // state.Load hands out no such line
		}
		for name, file := range map[string]struct {
			read  func(*agentsMemory, string) error
			write func(*agentsMemory) string
		}{
			"gate": {(*agentsMemory).readGate, func(m *agentsMemory) string {
				for unit, s := range m.agents {
					return gateLine(unit, s)
				}
				return ""
			}},
			"restarts": {(*agentsMemory).readAttempt, func(m *agentsMemory) string {
				for unit, a := range m.fleet.Attempts {
					return attemptLine(unit, a)
				}
				return ""
			}},
			"frozen": {(*agentsMemory).readFrozen, func(m *agentsMemory) string {
				for unit, z := range m.fleet.Frozen {
					return freezeLine(unit, z)
				}
				return ""
			}},
			"storm": {(*agentsMemory).readStorm, func(m *agentsMemory) string { return stormLine(m.fleet.Storm) }},
		} {
			first, second := openAgentsMemory(nil, ""), openAgentsMemory(nil, "")
			if file.read(first, text) != nil {
				continue
			}
			line := file.write(first)
			if err := file.read(second, line); err != nil {
				t.Fatalf("%s: %q was written back as %q: %v", name, text, line, err)
			}
			if again := file.write(second); again != line {
				t.Fatalf("%s: %q became %q and then %q", name, text, line, again)
			}
		}
	})
}
