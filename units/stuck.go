package units

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"tickdog/check"
)

// Stuck is a child that even KILL did not end, as a state file keeps it, so
// that no later pass starts a second one beside it.
type Stuck struct {
	Key        string // which command, without blanks
	PID        int
	StartTicks uint64 // clock ticks from boot to its start
	Since      int64  // epoch
	BootID     string
}

// StuckHeader names the columns of the state file that keeps Stuck lines.
const StuckHeader = "<command> <pid> <start_ticks> <epoch> <boot_id>; a child that could not be killed, not started again while it lives. Deleting this file starts it anyway."

// Stuck is the line to keep when r.Left.
func (r Result) Stuck(m check.Moment) Stuck {
	return Stuck{Key: r.Key, PID: r.PID, StartTicks: r.StartTicks, Since: m.Epoch(), BootID: m.BootID}
}

// String is the state line: <key> <pid> <start_ticks> <epoch> <boot_id>.
func (s Stuck) String() string {
	return fmt.Sprintf("%s %d %d %d %s", s.Key, s.PID, s.StartTicks, s.Since, s.BootID)
}

// ParseStuck reads what String wrote.
func ParseStuck(line string) (Stuck, error) {
	f := strings.Split(line, " ")
	if len(f) < 5 {
		return Stuck{}, fmt.Errorf("%d columns instead of 5", len(f))
	}
	s := Stuck{Key: f[0], BootID: f[4]}
	var err error
	if s.PID, err = strconv.Atoi(f[1]); err != nil || s.PID <= 0 {
		return Stuck{}, fmt.Errorf("pid %q is no process number", f[1])
	}
	if s.StartTicks, err = strconv.ParseUint(f[2], 10, 64); err != nil {
		return Stuck{}, fmt.Errorf("start_ticks %q is no number", f[2])
	}
	if s.Since, err = strconv.ParseInt(f[3], 10, 64); err != nil {
		return Stuck{}, fmt.Errorf("epoch %q is no number", f[3])
	}
	if s.Key == "" || s.BootID == "" {
		return Stuck{}, fmt.Errorf("an empty column")
	}
	return s, nil
}

// Alive tells whether the process is still there. It is not after a reboot.
func (s Stuck) Alive(m check.Moment) bool {
	return s.BootID == m.BootID && Alive(s.PID, s.StartTicks)
}

// Alive tells whether the process pid that started at startTicks still
// lives. A zombie doesn't, nor another process that was given its number.
func Alive(pid int, start uint64) bool {
	state, ticks, ok := procStat(pid)
	return ok && ticks == start && state != "Z" && state != "X"
}

func startTicks(pid int) (uint64, bool) {
	_, ticks, ok := procStat(pid)
	return ticks, ok
}

// procStat reads the state letter and the start time (fields 3 and 22) of
// /proc/PID/stat. The second field is the name in parentheses and may hold
// blanks and parentheses itself, so what counts begins after the last one.
func procStat(pid int) (state string, ticks uint64, ok bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(f) < 20 {
		return "", 0, false
	}
	ticks, err = strconv.ParseUint(f[19], 10, 64)
	return f[0], ticks, err == nil
}
