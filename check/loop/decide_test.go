package loop

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"tickdog/check"
)

const (
	uuidA = "01932a7c-1000-7000-8000-000000000001"
	uuidB = "01932a7c-1000-7000-8000-000000000002"
)

// world is a run and its clock.
type world struct {
	t      *testing.T
	state  State
	now    check.Moment
	limits Limits
	last   Verdict
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, state: State{Run: uuidA},
		now: check.Moment{Wall: time.UnixMilli(1_790_000_000_000), Boot: 1000, BootID: "boot-1"},
	}
}

func (w *world) pass(d time.Duration) {
	w.now.Wall, w.now.Boot = w.now.Wall.Add(d), w.now.Boot+d.Seconds()
}

func (w *world) see(seen Seen) Verdict {
	w.t.Helper()
	w.state, w.last = Decide(w.state, seen, w.now, w.limits)
	return w.last
}

// acts takes one action a letter, `apart` from each other, and returns the
// answers, a letter each: . proceed, s steer, F freeze, b back off, H halt.
func (w *world) acts(letters string, apart time.Duration) string {
	w.t.Helper()
	var answers strings.Builder
	for _, letter := range letters {
		answers.WriteString(short(w.see(Acted{Fingerprint: string(letter)})))
		w.pass(apart)
	}
	return answers.String()
}

func short(v Verdict) string {
	return map[Next]string{Proceed: ".", Steer: "s", Freeze: "F", BackOff: "b", Halt: "H"}[v.Action]
}

func TestLadder(t *testing.T) {
	for name, c := range map[string]struct {
		acts, want string
		apart      time.Duration
		cycles     bool
	}{
		"one, two equal":                        {acts: "AA", want: "..", apart: time.Minute},
		"the third is steered":                  {acts: "AAA", want: "..s", apart: time.Minute},
		"the fourth freezes":                    {acts: "AAAA", want: "..sF", apart: time.Minute},
		"frozen is sticky":                      {acts: "AAAABCD", want: "..sFFFF", apart: time.Minute},
		"only the tail counts":                  {acts: "AABAA", want: ".....", apart: time.Minute},
		"broken, then again: the first is told": {acts: "AABAAA", want: ".....s", apart: time.Minute},
		"any later stall freezes":               {acts: "AAABAAA", want: "..s...F", apart: time.Minute},
		"another later stall freezes":           {acts: "AAABCCC", want: "..s...F", apart: time.Minute},
		"side by side it is only told":          {acts: "AAAAAA", want: "..ssss", apart: time.Millisecond},
		"told until 2 s after the first steer":  {acts: "AAAAAA", want: "..sssF", apart: 700 * time.Millisecond},
		"2 s are enough to read it":             {acts: "AAAA", want: "..sF", apart: 2 * time.Second},
		"cycles are not looked for unasked":     {acts: strings.Repeat("AB", 20), want: strings.Repeat(".", 40), apart: time.Minute},
		"A-B":                                   {acts: "ABABAB", want: ".....s", apart: time.Minute, cycles: true},
		"A-B goes on":                           {acts: "ABABABA", want: ".....sF", apart: time.Minute, cycles: true},
		"A-B broken":                            {acts: "ABABCAB", want: ".......", apart: time.Minute, cycles: true},
		"A-B-C":                                 {acts: "ABCABCABC", want: "........s", apart: time.Minute, cycles: true},
		"A-A-B":                                 {acts: "AABAABAAB", want: "........s", apart: time.Minute, cycles: true},
		"A-B-C-D":                               {acts: "ABCDABCDABCD", want: "...........s", apart: time.Minute, cycles: true},
		"five are not looked for":               {acts: strings.Repeat("ABCDE", 5), want: strings.Repeat(".", 25), apart: time.Minute, cycles: true},
		"into a cycle":                          {acts: "XYABABAB", want: ".......s", apart: time.Minute, cycles: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.limits.Cycles = c.cycles
			if got := w.acts(c.acts, c.apart); got != c.want {
				t.Errorf("%s: %s, want %s", c.acts, got, c.want)
			}
		})
	}
}

