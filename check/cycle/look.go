package cycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Past is one record that was found.
type Past struct {
	File   string // its name
	Record Record
	Bad    string // why it cannot be understood; "" is fine
}

// maxRecord is the size in bytes above which a file is no record of ours.
const maxRecord = 1 << 20

// Look reads the records in dir, oldest first; a missing directory has none.
// An error means that the directory cannot be read; a single record that
// cannot be is in the list, with the reason.
func Look(dir string) ([]Past, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var past []Past
	for _, e := range entries {
		if stem := StemOf(e.Name()); stem == "" || e.Name() != stem+".json" || !e.Type().IsRegular() {
			continue // an output, or somebody else's
		}
		p := Past{File: e.Name()}
		text, err := read(filepath.Join(dir, e.Name()))
		if err == nil {
			p.Record, err = Parse(text)
		}
		if err != nil {
			p.Bad = err.Error()
		}
		past = append(past, p)
	}
	return past, nil
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxRecord {
		return nil, fmt.Errorf("larger than %d bytes", maxRecord)
	}
	return os.ReadFile(path)
}
