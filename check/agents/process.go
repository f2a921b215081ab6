package agents

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, in which /proc counts CPU time. It is 100 on
// every architecture that Go runs on.
const ticksPerSecond = 100

// Process is [ReadProcess] where the prober finds /proc.
func (p Prober) Process(pid int) Process { return ReadProcess(p.Proc, pid) }

// ReadProcess reads the state letter and the CPU time of a process from
// proc/PID/stat. What cannot be read is unknown.
func ReadProcess(proc string, pid int) Process {
	if pid <= 0 {
		return Process{}
	}
	stat, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}
	}
	return parseStat(string(stat))
}

// parseStat reads one line of /proc/PID/stat. The name of the program comes
// second, in parentheses, and may itself hold blanks and parentheses.
func parseStat(stat string) Process {
	const state, utime, stime = 0, 11, 12 // counted from behind the name
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(f) <= stime || len(f[state]) != 1 {
		return Process{}
	}
	p := Process{State: f[state]}
	user, err1 := strconv.ParseUint(f[utime], 10, 63)
	system, err2 := strconv.ParseUint(f[stime], 10, 63)
	if err1 == nil && err2 == nil {
		p.CPU, p.CPUKnown = float64(user+system)/ticksPerSecond, true
	}
	return p
}
