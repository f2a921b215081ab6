package check

import "time"

// Verdict is what a pass says about one subject. The five words are the same
// in every command, in its lines, its JSON and its metrics.
type Verdict string

const (
	Rest    Verdict = "rest"    // nothing to do
	Watch   Verdict = "watch"   // something is building up
	Act     Verdict = "act"     // done, or would be under --dry-run
	Hold    Verdict = "hold"    // would act, or a person should look, but a rule forbids it
	Unknown Verdict = "unknown" // could not see
)

// Verdicts lists the five words, mildest first.
var Verdicts = []Verdict{Rest, Watch, Act, Hold, Unknown}

// Moment is the one moment of a pass. main reads it once and hands it down;
// whoever decides takes it as an argument and reads no clock.
type Moment struct {
	Wall   time.Time // wall clock, with the local zone: for people, logs and what must outlive a reboot
	Boot   float64   // CLOCK_BOOTTIME in seconds: counts suspend, ignores clock steps
	BootID string    // /proc/sys/kernel/random/boot_id: two boottimes compare only within one boot
}

// Epoch is the wall clock in whole seconds, as state files keep it.
func (m Moment) Epoch() int64 { return m.Wall.Unix() }

// Since is the time since a boottime recorded on bootID. It is not known
// (false) after a reboot, and for a stamp that lies in the future.
func (m Moment) Since(boot float64, bootID string) (time.Duration, bool) {
	if bootID != m.BootID || boot > m.Boot {
		return 0, false
	}
	return time.Duration((m.Boot - boot) * float64(time.Second)), true
}
