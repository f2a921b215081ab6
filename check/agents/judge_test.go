package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJudgeHealth(t *testing.T) {
	none := Task{Known: true}
	for _, c := range []struct {
		status int
		body   string
		want   Health
	}{
		{200, `{"agent":"sol","status":"running","circuit_open":false,"circuit_failures":0,"sessions":2,"current_task":null}`, Health{Class: HealthOK, Status: "running", Task: none}},
		{200, `{"agent":"sol","status":"degraded","circuit_open":true,"current_task":"[Young] Self-he..."}`, Health{Class: HealthOK, Status: "degraded", CircuitOpen: true, Task: Task{Known: true, Text: "[Young] Self-he..."}}},
		{200, `{"current_task":""}`, Health{Class: HealthOK, Task: none}},
		{200, `{"current_task": [ ] }`, Health{Class: HealthOK, Task: none}},
		{200, `{}`, Health{Class: HealthOK}},
		{202, `{"status":"ok"}`, Health{Class: HealthOK, Status: "ok"}},
		{200, `{"agent":null,"status":null}`, Health{Class: HealthOK}},
		{200, `{"agent":"","Agent":"luna","AGENT":"luna"}`, Health{Class: HealthOK}},
		{200, `{"status":5,"current_task":{"id": 7},"circuit_open":"false"}`, Health{Class: HealthOK, Status: "5", Task: Task{Known: true, Text: `{"id":7}`}}},
		{200, `{"circuit_open":1,"current_task":false}`, Health{Class: HealthOK, Task: Task{Known: true, Text: "false"}}},
		{200, `{"status":"stopped","status":"running"}`, Health{Class: HealthOK, Status: "running"}},
		{200, "{\"current_task\":\"\xff\xfe\"}", Health{Class: HealthOK, Task: Task{Known: true, Text: "\uFFFD\uFFFD"}}},
		{200, `{"current_task":"tickdog livene..."}`, Health{Class: HealthOK, Task: Task{Known: true, Text: "tickdog livene...", Ours: true}}},
		{200, `{"agent":"luna","status":"running"}`, Health{Class: HealthForeign, Detail: `names itself "luna"`}},
		{200, `{"agent":"Sol"}`, Health{Class: HealthForeign, Detail: `names itself "Sol"`}},
		{200, `{"agent":7}`, Health{Class: HealthForeign, Detail: `names itself "7"`}},
		{200, `[]`, Health{Class: HealthForeign, Detail: "the answer is no JSON object"}},
		{200, `"running"`, Health{Class: HealthForeign, Detail: "the answer is no JSON object"}},
		{302, `{"agent":"sol"}`, Health{Class: HealthForeign, Detail: "HTTP 302"}},
		{404, `{"agent":"sol"}`, Health{Class: HealthForeign, Detail: "HTTP 404"}},
		{429, `{"agent":"sol"}`, Health{Class: HealthSick, Detail: "HTTP 429"}},
		{503, `Service Unavailable`, Health{Class: HealthSick, Detail: "HTTP 503"}},
		{599, ``, Health{Class: HealthSick, Detail: "HTTP 599"}},
	} {
		if got := judgeHealth("sol", c.status, []byte(c.body)); got != c.want {
			t.Errorf("%d %s\n got %+v\nwant %+v", c.status, c.body, got, c.want)
		}
	}
}

func TestOurs(t *testing.T) {
	for task, want := range map[string]bool{
		probeText:                  true,
		"tickdog livene...":        true,
		"tickdog livene…":          true,
		"[lab] tickdog ...":        true,
		"[sentinel] tickd...":      true,
		"[sentinel] tic…":          true,
		"tickdog":                  true,
		"[sentinel] ti...":         false, // could be anybody's
		"tick":                     false, // whole, and not our name
		"":                         false,
		"...":                      false,
		"[Young] Self-he...":       false,
		"[Young] ask tickdog":      false,
		"[tickdog":                 false,
		"reply with the single...": false,
	} {
		if got := ours(task); got != want {
			t.Errorf("ours(%q) is %t", task, got)
		}
	}
}

