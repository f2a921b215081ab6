// Measure runs a program and writes what it took to descriptor 3: nanoseconds
// on the clock, microseconds of CPU, KiB at the peak, and its exit status. It
// is a program of its own, and small, because Linux counts the memory of
// whoever starts a program as that program's until it is loaded.
package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	begin := time.Now()
	pid, err := syscall.ForkExec(os.Args[1], os.Args[1:], &syscall.ProcAttr{
		Env: syscall.Environ(), Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		os.Stderr.WriteString(os.Args[1] + ": " + err.Error() + "\n")
		os.Exit(127)
	}
	var status syscall.WaitStatus
	var use syscall.Rusage
	if _, err := syscall.Wait4(pid, &status, 0, &use); err != nil {
		os.Exit(126)
	}
	wall := time.Since(begin)
	cpu := (use.Utime.Sec+use.Stime.Sec)*1e6 + use.Utime.Usec + use.Stime.Usec
	line := strconv.FormatInt(int64(wall), 10) + " " + strconv.FormatInt(cpu, 10) + " " +
		strconv.FormatInt(use.Maxrss, 10) + " " + strconv.Itoa(status.ExitStatus()) + "\n"
	syscall.Write(3, []byte(line))
}
