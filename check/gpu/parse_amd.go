package gpu

import "strings"

// amdKey knows amd-smi's names: keys of its JSON, columns of its CSV. Only
// there is a "gfx_activity" a percentage; in `monitor` it is just "gfx".
func amdKey(key string) role {
	switch key {
	case "gpu":
		return number
	case "bdf":
		return address
	case "gfx_activity", "gfx_usage", "gfx":
		return busy
	case "hotspot", "junction", "hotspot_temperature", "junction_temperature", "temperature_hotspot", "temperature_junction":
		return junction
	case "edge", "edge_temperature", "temperature_edge", "mem_temperature", "memory_temperature":
		return temperature
	case "socket_power", "current_socket_power", "average_socket_power", "power_usage":
		return power
	}
	return other
}

func (c *shown) amdValue(key, value string) {
	switch amdKey(key) {
	case address:
		c.address = PCIAddress(value)
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

// readAmdBlocks reads `amd-smi metric`:
//
//	GPU: 0
//	    USAGE:
//	        GFX_ACTIVITY: 100 %
//	    TEMPERATURE:
//	        HOTSPOT: 95 °C
//
// A name counts only right below its own section: limits have the same names.
func readAmdBlocks(text string) (cards []*shown, problem string) {
	type level struct {
		indent int
		key    string
	}
	var found samples
	var c *shown
	var path []level
	for line := range lines(text) {
		body := strings.TrimLeft(line, " ")
		indent := len(line) - len(body)
		key, value, ok := strings.Cut(body, ":")
		key, value = squeezed(key), strings.TrimSpace(value)
		if !ok {
			continue // a list goes on, or noise
		}
		if indent == 0 {
			switch {
			case key == "gpu" && digits(value):
				c, path = found.card(value, "block"), nil
			case key == "gpu" || key == "cpu" || key == "core":
				c = nil
			}
			continue
		}
		for len(path) > 0 && path[len(path)-1].indent >= indent {
			path = path[:len(path)-1]
		}
		switch {
		case c == nil:
		case value == "":
			path = append(path, level{indent, key})
		case len(path) == 1 && path[0].key == "usage" && amdKey(key) == busy,
			len(path) == 1 && path[0].key == "temperature" && amdKey(key) == junction,
			len(path) == 1 && path[0].key == "power" && amdKey(key) == power,
			len(path) <= 1 && amdKey(key) == address:
			c.amdValue(key, value)
		case len(path) == 1 && path[0].key == "temperature":
			c.heat(measure(value, isCelsius))
		}
	}
	return found.cards(), ""
}

// readMonitor reads `amd-smi monitor`: a row a card (or a partition of one),
// right-justified, every value but the counters with its unit behind a blank.
func readMonitor(text string) (cards []*shown, problem string) {
	var found samples
	var header []string
	for line := range lines(text) {
		words := strings.Fields(line)
		if len(words) > 100 {
			continue // wider than any monitor
		}
		if names, ok := monitorHeader(words); ok {
			header = names
			continue
		}
		values := monitorValues(words)
		if header == nil || len(values) != len(header) {
			continue
		}
		gpu, xcp := "", ""
		for i, name := range header {
			switch name {
			case "gpu":
				gpu = values[i]
			case "xcp":
				xcp = values[i]
			}
		}
		if !digits(gpu) {
			continue
		}
		c := found.card(gpu, "row "+xcp)
		for i, name := range header {
			switch value := values[i]; name {
			case "gfx%", "gfx_util":
				c.busy.atLeast(value, unitOnly(value, isPercent))
			case "gpu_t", "gpu_temp", "hotspot_t", "hotspot_temp":
				t := unitOnly(value, isCelsius)
				c.labelled = true
				c.junction.atLeast(value, t)
				c.heat(t)
			case "mem_t", "mem_temp":
				c.heat(unitOnly(value, isCelsius))
			case "power":
				c.draws(unitOnly(value, isWatt))
			}
		}
	}
	return found.cards(), ""
}

// monitorHeader knows a header line, of this table or of another one that ends
// it. It has no names for a table that is of no use.
func monitorHeader(words []string) (names []string, ok bool) {
	useful := false
	for i, word := range words {
		if word != strings.ToUpper(word) || word[0] < 'A' || word[0] > 'Z' || strings.HasSuffix(word, ":") {
			return nil, false
		}
		names = append(names, strings.ToLower(word))
		switch names[i] {
		case "gfx%", "gfx_util", "gpu_t", "gpu_temp":
			useful = true
		}
	}
	if len(names) < 2 || names[0] != "gpu" && names[0] != "timestamp" {
		return nil, false
	}
	if !useful {
		return nil, true
	}
	return names, true
}

// monitorValues joins each number with its unit, and 29.8/ with 32.0 GB.
func monitorValues(words []string) (values []string) {
	open := false
	for _, word := range words {
		switch {
		case len(values) > 0 && (open || isUnit(word)):
			values[len(values)-1] += " " + word
		default:
			values = append(values, word)
		}
		open = strings.HasSuffix(word, "/")
	}
	return values
}

func isUnit(word string) bool {
	switch word {
	case "W", "V", "mV", "J", "%", "KHz", "MHz", "GHz", "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "Kb/s", "Mb/s", "Gb/s", "MB/s", "GB/s":
		return true
	}
	return isCelsius(word) && word != ""
}

// readAmdTable reads the box that `amd-smi` alone prints, two lines a card.
// Its Temp is unlabelled, so there is no junction in it.
func readAmdTable(text string) (cards []*shown, problem string) {
	var found samples
	var upper, lower []string // the names right of the middle, on the first and the second line
	var values []string       // below the upper ones
	address := ""
	for line := range lines(text) {
		left, right, ok := boxHalves(line)
		words, cells := strings.Fields(left), boxCells(right)
		switch {
		case !ok || len(words) == 0:
		case words[0] == "BDF":
			upper = cells
		case words[0] == "GPU":
			lower = cells
		case PCIAddress(words[0]) != "":
			address, values = PCIAddress(words[0]), cells
		case address != "" && digits(words[0]):
			if len(values) == len(upper) && len(cells) == len(lower) {
				c := found.card(words[0], "row")
				c.address = address
				c.amdTableRow(upper, values)
				c.amdTableRow(lower, cells)
			}
			address = ""
		}
	}
	return found.cards(), ""
}

func (c *shown) amdTableRow(names, values []string) {
	for i, name := range names {
		switch value := values[i]; name {
		case "GFX-Uti":
			c.busy.put(value, unitOnly(value, isPercent))
		case "Temp":
			c.heat(unitOnly(value, isCelsius))
		case "Power-Usage":
			usage, _, _ := strings.Cut(value, "/")
			c.draws(measure(usage, isWatt))
		}
	}
}

// boxHalves splits "| left | right |"; a line that lacks its end is no row.
func boxHalves(line string) (left, right string, ok bool) {
	parts := strings.Split(strings.TrimSpace(line), "|")
	if len(parts) != 4 || parts[0] != "" || parts[3] != "" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

func boxCells(text string) (found []string) {
	for _, c := range cells(text) {
		found = append(found, c.text)
	}
	return found
}
