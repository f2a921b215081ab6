package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// hangingFleet is a place with a configuration for n agents that take every
// connection and never answer.
func hangingFleet(t *testing.T, n int) (dir string) {
	dir = t.TempDir()
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(hang.Close)
	config := fmt.Sprintf("state_dir = %q\n[agents]\nlock = %q\nlog = %q\nhealth_timeout = \"20ms\"\ndispatch_timeout = \"20ms\"\n",
		dir+"/state", dir+"/lock", dir+"/log")
	for i := range n {
		config += fmt.Sprintf("[[agents.agent]]\nname = \"a%d\"\nunit = \"a%d.service\"\nurl = \"%s/%d\"\n", i, i, hang.URL, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "tickdog.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	// Every unit runs; none may be restarted here, for each is asked for the first time.
	systemctl := `#!/bin/sh
shift 4
for unit; do
	[ "$unit" = -- ] || printf 'Id=%s\nLoadState=loaded\nActiveState=active\nSubState=running\nMainPID=1\nNRestarts=0\nInactiveExitTimestampMonotonic=1\n\n' "$unit"
done
`
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/systemctl"), []byte(systemctl), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestManyPassesLeaveNothing runs pass after pass inside one process, where
// whatever one of them leaves would add up.
func TestManyPassesLeaveNothing(t *testing.T) {
	dir := hangingFleet(t, 4)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("TICKDOG_CONFIG", filepath.Join(dir, "tickdog.toml"))
	passes := 200
	if testing.Short() {
		passes = 20
	}
	var out bytes.Buffer
	pass := func() {
		out.Reset()
		p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: os.Getenv, moment: readClock}
		if status := p.run([]string{"tickdog", "agents", "--verbose"}); status != 0 {
			t.Fatalf("exit status %d\n%s", status, &out)
		}
		if !strings.Contains(out.String(), "0/4 answer") {
			t.Fatal(out.String())
		}
	}
	pass()
	before := whatIsOpen(t)
	for range passes {
		pass()
	}
	after := whatIsOpen(t)
	for begin := time.Now(); after != before && time.Since(begin) < 20*time.Second; after = whatIsOpen(t) {
		time.Sleep(20 * time.Millisecond) // the other end of a connection takes a moment to see its end
	}
	if after != before {
		stacks := make([]byte, 1<<20)
		t.Errorf("before and after %d passes: %+v, %+v\n%s", passes, before, after, stacks[:runtime.Stack(stacks, true)])
	}
}

// open is what a process holds.
type open struct{ descriptors, children, goroutines int }

func whatIsOpen(t *testing.T) (o open) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats { // zombies are children too
		_, rest, _ := strings.Cut(readFile(path), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(os.Getpid()) {
			o.children++
		}
	}
	o.descriptors, o.goroutines = len(fds), runtime.NumGoroutine()
	return o
}

// TestEightAtOnce: of eight passes that start at the same moment exactly one
// runs; the others say so and exit with status 0.
func TestEightAtOnce(t *testing.T) {
	dir := hangingFleet(t, 1)
	// The one that runs has to be at it until the last of the others has come.
	config := strings.ReplaceAll(readFile(filepath.Join(dir, "tickdog.toml")), `"20ms"`, `"2s"`)
	if err := os.WriteFile(filepath.Join(dir, "tickdog.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	outs := make([]string, 8)
	for i := range outs {
		wg.Go(func() {
			cmd := exec.Command(self, "agents", "--verbose")
			cmd.Args[0] = "tickdog"
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
				"XDG_RUNTIME_DIR="+dir, "TICKDOG_CONFIG="+filepath.Join(dir, "tickdog.toml"), "TEST_AT=")
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, text)
			}
			outs[i] = string(text)
		})
	}
	wg.Wait()
	ran, busy := 0, 0
	for _, out := range outs {
		switch {
		case strings.Contains(out, "0/1 answer"):
			ran++
		case out == "another pass holds "+dir+"/lock; nothing done\n":
			busy++
		default:
			t.Error(out)
		}
	}
	if ran != 1 || busy != 7 {
		t.Errorf("%d ran, %d found it busy", ran, busy)
	}
	if left, _ := filepath.Glob(dir + "/state/*.new"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
