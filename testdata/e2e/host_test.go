package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// host is a box as an administrator sees it: the package, its units, what
// they may do, and what doctor finds.
type host struct {
	*box
	card *mi50
	ntfy *mailbox
}

// TestHost: everything on a GPU host but the rules of the guard itself.
func TestHost(t *testing.T) {
	t.Parallel()
	b := boot(t)
	h := host{b, b.newMI50(0), b.newMailbox(2586)}
	h.startDocker()

	h.run("installed", h.installed)
	h.run("what the units may do", h.confined)
	h.run("a timer outlives everything", h.timer)
	h.run("a cycle over its budget", h.overBudget)
	h.run("a cycle is stopped in the middle", h.stoppedCycle)
	h.run("doctor", h.doctor)
	h.run("upgraded and removed", h.removed)
}

// installed: nothing runs yet, and the package says how to go on.
func (h *host) installed(t *testing.T) {
	said := h.install("1~e2e")
	t.Log(said)
	for _, next := range []string{"tickdog doctor gpu", "systemctl enable --now mi50-watchdog.timer"} {
		if !strings.Contains(said, next) {
			t.Errorf("installing does not say %q", next)
		}
	}
	for _, unit := range []string{"mi50-watchdog", "dream-cycle"} {
		enabled, _ := h.try("systemctl", "is-enabled", unit+".timer")
		active, _ := h.try("systemctl", "is-active", unit+".timer", unit+".service")
		if enabled != "disabled" || active != "inactive\ninactive" {
			t.Errorf("%s after the installation: %s, %q", unit, enabled, active)
		}
		if wrong := h.sh("systemd-analyze", "verify", unit+".service", unit+".timer"); wrong != "" {
			t.Errorf("systemd-analyze verify: %s", wrong)
		}
		exposure := h.sh("systemd-analyze", "security", "--no-pager", unit+".service")
		lines := strings.Split(exposure, "\n")
		overall := strings.Fields(lines[len(lines)-1])
		t.Log(lines[len(lines)-1])
		for _, word := range overall {
			if n, err := strconv.ParseFloat(word, 64); err == nil && n > 2.5 {
				t.Errorf("%s: exposure %v, at most 2.5\n%s", unit, n, exposure)
			}
		}
	}
	t.Log(h.sh("tickdog", "--version"))
}

// confined: what the unit of the GPU guard may write, shown by trying.
func (h *host) confined(t *testing.T) {
	h.writesOnly(t, gpuUnit, "/etc/systemd/system", []string{"systemctl"}, "/run/lock/x", "/var/lib/tickdog/x", "/var/log/tickdog/x")
}

// writesOnly has a unit, in place of its command, try to write all over the
// place, and looks at what is there afterwards.
func (b *box) writesOnly(t *testing.T, unit, units string, systemctl []string, want ...string) {
	t.Helper()
	tried := append([]string{"/etc/x", "/etc/tickdog/x", "/usr/x", "/boot/x", "/home/x", "/home/lab/x", "/home/lab/.config/x", "/opt/x", "/root/x", "/srv/x", "/run/x", "/run/systemd/x",
		"/tmp/x", "/var/x", "/var/tmp/x", "/var/lib/x", "/var/log/x", "/var/spool/x", "/sys/fs/cgroup/x"}, want...)
	for _, place := range tried {
		if exists(b.path(place)) {
			t.Fatalf("%s is there already", place)
		}
	}
	b.write("/usr/local/bin/try-to-write", "#!/bin/sh\nfor place in "+strings.Join(tried, " ")+"; do echo x >\"$place\"; done 2>&1\n", 0o755)
	dropIn := units + "/" + unit + ".d/try.conf"
	b.write(dropIn, "[Service]\nExecStart=\nExecStart=-/usr/local/bin/try-to-write\n", 0o644)
	b.since = time.Now()
	b.sh(append(systemctl, "daemon-reload")...)
	b.sh(append(systemctl, "start", unit)...)
	var could []string
	for _, place := range tried {
		if exists(b.path(place)) {
			could = append(could, place)
			b.must(os.Remove(b.path(place)))
		}
	}
	t.Log(b.journal(len(tried), "-o", "cat", "-t", "try-to-write"))
	if !slices.Equal(could, want) {
		t.Errorf("%s may write %s; want %s", unit, could, want)
	}
	b.must(os.RemoveAll(b.path(filepath.Dir(dropIn))))
	b.sh(append(systemctl, "daemon-reload")...)
}

