package notify

import (
	"bytes"
	"os"
	"time"

	"tickdog/check"
	"tickdog/state"
)

// maxLog is the size in bytes that an action log does not exceed.
const maxLog = 1 << 20

// LogOnce is Log for a line that a killed pass may have written already: it adds
// what and how, unless the log has what at that very second.
func LogOnce(path string, m check.Moment, what, how string) error {
	logged, _ := os.ReadFile(path) // if it cannot be read, Log says so
	start := m.Wall.Format(time.RFC3339) + " " + what + " "
	if bytes.Contains(append([]byte{'\n'}, logged...), []byte("\n"+start)) {
		return nil
	}
	return Log(path, m, what+" "+how)
}

// Log adds one line to the action log at path: the pass's local time in RFC
// 3339, then the line. Past 1 MiB the newest half is kept, in the same file. An
// empty path is no log.
func Log(path string, m check.Moment, line string) error {
	if path == "" {
		return nil
	}
	return state.AppendCapped(path, m.Wall.Format(time.RFC3339)+" "+line, maxLog)
}
