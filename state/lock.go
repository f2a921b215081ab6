package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// ErrBusy says that another process holds the lock.
var ErrBusy = errors.New("busy: another process holds the lock")

// Lock is a lock that is held. It ends with [Lock.Release] or with the process,
// and no child inherits it.
type Lock struct{ file *flock.Flock }

// TryLock takes the lock at path, or returns [ErrBusy] at once. The file is
// made 0600 if it is missing and never removed. In a directory that all share,
// such as /run/lock, others may open it (0644, less the umask): a guard that
// root once ran by hand must not keep the unit's user out until the next boot.
// Any other error means that the file could not be opened.
func TryLock(path string) (*Lock, error) {
	for {
		file, err := openLock(path)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Whoever deleted the file since we opened it left us a lock that
		// nobody else will ever see.
		held, err := file.Stat()
		if err == nil {
			var now fs.FileInfo
			if now, err = os.Stat(path); err == nil && os.SameFile(held, now) {
				return &Lock{file}, nil
			}
		}
		file.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// openLock opens and locks. An existing file is opened without O_CREAT: in a
// sticky directory such as /run/lock the kernel (fs.protected_regular) refuses
// O_CREAT on a file of another user, even to root.
func openLock(path string) (*flock.Flock, error) {
	mode := fs.FileMode(0o600)
	if dir, err := os.Stat(filepath.Dir(path)); err == nil && dir.Mode().Perm()&0o002 != 0 {
		mode = 0o644
	}
	// O_NONBLOCK: a named pipe must not hold us.
	for _, flags := range []int{
		os.O_RDONLY | unix.O_NONBLOCK,
		os.O_RDONLY | os.O_CREATE | os.O_EXCL,
		os.O_RDONLY | unix.O_NONBLOCK, // somebody else made it in between
	} {
		file := flock.New(path, flock.SetFlag(flags), flock.SetPermissions(mode))
		locked, err := file.TryLock()
		switch {
		case locked:
			return file, nil
		case err == nil:
			return nil, ErrBusy
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist):
			return nil, err
		}
	}
	return nil, fs.ErrNotExist // its directory is missing
}

// WaitLock is [TryLock], but waits while another process holds the lock, until
// ctx is done; then the error wraps both [ErrBusy] and ctx's.
func WaitLock(ctx context.Context, path string) (*Lock, error) {
	const pause = 10 * time.Millisecond // a pass holds its lock for seconds, a loop's verdict for one millisecond
	for {
		lock, err := TryLock(path)
		if !errors.Is(err, ErrBusy) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Release gives the lock up. Releasing nil, or twice, does nothing.
func (l *Lock) Release() error {
	if l == nil {
		return nil
	}
	return l.file.Unlock()
}