func TestSteerSaysHowOften(t *testing.T) {
	w := newWorld(t)
	w.acts("AAA", time.Second)
	if v := w.last; !strings.Contains(v.Text, "3 times") || v.Corrections != 1 {
		t.Errorf("%+v", v)
	}
	w = newWorld(t)
	w.limits.Cycles = true
	w.acts("ABABAB", time.Second)
	if v := w.last; !strings.Contains(v.Text, "the last 6 actions are the same 2") || !strings.Contains(v.Text, "3 times") {
		t.Errorf("%+v", v)
	}
}

func TestFreezeSaysHowToThaw(t *testing.T) {
	w := newWorld(t)
	w.acts("AAAA", time.Minute)
	if v := w.last; v.Reason != Stall || !strings.Contains(v.Text, "tickdog loop thaw --run "+uuidA+" --why") {
		t.Errorf("%+v", v)
	}
	for id, want := range map[string]string{"a b": `'a b'`, "it's": `'it'\''s'`, "-x": `'-x'`, "": `''`, "job/7": "job/7", "$(id)": "'$(id)'"} {
		if got := word(id); got != want {
			t.Errorf("word(%q) = %s, want %s", id, got, want)
		}
	}
}

func TestSteerAcrossReboot(t *testing.T) {
	w := newWorld(t)
	w.acts("AAA", 0)
	w.now.Boot, w.now.BootID = 10, "boot-2" // less, but of another boot
	if got := w.acts("A", 0); got != "F" {
		t.Errorf("after a reboot the steer was read: %s, want F", got)
	}
}

// poll takes the same action n times and reports a result after each.
func (w *world) poll(n int, result func(i int) string) string {
	var answers strings.Builder
	for i := range n {
		v := w.see(Acted{Fingerprint: "poll", Event: fmt.Sprintf("e%d", i)})
		answers.WriteString(short(v))
		w.pass(time.Minute)
		if r := result(i); r != "" && v.Action == Proceed {
			w.see(Resulted{Event: fmt.Sprintf("e%d", i), Result: r})
		}
	}
	return answers.String()
}

