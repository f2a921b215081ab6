package state

import (
	"os"
	"strings"
	"testing"
	"time"

	"tickdog/check"
)

func TestAppend(t *testing.T) {
	d := View(t.TempDir())
	if err := d.Append("run", []string{"x"}); err != nil {
		t.Errorf("a view that is asked to write: %v", err)
	}
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Append("run", []string{"x"}); !os.IsNotExist(err) {
		t.Errorf("to a missing file: %v", err)
	}
	if err := d.Unsynced().Save("run", "head", []string{"one"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Append("run", []string{"two\nof them", "three"}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	got := d.Load("run", check.Moment{Wall: time.Unix(1, 0)}, func(text string) error {
		lines = append(lines, text)
		return nil
	})
	if got.Bad != "" || strings.Join(lines, "|") != "one|two of them|three" {
		t.Errorf("%v %q", lines, got.Bad)
	}
	if err := d.Append("run", []string{strings.Repeat("x", MaxFile)}); err == nil {
		t.Error("more than a file may hold was added")
	}
	if text, _ := d.ReadFile("run"); string(text) != "# head\none\ntwo of them\nthree\n" {
		t.Errorf("%q", text)
	}
}
