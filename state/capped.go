package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// AppendCapped adds one line to the text file at path, in one write. When that
// would make it larger than max bytes, the newest half is kept, whole lines
// only, and the older ones go: there is no second file. The file is made 0600
// and its directories 0700 if they are missing. A line of more than half of max
// is cut; half a line that a power cut left at the end is ended first.
func AppendCapped(path string, line string, max int64) error {
	data := append([]byte(OneLine(line)), '\n')
	if half := int(max / 2); len(data) > half && half > 0 {
		data = append(bytes.ToValidUTF8(data[:half-1], nil), '\n')
	}
	const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		file, err = os.OpenFile(path, flags, 0o600)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if info.Mode().IsRegular() && size > 0 {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, size-1); err == nil && last[0] != '\n' {
			data = append([]byte{'\n'}, data...)
		}
		if size+int64(len(data)) > max {
			kept, err := newest(file, size, max/2-int64(len(data)))
			if err != nil {
				return err
			}
			// The rename is what makes this safe to kill; through a symbolic
			// link it must hit the file and not the link.
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			if err := Replace(path, append(kept, data...), info.Mode().Perm()); err != nil {
				return fmt.Errorf("cannot cap %s: %w", path, err)
			}
			return nil
		}
	}
	_, err = file.Write(data)
	return err
}

// newest reads the whole lines in the last room bytes of a file.
func newest(file *os.File, size, room int64) ([]byte, error) {
	if room <= 0 {
		return nil, nil
	}
	room = min(room, size)
	kept := make([]byte, room)
	if _, err := file.ReadAt(kept, size-room); err != nil {
		return nil, err
	}
	if room == size {
		return kept, nil
	}
	// A line is whole only behind a line break.
	_, whole, _ := bytes.Cut(kept, []byte{'\n'})
	return whole, nil
}
