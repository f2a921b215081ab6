package state

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is one line of a state file: columns first, then pairs.
type Line struct {
	Columns []string
	Pairs   []Pair
}

// Pair is a key=value of a line. A key holds no blank, no quote and no "=".
type Pair struct{ Key, Value string }

const blanks = " \t\r"

// ParseLine reads one line: exactly so many columns, then pairs. A column or a
// value that starts with a double quote is read like a Go string. Between two
// words a person may have left more than one blank.
func ParseLine(text string, columns int) (Line, error) {
	var l Line
	for len(l.Columns) < columns {
		word, rest, err := word(text)
		if err != nil {
			return Line{}, err
		}
		if rest == text {
			return Line{}, fmt.Errorf("%d columns, want %d", len(l.Columns), columns)
		}
		l.Columns = append(l.Columns, word)
		text = rest
	}
	for {
		text = strings.TrimLeft(text, blanks)
		if text == "" {
			return l, nil
		}
		key, rest, found := strings.Cut(text, "=")
		if !found || key == "" || strings.ContainsAny(key, blanks+`"`) {
			first, _, _ := strings.Cut(text, " ")
			return Line{}, fmt.Errorf("%q is no key=value", first)
		}
		var value string
		if rest != "" && !strings.ContainsRune(blanks, rune(rest[0])) {
			var err error
			if value, rest, err = word(rest); err != nil {
				return Line{}, fmt.Errorf("%s: %w", key, err)
			}
		}
		l.Pairs = append(l.Pairs, Pair{key, value})
		text = rest
	}
}

// word takes the first word, quoted or plain, off text. If there is none, rest
// is text.
func word(text string) (word, rest string, err error) {
	start := strings.TrimLeft(text, blanks)
	if start == "" {
		return "", text, nil
	}
	if start[0] != '"' {
		end := strings.IndexAny(start, blanks)
		if end < 0 {
			end = len(start)
		}
		return start[:end], start[end:], nil
	}
	quoted, err := strconv.QuotedPrefix(start)
	if err != nil {
		return "", "", errors.New("a quote that does not end")
	}
	rest = start[len(quoted):]
	if rest != "" && !strings.ContainsRune(blanks, rune(rest[0])) {
		return "", "", fmt.Errorf("%s is not followed by a blank", quoted)
	}
	word, err = strconv.Unquote(quoted)
	return word, rest, err
}

// String is the line as [ParseLine] reads it, without a line break.
func (l Line) String() string {
	var b strings.Builder
	for i, column := range l.Columns {
		if i > 0 {
			b.WriteByte(' ')
		}
		if i == 0 && strings.HasPrefix(column, "#") { // a comment, otherwise
			b.WriteString(strconv.Quote(column))
		} else {
			b.WriteString(quote(column, `"`))
		}
	}
	for _, pair := range l.Pairs {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(pair.Key)
		b.WriteByte('=')
		b.WriteString(quote(pair.Value, `"=`))
	}
	return b.String()
}

// quote leaves alone what reads back as it is.
func quote(s, special string) string {
	plain := s != "" && utf8.ValidString(s) && !strings.ContainsAny(s, special) &&
		strings.IndexFunc(s, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) < 0
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// Add appends a pair.
func (l *Line) Add(key, value string) { l.Pairs = append(l.Pairs, Pair{key, value}) }

// Get is the value of the first pair with this key.
func (l Line) Get(key string) (string, bool) {
	for _, pair := range l.Pairs {
		if pair.Key == key {
			return pair.Value, true
		}
	}
	return "", false
}

// Split cuts text into the first n-1 words and the rest as it is (a reason, a
// title). There are fewer if text holds fewer.
func Split(text string, n int) []string {
	var parts []string
	for text = strings.TrimLeft(text, blanks); text != ""; text = strings.TrimLeft(text, blanks) {
		end := strings.IndexAny(text, blanks)
		if len(parts) == n-1 || end < 0 {
			return append(parts, strings.TrimRight(text, blanks))
		}
		parts = append(parts, text[:end])
		text = text[end:]
	}
	return parts
}

// OneLine makes any text fit into one line of a state file: what is not UTF-8
// becomes U+FFFD, and each line break or control character a blank.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
