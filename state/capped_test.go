package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAppendCapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "x.log")
	const most = 1000
	for i := range 500 {
		line := fmt.Sprintf("line %03d restart", i)
		if err := AppendCapped(path, line, most); err != nil {
			t.Fatal(err)
		}
		text := read(t, path)
		if len(text) > most {
			t.Fatalf("%d bytes after line %d", len(text), i)
		}
		if i > 60 && len(text) < most/2-50 {
			t.Fatalf("only %d bytes kept after line %d", len(text), i)
		}
		// Whole lines, the newest ones, none missing in between.
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for back, got := range lines {
			if want := fmt.Sprintf("line %03d restart", i-len(lines)+1+back); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 1 {
		t.Errorf("a second file: %v", entries)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, _ := os.Stat(p); info.Mode().Perm() != want {
			t.Errorf("%s is %v", p, info.Mode())
		}
	}
}

func TestAppendCappedOddFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")

	if err := os.WriteFile(path, []byte("whole\nhal"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := AppendCapped(path, "next\nline", 100); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "whole\nhal\nnext line\n" {
		t.Errorf("%q", got)
	}

	// An old log that was never capped, behind a link; its mode stays.
	if err := os.WriteFile(path, []byte(strings.Repeat("0123456\n", 1000)), 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("log", link); err != nil {
		t.Fatal(err)
	}
	if err := AppendCapped(link, "new", 80); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != strings.Repeat("0123456\n", 4)+"new\n" {
		t.Errorf("%q", got)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}

	if err := AppendCapped(path, strings.Repeat("é", 500), 80); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); !strings.HasSuffix(got, "\n"+strings.Repeat("é", 19)+"\n") {
		t.Errorf("%q", got)
	}

	if err := AppendCapped("/dev/full", "x", 80); err == nil {
		t.Error("a full disk is no error")
	}
	if err := AppendCapped(dir, "x", 80); err == nil {
		t.Error("a directory is no log")
	}
}
