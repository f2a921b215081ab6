package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fleet is a box with a user's eight agents and the board: six on uvicorn, and
// one made with the A2A SDK of each generation.
type fleet struct {
	*box
	board *mailbox
}

var fleetNames = []string{"sol", "ace", "mira", "nova", "echo", "alpha", "atlas", "min"}

const (
	lab       = "lab"
	actionLog = "/home/lab/.solos/logs/a2a-selfheal.log"
	agentUnit = `[Unit]
Description=A2A agent %[1]s
After=network.target lab-central-registry.service
Wants=network.target

[Service]
Type=simple
Environment=AGENT_NAME=%[1]s AGENT_PORT=%[2]d
ExecStart=%[3]s
Restart=on-failure
RestartSec=1
TimeoutStopSec=3
NoNewPrivileges=true
PrivateTmp=true

[Install]
WantedBy=default.target
`
	// A second stands for ten and more of the fleet's.
	fleetLimits = `
health_timeout = "2s"
dispatch_timeout = "3s"
busy_cap = "12s"
start_grace = "2s"
restart_every = "20s"
settle = "20s"
min_gap = "1s"
`
)

func port(name string) int {
	for i, n := range fleetNames {
		if n == name {
			return 8300 + i
		}
	}
	panic(name)
}

// TestAgents: the guard of the agents, as its timer runs it.
func TestAgents(t *testing.T) {
	t.Parallel()
	b := boot(t)
	f := fleet{b, b.newMailbox(8432)}
	f.settle(t)

	f.run("what the unit may do", f.confined)
	f.run("doctor", f.doctor)
	f.run("two sweeps of a healthy fleet", f.healthy)
	f.run("a stopped runner", f.stoppedRunner)
	f.run("a long call is left alone", f.longCall)
	f.run("a call that hangs", f.hungCall)
	f.run("agents made with the SDKs hang", f.hungSDK)
	f.run("what its operator stopped", f.operatorStop)
	f.run("three of eight", f.threeOfEight)
	f.run("all of them, because the provider is out", f.outage)
	f.run("the budget holds over a reboot", f.reboots)
}

// settle makes the user, the agents' units and the guard's, and starts all.
func (f *fleet) settle(t *testing.T) {
	f.try("userdel", lab)
	f.sh("useradd", "--create-home", "--shell", "/bin/bash", lab)
	f.sh("loginctl", "enable-linger", lab)
	f.awaitManager()

	script, err := os.ReadFile("agent.py")
	f.must(err)
	f.write("/opt/fleet/agent.py", string(script), 0o644)
	sdk := build(t, "../a2a", "./agent03", "./agent10")
	for _, name := range []string{"agent03", "agent10"} {
		f.copyIn(filepath.Join(sdk, name), "/opt/fleet/"+name, 0o755)
	}
	for _, name := range fleetNames {
		start := "/usr/bin/python3 /opt/fleet/agent.py"
		switch name {
		case "atlas":
			start = fmt.Sprintf("/opt/fleet/agent03 -name=atlas -listen=127.0.0.1:%d", port(name))
		case "min":
			start = fmt.Sprintf("/opt/fleet/agent10 -name=min -listen=127.0.0.1:%d", port(name))
		}
		f.write("/home/lab/.config/systemd/user/lab-a2a-"+name+".service", fmt.Sprintf(agentUnit, name, port(name), start), 0o644)
	}
	f.write("/home/lab/.config/systemd/user/lab-a2a-selfheal.timer.d/fast.conf", interval(3), 0o644)
	f.sh("mkdir", "-p", "/home/lab/.solos/state", "/home/lab/.solos/logs")
	f.sh("chown", "-R", "lab:", "/home/lab")

	f.install("1~e2e")
	t.Log(f.lab("tickdog", "units", "install", "agents"))
	config := "/home/lab/.config/tickdog/tickdog.toml"
	sample := f.read(config)
	fast := strings.Replace(sample, "\n[agents]\n", "\n[agents]"+fleetLimits, 1)
	if fast == sample {
		t.Fatalf("the sample config has no [agents]:\n%s", sample)
	}
	f.write(config, fast, 0o600)

	f.lab("systemctl", "--user", "daemon-reload")
	for _, name := range fleetNames {
		f.lab("systemctl", "--user", "enable", "--now", unit(name))
	}
	f.awaitHealthy(2 * time.Minute)
	f.lab("systemctl", "--user", "enable", "--now", "lab-a2a-selfheal.timer")
}

