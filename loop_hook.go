package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"tickdog/check"
	"tickdog/check/loop"

	"github.com/BurntSushi/toml"
	"github.com/urfave/cli/v2"
)

// A hook stands between an agent and each of its tools, so it must never be
// what stops them by accident. To these agents exit status 2 means "block",
// and a Go program exits with 2 when it panics and when its flags are wrong.
// Therefore: the verdict is JSON on stdout, the status is always 0, and
// whatever goes wrong here, the agent goes on.

const (
	hookInputMax  = 16 << 20        // bytes of an event; a larger one is not judged
	hookInputTime = 5 * time.Second // for the agent to hand it over
	hookPatience  = time.Second     // for the run's lock; it is held for a millisecond at a time
)

func (p *program) hookCommand() *cli.Command {
	return &cli.Command{
		Name:            "hook",
		Usage:           "speak a coding agent's hooks: event on stdin, answer on stdout",
		ArgsUsage:       "claude|codex|gemini|generic",
		HideHelpCommand: true,
		Description: `Reads one hook event of the agent as JSON on standard input and answers in the
agent's own form. A tool call that repeats itself three times is refused once
with a text that asks for another approach; if it goes on, the run is frozen and
every further call refused until 'tickdog loop thaw'. Cycles of up to four calls
(A-B-A-B) are caught after three turns. Where the hook also sees results, a call
whose result changed is polling, and no stall before its twelfth repetition.
Failures of the provider, where the agent reports them, count as with 'loop
failure'. The run is the agent's session; each subagent is a run of its own.

The exit status is always 0. Whatever goes wrong (input that is no JSON, a full
disk, a lock that a stopped process holds), the agent goes on.

To install it, paste what this prints where it says:

  tickdog loop hook --print-config claude

generic is for a shim of your own: {"run":ID,"event":ID,"tool":NAME,"input":{...}}
is answered like 'loop action'; with "hook_event_name" result (and "result"),
failure (and "code", "subject", "retry", "retry_after" or "status") or answered,
it is those.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "print-config", Usage: "print the lines to paste for `AGENT`, and read nothing"},
			&cli.StringFlag{Name: "config", Usage: "read `FILE` instead of the usual configuration"},
		},
		SkipFlagParsing: true, // a wrong flag must not end with an error
		Action: func(c *cli.Context) error {
			for _, word := range c.Args().Slice() {
				if word == "--help" || word == "-h" {
					return cli.ShowSubcommandHelp(c)
				}
			}
			p.hook(c.Args().Slice())
			return nil
		},
	}
}

// hookStart serves a start as a hook without the command tree, and says
// whether it was one. (A call for help is the tree's.)
func (p *program) hookStart(args []string) bool {
	if len(args) < 3 || args[1] != "loop" || args[2] != "hook" || slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return false
	}
	p.hook(args[3:])
	return true
}

// hook serves 'loop hook' with the words behind it. It returns, whatever
// happens; the exit status is 0.
func (p *program) hook(words []string) {
	var answer []byte // written at the end and at once: half an answer would be worse than none
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(p.stderr, "tickdog: loop hook: %v; the agent goes on\n", r)
		}
		if len(answer) > 0 {
			signal.Ignore(syscall.SIGPIPE) // nobody reads it: no reason to die of a signal
			p.stdout.Write(answer)
		}
	}()
	args, err := parseHookArgs(words)
	if args.agent != "" {
		answer = dialects[args.agent](loop.Verdict{Action: loop.Proceed}, "") // should we not come further
	}
	switch {
	case err != nil:
	case args.print != "":
		fmt.Fprintf(p.stderr, "tickdog: %s\n", hookPlaces[args.print])
		answer = []byte(hookConfigs[args.print])
	default:
		var e hookEvent
		if e, err = readHookEvent(p.stdin); err != nil {
			break
		}
		var v loop.Verdict
		if v, err = p.judge(e, args.config); err == nil {
			answer = dialects[args.agent](v, e.name)
		}
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "tickdog: loop hook: %v; the agent goes on\n", err)
	}
}

type hookArgs struct{ agent, config, print string }

func parseHookArgs(words []string) (a hookArgs, err error) {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case word == "--":
		case strings.HasPrefix(word, "-") && (name == "config" || name == "print-config"):
			if !joined {
				if len(words) == 0 {
					return a, fmt.Errorf("%s needs a value", word)
				}
				value, words = words[0], words[1:]
			}
			if name == "config" {
				a.config = value
				continue
			}
			if a.print = value; hookConfigs[value] == "" {
				return a, fmt.Errorf("--print-config: %q is not claude, codex, gemini or generic", value)
			}
		case strings.HasPrefix(word, "-"):
			return a, fmt.Errorf("there is no flag %s", word)
		case a.agent != "":
			return a, fmt.Errorf("only one agent, but got %q and %q", a.agent, word)
		case dialects[word] == nil:
			return a, fmt.Errorf("%q is not claude, codex, gemini or generic", word)
		default:
			a.agent = word
		}
	}
	if a.agent == "" && a.print == "" {
		return a, errors.New("it needs an agent: claude, codex, gemini or generic")
	}
	return a, nil
}

// hookEvent is one event of an agent. The fields are read one by one, for an
// agent's next version may change the type of any of them.
type hookEvent struct {
	name   string
	fields map[string]json.RawMessage
}

// readHookEvent reads one JSON object; it needs no end of the input, but has
// to come in time.
func readHookEvent(in io.Reader) (hookEvent, error) {
	type read struct {
		event hookEvent
		err   error
	}
	done := make(chan read, 1)
	go func() {
		r := read{err: errors.New("the event could not be read")}
		defer func() {
			recover() // no other recover reaches this goroutine
			done <- r
		}()
		// Some agents send a byte order mark in front.
		d := json.NewDecoder(io.LimitReader(skipBOM(in), hookInputMax))
		if err := d.Decode(&r.event.fields); err != nil {
			r.err = fmt.Errorf("the event is no JSON object of at most %d MiB: %v", hookInputMax>>20, err)
			return
		}
		r.event.name = r.event.text("hook_event_name")
		r.err = nil
	}()
	select {
	case r := <-done:
		return r.event, r.err
	case <-time.After(hookInputTime):
		return hookEvent{}, fmt.Errorf("no event in %v", hookInputTime)
	}
}

func skipBOM(in io.Reader) io.Reader {
	var head [3]byte
	n, _ := io.ReadFull(in, head[:])
	if string(head[:n]) == "\uFEFF" {
		n = 0
	}
	return io.MultiReader(bytes.NewReader(head[:n]), in)
}

// text is the first of these fields that is a string.
func (e hookEvent) text(names ...string) string {
	for _, name := range names {
		var s string
		if json.Unmarshal(e.fields[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// raw is the first of these fields that is there.
func (e hookEvent) raw(names ...string) json.RawMessage {
	for _, name := range names {
		if raw := e.fields[name]; len(raw) > 0 {
			return raw
		}
	}
	return nil
}

// run is the session; a subagent's actions are not its parent's.
func (e hookEvent) run() string {
	run := e.text("run", "session_id", "sessionID", "sessionId", "conversation_id", "taskId")
	if agent := e.text("agent_id"); agent != "" && run != "" {
		run += "/" + agent
	}
	return run
}

func (e hookEvent) call() string {
	return eventID(e.text("tool_use_id", "event", "call_id", "callID", "tool_call_id"))
}

// fingerprint is that of the tool with its input; "" if the event names none.
func (e hookEvent) fingerprint() string {
	tool := e.raw("tool_name", "tool", "toolName")
	input := e.raw("tool_input", "input", "args", "toolArgs", "arguments", "parameters")
	if input == nil {
		input = e.raw("action")
	}
	if tool == nil && input == nil {
		return ""
	}
	action := map[string]json.RawMessage{"tool": tool, "input": input}
	for name, raw := range action {
		if raw == nil {
			delete(action, name)
		}
	}
	text, err := json.Marshal(action)
	if err != nil {
		return ""
	}
	return loop.Fingerprint(text)
}

// seen is what the event means to the policy; nothing if it means nothing.
func (e hookEvent) seen(now func() check.Moment) []loop.Seen {
	switch e.name {
	case "PreToolUse", "BeforeTool", "action", "":
		if fingerprint := e.fingerprint(); fingerprint != "" {
			// Whoever wants to use a tool has heard from its provider.
			return []loop.Seen{loop.Answered{}, loop.Acted{Fingerprint: fingerprint, Event: e.call()}}
		}
	case "PostToolUse", "PostToolUseFailure", "AfterTool", "result":
		result := e.raw("tool_response", "result", "tool_output", "error")
		if fingerprint := e.fingerprint(); result != nil && (fingerprint != "" || e.call() != "") {
			return []loop.Seen{loop.Resulted{Event: e.call(), Fingerprint: fingerprint, Result: loop.Digest(result)}}
		}
	case "PostToolBatch":
		var calls []map[string]json.RawMessage
		if json.Unmarshal(e.raw("tool_calls"), &calls) != nil {
			return nil
		}
		var all []loop.Seen
		for _, fields := range calls {
			all = append(all, hookEvent{"PostToolUse", fields}.seen(now)...)
		}
		return all
	case "Stop", "SubagentStop", "AfterAgent", "answered":
		return []loop.Seen{loop.Answered{}}
	case "StopFailure", "failure":
		return []loop.Seen{e.failure(now().Wall)}
	}
	return nil
}

// failure is a failure of the provider: by the name that Claude Code gives it,
// or by whatever a shim knows of it.
func (e hookEvent) failure(now time.Time) loop.Failed {
	f := loop.Failed{
		Code:    loop.Mask(e.text("code", "error")),
		Subject: loop.Mask(e.text("subject", "error_details", "model")),
		Event:   e.call(),
	}
	class, _ := loop.ClassifyName(f.Code)
	var status int
	if json.Unmarshal(e.raw("status", "status_code"), &status) == nil && status > 0 {
		headers := map[string]string{}
		var raw map[string]string
		json.Unmarshal(e.raw("headers"), &raw)
		for name, value := range raw {
			headers[strings.ToLower(name)] = value
		}
		body := e.raw("body")
		if text := e.text("body"); text != "" {
			body = json.RawMessage(text)
		}
		class = loop.ClassifyStatus(status, headers, body, now)
	}
	f.Retry = class.Retry
	if retry, err := parseRetry(e.text("retry")); err == nil {
		f.Retry = retry
	}
	if f.Code == "" {
		f.Code = class.Code
	}
	if f.Code == "" {
		f.Code = "unknown"
	}
	if class.Told != nil {
		f.Told = *class.Told
	}
	told := strings.Trim(string(e.raw("retry_after")), `"`)
	if wait, ok := loop.ParseTold(told, now); ok {
		f.Told = wait
	}
	var ms float64
	if json.Unmarshal(e.raw("retry_after_ms"), &ms) == nil {
		if wait, ok := loop.ParseTold(fmt.Sprint(ms/1000), now); ok {
			f.Told = wait
		}
	}
	return f
}

// judge puts the event to the policy.
func (p *program) judge(e hookEvent, config string) (loop.Verdict, error) {
	proceed := loop.Verdict{Action: loop.Proceed}
	run := e.run()
	seen := e.seen(p.moment)
	if run == "" || len(run) > maxRunID || len(seen) == 0 {
		return proceed, nil
	}
	dir, err := p.hookStateDir(config)
	if err != nil {
		return proceed, err
	}
	l, err := p.openLoops(dir)
	if err != nil {
		return proceed, err
	}
	l.quick = true
	v, kept := l.decide(context.Background(), run, hookPatience, loop.Limits{Cycles: true}, seen...)
	switch {
	case v.Action == loop.Halt:
		v.Text = "Halted by a person. Stop here; 'tickdog loop unhalt' lets it go on."
	case !kept && (v.Action != loop.Freeze || !l.frozen(run)):
		// What cannot be remembered would be said again for ever.
		return proceed, nil
	}
	return v, nil
}

// frozen says whether the run's file says that it is.
func (l *loops) frozen(run string) bool {
	silent := &loops{program: &program{stderr: io.Discard}, dir: l.view().dir}
	s, _ := silent.load(run, l.moment())
	return s.Frozen != nil
}

// hookStateDir is the configuration's state_dir. A hook reads no more of the
// file than what stands before its first table: it must cost next to nothing,
// and a mistake further down must not disturb an agent.
func (p *program) hookStateDir(config string) (string, error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.String("config", config, "")
	path, asked := p.configPath(cli.NewContext(nil, flags, nil))
	text, err := os.ReadFile(path)
	if err != nil && (asked || !errors.Is(err, fs.ErrNotExist)) {
		return "", fmt.Errorf("cannot read the configuration: %v", err)
	}
	keys := struct {
		StateDir string `toml:"state_dir"`
	}{p.defaults().StateDir}
	head, _, _ := strings.Cut("\n"+string(text), "\n[")
	if _, err := toml.Decode(head, &keys); err != nil {
		return "", fmt.Errorf("%s: %v", path, err)
	}
	return p.expand(keys.StateDir), nil
}

// dialects are the agents' ways to be told a verdict, by the event that asked.
var dialects = map[string]func(v loop.Verdict, event string) []byte{
	"claude":  answerClaude,
	"codex":   answerCodex,
	"gemini":  answerGemini,
	"generic": answerGeneric,
}

// hookAnswer is what the agents understand, in the order it is printed.
type hookAnswer struct {
	Continue   *bool         `json:"continue,omitempty"`
	StopReason string        `json:"stopReason,omitempty"`
	Decision   string        `json:"decision,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Specific   *hookSpecific `json:"hookSpecificOutput,omitempty"`
}

type hookSpecific struct {
	Event    string `json:"hookEventName"`
	Decision string `json:"permissionDecision"`
	Reason   string `json:"permissionDecisionReason"`
}

func (a hookAnswer) line() []byte {
	line, _ := jsonLine(a)
	return line
}

// stop is set where the agent is to end its loop.
func (a *hookAnswer) stop(why string) {
	a.Continue, a.StopReason = new(bool), why
}

func stands(v loop.Verdict) bool { return v.Action == loop.Freeze || v.Action == loop.Halt }

// answerClaude: silence is "no opinion". Claude Code reads a decision only
// before a tool; what a StopFailure hook prints is ignored.
func answerClaude(v loop.Verdict, event string) []byte {
	if event != "PreToolUse" || v.Action != loop.Steer && !stands(v) {
		return nil
	}
	a := hookAnswer{Specific: &hookSpecific{event, "deny", v.Text}}
	if stands(v) {
		a.stop(v.Text)
	}
	return a.line()
}

// answerCodex: its output schemas are closed, and one key too many makes the
// hook fail. Before a tool it knows only the refusal; the end of the loop it
// takes after one.
func answerCodex(v loop.Verdict, event string) []byte {
	switch {
	case event == "PreToolUse" && (v.Action == loop.Steer || stands(v)):
		return hookAnswer{Specific: &hookSpecific{event, "deny", v.Text}}.line()
	case event == "PostToolUse" && stands(v):
		var a hookAnswer
		a.stop(v.Text)
		return a.line()
	}
	return nil
}

// answerGemini: {} is "no opinion".
func answerGemini(v loop.Verdict, event string) []byte {
	var a hookAnswer
	if event == "BeforeTool" && (v.Action == loop.Steer || stands(v)) {
		a.Decision, a.Reason = "deny", v.Text
		if stands(v) {
			a.stop(v.Text)
		}
	}
	return a.line()
}

func answerGeneric(v loop.Verdict, _ string) []byte {
	line, _ := jsonLine(verdictJSON(v))
	return line
}

// hookPlaces say where the lines go.
var hookPlaces = map[string]string{
	"claude":  "paste into ~/.claude/settings.json, or .claude/settings.json of a project",
	"codex":   "paste into ~/.codex/hooks.json, or .codex/hooks.json of a project; then trust them with /hooks",
	"gemini":  "paste into ~/.gemini/settings.json, or .gemini/settings.json of a project",
	"generic": "what a shim sends to 'tickdog loop hook generic', one object a start",
}

// hookConfigs are the lines to paste. The `|| true` is for the one thing that
// the hook cannot promise by itself: to start.
var hookConfigs = map[string]string{
	"claude": `{
  "hooks": {
    "PreToolUse": [{"hooks": [{"type": "command", "command": "tickdog loop hook claude || true", "timeout": 10}]}],
    "PostToolUse": [{"hooks": [{"type": "command", "command": "tickdog loop hook claude || true", "timeout": 10}]}],
    "PostToolUseFailure": [{"hooks": [{"type": "command", "command": "tickdog loop hook claude || true", "timeout": 10}]}],
    "Stop": [{"hooks": [{"type": "command", "command": "tickdog loop hook claude || true", "timeout": 10}]}],
    "StopFailure": [{"hooks": [{"type": "command", "command": "tickdog loop hook claude || true", "timeout": 10}]}]
  }
}
`,
	"codex": `{
  "hooks": {
    "PreToolUse": [{"hooks": [{"type": "command", "command": "tickdog loop hook codex || true", "timeout": 10}]}],
    "PostToolUse": [{"hooks": [{"type": "command", "command": "tickdog loop hook codex || true", "timeout": 10}]}],
    "Stop": [{"hooks": [{"type": "command", "command": "tickdog loop hook codex || true", "timeout": 10}]}]
  }
}
`,
	"gemini": `{
  "hooks": {
    "BeforeTool": [{"hooks": [{"name": "tickdog", "type": "command", "command": "tickdog loop hook gemini || true", "timeout": 10000}]}],
    "AfterTool": [{"hooks": [{"name": "tickdog", "type": "command", "command": "tickdog loop hook gemini || true", "timeout": 10000}]}],
    "AfterAgent": [{"hooks": [{"name": "tickdog", "type": "command", "command": "tickdog loop hook gemini || true", "timeout": 10000}]}]
  }
}
`,
	"generic": `{"run": "RUN", "event": "CALL", "tool": "NAME", "input": {}}
{"run": "RUN", "event": "CALL", "hook_event_name": "result", "tool": "NAME", "input": {}, "result": {}}
{"run": "RUN", "hook_event_name": "failure", "code": "rate_limit", "subject": "MODEL", "retry": "yes", "retry_after": "30s"}
{"run": "RUN", "hook_event_name": "failure", "status": 429, "headers": {"Retry-After": "30"}, "subject": "MODEL"}
{"run": "RUN", "hook_event_name": "answered"}
`,
}
