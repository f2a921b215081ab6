package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// packages are the .deb files by version, built when they are first wanted.
var packages = struct {
	sync.Mutex
	built map[string][]byte
}{built: map[string][]byte{}}

func debPackage(t *testing.T, version string) []byte {
	t.Helper()
	packages.Lock()
	defer packages.Unlock()
	if packages.built[version] == nil {
		cmd := exec.Command("../../.ci/deb", version)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf(".ci/deb: %v\n%s", err, said)
		}
		file := "../../dist/tickdog_" + version + "_amd64.deb"
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		os.Remove(file)
		packages.built[version] = content
	}
	return packages.built[version]
}

// install installs tickdog from its package and returns what that said.
func (b *box) install(version string) string {
	b.t.Helper()
	b.write("/run/tickdog.deb", string(debPackage(b.t, version)), 0o644)
	return b.sh("dpkg", "--force-confold", "-i", "/run/tickdog.deb")
}

// interval is a drop-in that lets a timer fire so many seconds after the last
// time.
func interval(seconds int) string {
	return fmt.Sprintf("[Timer]\nOnBootSec=\nOnActiveSec=\nOnUnitActiveSec=\nOnActiveSec=1\nOnUnitActiveSec=%d\nAccuracySec=100ms\n", seconds)
}

// passes tells how many passes of a system unit have ended so far.
func (b *box) passes(unit string) int {
	said := "\n" + b.journal(0, "-u", unit, "-o", "cat")
	return strings.Count(said, "\nFinished ") + strings.Count(said, "\nFailed to start ")
}

// awaitPasses waits for so many further passes.
func (b *box) awaitPasses(unit string, more int) {
	b.t.Helper()
	before := b.passes(unit)
	b.eventually(time.Minute, fmt.Sprintf("%d more passes", more), func() (string, bool) {
		now := b.passes(unit)
		return fmt.Sprintf("%d passes, %d before\n%s", now, before, b.lastWords(unit)), now >= before+more
	})
}
