package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tickdog/check/gpu"
)

// yearOfReadings writes a reading every two minutes for a year.
func yearOfReadings(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "year.txt")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 365 * 720 {
		busy := 100 * (i / 37 % 2)
		fmt.Fprintf(f, "%d %d %.1f %d\n", 1759010400+120*i, busy, 40+float64(busy)/2+float64(i%7), 20+2*busy)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func BenchmarkReplayAYear(b *testing.B) {
	p := &program{getenv: os.Getenv}
	path := yearOfReadings(b)
	limits := gpu.Limits{MaxBusy: time.Hour, HotAt: 97, HotChecks: 3, MaxGap: 10 * time.Minute, MinGap: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		rec, err := p.readRecording(path)
		if err != nil {
			b.Fatal(err)
		}
		replayCard(rec.cards[0], []gpu.Limits{limits})
	}
}
