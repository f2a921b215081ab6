package gpu

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const captures = "../../testdata/captures"

// expected is expected.json: a card's id, busy and junction (null for no
// reading) for each capture.
func expected(t testing.TB) map[string][]expectedCard {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captures, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]expectedCard
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

type expectedCard struct {
	id             string
	busy, junction *float64
}

func (e *expectedCard) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&e.id, &e.busy, &e.junction})
}

func capture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(captures, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseReadsEveryCapture(t *testing.T) {
	for name, want := range expected(t) {
		if strings.HasPrefix(name, "sysfs/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got, why := Parse(capture(t, name))
			got, want = usable(got), usableExpected(want)
			if len(got) != len(want) {
				t.Fatalf("got %+v (%s), want %d cards", got, why, len(want))
			}
			if (why == "") != (len(want) > 0) {
				t.Errorf("why = %q with %d usable cards", why, len(want))
			}
			for i, w := range want {
				g := got[i]
				if digitsOf(w.id) != g.Index || PCIAddress(g.Card) == "" && g.Card != w.id {
					t.Errorf("card %q, number %q; want %q", g.Card, g.Index, w.id)
				}
				if !same(g.Busy, w.busy, 0) || !same(g.Junction, w.junction, 0.6) {
					t.Errorf("%s: got %+v", w.id, g)
				}
			}
		})
	}
}

func same(got Number, want *float64, tolerance float64) bool {
	if want == nil || !got.Known {
		return want == nil && !got.Known
	}
	return math.Abs(got.Value-*want) <= tolerance
}

func usable(cards []Reading) (found []Reading) {
	return filter(cards, func(r Reading) bool { return r.Busy.Known || r.Junction.Known })
}

func usableExpected(cards []expectedCard) (found []expectedCard) {
	for _, c := range cards {
		if c.busy != nil || c.junction != nil {
			found = append(found, c)
		}
	}
	return found
}

// The table says what each card shows; these say what makes no difference.

const warning = "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n"

// textCaptures yields the captures that are text as it was printed.
func textCaptures(t *testing.T) map[string]string {
	all := make(map[string]string)
	for name := range expected(t) {
		if strings.HasPrefix(name, "sysfs/") {
			continue
		}
		if data := capture(t, name); utf8.Valid(data) {
			all[name] = string(data)
		}
	}
	return all
}

func TestParseIgnoresWarningsBetweenAnyTwoLines(t *testing.T) {
	for name, text := range textCaptures(t) {
		want, _ := Parse([]byte(text))
		rows := strings.SplitAfter(text, "\n")
		for i := range rows {
			if i > 0 && !strings.HasSuffix(rows[i-1], "\n") {
				continue
			}
			noisy := strings.Join(rows[:i], "") + warning + strings.Join(rows[i:], "")
			if got, _ := Parse([]byte(noisy)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, before line %d: got %+v, want %+v", name, i+1, got, want)
			}
		}
	}
}

func TestParseIgnoresHowLinesEnd(t *testing.T) {
	for name, text := range textCaptures(t) {
		want, _ := Parse([]byte(text))
		text = strings.NewReplacer("\n\r", "\n", "\r\n", "\n").Replace(text)
		for _, end := range []string{"\n", "\r\n", "\n\r", "\r", "\n\n"} {
			if got, _ := Parse([]byte(strings.ReplaceAll(text, "\n", end))); !reflect.DeepEqual(got, want) {
				t.Errorf("%s with lines that end in %q: got %+v, want %+v", name, end, got, want)
			}
		}
	}
}