func (f *fleet) awaitManager() {
	f.t.Helper()
	f.eventually(time.Minute, "the user's manager is up", func() (string, bool) {
		said, _ := f.try(f.as(lab, "systemctl", "--user", "is-system-running")...)
		return said, said == "running" || said == "degraded"
	})
}

// lab runs a command as the agents' user.
func (f *fleet) lab(argv ...string) string {
	f.t.Helper()
	return f.sh(f.as(lab, argv...)...)
}

func unit(name string) string { return "lab-a2a-" + name + ".service" }

func (f *fleet) mainPID(name string) string {
	f.t.Helper()
	return f.lab("systemctl", "--user", "show", "-P", "MainPID", unit(name))
}

// ask sends an agent a message, as a caller would, and waits so long for the
// answer.
func (f *fleet) ask(name, text string, limit time.Duration) error {
	method, message, part := "message/send", map[string]any{"kind": "message", "role": "user"}, map[string]any{"kind": "text", "text": text}
	if name == "min" { // the one of the 1.0 generation
		method, message, part = "SendMessage", map[string]any{"role": "ROLE_USER"}, map[string]any{"text": text}
	}
	message["messageId"], message["parts"] = fmt.Sprint(time.Now().UnixNano()), []any{part}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "caller", "method": method, "params": map[string]any{"message": message}})
	if err != nil {
		return err
	}
	client := f.client()
	client.Timeout = limit
	req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/", port(name)), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if name == "min" {
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct{ Result json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if len(answer.Result) == 0 {
		return fmt.Errorf("no result")
	}
	return nil
}

// awaitHealthy waits until every agent answers a message.
func (f *fleet) awaitHealthy(limit time.Duration) {
	f.t.Helper()
	f.eventually(limit, "all eight answer a message", func() (string, bool) {
		for _, name := range fleetNames {
			if err := f.ask(name, "hello", 10*time.Second); err != nil {
				return name + ": " + err.Error() + "\n" + f.said(), false
			}
		}
		return "", true
	})
}

// sweep is a sweep by hand: its last line, and all of it.
func (f *fleet) sweep() (line, all string) {
	all, _ = f.try(f.as(lab, "tickdog", "agents", "--dry-run")...)
	lines := strings.Split(all, "\n")
	return lines[len(lines)-1], all
}

// said is the end of what the guard's passes said.
func (f *fleet) said() string {
	return f.journal(30, "-o", "cat", "_SYSTEMD_USER_UNIT=lab-a2a-selfheal.service")
}

// begin starts a part with a healthy fleet and nothing remembered.
func (f *fleet) begin() {
	f.t.Helper()
	f.lab("systemctl", "--user", "stop", "lab-a2a-selfheal.timer", "lab-a2a-selfheal.service")
	f.try("rm", "-f", "/run/provider-hangs")
	f.sh("sh", "-c", "rm -rf /home/lab/.solos/state/* "+actionLog)
	for _, name := range fleetNames {
		if f.ask(name, "hello", 2*time.Second) != nil {
			f.lab("systemctl", "--user", "restart", unit(name))
		}
	}
	f.awaitHealthy(time.Minute)
	f.sh("sleep", "2.5") // start_grace
	f.board.empty()
	f.since = time.Now()
	f.lab("systemctl", "--user", "start", "lab-a2a-selfheal.timer")
}

var restartLine = regexp.MustCompile(`(?m)^\S+ restart lab-a2a-(\w+)\.service .*$`)

// restarts are the restarts in the action log, as `grep restart` finds them,
// by name and in order.
func (f *fleet) restarts() (names []string) {
	f.t.Helper()
	for line := range strings.Lines(f.read(actionLog)) {
		if !strings.Contains(line, "restart") {
			continue
		}
		found := restartLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			f.t.Fatalf("a line that grep restart finds and is no restart: %q", line)
		}
		names = append(names, found[1])
	}
	return names
}