// The answers of real servers are in testdata/a2a; these are the rest.
func TestJudgeDispatch(t *testing.T) {
	task := func(status string) string {
		return `{"jsonrpc":"2.0","id":"me","result":{"kind":"task","id":"t","status":` + status + `}}`
	}
	rpc := func(members string) string { return `{"jsonrpc":"2.0",` + members + `}` }
	for _, c := range []struct {
		status int
		body   string
		class  DispatchClass // "" for a task that is not finished
		detail string
	}{
		{200, rpc(`"id":"me","result":{"kind":"message"}`), DispatchCompleted, ""},
		{200, rpc(`"id":"me","error":null,"result":{"kind":"message"}`), DispatchCompleted, ""},
		{200, rpc(`"id":"me","result":{"message":{"role":"ROLE_AGENT"}}`), DispatchCompleted, ""},
		{200, task(`{"state":"completed"}`), DispatchCompleted, ""},
		{200, task(`{"state":"failed"}`), DispatchCompleted, "its task is failed"},
		{200, task(`{"state":"canceled"}`), DispatchCompleted, "its task is canceled"},
		{200, task(`{"state":"rejected"}`), DispatchCompleted, "its task is rejected"},
		{200, task(`{"state":"input-required"}`), DispatchRefused, "its task is input-required"},
		{200, task(`{"state":"auth-required"}`), DispatchRefused, "its task is auth-required"},
		{200, task(`{"state":"submitted"}`), "", "its task is submitted"},
		{200, task(`{"state":"working"}`), "", "its task is working"},
		{200, rpc(`"id":"me","result":{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}`), "", "its task is working"},
		{200, rpc(`"id":"me","result":{"task":{"id":"t","status":{"state":"TASK_STATE_INPUT_REQUIRED"}}}`), DispatchRefused, "its task is input-required"},
		{200, rpc(`"id":"me","result":{"id":"t","status":{"state":"TASK_STATE_FAILED"}}`), DispatchCompleted, "its task is failed"},
		{200, task(`{"state":"unknown"}`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, task(`{"state":5}`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, task(`"completed"`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, task(`null`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, rpc(`"id":"me","result":{"kind":"task","status":{"state":"working"}}`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, rpc(`"id":"me","result":{"kind":"task","id":7,"status":{"state":"working"}}`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, rpc(`"id":"me","result":{"message":"pong"}`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, rpc(`"id":"me","result":{}`), DispatchFaulty, "a result that is neither a message nor a task"},
		{200, rpc(`"id":"me","result":null`), DispatchFaulty, "a JSON-RPC answer without a result"},
		{200, rpc(`"id":"me","result":"pong"`), DispatchFaulty, "a JSON-RPC answer without a result"},
		{200, rpc(`"id":"me"`), DispatchFaulty, "a JSON-RPC answer without a result"},

		{200, rpc(`"id":"me","error":{"code":-32603,"message":"provider returned 529"}`), DispatchCompleted, `JSON-RPC error -32603 "provider returned 529"`},
		{200, rpc(`"id":"me","error":{"code":-32603,"message":"create execution failure: concurrency quota exceeded: max"}`), DispatchOverloaded, `JSON-RPC error -32603 "create execution failure: concurrency quota exceeded: max"`},
		{200, rpc(`"id":"me","error":{"code":-32603,"message":"internal error","data":{"error":"concurrency quota exceeded: max"}}`), DispatchOverloaded, `JSON-RPC error -32603 "internal error: concurrency quota exceeded: max"`},
		{200, rpc(`"id":"me","error":{"code":-32603,"message":"internal error","data":["error"]}`), DispatchCompleted, `JSON-RPC error -32603 "internal error"`},
		{200, rpc(`"id":null,"error":{"code":-32700,"message":"parse\u001b[31m\nerror"}`), DispatchRefused, `JSON-RPC error -32700 "parse\x1b[31m\nerror"`},
		{200, rpc(`"error":{"code":-32600}`), DispatchRefused, `JSON-RPC error -32600 ""`},
		{500, rpc(`"id":"me","error":{"code":-32001,"message":7}`), DispatchRefused, `JSON-RPC error -32001 ""`},
		{429, rpc(`"id":"me","error":{"code":-31403,"message":"no"}`), DispatchRefused, `JSON-RPC error -31403 "no"`},
		{200, rpc(`"id":"me","result":null,"error":{"code":-32603,"message":"x"}`), DispatchCompleted, `JSON-RPC error -32603 "x"`},
		{200, rpc(`"id":"me","error":{"code":"-32603","message":"x"}`), DispatchFaulty, "a JSON-RPC error without a code"},
		{200, rpc(`"id":"me","error":{"code":1.5}`), DispatchFaulty, "a JSON-RPC error without a code"},
		{200, rpc(`"id":"me","error":"boom"`), DispatchFaulty, "a JSON-RPC error without a code"},

		{200, rpc(`"id":"you","result":{"kind":"message"}`), DispatchFaulty, "HTTP 200 and an answer to another request"},
		{200, rpc(`"id":1,"result":{"kind":"message"}`), DispatchFaulty, "HTTP 200 and an answer to another request"},
		{200, rpc(`"id":null,"result":{"kind":"message"}`), DispatchFaulty, "HTTP 200 and an answer to another request"},
		{200, rpc(`"id":"you","error":{"code":-32603,"message":"x"}`), DispatchFaulty, "HTTP 200 and an answer to another request"},
		{503, rpc(`"id":"you","error":{"code":-32603,"message":"x"}`), DispatchOverloaded, "HTTP 503"},
		{200, `{"id":"me","result":{"kind":"message"}}`, DispatchFaulty, "HTTP 200 and no JSON-RPC"},
		{200, `{"jsonrpc":2.0,"id":"me","result":{"kind":"message"}}`, DispatchFaulty, "HTTP 200 and no JSON-RPC"},
		{404, `{"detail":"Not Found"}`, DispatchFaulty, "HTTP 404 and no JSON-RPC"},
		{401, `{"error":"unauthorized"}`, DispatchRefused, "HTTP 401"},
	} {
		got := judgeDispatch("me", c.status, []byte(c.body))
		if got.class != c.class || got.detail != c.detail {
			t.Errorf("%d %s\n got %q %q\nwant %q %q", c.status, c.body, got.class, got.detail, c.class, c.detail)
		}
		if (c.class == "") != (got.task == "t") {
			t.Errorf("%s: task %q", c.body, got.task)
		}
	}
}

// FuzzJudgeHealth: whatever is answered falls in one of three classes; ok
// takes a 2xx JSON object and says nothing that cannot be shown; no other
// class has a task.
func FuzzJudgeHealth(f *testing.F) {
	for _, body := range []string{"", "{", "null", "[]", `{"agent":"sol","current_task":"[Young] Self-he..."}`, `{"agent":"luna"}`, "{\"current_task\":\"\xff\"}", `{"current_task":{"a":[1,null]},"status":{}}`, "\xef\xbb\xbf{}"} {
		f.Add(200, []byte(body))
		f.Add(503, []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		h := judgeHealth("sol", status, body)
		switch h.Class {
		case HealthOK:
			if status/100 != 2 || !json.Valid(body) || bytes.TrimLeft(body, " \t\r\n")[0] != '{' {
				t.Errorf("%d %q is ok", status, body)
			}
		case HealthSick, HealthForeign:
			if h.Task.Known || h.Status != "" || h.CircuitOpen || h.Detail == "" {
				t.Errorf("%d %q: %+v", status, body, h)
			}
		default:
			t.Errorf("%d %q: class %q", status, body, h.Class)
		}
		if sick := status == 429 || status > 499; sick != (h.Class == HealthSick) {
			t.Errorf("%d: %s", status, h.Class)
		}
		for _, s := range []string{h.Task.Text, h.Status} {
			if len(s) > 200 || !utf8.ValidString(s) {
				t.Errorf("%q from %q", s, body)
			}
		}
	})
}

// FuzzJudgeDispatch: whatever is answered falls in one of five classes or
// names a task; nobody is completed or at work without our id in the body, and
// with no JSON-RPC in it only the status speaks.
func FuzzJudgeDispatch(f *testing.F) {
	for _, body := range []string{
		"", "null", `{"jsonrpc":"2.0","id":"tickdog-1","result":{"kind":"message"}}`,
		`{"jsonrpc":"2.0","id":"tickdog-1","result":{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING"}}}}`,
		`{"jsonrpc":"2.0","id":"tickdog-1","result":{"kind":"task","id":"t","status":{"state":"failed"}}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32009,"message":"\u0000"}}`,
		`{"jsonrpc":"2.0","id":"tickdog-1","error":{"code":-32603,"message":"concurrency quota exceeded"}}`,
	} {
		f.Add(200, []byte(body))
		f.Add(429, []byte(body))
	}
	const id = "tickdog-1"
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		o := judgeDispatch(id, status, body)
		ourID := bytes.Contains(body, []byte(id)) || bytes.Contains(body, []byte(`\`)) // or written with escapes
		switch o.class {
		case DispatchCompleted:
			// A -32603 without an id is the one answer that need not name us.
			if !ourID && o.code != codeInternal {
				t.Errorf("%d %q is completed", status, body)
			}
		case "":
			if !ourID || o.task == "" {
				t.Errorf("%d %q is at work on %q", status, body, o.task)
			}
		case DispatchOverloaded:
			if status != 429 && status != 503 && o.code != codeInternal {
				t.Errorf("%d %q is overloaded", status, body)
			}
		case DispatchRefused, DispatchFaulty:
		default:
			t.Errorf("%d %q: class %q", status, body, o.class)
		}
		if !json.Valid(body) && o.class != judgeStatus(status, "").class {
			t.Errorf("%d %q: %s", status, body, o.class)
		}
		if !utf8.ValidString(o.detail) || strings.ContainsAny(o.detail, "\x1b\n\r\x00") {
			t.Errorf("%q cannot be printed", o.detail)
		}
	})
}

func TestParseStat(t *testing.T) {
	stat := func(name, state string) string {
		return "41 (" + name + ") " + state + " 1 41 41 0 -1 4194560 100 0 0 0 150 30 0 0 20 0 5 0 123456 1 2 3\n"
	}
	for line, want := range map[string]Process{
		stat("uvicorn", "S"):       {State: "S", CPU: 1.8, CPUKnown: true},
		stat("a) R (b", "T"):       {State: "T", CPU: 1.8, CPUKnown: true},
		stat("new\nline 1 2", "D"): {State: "D", CPU: 1.8, CPUKnown: true},
		stat("x", "stopped"):       {},
		"":                         {},
		"41 (x":                    {},
		"41 (x) S 1 2":             {},
		"41 (x) S 1 41 41 0 -1 4194560 100 0 0 0 -5 30 0": {State: "S"},
	} {
		if got := parseStat(line); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
	if own := ReadProcess("/proc", os.Getpid()); own.State == "" || !own.CPUKnown {
		t.Errorf("ourselves: %+v", own)
	}
	if none := ReadProcess("/proc", 0); none != (Process{}) {
		t.Errorf("no process: %+v", none)
	}
}

func TestReadUnit(t *testing.T) {
	max := fmt.Sprint(uint64(math.MaxUint64))
	full := map[string]string{
		"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success", "MainPID": "41", "NRestarts": "3",
		"InactiveExitTimestampMonotonic": "1000", "ActiveExitTimestampMonotonic": "2000", "ExecMainExitTimestampMonotonic": "3000",
	}
	if got, want := ReadUnit(full, 5000), (Unit{
		Asked: true, LoadState: "loaded", ActiveState: "active", SubState: "running", Result: "success", MainPID: 41, NRestarts: 3, NRestartsKnown: true,
		InactiveExit: 1000, ActiveExit: 2000, ExecMainExit: 3000, Monotonic: 5000,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	odd := map[string]string{"LoadState": "not-found", "MainPID": max, "NRestarts": "[not set]", "InactiveExitTimestampMonotonic": max, "ActiveExitTimestampMonotonic": "-1"}
	if got, want := ReadUnit(odd, 0), (Unit{Asked: true, LoadState: "not-found"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := ReadUnit(map[string]string{"ActiveState": "active"}, 1); got != (Unit{}) {
		t.Errorf("without a LoadState: %+v", got)
	}
	if got := ReadUnit(nil, 1); got != (Unit{}) {
		t.Errorf("nothing: %+v", got)
	}
}
