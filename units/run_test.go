package units

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tickdog/check"

	"golang.org/x/sys/unix"
)

// misbehaviour is what the test binary does instead of testing when it is
// started as a child with UNITS_CHILD set.
var misbehaviour = map[string]func(){
	"answer": func() { fmt.Println("out"); fmt.Fprintln(os.Stderr, "first line\nthe reason") },
	"status": func() { fmt.Fprintln(os.Stderr, "first line\nthe reason"); os.Exit(3) },
	"hang":   func() { time.Sleep(time.Hour) },
	"deaf": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		time.Sleep(time.Hour)
	},
	"polite": func() {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("polite")
		<-asked
		fmt.Println("goodbye")
	},
	"stopped": func() {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		unix.Kill(os.Getpid(), unix.SIGSTOP)
		<-asked
		fmt.Println("goodbye")
	},
	"suicide": func() { unix.Kill(os.Getpid(), unix.SIGKILL); time.Sleep(time.Hour) },
	"flood": func() {
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 256 {
			os.Stdout.Write(chunk)
			os.Stderr.Write(chunk)
		}
	},
	// leaves a child of its own in the group that holds the pipes
	"parent": func() { fmt.Println(spawn("deaf", false).Process.Pid) },
	// the same in a session of its own
	"escapee":     func() { fmt.Println(spawn("hang", true).Process.Pid) },
	"descriptors": func() { listDescriptors() },
	"stdin":       func() { var b bytes.Buffer; b.ReadFrom(os.Stdin); fmt.Printf("%q", b.String()) },
	"where":       func() { d, _ := os.Getwd(); fmt.Print(d, " ", os.Getenv("UNITS_WORD")) },
}

func spawn(what string, session bool) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "UNITS_CHILD="+what)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := c.Start(); err != nil {
		panic(err)
	}
	return c
}

func listDescriptors() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && strings.Contains(to, "inherited") {
			fmt.Println(e.Name(), to)
		}
	}
}

func TestMain(m *testing.M) {
	if what := os.Getenv("UNITS_CHILD"); what != "" {
		misbehaviour[what]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func misbehave(t *testing.T, what string) Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Command{Argv: []string{self}, Env: []string{"UNITS_CHILD=" + what}, Timeout: 20 * time.Second, Grace: 10 * time.Second}
}

// short makes a command's time be up soon, but not before the child is
// running on a loaded machine.
func (c Command) short() Command {
	c.Timeout, c.Grace = 3*time.Second, 300*time.Millisecond
	return c
}

func TestRunSaysWhatHappened(t *testing.T) {
	dir := t.TempDir()
	notExecutable := filepath.Join(dir, "plain")
	os.WriteFile(notExecutable, []byte("x"), 0o644)
	notAProgram := filepath.Join(dir, "garbage")
	os.WriteFile(notAProgram, []byte("\x7fELFno"), 0o755)

	for _, tc := range []struct {
		name    string
		command Command
		failure string // what Failure says after the program's name
		code    int
		signal  string
		stdout  string
	}{
		{"answers", misbehave(t, "answer"), "", 0, "", "out\n"},
		{"exits", misbehave(t, "status"), "exit 3: the reason", 3, "", ""},
		{"dies", misbehave(t, "suicide"), "died of SIGKILL", -1, "SIGKILL", ""},
		{"is not there", Command{Argv: []string{filepath.Join(dir, "nothing")}}, "not found", -1, "", ""},
		{"is not on PATH", Command{Argv: []string{"no-such-program-anywhere"}}, "not found", -1, "", ""},
		{"may not be run", Command{Argv: []string{notExecutable}}, "may not be run (permission denied)", -1, "", ""},
		{"is no program", Command{Argv: []string{notAProgram}}, "could not start: exec format error", -1, "", ""},
		{"is in no directory", Command{Argv: []string{"/bin/true"}, Dir: filepath.Join(dir, "nothing")}, "not found", -1, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Run(context.Background(), tc.command)
			want := tc.failure
			if want != "" {
				want = filepath.Base(tc.command.Argv[0]) + ": " + want
			}
			if got := r.Failure(); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("Failure() = %q, want %q", got, want)
			}
			if r.Code != tc.code || r.Signal != tc.signal || string(r.Stdout) != tc.stdout || r.TimedOut || r.Left {
				t.Errorf("got code %d signal %q stdout %q stderr %q timed out %v left %v", r.Code, r.Signal, r.Stdout, r.Stderr, r.TimedOut, r.Left)
			}
		})
	}
	if r := Run(context.Background(), Command{}); r.Failure() == "" {
		t.Error("no command, and no failure")
	}
}