// healed waits until exactly these were restarted, each once, and all answer;
// every restart is told once.
func (f *fleet) healed(t *testing.T, limit time.Duration, names ...string) {
	t.Helper()
	f.eventually(limit, fmt.Sprintf("restarted: %v", names), func() (string, bool) {
		return fmt.Sprintf("restarted: %v\n%s", f.restarts(), f.said()), len(f.restarts()) >= len(names)
	})
	f.awaitHealthy(time.Minute)
	f.eventually(time.Minute, "told the board", func() (string, bool) {
		return f.said(), len(f.board.got("restarted")) >= len(names)
	})
	t.Log(f.read(actionLog))
	f.board.show(t)
	count := map[string]int{}
	for _, name := range f.restarts() {
		count[name]++
	}
	for _, name := range names {
		if count[name] != 1 {
			t.Errorf("%s was restarted %d times, want once", name, count[name])
		}
		if got := f.board.got("a2a-selfheal: restarted " + unit(name)); len(got) != 1 {
			t.Errorf("%d reports of the restart of %s, want 1", len(got), name)
		}
		delete(count, name)
	}
	if len(count) > 0 {
		t.Errorf("restarted besides: %v", count)
	}
}

// noneWithin fails if anything is restarted within so long.
func (f *fleet) noneWithin(t *testing.T, long time.Duration, besides int) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) {
		if got := f.restarts(); len(got) > besides {
			t.Fatalf("restarted: %v\n%s\n%s", got, f.read(actionLog), f.said())
		}
	}
}

// confined: what the user's unit may write, shown by trying; in a user unit
// most of the sandbox is easily without effect.
func (f *fleet) confined(t *testing.T) {
	if wrong := f.lab("systemd-analyze", "--user", "verify", "lab-a2a-selfheal.service", "lab-a2a-selfheal.timer"); wrong != "" {
		t.Errorf("systemd-analyze verify: %s", wrong)
	}
	f.lab("systemctl", "--user", "stop", "lab-a2a-selfheal.timer", "lab-a2a-selfheal.service")
	f.writesOnly(t, "lab-a2a-selfheal.service", "/home/lab/.config/systemd/user", f.as(lab, "systemctl", "--user"),
		"/run/lock/x", "/home/lab/.solos/state/x", "/home/lab/.solos/logs/x")
}

// doctor: green on a good fleet, and each thing that is broken on purpose is
// found.
func (f *fleet) doctor(t *testing.T) {
	f.lab("systemctl", "--user", "start", "lab-a2a-selfheal.timer")
	if said, err := f.try(f.as(lab, "tickdog", "doctor", "agents")...); err != nil || strings.Contains(said, "bad ") || strings.Contains(said, "warn ") {
		t.Errorf("on a good fleet: %v\n%s", err, said)
	} else {
		t.Log(said)
	}
	for _, c := range []struct {
		finds        string
		broken, mend func()
	}{
		{"bad  board:",
			func() { f.board.closed.Store(true) },
			func() { f.board.closed.Store(false) }},
		{"bad  timer:",
			func() { f.lab("systemctl", "--user", "stop", "lab-a2a-selfheal.timer") },
			func() { f.lab("systemctl", "--user", "start", "lab-a2a-selfheal.timer") }},
		{"bad  linger:", // the manager itself stays, to be asked
			func() { f.must(os.Remove(f.path("/var/lib/systemd/linger/lab"))) },
			func() { f.must(os.WriteFile(f.path("/var/lib/systemd/linger/lab"), nil, 0o644)) }},
	} {
		c.broken()
		said, err := f.try(f.as(lab, "tickdog", "doctor", "agents")...)
		if err == nil || !strings.Contains(said, c.finds) {
			t.Errorf("exit %v, no %q in\n%s", err, c.finds, said)
		}
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, "bad ") {
				t.Log(line)
			}
		}
		c.mend()
	}
}

// healthy: nothing is done, logged or told.
func (f *fleet) healthy(t *testing.T) {
	f.begin()
	for range 2 {
		line, all := f.sweep()
		t.Log(all)
		if !strings.HasPrefix(line, "8/8 answer") {
			t.Errorf("sweep: %s", line)
		}
		f.noneWithin(t, 5*time.Second, 0)
	}
	if got := f.board.got(); len(got) > 0 {
		t.Errorf("told of a healthy fleet: %v", got)
	}
	if log := f.read(actionLog); log != "" {
		t.Errorf("logged of a healthy fleet:\n%s", log)
	}
}