// A capture can be cut off anywhere: by a timeout, by a full disk, by a limit
// on what is kept. What is read of the rest is what the whole one says, or
// said in an earlier sample.
func TestParseReadsNothingElseOfACutCapture(t *testing.T) {
	for name, text := range textCaptures(t) {
		if name == "131-amdsmi-monitor-partitions.txt" {
			continue // one row is what its partition says
		}
		said := make(map[string]bool) // at a line's end, or where the last of a JSON document's braces closes
		value := func(r Reading, what string, n Number) string {
			return fmt.Sprintf("card %s %s %v", r.number(), what, n.Value)
		}
		each := func(cards []Reading, visit func(what string)) {
			for _, r := range usable(cards) {
				if r.Busy.Known {
					visit(value(r, "busy", r.Busy))
				}
				if r.Junction.Known {
					visit(value(r, "junction", r.Junction))
				}
			}
		}
		for i := range text {
			if text[i] == '\n' || text[i] == '}' {
				cards, _ := Parse([]byte(text[:i+1]))
				each(cards, func(what string) { said[what] = true })
			}
		}
		whole, _ := Parse([]byte(text))
		single := !strings.Contains(name, "two-") && !strings.Contains(name, "watch") && !strings.Contains(name, "repeat")
		if single {
			said = make(map[string]bool)
			each(whole, func(what string) { said[what] = true })
		}
		step := 1 + len(text)/1000
		for i := 0; i < len(text); i += step {
			cards, _ := Parse([]byte(text[:i]))
			each(cards, func(what string) {
				if !said[what] {
					t.Errorf("%s cut after %d bytes says %s", name, i, what)
				}
			})
		}
	}
}

func TestParseReadsHundredsOfCards(t *testing.T) {
	var json, csv, text strings.Builder
	json.WriteString("{")
	csv.WriteString("device,Temperature (Sensor junction) (C),GPU use (%)\n")
	for i := range 500 {
		fmt.Fprintf(&csv, "card%d,%d.0,%d\n", i, 30+i%70, i%101)
		fmt.Fprintf(&text, "GPU[%d]\t\t: Temperature (Sensor junction) (C): %d.0\nGPU[%d]\t\t: GPU use (%%): %d\n", i, 30+i%70, i, i%101)
		if i > 0 {
			json.WriteString(", ")
		}
		fmt.Fprintf(&json, `"card%d": {"Temperature (Sensor junction) (C)": "%d.0", "GPU use (%%)": "%d"}`, i, 30+i%70, i%101)
	}
	json.WriteString("}")
	for _, capture := range []string{json.String(), csv.String(), text.String()} {
		cards, why := Parse([]byte(capture))
		if len(cards) != 500 {
			t.Fatalf("%d cards (%s)", len(cards), why)
		}
		for i, r := range cards {
			if r.Busy != Known(float64(i%101)) || r.Junction != Known(float64(30+i%70)) || r.Index != strconv.Itoa(i) {
				t.Errorf("card %d: %+v", i, r)
			}
		}
	}
}

// What is not the tools' output may be of any size and shape: it costs little
// and gives nothing.
func TestParseIsNotImpressedBySize(t *testing.T) {
	for _, unit := range []string{
		"{", "[", "[{", "{}", "[]", `{"gpu":0}`, `{"gpu":`, `{"card0":{}}`, `"`, `""`, `"a""`, ",", "a,", "\n", "\r", "a  ", "GPU ", "W ", "\x1b", "\x1b[", "\x1b[1;",
		"GPU[0]: ", "GPU  Temp  GPU%  X\n", "GPU: 0\n", "  A:\n", "|", "| |", "\xff", "\x00", "GPU[0]: GPU use (%): 1", "1,", "99999",
	} {
		text := strings.Repeat(unit, (1<<20)/len(unit))
		began := time.Now()
		cards, _ := Parse([]byte(text))
		if len(usable(cards)) > 0 {
			t.Errorf("%q… gives %+v", unit, cards)
		}
		if took := time.Since(began); took > 30*time.Second { // a quadratic one takes hours
			t.Errorf("%q… took %v", unit, took)
		}
	}
	if cards, why := Parse(make([]byte, maxCapture+1)); cards != nil || why == "" {
		t.Errorf("too much gives %v, %q", cards, why)
	}
}

func TestParseSaysWhy(t *testing.T) {
	for _, c := range []struct{ capture, why string }{
		{"", "nothing was printed"},
		{" \r\n\n", "nothing was printed"},
		{"bash: rocm-smi: command not found\n", `it says "bash: rocm-smi: command not found"`},
		{"x.py:1: SyntaxWarning: error\nERROR:root:Driver not initialized", `it says "ERROR:root:Driver not initialized"`},
		{"WARNING: something\nhello\n", `it says "WARNING: something"`},
		{"hello\nworld\n", `no output of rocm-smi, amd-smi or nvidia-smi with a reading in it; it begins "hello"`},
		{`{"error": "no", "code": -2}`, `it says "no"`},
		{`{"card0": {"GPU use (%)": "1"`, "the JSON is cut off"},
		{`{"card0": {"GPU use (%)": 1 2}}`, "the JSON is broken: invalid character '2' after object key:value pair"},
		{`{"card0": {"GPU use (%)": "0"}, "card1": {"GPU ID": "0x66a1"}}`, "card0: 0 % without any temperature is a failed read (and 1 more without a value)"},
		{"utilization.gpu [%]\n1 %\n2 %\n", "several rows, and none says which card it is"},
	} {
		if _, why := Parse([]byte(c.capture)); why != c.why {
			t.Errorf("%q: why = %q, want %q", c.capture, why, c.why)
		}
	}
}

