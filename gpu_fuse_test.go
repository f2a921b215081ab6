package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// mute is a file whose reads do not return until answer is closed: what a
// sensor file is when the card's firmware hangs.
type mute struct {
	fs.Inode
	answer chan struct{}
}

func (m *mute) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (m *mute) Read(context.Context, fs.FileHandle, []byte, int64) (fuse.ReadResult, syscall.Errno) {
	<-m.answer
	return nil, syscall.EIO
}

func (m *mute) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o444, 4096
	return 0
}

// mountMuteCard mounts the sysfs tree of one MI50 whose gpu_busy_percent never
// answers.
func mountMuteCard(t *testing.T, at string) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs /dev/fuse and root")
	}
	answer := make(chan struct{})
	root := &fs.Inode{}
	server, err := fs.Mount(at, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMount: true},
		OnAdd: func(ctx context.Context) {
			dir := root
			for _, name := range []string{"class", "drm", "card0", "device"} {
				next := dir.NewPersistentInode(ctx, &fs.Inode{}, fs.StableAttr{Mode: fuse.S_IFDIR})
				dir.AddChild(name, next, false)
				dir = next
			}
			for name, text := range map[string]string{"vendor": "0x1002\n", "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n"} {
				dir.AddChild(name, dir.NewPersistentInode(ctx, &fs.MemRegularFile{Data: []byte(text)}, fs.StableAttr{}), false)
			}
			dir.AddChild("gpu_busy_percent", dir.NewPersistentInode(ctx, &mute{answer: answer}, fs.StableAttr{}), false)
		},
	})
	if err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() {
		close(answer)
		for range 100 {
			if server.Unmount() == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("%s is still mounted", at)
	})
}

// A sensor read that never returns costs neither the pass, nor the lock, nor
// the next tick; and while the reader hangs in the kernel there is one of it.
func TestSensorThatNeverAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds, and needs a reader that is quick to get as far as the mute file")
	}
	t.Parallel()
	dir := t.TempDir()
	sysfs := filepath.Join(dir, "sys")
	if err := os.Mkdir(sysfs, 0o700); err != nil {
		t.Fatal(err)
	}
	mountMuteCard(t, sysfs)
	config := filepath.Join(dir, "tickdog.toml")
	text := fmt.Sprintf("state_dir = %q\n[gpu]\nlock = %q\nsysfs = %q\nread_timeout = \"3s\"\n", dir+"/state", dir+"/lock", sysfs)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pass := func() (verdict, report) {
		t.Helper()
		began := time.Now()
		out, err := exec.Command("tickdog", "gpu", "--config", config, "--json").Output()
		if err != nil {
			t.Fatalf("the pass failed: %v", err)
		}
		if took := time.Since(began); took > 60*time.Second {
			t.Errorf("the pass took %v", took)
		}
		var r report
		if err := json.Unmarshal(out, &r); err != nil || len(r.Verdicts) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		return r.Verdicts[0], r
	}

	v, r := pass()
	if v.Verdict != "unknown" || v.Subject != "0000:03:00.0" || r.Source != "sysfs" || !strings.Contains(v.Reason, "the sensors did not answer: sysfs: no end in 3 s") {
		t.Errorf("first pass: %+v of %s", v, r.Source)
	}
	stuck, err := os.ReadFile(dir + "/state/mi50-watchdog-stuck")
	if err != nil || strings.Count(string(stuck), "sysfs ") != 1 {
		t.Fatalf("what was left behind is not remembered: %v\n%s", err, stuck)
	}

	v, _ = pass() // the lock is free, and no second reader is started
	if v.Verdict != "unknown" || !strings.Contains(v.Reason, "left behind by an earlier pass, still hangs") {
		t.Errorf("second pass: %+v", v)
	}
	if again, _ := os.ReadFile(dir + "/state/mi50-watchdog-stuck"); string(again) != string(stuck) {
		t.Errorf("a second one was left behind:\n%s", again)
	}
}
