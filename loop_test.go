package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/check/loop"
	"tickdog/state"

	"pgregory.net/rapid"
)

// The manual's commands are tried in testdata/script/loop-*.txtar; what agents
// see of them, in loop_hook_test.go.

// TestRunFileKeepsAll: whatever has happened to a run, its file says the same.
func TestRunFileKeepsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := loop.State{Run: rapid.SampledFrom([]string{"0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5", "a run", "\x00\n=\"", strings.Repeat("é", 99)}).Draw(t, "run")}
		now := check.Moment{Wall: time.Unix(1_790_546_400, 0), Boot: 100.25, BootID: "boot-1"}
		text := rapid.SampledFrom([]string{"", "rate_limit", "two words", "a=b", `"`, "\n", "é"})
		event := rapid.SampledFrom([]string{"", "e1", "e2", "toolu_01A", eventID("odd, one"), eventID("e 5")})
		for range rapid.IntRange(1, 80).Draw(t, "length") {
			now.Wall, now.Boot = now.Wall.Add(1250*time.Millisecond), now.Boot+1.25
			var seen loop.Seen
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0, 1, 2:
				seen = loop.Acted{Fingerprint: rapid.SampledFrom([]string{"aa", "bb"}).Draw(t, "action"), Event: event.Draw(t, "event")}
			case 3:
				seen = loop.Resulted{Fingerprint: "aa", Event: event.Draw(t, "event"), Result: "dd"}
			case 4, 5:
				seen = loop.Failed{Code: text.Draw(t, "code"), Subject: text.Draw(t, "subject"), Retry: rapid.SampledFrom([]loop.Retry{loop.Yes, loop.Yes, loop.No}).Draw(t, "retry"), Event: event.Draw(t, "event")}
			case 6:
				seen = loop.Answered{}
			case 7:
				seen = loop.Thawed{Why: text.Draw(t, "why")}
			}
			s, _ = loop.Decide(s, seen, now, loop.Limits{Cycles: true})
		}
		r := runReader{run: loop.State{Run: s.Run}}
		for _, line := range runLines(s) {
			if line != state.OneLine(line) {
				t.Fatalf("more than a line: %q", line)
			}
			if err := r.line(line); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		if !reflect.DeepEqual(r.run, s) {
			t.Fatalf("read  %+v\nwrote %+v", r.run, s)
		}
	})
}

// FuzzRunLine: no line that a person leaves in a run's file makes a panic, and
// what is read from it can be written again.
func FuzzRunLine(f *testing.F) {
	for _, line := range []string{
		"run x id=x episode=1 created_epoch=1 updated_epoch=2 actions=3 steers=1 provider_failures=4 corrections=1 streak=2",
		`frozen 1790546400 reason=stall text="Frozen: it"`, "steered - steered_boottime=12.5 boot_id=b",
		`pause 1790546400588 until_boottime=100.588 boot_id=b seconds=0.588 code=c subject="a b"`, "thaw 1 why=x",
		"action aa event=e1 result=dd", "result aa event=e1 result=dd", "answer proceed corrections=0 provider_failures=0 events=e1,e2",
		"answer back_off corrections=0 provider_failures=1 until_ms=5 events=e", "run x", "pause -1", "", "steered - steered_boottime=NaN boot_id=",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var r runReader
		if r.line(line) != nil {
			return
		}
		again := runReader{}
		for _, line := range runLines(r.run) {
			if err := again.line(line); err != nil {
				t.Fatalf("%+v is written as %q: %v", r.run, line, err)
			}
		}
	})
}

// TestManyHooksAtOnce: eight agents' hooks on one run lose nothing, whether an
// event is added to the file or the file is written anew.
func TestManyHooksAtOnce(t *testing.T) {
	h := newHooked(t)
	var all sync.WaitGroup
	for p := range 8 {
		all.Go(func() {
			for n := range 50 {
				event := fmt.Sprintf(`{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"make t%d-%d"},"tool_use_id":"e%d-%d"}`, p, n, p, n)
				one := &hooked{t: t, config: h.config}
				if got := one.start(event, "claude"); got != "" || one.noise != "" {
					t.Errorf("%s %s", got, one.noise)
				}
			}
		})
	}
	all.Wait()
	if got := h.command("show", "--run", "s"); !strings.Contains(got, `"actions":400,`) {
		t.Error(got)
	}
	names, err := os.ReadDir(h.dir)
	if err != nil || len(names) != 2 {
		t.Errorf("%v %v", names, err)
	}
}

