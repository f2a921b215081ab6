package units

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays the calls: CALL_TEST says which. Everything it starts
// inherits CALL_MARK, by which the leak check knows it.
func init() {
	if words := strings.Fields(os.Getenv("CALL_TEST")); len(words) > 0 {
		playCall(words[0], words[1:])
		os.Exit(0)
	}
}

func playCall(what string, args []string) {
	number := func() int {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			panic(err)
		}
		return n
	}
	switch what {
	case "exit":
		fmt.Fprintln(os.Stderr, "first line\nthe reason")
		os.Exit(number())
	case "hang":
		fmt.Println("before")
		select {}
	case "ignore": // TERM
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "obey": // TERM, with exit status 0
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		time.Sleep(100 * time.Millisecond)
		fmt.Println("orderly")
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {}
	case "wrap": // dies of TERM at once; its child needs a moment
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "CALL_TEST=obey")
		child.Stdout = os.Stdout
		_ = child.Start()
		select {}
	case "leave", "leave-and-hang": // a child, as args say: group or session, keeping the output or not
		child := exec.Command("sleep", "600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: args[0] == "session"}
		if args[1] == "open" {
			child.Stdout, child.Stderr = os.Stdout, os.Stderr
		}
		if err := child.Start(); err != nil {
			panic(err)
		}
		if what == "leave-and-hang" {
			fmt.Println("ready")
			time.Sleep(time.Hour)
		}
	case "daemon": // forks twice, the second time into a session of its own
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "CALL_TEST=leave session closed")
		_ = child.Run()
	case "many":
		for range number() {
			child := exec.Command("sleep", "600")
			if err := child.Start(); err != nil {
				panic(err)
			}
		}
	case "flood": // so many MiB
		line := bytes.Repeat([]byte("x"), 1023)
		block := bytes.Repeat(append(line, '\n'), 1024)
		for range number() {
			_, _ = os.Stdout.Write(block)
		}
		fmt.Println("the last line")
	case "drip":
		for range number() {
			fmt.Print(".")
			time.Sleep(20 * time.Millisecond)
		}
	case "see": // what a call is given
		in, _ := os.Readlink("/proc/self/fd/0")
		tty, err := os.Open("/dev/tty")
		if err == nil {
			tty.Close()
		}
		dir, _ := os.Getwd()
		fmt.Printf("stdin=%s tty=%v dir=%s X=%s\n", in, err == nil, dir, os.Getenv("X"))
	default:
		panic(what)
	}
}

// callTest runs one call of the test binary and checks that nothing is left.
type callTest struct {
	*testing.T
	mark string
	dir  string
}

