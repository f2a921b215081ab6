package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tickdog/check"
)

// MaxFile is the size in bytes above which a file is no state file of ours:
// [Dir.Load] calls it bad and [Dir.Save] does not write it.
const MaxFile = 1 << 20

// ErrForeign says that the state directory belongs to another user than the
// one this process runs as. The error that wraps it names both, and the mend.
var ErrForeign = errors.New("belongs to another user")

// Dir is a directory of state files. Its methods are safe for use by several
// processes as long as each file has one writer at a time (the pass's lock).
type Dir struct {
	path     string
	view     bool
	unsynced bool
}

// Open returns the directory at path. It makes a missing one 0700, with its
// parents, and never changes one that is there. The error wraps [ErrForeign]
// if the directory belongs to another user, or if it would have to be made by
// root inside another user's directory; then there is no Dir. With any other
// error (a full or read-only disk) the Dir is there all the same, and whatever
// writes to it fails: a pass that may go on without memory can.
func Open(path string) (*Dir, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := refuseForeignParent(path); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			return &Dir{path: path}, fmt.Errorf("state directory: %w", err)
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return &Dir{path: path}, fmt.Errorf("state directory: %w", err)
	}
	if !info.IsDir() {
		return &Dir{path: path}, fmt.Errorf("state directory: %s is no directory", path)
	}
	if owner := ownerOf(info); owner != os.Geteuid() {
		return nil, foreign(path, owner)
	}
	return &Dir{path: path}, nil
}

// View returns the directory at path for looking only: for --dry-run and
// status. It takes a directory of any user; a missing one is empty; whatever
// would write returns nil and has written nothing.
func View(path string) *Dir { return &Dir{path: path, view: true} }

// refuseForeignParent keeps root from making a directory where the user it
// belongs to could then write nothing.
func refuseForeignParent(path string) error {
	if os.Geteuid() != 0 {
		return nil // anybody else is stopped by the permissions
	}
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err == nil {
			if owner := ownerOf(info); owner != 0 {
				return foreign(parent, owner)
			}
			return nil
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func foreign(path string, owner int) error {
	return fmt.Errorf("state directory: %s %w: it is %s's and this is %s; run as %[3]s, or name another state_dir",
		path, ErrForeign, userName(owner), userName(os.Geteuid()))
}

func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(uid)
}

// Path is where the file called name lies; name may hold slashes.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// ViewOnly tells whether d writes nothing.
func (d *Dir) ViewOnly() bool { return d.view }

// Unsynced is d for files that may be lost when the power fails, and must not
// cost a wait for the disk: they are still written as a whole or not at all,
// and a killed process loses nothing.
func (d *Dir) Unsynced() *Dir {
	quick := *d
	quick.unsynced = true
	return &quick
}

// Sub returns the directory called name inside d, made 0700 if it is missing.
// A view's is a view.
func (d *Dir) Sub(name string) (*Dir, error) {
	if d.view {
		return View(d.Path(name)), nil
	}
	return Open(d.Path(name))
}

// List returns the names of what lies in d, sorted; of a missing directory,
// none. What a killed pass left half-written (NAME.new) is not listed.
func (d *Dir) List() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), newSuffix) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Loaded says how [Dir.Load] found a file.
type Loaded struct {
	Found    bool   // there was one
	Bad      string // why it cannot be understood, with the line's number; "" is fine
	SetAside string // the name a bad one was moved to; "" in a view, or if it could not be moved
	Header   string // the first comment line, without its #
}

// Load reads the file called name and calls line for each line that is neither
// blank nor a comment. A file that is empty, too large, not text, cut short, or
// that has a line which line refuses, is bad: it is set aside as
// NAME.bad-<epoch>, and whatever line was given before is not to be trusted.
// One that cannot be read at all (permissions, I/O error) is bad and stays.
func (d *Dir) Load(name string, m check.Moment, line func(text string) error) Loaded {
	data, err := d.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Loaded{}
	case errors.Is(err, errNoText):
		return d.setAside(name, m, Loaded{Found: true, Bad: err.Error()})
	case err != nil:
		return Loaded{Found: true, Bad: "cannot be read: " + err.Error()}
	}
	l := Loaded{Found: true}
	l.Header, l.Bad = parse(data, line)
	if l.Bad != "" {
		return d.setAside(name, m, l)
	}
	return l
}

// parse checks the whole before it hands out the first line.
func parse(data []byte, line func(string) error) (header, bad string) {
	if len(data) == 0 {
		return "", "empty"
	}
	texts := strings.Split(string(data), "\n")
	for i, text := range texts {
		switch {
		case strings.IndexByte(text, 0) >= 0:
			return "", fmt.Sprintf("line %d: holds a NUL", i+1)
		case !utf8.ValidString(text):
			return "", fmt.Sprintf("line %d: not UTF-8", i+1)
		}
	}
	last := len(texts) - 1
	if texts[last] != "" {
		return "", fmt.Sprintf("line %d: cut short (no newline at its end)", last+1)
	}
	if strings.HasPrefix(texts[0], "#") {
		header = strings.TrimSpace(texts[0][1:])
	}
	for i, text := range texts[:last] {
		if word := strings.TrimSpace(text); word == "" || word[0] == '#' {
			continue
		}
		if err := line(strings.TrimSuffix(text, "\r")); err != nil {
			return header, fmt.Sprintf("line %d: %v", i+1, err)
		}
	}
	return header, ""
}