// TestRunLockHeld: a command waits for a run's lock, but not for ever.
func TestRunLockHeld(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.command("failure", "--run", "a", "--code", "c", "--retry", "yes")
	lock, err := state.TryLock(filepath.Join(h.dir, loop.Key("a")+lockSuffix))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	began := time.Now()
	got := h.command("failure", "--run", "a", "--code", "c", "--retry", "yes")
	if !strings.Contains(got, `"back_off"`) || !strings.Contains(got, `"provider_failures":2`) {
		t.Errorf("it has to get an answer: %s", got)
	}
	if took := time.Since(began); took < patience || took > patience+30*time.Second {
		t.Errorf("took %v", took)
	}
	if got := h.command("show", "--run", "a"); !strings.Contains(got, `"provider_failures":1`) {
		t.Errorf("without the lock something was written: %s", got)
	}
	if got := h.command("halt", "--run", "a"); got != "{\"action\":\"halt\"}\n" {
		t.Errorf("the brake waits for nothing: %s", got)
	}
}

// aged makes a run that moved last so long ago.
func (h *hooked) aged(run string, age time.Duration, words ...string) string {
	h.t.Helper()
	now := h.now
	h.now -= age
	h.command(append(words, "--run", run)...)
	h.now = now
	key := loop.Key(run)
	for _, name := range []string{key, key + lockSuffix, key + haltSuffix} {
		at := testStart.Add(now - age)
		if err := os.Chtimes(filepath.Join(h.dir, name), at, at); err != nil && !errors.Is(err, os.ErrNotExist) {
			h.t.Fatal(err)
		}
	}
	return key
}

const day = 24 * time.Hour

