package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tickdog/check/cycle"
	"tickdog/units"

	"golang.org/x/sys/unix"
)

func init() {
	testCommands["job"] = playJob
}

// playJob is a call of a job: `job WHAT [ARG]`.
func playJob() {
	note("ran", strings.Join(os.Args[1:], " "))
	switch os.Args[1] {
	case "ok", "profile", "era", "narrative", "reflect", "think":
	case "say":
		if _, err := fmt.Println(os.Args[2]); err != nil {
			os.Exit(1)
		}
	case "fail":
		code, _ := strconv.Atoi(os.Args[2])
		fmt.Fprintln(os.Stderr, "no model answers")
		os.Exit(code)
	case "take":
		d, _ := time.ParseDuration(os.Args[2])
		time.Sleep(d)
	case "deadline":
		fmt.Println(os.Getenv("TICKDOG_DEADLINE_MS"))
	case "stubborn": // it and a child in a session of its own ignore TERM
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command("sleep", "600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			panic(err)
		}
		note("ready", fmt.Sprint(os.Getpid(), " ", child.Process.Pid))
		time.Sleep(time.Hour)
	default:
		panic(os.Args[1])
	}
}

// cycleBench is a place to run cycles in: a directory with tickdog and job on PATH.
type cycleBench struct {
	*testing.T
	dir string
}

