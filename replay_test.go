package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/check/gpu"

	"pgregory.net/rapid"
)

var replayLimits = gpu.Limits{MaxBusy: time.Hour, HotAt: 97, HotChecks: 3, MaxGap: 10 * time.Minute, MinGap: time.Minute}

// drawLooks draws an evening of a card: mostly a pass every two minutes, with
// holes, reboots and readings that are missing.
func drawLooks(t *rapid.T) (looks []cardLook) {
	now := check.Moment{Wall: time.Unix(1790546400, 0), Boot: 100, BootID: "boot 0"}
	number := func(label string, values ...float64) gpu.Number {
		if i := rapid.IntRange(-1, len(values)-1).Draw(t, label); i >= 0 {
			return gpu.Known(values[i])
		}
		return gpu.Number{}
	}
	for i := range rapid.IntRange(1, 120).Draw(t, "looks") {
		looks = append(looks, cardLook{now, gpu.Seen{Reading: gpu.Reading{
			Card: "0000:03:00.0", HasJunction: true, Busy: number("busy", 0, 100, 100, 100, 100, 100), Junction: number("junction", 40, 91, 96.9, 97, 98),
		}}})
		step := rapid.SampledFrom([]float64{120, 120, 120, 120, 120, 30, 300, 601}).Draw(t, "step")
		now.Wall, now.Boot = now.Wall.Add(time.Duration(step)*time.Second), now.Boot+step
		if rapid.IntRange(0, 60).Draw(t, "reboot") == 0 {
			now.Boot, now.BootID = 20, fmt.Sprintf("boot %d", i+1)
		}
	}
	return looks
}

// The first stop of a replay is the first stop of the passes themselves.
func TestReplayStopsWhereThePassesStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		looks := drawLooks(t)
		var want []event
		var s gpu.State
		for _, one := range looks {
			var v gpu.Verdict
			if s, v = gpu.Decide(s, one.seen, one.now, replayLimits); v.Stop {
				want = append(want, event{At: one.now.Wall, Reason: v.Reason})
				break
			}
		}
		got := tryCard(looks, replayLimits).Stops
		if !reflect.DeepEqual(got[:min(len(got), 1)], append([]event{}, want...)) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// What comes out of a history is what went in.
func TestReplayOfAHistoryIsReplayOfThePasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		looks := drawLooks(t)
		var file strings.Builder
		for _, one := range looks {
			file.WriteString(gpuHistoryLine(one.now, one.seen, verdict{Subject: one.seen.Reading.Card, State: "busy", Verdict: check.Watch}) + "\n")
		}
		p := &program{stdin: strings.NewReader(file.String()), getenv: os.Getenv}
		rec, err := p.readRecording("-")
		if err != nil {
			t.Fatal(err)
		}
		limits := []gpu.Limits{replayLimits}
		got, want := replayCard(rec.cards[0], limits), replayCard(&cardTrack{subject: "0000:03:00.0", looks: looks}, limits)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}

// A looser limit never stops earlier, and the longest stretch says which limit
// would have stopped nothing.
func TestReplayOfLooserLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		looks := drawLooks(t)
		loose := replayLimits
		switch rapid.IntRange(0, 2).Draw(t, "which") {
		case 0:
			loose.MaxBusy += time.Duration(rapid.IntRange(1, 7200).Draw(t, "longer")) * time.Second
		case 1:
			loose.HotAt += rapid.Float64Range(0.1, 10).Draw(t, "hotter")
		default:
			loose.HotChecks += rapid.IntRange(1, 5).Draw(t, "more checks")
		}
		r := replayCard(&cardTrack{subject: "gpu", looks: looks}, []gpu.Limits{replayLimits, loose})
		tight, wide := r.Trials[0].Stops, r.Trials[1].Stops
		if len(wide) > 0 && (len(tight) == 0 || wide[0].At.Before(tight[0].At)) {
			t.Fatalf("%v at %+v, but %v at %+v", tight, replayLimits, wide, loose)
		}
		calm := replayLimits
		calm.MaxBusy, calm.HotAt = time.Duration((r.LongestSeconds+1)*float64(time.Second)), 149
		if stops := tryCard(looks, calm).Stops; len(stops) > 0 {
			t.Fatalf("longest stretch %v s, but %v", r.LongestSeconds, stops)
		}
	})
}