// stoppedRunner: SIGSTOP, the acceptance test of the first specification; and
// once more at once, which the budget must not allow.
func (f *fleet) stoppedRunner(t *testing.T) {
	f.begin()
	before := f.mainPID("nova")
	f.lab("systemctl", "--user", "kill", "-s", "STOP", unit("nova"))
	f.healed(t, time.Minute, "nova")
	if f.mainPID("nova") == before {
		t.Error("the same main process")
	}
	if line, all := f.sweep(); !strings.HasPrefix(line, "8/8 answer") {
		t.Errorf("sweep:\n%s", all)
	}

	f.lab("systemctl", "--user", "kill", "-s", "STOP", unit("nova"))
	f.noneWithin(t, 8*time.Second, 1)
	if said := f.said(); !strings.Contains(said, "hold") {
		t.Errorf("no pass says that it holds back:\n%s", said)
	}
	f.eventually(2*time.Minute, "nova is restarted when its budget is free", func() (string, bool) {
		return f.said(), len(f.restarts()) == 2
	})
	times := regexp.MustCompile(`(?m)^(\S+) restart`).FindAllStringSubmatch(f.read(actionLog), -1)
	first, err1 := time.Parse(time.RFC3339, times[0][1])
	second, err2 := time.Parse(time.RFC3339, times[1][1])
	// The log has when each was over, which took a little.
	if err1 != nil || err2 != nil || second.Sub(first) < 15*time.Second {
		t.Errorf("restarted twice within %v, the budget is 20 s", second.Sub(first))
	}
}

// longCall is 180 s at a cap of 300 s, scaled: nobody interrupts it.
func (f *fleet) longCall(t *testing.T) {
	f.begin()
	before := f.mainPID("echo")
	if err := f.ask("echo", "wait 7 for an answer of the provider", time.Minute); err != nil {
		t.Errorf("the call was lost: %v", err)
	}
	t.Log(f.said())
	if after := f.mainPID("echo"); after != before || len(f.restarts()) > 0 {
		t.Errorf("main process %s, then %s; restarted %v", before, after, f.restarts())
	}
	if got := f.board.got(); len(got) > 0 {
		t.Errorf("told of an agent at work: %v", got)
	}
}

// hungCall: the same, but the call never ends.
func (f *fleet) hungCall(t *testing.T) {
	f.begin()
	began := time.Now()
	go f.ask("echo", "wait 100000 for a provider that never answers", 2*time.Second)
	f.healed(t, 2*time.Minute, "echo")
	if took := time.Since(began); took < 12*time.Second {
		t.Errorf("restarted after %v, a call may take 12 s", took)
	}
}

// hungSDK: both generations are probed in their own words.
func (f *fleet) hungSDK(t *testing.T) {
	f.begin()
	remembered := func() (string, bool) {
		gate := f.read("/home/lab/.solos/state/a2a-selfheal-gate")
		return gate, strings.Contains(gate, "protocol=1.0")
	}
	f.eventually(time.Minute, "it is remembered that min speaks 1.0", remembered)
	for _, name := range []string{"atlas", "min"} {
		resp, err := f.client().Post(fmt.Sprintf("http://127.0.0.1:%d/manner?is=hang", port(name)), "", nil)
		f.must(err)
		resp.Body.Close()
	}
	f.healed(t, 2*time.Minute, "atlas", "min")
	if gate, ok := remembered(); !ok {
		t.Errorf("it was forgotten that min speaks 1.0:\n%s", gate)
	}
}

// operatorStop: what a person stopped stays stopped, also a hung one that had
// to be killed; what died by itself comes back.
func (f *fleet) operatorStop(t *testing.T) {
	f.begin()
	f.lab("systemctl", "--user", "stop", unit("ace"))
	f.ask("mira", "wait 100000 for a provider that never answers", time.Second) // uvicorn waits for it when asked to stop
	f.lab("systemctl", "--user", "stop", unit("mira"))
	if result := f.lab("systemctl", "--user", "show", "-P", "Result", unit("mira")); result != "timeout" {
		t.Errorf("the stop of a hung agent ended as %s: nothing to test", result)
	}
	f.noneWithin(t, 10*time.Second, 0)
	line, all := f.sweep()
	t.Log(all)
	if !strings.Contains(line, "stopped: ace, mira") {
		t.Errorf("sweep: %s", line)
	}
	if got := f.board.got(); len(got) > 0 {
		t.Errorf("told of what a person did: %v", got)
	}
}

