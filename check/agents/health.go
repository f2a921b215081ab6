package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// HealthTimeout is how long `GET /health` may take in all, unless the
// configuration says otherwise.
const HealthTimeout = 4 * time.Second

// Health asks an agent how it is.
func (p Prober) Health(ctx context.Context, a Agent) Health {
	ctx, cancel := within(ctx, p.HealthTimeout)
	defer cancel()
	began := time.Now()
	req, err := newRequest(http.MethodGet, a, "/health", nil)
	if err != nil {
		return Health{Class: HealthUnknown, Detail: err.Error()}
	}
	r := exchange(ctx, req)
	took := time.Since(began)
	h := Health{Detail: r.why(p.HealthTimeout)}
	switch r.end {
	case answered:
		h = judgeHealth(a.Name, r.status, r.body)
		h.Slow = slow(took, p.HealthTimeout)
	case declined:
		h.Class = HealthRefused
	case silent:
		h.Class = HealthMute
	case garbled:
		h.Class = HealthForeign
	case unasked:
		h.Class = HealthUnknown
	}
	h.Ms = took.Milliseconds()
	return h
}

// judgeHealth says what a whole answer to `GET /health` means for the agent of
// that name. Of the fields it knows each may be missing, and all but the name
// may hold anything.
func judgeHealth(name string, status int, body []byte) Health {
	switch {
	case status == http.StatusTooManyRequests || status >= 500:
		return Health{Class: HealthSick, Detail: fmt.Sprintf("HTTP %d", status)}
	case status < 200 || status > 299:
		return Health{Class: HealthForeign, Detail: fmt.Sprintf("HTTP %d", status)}
	}
	fields, ok := object(body)
	if !ok {
		return Health{Class: HealthForeign, Detail: "the answer is no JSON object"}
	}
	if raw, there := fields["agent"]; there && !empty(raw) {
		if theirs, isText := text(raw); !isText || theirs != name {
			return Health{Class: HealthForeign, Detail: fmt.Sprintf("names itself %q", shown(raw))}
		}
	}
	h := Health{Class: HealthOK, CircuitOpen: string(fields["circuit_open"]) == "true"}
	if raw := fields["status"]; given(raw) {
		h.Status = shown(raw)
	}
	if raw, there := fields["current_task"]; there {
		h.Task.Known = true
		if !empty(raw) {
			h.Task.Text = shown(raw)
			h.Task.Ours = ours(h.Task.Text)
		}
	}
	return h
}

// ours: the task shown is our own message. /health may put the sender in
// brackets before it, and cuts it, so that not even our name need be whole.
func ours(task string) bool {
	if strings.HasPrefix(task, "[") {
		if _, rest, closed := strings.Cut(task, "] "); closed {
			task = rest
		}
	}
	if strings.HasPrefix(task, ourName) {
		return true
	}
	start, short := strings.CutSuffix(task, "...")
	if !short {
		start, short = strings.CutSuffix(task, "…")
	}
	return short && len(start) >= 3 && strings.HasPrefix(ourName, start)
}

// object reads one JSON object with nothing after it. Unlike a struct's, its
// names are exact, and a field of another type spoils no other.
func object(raw []byte) (map[string]json.RawMessage, bool) {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(raw, &fields)
	return fields, err == nil && fields != nil
}

func text(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// given: the field is there, and is not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// empty: the field says that there is nothing.
func empty(raw json.RawMessage) bool {
	switch compact(raw) {
	case "null", `""`, "{}", "[]":
		return true
	}
	return false
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// shown is a value as a person can read it and a state file can hold it: text
// as it is, anything else as JSON.
func shown(raw json.RawMessage) string {
	if s, isText := text(raw); isText {
		return cut(s)
	}
	return cut(compact(raw))
}

// cut makes valid UTF-8 of at most 200 bytes of what an agent said. Whoever
// prints it still has to quote it.
func cut(s string) string {
	const most = 200
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= most {
		return s
	}
	end := most - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
