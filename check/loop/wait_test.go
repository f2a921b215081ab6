package loop

import (
	"testing"
	"time"
)

// The exact waits: another implementation of the same rule made them.
var waitVectors = []struct {
	run   string
	seed  uint64
	waits []int // milliseconds, for the streaks 1, 2, 3 …
}{
	{"01932a7c-1000-7000-8000-000000000001", 532273911299369880, []int{588, 1378, 2807, 5594, 9449, 16233, 32847, 88958, 63599, 88319, 61654, 64842, 73692, 85753, 63159, 81684, 83186, 62357, 78327, 62975}},
	{"01932a7c-1000-7000-8000-000000000002", 532277209834254513, []int{702, 1370, 2875, 5476, 9375, 16846, 43976, 65158, 89329, 83459, 69869, 72361, 85548, 66594, 63161, 61385, 87822, 66145, 66355, 66488}},
	{"00000000-0000-0000-0000-000000000000", 9808874869469701221, []int{542, 1458, 2786, 4898, 11624, 20146, 39980, 69256, 88611, 64341, 78235, 83278, 87011, 64412, 66912, 80284, 72825, 74965, 89975, 79702}},
	{"ffffffff-ffff-ffff-ffff-ffffffffffff", 15447475403222018133, []int{568, 1266, 2731, 5221, 8081, 20928, 34556, 60107, 77283, 61675, 83878, 60912, 82862, 65760, 60744, 68639, 62249, 88012, 82843, 70667}},
	{"0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5", 5475048129256087258, []int{583, 1220, 2510, 4101, 9990, 19967, 39722, 72024, 64346, 60111, 73205, 83703, 65682, 62527, 63195, 72855, 85225, 65364, 72339, 69729}},
}

func TestWaitIsExact(t *testing.T) {
	for _, v := range waitVectors {
		seed := Seed(v.run)
		if seed != v.seed {
			t.Errorf("Seed(%s) = %d, want %d", v.run, seed, v.seed)
		}
		for i, want := range v.waits {
			if got := Wait(seed, i+1); got != time.Duration(want)*time.Millisecond {
				t.Errorf("Wait(%s, %d) = %v, want %d ms", v.run, i+1, got, want)
			}
		}
	}
}
