package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// readJSON reads rocm-smi's {"card0": {…}} and amd-smi's objects with a "gpu",
// alone, in a list or under "gpu_data", with whatever is printed around them.
// A document that is cut off or broken is not salvaged.
func readJSON(text string) (cards []*shown, problem string) {
	var found samples
	docs, truncated := documents(text)
	for _, doc := range docs {
		root, err := parseJSON(doc)
		if err != nil {
			problem = "the JSON is broken: " + err.Error()
			continue
		}
		if message := root.get("error").text; message != "" {
			problem = fmt.Sprintf("it says %q", clip(message, 160))
		}
		root.cards(&found)
		found.end()
	}
	if truncated && problem == "" {
		problem = "the JSON is cut off"
	}
	return found.cards(), problem
}

// documents finds the JSON objects and lists in text. A line inside one that
// cannot be part of it (a warning of the same tool's stderr) is left out.
func documents(text string) (docs []string, truncated bool) {
	var doc strings.Builder
	depth, quoted, escaped := 0, false, false
	for line := range lines(text + "\n") { // a document shows by itself whether it is whole
		if depth > 0 && !jsonLine(line) {
			continue
		}
		for rest := line; rest != ""; {
			if depth == 0 {
				i := documentStart(rest)
				if i < 0 {
					break
				}
				rest = rest[i:]
			}
			n := 0
			for n < len(rest) {
				c := rest[n]
				n++
				switch {
				case escaped:
					escaped = false
				case quoted && c == '\\':
					escaped = true
				case c == '"':
					quoted = !quoted
				case quoted:
				case c == '{' || c == '[':
					depth++
				case c == '}' || c == ']':
					depth--
				}
				if depth == 0 {
					break
				}
			}
			doc.WriteString(rest[:n])
			rest = rest[n:]
			if depth == 0 {
				docs = append(docs, doc.String())
				doc.Reset()
				quoted, escaped = false, false
			}
		}
		if depth > 0 {
			doc.WriteByte('\n')
		}
	}
	return docs, depth > 0
}

// documentStart is where a document begins in a line, or -1: at a brace before
// a key, or at a bracket before a brace. (GPU[0] and [N/A, N/A] are none.)
func documentStart(line string) int {
	for i, c := range []byte(line) {
		if c != '{' && c != '[' {
			continue
		}
		next := strings.TrimLeft(line[i+1:], " \t")
		if next == "" || c == '{' && strings.ContainsRune(`"}`, rune(next[0])) || c == '[' && strings.ContainsRune(`{]`, rune(next[0])) {
			return i
		}
	}
	return -1
}

func jsonLine(line string) bool {
	line = strings.TrimSpace(line)
	switch strings.TrimSuffix(line, ",") {
	case "null", "true", "false":
		return true
	}
	return strings.IndexByte(`{}[]":,-0123456789`, line[0]) >= 0
}

// node is a JSON value. An object keeps its fields as they are printed, the
// repeated ones too: encoding/json would quietly take the last.
type node struct {
	text   string // of a string, a number or a literal
	fields []field
	items  []node
}

type field struct {
	key string
	node
}

var errDeep = errors.New("too deep")

func parseJSON(doc string) (node, error) {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	return parseValue(d, 0)
}

func parseValue(d *json.Decoder, depth int) (n node, err error) {
	if depth > 50 {
		return n, errDeep
	}
	token, err := d.Token()
	if err != nil {
		return n, err
	}
	switch token := token.(type) {
	case json.Delim:
		for d.More() {
			var f field
			if token == '{' {
				key, err := d.Token()
				if err != nil {
					return n, err
				}
				f.key = squeezed(key.(string))
			}
			if f.node, err = parseValue(d, depth+1); err != nil {
				return n, err
			}
			if token == '{' {
				n.fields = append(n.fields, f)
			} else {
				n.items = append(n.items, f.node)
			}
		}
		_, err = d.Token() // the closing one
	case string:
		n.text = token
	case json.Number:
		n.text = token.String()
	}
	return n, err
}

func (n node) get(key string) node {
	for _, f := range n.fields {
		if f.key == key {
			return f.node
		}
	}
	return node{}
}

// value is what a leaf says: "91", or "91 C" of {"value": 91, "unit": "C"}.
func (n node) value() string {
	if len(n.fields) > 0 {
		return strings.TrimSpace(n.get("value").text + " " + n.get("unit").text)
	}
	return n.text
}

// cards takes down every card in a document.
func (n node) cards(found *samples) {
	for _, item := range n.items {
		item.cards(found)
	}
	if gpu := n.get("gpu").text; digits(gpu) {
		n.amdCard(found.card(gpu, "entry"))
		return
	}
	for _, f := range n.fields {
		switch number, ok := strings.CutPrefix(f.key, "card"); {
		case ok && digits(number) && f.fields != nil:
			c := found.card(f.key, "entry")
			for _, f := range f.fields {
				c.rocmValue(f.key, f.value())
			}
		case f.items != nil:
			f.cards(found)
		}
	}
}

// amdCard takes down one of amd-smi's objects: `metric` has a section each for
// usage, temperature and power, `monitor` has all in one.
func (n node) amdCard(c *shown) {
	for _, section := range []node{n, n.get("usage"), n.get("temperature"), n.get("power"), n.get("bus")} {
		for _, f := range section.fields {
			c.amdValue(f.key, f.value())
		}
	}
	for _, f := range n.get("temperature").fields {
		c.heat(measure(f.value(), isCelsius))
	}
}
