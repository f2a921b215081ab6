package loop

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
)

// Fingerprint reduces an action, given as JSON, to 32 hex digits that are the
// same for the same action: whatever the order of its keys and the blanks
// between them, whatever its ids, its timestamps and the free text that says
// what it is for. Every argument that matters makes another fingerprint; so
// does the tool's name.
//
// The top level is the envelope (the tool, its arguments, ids); what lies under
// input, args and the like are the arguments, where an id or a description may
// well be what the action is about, and only what cannot be is dropped.
// Arguments given as a string of JSON count like the JSON. What is no JSON
// counts as it is.
func Fingerprint(action []byte) string {
	value, ok := decode(action)
	if !ok {
		return digest(bytes.TrimSpace(action))
	}
	if envelope, ok := value.(map[string]any); ok {
		reduceEnvelope(envelope)
		reduce(envelope) // a flat action is its own arguments
	}
	return digest(encode(value))
}

// reduceEnvelope drops what says nothing about what is done: from the envelope
// and from the arguments in it.
func reduceEnvelope(envelope map[string]any) {
	drop(envelope, inEnvelope)
	for key, arguments := range envelope {
		if !argumentKeys[key] && !envelopeKeys[key] {
			continue
		}
		if text, ok := arguments.(string); ok {
			if parsed, ok := decode([]byte(text)); ok {
				arguments, envelope[key] = parsed, parsed
			}
		}
		if fields, ok := arguments.(map[string]any); ok {
			_, inner := fields["arguments"]
			if inner && envelopeKeys[key] {
				reduceEnvelope(fields)
			} else {
				reduce(fields)
			}
		}
		if argumentKeys[key] {
			drop(envelope, besideArguments)
		}
	}
}

// Digest reduces what came of an action to 32 hex digits, for telling whether
// it changed. How long it took and when is no change.
func Digest(result []byte) string {
	value, ok := decode(result)
	if !ok {
		return digest(bytes.TrimSpace(result))
	}
	if fields, ok := value.(map[string]any); ok {
		drop(fields, inResult)
	}
	return digest(encode(value))
}

// A call may lie in an envelope of its protocol: OpenAI's "function", the
// "params" of a JSON-RPC request. Both call what is in it "arguments".
var envelopeKeys = set("function", "params")

var argumentKeys = set("input", "tool_input", "toolInput", "args", "toolArgs", "tool_args", "arguments", "parameters", "params")

var (
	always = []string{
		"call_id", "callID", "callId", "tool_use_id", "toolUseId", "tool_call_id", "toolCallId",
		"request_id", "requestId", "timestamp", "explanation", "task_progress", "_meta",
	}
	inArguments = set(always...)
	inEnvelope  = set(append([]string{
		"id", "uuid", "event", "event_id", "turn_id", "prompt_id", "time", "ts", "created_at", "description", "duration_ms",
	}, always...)...)
	// In a flat action these may well be what it is about; beside arguments
	// they say who acts.
	besideArguments = set(
		"session_id", "sessionId", "sessionID", "turnId", "trace_id", "span_id", "message_id", "messageId", "transcript_path", "started_at",
	)
	inResult = set(append([]string{
		"duration", "durationMs", "duration_ms", "durationSeconds", "totalDurationMs", "elapsed", "elapsed_ms", "took_ms",
	}, always...)...)

	// Where one of these says what is done, a description only says why, and
	// a time limit changes nothing.
	deeds    = []string{"command", "cmd", "script", "code", "prompt", "path", "file_path", "file", "filename", "url", "query", "pattern"}
	besides  = set("description", "timeout", "timeout_ms", "run_in_background")
	commands = []string{"command", "cmd"}
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

func drop(fields map[string]any, names map[string]bool) {
	for name := range names {
		delete(fields, name)
	}
}

// reduce drops from arguments what says nothing about what is done.
func reduce(fields map[string]any) {
	drop(fields, inArguments)
	if id, ok := fields["id"].(string); ok && generated(id) {
		delete(fields, "id")
	}
	for _, deed := range deeds {
		if _, ok := fields[deed].(string); ok {
			drop(fields, besides)
			break
		}
	}
	for _, name := range commands {
		if text, ok := fields[name].(string); ok {
			fields[name] = oneBlank(text)
		}
	}
}

// generated says whether an id was made up for the call: a UUID, or a prefix
// and a long tail as in toolu_01A09q90qw90lq917835lq9.
func generated(id string) bool {
	if _, ok := uuid(id); ok {
		return true
	}
	_, tail, found := strings.Cut(id, "_")
	return found && len(tail) >= 16 && strings.ContainsAny(tail, "0123456789") && !strings.ContainsAny(tail, " /.")
}

// oneBlank takes the needless blanks out of a command. Quotes keep theirs, and
// a command of several lines (a script, a heredoc) keeps all.
func oneBlank(command string) string {
	command = strings.TrimSpace(command)
	if strings.ContainsAny(command, "\n\\") {
		return command
	}
	var b strings.Builder
	quote, blank := rune(0), false
	for _, r := range command {
		if quote == 0 && (r == ' ' || r == '\t') {
			blank = true
			continue
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		switch {
		case quote == 0 && (r == '\'' || r == '"' || r == '`'):
			quote = r
		case r == quote:
			quote = 0
		}
		b.WriteRune(r)
	}
	return b.String()
}

// decode reads exactly one JSON value and keeps numbers as they are written.
func decode(text []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	return value, true
}

// encode is the one way to write a decoded value: keys sorted, no blanks.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil { // cannot be: it was decoded from JSON
		return nil
	}
	return text
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
