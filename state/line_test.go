package state

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseLine(t *testing.T) {
	for _, test := range []struct {
		text    string
		columns int
		want    Line
		bad     bool
	}{
		{text: "card0 - 0 12.5 boot", columns: 5, want: Line{Columns: []string{"card0", "-", "0", "12.5", "boot"}}},
		{text: `u 1 why="no answer" n=3 empty=""`, columns: 2, want: Line{
			Columns: []string{"u", "1"},
			Pairs:   []Pair{{"why", "no answer"}, {"n", "3"}, {"empty", ""}},
		}},
		{text: "  u \t1   n=3 \r", columns: 2, want: Line{Columns: []string{"u", "1"}, Pairs: []Pair{{"n", "3"}}}},
		{text: "u n= m=1", columns: 1, want: Line{Columns: []string{"u"}, Pairs: []Pair{{"n", ""}, {"m", "1"}}}},
		{text: "a=b c=d", columns: 1, want: Line{Columns: []string{"a=b"}, Pairs: []Pair{{"c", "d"}}}},
		{text: `a p=x"y`, columns: 1, want: Line{Columns: []string{"a"}, Pairs: []Pair{{"p", `x"y`}}}},
		{text: `"two words" k=v`, columns: 1, want: Line{Columns: []string{"two words"}, Pairs: []Pair{{"k", "v"}}}},
		{text: "", columns: 0, want: Line{}},
		{text: "", columns: 1, bad: true},
		{text: "a b", columns: 3, bad: true},
		{text: "a b c", columns: 2, bad: true},
		{text: "a =1", columns: 1, bad: true},
		{text: `a k="open`, columns: 1, bad: true},
		{text: `a k="x"y`, columns: 1, bad: true},
		{text: `"open`, columns: 1, bad: true},
	} {
		got, err := ParseLine(test.text, test.columns)
		if (err != nil) != test.bad {
			t.Errorf("%q: error %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q: %s", test.text, diff)
		}
	}
}

func TestLineString(t *testing.T) {
	l := Line{Columns: []string{"unit", "", "a b", "#1"}, Pairs: []Pair{{"a", "x"}, {"b", "x y"}, {"c", ""}, {"d", "1=1"}, {"e", `"`}, {"f", "°C"}, {"g", "a\nb"}}}
	const want = `unit "" "a b" #1 a=x b="x y" c="" d="1=1" e="\"" f=°C g="a\nb"`
	if got := l.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (Line{Columns: []string{"#1"}}).String(); got != `"#1"` {
		t.Errorf("a first column looks like a comment: %s", got)
	}
	if v, ok := l.Get("b"); !ok || v != "x y" {
		t.Errorf("%q %v", v, ok)
	}
	if _, ok := l.Get("z"); ok {
		t.Error("z is there")
	}
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want []string
	}{
		{"unit 123 the whole  reason ", 3, []string{"unit", "123", "the whole  reason"}},
		{" unit   123", 3, []string{"unit", "123"}},
		{"one two", 1, []string{"one two"}},
		{"", 3, nil},
		{"  ", 2, nil},
	} {
		if diff := cmp.Diff(test.want, Split(test.text, test.n)); diff != "" {
			t.Errorf("%q: %s", test.text, diff)
		}
	}
}

// FuzzLine: what String writes, ParseLine reads back, and it is one line of
// text that no reader takes for a comment.
func FuzzLine(f *testing.F) {
	f.Add("unit", "1", "key", "value")
	f.Add("#", "", "k", "\"\xff\x00\n")
	f.Add("=", `\`, "a-b.c", "`x'")
	f.Add("\u0085", "\u2028", "k", "\u00a0")
	f.Fuzz(func(t *testing.T, a, b, key, value string) {
		if _, err := ParseLine("x "+key+"=1", 1); err != nil || key == "" || !utf8.ValidString(key) || OneLine(key) != key {
			key = "k"
		}
		if l, _ := ParseLine("x "+key+"=1", 1); len(l.Pairs) != 1 || l.Pairs[0].Key != key {
			key = "k"
		}
		l := Line{Columns: []string{a, b}, Pairs: []Pair{{key, value}, {"last", ""}}}
		text := l.String()
		if OneLine(text) != text || text[0] == '#' {
			t.Fatalf("%q is no line", text)
		}
		got, err := ParseLine(text, 2)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(l, got); diff != "" {
			t.Fatalf("%q: %s", text, diff)
		}
	})
}

// FuzzParseLine: what is understood at all survives being written again.
func FuzzParseLine(f *testing.F) {
	for _, seed := range []string{`u 1 why="no answer"`, `"#" a k=`, "a\tb k=v\r", `a b c==`} {
		f.Add(seed, 2)
	}
	f.Fuzz(func(t *testing.T, text string, columns int) {
		columns = min(max(columns, 0), 9)
		l, err := ParseLine(text, columns)
		if err != nil {
			return
		}
		again, err := ParseLine(l.String(), columns)
		if err != nil {
			t.Fatalf("%q → %q: %v", text, l, err)
		}
		if diff := cmp.Diff(l, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q: %s", text, diff)
		}
	})
}