func TestRunEndsWhatDoesNot(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		what, signal, stdout string
		code                 int
	}{
		{"hang", "SIGTERM", "", -1},
		{"deaf", "SIGKILL", "deaf\n", -1},
		{"polite", "", "polite\ngoodbye\n", 0},
		{"stopped", "", "goodbye\n", 0}, // TERM alone would not reach it
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			c := misbehave(t, tc.what).short()
			if tc.code == 0 {
				c.Grace = 10 * time.Second
			}
			r := Run(context.Background(), c)
			if !r.TimedOut || r.Left || r.Signal != tc.signal || r.Code != tc.code || string(r.Stdout) != tc.stdout {
				t.Errorf("got %+v, stdout %q", r, r.Stdout)
			}
			if !strings.HasSuffix(r.Failure(), ": no end in 3 s") {
				t.Errorf("Failure() = %q", r.Failure())
			}
			if Alive(r.PID, r.StartTicks) {
				t.Error("it still lives")
			}
		})
	}
}

func TestRunEndsWithThePass(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(500*time.Millisecond, cancel)
	r := Run(ctx, misbehave(t, "hang"))
	if !r.TimedOut || r.Took > 15*time.Second || !strings.Contains(r.Failure(), "because the pass ended") {
		t.Errorf("%q after %v", r.Failure(), r.Took)
	}
	if r = Run(ctx, misbehave(t, "answer")); r.PID != 0 || !strings.Contains(r.Failure(), "not started, because the pass ended") {
		t.Errorf("started although the pass was over: %q", r.Failure())
	}
}

func TestRunKeepsTheFirstOfAFlood(t *testing.T) {
	c := misbehave(t, "flood")
	c.MaxOutput = 1000
	r := Run(context.Background(), c)
	if r.Failure() != "" || len(r.Stdout) != 1000 || len(r.Stderr) != 1000 || !r.Cut {
		t.Errorf("%q, %d and %d bytes, cut %v", r.Failure(), len(r.Stdout), len(r.Stderr), r.Cut)
	}
}

// What a child starts and leaves in its group is killed; what left the group
// keeps nobody waiting.
func TestRunAndGrandchildren(t *testing.T) {
	for _, what := range []string{"parent", "escapee"} {
		t.Run(what, func(t *testing.T) {
			r := Run(context.Background(), misbehave(t, what))
			words := strings.Fields(string(r.Stdout))
			if r.Failure() != "" || r.Took > 15*time.Second || len(words) == 0 {
				t.Fatalf("%q after %v, stdout %q", r.Failure(), r.Took, r.Stdout)
			}
			i := slices.IndexFunc(words, func(w string) bool { _, err := strconv.Atoi(w); return err == nil })
			pid, _ := strconv.Atoi(words[i])
			if what == "escapee" {
				unix.Kill(pid, unix.SIGKILL) // ours: its number came from the child just now
				return
			}
			for range 100 {
				state, _, ok := procStat(pid)
				if !ok || state == "Z" {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Error("the grandchild still lives")
		})
	}
}

// A descriptor that this process inherited without close-on-exec (as from a
// script that holds a lock) does not reach its children.
func TestRunHandsOnNoDescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "inherited"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := spawnTest(t, "TestHelperRunsAChild", f)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), `listed ""`) {
		t.Errorf("%v\n%s", err, out)
	}
}

func spawnTest(t *testing.T, name string, inherit *os.File) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^"+name+"$", "-test.v")
	c.Env = append(os.Environ(), "UNITS_HELPER=1")
	c.ExtraFiles = []*os.File{inherit}
	return c
}

func TestHelperRunsAChild(t *testing.T) {
	if os.Getenv("UNITS_HELPER") == "" {
		t.Skip("only as a child of TestRunHandsOnNoDescriptor")
	}
	r := Run(context.Background(), misbehave(t, "descriptors"))
	fmt.Printf("listed %q %s\n", r.Stdout, r.Failure())
}

