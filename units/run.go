package units

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a Command gets that does not say otherwise.
const (
	DefaultTimeout   = time.Minute
	DefaultGrace     = 5 * time.Second
	DefaultMaxOutput = 1 << 20
)

const (
	killWait = 2 * time.Second        // after KILL a process is gone at once, or it sits in the kernel
	pipeWait = 500 * time.Millisecond // for output still in a pipe whose owner has ended
)

// Command is one program to run, with its bounds.
type Command struct {
	Argv      []string      // the program (a path, or a name on PATH) and its arguments; never a shell line
	Env       []string      // KEY=value, added to the environment of this process
	Dir       string        // working directory; "" = this process's
	Stdin     []byte        // nil = /dev/null
	Timeout   time.Duration // then it is asked to end; 0 = DefaultTimeout
	Grace     time.Duration // from being asked (TERM) to being killed; 0 = DefaultGrace
	MaxOutput int           // bytes kept of each stream, the rest is read and dropped; 0 = DefaultMaxOutput
	Key       string        // what a Stuck is known by, without blanks; "" = the program's base name
}

// Result is what came of a Command.
type Result struct {
	Argv           []string
	Stdout, Stderr []byte // at most MaxOutput bytes each
	Cut            bool   // there was more output than that
	Code           int    // exit status; -1 unless it exited by itself or when asked
	Signal         string // "SIGKILL", if a signal ended it
	TimedOut       bool   // it had to be asked to end, by Timeout or by the context
	Left           bool   // still there after KILL: it sits in the kernel and was left behind
	PID            int    // 0 if it never started
	StartTicks     uint64 // field 22 of /proc/PID/stat; with PID it names the process for as long as it lives
	Key            string
	Err            error // it could not start (fs.ErrNotExist, EACCES, EMFILE, …), or the context's error
	Took           time.Duration

	limit time.Duration // the Command's Timeout, for Failure
}

// Run runs one command to its end. The command has a process group of its
// own and no descriptor but its three streams. When its time is up or ctx is
// done, the group gets TERM, then CONT (a stopped process can't act on TERM),
// and KILL after Grace. What does not even end then is in the kernel; it is
// no longer waited for, and Result says so with Left. Processes of the group
// that outlive its leader are killed; one that has left the group and keeps a
// pipe open is not waited for.
//
// Run returns no error: every outcome is a Result, see Failure.
func Run(ctx context.Context, c Command) Result {
	c = c.withDefaults()
	r := Result{Argv: c.Argv, Key: c.Key, Code: -1, limit: c.Timeout}
	begin := time.Now()
	timeout := time.NewTimer(c.Timeout)
	defer timeout.Stop()

	if err := context.Cause(ctx); err != nil {
		r.Err = err
		return r
	}
	child := newChild(c)
	// Starting is bounded too: a program on a file system that does not
	// answer blocks before there is anything to kill.
	go child.run()
	select {
	case <-child.started:
	case <-timeout.C:
		child.givenUp.Store(true)
		r.TimedOut, r.Err, r.Took = true, errLoading, time.Since(begin)
		return r
	case <-ctx.Done():
		child.givenUp.Store(true)
		r.TimedOut, r.Err, r.Took = true, context.Cause(ctx), time.Since(begin)
		return r
	}
	if child.startErr != nil {
		r.Err, r.Took = child.startErr, time.Since(begin)
		return r
	}
	r.PID, r.StartTicks = child.pid, child.startTicks

	select {
	case <-child.ended:
	case <-timeout.C:
		r.TimedOut = true
	case <-ctx.Done():
		r.TimedOut, r.Err = true, context.Cause(ctx)
	}
	if r.TimedOut {
		r.Left = !child.end(c.Grace)
	}
	if !r.Left {
		status := child.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Exited() {
			r.Code = status.ExitStatus()
		} else if status.Signaled() {
			r.Signal = unix.SignalName(status.Signal())
		}
	}
	var cutOut, cutErr bool
	r.Stdout, cutOut = child.stdout.bytes()
	r.Stderr, cutErr = child.stderr.bytes()
	r.Cut = cutOut || cutErr
	r.Took = time.Since(begin)
	return r
}

// errLoading is the Err of a program whose file did not answer in time.
var errLoading = errors.New("the program could not be loaded")

func (c Command) withDefaults() Command {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	if c.MaxOutput <= 0 {
		c.MaxOutput = DefaultMaxOutput
	}
	if c.Key == "" && len(c.Argv) > 0 {
		c.Key = filepath.Base(c.Argv[0])
	}
	return c
}

// child is a command that was started. Its fields before ended are set when
// started is closed.
type child struct {
	command        Command
	cmd            *exec.Cmd
	startErr       error
	pid            int
	startTicks     uint64
	stdout, stderr *head
	started, ended chan struct{}
	givenUp        atomic.Bool // nobody waits for it to start any more: it must not
}

func newChild(c Command) *child {
	return &child{
		command: c,
		stdout:  &head{max: c.MaxOutput},
		stderr:  &head{max: c.MaxOutput},
		started: make(chan struct{}),
		ended:   make(chan struct{}),
	}
}

