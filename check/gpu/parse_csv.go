package gpu

import (
	"slices"
	"strings"
)

// readCSV reads the comma separated output of all three tools. Columns are
// told by the header, and a row with another number of cells is no row: a
// decimal comma, say, has moved everything behind it.
func readCSV(text string) (cards []*shown, problem string) {
	var found samples
	var table csvTable
	anonymous := 0
	for line := range lines(text) {
		values, ok := splitCSV(line)
		if !ok {
			continue
		}
		if t, ok := csvHeader(values); ok {
			table = t
			continue
		}
		t := table
		if t.names == nil {
			t = csvTable{nameless(values), nvidiaKey, (*shown).nvidiaValue}
		}
		if t.names == nil || len(values) != len(t.names) {
			continue
		}
		name, ok := t.card(values)
		if !ok {
			continue
		}
		if name == "" {
			anonymous++
		}
		c := found.card(name, "row")
		c.honest = t.names[0] != "device" && t.names[0] != "gpu" && !slices.Contains(t.names, "temperature.gpu")
		for i, value := range values {
			t.take(c, t.names[i], value)
		}
	}
	if anonymous > 1 {
		return nil, "several rows, and none says which card it is"
	}
	return found.cards(), ""
}

// csvTable knows the columns of one of the tools.
type csvTable struct {
	names []string
	key   func(string) role
	take  func(c *shown, key, value string)
}

// csvHeader knows a header: it names a load or a temperature, and one of its
// columns is the card's, or nvidia-smi's own.
func csvHeader(values []string) (t csvTable, ok bool) {
	for _, v := range values {
		name, _, _ := strings.Cut(squeezed(v), " [") // utilization.gpu [%]
		t.names = append(t.names, name)
	}
	has := func(key func(string) role, roles ...role) bool {
		return slices.ContainsFunc(t.names, func(name string) bool { return slices.Contains(roles, key(name)) })
	}
	switch {
	case has(rocmKey, number) && has(rocmKey, busy, junction, temperature):
		t.key, t.take = rocmKey, (*shown).rocmValue
	case has(nvidiaKey, busy, temperature):
		t.key, t.take = nvidiaKey, (*shown).nvidiaValue
	case has(amdKey, number) && has(amdKey, busy, junction, temperature):
		t.key, t.take = amdKey, (*shown).amdValue
		if i := slices.Index(t.names, "mem"); i >= 0 && slices.Contains(t.names, "hotspot") {
			t.names[i] = "mem_temperature" // in `metric`; in `monitor` it is a load
		}
	default:
		return csvTable{}, false
	}
	return t, true
}

// card is what the row calls its card, "" if no column does. ok is false for a
// row that is not a card's.
func (t csvTable) card(values []string) (name string, ok bool) {
	for i, v := range values {
		switch t.key(t.names[i]) {
		case number:
			return v, digitsOf(v) != ""
		case address:
			if name == "" {
				name = PCIAddress(v)
			}
		}
	}
	return name, true
}

// splitCSV splits one line. A cell may be quoted, with commas in it; ok is
// false if a quote is left open.
func splitCSV(line string) (values []string, ok bool) {
	for {
		line = strings.TrimSpace(line)
		if rest, quoted := strings.CutPrefix(line, `"`); quoted {
			var value strings.Builder
			for {
				part, after, closed := strings.Cut(rest, `"`)
				if !closed {
					return nil, false
				}
				value.WriteString(part)
				if rest, closed = strings.CutPrefix(after, `"`); !closed {
					break
				}
				value.WriteByte('"') // "" in a quoted cell
			}
			values = append(values, value.String())
			line = strings.TrimSpace(rest)
			if line == "" {
				return values, true
			}
			if line, ok = strings.CutPrefix(line, ","); !ok {
				return nil, false
			}
			continue
		}
		value, rest, more := strings.Cut(line, ",")
		values = append(values, strings.TrimSpace(value))
		if !more {
			return values, true
		}
		line = rest
	}
}
