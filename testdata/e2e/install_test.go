package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// product is the binary, built once for all tests.
var product = struct {
	once sync.Once
	path string
}{}

// install puts tickdog and the units of a kind into the box, as root, and
// enables nothing.
func (b *box) install(kind string) {
	b.t.Helper()
	b.copyIn(builtProduct(b.t), "/usr/bin/tickdog", 0o755)
	b.t.Log(b.sh("tickdog", "units", "install", kind))
}

func builtProduct(t *testing.T) string {
	t.Helper()
	product.once.Do(func() { product.path = filepath.Join(build(t, "../..", "."), "tickdog") })
	if product.path == "" {
		t.Fatal("tickdog was not built")
	}
	return product.path
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
