package gpu

import (
	"bytes"
	"encoding/binary"
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// plain is a capture as text: UTF-8, no byte order mark, no colours, and a
// newline wherever a line ends. (ROCm 4.5 ends lines with \n\r, amd-smi's CSV
// with \r\n; the empty lines that this makes are skipped everywhere.)
func plain(capture []byte) string {
	capture = bytes.TrimPrefix(capture, []byte("\xef\xbb\xbf"))
	if order := byteOrder(capture); order != nil {
		capture = fromUTF16(capture[2:], order)
	}
	text := string(capture)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\ufffd") // a degree sign in Latin-1, mostly
	}
	return strings.ReplaceAll(withoutEscapes(text), "\r", "\n")
}

func byteOrder(capture []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(capture, []byte("\xff\xfe")):
		return binary.LittleEndian
	case bytes.HasPrefix(capture, []byte("\xfe\xff")):
		return binary.BigEndian
	}
	return nil
}

func fromUTF16(b []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	return []byte(string(utf16.Decode(units)))
}

// withoutEscapes drops colours. What moves the cursor becomes the end of a
// line: what stands around it does not belong together.
func withoutEscapes(text string) string {
	if !strings.Contains(text, "\x1b") {
		return text
	}
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "\x1b")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = after
		if !strings.HasPrefix(text, "[") {
			out.WriteByte('\n')
			continue
		}
		end := strings.IndexFunc(text[1:], func(r rune) bool { return r < ' ' || r > '?' })
		if end < 0 {
			return out.String() // cut off inside
		}
		if text[1+end] != 'm' {
			out.WriteByte('\n')
		}
		if c := text[1+end]; c >= '@' && c <= '~' {
			text = text[1+end+1:]
		} else {
			text = text[1+end:]
		}
	}
}

// lines yields each line that is not blank. A last one that does not end is
// left out: it was cut off, and what it ends in may be half a number.
func lines(text string) iter.Seq[string] {
	return func(yield func(line string) bool) {
		for {
			line, rest, ended := strings.Cut(text, "\n")
			if !ended || strings.TrimSpace(line) != "" && !yield(line) {
				return
			}
			text = rest
		}
	}
}

// quantity splits "91.0 °C" into its number and what stands behind it. It
// takes plain decimal numbers only: no sign, no exponent, no thousands.
func quantity(text string) (value float64, unit string, ok bool) {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != ',' })
	if end < 0 {
		end = len(text)
	}
	whole, fraction, point := strings.Cut(text[:end], ".")
	if !point {
		whole, fraction, point = strings.Cut(text[:end], ",") // a decimal comma, not a thousands separator
		if len(fraction) > 2 {
			return 0, "", false
		}
	}
	if !digits(whole) || len(whole) > 9 || point && !digits(fraction) {
		return 0, "", false
	}
	value, err := strconv.ParseFloat(whole+"."+fraction+"0", 64)
	return value, strings.TrimSpace(text[end:]), err == nil
}

// The units. Each takes a unit as it is printed, "" for none.

func isPercent(unit string) bool { return unit == "" || unit == "%" }

func isWatt(unit string) bool { return unit == "" || strings.EqualFold(unit, "W") }

// isCelsius takes what is left of a degree sign after any encoding.
func isCelsius(unit string) bool {
	return unit == "" || strings.EqualFold(strings.TrimLeft(unit, "Â°º?\ufffd"), "C")
}

// measure is the number in text, if its unit belongs to it.
func measure(text string, unit func(string) bool) Number {
	value, u, ok := quantity(text)
	if !ok || !unit(u) {
		return Number{}
	}
	return Known(value)
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// digitsOf is the number in card1, GPU[1] or 1; "" if the name is another.
func digitsOf(name string) string {
	lower := strings.ToLower(name)
	lower = strings.TrimPrefix(strings.TrimPrefix(lower, "card"), "gpu")
	if inner, ok := strings.CutPrefix(lower, "["); ok {
		lower = strings.TrimSuffix(inner, "]")
	}
	if !digits(lower) {
		return ""
	}
	return lower
}

// squeezed is text in lower case with single blanks, without what some
// versions put behind a name.
func squeezed(text string) string {
	return strings.TrimRight(strings.Join(strings.Fields(strings.ToLower(text)), " "), ":")
}

// cell is a word of a table row, or several with single blanks between them.
type cell struct {
	start int // its first character's column
	text  string
}

// cells splits a table row where at least two blanks stand. A row of more
// cells than any table has is none.
func cells(row string) (found []cell) {
	const most = 100
	column, from, until := 0, 0, 0 // until: behind the last character that is not blank
	start, blanks := 0, 2
	for at, r := range row {
		switch {
		case r == ' ' || r == '\t':
			blanks++
		default:
			if blanks >= 2 {
				if until > from {
					found = append(found, cell{start, row[from:until]})
				}
				start, from = column, at
			}
			blanks = 0
			until = at + utf8.RuneLen(r)
		}
		column++
	}
	if until > from {
		found = append(found, cell{start, row[from:until]})
	}
	if len(found) > most {
		return nil
	}
	return found
}
