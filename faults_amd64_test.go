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
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A pass is hit at every system call at which it writes, syncs, renames,
// removes, connects, sends or executes: by SIGKILL, and by each of the errors
// a bad disk or a full process table gives. Whatever the point: never a second
// restart inside the budget, never an act without its alert, never a state
// file that cannot be read, and in the end the job is done.

// world is a machine as one pass and those after it see it.
type world struct {
	*testing.T
	dir     string
	mu      sync.Mutex
	alerts  []string // as ntfy got them
	printed []string // by all passes, for when something is wrong
}

// newWorld has tickdog, the programs it runs, an ntfy and one agent.
func newWorld(t *testing.T) *world {
	w := &world{T: t, dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.mkdir("bin")
	for _, name := range []string{"tickdog", "inject"} {
		// No symbolic link: the pass starts itself again as its sensor's child.
		if err := os.Link(self, w.path("bin/"+name)); err != nil {
			copyFile(t, self, w.path("bin/"+name))
		}
	}
	ntfy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.alerts = append(w.alerts, string(body))
	}))
	t.Cleanup(ntfy.Close)
	agent := httptest.NewServer(http.HandlerFunc(w.agent))
	t.Cleanup(agent.Close)
	w.write("tickdog.toml", fmt.Sprintf(`state_dir = "state"
[gpu]
lock = "gpu.lock"
log = "gpu.log"
source = "sysfs"
sysfs = "sys"
idle_samples = 0
[agents]
lock = "agents.lock"
log = "agents.log"
settle = "2s"
[[agents.agent]]
name = "nova"
unit = "lab-a2a-nova.service"
url = %q
[notify.ntfy]
url = %q
`, agent.URL, ntfy.URL+"/topic"))
	return w
}

func copyFile(t *testing.T, from, to string) {
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) mkdir(name string) {
	if err := os.MkdirAll(w.path(name), 0o700); err != nil {
		w.Fatal(err)
	}
}

func (w *world) write(name, text string) {
	w.mkdir(filepath.Dir(name))
	if err := os.WriteFile(w.path(name), []byte(text), 0o755); err != nil {
		w.Fatal(err)
	}
}

// agent is well by its own account; until it was restarted it cuts every
// message off.
func (w *world) agent(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		fmt.Fprint(rw, `{"agent":"nova","status":"running","circuit_open":false,"current_task":null}`)
		return
	}
	if _, err := os.Stat(w.path("restarted")); err != nil {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body)
	id := regexp.MustCompile(`"id":\s*("[^"]*"|\d+)`).FindSubmatch(body)
	fmt.Fprintf(rw, `{"jsonrpc":"2.0","id":%s,"result":{"kind":"message","role":"agent","messageId":"m","parts":[{"kind":"text","text":"ok"}]}}`, id[1])
}

// pass runs a pass at the moment, hit by fault at its n-th call if n is above
// 0. It tells what was hit; "" if the pass has no such call.
func (w *world) pass(guard string, at int, fault string, n int) (hit string) {
	argv := []string{w.path("bin/tickdog"), guard}
	if n > 0 {
		argv = append([]string{w.path("bin/inject"), fault, fmt.Sprint(n)}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "PATH="+w.path("bin")+":"+os.Getenv("PATH"), "HOME="+w.dir, "XDG_RUNTIME_DIR="+w.dir,
		"TICKDOG_CONFIG=tickdog.toml", "TZ=UTC", fmt.Sprintf("TEST_AT=%d", at))
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	read, report, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	defer read.Close()
	cmd.ExtraFiles = []*os.File{report}
	err = cmd.Run()
	report.Close()
	var ended string
	if n > 0 {
		line, _ := io.ReadAll(read)
		ended = string(line)
		if _, e := fmt.Sscanf(strings.Replace(ended, "hit= ", "hit=- ", 1), "hit=%s", &hit); e != nil || strings.Contains(ended, "cannot trace") {
			w.Skipf("no ptrace here: %s%s", ended, &text)
		}
		hit = strings.TrimPrefix(hit, "-")
	}
	w.printed = append(w.printed, fmt.Sprintf("%s at %d, %s %d hit %q: %v %s\n%s", guard, at, fault, n, hit, err, ended, &text))
	killed := fault == "KILL" && hit != ""
	if err != nil || n > 0 && !killed && !strings.Contains(ended, "exit=0 ") {
		w.Errorf("it did not end with status 0")
	}
	if strings.Contains(text.String(), "set aside") {
		w.Errorf("a state file could not be read")
	}
	return hit
}

// told counts the alerts that say so.
func (w *world) told(what string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.alerts {
		if strings.Contains(a, what) {
			n++
		}
	}
	return n
}

func (w *world) explain() {
	if !w.Failed() {
		return
	}
	for _, text := range w.printed {
		w.Log(text)
	}
	w.Logf("alerts: %q", w.alerts)
	_ = filepath.WalkDir(w.path("state"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			w.Logf("%s:\n%s", path, readFile(path))
		}
		return nil
	})
}

