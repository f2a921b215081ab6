package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme runs every session of the README (its ```console blocks: a line
// that starts with "$ " and what it prints) and compares what a reader would
// see. "go run ." is this very program; the home directory is empty.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range strings.Split(string(text), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, session := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(session, "\n")
			got := runReadme(t, command)
			if d := cmp.Diff(strings.TrimRight(want, "\n"), strings.TrimRight(got, "\n")); d != "" {
				t.Errorf("$ %s\n%s", command, d)
			}
			ran++
		}
	}
	if ran == 0 {
		t.Error("the README has no session")
	}
}

// runReadme runs one command line as a reader's shell would.
func runReadme(t *testing.T, line string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	bin := home + "/bin"
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, bin+"/tickdog"); err != nil { // testscript.Main goes by the name
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", strings.ReplaceAll(line, "go run .", "tickdog"))
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "TZ=UTC", "LANG=C.UTF-8",
		"TICKDOG_CONFIG=" + home + "/tickdog.toml", "TEST_AT=0"}
	if err := os.WriteFile(home+"/tickdog.toml", []byte("state_dir = \""+home+"/state\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("$ %s: %v", line, err)
	}
	return out.String()
}
