package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"tickdog/check"
	"tickdog/check/gpu"
)

// cardReplay is what a recording says about one card, whatever the limits, and
// what each set of limits would have made of it.
type cardReplay struct {
	Subject         string     `json:"subject"`
	From            time.Time  `json:"from"`
	To              time.Time  `json:"to"`
	Readings        int        `json:"readings"`
	BusyUnknown     int        `json:"busy_unknown"`
	JunctionUnknown int        `json:"junction_unknown"`
	BusySeconds     float64    `json:"busy_seconds"`    // in all
	LongestSeconds  float64    `json:"longest_seconds"` // the longest busy stretch
	LongestFrom     *time.Time `json:"longest_from"`    // null: never busy
	HottestC        *float64   `json:"hottest_c"`       // null: no junction
	HottestAt       *time.Time `json:"hottest_at"`      //
	Trials          []gpuTrial `json:"limits"`

	looks []cardLook
}

// gpuTrial is what one set of limits would have done.
type gpuTrial struct {
	MaxBusySeconds float64 `json:"max_busy_s"`
	HotAt          float64 `json:"hot_at_c"`
	HotChecks      int     `json:"hot_checks"`
	Stops          []event `json:"stops"`
	NearMisses     []event `json:"near_misses"`

	away [][2]time.Time // stretches that would not have happened
}

// nearly is how much of the way to a stop is worth telling.
const nearly = 0.75

func replayCard(track *cardTrack, limits []gpu.Limits) cardReplay {
	r := cardReplay{
		Subject: track.subject, Readings: len(track.looks), looks: track.looks,
		Trials: make([]gpuTrial, len(limits)),
	}
	r.From, r.To = bounds(len(track.looks), func(i int) time.Time { return track.looks[i].now.Wall })
	var all sync.WaitGroup
	for i, l := range limits {
		all.Go(func() { r.Trials[i] = tryCard(track.looks, l) })
	}
	r.measure(limits[0])
	all.Wait()
	return r
}

// measure takes what does not depend on the limits that are compared. The
// longest stretch is Decide's own count, with limits that nothing reaches.
func (r *cardReplay) measure(l gpu.Limits) {
	l.MaxBusy, l.HotChecks = math.MaxInt64, math.MaxInt
	var s gpu.State
	var began time.Time
	for _, one := range r.looks {
		busy, junction := one.seen.Reading.Busy, one.seen.Reading.Junction
		if !busy.Known && !one.seen.Reading.Suspended {
			r.BusyUnknown++
		}
		if !junction.Known {
			r.JunctionUnknown++
		} else if r.HottestC == nil || junction.Value > *r.HottestC {
			r.HottestC, r.HottestAt = &junction.Value, &one.now.Wall
		}
		before := s
		s, _ = gpu.Follow(s, one.seen, one.now, l)
		if s.Running && (!before.Running || s.Busy < before.Busy) {
			began = one.now.Wall
		}
		if s.Running && s.Busy > before.Busy {
			r.BusySeconds += (s.Busy - before.Busy).Seconds()
		}
		if s.Running && (r.LongestFrom == nil || s.Busy.Seconds() > r.LongestSeconds) {
			from := began
			r.LongestSeconds, r.LongestFrom = s.Busy.Seconds(), &from
		}
	}
}

// tryCard runs one card's looks through Decide.
func tryCard(looks []cardLook, l gpu.Limits) gpuTrial {
	t := gpuTrial{MaxBusySeconds: l.MaxBusy.Seconds(), HotAt: l.HotAt, HotChecks: l.HotChecks, Stops: []event{}, NearMisses: []event{}}
	var s gpu.State
	stopped := false
	for i, one := range looks {
		if stopped {
			if !recovered(looks[i-1].now, one, l) {
				t.away[len(t.away)-1][1] = one.now.Wall
				continue
			}
			stopped = false
		}
		next, v := gpu.Follow(s, one.seen, one.now, l)
		if i > 0 {
			t.nearMiss(s, next, looks[i-1].now.Wall, l)
		}
		if v.Stop {
			_, v = gpu.Decide(s, one.seen, one.now, l) // in words
		}
		if s = next; v.Stop {
			t.Stops = append(t.Stops, event{At: one.now.Wall, Reason: v.Reason})
			t.away = append(t.away, [2]time.Time{one.now.Wall, one.now.Wall})
			s, stopped = gpu.Stopped(s), true
		}
	}
	t.nearMiss(s, gpu.State{}, looks[len(looks)-1].now.Wall, l)
	return t
}

// recovered tells whether what a stop would have ended is over in what was
// recorded: the load, and the heat, which no second stop would have ended.
func recovered(last check.Moment, one cardLook, l gpu.Limits) bool {
	r := one.seen.Reading
	if gap, same := one.now.Since(last.Boot, last.BootID); !same || gap > l.MaxGap {
		return true
	}
	if r.Junction.Known && r.Junction.Value >= l.HotAt {
		return false
	}
	if r.Busy.Known || r.Suspended {
		return r.Suspended || r.Busy.Value <= l.BusyAbove
	}
	return r.Junction.Known
}

// nearMiss takes down a streak that has ended shortly before it would have
// tripped.
func (t *gpuTrial) nearMiss(s, next gpu.State, last time.Time, l gpu.Limits) {
	near := func(format string, args ...any) {
		t.NearMisses = append(t.NearMisses, event{At: last, Reason: fmt.Sprintf(format, args...)})
	}
	ended := s.Running && (!next.Running || next.Busy < s.Busy)
	if ended && s.Busy < l.MaxBusy && s.Busy.Seconds() >= nearly*l.MaxBusy.Seconds() {
		near("busy %s of %s", seconds(s.Busy), seconds(l.MaxBusy))
	}
	if s.HotChecks > 0 && s.HotChecks == l.HotChecks-1 && next.HotChecks < s.HotChecks {
		near("hot %d of %d checks", s.HotChecks, l.HotChecks)
	}
}
