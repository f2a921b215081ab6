package gpu

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