// everyPoint runs one world for each call and fault. Without TICKDOG_FAULTS=all
// the errors take turns: the first call meets the first of them, and so on.
func everyPoint(t *testing.T, one func(t *testing.T, fault string, n int) (hit string)) {
	if testing.Short() {
		t.Skip("some hundred passes")
	}
	kill, errors := []string{"KILL"}, []string{"ENOSPC", "EIO", "EROFS", "EMFILE"}
	runs := [][]string{kill, errors}
	if os.Getenv("TICKDOG_FAULTS") == "all" {
		runs = [][]string{kill, errors[:1], errors[1:2], errors[2:3], errors[3:]}
	}
	points := map[string]int{}
	var mu sync.Mutex
	for _, faults := range runs {
		t.Run(strings.Join(faults, "+"), func(t *testing.T) {
			t.Parallel()
			hit := "-"
			for n := 1; hit != ""; n++ {
				fault := faults[n%len(faults)]
				hit = ""
				t.Run(fmt.Sprint(fault, " ", n), func(t *testing.T) { hit = one(t, fault, n) })
				mu.Lock()
				points[fault+" at "+hit]++
				mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		var lines []string
		for point, n := range points {
			if strings.HasSuffix(point, " at ") {
				continue // the one after the last
			}
			lines = append(lines, fmt.Sprintf("%s: %d", point, n))
		}
		slices.Sort(lines)
		t.Log(strings.Join(lines, ", "))
	})
}

// TestFaultsInAStop hits the GPU pass that trips.
func TestFaultsInAStop(t *testing.T) {
	everyPoint(t, func(t *testing.T, fault string, n int) string {
		w := newWorld(t)
		defer w.explain()
		w.write("container", "true\n")
		if err := os.CopyFS(w.path("sys"), os.DirFS("testdata/captures/sysfs/single-mi50")); err != nil {
			t.Fatal(err)
		}
		w.write("bin/docker", `#!/bin/sh
case $1 in
inspect) cat container;;
stop) echo stop >>stops; echo false >container; echo 0 >sys/class/drm/card0/device/gpu_busy_percent;;
esac
`)
		w.write("state/mi50-watchdog-busy", "# card busy_seconds hot_checks checked_boottime boot_id\n"+
			"0000:03:00.0 3590 0 9960 boot-1 busy_boottime=9960\n")
		hit := w.pass("gpu", 0, fault, n)
		w.pass("gpu", 120, "", 0)
		w.pass("gpu", 3900, "", 0) // whatever had to wait has waited
		if readFile(w.path("container")) != "false\n" {
			t.Error("the container still runs")
		}
		stops := strings.Count(readFile(w.path("stops")), "stop")
		// Told how it ended, or that nobody saw, or that it seems to have failed;
		// twice at most, if what was sent could not be crossed off.
		stopped, unseen, failed := w.told("mi50-watchdog: stopped lyra-brain (busy 3"), w.told("mi50-watchdog: stop of lyra-brain (busy 3"), w.told("mi50-watchdog: could not stop lyra-brain (busy 3")
		if told := stopped + unseen + failed; stops < 1 || told < 1 || stopped+unseen > stops+1 || failed > 1 {
			t.Errorf("%d stops; told %d times that it was stopped, %d unseen, %d failed", stops, stopped, unseen, failed)
		}
		return hit
	})
}

// TestFaultsInARestart hits the agents' pass that restarts.
func TestFaultsInARestart(t *testing.T) {
	everyPoint(t, func(t *testing.T, fault string, n int) string {
		w := newWorld(t)
		defer w.explain()
		w.write("bin/systemctl", oneAgentSystemctl)
		restarts := func() int { return strings.Count(readFile(w.path("restarts")), "restart") }
		w.pass("agents", 0, "", 0)
		if restarts() > 0 {
			t.Fatal("a restart at the first dead probe")
		}
		hit := w.pass("agents", 120, fault, n)
		w.pass("agents", 240, "", 0)
		w.pass("agents", 600, "", 0)
		if n := restarts(); n > 1 {
			t.Errorf("%d restarts inside the budget", n)
		}
		w.pass("agents", 840, "", 0)
		w.pass("agents", 960, "", 0)
		told := w.told("a2a-selfheal: restarted lab-a2a-nova.service (wedged")
		if n := restarts(); n != 1 || told < 1 || told > 2 {
			t.Errorf("%d restarts, %d alerts", n, told)
		}
		return hit
	})
}

// oneAgentSystemctl is a systemctl of one unit that restarts the world's agent.
const oneAgentSystemctl = `#!/bin/sh
case $2 in
show)
	pid=101; [ -f restarted ] && pid=102
	echo "Id=lab-a2a-nova.service
LoadState=loaded
ActiveState=active
SubState=running
Result=success
MainPID=$pid
NRestarts=0
CPUUsageNSec=1000000
InactiveExitTimestampMonotonic=1
ActiveExitTimestampMonotonic=0
ExecMainExitTimestampMonotonic=0";;
restart) echo restart >>restarts; touch restarted;;
esac
`