func TestRunStdinDirEnv(t *testing.T) {
	c := misbehave(t, "stdin")
	if r := Run(context.Background(), c); string(r.Stdout) != `""` {
		t.Errorf("no stdin: read %s", r.Stdout)
	}
	c.Stdin = []byte("hello")
	if r := Run(context.Background(), c); string(r.Stdout) != `"hello"` {
		t.Errorf("stdin: read %s", r.Stdout)
	}
	c = misbehave(t, "where")
	c.Dir, c.Env = "/", append(c.Env, "UNITS_WORD=word")
	if r := Run(context.Background(), c); string(r.Stdout) != "/ word" {
		t.Errorf("where: %s", r.Stdout)
	}
}

func TestRunLeaksNothing(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	Run(context.Background(), misbehave(t, "answer"))
	before := count()
	for range 5 {
		Run(context.Background(), misbehave(t, "answer"))
		Run(context.Background(), Command{Argv: []string{"no-such-program-anywhere"}})
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestStartFailureNamesTheCause(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "fork/exec", Path: "/x", Err: syscall.EMFILE}, "docker: could not start: too many open files"},
		{os.NewSyscallError("pipe2", syscall.ENFILE), "docker: could not start: too many open files"},
		{&os.PathError{Op: "fork/exec", Path: "/x", Err: syscall.EAGAIN}, "docker: could not start: too many processes"},
		{&os.PathError{Op: "fork/exec", Path: "/x", Err: syscall.ENOMEM}, "docker: could not start: cannot allocate memory"},
		{&exec.Error{Name: "docker", Err: exec.ErrDot}, "docker: could not start: "},
	} {
		if got := (Result{Argv: []string{"/usr/bin/docker"}, Code: -1, Err: tc.err}).Failure(); !strings.HasPrefix(got, tc.want) {
			t.Errorf("%v: %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestFailureDetail(t *testing.T) {
	for stderr, want := range map[string]string{
		"":                       "",
		"\n \n":                  "",
		"Traceback\n  x\nErr\n":  ": Err",
		"\xff\xfe":               ": ?",
		strings.Repeat("é", 300): ": " + strings.Repeat("é", 100) + "…",
	} {
		if got := detail([]byte(stderr)); got != want {
			t.Errorf("detail(%q) = %q, want %q", stderr, got, want)
		}
	}
}

func TestStuck(t *testing.T) {
	m := check.Moment{Wall: time.Unix(1790546405, 0), BootID: "boot-1"}
	ticks, ok := startTicks(os.Getpid())
	if !ok {
		t.Fatal("no start time of this process")
	}
	s := Result{Key: "rocm-smi", PID: os.Getpid(), StartTicks: ticks}.Stuck(m)
	if got, err := ParseStuck(s.String()); err != nil || got != s {
		t.Errorf("%q reads back as %+v, %v", s, got, err)
	}
	if !s.Alive(m) {
		t.Error("this process is not alive")
	}
	other := s
	other.StartTicks++
	if other.Alive(m) {
		t.Error("another process with the same number passes for it")
	}
	m.BootID = "boot-2"
	if s.Alive(m) {
		t.Error("it lives on after a reboot")
	}
	for _, bad := range []string{"", "a", "a 1 2 3", "a 0 2 3 b", "a -1 2 3 b", "a x 2 3 b", "a 1 x 3 b", "a 1 2 x b", " 1 2 3 b", "a 1 2 3 ", "a  1 2 3 b"} {
		if got, err := ParseStuck(bad); err == nil {
			t.Errorf("%q reads as %+v", bad, got)
		}
	}
}

func FuzzParseStuck(f *testing.F) {
	f.Add("docker 812 1234567 1790546405 3f9c0c0e-0000-4000-8000-000000000000")
	f.Add("a 1 2 3")
	f.Fuzz(func(t *testing.T, line string) {
		s, err := ParseStuck(line)
		if err != nil {
			return
		}
		if again, err := ParseStuck(s.String()); err != nil || again != s {
			t.Errorf("%q reads as %+v, writes as %q, reads as %+v, %v", line, s, s, again, err)
		}
	})
}

// Names with blanks and parentheses do not shift the fields.
func TestProcStatName(t *testing.T) {
	self, _ := os.Executable()
	odd := filepath.Join(t.TempDir(), "a) R 1 (b")
	if err := os.Symlink(self, odd); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(odd)
	c.Env = append(os.Environ(), "UNITS_CHILD=hang")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	for range 100 {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.Process.Pid))
		if strings.HasPrefix(string(comm), "a) R") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_, ticks, ok := procStat(c.Process.Pid)
	own, _ := startTicks(os.Getpid())
	if !ok || ticks < own {
		t.Errorf("start %d, this process %d, ok %v", ticks, own, ok)
	}
}
