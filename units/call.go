package units

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Call is one call of a job: a command that may take minutes and start
// whatever it likes, and of which nothing may be left when it is over.
//
// It differs from [Command], the short tool, in two ways: its output goes to
// files (a process that keeps them open hangs nobody, and what was written
// before a kill is there), and processes that left its group are found and
// killed too.
type Call struct {
	Argv      []string      // the program (a path, or a name on PATH) and its arguments; never a shell line
	Env       []string      // KEY=value, added to the environment of this process
	Dir       string        // working directory; "" = this process's
	Ceiling   time.Duration // then it is asked to end. Measured on the monotonic clock: suspend does not count
	Grace     time.Duration // from being asked to being killed; 0 kills at once
	Stdout    string        // paths of the files, made new; "" or one that cannot be made, or has no room, is /dev/null
	Stderr    string
	MaxOutput int64 // bytes kept of each, the newest; 0 = DefaultMaxOutput
}

// CallResult is what came of a Call.
type CallResult struct {
	Code           int    // exit status; -1 unless it exited by itself or when asked
	Signal         string // "SIGKILL", if a signal ended it
	TimedOut       bool   // the ceiling was reached
	Told           bool   // the context ended it
	StoppedBy      string // what it took to end it: "none", "term" or "kill"
	Leftovers      int    // processes of its group that outlived it and had to be killed
	Escaped        int    // processes that had left its group, found and killed
	Left           []int  // pids that even KILL did not end: they sit in the kernel
	Stdout, Stderr Kept
	Err            error // it could not be started
	Took           time.Duration

	argv    []string
	ceiling time.Duration
	detail  string
}

// Kept is what is left of one stream's output.
type Kept struct {
	Path      string // "" if there was no output, and so no file
	Bytes     int64  // written by the call in all
	Truncated bool   // the file holds only the newest part of them
	Err       error  // the file could not be made; the output went to /dev/null
}

// lastKill is how long processes are hunted after KILL. They are gone at once,
// or they sit in the kernel.
const lastKill = 5 * time.Second

// RunCall runs one call to the end of everything it started. At its ceiling,
// or when ctx is done, its process group gets TERM, then CONT (a stopped
// process cannot act on TERM), and KILL once Grace is over. Then, and also
// when it ended by itself, what is left of its group is killed, and so is what
// escaped into a session of its own: this process is made the subreaper, so
// whatever loses its parent becomes our child and can be found.
//
// One at a time, and beside no other command: what becomes a child of this
// process meanwhile is taken for the call's. RunCall comes back within Ceiling
// + Grace + lastKill and a little, whatever the call does. Every outcome is a
// CallResult, see Failure.
func RunCall(ctx context.Context, c Call) (r CallResult) {
	r = CallResult{Code: -1, StoppedBy: "none", argv: c.Argv, ceiling: c.Ceiling}
	begin := time.Now()
	defer func() { r.Took = time.Since(begin) }()
	ceiling := time.NewTimer(c.Ceiling)
	defer ceiling.Stop()
	if err := context.Cause(ctx); err != nil {
		r.Told, r.Err = true, err
		return r
	}

	reaper := beSubreaper()
	defer reaper.stop()
	stdout, stderr := newKeeper(c.Stdout, c.MaxOutput), newKeeper(c.Stderr, c.MaxOutput)
	defer func() {
		r.Stderr, r.detail = stderr.close(), stderr.last()
		r.Stdout = stdout.close()
	}()

	p := &callProcess{started: make(chan struct{}), dead: make(chan struct{})}
	go p.run(c, stdout, stderr)
	select {
	case <-p.started:
	case <-ceiling.C: // a program on a file system that does not answer
		r.TimedOut = true
	case <-ctx.Done():
		r.Told = true
	}
	if r.TimedOut || r.Told {
		go p.abandon()
		return r
	}
	if p.err != nil {
		r.Err = p.err
		return r
	}

	select {
	case <-p.dead:
	case <-ceiling.C:
		r.TimedOut = true
	case <-ctx.Done():
		r.Told = true
	}
	h := hunt{reaper: reaper, group: p.pid}
	if r.TimedOut || r.Told {
		r.StoppedBy = "term"
		if !h.ask(c.Grace) {
			r.StoppedBy = "kill"
		}
	}
	r.Left = h.kill()
	r.Leftovers, r.Escaped = h.leftovers, h.escaped
	select {
	case <-p.dead:
		_ = p.cmd.Wait() // the outcome is read from ProcessState
		status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if status.Exited() {
			r.Code = status.ExitStatus()
		} else {
			r.Signal = unix.SignalName(status.Signal())
		}
	case <-time.After(time.Second): // it is one of r.Left
	}
	return r
}

