package gpu

import (
	"slices"
	"strings"
)

// readRocmBlocks reads rocm-smi's lines of the form
//
//	GPU[0]		: Temperature (Sensor junction) (C): 91.0
func readRocmBlocks(text string) (cards []*shown, problem string) {
	var found samples
	for line := range lines(text) {
		line = strings.TrimSpace(line)
		name, rest, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || !strings.HasPrefix(name, "GPU[") || digitsOf(name) == "" {
			if strings.Contains(line, "End of ROCm SMI Log") {
				found.end()
			}
			continue
		}
		key, value, _ := strings.Cut(rest, ": ")
		if key = squeezed(key); rocmKey(key) > number {
			found.card(name, key).rocmValue(key, strings.TrimSpace(value))
		} else if strings.HasPrefix(key, "gpu use") { // "GPU use Unsupported"
			c := found.card(name, "gpu use")
			c.busy.put(strings.TrimSpace(rest), Number{})
		}
	}
	return found.cards(), ""
}

// role is what a named value means to us.
type role int

const (
	other       role = iota
	number           // of the card
	address          // PCI
	unique           // id
	busy             // %
	junction         // °C, a sensor labelled junction or hotspot
	temperature      // °C, any other
	power            // W
)

// rocmKey knows rocm-smi's names: in text before the value, in JSON as keys,
// in CSV as columns. They differ in case and wording from release to release.
// "GFX Activity" is none of them: there it is a counter, not a percentage.
func rocmKey(key string) role {
	switch key {
	case "gpu use (%)", "gpu use", "current gpu use", "current gpu use (%)":
		return busy
	case "device":
		return number
	case "pci bus":
		return address
	case "unique id":
		return unique
	}
	name, unit := key, ""
	if open := strings.LastIndex(key, " ("); open > 0 && strings.HasSuffix(key, ")") {
		name, unit = key[:open], key[open+2:len(key)-1]
	}
	switch {
	case strings.HasPrefix(key, "temperature"):
		if strings.HasPrefix(unit, "sensor ") || unit != "" && !isCelsius(unit) && name == "temperature" {
			name, unit = key, "" // Temperature (Sensor edge), Temperature (edge): that was no unit
		}
		if !isCelsius(unit) {
			return other
		}
		switch name {
		case "temperature (sensor junction)", "temperature (sensor hotspot)", "temperature (junction)", "temperature (hotspot)":
			return junction
		}
		return temperature
	case unit == "w" && strings.Contains(name, "power") && (strings.HasPrefix(name, "average ") || strings.HasPrefix(name, "current ")):
		return power
	}
	return other
}

func (c *shown) rocmValue(key, value string) {
	switch rocmKey(key) {
	case address:
		c.address = PCIAddress(value)
	case unique:
		if id := uniqueID(value); isHex(id) {
			c.unique = id
		}
	case busy:
		c.busy.put(value, measure(value, isPercent))
	case junction:
		c.hotspot(value, measure(value, isCelsius))
	case temperature:
		c.heat(measure(value, isCelsius))
	case power:
		c.draws(measure(value, isWatt))
	}
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdef") == ""
}

// readConcise reads rocm-smi's table of one line a card (two in ROCm 6.0). The
// columns are told by name, and a value's column by where it starts: neither
// the number of columns nor their order is the same in two releases, and cells
// hold blanks. A row counts only if every column has something in it.
func readConcise(text string) (cards []*shown, problem string) {
	var found samples
	var header []cell
	rows := 0
	for line := range lines(text) {
		row := cells(line)
		switch {
		case len(row) == 0:
		case isConciseHeader(row):
			header, rows = row, 0
		case header == nil:
		case strings.HasPrefix(row[0].text, "===="):
			if rows > 0 {
				found.end()
				header = nil
			}
		case digits(row[0].text):
			if values, ok := align(row, header); ok {
				rows++
				found.card(row[0].text, "row").conciseRow(header, values)
			}
		case rows == 0:
			addLabels(header, row)
		}
	}
	return found.cards(), ""
}

func isConciseHeader(row []cell) bool {
	if first := squeezed(row[0].text); first != "gpu" && first != "device" || len(row) < 4 {
		return false
	}
	return slices.ContainsFunc(row, func(c cell) bool {
		name := squeezed(c.text)
		return name == "gpu%" || name == "temp" || strings.HasPrefix(name, "temp (")
	})
}

// addLabels reads the header's second line: which sensor it is stands right
// below Temp. (ROCm 5 has it behind Temp, and older ones nowhere.)
func addLabels(header, row []cell) {
	for i, h := range header {
		for _, c := range row {
			if c.start == h.start && strings.HasPrefix(c.text, "(") {
				header[i].text += " " + c.text
			}
		}
	}
}

func (c *shown) conciseRow(header []cell, values []string) {
	for i, h := range header {
		value := values[i]
		switch name, label, _ := strings.Cut(squeezed(h.text), " "); name {
		case "gpu%":
			c.busy.put(value, unitOnly(value, isPercent))
		case "temp":
			if t := unitOnly(value, isCelsius); label == "(junction)" || label == "(hotspot)" {
				c.hotspot(value, t)
			} else {
				c.heat(t)
			}
		case "avgpwr", "power":
			c.draws(unitOnly(value, isWatt))
		}
	}
}

// unitOnly is measure for a table that always prints the unit: a number
// without one has come from elsewhere.
func unitOnly(text string, unit func(string) bool) Number {
	if _, u, _ := quantity(text); u == "" {
		return Number{}
	}
	return measure(text, unit)
}

// align puts each cell of a row below the header cell where it starts. A row
// may run one column to the left of its header: in an ASCII locale the degree
// sign is dropped, and nothing put in its place. ok is false unless every
// column has something.
func align(row, header []cell) (columns []string, ok bool) {
	columns = make([]string, len(header))
	column := 0
	for _, c := range row {
		for column+1 < len(header) && c.start >= header[column+1].start-1 {
			column++
		}
		if c.start < header[column].start-1 {
			return nil, false
		}
		if columns[column] != "" {
			columns[column] += " "
		}
		columns[column] += c.text
	}
	for _, text := range columns {
		if text == "" {
			return nil, false
		}
	}
	return columns, true
}
