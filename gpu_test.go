package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/check/gpu"
	"tickdog/state"

	"github.com/rogpeppe/go-internal/testscript"
	"pgregory.net/rapid"
)

func init() {
	testCommands["docker"] = fakeDocker
	testCommands["rocm-smi"] = func() { fakeTool("rocm-smi") }
	testCommands["amd-smi"] = func() { fakeTool("amd-smi") }
	testCommands["hold-lock"] = holdLock
	testCommands["unread"] = runUnread
	scriptCommands["fifo"] = makeFIFO
	scriptCommands["sensors"] = setSensors
	scriptCommands["ntfy"] = startNtfy
	scriptCommands["passes"] = runPasses
	scriptCommands["wait-for"] = waitFor
}

// fakeDocker is docker as far as the guard uses it. $HOME/container holds
// "true" while the container runs and is missing if there is none;
// $HOME/docker.mode says what goes wrong. Every call is noted.
func fakeDocker() {
	home := os.Getenv("HOME")
	note(filepath.Join(home, "docker.log"), strings.Join(os.Args[1:], " "))
	container := filepath.Join(home, "container")
	mode := strings.TrimSpace(readFile(filepath.Join(home, "docker.mode")))
	fail := func(text string) {
		fmt.Fprintln(os.Stderr, text)
		os.Exit(1)
	}
	if mode == "down" {
		fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
	}
	if _, err := os.Stat(container); err != nil {
		fail("Error: No such container: " + os.Args[len(os.Args)-1])
	}
	switch os.Args[1] {
	case "inspect":
		fmt.Println(strings.TrimSpace(readFile(container)))
	case "stop":
		switch mode {
		case "stop-fails":
			fail("Error response from daemon: cannot stop container: tried to kill container, but did not receive an exit event")
		case "stop-hangs":
			time.Sleep(time.Minute)
		case "stop-lies":
			return
		}
		os.WriteFile(container, []byte("false\n"), 0o600)
	case "kill":
		os.WriteFile(container, []byte("false\n"), 0o600)
	default:
		fail("unknown command")
	}
}

// fakeTool is rocm-smi or amd-smi: it prints $HOME/NAME.out (or, as
// `amd-smi list`, $HOME/NAME.list), or does what $HOME/NAME.mode says instead.
func fakeTool(name string) {
	home := os.Getenv("HOME")
	note(filepath.Join(home, name+".log"), strings.Join(os.Args[1:], " "))
	switch mode := strings.TrimSpace(readFile(filepath.Join(home, name+".mode"))); mode {
	case "hang": // until it is asked to end: then it puts its lock away
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		<-asked
		note(filepath.Join(home, name+".log"), "asked to end")
	case "flood":
		line := strings.Repeat("GPU[0]\t\t: GPU use (%): 0 ", 1<<14)
		for n := 0; n < 1<<30; n += len(line) {
			if _, err := io.WriteString(os.Stdout, line); err != nil {
				return
			}
		}
	case "complain": // as the real rocm-smi does where there is no driver
		fmt.Fprintln(os.Stderr, "ERROR:root:Driver not initialized (amdgpu not found in modules)")
	case "signal":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		file := name + ".out"
		if len(os.Args) > 1 && os.Args[1] == "list" {
			file = name + ".list"
		}
		io.WriteString(os.Stdout, readFile(filepath.Join(home, file)))
		if mode != "" {
			fmt.Fprintln(os.Stderr, mode)
			os.Exit(2)
		}
	}
}

// runUnread runs its arguments with an output that nobody reads any more, as a
// journal that is being restarted or `| head` leave it.
func runUnread() {
	read, write, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	read.Close()
	c := exec.Command(os.Args[1], os.Args[2:]...)
	c.Stdout, c.Stderr = write, write
	if c.Run() != nil {
		os.Exit(1)
	}
}

// makeFIFO is `fifo NAME`: a named pipe that nobody writes to.
func makeFIFO(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fifo NAME")
	}
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o600))
}

// holdLock is another pass: it takes the lock named by its argument and holds
// it until $HOME/release is there.
func holdLock() {
	lock, err := state.TryLock(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	home := os.Getenv("HOME")
	note(filepath.Join(home, "held"), "held")
	for range 600 {
		if _, err := os.Stat(filepath.Join(home, "release")); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	lock.Release()
}

func readFile(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func note(path, line string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, line)
		f.Close()
	}
}

// setSensors is `sensors BUSY JUNCTION [CARD]`: an MI50 in $WORK/sys that says
// so from now on; - is a sensor that says nothing. CARD is 0 unless given.
func setSensors(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: sensors BUSY JUNCTION [CARD]")
	}
	card := "0"
	if len(args) == 3 {
		card = args[2]
	}
	device := ts.MkAbs("sys/class/drm/card" + card + "/device")
	put := func(file, text string) {
		path := filepath.Join(device, file)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o777))
		ts.Check(os.WriteFile(path, []byte(text+"\n"), 0o666))
	}
	put("vendor", "0x1002")
	put("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME="+map[string]string{"0": "0000:03:00.0", "1": "0000:44:00.0"}[card])
	put("power/runtime_status", "active")
	put("hwmon/hwmon1/temp1_label", "edge")
	put("hwmon/hwmon1/temp1_input", "44000")
	put("hwmon/hwmon1/temp2_label", "junction")
	put("hwmon/hwmon1/power1_average", "180000000")
	put("gpu_busy_percent", strings.TrimPrefix(args[0], "-"))
	junction := ""
	if args[1] != "-" {
		junction = args[1] + "000"
		if whole, tenth, ok := strings.Cut(args[1], "."); ok {
			junction = whole + tenth + "00"
		}
	}
	put("hwmon/hwmon1/temp2_input", junction)
}

