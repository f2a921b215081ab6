package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const gpuUnit = "mi50-watchdog.service"

// gpuHost is a box with an MI50, a dockerd and an ntfy server.
type gpuHost struct {
	*box
	card *mi50
	ntfy *mailbox
}

// TestGPU: the guard of the GPU, as its timer runs it.
func TestGPU(t *testing.T) {
	t.Parallel()
	b := boot(t)
	h := gpuHost{b, b.newMI50(0), b.newMailbox(2586)}
	h.startDocker()
	h.install("1~e2e")
	h.write("/etc/systemd/system/mi50-watchdog.timer.d/fast.conf", interval(2), 0o644)
	h.sh("systemctl", "daemon-reload")
	readings, _ := h.try("rocm-smi", "--showuse", "--showtemp") // ends with 2 for what this card does not have
	t.Log(readings)

	h.run("busy to the limit, and ntfy is busy too", h.busyToTheLimit)
	h.run("hot at three checks", h.hotThreeTimes)
	h.run("two jobs with a pause", h.twoJobs)
	h.run("rocm-smi hangs", h.rocmHangs)
	h.run("a sensor hangs in the kernel", h.sensorHangs)
	h.run("the card is gone for a while", h.cardGone)
	h.run("dockerd is down at the limit", h.dockerDown)
	h.run("killed between the stop and the alert", h.killed)
}

// begin starts a part from nothing: an idle card, no memory, a container that
// runs, these settings, and the timer.
func (h *gpuHost) begin(settings string) {
	h.t.Helper()
	h.sh("systemctl", "stop", "mi50-watchdog.timer", gpuUnit)
	h.must(os.RemoveAll(h.path("/var/lib/tickdog")))
	h.card.set(0, 45)
	h.startBrain()
	h.ntfy.empty()
	h.write("/etc/tickdog/tickdog.toml", `state_dir = "/var/lib/tickdog"
[gpu]
max_gap = "2m"
min_gap = "1s"
`+settings+`
[notify.ntfy]
url = "http://127.0.0.1:2586/mi50"
`, 0o644)
	h.since = time.Now()
	h.sh("systemctl", "start", "mi50-watchdog.timer")
	h.awaitPasses(gpuUnit, 1)
}

// stoppedOnce: one alert says so, also after further passes.
func (h *gpuHost) stoppedOnce(t *testing.T, why string) {
	t.Helper()
	h.eventually(time.Minute, "the alert has come", func() (string, bool) {
		return h.lastWords(gpuUnit), len(h.ntfy.got("stopped lyra-brain")) > 0
	})
	h.card.set(0, 45)
	h.awaitPasses(gpuUnit, 2)
	h.ntfy.show(t)
	if got := h.ntfy.got("mi50-watchdog: stopped lyra-brain", why); len(got) != 1 {
		t.Errorf("%d alerts say that it was stopped, %s; want 1", len(got), why)
	}
	if left, _ := filepath.Glob(h.path("/var/lib/tickdog/outbox/*")); len(left) > 1 { // its lock may lie there
		t.Errorf("left in the outbox: %v", left)
	}
}

func (h *gpuHost) busyToTheLimit(t *testing.T) {
	h.begin("source = \"rocm-smi\"\nmax_busy = \"10s\"")
	h.ntfy.refuseNext("1", http.StatusTooManyRequests, http.StatusServiceUnavailable)
	began := time.Now()
	h.card.set(99, 71)
	if took := h.awaitStop(time.Minute).Sub(began); took < 10*time.Second {
		t.Errorf("stopped %v after the card was busy, the limit is 10 s", took)
	}
	h.stoppedOnce(t, "of 10 s")
	if n := h.ntfy.refusals(); n != 0 {
		t.Errorf("%d refusals were not asked for", n)
	}
	t.Log(h.lastWords(gpuUnit))
}

func (h *gpuHost) hotThreeTimes(t *testing.T) {
	h.begin("source = \"rocm-smi\"\nhot_checks = 3")
	h.card.set(40, 97)
	h.awaitStop(time.Minute)
	h.stoppedOnce(t, "97")
}

// twoJobs is 40 minutes busy, a pause, and 40 minutes busy, at a limit of an
// hour, with ten seconds for an hour.
func (h *gpuHost) twoJobs(t *testing.T) {
	h.begin("source = \"rocm-smi\"\nmax_busy = \"10s\"")
	for range 2 {
		h.card.set(99, 80)
		h.staysUp(t, 6*time.Second)
		h.card.set(0, 60)
		h.awaitPasses(gpuUnit, 2)
	}
	h.staysUp(t, time.Second)
	if got := h.ntfy.got(); len(got) > 0 {
		t.Errorf("told of a job that was within its limits: %v", got)
	}
}

// rocmHangs: the tool hangs in the middle of a streak. Passes go on, and the
// card is stopped when it is seen again.
func (h *gpuHost) rocmHangs(t *testing.T) {
	h.write("/usr/local/bin/rocm-smi-may-hang", "#!/bin/sh\nwhile [ -e /run/rocm-hangs ]; do sleep 1; done\nexec rocm-smi \"$@\"\n", 0o755)
	h.begin("source = \"rocm-smi\"\nmax_busy = \"12s\"\nread_timeout = \"1s\"\nrocm_smi = \"/usr/local/bin/rocm-smi-may-hang\"")
	h.unseenFor(t, 4, func() { h.write("/run/rocm-hangs", "", 0o644) }, func() { h.must(os.Remove(h.path("/run/rocm-hangs"))) })
}