// Failure is "" if the call exited 0 in time; else one plain phrase that
// begins with the program's name.
func (r CallResult) Failure() string {
	result := Result{
		Argv: r.argv, Code: r.Code, Signal: r.Signal, TimedOut: r.TimedOut, PID: 1,
		Err: r.Err, limit: r.ceiling, Took: r.Took, Stderr: []byte(r.detail),
	}
	text := result.Failure()
	if r.Told {
		text = "ended, because tickdog was asked to end"
		if len(r.argv) > 0 {
			text = filepath.Base(r.argv[0]) + ": " + text
		}
	}
	if len(r.Left) > 0 {
		text += fmt.Sprintf("; %v not even killed, left behind", r.Left)
	}
	return strings.TrimPrefix(text, "; ")
}

// callProcess is the call's first process. What stands above dead is set when
// started is closed.
type callProcess struct {
	cmd           *exec.Cmd
	pid           int
	err           error
	started, dead chan struct{}
}

// run starts the process and sees it die, but does not reap it: as long as it
// is a zombie its number, which is its group's too, cannot be given to anybody
// else. It is a goroutine of its own because either half can block for as long
// as the kernel likes.
func (p *callProcess) run(c Call, stdout, stderr *keeper) {
	p.err = p.start(c, stdout, stderr)
	close(p.started)
	if p.err != nil {
		return
	}
	for errors.Is(unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	close(p.dead)
}

func (p *callProcess) start(c Call, stdout, stderr *keeper) error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errors.New("no command")
	}
	onlyOwnDescriptors()
	p.cmd = exec.Command(c.Argv[0], c.Argv[1:]...)
	if p.cmd.Err != nil {
		return p.cmd.Err
	}
	touch(p.cmd.Path)
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Dir = c.Dir
	// Files, not writers: os/exec then copies nothing and waits for no one.
	// The nil interface, not a nil file, is /dev/null.
	if stdout.file != nil {
		p.cmd.Stdout = stdout.file
	}
	if stderr.file != nil {
		p.cmd.Stderr = stderr.file
	}
	// A session of its own is a group of its own, and has no terminal: a call
	// that asks for a password fails at once instead of being stopped.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		if _, there := os.Stat(p.cmd.Path); there == nil && errors.Is(err, fs.ErrNotExist) {
			return errors.New("what its first line (#!) names is not there") // a moved virtualenv, say
		}
		return err
	}
	p.pid = p.cmd.Process.Pid
	return nil
}

// abandon ends a call that starts after all, when nobody waits for it any more.
func (p *callProcess) abandon() {
	if <-p.started; p.err == nil {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
}

// hunt ends the processes of a call.
type hunt struct {
	reaper             subreaper
	group              int // the call's first process, not reaped yet
	seen               map[process]bool
	leftovers, escaped int
}

// ask sends TERM and CONT to the group and tells whether all of it ended
// within the grace. The rest of a group deserves its grace even if the first
// process, a wrapper perhaps, dies at once.
func (h *hunt) ask(grace time.Duration) bool {
	_ = unix.Kill(-h.group, unix.SIGTERM)
	_ = unix.Kill(-h.group, unix.SIGCONT)
	over := time.NewTimer(grace)
	defer over.Stop()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if !slices.ContainsFunc(h.reaper.descendants(), func(p process) bool { return p.group == h.group && p.lives() }) {
			return true
		}
		select {
		case <-over.C:
			return false
		case <-time.After(pause):
		}
	}
}