func newCycleBench(t *testing.T, limits string, stages ...string) *cycleBench {
	t.Helper()
	b := &cycleBench{T: t, dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tickdog", "job"} {
		if err := os.Symlink(self, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf("state_dir = %q\n[cycle]\nlock = %q\nlog = %q\n%s\n", b.path("state"), b.path("lock"), b.path("log"), limits)
	for i, calls := range stages {
		text += fmt.Sprintf("[[cycle.stage]]\nname = \"stage%d\"\ncalls = %s\n", i+1, calls)
	}
	if err := os.WriteFile(b.path("tickdog.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *cycleBench) path(name string) string { return filepath.Join(b.dir, name) }

// tickdog is the program in the bench's directory, ready to start.
func (b *cycleBench) tickdog(args ...string) *exec.Cmd {
	cmd := exec.Command(b.path("tickdog"), args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "PATH="+b.dir+":"+os.Getenv("PATH"), "TICKDOG_CONFIG="+b.path("tickdog.toml"), "HOME="+b.dir, "TEST_AT=",
		"GORACE=atexit_sleep_ms=0") // under the race detector every end takes a second more
	return cmd
}

// run runs a cycle to its end, which is always exit status 0.
func (b *cycleBench) run(args ...string) (stdout, stderr string) {
	b.Helper()
	var out, err strings.Builder
	cmd := b.tickdog(append([]string{"cycle"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		b.Fatalf("%v\n%s%s", e, &out, &err)
	}
	return out.String(), err.String()
}

func (b *cycleBench) status() string {
	b.Helper()
	text, err := b.tickdog("status").CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, text)
	}
	return string(text)
}

// records are the records, oldest first.
func (b *cycleBench) records() (records []cycle.Record) {
	b.Helper()
	past, err := cycle.Look(b.path("state/cycles/dream-cycle"))
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range past {
		if p.Bad != "" {
			b.Errorf("%s: %s", p.File, p.Bad)
		}
		records = append(records, p.Record)
	}
	return records
}

// outcome is the only record's.
func (b *cycleBench) outcome() string {
	b.Helper()
	r := b.records()
	if len(r) != 1 {
		b.Fatalf("%d records", len(r))
	}
	text := string(r[0].Outcome) + ":"
	for _, c := range r[0].Calls {
		text += " " + string(c.End)
	}
	return text
}

// wait waits until something is so.
func (b *cycleBench) wait(what string, so func() bool) {
	b.Helper()
	for begin := time.Now(); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			b.Fatalf("not in a minute: %s", what)
		}
	}
}

// stubborn waits for the stubborn call and returns it and its child.
func (b *cycleBench) stubborn() (pids [2]int) {
	b.Helper()
	b.wait("the call runs", func() bool {
		_, err := fmt.Sscan(readFile(b.path("ready")), &pids[0], &pids[1])
		return err == nil
	})
	return pids
}

// gone checks that none of them lives. (Whoever inherited it may not have
// reaped it yet.)
func (b *cycleBench) gone(pids [2]int) {
	b.Helper()
	for _, pid := range pids {
		if stat := readFile(fmt.Sprintf("/proc/%d/stat", pid)); stat != "" && !strings.Contains(stat, ") Z ") {
			b.Errorf("still there: %s", stat)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func TestCycleDeadlineIsTold(t *testing.T) {
	b := newCycleBench(t, `call_ceiling = "1m"`, `[["job", "deadline"]]`)
	begin := time.Now()
	b.run()
	r := b.records()[0].Calls[0]
	if r.Stdout == nil {
		t.Fatalf("%+v", r)
	}
	told, err := strconv.ParseInt(strings.TrimSpace(readFile(b.path("state/cycles/dream-cycle/"+r.Stdout.File))), 10, 64)
	if err != nil || told != r.DeadlineMS {
		t.Errorf("%d, %v; the record says %d", told, err, r.DeadlineMS)
	}
	if at := time.UnixMilli(told); at.Before(begin.Add(time.Minute-time.Second)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("%v from the start", at.Sub(begin))
	}
}

func TestCycleIsAskedToEnd(t *testing.T) {
	b := newCycleBench(t, `kill_grace = "200ms"`, `[["job", "ok"], ["job", "stubborn"], ["job", "ok"]]`, `[["job", "think"]]`)
	cmd := b.tickdog("cycle")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := b.stubborn()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	b.gone(pids)
	if got := b.outcome(); got != "interrupted: ok interrupted skipped skipped" {
		t.Error(got)
	}
	r := b.records()[0]
	if c := r.Calls[1]; c.StoppedBy != "kill" || c.Escaped != 1 || r.Ended == "" {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(out.String(), "dream-cycle hold interrupted: 1 of 4 calls in ") {
		t.Error(out.String())
	}
}

func TestCycleIsKilled(t *testing.T) {
	b := newCycleBench(t, `kill_grace = "200ms"`, `[["job", "stubborn"]]`, `[["job", "think"]]`)
	cmd := b.tickdog("cycle")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := b.stubborn()

	// A second start meanwhile: one line, exit status 0, the record as it was.
	before := b.records()
	out, _ := b.run()
	if want := "another pass holds " + b.path("lock") + "; nothing done\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if after := b.records(); len(after) != 1 || after[0].Outcome != cycle.Running || string(after[0].Text()) != string(before[0].Text()) {
		t.Errorf("%s", after[0].Text())
	}
	if r := before[0]; r.Runner != cmd.Process.Pid || !units.Alive(r.Runner, r.StartTicks) {
		t.Errorf("runner %d, not %d", r.Runner, cmd.Process.Pid)
	}

	if text := b.status(); !regexp.MustCompile(`dream-cycle +\S+ \S+ +running +for 0:.. of 20:00, now stage1 1/1: job stubborn\n`).MatchString(text) {
		t.Error(text)
	}

	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if text := b.status(); !strings.Contains(text, "stage1 interrupted; skipped stage2 (tickdog was killed; the next cycle writes it down)\n") {
		t.Error(text)
	}
	if got := b.outcome(); got != "running: running planned" {
		t.Error(got)
	}
	// The next one says so, kills what was left, and runs.
	config := strings.Replace(readFile(b.path("tickdog.toml")), "stubborn", "ok", 1)
	if err := os.WriteFile(b.path("tickdog.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr := b.run()
	b.gone(pids)
	r := b.records()
	if len(r) != 2 || r[0].Outcome != cycle.Interrupted || r[0].Calls[0].End != cycle.Cut || r[1].Outcome != cycle.Completed {
		t.Errorf("%+v", r)
	}
	const want = `the cycle of \S+ was interrupted: 0 of 2 calls in 0.0 s of 1200 s; stage1 interrupted; skipped stage2; it had left 2 processes, killed now\n`
	if !regexp.MustCompile(want).MatchString(stderr) || !regexp.MustCompile(want).MatchString(readFile(b.path("log"))) {
		t.Errorf("%s%s", stderr, readFile(b.path("log")))
	}
	// And it is said once.
	if _, stderr := b.run(); strings.Contains(stderr, "interrupted") {
		t.Error(stderr)
	}
}

func TestCycleRecordsAreKept(t *testing.T) {
	b := newCycleBench(t, "", `[["job", "say", "hello"]]`)
	dir := b.path("state/cycles/dream-cycle")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old := cycle.Record{Outcome: cycle.Completed, Started: "2026-01-01T00:00:00Z"}
	for i := range 120 {
		stem := fmt.Sprintf("20260101T00%02d%02d.000Z", i/60, i%60)
		for name, text := range map[string]string{stem + ".json": string(old.Text()), stem + ".1.out": "x\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	mine := filepath.Join(dir, "notes.json")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.run()
	if n := len(b.records()); n != keptRecords {
		t.Errorf("%d records", n)
	}
	if outs, _ := filepath.Glob(dir + "/*.out"); len(outs) != keptRecords {
		t.Errorf("%d outputs", len(outs))
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error("a person's file is gone")
	}
}

// TestCycleWithAFullDisk: without room for names, and without room for bytes,
// no call fails because its output cannot be kept.
func TestCycleWithAFullDisk(t *testing.T) {
	for _, size := range []string{"size=16k,nr_inodes=3", "size=16k"} {
		b := newCycleBench(t, "", `[["job", "say", "hello"], ["job", "fail", "3"]]`, `[["job", "think"]]`)
		b.run()
		dir := b.path("state/cycles/dream-cycle")
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, size+",mode=700"); err != nil {
			t.Skipf("no tmpfs to fill: %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		good := cycle.Record{Name: "dream-cycle", Outcome: cycle.Completed, Started: "2026-01-01T00:00:00Z"}
		earlier := filepath.Join(dir, "20260101T000000.000Z.json")
		if err := os.WriteFile(earlier, good.Text(), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < 20 && os.WriteFile(fmt.Sprint(dir, "/full", i), make([]byte, 4096), 0o600) == nil; i++ {
		}
		_ = os.Remove(b.path("ran"))
		out, stderr := b.run()
		for _, once := range []string{"tickdog: record: ", "tickdog: output of call 1 is not kept: "} {
			if strings.Count(stderr, once) != 1 || strings.Count(stderr, "no space left on device") != 2 {
				t.Errorf("%s: %s", size, stderr)
			}
		}
		if ran := readFile(b.path("ran")); ran != "say hello\nfail 3\nthink\n" {
			t.Errorf("%s: %q", size, ran)
		}
		if !strings.Contains(out, "dream-cycle hold failed: 2 of 3 calls in ") {
			t.Errorf("%s: %s", size, out)
		}
		if readFile(earlier) != string(good.Text()) {
			t.Errorf("%s: the earlier record is not what it was", size)
		}
	}
}

func TestCycleOnATerminal(t *testing.T) {
	b := newCycleBench(t, "", `[["job", "take", "10ms", "a prompt that is longer than the terminal is wide, and has no end"]]`)
	master, slave := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 60, Row: 24}); err != nil {
		t.Fatal(err)
	}
	cmd := b.tickdog("cycle", "--json")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, slave
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	shown := make([]byte, 4096)
	n, _ := master.Read(shown)
	text := string(shown[:n])
	if !strings.Contains(text, "\r\x1b[Kstage1 1/1: job take 10ms …  0:00, ") || !strings.Contains(text, " of the budget left\r\x1b[K") {
		t.Errorf("%q", text)
	}
	var report map[string]any
	if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
		t.Errorf("%v: %q", err, out.String())
	}
}

// openTerminal is a terminal of our own.
func openTerminal(t *testing.T) (master, slave *os.File) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	return master, slave
}