// run starts the command and reaps it. It is a goroutine of its own because
// either half can block for as long as the kernel likes.
func (ch *child) run() {
	ch.startErr = ch.start()
	if ch.startErr != nil {
		close(ch.started)
		return
	}
	ch.pid = ch.cmd.Process.Pid
	ch.startTicks, _ = startTicks(ch.pid)
	close(ch.started)
	if ch.givenUp.Load() {
		ch.signal(unix.SIGKILL)
	}

	// First see the leader's end without reaping it: as long as it is a
	// zombie its number can't be given to anybody else, and the rest of its
	// group can be killed safely.
	for {
		err := unix.Waitid(unix.P_PID, ch.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	ch.signal(unix.SIGKILL)
	_ = ch.cmd.Wait() // its outcome is read from ProcessState
	close(ch.ended)
}

func (ch *child) start() error {
	if len(ch.command.Argv) == 0 || ch.command.Argv[0] == "" {
		return errors.New("no command")
	}
	onlyOwnDescriptors()
	cmd := exec.Command(ch.command.Argv[0], ch.command.Argv[1:]...)
	if cmd.Err != nil {
		return cmd.Err
	}
	touch(cmd.Path)
	if ch.givenUp.Load() {
		return errLoading
	}
	if len(ch.command.Env) > 0 {
		cmd.Env = append(os.Environ(), ch.command.Env...)
	}
	cmd.Dir = ch.command.Dir
	if ch.command.Stdin != nil {
		cmd.Stdin = bytes.NewReader(ch.command.Stdin)
	}
	cmd.Stdout, cmd.Stderr = ch.stdout, ch.stderr
	cmd.WaitDelay = pipeWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ch.cmd = cmd
	return cmd.Start()
}

// end asks the group to end, kills it after grace, and tells whether that
// was its end.
func (ch *child) end(grace time.Duration) bool {
	ch.signal(unix.SIGTERM)
	ch.signal(unix.SIGCONT)
	if ch.endsWithin(grace) {
		return true
	}
	ch.signal(unix.SIGKILL)
	return ch.endsWithin(killWait)
}

// signal sends to the whole group. It fails only if there is none left.
func (ch *child) signal(s unix.Signal) { _ = unix.Kill(-ch.pid, s) }

func (ch *child) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ch.ended:
		return true
	case <-t.C:
		return false
	}
}

// touch reads the first bytes of a program. Go starts programs with vfork,
// which holds the whole process still until the program is loaded; if its
// file system does not answer, it is here that only a goroutine waits for it.
func touch(path string) {
	f, err := os.Open(path)
	if err != nil {
		return // execute-only, or gone: starting it will say so
	}
	defer f.Close()
	_, _ = f.Read(make([]byte, 4))
}

// onlyOwnDescriptors keeps what this process itself inherited (a lock held by
// the script that calls it, say) from its children: one that is left behind
// in the kernel would hold it open for ever.
var onlyOwnDescriptors = sync.OnceFunc(func() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
})

// head keeps the first max bytes written to it and drops the rest, so that
// the writer never blocks and never fails.
type head struct {
	mu   sync.Mutex // a child left behind may still write while its result is read
	max  int
	kept []byte
	cut  bool
}

var _ io.Writer = (*head)(nil)

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(len(p), h.max-len(h.kept))
	h.kept = append(h.kept, p[:n]...)
	h.cut = h.cut || n < len(p)
	return len(p), nil
}

func (h *head) bytes() ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return bytes.Clone(h.kept), h.cut
}

// Failure is "" if the command ran and exited 0; else one plain phrase that
// begins with the program's name: "docker: exit 1: Cannot connect to the
// Docker daemon", "rocm-smi: no end in 15 s", "amd-smi: not found".
func (r Result) Failure() string {
	what := r.failure()
	if what == "" || len(r.Argv) == 0 {
		return what
	}
	return filepath.Base(r.Argv[0]) + ": " + what
}

func (r Result) failure() string {
	limit := seconds(cmp.Or(r.limit, r.Took))
	switch {
	case r.Left:
		return fmt.Sprintf("no end in %s, not even when killed; process %d is left behind", limit, r.PID)
	case errors.Is(r.Err, errLoading):
		return "could not be loaded in " + limit
	case r.TimedOut && r.Err != nil:
		return fmt.Sprintf("stopped after %s, because the pass ended", seconds(r.Took))
	case r.TimedOut:
		return "no end in " + limit
	case r.Err != nil:
		return startFailure(r.Err)
	case r.Signal != "":
		return "died of " + r.Signal + detail(r.Stderr)
	case r.Code != 0:
		return fmt.Sprintf("exit %d%s", r.Code, detail(r.Stderr))
	}
	return ""
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3g s", d.Seconds()) }

func startFailure(err error) string {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "not found"
	case errors.Is(err, fs.ErrPermission):
		return "may not be run (permission denied)"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "could not start: too many open files"
	case errors.Is(err, unix.EAGAIN):
		return "could not start: too many processes"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "not started, because the pass ended"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return "could not start: " + errno.Error()
	}
	return "could not start: " + err.Error()
}

// Complaint is the line of stderr that says most, "" if there is none.
func (r Result) Complaint() string { return strings.TrimPrefix(detail(r.Stderr), ": ") }

// detail is the line of stderr that says most: the last one with text in it
// (a Python traceback ends with its reason), at most 200 bytes.
func detail(stderr []byte) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(stderr), "?")), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		return ""
	}
	if len(last) > 200 {
		last = strings.ToValidUTF8(last[:200], "") + "…"
	}
	return ": " + last
}