// kill kills the group and every other descendant until none is left, and
// returns the pids of those that cannot be killed. One signal reaches a whole
// group, however many it has; what it cannot reach is killed one by one.
func (h *hunt) kill() (left []int) {
	h.seen = map[process]bool{}
	begin := time.Now()
	pause, clear := time.Millisecond, 0
	for {
		known := len(h.seen)
		if left = h.round(); len(left) == 0 {
			// A process can fork and end while the table is read, and then
			// neither of the two is in it. Twice in a row it is nobody.
			if clear++; clear == 2 {
				return nil
			}
			continue
		}
		clear = 0
		if time.Since(begin) > lastKill {
			return left
		}
		if len(h.seen) == known { // else something multiplies: no pause
			time.Sleep(pause)
			pause = min(2*pause, 50*time.Millisecond)
		}
	}
}

// round is one look around with a KILL for each that lives.
func (h *hunt) round() (alive []int) {
	all := h.reaper.descendants()
	_ = unix.Kill(-h.group, unix.SIGKILL)
	for _, p := range all {
		if !p.lives() {
			if p.parent == os.Getpid() && p.pid != h.group {
				_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
			}
			continue
		}
		if p.group != h.group {
			p.kill()
		}
		alive = append(alive, p.pid)
		if p.pid == h.group || h.seen[p.id()] {
			continue
		}
		h.seen[p.id()] = true
		if p.group == h.group {
			h.leftovers++
		} else {
			h.escaped++
		}
	}
	return alive
}

// subreaper is this process while it inherits the orphans of its descendants.
type subreaper struct {
	before map[int]bool // its children of before, which are none of the call's
}

func beSubreaper() subreaper {
	s := subreaper{before: map[int]bool{}}
	for _, p := range processes() {
		if p.parent == os.Getpid() {
			s.before[p.pid] = true
		}
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // Linux 3.4; without it only the group is reached
	return s
}

func (subreaper) stop() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

// descendants are the processes below this one, but for those that were there
// before. Zombies are among them.
func (s subreaper) descendants() (found []process) {
	all := processes()
	var below func(pid int) bool
	known := map[int]bool{os.Getpid(): true}
	below = func(pid int) bool {
		p, ok := all[pid]
		if !ok {
			return false
		}
		if yes, ok := known[pid]; ok {
			return yes
		}
		known[pid] = false // a table read while it changes can hold a circle
		known[pid] = !s.before[pid] && below(p.parent)
		return known[pid]
	}
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		if pid != os.Getpid() && below(pid) {
			found = append(found, all[pid])
		}
	}
	return found
}

// process is a line of the process table.
type process struct {
	pid, parent, group int
	state              string
	threads            int
	ticks              uint64 // start time: with the pid, names it for as long as it lives
}

// lives is false for a zombie, unless only its first thread is one.
func (p process) lives() bool {
	return p.state != "X" && (p.state != "Z" || p.threads > 1)
}

// id leaves out what changes while a process lives.
func (p process) id() process { return process{pid: p.pid, ticks: p.ticks} }

// kill kills this process and never one that was given its number meanwhile.
func (p process) kill() {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if now, ok := readProcess(p.pid); !ok || now.ticks != p.ticks {
		return
	}
	if err != nil { // a kernel before 5.3, or no descriptor to spare
		_ = unix.Kill(p.pid, unix.SIGKILL)
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// processes is the process table.
func processes() map[int]process {
	table := map[int]process{}
	proc, err := os.Open("/proc")
	if err != nil {
		return table
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readProcess(pid); ok {
				table[pid] = p
			}
		}
	}
	return table
}

// readProcess reads /proc/PID/stat: pid (name) state parent group session tty
// tpgid flags … threads itrealvalue starttime. The name may hold anything.
func readProcess(pid int) (process, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false // gone
	}
	f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, state: f[0]}
	p.parent, _ = strconv.Atoi(f[1])
	p.group, _ = strconv.Atoi(f[2])
	p.threads, _ = strconv.Atoi(f[17])
	p.ticks, _ = strconv.ParseUint(f[19], 10, 64)
	return p, true
}

