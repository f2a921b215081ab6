package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// DispatchTimeout is how long a dispatch may take in all, unless the
// configuration says otherwise: one message, the same once more in the other
// generation's words, and the questions after its task. It is above the
// slowest healthy answer that was measured, 14.3 s, and the number is written
// in this one place.
const DispatchTimeout = 15 * time.Second

// probeText is what an agent is asked to do. It starts with our name, because
// /health shows it as the current task, cut to 15 characters or so.
const (
	ourName   = "tickdog"
	probeText = ourName + " liveness probe: reply with the single word pong; use no tools"
)

// The generations of A2A. They differ in method names, in the role, in the
// parts and in a header; servers choose by one or the other, so they are never
// mixed.
const (
	protocol03 = "0.3"
	protocol10 = "1.0"
)

// A task that is not finished is asked for after these pauses, doubled each
// time.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = time.Second
)

// JSON-RPC errors that mean more than "no".
const (
	codeMethodNotFound = -32601
	codeVersion        = -32009
	codeInternal       = -32603 // what the SDKs say when the agent's own code ran and failed
)

// quotaExceeded is how the Go SDKs word a -32603 when they have run nothing,
// because as many requests as they may serve are being served. The 1.0 one says
// it in the message, the 0.3 one in data.error beside "internal error".
const quotaExceeded = "concurrency quota exceeded"

// outcome is what one answer says about the dispatch. No class: nothing final
// yet, ask for task again.
type outcome struct {
	class  DispatchClass
	detail string
	task   string // id of a task that is submitted or working
	code   int    // of a JSON-RPC error, else 0
}

// wrongProtocol: the server did not know the method or the version, and said
// so before it ran anything, so that the other generation may be tried.
func (o outcome) wrongProtocol() bool {
	return o.code == codeMethodNotFound || o.code == codeVersion
}

// Dispatch sends an agent one real message and waits for what comes of it. It
// speaks the generation that worked last time, and the other one if the agent
// does not know that.
//
// It changes what it measures: the agent runs the message to its end, even if
// we left long ago.
func (p Prober) Dispatch(ctx context.Context, a Agent) Dispatch {
	ctx, cancel := within(ctx, p.DispatchTimeout)
	defer cancel()
	began := time.Now()

	protocol, other := protocol03, protocol10
	if a.Protocol == protocol10 {
		protocol, other = other, protocol
	}
	out := p.send(ctx, a, protocol)
	if out.wrongProtocol() {
		protocol, out = other, p.send(ctx, a, other)
	}
	known := !out.wrongProtocol()
	for pause := firstPoll; out.class == ""; pause = min(2*pause, lastPoll) {
		out = p.follow(ctx, a, protocol, out, pause)
	}

	took := time.Since(began)
	d := Dispatch{Class: out.class, Detail: out.detail, Ms: took.Milliseconds()}
	switch d.Class {
	case DispatchCompleted, DispatchRefused, DispatchOverloaded, DispatchFaulty:
		d.Slow = slow(took, p.DispatchTimeout)
	}
	if known && (d.Class == DispatchCompleted || d.Class == DispatchRefused) {
		d.Protocol = protocol
	}
	return d
}

func (p Prober) send(ctx context.Context, a Agent, protocol string) outcome {
	id := newID()
	message := map[string]any{"messageId": id, "contextId": p.context()}
	configuration := map[string]any{"acceptedOutputModes": []string{"text/plain"}, "historyLength": 0}
	part := map[string]any{"text": probeText}
	method := "message/send"
	if protocol == protocol10 {
		method = "SendMessage" // waits for the end unless told otherwise
		message["role"] = "ROLE_USER"
	} else {
		configuration["blocking"] = true
		message["kind"], message["role"] = "message", "user"
		part["kind"] = "text"
	}
	message["parts"] = []any{part}
	return p.call(ctx, a, protocol, id, method, map[string]any{"message": message, "configuration": configuration})
}

// follow asks for a task that is not finished, after a pause.
func (p Prober) follow(ctx context.Context, a Agent, protocol string, before outcome, pause time.Duration) outcome {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return p.unanswered(reply{end: silent, err: context.Cause(ctx)}, before.detail)
	}
	method := "tasks/get"
	if protocol == protocol10 {
		method = "GetTask"
	}
	out := p.call(ctx, a, protocol, newID(), method, map[string]any{"id": before.task})
	if out.code != 0 { // here even -32603 ran nothing but a look-up
		out.class = DispatchRefused
		out.detail = before.detail + ", then " + out.detail
	}
	return out
}

