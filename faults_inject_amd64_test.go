package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	testCommands["inject"] = injectFault
}

// faultyCalls are the system calls at which a pass is hit: those that write,
// sync, rename, remove, lock, connect, send or execute.
var faultyCalls = map[uint64]string{
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_WRITEV: "writev",
	unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_SOCKET: "socket", unix.SYS_CONNECT: "connect",
	unix.SYS_OPENAT: "openat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FLOCK: "flock",
	unix.SYS_RENAME: "rename", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_UNLINK: "unlink", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_PIPE2: "pipe2", unix.SYS_EXECVE: "execve",
}

// injector runs a program under ptrace and hits it at the n-th of those calls,
// counted over all its threads in the order in which they happen. (strace
// counts each thread for itself, and a Go program's calls wander over threads.)
// Children are followed up to their execve, which counts, and then let go.
type injector struct {
	main    int
	at      int
	errno   syscall.Errno // 0: SIGKILL
	count   int
	hit     string       // the call that was hit
	threads map[int]bool // tracees; true inside a system call
	failing map[int]bool // threads whose call was made to fail
	child   map[int]bool // tracees that are no threads of main
	status  syscall.WaitStatus
}

// injectFault is `inject KILL|ENOSPC|… N PROGRAM ARG…`. It prints to descriptor
// 3 what it hit and how the program ended.
func injectFault() {
	runtime.LockOSThread() // ptrace knows its tracer by the thread
	in := &injector{threads: map[int]bool{}, failing: map[int]bool{}, child: map[int]bool{}}
	in.errno = map[string]syscall.Errno{"ENOSPC": unix.ENOSPC, "EIO": unix.EIO, "EROFS": unix.EROFS, "EMFILE": unix.EMFILE}[os.Args[1]]
	in.at, _ = strconv.Atoi(os.Args[2])
	report := os.NewFile(3, "report")
	syscall.CloseOnExec(3)
	cmd := exec.Command(os.Args[3], os.Args[4:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(report, "cannot trace:", err)
		os.Exit(2)
	}
	in.main = cmd.Process.Pid
	if err := in.trace(); err != nil {
		fmt.Fprintln(report, "cannot trace:", err)
		os.Exit(2)
	}
	fmt.Fprintf(report, "hit=%s count=%d exit=%d signal=%d\n", in.hit, in.count, in.status.ExitStatus(), in.status.Signal())
}

func (in *injector) trace() error {
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(in.main, &ws, 0, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC
	if err := syscall.PtraceSetOptions(in.main, options); err != nil {
		return err
	}
	in.threads[in.main] = false
	if err := syscall.PtraceSyscall(in.main, 0); err != nil {
		return err
	}
	for {
		tid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if ws.Exited() || ws.Signaled() {
			if tid == in.main {
				in.status = ws
				return nil
			}
			delete(in.threads, tid)
			continue
		}
		in.stopped(tid, ws)
	}
}

// stopped handles one stop and lets the thread go on. A thread that is gone
// meanwhile (the program was killed) is no matter.
func (in *injector) stopped(tid int, ws syscall.WaitStatus) {
	signal := ws.StopSignal()
	if _, known := in.threads[tid]; !known {
		in.threads[tid] = false
		in.child[tid] = !strings.Contains(readFile(fmt.Sprintf("/proc/%d/status", tid)), fmt.Sprintf("\nTgid:\t%d\n", in.main))
		if signal == syscall.SIGSTOP { // how a new one begins
			signal = 0
		}
	}
	switch {
	case signal == syscall.SIGTRAP|0x80:
		inside := !in.threads[tid]
		in.threads[tid] = inside
		if inside {
			in.entering(tid)
		} else if in.failing[tid] {
			delete(in.failing, tid)
			var regs syscall.PtraceRegs
			if syscall.PtraceGetRegs(tid, &regs) == nil {
				regs.Rax = uint64(-int64(in.errno))
				_ = syscall.PtraceSetRegs(tid, &regs)
			}
		}
		signal = 0
	case signal == syscall.SIGTRAP:
		if ws.TrapCause() == unix.PTRACE_EVENT_EXEC && tid != in.main {
			_ = syscall.PtraceDetach(tid) // another program now, and none of ours
			return
		}
		signal = 0
	}
	_ = syscall.PtraceSyscall(tid, int(signal))
}

// entering counts the call that a thread is about to make, and hits it.
func (in *injector) entering(tid int) {
	var regs syscall.PtraceRegs
	if syscall.PtraceGetRegs(tid, &regs) != nil || !in.counts(tid, &regs) {
		return
	}
	if in.count == 0 && faultyCalls[regs.Orig_rax] == "pipe2" {
		return // a package that only the tests have, before main
	}
	in.count++
	if in.count != in.at {
		return
	}
	in.hit = faultyCalls[regs.Orig_rax]
	if in.errno == 0 {
		// A child that was about to become another program goes on without it.
		_ = syscall.Kill(in.main, syscall.SIGKILL)
		return
	}
	regs.Orig_rax = ^uint64(0) // no such call: the kernel does nothing
	if syscall.PtraceSetRegs(tid, &regs) == nil {
		in.failing[tid] = true
	}
}

func (in *injector) counts(tid int, regs *syscall.PtraceRegs) bool {
	name, ok := faultyCalls[regs.Orig_rax]
	switch {
	case !ok:
		return false
	case in.child[tid]:
		return name == "execve"
	case name == "execve":
		return false
	case name == "openat":
		return regs.Rdx&(unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT) != 0
	case name == "write": // not the runtime's own wake-ups
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", in.main, regs.Rdi))
		return !strings.HasPrefix(to, "anon_inode:")
	}
	return true
}
