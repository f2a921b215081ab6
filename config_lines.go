package main

import (
	"fmt"
	"strings"
)

// tomlLines says on which line each key of a valid TOML text stands:
// "gpu.max_busy", "agents.agent[2].unit", and the tables themselves. The TOML
// library keeps no positions, and a mistake without its line is half an error.
// Keys inside inline tables are not listed; their mistakes take the line of
// the key that holds them.
func tomlLines(text string) map[string]int {
	lines := map[string]int{}
	table, arrays := "", map[string]int{}
	var open openValue
	for i, line := range strings.Split(text, "\n") {
		if open.inside() {
			open.scan(line)
			continue
		}
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#':
		case trimmed[0] == '[':
			name, array := headerName(trimmed)
			table = withIndexes(name, arrays)
			if array {
				table = fmt.Sprintf("%s[%d]", table, arrays[name])
				arrays[name]++
			}
			lines[table] = i + 1
		default:
			key, value := splitKey(trimmed)
			full := joinKey(table, key)
			lines[full] = i + 1
			for at := parentKey(full); at != "" && at != table; at = parentKey(at) { // dotted keys
				if _, known := lines[at]; !known {
					lines[at] = i + 1
				}
			}
			open.scan(value)
		}
	}
	return lines
}

// headerName is the name in [name] or [[name]], quotes and blanks removed.
func headerName(line string) (name string, array bool) {
	array = strings.HasPrefix(line, "[[")
	end := strings.IndexByte(line, ']')
	if end < 0 {
		return "", array
	}
	return bareKey(strings.TrimLeft(line[:end], "[")), array
}

// withIndexes names a table below an array of tables by the array's last element.
func withIndexes(name string, arrays map[string]int) string {
	parts := strings.Split(name, ".")
	for n := len(parts) - 1; n > 0; n-- {
		if count, ok := arrays[strings.Join(parts[:n], ".")]; ok {
			return fmt.Sprintf("%s[%d].%s", strings.Join(parts[:n], "."), count-1, strings.Join(parts[n:], "."))
		}
	}
	return name
}

// splitKey cuts `key = value` at the = outside quotes.
func splitKey(line string) (key, value string) {
	quote := byte(0)
	for i := range len(line) {
		switch c := line[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '=':
			return bareKey(line[:i]), line[i+1:]
		}
	}
	return bareKey(line), ""
}

func bareKey(key string) string {
	return strings.NewReplacer(`"`, "", "'", "", " ", "", "\t", "").Replace(key)
}

// openValue follows a value over the lines it spans: brackets, braces and
// triple quotes that are still open.
type openValue struct {
	depth  int
	triple string
}

func (o *openValue) inside() bool { return o.depth > 0 || o.triple != "" }

func (o *openValue) scan(line string) {
	for i := 0; i < len(line); i++ {
		rest := line[i:]
		if o.triple != "" {
			if strings.HasPrefix(rest, o.triple) {
				o.triple, i = "", i+2
			} else if rest[0] == '\\' && o.triple == `"""` {
				i++
			}
			continue
		}
		switch c := rest[0]; c {
		case '#':
			return
		case '[', '{':
			o.depth++
		case ']', '}':
			o.depth--
		case '"', '\'':
			if strings.HasPrefix(rest, strings.Repeat(string(c), 3)) {
				o.triple, i = strings.Repeat(string(c), 3), i+2
				continue
			}
			for i++; i < len(line) && line[i] != c; i++ {
				if line[i] == '\\' && c == '"' {
					i++
				}
			}
		}
	}
}