func (h *gpuHost) cardGone(t *testing.T) {
	h.begin("source = \"rocm-smi\"\nmax_busy = \"12s\"")
	h.unseenFor(t, 4,
		func() { h.must(os.Rename(h.path(mi50Root+"/drm/card0"), h.path(mi50Root+"/card0"))) },
		func() { h.must(os.Rename(h.path(mi50Root+"/card0"), h.path(mi50Root+"/drm/card0"))) })
}

func (h *gpuHost) sensorHangs(t *testing.T) {
	if !exists("/dev/fuse") {
		t.Skip("there is no FUSE here to hang with")
	}
	h.copyIn(filepath.Join(build(t, "../..", "./testdata/e2e/deafsensor"), "deafsensor"), "/usr/local/bin/deafsensor", 0o755)
	h.must(os.MkdirAll(h.path("/run/deaf"), 0o755))
	sensor := h.card.device + "/gpu_busy_percent"
	h.begin("source = \"sysfs\"\nmax_busy = \"12s\"\nread_timeout = \"1s\"")
	h.unseenFor(t, 4,
		func() {
			h.sh("systemd-run", "--unit=deafsensor", "--quiet", "/usr/local/bin/deafsensor", "/run/deaf")
			h.eventually(30*time.Second, "the sensor is deaf", func() (string, bool) {
				said, err := h.try("mount", "--bind", "/run/deaf/sensor", sensor)
				return said, err == nil
			})
		},
		func() {
			h.sh("umount", "--lazy", sensor)
			h.sh("systemctl", "kill", "-s", "KILL", "deafsensor")
		})
}

// unseenFor: a busy card that cannot be seen for some passes in the middle of
// its streak is not stopped meanwhile, the passes stay on time, and it is
// stopped, once, when it is seen again.
func (h *gpuHost) unseenFor(t *testing.T, passes int, blind, see func()) {
	t.Helper()
	h.card.set(99, 80)
	h.awaitPasses(gpuUnit, 2)
	blind()
	began := time.Now()
	h.awaitPasses(gpuUnit, passes)
	t.Logf("%d blind passes in %.1f s:\n%s", passes, time.Since(began).Seconds(), h.lastWords(gpuUnit))
	if runs := h.brainRuns(); runs != "true" {
		t.Errorf("lyra-brain runs: %q, although nothing was seen", runs)
	}
	if said := h.lastWords(gpuUnit); !strings.Contains(said, "unknown") {
		t.Error("no pass said that it could not see")
	}
	if result := h.sh("systemctl", "show", "--value", "-p", "Result", gpuUnit); strings.TrimSpace(result) != "success" {
		t.Errorf("a blind pass left the unit as %q", result)
	}
	see()
	h.awaitStop(time.Minute)
	h.stoppedOnce(t, "of 12 s")
}

// dockerDown: the container outlives its daemon; what could not be stopped is
// stopped as soon as it can be.
func (h *gpuHost) dockerDown(t *testing.T) {
	h.begin("max_busy = \"6s\"")
	h.sh("systemctl", "stop", "docker.service", "docker.socket")
	h.card.set(99, 80)
	h.eventually(time.Minute, "a pass has tried to stop it", func() (string, bool) {
		said := h.lastWords(gpuUnit)
		return said, strings.Contains(said, "docker")
	})
	h.awaitPasses(gpuUnit, 3)
	t.Log(h.lastWords(gpuUnit))
	if runs, _ := h.try("pgrep", "-x", "brain"); runs == "" {
		t.Fatal("the container went with its daemon: nothing to test")
	}
	h.sh("systemctl", "start", "docker.service")
	h.awaitStop(time.Minute)
	h.card.set(0, 45)
	h.awaitPasses(gpuUnit, 2)
	h.ntfy.show(t)
	if got := h.ntfy.got(); len(got) == 0 || len(got) > 2 { // that it failed, and that it is done
		t.Errorf("%d alerts, want one for the failure and one for the stop", len(got))
	}
	if got := h.ntfy.got("mi50-watchdog: stopped lyra-brain"); len(got) != 1 {
		t.Errorf("%d alerts say that it was stopped, want 1", len(got))
	}
}

// killed: the pass is killed while it tells; the next one tells.
func (h *gpuHost) killed(t *testing.T) {
	h.begin("max_busy = \"6s\"")
	asked := make(chan bool)
	h.ntfy.answerNext(func(w http.ResponseWriter, r *http.Request) {
		asked <- true
		<-r.Context().Done()
	})
	h.card.set(99, 80)
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatalf("nothing was told\n%s", h.lastWords(gpuUnit))
	}
	if runs := h.brainRuns(); runs != "false" {
		t.Errorf("told before the stop: lyra-brain runs: %q", runs)
	}
	h.sh("systemctl", "kill", "-s", "KILL", gpuUnit)
	h.stoppedOnce(t, "of 6 s")
}