// timer: the next pass comes after a restart of the timer, after a
// daemon-reload, and after a pass that was killed by its timeout.
func (h *host) timer(t *testing.T) {
	h.write("/etc/systemd/system/mi50-watchdog.timer.d/fast.conf", interval(1), 0o644)
	h.configure(`source = "rocm-smi"`)
	h.since = time.Now()
	h.sh("systemctl", "daemon-reload")
	h.sh("systemctl", "start", "mi50-watchdog.timer")
	h.awaitPasses(gpuUnit, 2)
	h.sh("systemctl", "restart", "mi50-watchdog.timer")
	h.awaitPasses(gpuUnit, 2)
	h.sh("systemctl", "daemon-reload")
	h.awaitPasses(gpuUnit, 2)

	h.write("/usr/local/bin/rocm-smi-hangs", "#!/bin/sh\nexec sleep 1000\n", 0o755)
	h.configure("source = \"rocm-smi\"\nrocm_smi = \"/usr/local/bin/rocm-smi-hangs\"")
	h.write("/etc/systemd/system/mi50-watchdog.service.d/short.conf", "[Service]\nTimeoutStartSec=1\n", 0o644)
	h.sh("systemctl", "daemon-reload")
	h.eventually(time.Minute, "a pass was killed by its timeout", func() (string, bool) {
		said := h.lastWords(gpuUnit)
		return said, strings.Contains(said, "timed out")
	})
	h.awaitPasses(gpuUnit, 2)
	h.configure("")
	h.must(os.RemoveAll(h.path("/etc/systemd/system/mi50-watchdog.service.d")))
	h.sh("systemctl", "daemon-reload")
	h.eventually(time.Minute, "a pass is good again", func() (string, bool) {
		said := h.lastWords(gpuUnit)
		return said, strings.Contains(said, "rest idle")
	})
	h.sh("systemctl", "stop", "mi50-watchdog.timer")
}

// configure writes the host's configuration, with these settings of [gpu].
func (h *host) configure(settings string) {
	h.t.Helper()
	h.write("/etc/tickdog/tickdog.toml", "state_dir = \"/var/lib/tickdog\"\n[gpu]\n"+settings+"\n[notify.ntfy]\nurl = \"http://127.0.0.1:2586/mi50\"\n", 0o644)
}

// configureCycle writes a cycle of three stages of such a call.
func (h *host) configureCycle(call string) {
	h.t.Helper()
	stages := `state_dir = "/var/lib/tickdog"
[notify.ntfy]
url = "http://127.0.0.1:2586/lyra"
[cycle]
budget = "3s"
call_ceiling = "2s"
kill_grace = "1s"
`
	for _, name := range []string{"continuity", "coherence", "curiosity"} {
		stages += fmt.Sprintf("[[cycle.stage]]\nname = %q\ncalls = [%s]\n", name, call)
	}
	h.write("/etc/tickdog/tickdog.toml", stages, 0o644)
	h.ntfy.empty()
	h.since = time.Now()
}

// lastCycle is the newest record.
func (h *host) lastCycle() (record struct{ Outcome, Action string }, text string) {
	h.t.Helper()
	records, _ := filepath.Glob(h.path("/var/lib/tickdog/cycles/dream-cycle/*.json"))
	if len(records) == 0 {
		return record, ""
	}
	content, err := os.ReadFile(records[len(records)-1])
	h.must(err)
	h.must(json.Unmarshal(content, &record))
	return record, string(content)
}

// overBudget: a call that ignores TERM and has a child in a session of its own
// is cut all the same, the budget ends the cycle, and that is told once.
func (h *host) overBudget(t *testing.T) {
	h.write("/usr/local/bin/stubborn", "#!/bin/sh\ntrap '' TERM\nsetsid sleep 4242 &\nsleep 4242\nsleep 4242\n", 0o755)
	h.configureCycle(`["/usr/local/bin/stubborn"]`)
	h.sh("systemctl", "start", "dream-cycle.service") // returns when the cycle is over
	t.Log(h.lastWords("dream-cycle"))
	record, text := h.lastCycle()
	t.Log(text)
	if record.Outcome != "stopped early (over budget)" || record.Action != "stopped early (over budget)" {
		t.Errorf("outcome %q, action %q", record.Outcome, record.Action)
	}
	if said := h.lastWords("dream-cycle"); !strings.Contains(said, "dream cycle over budget — stopped early") {
		t.Error("the log does not say so")
	}
	if left, _ := h.try("pgrep", "-f", "sleep 4242"); left != "" {
		t.Errorf("left running: %s", left)
	}
	h.ntfy.show(t)
	if got := h.ntfy.got(); len(got) != 1 {
		t.Errorf("%d alerts, want 1", len(got))
	}
}

// stoppedCycle: systemctl stop ends the call that runs, and the record says so.
func (h *host) stoppedCycle(t *testing.T) {
	h.configureCycle(`["sleep", "4242"]`)
	h.write("/etc/tickdog/tickdog.toml", strings.Replace(h.read("/etc/tickdog/tickdog.toml"), `call_ceiling = "2s"`, `call_ceiling = "300s"`, 1), 0o644)
	h.sh("systemctl", "start", "--no-block", "dream-cycle.service")
	h.eventually(time.Minute, "a call runs", func() (string, bool) {
		return h.lastWords("dream-cycle"), h.running("sleep 4242")
	})
	began := time.Now()
	h.sh("systemctl", "stop", "dream-cycle.service")
	t.Logf("stopped in %.1f s", time.Since(began).Seconds())
	record, text := h.lastCycle()
	t.Log(text)
	if record.Outcome != "interrupted" {
		t.Errorf("outcome %q, want interrupted", record.Outcome)
	}
	if h.running("sleep 4242") {
		t.Error("the call still runs")
	}
}

