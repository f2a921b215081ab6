package units

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Docker asks and stops containers through the docker or podman program.
// The program is used rather than the socket because it is what a person
// would type, and because it can be bounded and left behind like any other.
type Docker struct {
	Program string                                // "docker", "podman" or a path
	Timeout time.Duration                         // for a question and for kill; 0 = 15 s
	Run     func(context.Context, Command) Result // nil = Run
}

// Running tells whether the container runs. known is false if the engine
// could not be asked; detail then says why. A container that does not exist
// is known not to run, and detail says that.
func (d Docker) Running(ctx context.Context, name string) (running, known bool, detail string) {
	r := d.run(ctx, d.RunningArgv(name), d.timeout())
	answer := strings.TrimSpace(string(r.Stdout))
	switch failure := r.Failure(); {
	case failure == "" && answer == "true":
		return true, true, ""
	case failure == "" && answer == "false":
		return false, true, ""
	case failure == "":
		return false, false, fmt.Sprintf("%s: no answer that is true or false: %.80q", d.Program, answer)
	case r.Code > 0 && noSuchContainer(r.Stderr):
		return false, true, "no such container"
	default:
		return false, false, failure
	}
}

// noSuchContainer knows the wordings of docker ("No such container: x", "No
// such object: x") and podman ("no such container x", "no container with name
// or ID").
func noSuchContainer(stderr []byte) bool {
	s := strings.ToLower(string(stderr))
	return strings.Contains(s, "no such container") || strings.Contains(s, "no such object") ||
		strings.Contains(s, "no container with name or id")
}

// Stop stops the container and comes back after at most timeout and a few
// seconds; whether it stopped is for Running to say.
func (d Docker) Stop(ctx context.Context, name string, timeout time.Duration) Result {
	return d.run(ctx, d.StopArgv(name, timeout), timeout)
}

// Kill kills the container at once.
func (d Docker) Kill(ctx context.Context, name string) Result {
	return d.run(ctx, d.KillArgv(name), d.timeout())
}

// RunningArgv is the question that Running asks.
func (d Docker) RunningArgv(name string) []string {
	return []string{d.Program, "inspect", "-f", "{{.State.Running}}", "--type", "container", name}
}

// StopArgv is what Stop runs. The container gets half of the time to end by
// itself; the other half is the engine's, to kill it and clean up.
func (d Docker) StopArgv(name string, timeout time.Duration) []string {
	return []string{d.Program, "stop", "-t", strconv.Itoa(int(timeout.Seconds() / 2)), name}
}

// KillArgv is what Kill runs.
func (d Docker) KillArgv(name string) []string { return []string{d.Program, "kill", name} }

func (d Docker) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return 15 * time.Second
}

func (d Docker) run(ctx context.Context, argv []string, timeout time.Duration) Result {
	run := d.Run
	if run == nil {
		run = Run
	}
	return run(ctx, Command{Argv: argv, Env: []string{"LC_ALL=C"}, Timeout: timeout, Grace: 3 * time.Second, MaxOutput: 64 << 10, Key: "docker"})
}
