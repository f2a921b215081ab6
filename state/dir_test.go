package state

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tickdog/check"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var moment = check.Moment{Wall: time.Unix(1_790_000_000, 0), Boot: 500, BootID: "b"}

func open(t testing.TB) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// put writes a file as a person or a crash would.
func put(t testing.TB, d *Dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(d.Path(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func loadLines(d *Dir, name string) (lines []string, l Loaded) {
	l = d.Load(name, moment, func(text string) error { lines = append(lines, text); return nil })
	return lines, l
}

func names(t testing.TB, d *Dir) []string {
	t.Helper()
	entries, err := os.ReadDir(d.Path(""))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSaveThenLoad(t *testing.T) {
	d := open(t)
	if err := d.Save("x", "unit epoch; deleting this forgets them", []string{"a 1", "b 2 why=\"the reason\""}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.Path("x"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "# unit epoch; deleting this forgets them\na 1\nb 2 why=\"the reason\"\n"; string(text) != want {
		t.Errorf("file is %q, want %q", text, want)
	}
	lines, l := loadLines(d, "x")
	if diff := cmp.Diff([]string{"a 1", `b 2 why="the reason"`}, lines); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Loaded{Found: true, Header: "unit epoch; deleting this forgets them"}, l); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]os.FileMode{d.Path("x"): 0o600, d.Path(""): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	big := strings.Repeat("0123456789abcde\n", MaxFile/16+1)
	for _, test := range []struct {
		name, text string
		lines      int
		bad        string
	}{
		{"a person's edits", "# columns\r\n\r\n  # a note\na 1\r\n \t\nb 2\n", 2, ""},
		{"header deleted", "a 1\n", 1, ""},
		{"only a header", "# nothing yet\n", 0, ""},
		{"empty", "", 0, "empty"},
		{"NUL file", strings.Repeat("\x00", 512), 0, "line 1: holds a NUL"},
		{"NUL inside", "# x\na 1\nb \x002\n", 0, "line 3: holds a NUL"},
		{"binary", "\x7fELF\xff\xfe\n", 0, "line 1: not UTF-8"},
		{"half a line", "# x\na 1\nb 2", 0, "line 3: cut short"},
		{"half a header", "# x", 0, "line 1: cut short"},
		{"refused line", "# x\na 1\nbroken\n", 1, "line 3: this is broken"},
		{"too large", big, 0, "larger than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := open(t)
			put(t, d, "x", test.text)
			lines := 0
			load := func(d *Dir) Loaded {
				lines = 0
				return d.Load("x", moment, func(text string) error {
					if text == "broken" {
						return errors.New("this is broken")
					}
					lines++
					return nil
				})
			}
			check := func(l Loaded) {
				t.Helper()
				if !l.Found || lines != test.lines || (l.Bad == "") != (test.bad == "") || !strings.Contains(l.Bad, test.bad) {
					t.Errorf("%+v with %d lines, want %q with %d", l, lines, test.bad, test.lines)
				}
			}

			l := load(View(d.Path("")))
			check(l)
			if l.SetAside != "" {
				t.Error("a view set a file aside")
			}
			l = load(d)
			check(l)
			if test.bad == "" {
				if l.SetAside != "" {
					t.Errorf("a good file was set aside as %s", l.SetAside)
				}
				return
			}
			if l.SetAside != "x.bad-1790000000" {
				t.Errorf("set aside as %q", l.SetAside)
			}
			if kept, err := os.ReadFile(d.Path(l.SetAside)); err != nil || string(kept) != test.text {
				t.Errorf("the bad file was not kept as it was: %v", err)
			}
			if again := load(d); again.Found {
				t.Errorf("told twice: %+v", again)
			}
		})
	}
}

func TestSetAsideNeverOverwrites(t *testing.T) {
	d := open(t)
	for i := range 3 {
		put(t, d, "x", fmt.Sprintf("half %d", i))
		if _, l := loadLines(d, "x"); l.SetAside == "" {
			t.Fatalf("%+v", l)
		}
	}
	for i, name := range []string{"x.bad-1790000000", "x.bad-1790000000-1", "x.bad-1790000000-2"} {
		if text, err := os.ReadFile(d.Path(name)); err != nil || string(text) != fmt.Sprintf("half %d", i) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestLoadWhatIsNoFile(t *testing.T) {
	d := open(t)
	if err := os.Mkdir(d.Path("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(d.Path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "fifo"} {
		if _, l := loadLines(d, name); !l.Found || !strings.Contains(l.Bad, "not a regular file") || l.SetAside == "" {
			t.Errorf("%s: %+v", name, l)
		}
		if err := d.Save(name, "h", nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, l := loadLines(d, "missing"); l != (Loaded{}) {
		t.Errorf("missing: %+v", l)
	}
}

func TestUnreadableStays(t *testing.T) {
	d := open(t)
	// A loop of symbolic links cannot be read even by root.
	if err := os.Symlink("x", d.Path("x")); err != nil {
		t.Fatal(err)
	}
	_, l := loadLines(d, "x")
	if !l.Found || !strings.HasPrefix(l.Bad, "cannot be read: ") || l.SetAside != "" {
		t.Errorf("%+v", l)
	}
	if _, err := os.Lstat(d.Path("x")); err != nil {
		t.Error(err)
	}
}

func TestLeftoverOfAKilledPass(t *testing.T) {
	d := open(t)
	if err := d.Save("x", "h", []string{"old"}); err != nil {
		t.Fatal(err)
	}
	for _, leave := range []func(string) error{
		func(path string) error { return os.WriteFile(path, []byte("hal"), 0o400) },
		func(path string) error { return os.Symlink("/dev/full", path) },
		func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		if err := leave(d.Path("x.new")); err != nil {
			t.Fatal(err)
		}
		if lines, l := loadLines(d, "x"); l.Bad != "" || len(lines) != 1 {
			t.Errorf("%q %+v", lines, l)
		}
		if list, err := d.List(); err != nil || len(list) != 1 {
			t.Errorf("%q, %v", list, err)
		}
		if err := d.Save("x", "h", []string{"new"}); err != nil {
			t.Error(err)
		}
		if got := names(t, d); len(got) != 1 {
			t.Errorf("left: %q", got)
		}
	}
}

func TestSaveCleansItsLines(t *testing.T) {
	d := open(t)
	if err := d.Save("x", "two\nlines", []string{"a\nb\r\nc\x00d", "\xff\xfe"}); err != nil {
		t.Fatal(err)
	}
	lines, l := loadLines(d, "x")
	if l.Bad != "" || cmp.Diff([]string{"a b  c d", "\uFFFD"}, lines) != "" {
		t.Errorf("%q %+v", lines, l)
	}
	if err := d.Save("x", "h", []string{strings.Repeat("x", MaxFile)}); err == nil {
		t.Error("saved what Load calls bad")
	}
	if lines, l := loadLines(d, "x"); l.Bad != "" || len(lines) != 2 {
		t.Errorf("the old file is gone: %q %+v", lines, l)
	}
}

func TestSaveIntoAMissingSubdirectory(t *testing.T) {
	d := open(t)
	if err := d.Save("cycles/dream/1", "h", nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(d.Path("cycles/dream")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestNoRoom writes with a limit on the size of files, which is the full disk
// that every machine has; the limit needs a process of its own.
func TestNoRoom(t *testing.T) {
	if dir := os.Getenv("STATE_TEST_NO_ROOM"); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		limit := unix.Rlimit{Cur: 16, Max: 16}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Skip(err)
		}
		d, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Save("x", "h", []string{strings.Repeat("new ", 10)})
		if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), d.Path("x")) {
			t.Errorf("error %v", err)
		}
		return
	}
	d := open(t)
	if err := d.Save("x", "h", []string{"old"}); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNoRoom$", "-test.v")
	child.Env = append(os.Environ(), "STATE_TEST_NO_ROOM="+d.Path(""))
	if out, err := child.CombinedOutput(); err != nil || bytes.Contains(out, []byte("SKIP")) {
		t.Fatalf("%v\n%s", err, out)
	}
	if lines, l := loadLines(d, "x"); l.Bad != "" || len(lines) != 1 || lines[0] != "old" {
		t.Errorf("%q %+v", lines, l)
	}
	if got := names(t, d); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	d := open(t)
	if os.Geteuid() == 0 {
		// Root is stopped by no mode, but by a directory that is none.
		d = &Dir{path: "/dev/null"}
	} else if err := os.Chmod(d.Path(""), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := d.Save("x", "h", nil); err == nil || !strings.Contains(err.Error(), d.Path("x")) {
		t.Errorf("error %v", err)
	}
	if err := d.Remove("x"); err == nil && os.Geteuid() == 0 {
		t.Error("removed from /dev/null")
	}
}

func TestView(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	d := View(path)
	if err := errors.Join(d.Save("x", "h", nil), d.WriteFile("y", nil), d.Remove("x"), d.Rename("x", "y")); err != nil {
		t.Error(err)
	}
	sub, err := d.Sub("s")
	if err != nil || !sub.ViewOnly() {
		t.Error(err)
	}
	if list, err := sub.List(); err != nil || list != nil {
		t.Errorf("%q, %v", list, err)
	}
	if _, l := loadLines(d, "x"); l.Found {
		t.Errorf("%+v", l)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("a view made its directory")
	}
}

func TestOpenNeverChanges(t *testing.T) {
	path := t.TempDir()
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o755 {
		t.Errorf("mode is now %v", info.Mode())
	}
	file := filepath.Join(path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil {
		t.Error("a file was taken for a directory")
	}
}

func TestForeign(t *testing.T) {
	path := "/"
	if os.Geteuid() == 0 {
		path = t.TempDir()
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Skip(err)
		}
		inside := filepath.Join(path, "a", "b")
		if _, err := Open(inside); !errors.Is(err, ErrForeign) {
			t.Errorf("root would make a directory in a user's: %v", err)
		}
		if _, err := os.Lstat(filepath.Dir(inside)); err == nil {
			t.Error("and it did")
		}
	}
	_, err := Open(path)
	if !errors.Is(err, ErrForeign) {
		t.Fatalf("error %v", err)
	}
	for _, word := range []string{path, userName(os.Geteuid()), "run as "} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %q", err, word)
		}
	}
}

// FuzzLoad: whatever lies in a file, it is either understood or kept whole
// under another name.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{"", "# h\na 1\n", "a", "\x00\n", "\xff", "\r\n", "#\n\n#"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := open(t)
		put(t, d, "x", string(data))
		_, l := loadLines(d, "x")
		kept := "x"
		if l.Bad != "" {
			kept = l.SetAside
		}
		if got, err := os.ReadFile(d.Path(kept)); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%+v: %v", l, err)
		}
		if err := d.Save("x", "h", strings.Split(string(data), "\n")); err != nil {
			t.Fatal(err)
		}
		if _, l := loadLines(d, "x"); l.Bad != "" {
			t.Fatalf("saved what cannot be loaded: %s", l.Bad)
		}
	})
}

func BenchmarkSave(b *testing.B) {
	d := open(b)
	lines := []string{"0000:83:00.0 3480 2 812345.678 0b0b5e4e-1111-4222-8333-444455556666 busy_boottime=1"}
	for b.Loop() {
		if err := d.Save("x", "card busy_seconds hot_checks", lines); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	d := open(b)
	if err := d.Save("x", "card busy_seconds hot_checks", []string{"0000:83:00.0 3480 2 812345.678 id"}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d.Load("x", moment, func(text string) error {
			_, err := ParseLine(text, 5)
			return err
		})
	}
}
