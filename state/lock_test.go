package state

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestMain lets this binary be the other process of the tests of locks.
func TestMain(m *testing.M) {
	switch path := os.Getenv("STATE_TEST_LOCK"); {
	case path == "":
		os.Exit(m.Run())
	case os.Getenv("STATE_TEST_COUNT") != "":
		countUnderLock(path, os.Getenv("STATE_TEST_COUNT"))
	default:
		if _, err := TryLock(path); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		bufio.NewReader(os.Stdin).ReadByte() // until the test closes it
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrBusy) {
		t.Errorf("second lock: %v", err)
	}
	for range 2 {
		if err := first.Release(); err != nil {
			t.Error(err)
		}
	}
	second, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	if err := (*Lock)(nil).Release(); err != nil {
		t.Error(err)
	}
}

// In a directory of all, a lock that root made must let the others in.
func TestLockInSharedDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	lock, err := TryLock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	if info, err := os.Stat(filepath.Join(dir, "lock")); err != nil || info.Mode().Perm()&^0o044 != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestLockThatCannotBeOpened(t *testing.T) {
	for _, path := range []string{
		filepath.Join(t.TempDir(), "none", "lock"),
		"/dev/null/lock",
	} {
		if _, err := TryLock(path); err == nil || errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestLockOfAReadOnlyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

// TestLockOfAnotherUser is what root meets in /run/lock after the user's pass.
func TestLockOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Chown(path, 65534, 65534)); err != nil {
		t.Skip(err)
	}
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

func TestLockDeletedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	old, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	old.Release()
	if _, err := TryLock(path); !errors.Is(err, ErrBusy) {
		t.Errorf("the new file is not locked: %v", err)
	}
	lock.Release()
}

func TestWaitLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := WaitLock(ctx, path); !errors.Is(err, ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { held.Release() })
	lock, err := WaitLock(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

// TestLockEndsWithItsProcess: a killed pass blocks nobody, and a child that
// outlives it does not hold its lock.
func TestLockEndsWithItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), "STATE_TEST_LOCK="+path)
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if said, _ := bufio.NewReader(stdout).ReadString('\n'); said != "held\n" {
		t.Fatalf("the other process said %q", said)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v", err)
	}
	holder.Process.Kill()
	holder.Wait()
	lock, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	fds := filepath.Join("/proc", strconv.Itoa(child.Process.Pid), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Skip(err)
	}
	for _, fd := range entries {
		if to, _ := os.Readlink(filepath.Join(fds, fd.Name())); to == path {
			t.Error("the child inherited the lock")
		}
	}
	lock.Release()
}

// countUnderLock adds 1 to the number in a file, 20 times.
func countUnderLock(lockPath, dir string) {
	d := &Dir{path: dir}
	for range 20 {
		lock, err := WaitLock(context.Background(), lockPath)
		if err != nil {
			panic(err)
		}
		n := 0
		d.Load("count", moment, func(text string) (err error) { n, err = strconv.Atoi(text); return err })
		if err := d.Save("count", "a number", []string{strconv.Itoa(n + 1)}); err != nil {
			panic(err)
		}
		lock.Release()
	}
}

func TestEightProcessesLoseNothing(t *testing.T) {
	d := open(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), "STATE_TEST_LOCK="+d.Path("lock"), "STATE_TEST_COUNT="+d.Path(""))
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	if lines, l := loadLines(d, "count"); l.Bad != "" || len(lines) != 1 || lines[0] != "160" {
		t.Errorf("%q %+v", lines, l)
	}
}