func TestParseTakesNoUnsoundNumber(t *testing.T) {
	for text, want := range map[string]Number{
		"97": Known(97), "97.0": Known(97), "97,5": Known(97.5), "0": Known(0), "97 %": Known(97), "97%": Known(97), " 97 ": Known(97),
		"": {}, "%": {}, "N/A": {}, "None": {}, "-1": {}, "+1": {}, "1e2": {}, "0x61": {}, "9 7": {}, "97.": {}, ".5": {}, "1.2.3": {}, "1,725": {}, "1,2,3": {},
		"97 %%": {}, "97 C": {}, "97 MHz": {}, "nan": {}, "inf": {}, "٩٧": {}, "9_7": {}, "1234567890": {}, "97\x00": {}, "97…": {},
	} {
		if got := measure(text, isPercent); got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]Number{
		"91.0c": Known(91), "91.0 C": Known(91), "91 °C": Known(91), "91Â°C": Known(91), "91\ufffdC": Known(91), "91?C": Known(91), "91ºC": Known(91), "91": Known(91),
		"91 °": {}, "91 °F": {}, "91 mC": {}, "91 K": {}, "91 %": {}, "91 CC": {}, "91 W": {},
	} {
		if got := measure(text, isCelsius); got != want {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

func TestParseNamesACardByItsAddressIfOnlyOneHasIt(t *testing.T) {
	cards, _ := Parse([]byte(`{"card0": {"PCI Bus": "0000:1C:00.0", "GPU use (%)": "5"}, "card1": {"PCI Bus": "1c:00.0", "GPU use (%)": "6"}, "card2": {"PCI Bus": "00000001:2D:00.1", "GPU use (%)": "7", "Unique ID": "0x00AbC"}}`))
	var names []string
	for _, r := range cards {
		names = append(names, r.Card+" "+r.Index+" "+r.Unique)
	}
	if got, want := strings.Join(names, ", "), "card0 0 , card1 1 , 0001:2d:00.1 2 abc"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseKnowsWhoHasAJunction(t *testing.T) {
	for text, want := range map[string]bool{
		`{"card0": {"Temperature (Sensor edge) (C)": "42.0", "GPU use (%)": "5"}}`:                                          false,
		`{"card0": {"Temperature (Sensor edge) (C)": "42.0", "Temperature (Sensor junction) (C)": "N/A"}}`:                  false, // so rocm-smi 5 prints an iGPU
		`{"card0": {"Temperature (Sensor edge) (C)": "42.0", "Temperature (Sensor junction) (C)": "511.0"}}`:                true,
		`{"card0": {"Temperature (Sensor edge) (C)": "42.0", "Temperature (Sensor junction) (C)": "-1.0"}}`:                 true,
		`{"card0": {"Temperature (Sensor edge) (C)": "N/A", "Temperature (Sensor junction) (C)": "N/A"}}`:                   true,
		`{"card0": {"Temperature (Sensor edge) (C)": "42.0", "Temperature (Sensor junction) (C)": "0.0"}}`:                  false,
		`[{"gpu": 0, "usage": "N/A", "temperature": {"edge": {"value": 41, "unit": "C"}, "hotspot": "N/A", "mem": "N/A"}}]`: false,
	} {
		if cards, _ := Parse([]byte(text)); len(cards) != 1 || cards[0].HasJunction != want {
			t.Errorf("%s: got %+v, want %v", text, cards, want)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for _, name := range []string{"102-real523-json-bus-unique.json", "24-rocm62-concise-mi50-w5700-edge.txt", "25-rocm62-use-temp-mi50-w5700.txt", "59-amdsmi-rocm72-metric-gpu-data.json", "54-amdsmi-rocm62-metric-quoted-lists.csv"} {
		data := capture(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				Parse(data)
			}
		})
	}
}
