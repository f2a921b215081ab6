package units

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// silent is a file whose open and read never return until the test is over:
// whoever reads it sits in the kernel, and KILL does not end it.
type silent struct {
	fs.Inode
	over   chan struct{}
	asked  chan struct{}
	onOpen bool
}

var (
	_ fs.NodeOpener = (*silent)(nil)
	_ fs.NodeReader = (*silent)(nil)
)

func (s *silent) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = 0o555, 4096
	return 0
}

func (s *silent) wait() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-s.over
}

func (s *silent) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if s.onOpen {
		s.wait()
		return nil, 0, syscall.EIO
	}
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (s *silent) Read(context.Context, fs.FileHandle, []byte, int64) (fuse.ReadResult, syscall.Errno) {
	s.wait()
	return nil, syscall.EIO
}

func mountSilent(t *testing.T, onOpen bool) (path string, asked chan struct{}) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a FUSE file system needs root")
	}
	dir := t.TempDir()
	file := &silent{over: make(chan struct{}), asked: make(chan struct{}, 1), onOpen: onOpen}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild("file", root.NewPersistentInode(ctx, file, fs.StableAttr{}), false)
		},
	})
	if err != nil {
		t.Skip("no FUSE here: ", err)
	}
	t.Cleanup(func() {
		close(file.over)
		for range 100 {
			if server.Unmount() == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error("the test's file system stays mounted")
	})
	return filepath.Join(dir, "file"), file.asked
}

// A child that sits in the kernel is killed, then left behind and named: it
// costs Timeout + Grace + a moment, and is recognised as long as it lives.
func TestRunLeavesBehindWhatSitsInTheKernel(t *testing.T) {
	t.Parallel()
	file, asked := mountSilent(t, false)
	r := Run(context.Background(), Command{Argv: []string{"cat", file}, Timeout: 3 * time.Second, Grace: 300 * time.Millisecond})
	select {
	case <-asked:
	default:
		t.Fatal("nobody read the file")
	}
	if !r.Left || !r.TimedOut || r.Code != -1 || r.PID == 0 || r.Took > 20*time.Second {
		t.Fatalf("got %+v", r)
	}
	if !strings.Contains(r.Failure(), "not even when killed; process") {
		t.Errorf("Failure() = %q", r.Failure())
	}
	if !Alive(r.PID, r.StartTicks) {
		t.Error("it was left, but is not there")
	}
}

// A program whose file does not answer blocks before there is a process.
func TestRunOfAProgramThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	file, _ := mountSilent(t, true)
	r := Run(context.Background(), Command{Argv: []string{file}, Timeout: time.Second})
	if !r.TimedOut || r.PID != 0 || r.Took > 15*time.Second || !strings.Contains(r.Failure(), "could not be loaded in 1 s") {
		t.Fatalf("%q: %+v", r.Failure(), r)
	}
}
