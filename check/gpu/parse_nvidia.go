package gpu

import "strings"

// nvidiaKey knows the columns of nvidia-smi --query-gpu. None of them is a
// junction: temperature.gpu is the die's, and there is no other.
func nvidiaKey(key string) role {
	switch key {
	case "index":
		return number
	case "pci.bus_id", "gpu_bus_id":
		return address
	case "utilization.gpu":
		return busy
	case "temperature.gpu":
		return temperature
	case "power.draw", "power.draw.average", "power.draw.instant":
		return power
	}
	return other
}

func (c *shown) nvidiaValue(key, value string) {
	switch nvidiaKey(key) {
	case address:
		c.address = PCIAddress(value)
	case busy:
		c.busy.put(value, measure(value, isPercent))
	case temperature:
		c.heat(measure(value, isCelsius))
	case power:
		c.draws(measure(value, isWatt))
	}
}

// readNvidiaTable reads nvidia-smi's box: the card's number and bus id on one
// line, its load on the next.
func readNvidiaTable(text string) (cards []*shown, problem string) {
	var found samples
	ours, number, address := false, "", ""
	for line := range lines(text) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		if len(parts) != 5 || parts[0] != "" || parts[4] != "" {
			continue
		}
		left, middle, right := strings.Fields(parts[1]), strings.Fields(parts[2]), strings.Fields(parts[3])
		switch {
		case len(left) == 0 || len(middle) == 0 || len(right) == 0:
		case right[0] == "GPU-Util":
			ours = true
		case !ours:
		case digits(left[0]) && PCIAddress(middle[0]) != "":
			number, address = left[0], PCIAddress(middle[0])
		case number != "" && len(left) > 1 && strings.HasSuffix(middle[0], "MiB"):
			c := found.card(number, "row")
			c.address = address
			c.busy.put(right[0], unitOnly(right[0], isPercent))
			c.heat(unitOnly(left[1], isCelsius))
			number = ""
		}
	}
	return found.cards(), ""
}

// nameless is for `--format=csv,noheader,nounits`, whose columns nobody can
// tell apart in general: a load and a temperature look the same. Two forms can
// be told by their shape.
func nameless(values []string) (header []string) {
	numbers := func(from, n int) bool {
		for _, v := range values[from:] {
			if _, unit, ok := quantity(v); (!ok || unit != "") && !strings.HasPrefix(v, "[") && v != "N/A" {
				return false
			}
		}
		return len(values) == from+n
	}
	switch {
	case len(values) < 4 || !digits(values[0]):
		return nil
	case strings.HasPrefix(values[1], "GPU-") && numbers(3, 4): // as gpustat asks
		return []string{"index", "uuid", "name", "temperature.gpu", "utilization.gpu", "memory.used", "memory.total"}
	case PCIAddress(values[1]) != "" && (numbers(2, 2) || numbers(2, 3)): // as we would ask
		return []string{"index", "pci.bus_id", "utilization.gpu", "temperature.gpu", "power.draw"}[:len(values)]
	}
	return nil
}