// KillMarked kills the processes that have the variable KEY=value in their
// environment, and returns how many there were: what a call left when this
// program was killed beside it. Only processes that this user may look into
// are found, and the caller is never one of them.
func KillMarked(variable string) (killed int) {
	h := hunt{seen: map[process]bool{}}
	begin := time.Now()
	for {
		alive := false
		for pid, p := range processes() {
			if pid == os.Getpid() || !p.lives() || !hasVariable(pid, variable) {
				continue
			}
			p.kill()
			alive = true
			if !h.seen[p.id()] {
				h.seen[p.id()] = true
				killed++
			}
		}
		if !alive || time.Since(begin) > lastKill {
			return killed
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func hasVariable(pid int, variable string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), variable)
}

// keeper holds one output file of a call and keeps it small.
type keeper struct {
	path    string
	file    *os.File // nil: /dev/null
	err     error
	max     int64
	cut     int64 // bytes taken away so far
	done    chan struct{}
	stopped chan struct{}
}

// newKeeper makes the file. It is opened for appending, so that the call's
// next write lands at the end of what is left after a cut.
func newKeeper(path string, most int64) *keeper {
	k := &keeper{path: path, max: cmp.Or(most, DefaultMaxOutput), done: make(chan struct{}), stopped: make(chan struct{})}
	if path == "" {
		return k
	}
	k.file, k.err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if k.err == nil {
		if k.err = reserve(k.file, k.max); k.err != nil {
			_ = k.file.Close()
			_ = os.Remove(path)
		}
	}
	if k.err != nil {
		k.file = nil
		return k
	}
	go k.watch()
	return k
}

// reserve makes room for so many bytes. Its one error is that there is none: a
// full disk shall cost the output, not the call, which would fail at whatever
// it prints.
func reserve(file *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return &fs.PathError{Op: "write", Path: file.Name(), Err: err}
		default:
			return nil // or a file system that cannot reserve
		}
	}
}

// watch cuts the file whenever it has grown past its most. The call is never
// blocked; what it writes while it is cut may be lost.
func (k *keeper) watch() {
	defer close(k.stopped)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-k.done:
			return
		case <-tick.C:
			k.trim()
		}
	}
}

// trim keeps the newest half of the most, as the action log does.
func (k *keeper) trim() {
	size := k.size()
	if size <= k.max {
		return
	}
	newest := make([]byte, k.max/2)
	n, err := k.file.ReadAt(newest, size-int64(len(newest)))
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	if k.file.Truncate(0) == nil {
		_, _ = k.file.Write(newest[:n])
		k.cut += size - int64(n)
	}
}

func (k *keeper) size() int64 {
	info, err := k.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// last is the end of the file, for whoever asks why a call failed. After close.
func (k *keeper) last() string {
	file, err := os.Open(k.path)
	if k.file == nil || err != nil {
		return ""
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	const most = 4096
	text, _ := io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-most), math.MaxInt32))
	return string(text)
}

// close ends the watch and removes a file in which nothing was written.
func (k *keeper) close() Kept {
	if k.file == nil {
		return Kept{Err: k.err}
	}
	close(k.done)
	<-k.stopped
	k.trim()
	size := k.size()
	_ = k.file.Truncate(size) // gives back what was reserved
	_ = k.file.Close()
	kept := Kept{Path: k.path, Bytes: k.cut + size, Truncated: k.cut > 0}
	if size == 0 {
		kept.Path = ""
		_ = os.Remove(k.path)
	}
	return kept
}

// CallPath is where a call's program lies, or why it cannot be started; for
// whoever shows a plan.
func CallPath(argv []string) (string, error) {
	if len(argv) == 0 || argv[0] == "" {
		return "", errors.New("no command")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return "", fmt.Errorf("%s: %s", filepath.Base(argv[0]), startFailure(err))
	}
	return path, nil
}

// Self is this process, as [Alive] knows it.
func Self() (pid int, startTicks uint64) {
	p, _ := readProcess(os.Getpid())
	return os.Getpid(), p.ticks
}
