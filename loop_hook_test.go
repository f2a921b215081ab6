package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/state"
)

// hooked is an agent's hooks in a state directory of their own, with a clock.
type hooked struct {
	t      *testing.T
	config string
	dir    string // the runs
	now    time.Duration
	calls  int
	stdin  io.Reader // instead of an event, if it is not nil
	noise  string    // what the last start wrote to stderr
}

func newHooked(t *testing.T) *hooked {
	home := t.TempDir()
	config := filepath.Join(home, "tickdog.toml")
	write(t, config, fmt.Sprintf("state_dir = %q\n\n[gpu]\nmax_bsuy = 3 # a mistake that is no hook's business\n", home+"/state"))
	return &hooked{t: t, config: config, dir: home + "/state/loops"}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (h *hooked) program(event string, out io.Writer) *program {
	in := h.stdin
	if in == nil {
		in = strings.NewReader(event)
	}
	noise := &bytes.Buffer{}
	p := &program{
		stdin: in, stdout: out, stderr: noise,
		getenv: func(name string) string { return map[string]string{"TICKDOG_CONFIG": h.config}[name] },
		moment: func() check.Moment {
			return check.Moment{Wall: testStart.Add(h.now), Boot: 1000 + h.now.Seconds(), BootID: "boot-1"}
		},
	}
	return p
}

// start runs the program as a hook and returns what it answers.
func (h *hooked) start(event string, words ...string) string {
	h.t.Helper()
	var out bytes.Buffer
	p := h.program(event, &out)
	if status := p.run(append([]string{"tickdog", "loop", "hook"}, words...)); status != 0 {
		h.t.Errorf("loop hook %q: exit status %d", words, status)
	}
	h.noise = p.stderr.(*bytes.Buffer).String()
	return out.String()
}

// command runs another command of loop.
func (h *hooked) command(words ...string) string {
	h.t.Helper()
	var out bytes.Buffer
	p := h.program("", &out)
	if status := p.run(append([]string{"tickdog", "loop"}, words...)); status != 0 {
		h.t.Errorf("loop %q: exit status %d: %s", words, status, p.stderr)
	}
	return out.String()
}

var callID = regexp.MustCompile(`"(tool_use_id|event)":"[^"]*"`)

// call is a recorded event with an id that no other has had.
func (h *hooked) call(event string) string {
	h.calls++
	return callID.ReplaceAllString(event, fmt.Sprintf(`"$1":"call_%d"`, h.calls))
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/hooks", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// golden compares an answer with the one beside the event.
func golden(t *testing.T, name, answer string) {
	t.Helper()
	path := filepath.Join("testdata/hooks", name)
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		write(t, path, answer)
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != answer {
		t.Errorf("%s: %v\ngot  %q\nwant %q", name, err, answer, want)
	}
}

// TestHookAnswers: the exact answers in each agent's form.
func TestHookAnswers(t *testing.T) {
	for agent, c := range map[string]struct {
		call   string
		others []string
	}{
		"claude":  {"PreToolUse", []string{"PostToolUse", "PostToolUseFailure", "PostToolBatch", "Stop", "StopFailure"}},
		"codex":   {"PreToolUse", []string{"PostToolUse", "Stop"}},
		"gemini":  {"BeforeTool", []string{"AfterTool", "AfterAgent"}},
		"generic": {"action", []string{"result", "failure", "answered"}},
	} {
		t.Run(agent, func(t *testing.T) {
			h := newHooked(t)
			name := agent + "-" + c.call
			call := recorded(t, name+".json")
			say := func(event string) string {
				answer := h.start(event, agent)
				if h.noise != "" {
					t.Errorf("stderr: %s", h.noise)
				}
				h.now += 2 * time.Second
				return answer
			}
			golden(t, name+".proceed", say(h.call(call)))
			golden(t, name+".proceed", say("\uFEFF"+h.call(call)))
			for _, other := range c.others {
				golden(t, agent+"-"+other+".proceed", say(recorded(t, agent+"-"+other+".json")))
			}
			golden(t, name+".steer", say(h.call(call)))
			golden(t, name+".freeze", say(h.call(call)))
			golden(t, name+".freeze", say(h.call(call)))
			for _, other := range c.others {
				golden(t, agent+"-"+other+".freeze", say(recorded(t, agent+"-"+other+".json")))
			}
			h.command("halt")
			golden(t, name+".halt", say(h.call(call)))
			h.command("unhalt")
			golden(t, name+".freeze", say(h.call(call)))
		})
	}
}

// codexKeys are all that Codex's closed schemas allow of what we may say.
var codexKeys = map[string][]string{
	"PreToolUse":  {"hookSpecificOutput.hookEventName", "hookSpecificOutput.permissionDecision", "hookSpecificOutput.permissionDecisionReason"},
	"PostToolUse": {"continue", "stopReason"},
}

func TestCodexSchema(t *testing.T) {
	for _, name := range []string{"codex-PreToolUse.steer", "codex-PreToolUse.freeze", "codex-PreToolUse.halt", "codex-PostToolUse.freeze"} {
		var answer map[string]any
		if err := json.Unmarshal([]byte(recorded(t, name)), &answer); err != nil {
			t.Fatal(err)
		}
		allowed := strings.Join(codexKeys[strings.Split(name[len("codex-"):], ".")[0]], " ") + " "
		for key, value := range answer {
			inner, _ := value.(map[string]any)
			if inner == nil && !strings.Contains(allowed, key+" ") {
				t.Errorf("%s: key %s", name, key)
			}
			for k, v := range inner {
				if !strings.Contains(allowed, key+"."+k+" ") || v == "" || v == "allow" || v == "ask" {
					t.Errorf("%s: %s.%s is %v", name, key, k, v)
				}
			}
		}
	}
}

// One event, sent twice because the hook is registered in two layers, counts once.
func TestHookTwiceRegistered(t *testing.T) {
	h := newHooked(t)
	event := recorded(t, "claude-PreToolUse.json")
	for range 3 {
		one := h.call(event)
		if first, second := h.start(one, "claude"), h.start(one, "claude"); first != second {
			t.Errorf("%q, then %q", first, second)
		}
	}
	if got := h.command("show", "--run", "0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5"); !strings.Contains(got, `"actions":3,`) {
		t.Error(got)
	}
}

// A subagent's actions are not its parent's.
func TestHookSubagent(t *testing.T) {
	h := newHooked(t)
	event := recorded(t, "claude-PreToolUse.json")
	sub := strings.Replace(event, `"hook_event_name"`, `"agent_id":"agent-1","agent_type":"Explore","hook_event_name"`, 1)
	for range 2 {
		if got := h.start(h.call(event), "claude") + h.start(h.call(sub), "claude"); got != "" {
			t.Errorf("they add up: %s", got)
		}
	}
	if got := h.start(h.call(sub), "claude"); !strings.Contains(got, "3 times") {
		t.Errorf("the subagent's third: %q", got)
	}
	if got := h.command("list"); !strings.Contains(got, `"run":"0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5/agent-1"`) {
		t.Error(got)
	}
}

// An agent that polls is left alone until the twelfth look.
func TestHookPolling(t *testing.T) {
	for agent, names := range map[string][2]string{
		"claude": {"claude-PreToolUse.json", "claude-PostToolUse.json"},
		"codex":  {"codex-PreToolUse.json", "codex-PostToolUse.json"},
		"gemini": {"gemini-BeforeTool.json", "gemini-AfterTool.json"}, // no ids: by what is asked
	} {
		h := newHooked(t)
		before, after := recorded(t, names[0]), recorded(t, names[1])
		silent := h.start(`{}`, agent)
		for i := 1; i <= 11; i++ {
			if got := h.start(h.call(before), agent); got != silent {
				t.Fatalf("%s, look %d: %s", agent, i, got)
			}
			h.now += time.Minute
			result := strings.NewReplacer("up to date", fmt.Sprint(i, " to go"), "nothing to commit", fmt.Sprint(i, " files"), "11 passed", fmt.Sprint(i, " passed")).Replace(after)
			result = callID.ReplaceAllString(result, fmt.Sprintf(`"$1":"call_%d"`, h.calls))
			h.start(result, agent)
		}
		if got := h.start(h.call(before), agent); !strings.Contains(got, "12 times") {
			t.Errorf("%s, the twelfth look: %s", agent, got)
		}
	}
}

func TestHookCycle(t *testing.T) {
	h := newHooked(t)
	event := recorded(t, "claude-PreToolUse.json")
	for i := range 6 {
		got := h.start(strings.Replace(h.call(event), "npm install", fmt.Sprint("step ", i%2), 1), "claude")
		if steered := strings.Contains(got, "the same 2 over and over, 3 times"); steered != (i == 5) {
			t.Errorf("step %d: %s", i, got)
		}
	}
}

// A failure of the provider that cannot be waited out freezes the session; one
// that can is waited for, and the next tool call is an answer.
func TestHookStopFailure(t *testing.T) {
	h := newHooked(t)
	run := "0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5"
	failure := recorded(t, "claude-StopFailure.json")
	h.start(failure, "claude")
	h.start(failure, "claude")
	if got := h.command("show", "--run", run); !strings.Contains(got, `"action":"back_off"`) || !strings.Contains(got, `"streak":2`) || !strings.Contains(got, "rate_limit") {
		t.Error(got)
	}
	h.start(h.call(recorded(t, "claude-PreToolUse.json")), "claude")
	if got := h.command("show", "--run", run); !strings.Contains(got, `"streak":0`) || !strings.Contains(got, `"provider_failures":2`) {
		t.Error(got)
	}
	h.start(strings.Replace(failure, `"rate_limit"`, `"billing_error"`, 1), "claude")
	if got := h.start(h.call(recorded(t, "claude-PreToolUse.json")), "claude"); !strings.Contains(got, `"continue":false`) || !strings.Contains(got, "billing_error") {
		t.Errorf("after a billing error: %s", got)
	}
}

// panicking stands for whatever may go wrong inside.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("from the depth") }

// TestHookNeverBlocks: whatever is wrong, the status is 0, no agent is told to
// stop, and none gets half an answer.
func TestHookNeverBlocks(t *testing.T) {
	event := recorded(t, "claude-PreToolUse.json")
	for name, c := range map[string]struct {
		words []string
		event string
		spoil func(h *hooked)
	}{
		"no agent":             {},
		"an unknown agent":     {words: []string{"cursor"}},
		"two agents":           {words: []string{"claude", "codex"}},
		"an unknown flag":      {words: []string{"claude", "--nonsense"}},
		"a flag's value lacks": {words: []string{"claude", "--config"}},
		"an unknown config":    {words: []string{"--print-config", "cursor"}},
		"no input":             {words: []string{"claude"}, event: " "},
		"no JSON":              {words: []string{"claude"}, event: "Traceback (most recent call last):"},
		"half an event":        {words: []string{"claude"}, event: event[:len(event)/2]},
		"a list":               {words: []string{"claude"}, event: "[1,2]"},
		"null":                 {words: []string{"claude"}, event: "null"},
		"odd types":            {words: []string{"claude"}, event: `{"session_id":7,"hook_event_name":["PreToolUse"],"tool_name":{},"tool_input":3}`},
		"no session":           {words: []string{"claude"}, event: `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{}}`},
		"a monstrous session":  {words: []string{"claude"}, event: `{"session_id":"` + strings.Repeat("x", 5000) + `","hook_event_name":"PreToolUse","tool_name":"Bash"}`},
		"an unknown event":     {words: []string{"claude"}, event: strings.Replace(event, `"PreToolUse"`, `"PreCoffee"`, 1)},
		"a panic":              {words: []string{"claude"}, spoil: func(h *hooked) { h.stdin = panicking{} }},
		"a missing config":     {words: []string{"claude", "--config", "/missing/tickdog.toml"}},
		"a broken config":      {words: []string{"claude"}, spoil: func(h *hooked) { write(h.t, h.config, "state_dir = [\n") }},
		"no state directory": {words: []string{"claude"}, spoil: func(h *hooked) {
			write(h.t, h.config, fmt.Sprintf("state_dir = %q\n", h.config))
		}},
		"a broken state file": {words: []string{"claude"}, spoil: func(h *hooked) {
			h.start(h.call(event), "claude")
			write(h.t, h.dir+"/0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5", "\x00")
		}},
		"nothing can be written": {words: []string{"claude"}, spoil: func(h *hooked) {
			h.start(h.call(event), "claude")
			h.start(h.call(event), "claude")
			h.fullDisk()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHooked(t)
			if c.spoil != nil {
				c.spoil(h)
			}
			e := c.event
			if e == "" {
				e = h.call(event)
			}
			if got := h.start(e, c.words...); got != "" {
				t.Errorf("answered %q", got)
			}
		})
	}
	// To these silence is no answer.
	for agent, want := range map[string]string{"gemini": "{}\n", "generic": "{\"action\":\"proceed\",\"corrections\":0,\"provider_failures\":0}\n"} {
		for _, words := range [][]string{{agent}, {agent, "--nonsense"}} {
			if got := newHooked(t).start("no JSON", words...); got != want {
				t.Errorf("%v: %q, want %q", words, got, want)
			}
		}
	}
}

// fullDisk lets the run's file not be written anew: what would take its place
// cannot be made.
func (h *hooked) fullDisk() {
	h.t.Helper()
	run := h.dir + "/0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5"
	if err := os.MkdirAll(run+".new/full", 0o700); err != nil {
		h.t.Fatal(err)
	}
}

// What cannot be written down steers nobody: it would be said for ever. But a
// freeze that is written down holds.
func TestHookOnAFullDisk(t *testing.T) {
	h := newHooked(t)
	event := recorded(t, "claude-PreToolUse.json")
	for range 2 {
		h.start(h.call(event), "claude")
	}
	h.fullDisk()
	for range 3 {
		if got := h.start(h.call(event), "claude"); got != "" || !strings.Contains(h.noise, "nothing will be remembered") {
			t.Errorf("%q, stderr %q", got, h.noise)
		}
		h.now += time.Minute
	}
	if err := os.RemoveAll(h.dir + "/0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5.new"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.start(h.call(event), "claude")
		h.now += time.Minute
	}
	h.fullDisk()
	if got := h.start(h.call(event), "claude"); !strings.Contains(got, `"continue":false`) {
		t.Errorf("the freeze that is written down: %q", got)
	}
}

// A process that holds a run's lock and does not move must not hold the agent.
func TestHookPastAHeldLock(t *testing.T) {
	h := newHooked(t)
	event := recorded(t, "claude-PreToolUse.json")
	for range 2 {
		h.start(h.call(event), "claude")
	}
	lock, err := state.TryLock(h.dir + "/0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5.lock")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got := h.start(h.call(event), "claude"); got != "" {
		t.Errorf("answered %q", got)
	}
	if took := time.Since(began); took < hookPatience || took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	lock.Release()
	if got := h.start(h.call(event), "claude"); !strings.Contains(got, "3 times") {
		t.Errorf("once it is free: %q", got)
	}
}

// The lines to paste are JSON, name only events that the hook knows, and can
// do no harm if tickdog is not there.
func TestHookConfigs(t *testing.T) {
	for agent := range dialects {
		got := newHooked(t).start("", "--print-config", agent)
		if agent == "generic" {
			for line := range strings.Lines(got) {
				var fields map[string]json.RawMessage
				if err := json.Unmarshal([]byte(line), &fields); err != nil {
					t.Errorf("%s: %v", line, err)
				}
				e := hookEvent{fields: fields}
				e.name = e.text("hook_event_name")
				if len(e.seen(func() check.Moment { return check.Moment{} })) == 0 || e.run() != "RUN" {
					t.Errorf("means nothing: %s", line)
				}
			}
			continue
		}
		var config struct {
			Hooks map[string][]struct {
				Hooks []struct {
					Type, Command string
					Timeout       int
				}
			}
		}
		if err := json.Unmarshal([]byte(got), &config); err != nil {
			t.Fatalf("%s: %v", agent, err)
		}
		for event, groups := range config.Hooks {
			if _, err := os.Stat(filepath.Join("testdata/hooks", agent+"-"+event+".json")); err != nil {
				t.Errorf("%s: %v", agent, err)
			}
			if h := groups[0].Hooks[0]; h.Type != "command" || h.Command != "tickdog loop hook "+agent+" || true" || h.Timeout == 0 {
				t.Errorf("%s %s: %+v", agent, event, h)
			}
		}
		if len(config.Hooks) < 3 {
			t.Errorf("%s: %d events", agent, len(config.Hooks))
		}
	}
}

// FuzzHook: no event makes the hook fail, and whatever it prints is one JSON
// object or nothing.
func FuzzHook(f *testing.F) {
	names, err := filepath.Glob("testdata/hooks/*.json")
	if err != nil || len(names) == 0 {
		f.Fatal("no recorded events")
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"run":"a","hook_event_name":"failure","status":429,"headers":7,"retry_after":"x","retry_after_ms":-1e300}`))
	dir := f.TempDir()
	config := filepath.Join(dir, "tickdog.toml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf("state_dir = %q\n", dir)), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, event []byte) {
		for agent := range dialects {
			var out, noise bytes.Buffer
			p := &program{
				stdin: bytes.NewReader(event), stdout: &out, stderr: &noise,
				getenv: func(string) string { return "" },
				moment: func() check.Moment { return check.Moment{Wall: testStart, Boot: 1, BootID: "b"} },
			}
			p.hook([]string{agent, "--config", config})
			if strings.Contains(noise.String(), "runtime error") {
				t.Fatalf("a panic: %s", &noise)
			}
			if text := out.Bytes(); len(text) > 0 && (!json.Valid(text) || bytes.Count(text, []byte("\n")) != 1) {
				t.Fatalf("%s: %q", agent, text)
			}
		}
	})
}
