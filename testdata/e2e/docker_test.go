package e2e

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// startDocker starts a real dockerd in the box, with an image whose only file
// is brain.
func (b *box) startDocker() {
	b.t.Helper()
	b.write("/etc/docker/daemon.json", `{"data-root":"/run/docker-data","bridge":"none","iptables":false,"ip6tables":false,"live-restore":true}`, 0o644)
	b.sh("systemctl", "start", "docker")
	brain := filepath.Join(build(b.t, "../..", "./testdata/e2e/brain"), "brain")
	content, err := os.ReadFile(brain)
	b.must(err)
	image, err := os.Create(b.path("/run/brain.tar"))
	b.must(err)
	w := tar.NewWriter(image)
	b.must(w.WriteHeader(&tar.Header{Name: "brain", Mode: 0o755, Size: int64(len(content))}))
	_, err = w.Write(content)
	b.must(err)
	b.must(w.Close())
	b.must(image.Close())
	b.sh("docker", "import", "--change", `ENTRYPOINT ["/brain"]`, "/run/brain.tar", "brain")
}

// startBrain starts the container afresh.
func (b *box) startBrain() {
	b.t.Helper()
	b.try("docker", "rm", "-f", "lyra-brain")
	b.sh("docker", "run", "-d", "--name", "lyra-brain", "--network", "none", "brain")
}

// brainRuns tells whether the container runs; "" if docker cannot say.
func (b *box) brainRuns() string {
	out, err := b.try("docker", "inspect", "-f", "{{.State.Running}}", "lyra-brain")
	if err != nil {
		return ""
	}
	return out
}

// awaitStop waits until the container is stopped and returns when that was
// seen.
func (b *box) awaitStop(limit time.Duration) time.Time {
	b.t.Helper()
	b.eventually(limit, "lyra-brain is stopped", func() (string, bool) {
		runs := b.brainRuns()
		return "running: " + runs + "\n" + b.lastWords("mi50-watchdog"), runs == "false"
	})
	return time.Now()
}

// lastWords is the end of a system unit's journal.
func (b *box) lastWords(unit string) string {
	return b.journal(12, "-u", unit, "-o", "cat")
}

// staysUp fails if the container stops within so long.
func (b *box) staysUp(t *testing.T, how time.Duration) {
	t.Helper()
	for end := time.Now().Add(how); time.Now().Before(end); time.Sleep(time.Second) {
		if runs := b.brainRuns(); runs != "true" {
			t.Fatalf("lyra-brain runs: %q\n%s", runs, b.lastWords("mi50-watchdog"))
		}
	}
}