// FuzzReplay holds that any file is either refused in one line or replayed,
// and that what is printed of it is text, within the terminal's alphabet, and
// starts no line of its own.
func FuzzReplay(f *testing.F) {
	files, _ := filepath.Glob("testdata/traces/*")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 3000)])
	}
	for _, seed := range []string{"1600000000 100 91\n1599999999 0 -\n", "# 1600000000\nGPU[0]: GPU use (%): 9", "1 2 b s x rest dispatch=dead\n1 2 b s x rest dispatch=dead\n", "1 2 b \"\\u202e\\n\" x rest busy=5 why=\"a\\nb\"\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &program{stdin: strings.NewReader(string(data)), getenv: os.Getenv}
		rec, err := p.readRecording("-")
		if err != nil {
			if strings.ContainsAny(oneLine(err.Error()), "\n\x1b") {
				t.Errorf("%q", err)
			}
			return
		}
		r := replayReport{File: "-", Form: rec.form}
		for _, track := range rec.cards {
			card := replayCard(track, []gpu.Limits{replayLimits})
			if card.From.After(card.To) || card.Readings < 1 || card.LongestSeconds < 0 {
				t.Errorf("%+v", card)
			}
			for _, e := range append(card.Trials[0].Stops, card.Trials[0].NearMisses...) {
				if e.At.Before(card.From) || e.At.After(card.To) {
					t.Errorf("%v is not within %v and %v", e, card.From, card.To)
				}
			}
			r.Cards = append(r.Cards, card)
		}
		if len(rec.passes) > 0 {
			r.Agents = replayAgents(rec, []agents.Limits{p.defaults().Agents.limits()})
		}
		for _, unicode := range []bool{false, true} {
			text := r.text(picture{unicode: unicode, columns: 70})
			if !utf8.ValidString(text) {
				t.Fatalf("%q is not UTF-8", text)
			}
			for _, c := range text {
				if c < ' ' && c != '\n' || c >= 0x7f && c < 0xa0 || !unicode && c > '~' {
					t.Fatalf("%q in %q", c, text)
				}
			}
		}
	})
}

// yearOfReadings is a reading every two minutes for a year.
func yearOfReadings(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "year.txt")
	var file strings.Builder
	for i := range 365 * 720 {
		busy := 100 * (i / 37 % 2)
		fmt.Fprintf(&file, "%d %d %.1f %d\n", 1759010400+120*i, busy, 40+float64(busy)/2+float64(i%7), 20+2*busy)
	}
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A year of two-minute readings takes well under a second on an idle machine;
// a loaded one is given more.
func TestReplayOfAYear(t *testing.T) {
	path := yearOfReadings(t)
	began := time.Now()
	p := &program{getenv: os.Getenv}
	rec, err := p.readRecording(path)
	if err != nil {
		t.Fatal(err)
	}
	r := replayCard(rec.cards[0], []gpu.Limits{replayLimits})
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	if jobs := 365 * 720 / 74; r.Readings != 365*720 || len(r.Trials[0].Stops) != jobs {
		t.Errorf("%d readings, %d stops, want %d", r.Readings, len(r.Trials[0].Stops), jobs)
	}
}

func BenchmarkReplayOfAYear(b *testing.B) {
	p := &program{getenv: os.Getenv}
	path := yearOfReadings(b)
	b.ReportAllocs()
	for b.Loop() {
		rec, err := p.readRecording(path)
		if err != nil {
			b.Fatal(err)
		}
		replayCard(rec.cards[0], []gpu.Limits{replayLimits})
	}
}
