package main

import "testing"

// TestBootedMachine only says that there is more: `go test ./...` does not look
// into testdata.
func TestBootedMachine(t *testing.T) {
	t.Skip("the tests on a booted machine want root: TICKDOG_E2E=1 go test -v ./testdata/e2e")
}