// setAside moves a bad file out of the way, to a name that is free.
func (d *Dir) setAside(name string, m check.Moment, l Loaded) Loaded {
	if d.view {
		return l
	}
	for n := 0; ; n++ {
		aside := fmt.Sprintf("%s.bad-%d", name, m.Epoch())
		if n > 0 {
			aside += "-" + strconv.Itoa(n)
		}
		switch err := renameNew(d.Path(name), d.Path(aside)); {
		case err == nil:
			l.SetAside = aside
			return l
		case !errors.Is(err, fs.ErrExist):
			l.Bad += "; it could not be set aside: " + err.Error()
			return l
		}
	}
}

// renameNew renames, but never over something.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// A file system that cannot promise it. The pass's lock is what keeps
		// others away between the two steps.
		if _, err := os.Lstat(to); err == nil {
			return fs.ErrExist
		}
		return os.Rename(from, to)
	}
	return err
}

// errNoText is wrapped by ReadFile's errors about files that no pass wrote.
var errNoText = errors.New("no state file")

// ReadFile returns the bytes of the file called name. The error wraps
// fs.ErrNotExist if there is none. Something that is no regular file, or is
// larger than [MaxFile], is an error and is not read.
func (d *Dir) ReadFile(name string) ([]byte, error) {
	// Without O_NONBLOCK a named pipe would hold the pass for ever.
	file, err := os.OpenFile(d.Path(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: not a regular file", errNoText)
	}
	data := make([]byte, 0, min(info.Size(), MaxFile)+1)
	for {
		n, err := file.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if len(data) > MaxFile {
			return nil, fmt.Errorf("%w: larger than %d bytes", errNoText, MaxFile)
		}
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// Save writes the file called name: "# " and header, then the lines. What it
// writes [Dir.Load] can read: a line break or a NUL inside a line becomes a
// blank. On an error the old file is still there, whole.
func (d *Dir) Save(name, header string, lines []string) error {
	var b bytes.Buffer
	b.WriteString("# ")
	b.WriteString(OneLine(header))
	b.WriteByte('\n')
	for _, line := range lines {
		b.WriteString(OneLine(line))
		b.WriteByte('\n')
	}
	return d.WriteFile(name, b.Bytes())
}

const newSuffix = ".new"

// WriteFile writes the file called name, 0600, as a whole or not at all: it is
// written as NAME.new, synced and renamed, and the directory is synced. Missing
// directories inside d are made. On an error NAME.new is gone again.
func (d *Dir) WriteFile(name string, data []byte) error {
	if d.view {
		return nil
	}
	path := d.Path(name)
	if len(data) > MaxFile {
		return fmt.Errorf("cannot write %s: %d bytes are more than %d", path, len(data), MaxFile)
	}
	err := replace(path, data, 0o600, !d.unsynced)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = replace(path, data, 0o600, !d.unsynced)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Append adds lines to the file called name, which must be there, in one write
// that does not wait for the disk. It is for files of which a later line counts
// more than an earlier one, and far cheaper than [Dir.Save]. On an error the
// file is as it was.
func (d *Dir) Append(name string, lines []string) error {
	if d.view {
		return nil
	}
	file, err := os.OpenFile(d.Path(name), os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, line := range lines {
		b.WriteString(OneLine(line))
		b.WriteByte('\n')
	}
	if info.Size()+int64(b.Len()) > MaxFile {
		return fmt.Errorf("cannot add to %s: it would be larger than %d bytes", d.Path(name), MaxFile)
	}
	if _, err := file.Write(b.Bytes()); err != nil {
		file.Truncate(info.Size()) // half a line would spoil the whole
		return err
	}
	return nil
}

// Replace writes the file at path as [Dir.WriteFile] does, but anywhere, with
// this mode whatever the umask, and in a directory that must be there: for what
// others read, like a metrics file.
func Replace(path string, data []byte, mode fs.FileMode) error {
	return replace(path, data, mode, true)
}

func replace(path string, data []byte, mode fs.FileMode, sync bool) (err error) {
	fresh := path + newSuffix
	file, err := create(fresh)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(fresh)
		}
	}()
	_, err = file.Write(data)
	if err == nil && mode != 0o600 {
		err = file.Chmod(mode)
	}
	if err == nil && sync {
		err = file.Sync()
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil || !sync {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// create opens a file that was not there before: a leftover of a killed pass
// goes first (with O_TRUNC alone its mode and its links would stay).
func create(path string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		return os.OpenFile(path, flags, 0o600)
	}
	return file, err
}

// syncDir makes a rename or a removal last. A file system that cannot sync a
// directory is no reason to fail.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// Remove deletes the file called name. A missing one is fine.
func (d *Dir) Remove(name string) error {
	if d.view {
		return nil
	}
	err := os.Remove(d.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(d.Path(name)))
}

// Rename gives the file called from the name to, which must be free.
func (d *Dir) Rename(from, to string) error {
	if d.view {
		return nil
	}
	if err := renameNew(d.Path(from), d.Path(to)); err != nil {
		return fmt.Errorf("cannot rename %s to %s: %w", d.Path(from), to, err)
	}
	return syncDir(filepath.Dir(d.Path(to)))
}