func TestPolling(t *testing.T) {
	always := func(i int) string { return fmt.Sprint("r", i) }
	for name, c := range map[string]struct {
		n      int
		result func(int) string
		want   string
	}{
		"results change":             {n: 11, result: always, want: "..........."},
		"twelve are enough":          {n: 13, result: always, want: "...........sF"},
		"the same result is a stall": {n: 3, result: func(int) string { return "same" }, want: "..s"},
		"no result is no evidence":   {n: 3, result: func(int) string { return "" }, want: "..s"},
		"it changed, then it stands": {n: 6, result: func(i int) string { return fmt.Sprint(min(i, 2)) }, want: "....sF"},
		"two looks without a change": {n: 3, result: func(i int) string { return fmt.Sprint(i / 2) }, want: "..s"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.limits.Cycles = true
			if got := w.poll(c.n, c.result); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	w := newWorld(t)
	w.poll(12, always)
	if !strings.Contains(w.last.Text, "12 times") {
		t.Errorf("the steer names another number: %q", w.last.Text)
	}
}

// A loop that sleeps between two looks is polling too.
func TestPollingInACycle(t *testing.T) {
	w := newWorld(t)
	w.limits.Cycles = true
	got := ""
	for i := range 12 {
		got += w.acts("S", time.Minute)
		w.see(Resulted{Fingerprint: "S", Result: "slept"})
		got += w.acts("P", time.Minute)
		if w.last.Action == Proceed {
			w.see(Resulted{Fingerprint: "P", Result: fmt.Sprint(i)})
		}
	}
	if want := strings.Repeat(".", 23) + "s"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestRunsDoNotAddUp(t *testing.T) {
	main, sub := newWorld(t), newWorld(t)
	sub.state.Run = uuidA + "/agent-1"
	if got := main.acts("A", 0) + sub.acts("A", 0) + main.acts("A", 0) + sub.acts("A", 0); got != "...." {
		t.Errorf("%s, want ....", got)
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	var first []Verdict
	for i := range 3 {
		first = append(first, w.see(Acted{Fingerprint: "A", Event: fmt.Sprint("e", i)}))
	}
	before := w.state
	for i := range 3 {
		if again := w.see(Acted{Fingerprint: "A", Event: fmt.Sprint("e", i)}); again != first[i] {
			t.Errorf("event %d again: %+v, first %+v", i, again, first[i])
		}
	}
	if !reflect.DeepEqual(w.state, before) {
		t.Errorf("an event seen again changed\n%+v\nto\n%+v", before, w.state)
	}
	fail := Failed{Code: "rate_limit", Retry: Yes, Event: "f"}
	v := w.see(fail)
	w.pass(time.Minute)
	if again := w.see(fail); again != v || w.state.Streak != 1 {
		t.Errorf("a failure again: %+v, first %+v, streak %d", again, v, w.state.Streak)
	}
}

func fail(w *world, retry Retry, told time.Duration) Verdict {
	w.t.Helper()
	return w.see(Failed{Code: "code", Subject: "subject", Retry: retry, Told: told})
}

func TestRefusedFreezesAtOnce(t *testing.T) {
	w := newWorld(t)
	v := fail(w, No, time.Hour)
	want := Verdict{Action: Freeze, Reason: ProviderRefused, Code: "code", Subject: "subject", Text: v.Text, ProviderFailures: 1}
	if v != want || w.state.Streak != 1 {
		t.Errorf("%+v, streak %d\nwant %+v, streak 1", v, w.state.Streak, want)
	}
}

func TestWaits(t *testing.T) {
	for _, vec := range waitVectors {
		for _, retry := range []Retry{Yes, Maybe} {
			w := newWorld(t)
			w.state.Run = vec.run
			for i, ms := range vec.waits {
				v := fail(w, retry, 0)
				want := Verdict{
					Action: BackOff, UntilMS: w.now.Wall.UnixMilli() + int64(ms),
					Code: "code", Subject: "subject", ProviderFailures: i + 1,
				}
				if v != want {
					t.Fatalf("%s, failure %d: %+v\nwant %+v", vec.run, i+1, v, want)
				}
				w.pass(time.Duration(ms) * time.Millisecond)
			}
		}
	}
}

func TestToldWaits(t *testing.T) {
	w := newWorld(t)
	left := func(v Verdict) int64 { return v.UntilMS - w.now.Wall.UnixMilli() }
	if got := left(fail(w, Yes, 30*time.Second)); got != 30_000 {
		t.Errorf("told 30 s: %d ms", got)
	}
	if got := left(fail(w, Yes, 10*time.Millisecond)); got != 1378 {
		t.Errorf("told 10 ms at the second failure: %d ms, want the own 1378", got)
	}
	if got := left(fail(w, Yes, 30*time.Second+time.Nanosecond)); got != 30_001 {
		t.Errorf("told a nanosecond more than 30 s: %d ms, want 30001, for never earlier than told", got)
	}
}

func TestCeiling(t *testing.T) {
	two, zero := 2, 0
	for _, c := range []struct {
		atMost *int
		want   string
	}{{&two, "bbF"}, {&zero, "F"}, {nil, strings.Repeat("b", 64)}} {
		w := newWorld(t)
		w.limits.AtMost = c.atMost
		got := ""
		for range c.want {
			got += short(fail(w, Yes, 0))
		}
		if got != c.want {
			t.Errorf("at most %v: %s, want %s", c.atMost, got, c.want)
		}
	}
	w := newWorld(t)
	w.limits.AtMost = &zero
	if v := fail(w, Yes, 0); v.Reason != ProviderRefused || !strings.Contains(v.Text, "1 failures in a row, at most 0") {
		t.Errorf("%+v", v)
	}
}

func TestAnswered(t *testing.T) {
	w := newWorld(t)
	w.acts("AAA", 0)
	fail(w, Yes, 0)
	fail(w, Yes, 0)
	if v := w.see(Answered{}); v.Action != Proceed || v.Corrections != 1 || v.ProviderFailures != 2 {
		t.Errorf("%+v", v)
	}
	if v := w.state.Standing(w.now, Limits{}); v.Action != Proceed {
		t.Errorf("after an answer: %+v", v)
	}
	if v := fail(w, Yes, 0); v.UntilMS-w.now.Wall.UnixMilli() != 588 || v.ProviderFailures != 3 {
		t.Errorf("the first failure after an answer: %+v, want the first wait, 588 ms", v)
	}
}

func TestActionsAndFailuresDoNotTouchEachOther(t *testing.T) {
	w := newWorld(t)
	got := w.acts("A", 0) + short(fail(w, Yes, 0)) + w.acts("A", 0) + short(fail(w, Yes, 0))
	if got != ".b.b" || w.state.Streak != 2 || len(w.state.Tail) != 2 {
		t.Errorf("%s, streak %d, tail %d; want .b.b, 2, 2", got, w.state.Streak, len(w.state.Tail))
	}
	if got := w.acts("A", 0); got != "s" {
		t.Errorf("the failures in between broke the tail: %s", got)
	}
}

func TestFrozenCountsNothing(t *testing.T) {
	w := newWorld(t)
	frozen := fail(w, No, 0)
	before := w.state
	w.pass(time.Hour)
	for _, seen := range []Seen{Acted{Fingerprint: "A", Event: "e"}, Failed{Retry: Yes}, Answered{}, Resulted{Fingerprint: "A", Result: "r"}} {
		if v := w.see(seen); v != frozen {
			t.Errorf("%T: %+v, want %+v", seen, v, frozen)
		}
	}
	if !reflect.DeepEqual(w.state, before) {
		t.Errorf("it changed to %+v", w.state)
	}
}

func TestThaw(t *testing.T) {
	w := newWorld(t)
	w.acts("AAA", time.Minute)
	fail(w, Yes, 0)
	if v := w.see(Acted{Fingerprint: "A", Event: "last"}); v.Action != Freeze {
		t.Fatalf("%+v", v)
	}
	v := w.see(Thawed{Why: "fixed it"})
	if v.Action != Proceed || v.Corrections != 0 || v.ProviderFailures != 1 {
		t.Errorf("%+v", v)
	}
	s := w.state
	if s.Episode != 2 || s.Streak != 0 || s.Tail != nil || s.Pause != nil || s.Actions != 4 || s.Steers != 1 || s.Thaws[0].Why != "fixed it" {
		t.Errorf("%+v", s)
	}
	if v := w.see(Acted{Fingerprint: "A", Event: "last"}); v.Action != Proceed || w.state.Actions != 4 {
		t.Errorf("the event that froze it, again: %+v, %d actions", v, w.state.Actions)
	}
	if got := w.acts("AAAA", time.Minute); got != "..sF" {
		t.Errorf("the ladder after a thaw: %s, want ..sF", got)
	}
	for range 30 {
		w.see(Thawed{Why: "again"})
	}
	if w.state.Episode != 32 || len(w.state.Thaws) != maxThaws {
		t.Errorf("episode %d with %d thaws kept", w.state.Episode, len(w.state.Thaws))
	}
}

func TestHaltWins(t *testing.T) {
	w := newWorld(t)
	fail(w, No, 0)
	before := w.state
	w.limits.Halted = true
	for _, seen := range []Seen{Acted{Fingerprint: "A"}, Failed{Retry: Yes}, Answered{}} {
		if v := w.see(seen); v != (Verdict{Action: Halt}) {
			t.Errorf("%T: %+v", seen, v)
		}
	}
	if !reflect.DeepEqual(w.state, before) {
		t.Error("a halt counted something")
	}
	if v := w.see(Thawed{Why: "still halted"}); v.Action != Halt || w.state.Frozen != nil {
		t.Errorf("a thaw under a halt: %+v", v)
	}
}

func TestRemaining(t *testing.T) {
	w := newWorld(t)
	fail(w, Yes, time.Minute)
	for name, c := range map[string]struct {
		move func(*check.Moment)
		want time.Duration
	}{
		"at once":                       {func(*check.Moment) {}, time.Minute},
		"a second later":                {func(m *check.Moment) { m.Wall, m.Boot = m.Wall.Add(time.Second), m.Boot+1 }, 59 * time.Second},
		"past it":                       {func(m *check.Moment) { m.Boot += 61 }, 0},
		"the clock went back an hour":   {func(m *check.Moment) { m.Wall = m.Wall.Add(-time.Hour) }, time.Minute},
		"the clock went on an hour":     {func(m *check.Moment) { m.Wall = m.Wall.Add(time.Hour) }, time.Minute},
		"rebooted, 20 s later":          {func(m *check.Moment) { m.Wall, m.BootID = m.Wall.Add(20*time.Second), "boot-2" }, 40 * time.Second},
		"rebooted, clock back an hour":  {func(m *check.Moment) { m.Wall, m.BootID = m.Wall.Add(-time.Hour), "boot-2" }, time.Minute},
		"rebooted, clock on by an hour": {func(m *check.Moment) { m.Wall, m.BootID = m.Wall.Add(time.Hour), "boot-2" }, 0},
	} {
		now := w.now
		c.move(&now)
		if got := w.state.Remaining(now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		want := BackOff
		if c.want == 0 {
			want = Proceed
		}
		if got := w.state.Standing(now, Limits{}).Action; got != want {
			t.Errorf("%s: stands at %s, want %s", name, got, want)
		}
	}
}

func TestNumbersSaturate(t *testing.T) {
	w := newWorld(t)
	w.state = State{Run: uuidA, Episode: math.MaxInt, Streak: math.MaxInt, ProviderFailures: math.MaxInt, Actions: math.MaxInt, Corrections: 1}
	if v := fail(w, Yes, longestTold); v.Action != BackOff || v.UntilMS <= w.now.Wall.UnixMilli() || w.state.Streak != math.MaxInt {
		t.Errorf("%+v", v)
	}
	for _, streak := range []int{math.MinInt, -1, 0, 1<<32 - 1, math.MaxInt} {
		if got := Wait(Seed(uuidA), streak); got < firstWait || got > 3*longWait/2 {
			t.Errorf("Wait(%d) = %v", streak, got)
		}
	}
	w.see(Acted{Fingerprint: "A"})
	w.see(Thawed{Why: "x"})
	if w.state.Actions != math.MaxInt || w.state.Episode != math.MaxInt {
		t.Errorf("%+v", w.state)
	}
}

func TestNeighboursDiffer(t *testing.T) {
	waits := map[time.Duration]bool{}
	for i := range 100 {
		waits[Wait(Seed(fmt.Sprintf("01932a7c-1000-7000-8000-%012d", i)), 1)] = true
	}
	if len(waits) < 60 {
		t.Errorf("100 neighbours have only %d first waits", len(waits))
	}
}

func TestDecideLeavesPrevAlone(t *testing.T) {
	w := newWorld(t)
	w.acts("ABABA", time.Second)
	w.see(Acted{Fingerprint: "A", Event: "e"})
	before := fmt.Sprintf("%+v", w.state)
	for _, seen := range []Seen{Acted{"B", "f"}, Acted{"C", "g"}, Resulted{Event: "e", Result: "r"}, Failed{Retry: No}, Thawed{"x"}} {
		Decide(w.state, seen, w.now, Limits{Cycles: true})
	}
	if after := fmt.Sprintf("%+v", w.state); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
}

func TestTailAndEventsAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 2000 {
		w.see(Acted{Fingerprint: fmt.Sprint(i), Event: fmt.Sprint(i)})
	}
	if len(w.state.Tail) != maxTail || len(w.state.Events) != maxEvents || w.state.Actions != 2000 {
		t.Errorf("tail %d, events %d, actions %d", len(w.state.Tail), len(w.state.Events), w.state.Actions)
	}
}

func TestKey(t *testing.T) {
	for run, want := range map[string]string{
		uuidA: uuidA, "0197F3C2-5B8E-7A31-9C44-2F6D8E10B7A5": "0197f3c2-5b8e-7a31-9c44-2f6d8e10b7a5",
	} {
		if got := Key(run); got != want {
			t.Errorf("Key(%q) = %s", run, got)
		}
	}
	seen := map[string]string{}
	for _, run := range []string{"", "..", "../../etc/passwd", "a/b", "a\x00b", "halt", "nightly", "Nightly", strings.Repeat("x", 5000), "01932a7c-1000-7000-8000-00000000000g", "01932a7c100070008000000000000001", "{" + uuidA + "}"} {
		key := Key(run)
		if len(key) != 34 || !strings.HasPrefix(key, "x-") || strings.ContainsAny(key, "./") || seen[key] != "" {
			t.Errorf("Key(%q) = %s", run, key)
		}
		seen[key] = run
	}
	if Seed("nightly") == Seed("Nightly") {
		t.Error("two ids share a seed")
	}
	if Seed("0197F3C2-5B8E-7A31-9C44-2F6D8E10B7A5") != 5475048129256087258 {
		t.Error("the case of a UUID changes its seed")
	}
}
