package notify

import (
	"time"

	"tickdog/check"
	"tickdog/state"
)

// maxLog is the size in bytes that an action log does not exceed.
const maxLog = 1 << 20

// Log adds one line to the action log at path: the pass's local time in RFC
// 3339, then the line. Past 1 MiB the newest half is kept, in the same file. An
// empty path is no log.
func Log(path string, m check.Moment, line string) error {
	if path == "" {
		return nil
	}
	return state.AppendCapped(path, m.Wall.Format(time.RFC3339)+" "+line, maxLog)
}