func TestOldRunsAreForgotten(t *testing.T) {
	act := []string{"action", "--fingerprint", "aa"}
	refuse := []string{"failure", "--code", "auth", "--retry", "no"}
	h := newHooked(t)
	old := h.aged("old", 20*day, act...)
	recent := h.aged("recent", 13*day, act...)
	frozen := h.aged("frozen", 20*day, refuse...)
	longFrozen := h.aged("long frozen", 91*day, refuse...)
	held := h.aged("held", 20*day, act...)
	// What is touched but has not moved is old; what was set aside long ago goes
	// even if its run lives; what is not ours stays.
	aside := filepath.Join(h.dir, recent+".bad-1")
	write(t, aside, "x")
	ancient := testStart.Add(-50 * day)
	os.Chtimes(aside, ancient, ancient)

	lock, err := state.TryLock(filepath.Join(h.dir, held+lockSuffix))
	if err != nil {
		t.Fatal(err)
	}
	if got := h.command("prune", "--dry-run"); !strings.Contains(got, old) || !strings.Contains(got, longFrozen) || strings.Contains(got, frozen) || strings.Contains(got, recent) {
		t.Errorf("would remove %s", got)
	}
	// A new run is the moment.
	h.command("action", "--run", "new", "--fingerprint", "aa")
	lock.Release()
	var left []string
	names, err := os.ReadDir(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		left = append(left, n.Name())
	}
	want := []string{loop.Key("new"), loop.Key("new") + lockSuffix}
	for _, key := range []string{recent, frozen, held} {
		want = append(want, key, key+lockSuffix)
	}
	want = append(want, filepath.Base(aside)) // only a run that is young was looked at
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left %q\nwant %q", left, want)
	}
	h.command("prune")
	if _, err := os.Stat(aside); !os.IsNotExist(err) {
		t.Errorf("what was set aside long ago: %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, held)); !os.IsNotExist(err) {
		t.Errorf("what was held: %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.dir, recent)); err != nil {
		t.Error(err)
	}
}

// A clock that jumped by a year must not forget everything.
func TestJumpedClockForgetsNothing(t *testing.T) {
	h := newHooked(t)
	for i := range 3 {
		h.aged(fmt.Sprint("run ", i), time.Duration(i)*day, "action", "--fingerprint", "aa")
	}
	h.now += 365 * day
	h.command("action", "--run", "new", "--fingerprint", "aa")
	if got := h.command("list"); strings.Count(got, `"known":true`) != 4 {
		t.Error(got)
	}
	// The new run is of now; so is its file, to the fake clock's year.
	at := testStart.Add(-time.Hour)
	os.Chtimes(filepath.Join(h.dir, loop.Key("new")), at, at)
	var p = h.program("", &strings.Builder{})
	if status := p.run([]string{"tickdog", "loop", "prune"}); status != 0 || !strings.Contains(fmt.Sprint(p.stderr), "--force") {
		t.Errorf("status %d: %v", status, p.stderr)
	}
	if got := h.command("prune", "--force"); strings.Count(got, "x-") != 3 {
		t.Error(got)
	}
}

func TestRunsInStatus(t *testing.T) {
	h := newHooked(t)
	h.command("action", "--run", "works", "--fingerprint", "aa")
	h.command("failure", "--run", "waits", "--code", "rate_limit", "--subject", "model x", "--retry", "yes", "--retry-after", "90s")
	h.command("failure", "--run", "stands", "--code", "auth", "--retry", "no")
	h.command("action", "--run", "braked", "--fingerprint", "aa")
	h.command("halt", "--run", "braked")
	write(t, filepath.Join(h.dir, "x-00"), "nonsense")
	for i := range 30 {
		h.command("action", "--run", fmt.Sprint("many ", i), "--fingerprint", "aa")
	}
	p := h.program("", nil)
	table, below := p.loopStatus(filepath.Dir(h.dir), p.moment())
	if len(table) != runsShown+1 || !strings.Contains(below, "and 15 more") {
		t.Errorf("%d rows, %q", len(table), below)
	}
	text := fmt.Sprint(table)
	for _, want := range []string{"[stands frozen: provider_refused 0 0 1 in a row of 1 ", "[braked halted 1 ", "[waits waits 1m30s 0 0 1 in a row of 1 2026-09-27", "rate_limit model x]", "[x-00 unreadable"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if first := fmt.Sprint(table[1:4]); strings.Contains(first, "waits") || strings.Contains(first, "many") {
		t.Errorf("what stands still does not come first: %s", first)
	}
	h.command("halt")
	if _, below := p.loopStatus(filepath.Dir(h.dir), p.moment()); !strings.Contains(below, "all runs are halted") {
		t.Error(below)
	}
	if table, below := p.loopStatus(t.TempDir(), p.moment()); table != nil || below != "" {
		t.Errorf("of nothing: %v %q", table, below)
	}
}

// A state directory of another user is not taken over.
func TestForeignRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	h := newHooked(t)
	dir := filepath.Dir(h.dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	p := h.program("", &out)
	if status := p.run([]string{"tickdog", "loop", "action", "--run", "a", "--fingerprint", "aa"}); status == 0 || out.String() != "" {
		t.Errorf("status %d, %s", status, out.String())
	}
	if got := h.start(recorded(t, "claude-PreToolUse.json"), "claude"); got != "" || !strings.Contains(h.noise, "the agent goes on") {
		t.Errorf("the hook: %q, %s", got, h.noise)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("%v %v", names, err)
	}
}

// BenchmarkHook sets what a hook costs an agent beside the least that a program
// can cost: an empty one, built with the same flags and started in turns.
func BenchmarkHook(b *testing.B) {
	dir := b.TempDir()
	build := func(name, from string) string {
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "urfave_cli_no_docs", "-o", path, ".")
		cmd.Dir, cmd.Env = from, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		return path
	}
	nothing := b.TempDir()
	for name, text := range map[string]string{"go.mod": "module empty\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(nothing, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	empty, tickdog := build("empty", nothing), build("tickdog", ".")
	config := filepath.Join(dir, "tickdog.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "state_dir = %q\n", dir+"/state"), 0o600); err != nil {
		b.Fatal(err)
	}
	took := map[string][]time.Duration{}
	start := func(event string, argv ...string) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(event)
		cmd.Env = []string{"TICKDOG_CONFIG=" + config}
		began := time.Now()
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		took[argv[0]] = append(took[argv[0]], time.Since(began))
	}
	n := 0
	for b.Loop() {
		n++
		event := fmt.Sprintf(`{"session_id":"0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"make t%d"},"tool_use_id":"toolu_%d"}`, n, n)
		start(event, empty)
		start(event, tickdog, "loop", "hook", "claude")
	}
	median := func(path string) float64 {
		slices.Sort(took[path])
		return took[path][len(took[path])/2].Seconds() * 1000
	}
	b.ReportMetric(median(empty), "ms/empty")
	b.ReportMetric(median(tickdog), "ms/hook")
	b.ReportMetric(median(tickdog)/median(empty), "x-empty")
}
