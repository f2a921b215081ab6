package units

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Systemctl asks and restarts units of the system's or of the user's manager.
type Systemctl struct {
	User    bool                                  // --user
	Timeout time.Duration                         // for a question; 0 = 15 s
	Run     func(context.Context, Command) Result // nil = Run
}

// Show asks for properties of several units in one call. The answer is keyed
// by the names that were asked for (an alias answers under its own name) and
// holds Id besides, so that no unit's is empty; a unit that does not exist is in it with LoadState
// "not-found". Values are as systemctl prints them, "" if not set. The error
// is the manager that can't be asked, for all of them at once.
func (s Systemctl) Show(ctx context.Context, units, props []string) (map[string]map[string]string, error) {
	if len(units) == 0 {
		return map[string]map[string]string{}, nil
	}
	r := s.run(ctx, s.ShowArgv(units, props), s.timeout())
	if failure := r.Failure(); failure != "" {
		return nil, errors.New(failure)
	}
	if strings.Contains(string(r.Stderr), "Failed to connect to bus") {
		return nil, errors.New("systemctl" + detail(r.Stderr))
	}
	blocks, err := parseShow(string(r.Stdout))
	if err != nil {
		return nil, err
	}
	if len(blocks) != len(units) {
		return nil, fmt.Errorf("systemctl: %d answers to %d units", len(blocks), len(units))
	}
	shown := make(map[string]map[string]string, len(units))
	for i, unit := range units { // it answers in the order of the question
		shown[unit] = blocks[i]
	}
	return shown, nil
}

// parseShow reads blocks of key=value lines with blank lines between them.
func parseShow(out string) ([]map[string]string, error) {
	var blocks []map[string]string
	var block map[string]string
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			block = nil
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("systemctl: not a property: %.80q", line)
		}
		if block == nil {
			block = map[string]string{}
			blocks = append(blocks, block)
		}
		block[key] = value
	}
	return blocks, nil
}

// Restart restarts a unit and comes back when systemd is done with it, or
// after timeout and a few seconds; systemd goes on by itself then.
func (s Systemctl) Restart(ctx context.Context, unit string, timeout time.Duration) Result {
	return s.run(ctx, s.RestartArgv(unit), timeout)
}

// ResetFailed clears a unit's failed state and its start limit.
func (s Systemctl) ResetFailed(ctx context.Context, unit string) Result {
	return s.run(ctx, s.ResetFailedArgv(unit), s.timeout())
}

// ShowArgv is the question that Show asks.
func (s Systemctl) ShowArgv(units, props []string) []string {
	property := "--property=" + strings.Join(append([]string{"Id"}, props...), ",")
	return s.argv(append([]string{"show", "--no-pager", property, "--"}, units...)...)
}

// RestartArgv is what Restart runs.
func (s Systemctl) RestartArgv(unit string) []string { return s.argv("restart", unit) }

// ResetFailedArgv is what ResetFailed runs.
func (s Systemctl) ResetFailedArgv(unit string) []string { return s.argv("reset-failed", unit) }

// DaemonReloadArgv makes the manager read its unit files again.
func (s Systemctl) DaemonReloadArgv() []string { return s.argv("daemon-reload") }

// EnableNowArgv enables a unit and starts it.
func (s Systemctl) EnableNowArgv(unit string) []string { return s.argv("enable", "--now", unit) }

// DisableNowArgv disables a unit and stops it.
func (s Systemctl) DisableNowArgv(unit string) []string { return s.argv("disable", "--now", unit) }

// UnmaskArgv lets a masked unit be started again.
func (s Systemctl) UnmaskArgv(unit string) []string { return s.argv("unmask", unit) }

// StopArgv stops a unit.
func (s Systemctl) StopArgv(unit string) []string { return s.argv("stop", unit) }

func (s Systemctl) argv(args ...string) []string {
	if s.User {
		args = append([]string{"--user"}, args...)
	}
	return append([]string{"systemctl"}, args...)
}

func (s Systemctl) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return 15 * time.Second
}

// Do runs one of the argvs above, bounded.
func (s Systemctl) Do(ctx context.Context, argv []string, timeout time.Duration) Result {
	return s.run(ctx, argv, timeout)
}

func (s Systemctl) run(ctx context.Context, argv []string, timeout time.Duration) Result {
	run := s.Run
	if run == nil {
		run = Run
	}
	env := []string{"LC_ALL=C"}
	if s.User {
		env = append(env, runtimeDir()...)
	}
	return run(ctx, Command{Argv: argv, Env: env, Timeout: timeout, Grace: 3 * time.Second, Key: "systemctl"})
}

// runtimeDir tells systemctl where the user's manager listens when the
// environment does not: sudo -u and cron leave it out.
func runtimeDir() []string {
	if os.Getenv("XDG_RUNTIME_DIR") != "" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return nil
	}
	dir := fmt.Sprintf("/run/user/%d", os.Getuid())
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return []string{"XDG_RUNTIME_DIR=" + dir}
}