func (b *box) running(command string) bool {
	_, err := b.try("pgrep", "-f", command)
	return err == nil
}

// doctor: green on a good host, and each thing that is broken on purpose is
// found.
func (h *host) doctor(t *testing.T) {
	h.startBrain()
	h.configure("")
	h.write("/etc/systemd/system/mi50-watchdog.timer.d/fast.conf", interval(2), 0o644)
	h.sh("systemctl", "daemon-reload")
	h.sh("systemctl", "enable", "--now", "mi50-watchdog.timer")
	h.since = time.Now()
	h.awaitPasses(gpuUnit, 1)
	if said, err := h.try("tickdog", "doctor", "gpu"); err != nil || strings.Contains(said, "bad ") || strings.Contains(said, "warn ") {
		t.Fatalf("on a good host: %v\n%s", err, said)
	} else {
		t.Log(said)
	}
	good := h.read("/etc/tickdog/tickdog.toml")
	for _, c := range []struct {
		name, finds string
		broken      func()
		mend        func()
	}{
		{"timer", "bad  timer:",
			func() { h.sh("systemctl", "stop", "mi50-watchdog.timer") },
			func() { h.sh("systemctl", "start", "mi50-watchdog.timer") }},
		{"docker socket", "bad  docker:",
			func() { h.sh("systemctl", "stop", "docker.socket", "docker.service") },
			func() { h.sh("systemctl", "start", "docker.service") }},
		{"container name", "bad  container:", func() { h.configure(`container = "nobody"`) }, nil},
		{"typo", "bad  config:", func() { h.configure(`max_bussy = "1h"`) }, nil},
		{"token", "bad  ntfy:",
			func() { h.ntfy.refuseToken = true },
			func() { h.ntfy.refuseToken = false }},
		{"state directory", "bad  state directory:",
			func() {
				h.sh("systemctl", "stop", "mi50-watchdog.timer", gpuUnit)
				h.sh("mount", "-t", "tmpfs", "-o", "ro,mode=700", "tmpfs", "/var/lib/tickdog")
			},
			func() {
				h.sh("umount", "/var/lib/tickdog")
				h.sh("systemctl", "start", "mi50-watchdog.timer")
			}},
		{"two cards", "bad  sensor:", func() { h.newMI50(1) }, nil},
	} {
		c.broken()
		said, err := h.try("tickdog", "doctor", "gpu")
		found := ""
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, "bad ") {
				found += line
			}
		}
		t.Logf("%s:\n%s", c.name, found)
		if err == nil || !strings.Contains(found, c.finds) {
			t.Errorf("%s: exit %v, no %q in\n%s", c.name, err, c.finds, said)
		}
		if c.mend != nil {
			c.mend()
		}
		h.write("/etc/tickdog/tickdog.toml", good, 0o644)
	}
}

// removed: an upgrade keeps configuration, state and the timer; removing
// leaves nothing running, and purging nothing at all.
func (h *host) removed(t *testing.T) {
	edited := h.read("/etc/tickdog/tickdog.toml") + "# edited\n"
	h.write("/etc/tickdog/tickdog.toml", edited, 0o644)
	h.write("/var/lib/tickdog/mine", "kept\n", 0o600)
	h.install("2~e2e")
	if version := h.sh("tickdog", "--version"); !strings.Contains(version, "2~e2e") {
		t.Errorf("after the upgrade: %s", version)
	}
	if h.read("/etc/tickdog/tickdog.toml") != edited || h.read("/var/lib/tickdog/mine") != "kept\n" {
		t.Error("the upgrade did not keep config and state")
	}
	h.since = time.Now()
	h.awaitPasses(gpuUnit, 1)

	t.Log(h.sh("dpkg", "-r", "tickdog"))
	left, _ := h.try("systemctl", "list-units", "--all", "--no-legend", "--plain", "mi50-watchdog*", "dream-cycle*", "lab-a2a-selfheal*")
	if left != "" || h.running("/usr/bin/tickdog") {
		t.Errorf("after removing it: %q", left)
	}
	if h.read("/etc/tickdog/tickdog.toml") != edited {
		t.Error("removing took the configuration")
	}
	h.sh("dpkg", "-P", "tickdog")
	for _, path := range []string{"/etc/tickdog/tickdog.toml", "/var/lib/tickdog", "/usr/bin/tickdog", "/usr/lib/systemd/user/lab-a2a-selfheal.service"} {
		if exists(h.path(path)) {
			t.Errorf("purged, and %s is still there", path)
		}
	}
}
