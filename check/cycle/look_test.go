package cycle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestRecordReadBack(t *testing.T) {
	facts := exited(1)
	facts.Stdout = &Output{File: "x.1.out", Bytes: 5 << 30, Truncated: true}
	facts.Escaped, facts.Leftovers, facts.Left, facts.Reason = 2, 3, []int{7}, "dream: exit 1: <no> & \"why\""
	r, _ := play(lyra, usual, 7*time.Minute, Seen{Call: exited(0)}, Seen{Call: facts})
	r.Runner, r.StartTicks = 42, 4711
	back, err := Parse(r.Text())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	lines := strings.Split(string(r.Text()), "\n")
	if len(lines) != 1+len(r.Calls)+2 || !strings.HasPrefix(lines[0], `{"name":"dream-cycle","outcome":"stopped early (over budget)"`) {
		t.Errorf("not a line a call:\n%s", r.Text())
	}
	if !strings.Contains(lines[2], `"outcome":"exit","started":"2026-07-04T03:37:00.000Z"`) || !strings.Contains(lines[2], `<no> & \"why\"`) {
		t.Error(lines[2])
	}
}

func TestRecordOfNothing(t *testing.T) {
	r := Begin("c", nil, at(0), usual)
	if back, err := Parse(r.Text()); err != nil || back.Outcome != Running {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestLongCall(t *testing.T) {
	argv := []string{"dream", strings.Repeat("é", 1<<20), "after"}
	r := Begin("c", []Stage{{"s", [][]string{argv}}}, at(0), usual)
	text := r.Text()
	if len(text) > 10_000 {
		t.Errorf("%d bytes", len(text))
	}
	if _, err := Parse(text); err != nil || len(r.Calls[0].Argv[1]) != 2<<20 {
		t.Error(err)
	}
}

// TestManyCalls: the record of any plan can be read back.
func TestManyCalls(t *testing.T) {
	calls := make([][]string, 1000)
	for i := range calls {
		calls[i] = []string{"dream", strings.Repeat("a prompt ", 1000)}
	}
	if text := Begin("c", []Stage{{"s", calls}}, at(0), usual).Text(); len(text) > maxRecord {
		t.Errorf("%d bytes", len(text))
	}
}

func TestStem(t *testing.T) {
	now := at(1234 * time.Millisecond)
	now.Wall = now.Wall.In(time.FixedZone("", -7*3600))
	if got := Stem(now); got != "20260704T033001.234Z" {
		t.Error(got)
	}
	for file, want := range map[string]string{
		"20260704T033001.234Z.json":     "20260704T033001.234Z",
		"20260704T033001.234Z.1.out":    "20260704T033001.234Z",
		"20260704T033001.234Z.json.bad": "20260704T033001.234Z",
		"20261304T033001.234Z.json":     "",
		"notes.json":                    "",
		"":                              "",
	} {
		if got := StemOf(file); got != want {
			t.Errorf("StemOf(%q) = %q", file, got)
		}
	}
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := Begin("c", lyra, at(0), usual)
	write("20260704T033000.000Z.json", string(r.Text()))
	write("20260704T033000.000Z.1.out", "hello")
	write("20260703T033000.000Z.json", string(Interrupt(r).Text()))
	write("20260705T033000.000Z.json", string(r.Text()[:100]))
	write("20260706T033000.000Z.json", `{"outcome":"dreamt"}`)
	write("20260706T033001.000Z.json", `{"outcome":"running"}`)
	write("notes.json", "mine")
	write("20260707T033000.000Z.json", strings.Repeat(" ", maxRecord+1))
	if err := os.Mkdir(filepath.Join(dir, "20260708T033000.000Z.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	past, err := Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range past {
		got = append(got, p.File[:8]+" "+string(p.Record.Outcome)+p.Bad)
	}
	want := []string{
		"20260703 interrupted", "20260704 running",
		"20260705 unexpected end of JSON input", `20260706 outcome "dreamt" is none`, `20260706 started: "" is no time`, "20260707 larger than 1048576 bytes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if past, err := Look(filepath.Join(dir, "missing")); err != nil || past != nil {
		t.Errorf("%v, %v", past, err)
	}
}

// FuzzParse promises: no text makes it panic, and what it takes it writes back
// to the same.
func FuzzParse(f *testing.F) {
	f.Add(Begin("c", lyra, at(0), usual).Text())
	r, _ := play(lyra, usual, 7*time.Minute, Seen{Call: exited(0)})
	f.Add(r.Text())
	f.Add([]byte(`{"outcome":"completed","started":"2026-07-04T03:30:00Z","calls":[{"stage":"s","stdout":{"file":""}}]}`))
	f.Add([]byte(`{"outcome":"completed","started":"2026-07-04T03:30:00Z","calls":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		r.Stages()
		_ = Interrupt(r).Reason()
		back, err := Parse(r.Text())
		if err != nil {
			t.Fatalf("%v\n%s", err, r.Text())
		}
		if diff := cmp.Diff(string(r.Text()), string(back.Text())); diff != "" {
			t.Fatal(diff)
		}
	})
}
