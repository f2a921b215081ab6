package gpu

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// FuzzParse holds what every caller relies on, whatever was printed: a known
// value is a possible one, why is there exactly if nothing is known, every
// card has a name, and neither line ends nor a warning at the end nor a cut
// inside a line change what is read.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join(captures, "[0-9]*"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint(len(data)/2))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint) {
		cards, why := Parse(data)
		if (why == "") != (len(usable(cards)) > 0) {
			t.Errorf("why = %q with %+v", why, cards)
		}
		for _, r := range cards {
			switch {
			case r.Card == "",
				r.Busy.Known && !(r.Busy.Value >= 0 && r.Busy.Value <= 100),
				r.Junction.Known && !(r.Junction.Value > 0 && r.Junction.Value < 150),
				r.Junction.Known && !r.HasJunction,
				r.Power.Known && !(r.Power.Value > 0),
				!r.Busy.Known && r.Why == "",
				r.Suspended:
				t.Errorf("impossible: %+v", r)
			}
		}
		if byteOrder(data) != nil {
			return
		}
		if !bytes.ContainsRune(data, '\r') {
			if got, _ := Parse(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))); !reflect.DeepEqual(got, cards) {
				t.Errorf("with CRLF: got %+v, want %+v", got, cards)
			}
		}
		if bytes.HasSuffix(data, []byte("\n")) {
			if got, _ := Parse(append(bytes.Clone(data), warning...)); !reflect.DeepEqual(got, cards) {
				t.Errorf("with a warning at the end: got %+v, want %+v", got, cards)
			}
		}
		// A cut inside a line reads what a cut before it reads; a JSON document
		// shows by itself whether it is whole.
		text := plain(data)
		cut := text[:min(int(at%(1<<30)), len(text))]
		before := cut[:strings.LastIndex(cut, "\n")+1]
		if !strings.ContainsAny(cut, "{[") {
			got, _ := Parse([]byte(cut))
			if want, _ := Parse([]byte(before)); !reflect.DeepEqual(got, want) {
				t.Errorf("cut after %d: got %+v, want %+v", len(cut), got, want)
			}
		}
	})
}

// FuzzJSON holds that the scan for documents and the parser agree, and that no
// document is too deep or too broken for them.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a": [1, {"b": "\"}"}]}`, "noise {x} [1] {\"a\":\n[\nWARNING: }\n]}tail", `[[[`, `{"a":1,"a":2}`, `[{}]{"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		docs, _ := documents(text)
		for _, doc := range docs {
			if doc[0] != '{' && doc[0] != '[' {
				t.Errorf("%q is no document", doc)
			}
			if _, err := parseJSON(doc); err == nil {
				if again, cut := documents(doc); cut || len(again) != 1 || again[0] != doc {
					t.Errorf("%q read again is %q", doc, again)
				}
			}
		}
	})
}