// threeOfEight: strictly one restart after another.
func (f *fleet) threeOfEight(t *testing.T) {
	f.begin()
	wedged := []string{"nova", "echo", "alpha"}
	for _, name := range wedged {
		go f.ask(name, "wait 100000 for a provider that never answers", 2*time.Second)
	}
	f.healed(t, 2*time.Minute, wedged...)
	// What systemd did, job by job: no stop of one before the start of the last.
	jobs := f.journal(0, "-o", "short-unix", "-g", "^(Stopping|Started) lab-a2a-(nova|echo|alpha)")
	t.Log(jobs)
	order := regexp.MustCompile(`(Stopping|Started) lab-a2a-(\w+)`).FindAllStringSubmatch(jobs, -1)
	if len(order) != 6 {
		t.Fatalf("%d jobs, want 6", len(order))
	}
	for i := 0; i+1 < len(order); i += 2 {
		if order[i][1] != "Stopping" || order[i+1][1] != "Started" || order[i][2] != order[i+1][2] {
			t.Errorf("two restarts at once: %v", order)
			break
		}
	}
}

// outage: the provider hangs for all. One is tried; the others are left alone
// until it answers, and then healed.
func (f *fleet) outage(t *testing.T) {
	f.begin()
	f.write("/run/provider-hangs", "", 0o644)
	for _, name := range []string{"atlas", "min"} { // they have no provider: let them be
		f.lab("systemctl", "--user", "stop", unit(name))
	}
	for _, name := range fleetNames[:6] {
		go f.ask(name, "hello", time.Second)
	}
	f.eventually(2*time.Minute, "one is tried", func() (string, bool) {
		return f.said(), len(f.restarts()) == 1
	})
	f.noneWithin(t, 10*time.Second, 1)
	t.Log(f.said())
	f.eventually(time.Minute, "the storm is told of", func() (string, bool) {
		return f.said(), len(f.board.got("storm")) == 1
	})
	f.must(os.Remove(f.path("/run/provider-hangs")))
	f.eventually(3*time.Minute, "all six answer", func() (string, bool) {
		for _, name := range fleetNames[:6] {
			if err := f.ask(name, "hello", 10*time.Second); err != nil {
				return name + ": " + err.Error() + "\n" + f.read(actionLog) + f.said(), false
			}
		}
		return "", true
	})
	t.Log(f.read(actionLog))
	f.board.show(t)
	if got := f.board.got("storm"); len(got) != 1 {
		t.Errorf("%d reports of the storm, want 1", len(got))
	}
	if frozen := f.board.got("frozen"); len(frozen) > 0 {
		t.Errorf("a storm has frozen: %v", frozen)
	}
	for _, name := range []string{"atlas", "min"} {
		f.lab("systemctl", "--user", "start", unit(name))
	}
}

// reboots: a restart shortly before a reboot still counts after it.
func (f *fleet) reboots(t *testing.T) {
	config := "/home/lab/.config/tickdog/tickdog.toml"
	f.write(config, strings.Replace(f.read(config), `restart_every = "20s"`, `restart_every = "10m"`, 1), 0o600)
	f.begin()
	f.lab("systemctl", "--user", "kill", "-s", "STOP", unit("sol"))
	f.healed(t, time.Minute, "sol")

	f.reboot()
	f.board = f.newMailbox(8432)
	f.awaitManager()
	f.awaitHealthy(2 * time.Minute)
	f.sh("sleep", "2.5") // start_grace
	f.since = time.Now()
	f.lab("systemctl", "--user", "kill", "-s", "STOP", unit("sol"))
	f.eventually(time.Minute, "a pass holds back", func() (string, bool) {
		said := f.said()
		return said, strings.Contains(said, unit("sol")+" hold")
	})
	f.noneWithin(t, 5*time.Second, 1)
	t.Log(f.said())
}
