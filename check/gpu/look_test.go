package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The captured trees, through the child's code and back.
func TestSysfsTrees(t *testing.T) {
	const captures = "../../testdata/captures"
	text, err := os.ReadFile(filepath.Join(captures, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected map[string][][3]any
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	trees := 0
	for name, want := range expected {
		if !strings.HasPrefix(name, "sysfs/") {
			continue
		}
		trees++
		s := Source{Kind: "auto", Sysfs: filepath.Join(captures, name), Run: runChild}
		for _, card := range want {
			r, sight := s.Watch(t.Context(), card[0].(string), false, 0, 0)
			if sight.Source != "sysfs" || r.Card != card[0] || r.Busy != Known(card[1].(float64)) || r.Junction != Known(card[2].(float64)) || !r.Power.Known {
				t.Errorf("%s: %+v, want %v", name, r, card)
			}
		}
		if r, _ := s.Watch(t.Context(), "", false, 0, 0); r.Card != want[0][0] {
			t.Errorf("%s: without a choice it is %+v, want %v", name, r, want[0])
		}
	}
	if trees == 0 {
		t.Error("no tree in expected.json")
	}
}

func TestSysfsIGPUHasNoJunction(t *testing.T) {
	s := Source{Kind: "sysfs", Sysfs: "../../testdata/captures/sysfs/igpu-mi50", Run: runChild}
	want := []Reading{
		{Card: "0000:12:00.0", Index: "0", Busy: Known(3), Power: Known(14)},
		{Card: "0000:44:00.0", Index: "1", Busy: Known(97), Junction: Known(88), Power: Known(183), HasJunction: true},
	}
	got := s.Look(t.Context(), "").Cards
	for i := range got {
		if !got[i].Power.Known {
			t.Errorf("%s: no power", got[i].Card)
		}
		got[i].Power = want[min(i, 1)].Power
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// runChild is the sysfs child without a process of its own.
func runChild(_ context.Context, c Command) Output {
	var out bytes.Buffer
	card := ""
	if len(c.Argv) > 3 {
		card = c.Argv[3]
	}
	ReadSysfs(&out, c.Argv[2], card)
	return Output{Stdout: out.Bytes()}
}

// What a kernel answers that a stored file cannot: the child's lines stand for it.
func TestSysfsReadings(t *testing.T) {
	const card = `card1 device "0000:44:00.0"
card1 vendor "0x1002\n"
card1 uevent "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:44:00.0\n"
card1 unique_id "00c0ffee00c0ffee\n"
card1 hwmon/hwmon4/temp1_label "edge\n"
card1 hwmon/hwmon4/temp2_label "junction\n"
card1 power/runtime_status "active\n"
`
	sensors := func(busy, edge, junction, power string) string {
		return "card1 gpu_busy_percent " + busy + "\ncard1 hwmon/hwmon4/temp1_input " + edge + "\ncard1 hwmon/hwmon4/temp2_input " + junction +
			"\ncard1 hwmon/hwmon4/power1_average " + power + "\ncard1 measured \"\"\n"
	}
	base := Reading{Card: "0000:44:00.0", Index: "1", Unique: "c0ffee00c0ffee", HasJunction: true}
	with := func(change func(*Reading)) []Reading { r := base; change(&r); return []Reading{r} }
	tests := []struct {
		name, dump string
		want       []Reading
	}{
		{"all is well", card + sensors(`"97\n"`, `"70000\n"`, `"88000\n"`, `"183000000\n"`), with(func(r *Reading) {
			r.Busy, r.Junction, r.Power = Known(97), Known(88), Known(183)
		})},
		{"in reset, or asleep on a new kernel", card + sensors(`!EPERM`, `!EPERM`, `!EPERM`, `!EPERM`), with(func(r *Reading) {
			r.Why = "gpu_busy_percent: EPERM; temp2_input: EPERM"
		})},
		{"busy cannot be read", card + sensors(`!EBUSY`, `"70000"`, `"75500"`, `"20000000"`), with(func(r *Reading) {
			r.Junction, r.Power, r.Why = Known(75.5), Known(20), "gpu_busy_percent: EBUSY"
		})},
		{"fallen off its bus", card + sensors(`"0"`, `"511000"`, `"511000"`, `"0"`), with(func(r *Reading) {
			r.Why = "temp2_input: 511 cannot be true; so its 0 % is not believed"
		})},
		{"a bad junction beside a good edge", card + sensors(`"0"`, `"40000"`, `"511000"`, `!EIO`), with(func(r *Reading) {
			r.Busy, r.Why = Known(0), "temp2_input: 511 cannot be true"
		})},
		{"empty is not 0", card + sensors(`""`, `""`, `""`, `""`), with(func(r *Reading) {
			r.Why = "gpu_busy_percent: empty; temp2_input: empty"
		})},
		{"101 % and below zero", card + sensors(`"101"`, `"40000"`, `"-5000"`, `"x"`), with(func(r *Reading) {
			r.Why = `gpu_busy_percent: 101 cannot be true; temp2_input: "-5000" is no reading`
		})},
		{"asleep", strings.Replace(card, "active", "suspended", 1) + "card1 measured \"\"\n", with(func(r *Reading) { r.Suspended = true })},
		{"another vendor", strings.Replace(card, "0x1002", "0x1a03", 1), nil},
		{"another driver", strings.Replace(card, "amdgpu", "radeon", 1), nil},
		{"no address in uevent", strings.Replace(card, "PCI_SLOT_NAME=0000:44:00.0", "", 1) + sensors(`"1"`, `"1"`, `"50000"`, `"1000000"`), with(func(r *Reading) {
			r.Busy, r.Junction, r.Power = Known(1), Known(50), Known(1)
		})},
		{"not the child's words", "hello\ncard1\ncard1 x\nrenderD128 vendor \"0x1002\"\ncard1 vendor 0x1002\n\x00", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, why := sysfsCards([]byte(tt.dump), "")
			if diff := cmp.Diff(tt.want, got); diff != "" || why != "" {
				t.Errorf("%s\n%s", diff, why)
			}
		})
	}
}

func TestSysfsCardThatHangsHidesNoOther(t *testing.T) {
	dump := `card0 vendor "0x1002"
card0 hwmon/hwmon1/temp2_label "junction"
card1 vendor "0x1002"
card1 gpu_busy_percent "12"
card1 measured ""
`
	got, why := sysfsCards([]byte(dump), "sysfs: no end in 15 s")
	want := []Reading{
		{Card: "card0", Index: "0", HasJunction: true, Why: "the sensors did not answer: sysfs: no end in 15 s"},
		{Card: "card1", Index: "1", Busy: Known(12)},
	}
	if diff := cmp.Diff(want, got); diff != "" || why != "sysfs: no end in 15 s" {
		t.Errorf("%s\n%s", diff, why)
	}
}

func TestSysfsLeavesSleepersAndOthersAlone(t *testing.T) {
	root := t.TempDir()
	put := func(file, text string) {
		path := filepath.Join(root, "class/drm", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, card := range []string{"card2", "card10"} {
		put(card+"/device/vendor", "0x1002\n")
		put(card+"/device/gpu_busy_percent", "5\n")
	}
	put("card2-DP-1/device/vendor", "0x1002\n")
	put("renderD128/device/vendor", "0x1002\n")
	put("card2/device/power/runtime_status", "suspended\n")
	var out bytes.Buffer
	ReadSysfs(&out, root, "")
	if s := out.String(); strings.Contains(s, "card2 gpu_busy_percent") || !strings.Contains(s, `card10 gpu_busy_percent "5\n"`) ||
		strings.Contains(s, "DP-1") || strings.Contains(s, "render") || strings.Index(s, "card2 ") > strings.Index(s, "card10 ") {
		t.Errorf("dump:\n%s", s)
	}
	out.Reset()
	ReadSysfs(&out, root, "card2")
	if s := out.String(); strings.Contains(s, "card10 gpu_busy_percent") {
		t.Errorf("the sensors of a card that was not asked for were read:\n%s", s)
	}
}

func TestPick(t *testing.T) {
	igpu := Reading{Card: "0000:12:00.0", Index: "0"}
	mi50 := Reading{Card: "0000:1c:00.0", Index: "1", HasJunction: true, Unique: "c0ffee"}
	other := Reading{Card: "0000:44:00.0", Index: "2", HasJunction: true}
	tool := Reading{Card: "GPU[3]", HasJunction: true}
	tests := []struct {
		name  string
		cards []Reading
		want  string
		card  string
		why   string
	}{
		{"the only one", []Reading{igpu}, "", igpu.Card, ""},
		{"the only one with a junction", []Reading{igpu, mi50}, "", mi50.Card, ""},
		{"none chosen", []Reading{igpu, mi50, other}, "", "", "2 cards and none chosen: 0000:1c:00.0 (1), 0000:44:00.0 (2)"},
		{"two without junction", []Reading{igpu, {Card: "7"}}, "", "", "2 cards and none chosen: 0000:12:00.0 (0), 7;"},
		{"by address", []Reading{igpu, mi50, other}, "0000:1c:00.0", mi50.Card, ""},
		{"by address in capitals", []Reading{igpu, mi50, other}, "0000:1C:00.0", mi50.Card, ""},
		{"by address without domain", []Reading{igpu, mi50, other}, "1C:00.0", mi50.Card, ""},
		{"by address with a long domain", []Reading{igpu, mi50, other}, "00000000:1C:00.0", mi50.Card, ""},
		{"by number", []Reading{igpu, mi50, other}, "2", other.Card, ""},
		{"by a card's name", []Reading{igpu, mi50, other}, "card2", other.Card, ""},
		{"by a tool's name", []Reading{tool}, "GPU[3]", tool.Card, ""},
		{"by a tool's number", []Reading{tool}, "3", tool.Card, ""},
		{"by unique id", []Reading{igpu, mi50, other}, "0x0000C0FFEE", mi50.Card, ""},
		{"vanished", []Reading{igpu, other}, "0000:1c:00.0", "", "card 0000:1c:00.0 is not there; there is 0000:12:00.0 (0), 0000:44:00.0 (2)"},
		{"another domain", []Reading{mi50}, "0001:1c:00.0", "", "card 0001:1c:00.0 is not there"},
		{"none at all", nil, "", "", "no card"},
		{"twice the same", []Reading{{Card: "1"}, {Card: "card1"}}, "1", "", "card 1 is not unique"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, why := Pick(tt.cards, tt.want)
			if r.Card != tt.card || !strings.HasPrefix(why, tt.why) || (why == "") != (tt.why == "") {
				t.Errorf("got %q, %q; want %q, %q", r.Card, why, tt.card, tt.why)
			}
		})
	}
}

// answering answers each read of rocm-smi with the next busy value.
func answering(t *testing.T, values ...string) (Source, *int) {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "rocm-smi")
	if err := os.WriteFile(tool, []byte("#!\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	asked := new(int)
	run := func(_ context.Context, c Command) Output {
		v := values[min(*asked, len(values)-1)]
		*asked++
		return Output{Stdout: []byte(`{"card0": {"GPU use (%)": "` + v + `", "Temperature (Sensor junction) (C)": "60.0"}}`)}
	}
	return Source{Kind: "rocm-smi", RocmSMI: tool, Run: run}, asked
}

func TestIdleMustBeConfirmed(t *testing.T) {
	tests := []struct {
		name    string
		values  []string
		confirm bool
		samples int
		busy    float64
		asked   int
	}{
		{"busy is believed at once", []string{"80"}, true, 5, 80, 1},
		{"one 0 % between two tokens", []string{"0", "0", "97", "0"}, true, 5, 97, 3},
		{"really idle", []string{"0"}, true, 2, 0, 3},
		{"no streak, nothing to confirm", []string{"0", "97"}, false, 5, 0, 1},
		{"idle_samples = 0 believes the first", []string{"0", "97"}, true, 0, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, asked := answering(t, tt.values...)
			r, _ := s.Watch(t.Context(), "", tt.confirm, 0, tt.samples)
			if r.Busy != Known(tt.busy) || *asked != tt.asked {
				t.Errorf("busy %v after %d reads, want %v after %d", r.Busy, *asked, tt.busy, tt.asked)
			}
		})
	}
}

func TestSlowSourceIsAskedOnce(t *testing.T) {
	t.Parallel()
	s, asked := answering(t, "0")
	fast := s.Run
	s.Run = func(ctx context.Context, c Command) Output {
		time.Sleep(slowSource + 50*time.Millisecond)
		return fast(ctx, c)
	}
	if r, _ := s.Watch(t.Context(), "", true, 0, 5); r.Busy != Known(0) || *asked != 1 {
		t.Errorf("busy %v after %d reads, want 0 after one", r.Busy, *asked)
	}
}

// An old tool that knows not all flags is asked for less.
func TestOldToolIsAskedForLess(t *testing.T) {
	s, _ := answering(t, "5")
	answer := s.Run
	var asked [][]string
	s.Run = func(ctx context.Context, c Command) Output {
		asked = append(asked, c.Argv[1:])
		if len(asked) == 1 {
			return Output{Failure: "rocm-smi: exit 2: rocm-smi: error: unrecognized arguments: --showuniqueid"}
		}
		return answer(ctx, c)
	}
	sight := s.Look(t.Context(), "")
	if len(sight.Cards) != 1 || sight.Why != "" {
		t.Errorf("%+v", sight)
	}
	if diff := cmp.Diff(rocmAsks, asked); diff != "" {
		t.Error(diff)
	}
}

func TestAmdListGivesAddresses(t *testing.T) {
	cards := []Reading{{Card: "0"}, {Card: "1"}, {Card: "0000:99:00.0", Index: "2"}}
	for _, list := range []string{
		`[{"gpu":1,"bdf":"0000:44:00.0"},{"gpu":0,"bdf":"0000:1C:00.0"},{"gpu":2,"bdf":"0000:11:00.0"}]`,
		`{"gpu_data":[{"gpu":1,"bdf":"0000:44:00.0"},{"gpu":0,"bdf":"0000:1C:00.0"}]}`,
	} {
		want := []Reading{{Card: "0000:1c:00.0", Index: "0"}, {Card: "0000:44:00.0", Index: "1"}, cards[2]}
		if diff := cmp.Diff(want, withAddresses(cards, []byte(list))); diff != "" {
			t.Errorf("%s\n%s", list, diff)
		}
	}
	for _, list := range []string{``, `[]`, `[{"bdf":"0000:1C:00.0"}]`, `{"error":"x"}`, `[{"gpu":"0"}]`} {
		if diff := cmp.Diff(cards, withAddresses(cards, []byte(list))); diff != "" {
			t.Errorf("%s\n%s", list, diff)
		}
	}
}

func TestFindTool(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "a-tool")
	if err := os.WriteFile(tool, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for name, want := range map[string]string{"a-tool": tool, tool: tool, filepath.Join(dir, "none"): "", "no-such-tool": ""} {
		if got := FindTool(name); got != want {
			t.Errorf("FindTool(%q) = %q, want %q", name, got, want)
		}
	}
}

// Whatever a child prints, no number comes out that is not one a card could say.
func FuzzSysfsDump(f *testing.F) {
	f.Add([]byte("card0 vendor \"0x1002\"\ncard0 gpu_busy_percent \"50\"\ncard0 measured \"\"\n"), "")
	f.Add([]byte("card1 vendor \"0x1002\\n\"\ncard1 hwmon/hwmon0/temp2_label \"junction\"\ncard1 hwmon/hwmon0/temp2_input \"99999999999\"\ncard1 measured !EIO\n- class/drm !EACCES\n"), "no end")
	f.Fuzz(func(t *testing.T, dump []byte, failure string) {
		cards, why := sysfsCards(dump, failure)
		for _, r := range cards {
			if r.Busy.Known && !soundBusy(r.Busy.Value) || r.Junction.Known && (!soundTemperature(r.Junction.Value) || !r.HasJunction) || r.Card == "" {
				t.Fatalf("%+v", r)
			}
			if strings.ContainsAny(r.Card, " \n") {
				t.Fatalf("card %q would break the state file", r.Card)
			}
		}
		if failure != "" && why == "" {
			t.Fatal("a failure was kept back")
		}
	})
}

func TestUsers(t *testing.T) {
	root := t.TempDir()
	for _, pid := range []string{"77", "5", "not-a-pid"} {
		if err := os.MkdirAll(filepath.Join(root, "class/kfd/kfd/proc", pid), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int{5, 77}, Source{Sysfs: root, Run: runChild}.Users(t.Context())); diff != "" {
		t.Error(diff)
	}
	if got := (Source{Sysfs: t.TempDir(), Run: runChild}).Users(t.Context()); got != nil {
		t.Errorf("users of a machine without GPU: %v", got)
	}
}
