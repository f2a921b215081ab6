package units

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// says is a Run that answers the same whatever is asked, and keeps the question.
func says(r Result, asked *Command) func(context.Context, Command) Result {
	return func(_ context.Context, c Command) Result {
		*asked = c
		r.Argv = c.Argv
		return r
	}
}

func TestDockerRunning(t *testing.T) {
	for _, tc := range []struct {
		name           string
		result         Result
		running, known bool
		detail         string
	}{
		{"runs", Result{Stdout: []byte("true\n")}, true, true, ""},
		{"runs, with a warning", Result{Stdout: []byte("true\n"), Stderr: []byte("WARNING: Error loading config file\n")}, true, true, ""},
		{"does not run", Result{Stdout: []byte("false\n")}, false, true, ""},
		{"docker knows no such container", Result{Code: 1, Stdout: []byte("\n"), Stderr: []byte("Error response from daemon: No such container: lyra-brain\n")}, false, true, "no such container"},
		{"older docker", Result{Code: 1, Stderr: []byte("Error: No such object: lyra-brain\n")}, false, true, "no such container"},
		{"podman", Result{Code: 125, Stderr: []byte("Error: no such container lyra-brain\n")}, false, true, "no such container"},
		{"engine down", Result{Code: 1, Stderr: []byte("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n")}, false, false, "docker: exit 1: Cannot connect to the Docker daemon"},
		{"no permission", Result{Code: 1, Stderr: []byte("permission denied while trying to connect to the Docker daemon socket\n")}, false, false, "docker: exit 1: permission denied"},
		{"hangs", Result{Code: -1, TimedOut: true, limit: 15 * time.Second}, false, false, "docker: no end in 15 s"},
		{"hangs, having said no such container", Result{Code: -1, TimedOut: true, Stderr: []byte("No such container")}, false, false, "docker: no end"},
		{"left behind", Result{Code: -1, TimedOut: true, Left: true, PID: 812}, false, false, "docker: no end in"},
		{"says nothing", Result{}, false, false, "docker: no answer"},
		{"says something else", Result{Stdout: []byte("<no value>\n")}, false, false, "docker: no answer that is true or false"},
		{"is not there", Run(context.Background(), Command{Argv: []string{"no-such-program-anywhere"}}), false, false, "docker: not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var asked Command
			d := Docker{Program: "docker", Run: says(tc.result, &asked)}
			running, known, detail := d.Running(context.Background(), "lyra-brain")
			if running != tc.running || known != tc.known || !strings.HasPrefix(detail, tc.detail) || (tc.detail == "") != (detail == "") {
				t.Errorf("got %v %v %q, want %v %v %q", running, known, detail, tc.running, tc.known, tc.detail)
			}
			if !slices.Equal(asked.Argv, d.RunningArgv("lyra-brain")) || asked.Timeout != 15*time.Second {
				t.Errorf("asked %q within %v", asked.Argv, asked.Timeout)
			}
		})
	}
}

func TestDockerActs(t *testing.T) {
	var asked Command
	d := Docker{Program: "/opt/podman", Timeout: time.Second, Run: says(Result{}, &asked)}
	d.Stop(context.Background(), "x", 30*time.Second)
	if want := []string{"/opt/podman", "stop", "-t", "15", "x"}; !slices.Equal(asked.Argv, want) || asked.Timeout != 30*time.Second {
		t.Errorf("stop: %q within %v", asked.Argv, asked.Timeout)
	}
	d.Kill(context.Background(), "x")
	if want := []string{"/opt/podman", "kill", "x"}; !slices.Equal(asked.Argv, want) || asked.Timeout != time.Second {
		t.Errorf("kill: %q within %v", asked.Argv, asked.Timeout)
	}
	if got := d.StopArgv("x", time.Second); got[3] != "0" {
		t.Errorf("a second to stop in: %q", got)
	}
}
