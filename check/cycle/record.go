package cycle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"tickdog/check"
)

// Text is the record as it is kept: one JSON object, the cycle on its first
// line and then a line a call, so that grep finds a call with all its numbers.
func (r Record) Text() []byte {
	calls := r.Calls
	r.Calls = []Call{}
	head := encode(r)
	if len(calls) == 0 {
		return append(head, '\n')
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("]}"))) // calls is the last field
	for i, c := range calls {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		c.Argv = shortened(c.Argv, min(4096, maxRecord/4/len(calls)))
		b.Write(encode(c))
	}
	b.WriteString("\n]}\n")
	return b.Bytes()
}

// Parse reads what [Record.Text] wrote.
func Parse(text []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, err
	}
	switch r.Outcome {
	case Running, Completed, StoppedEarly, Failed, Interrupted:
	default:
		return Record{}, fmt.Errorf("outcome %q is none", r.Outcome)
	}
	if _, err := time.Parse(time.RFC3339, r.Started); err != nil {
		return Record{}, fmt.Errorf("started: %q is no time", r.Started)
	}
	return r, nil
}

// encode is JSON for people: < and & stay as they are.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and numbers always encode
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// shortened keeps prompts out of the record, which so has room for a thousand
// calls; a person knows the call by its beginning. most is in bytes.
func shortened(argv []string, most int) []string {
	left := most
	for i, word := range argv {
		if left -= len(word); left < 0 {
			cut := string(bytes.ToValidUTF8([]byte(word[:max(0, len(word)+left)]), nil)) + "…"
			return append(append([]string(nil), argv[:i]...), cut)
		}
	}
	return argv
}

// fileLayout is the record's name: the start in UTC, so that names sort by
// time whatever the local zone does twice a year.
const fileLayout = "20060102T150405.000Z"

// Stem is the name of the files of a cycle that starts now, without an
// extension: the record's is ".json".
func Stem(now check.Moment) string { return now.Wall.UTC().Format(fileLayout) }

// StemOf is the stem that a file's name begins with; "" if it is none of a cycle's.
func StemOf(file string) string {
	if len(file) < len(fileLayout) {
		return ""
	}
	stem := file[:len(fileLayout)]
	if _, err := time.Parse(fileLayout, stem); err != nil {
		return ""
	}
	return stem
}
