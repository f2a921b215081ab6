package agents

import (
	"math"
	"strconv"
)

// UnitProperties are what has to be asked of `systemctl show`, for ReadUnit
// and Prober.Look.
var UnitProperties = []string{
	"LoadState", "ActiveState", "SubState", "Result",
	"MainPID", "NRestarts", "CPUUsageNSec",
	"InactiveExitTimestampMonotonic", "ActiveExitTimestampMonotonic", "ExecMainExitTimestampMonotonic",
}

// ReadUnit makes sense of one unit's properties, as systemctl printed them
// when CLOCK_MONOTONIC stood at monotonic microseconds (0: not known). Without
// a LoadState, systemd was not asked or said nothing.
func ReadUnit(properties map[string]string, monotonic uint64) Unit {
	if properties["LoadState"] == "" {
		return Unit{}
	}
	u := Unit{
		Asked:       true,
		LoadState:   properties["LoadState"],
		ActiveState: properties["ActiveState"],
		SubState:    properties["SubState"],
		Result:      properties["Result"],
		Monotonic:   monotonic,
	}
	if pid, ok := number(properties["MainPID"]); ok && pid <= math.MaxInt32 {
		u.MainPID = int(pid)
	}
	if n, ok := number(properties["NRestarts"]); ok && n <= math.MaxInt32 {
		u.NRestarts, u.NRestartsKnown = int(n), true
	}
	u.InactiveExit, _ = number(properties["InactiveExitTimestampMonotonic"])
	u.ActiveExit, _ = number(properties["ActiveExitTimestampMonotonic"])
	u.ExecMainExit, _ = number(properties["ExecMainExitTimestampMonotonic"])
	return u
}

// number reads a count of systemd's. `[not set]` and the largest number, which
// older versions print instead, are no number.
func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == math.MaxUint64 {
		return 0, false
	}
	return n, true
}
