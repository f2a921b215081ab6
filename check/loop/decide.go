package loop

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strings"
	"time"
)

// The own wait: the first one, and the one at which it stops doubling. Both
// are before the jitter, which adds up to half.
const (
	firstWait = 500 * time.Millisecond
	longWait  = 60 * time.Second
)

// Seed is what a run's waits are drawn from: FNV-1a 64 over the 16 bytes of
// its id. A run so replays its own waits and neighbours differ. An id that is
// no UUID is known by the first 16 bytes of its SHA-256.
func Seed(run string) uint64 {
	id := runID(run)
	h := fnv.New64a()
	h.Write(id[:])
	return h.Sum64()
}

// Wait is the own wait after `streak` failures in a row: 500 ms, doubled for
// each further one, at most 60 s, plus a jitter of 0..half of it, in whole
// milliseconds. The jitter only adds, so that the wait never falls below its
// base. A streak below 1 counts as 1.
func Wait(seed uint64, streak int) time.Duration {
	streak = max(streak, 1)
	base := longWait
	if streak <= 7 { // 500 ms << 6 is 32 s, and the next one is past the most
		base = min(firstWait<<(streak-1), longWait)
	}
	half := uint64(base/time.Millisecond) / 2
	jitter := mix(seed^uint64(streak)) % (half + 1)
	return base + time.Duration(jitter)*time.Millisecond
}

// mix is splitmix64's finishing mix: neighbouring inputs, such as the streaks
// 1, 2, 3 of one run, give unrelated outputs.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// runID is the 16 bytes a run is known by.
func runID(run string) (id [16]byte) {
	if b, ok := uuid(run); ok {
		return b
	}
	sum := sha256.Sum256([]byte(run))
	copy(id[:], sum[:])
	return id
}

// uuid reads the usual form 8-4-4-4-12, in either case.
func uuid(s string) (id [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(id) {
		return id, false
	}
	copy(id[:], b)
	return id, true
}