// startNtfy starts an ntfy server for the script and sets NTFY_URL. It answers
// with the status and the Retry-After in $WORK/ntfy.status, and notes what it
// is sent in $WORK/ntfy.log.
func startNtfy(ts *testscript.TestScript, neg bool, args []string) {
	var mu sync.Mutex
	log, status := ts.MkAbs("ntfy.log"), ts.MkAbs("ntfy.status")
	note(log, "started")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		if words := strings.Fields(readFile(status)); len(words) > 0 {
			if len(words) > 1 {
				w.Header().Set("Retry-After", words[1])
			}
			var code int
			fmt.Sscan(words[0], &code)
			w.WriteHeader(code)
			note(log, "refused "+words[0])
			return
		}
		note(log, fmt.Sprintf("%s %s priority=%s tags=%s token=%s: %s", r.Method, r.URL.Path,
			r.Header.Get("Priority"), r.Header.Get("Tags"), r.Header.Get("Authorization"), body))
	}))
	ts.Defer(server.Close)
	ts.Setenv("NTFY_URL", server.URL)
}

// runPasses is `passes FIRST EVERY N [ARG…]`: N passes of `tickdog gpu ARG…`,
// the first at second FIRST and each EVERY seconds after the one before. All
// must exit 0; what they print lands in $WORK/passes.
func runPasses(ts *testscript.TestScript, neg bool, args []string) {
	var first, every, n int
	if _, err := fmt.Sscan(strings.Join(args[:min(3, len(args))], " "), &first, &every, &n); neg || err != nil {
		ts.Fatalf("usage: passes FIRST EVERY N [ARG…]")
	}
	path := ts.MkAbs("passes")
	ts.Check(os.WriteFile(path, nil, 0o600))
	for i := range n {
		ts.Setenv("TEST_AT", fmt.Sprint(first+i*every))
		ts.Check(ts.Exec("tickdog", append([]string{"gpu"}, args[3:]...)...))
		note(path, strings.TrimSuffix(ts.ReadFile("stdout"), "\n"))
		if errors := ts.ReadFile("stderr"); errors != "" {
			note(path, strings.TrimSuffix(errors, "\n"))
		}
	}
}

// waitFor is `wait-for FILE`: until another program has made it.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: wait-for FILE")
	}
	for range 600 {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("%s does not come", args[0])
}

// Saving and loading between any two checks changes nothing.
func TestGPUStateSurvivesItsFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := (&program{}).defaults().GPU.limits()
		now := check.Moment{Wall: time.Unix(1_800_000_000, 0), Boot: rapid.Float64Range(0, 1e7).Draw(t, "boot"), BootID: "b"}
		var kept gpu.State
		var cards gpuCards
		for range rapid.IntRange(1, 60).Draw(t, "checks") {
			now.Boot += rapid.Float64Range(0, 700).Draw(t, "gap")
			seen := gpu.Seen{Reading: gpu.Reading{HasJunction: true}}
			if rapid.Bool().Draw(t, "knows busy") {
				seen.Reading.Busy = gpu.Known(float64(rapid.IntRange(0, 3).Draw(t, "busy")))
			}
			if rapid.Bool().Draw(t, "knows junction") {
				seen.Reading.Junction = gpu.Known(float64(rapid.IntRange(95, 98).Draw(t, "junction")))
			}
			if rapid.Bool().Draw(t, "paused") {
				seen.Paused = "a while"
			}
			var v gpu.Verdict
			kept, v = gpu.Decide(kept, seen, now, limits)
			next, w := gpu.Decide(cards.of("card"), seen, now, limits)
			if v != w {
				t.Fatalf("kept in memory: %+v\nkept in a file:  %+v", v, w)
			}
			if v.Stop {
				switch rapid.IntRange(0, 2).Draw(t, "act") {
				case 0:
					kept, next = gpu.Stopped(kept), gpu.Stopped(next)
				case 1:
					kept, _ = gpu.StillRuns(kept)
					next, _ = gpu.StillRuns(next)
				case 2:
					kept, _, _ = gpu.NotRunning(kept, v)
					next, _, _ = gpu.NotRunning(next, w)
				}
			}
			cards.set("card", next)
			var loaded gpuCards
			for _, line := range cards.lines() {
				if err := loaded.parse(line); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
			}
			if loaded.of("card") != kept {
				t.Fatalf("%q\nis read as %+v\ninstead of %+v", cards.lines(), loaded.of("card"), kept)
			}
			cards = loaded
		}
	})
}

// Whatever stands in the state file, it is either refused or a state that is
// written as it was read.
func FuzzGPUStateLine(f *testing.F) {
	for _, seed := range []string{
		"0000:03:00.0 3480.25 0 81234.567891 726dba2a-f631-4a2c-9b03-7137e7d29607",
		"gpu - 0 12 b blind_passes=4",
		"GPU[1] - 2 12.5 b hot_boottime=11 junction_boottime=12 failed_stops=2 foreign=yes paused=yes",
		"card1 1e300 0 1 b", "card1 NaN 0 1 b", "card1 -1 0 1 b", "card1 1 0 1", "\x00\x00\x00",
		`card1 1 0 1 b other="a version's \"own\""`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var cards gpuCards
		if cards.parse(line) != nil {
			return
		}
		var again gpuCards
		for _, line := range cards.lines() {
			if err := again.parse(line); err != nil {
				t.Fatalf("%q was read, written as %q, and refused: %v", line, cards.lines(), err)
			}
		}
		if len(cards) != 1 || cards[0] != again[0] {
			t.Fatalf("%q is %+v, and then %+v", line, cards, again)
		}
	})
}