func (p Prober) call(ctx context.Context, a Agent, protocol, id, method string, params any) outcome {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return outcome{class: DispatchUnknown, detail: err.Error()}
	}
	req, err := newRequest(http.MethodPost, a, "/", bytes.NewReader(body))
	if err != nil {
		return outcome{class: DispatchUnknown, detail: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	if protocol == protocol10 {
		req.Header.Set("A2A-Version", protocol10)
	}
	r := exchange(ctx, req)
	if r.end != answered {
		return p.unanswered(r, "")
	}
	return judgeDispatch(id, r.status, r.body)
}

// unanswered is what no whole answer says; state is what its task was last
// seen to be, if it had one.
func (p Prober) unanswered(r reply, state string) outcome {
	out := outcome{detail: r.why(p.DispatchTimeout)}
	switch r.end {
	case garbled:
		out.class = DispatchFaulty
	case unasked:
		out.class = DispatchUnknown
	default: // a connection that is refused now was not when /health was asked
		out.class = DispatchDead
	}
	if state != "" {
		out.detail += ", " + state
	}
	return out
}

// judgeDispatch says what a whole answer to the request of that id means. It
// goes by the body: the SDKs send their errors with status 200, and some send
// JSON as text/plain. The status only speaks for bodies that are no JSON-RPC
// answer to us.
func judgeDispatch(id string, status int, body []byte) outcome {
	fields, ok := object(body)
	version, _ := text(fields["jsonrpc"])
	if !ok || version != "2.0" {
		return judgeStatus(status, "no JSON-RPC")
	}
	failed := given(fields["error"])
	if theirs, isText := text(fields["id"]); !(isText && theirs == id) && !(failed && !given(fields["id"])) {
		return judgeStatus(status, "an answer to another request")
	}
	if failed {
		return judgeError(fields["error"])
	}
	result, ok := object(fields["result"])
	if !ok {
		return outcome{class: DispatchFaulty, detail: "a JSON-RPC answer without a result"}
	}
	if _, isMessage := object(result["message"]); isMessage { // 1.0
		return outcome{class: DispatchCompleted}
	}
	if task, isTask := object(result["task"]); isTask { // 1.0
		return judgeTask(task)
	}
	if kind, _ := text(result["kind"]); kind == "message" { // 0.3
		return outcome{class: DispatchCompleted}
	}
	return judgeTask(result) // 0.3, and GetTask of 1.0
}

// judgeStatus is for a body that says nothing to us.
func judgeStatus(status int, what string) outcome {
	detail := fmt.Sprintf("HTTP %d", status)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return outcome{class: DispatchRefused, detail: detail}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return outcome{class: DispatchOverloaded, detail: detail}
	}
	return outcome{class: DispatchFaulty, detail: detail + " and " + what}
}

func judgeError(raw json.RawMessage) outcome {
	var code int
	fields, ok := object(raw)
	if !ok || json.Unmarshal(fields["code"], &code) != nil || code == 0 {
		return outcome{class: DispatchFaulty, detail: "a JSON-RPC error without a code"}
	}
	message, _ := text(fields["message"])
	data, _ := object(fields["data"])
	if more, _ := text(data["error"]); more != "" {
		message += ": " + more
	}
	out := outcome{class: DispatchRefused, code: code, detail: fmt.Sprintf("JSON-RPC error %d %q", code, cut(message))}
	switch {
	case code != codeInternal:
	case strings.Contains(strings.ToLower(message), quotaExceeded):
		out.class = DispatchOverloaded
	default:
		out.class = DispatchCompleted
	}
	return out
}

func judgeTask(task map[string]json.RawMessage) outcome {
	id, _ := text(task["id"])
	status, _ := object(task["status"])
	word, _ := text(status["state"])
	state := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(word, "TASK_STATE_")), "_", "-")
	out := outcome{detail: "its task is " + state}
	switch state {
	case "completed":
		out.class, out.detail = DispatchCompleted, ""
	case "failed", "canceled", "rejected":
		out.class = DispatchCompleted
	case "input-required", "auth-required":
		out.class = DispatchRefused
	case "submitted", "working":
		if id != "" {
			out.task = id
			return out
		}
		fallthrough
	default:
		out.class, out.detail = DispatchFaulty, "a result that is neither a message nor a task"
	}
	return out
}

// newID names one request. It is long enough to be nobody else's and easy to
// find in an agent's log.
func newID() string { return fmt.Sprintf("%s-%016x", ourName, rand.Uint64()) }