func newCallTest(t *testing.T) *callTest {
	c := &callTest{T: t, dir: t.TempDir(), mark: fmt.Sprintf("CALL_MARK=%d-%s", os.Getpid(), t.Name())}
	before := descriptors(t)
	t.Cleanup(func() {
		for pid, p := range processes() {
			if hasVariable(pid, c.mark) {
				t.Errorf("left behind: process %d in state %s", pid, p.state)
				p.kill()
			}
			if p.parent == os.Getpid() {
				t.Errorf("left behind: a child of ours, %d in state %s", pid, p.state)
			}
		}
		if after := descriptors(t); after > before {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	})
	return c
}

func descriptors(t *testing.T) int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func (c *callTest) call(what string) Call {
	return Call{
		Argv: []string{os.Args[0]}, Env: []string{"CALL_TEST=" + what, c.mark},
		Ceiling: time.Minute, Grace: time.Minute,
		Stdout: filepath.Join(c.dir, "out"), Stderr: filepath.Join(c.dir, "err"),
	}
}

func (c *callTest) out() string {
	text, err := os.ReadFile(filepath.Join(c.dir, "out"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Fatal(err)
	}
	return string(text)
}

// check compares what matters of a result.
func (c *callTest) check(r CallResult, want string) {
	c.Helper()
	got := fmt.Sprintf("code %d, signal %q, timed out %v, stopped by %s, leftovers %d, escaped %d", r.Code, r.Signal, r.TimedOut, r.StoppedBy, r.Leftovers, r.Escaped)
	if got != want {
		c.Errorf("%s\nwant %s\n(failure: %s, err: %v)", got, want, r.Failure(), r.Err)
	}
	if len(r.Left) > 0 {
		c.Errorf("left: %v", r.Left)
	}
}

// short is a ceiling that is always reached by a call that hangs; a call that
// has to get somewhere first is cut by the context instead, see whenOut.
const short = 300 * time.Millisecond

func TestCallEndsByItself(t *testing.T) {
	c := newCallTest(t)
	r := RunCall(context.Background(), c.call("exit 0"))
	c.check(r, `code 0, signal "", timed out false, stopped by none, leftovers 0, escaped 0`)
	if r.Failure() != "" || r.Stdout.Path != "" || r.Stderr.Bytes != int64(len("first line\nthe reason\n")) || r.Took <= 0 {
		t.Errorf("%q, %+v, %v", r.Failure(), r.Stderr, r.Took)
	}
}

func TestCallFails(t *testing.T) {
	c := newCallTest(t)
	// timeout(1) would say 124 for a call it cut; here it is the call's own.
	r := RunCall(context.Background(), c.call("exit 124"))
	c.check(r, `code 124, signal "", timed out false, stopped by none, leftovers 0, escaped 0`)
	if !strings.HasSuffix(r.Failure(), ": exit 124: the reason") {
		t.Error(r.Failure())
	}
}

func TestCallDies(t *testing.T) {
	c := newCallTest(t)
	r := RunCall(context.Background(), c.call("die"))
	if r.TimedOut || r.StoppedBy != "none" || r.Failure() == "" {
		t.Errorf("%+v: %s", r, r.Failure())
	}
}

func TestCallIsCut(t *testing.T) {
	c := newCallTest(t)
	call := c.call("hang")
	call.Ceiling = short
	r := RunCall(context.Background(), call)
	c.check(r, `code -1, signal "SIGTERM", timed out true, stopped by term, leftovers 0, escaped 0`)
	if !strings.HasSuffix(r.Failure(), ": no end in 0.3 s") {
		t.Error(r.Failure())
	}
}

// whenOut is a context that ends as soon as the call has printed something.
func (c *callTest) whenOut(text string) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan struct{})
	c.Cleanup(func() { close(stop); cancel() })
	go func() {
		for !strings.Contains(c.out(), text) {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		cancel()
	}()
	return ctx
}

func TestCallIgnoresTerm(t *testing.T) {
	c := newCallTest(t)
	call := c.call("ignore")
	call.Grace = short
	begin := time.Now()
	r := RunCall(c.whenOut("ready"), call)
	c.check(r, `code -1, signal "SIGKILL", timed out false, stopped by kill, leftovers 0, escaped 0`)
	if !r.Told || time.Since(begin) > 30*time.Second {
		t.Errorf("told %v after %v", r.Told, time.Since(begin))
	}
}

func TestCallObeysTerm(t *testing.T) {
	c := newCallTest(t)
	call := c.call("obey")
	call.Ceiling = 2 * time.Second // it has to get as far as its handler
	r := RunCall(context.Background(), call)
	c.check(r, `code 0, signal "", timed out true, stopped by term, leftovers 0, escaped 0`)
	if !strings.Contains(c.out(), "orderly") {
		t.Errorf("it was not given its grace: %q", c.out())
	}
}

func TestCallWrapperDiesFirst(t *testing.T) {
	c := newCallTest(t)
	r := RunCall(c.whenOut("ready"), c.call("wrap"))
	if !r.Told || r.StoppedBy != "term" || r.Leftovers != 0 || !strings.Contains(c.out(), "orderly") {
		t.Errorf("%+v, output %q", r, c.out())
	}
}

func TestCallLeavesChildren(t *testing.T) {
	for what, want := range map[string]string{
		"leave group open":     `code 0, signal "", timed out false, stopped by none, leftovers 1, escaped 0`,
		"leave group closed":   `code 0, signal "", timed out false, stopped by none, leftovers 1, escaped 0`,
		"leave session open":   `code 0, signal "", timed out false, stopped by none, leftovers 0, escaped 1`,
		"leave session closed": `code 0, signal "", timed out false, stopped by none, leftovers 0, escaped 1`,
		"daemon":               `code 0, signal "", timed out false, stopped by none, leftovers 0, escaped 1`,
	} {
		t.Run(what, func(t *testing.T) {
			c := newCallTest(t)
			c.check(RunCall(context.Background(), c.call(what)), want)
		})
	}
}

func TestCallIsCutWithChildren(t *testing.T) {
	c := newCallTest(t)
	r := RunCall(c.whenOut("ready"), c.call("leave-and-hang session open"))
	c.check(r, `code -1, signal "SIGTERM", timed out false, stopped by term, leftovers 0, escaped 1`)
}

func TestCallWithAThousandChildren(t *testing.T) {
	c := newCallTest(t)
	n := 1000
	if testing.Short() {
		n = 100
	}
	r := RunCall(context.Background(), c.call(fmt.Sprintf("many %d", n)))
	c.check(r, fmt.Sprintf(`code 0, signal "", timed out false, stopped by none, leftovers %d, escaped 0`, n))
}

func TestCallIsStopped(t *testing.T) {
	c := newCallTest(t)
	call := c.call("stop")
	call.Ceiling = time.Second
	r := RunCall(context.Background(), call)
	c.check(r, `code -1, signal "SIGTERM", timed out true, stopped by term, leftovers 0, escaped 0`)
}

func TestCallFloods(t *testing.T) {
	c := newCallTest(t)
	call := c.call("flood 256")
	call.MaxOutput = 64 << 10
	r := RunCall(context.Background(), call)
	c.check(r, `code 0, signal "", timed out false, stopped by none, leftovers 0, escaped 0`)
	text := c.out()
	if !r.Stdout.Truncated || int64(len(text)) > call.MaxOutput || !strings.HasSuffix(text, "the last line\n") {
		t.Errorf("%+v; %d bytes kept, ending in %q", r.Stdout, len(text), text[max(0, len(text)-20):])
	}
}

func TestCallDrips(t *testing.T) {
	c := newCallTest(t)
	call := c.call("drip 1000000")
	call.Ceiling = time.Second
	r := RunCall(context.Background(), call)
	if !r.TimedOut {
		t.Errorf("output kept it alive: %+v", r)
	}
}

func TestCallCannotStart(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no program\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("no program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(dir, "moved")
	if err := os.WriteFile(moved, []byte("#!"+dir+"/venv/bin/python\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, argv := range map[string][]string{
		"moved: could not start: what its first line (#!) names is not there": {moved},

		"no-such-program: not found":                  {"no-such-program"},
		"missing: not found":                          {dir + "/missing"},
		"text: may not be run (permission denied)":    {text},
		"garbage: could not start: exec format error": {garbage},
		"could not start: no command":                 {},
		"could not start: no command ":                {""},
	} {
		c := newCallTest(t)
		r := RunCall(context.Background(), Call{Argv: argv, Ceiling: time.Minute, Stdout: filepath.Join(c.dir, "out")})
		if r.Err == nil || strings.TrimPrefix(r.Failure(), ".: ") != strings.TrimSpace(want) {
			t.Errorf("%q: %q", argv, r.Failure())
		}
		if _, err := CallPath(argv); err == nil && argv[0] != garbage && argv[0] != moved {
			t.Errorf("CallPath(%q) found something", argv)
		}
		if names, _ := os.ReadDir(c.dir); len(names) > 0 {
			t.Errorf("%q left %v", argv, names)
		}
	}
}

func TestCallIsGiven(t *testing.T) {
	c := newCallTest(t)
	call := c.call("see")
	call.Env = append(call.Env, "X=y")
	call.Dir = c.dir
	r := RunCall(context.Background(), call)
	want := "stdin=/dev/null tty=false dir=" + c.dir + " X=y\n"
	if r.Code != 0 || c.out() != want {
		t.Errorf("%q\nwant %q", c.out(), want)
	}
}

func TestCallWithoutFiles(t *testing.T) {
	c := newCallTest(t)
	call := c.call("exit 3")
	call.Stdout, call.Stderr = "", filepath.Join(c.dir, "missing", "err")
	r := RunCall(context.Background(), call)
	if r.Code != 3 || r.Stderr.Err == nil || r.Stdout.Err != nil {
		t.Errorf("%+v", r)
	}
}

func TestCallAfterTheEnd(t *testing.T) {
	c := newCallTest(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := RunCall(ctx, c.call("hang"))
	if !r.Told || !strings.HasSuffix(r.Failure(), ": ended, because tickdog was asked to end") {
		t.Errorf("%+v: %q", r, r.Failure())
	}
}

// TestCallStaysAway: a child that was there before is none of the call's.
func TestCallStaysAway(t *testing.T) {
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if !Alive(other.Process.Pid, processes()[other.Process.Pid].ticks) {
			t.Error("it is gone")
		}
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	r := RunCall(context.Background(), Call{Argv: []string{"true"}, Ceiling: time.Minute})
	if r.Escaped != 0 || r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

func TestKillMarked(t *testing.T) {
	c := newCallTest(t)
	for range 2 {
		child := exec.Command("sleep", "600")
		child.Env = append(os.Environ(), c.mark)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer child.Wait()
	}
	if n := KillMarked(c.mark + "0"); n != 0 {
		t.Errorf("%d killed that have another mark", n)
	}
	if n := KillMarked(c.mark); n != 2 {
		t.Errorf("%d killed", n)
	}
}
