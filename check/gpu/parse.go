package gpu

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxCapture bounds what Parse looks at: 500 cards in amd-smi's longest form
// fit, a log that somebody forgot does not.
const maxCapture = 4 << 20

// Parse reads what rocm-smi, amd-smi or nvidia-smi has printed. The content
// alone decides what it is: neither a file name nor an exit status is asked.
// The cards come in the order printed, each with what is known of it and, in
// its Why, what is not. why says in plain words why there is nothing usable,
// with the tool's own error line if there is one; it is "" as soon as one
// value of one card is known.
//
// Of several samples in one capture (watch mode, repeated runs) the last whole
// one counts, so a card that has vanished from it is not there. A sample is
// whole if its end was seen, or if it shows all that the one before showed.
//
// What cannot be told for certain is no reading: a number whose end was cut
// off, a value printed twice with different numbers, a table row that does not
// fit its header, a unit that does not belong to the value, a column that has
// no name.
func Parse(capture []byte) (cards []Reading, why string) {
	if len(capture) > maxCapture {
		return nil, fmt.Sprintf("%d bytes are more than a reading can be", len(capture))
	}
	text := plain(capture)
	if strings.TrimSpace(text) == "" {
		return nil, "nothing was printed"
	}
	for _, read := range readers {
		shown, problem := read(text)
		if found := readings(shown); anyKnown(found) || len(cards) == 0 && len(found) > 0 {
			cards = found
		}
		if anyKnown(cards) {
			return cards, ""
		}
		if why == "" {
			why = problem
		}
	}
	switch {
	case why != "":
	case len(cards) > 0:
		why = cards[0].Card + ": " + cards[0].Why
		if n := len(cards) - 1; n > 0 {
			why += fmt.Sprintf(" (and %d more without a value)", n)
		}
	default:
		why = complaint(text)
	}
	return cards, why
}

// readers are tried in this order; the first that knows a value is right. Each
// takes only what it can tell by its own marks, so the order matters only for
// a capture that holds several forms: then the one with the most detail wins.
var readers = []func(text string) (cards []*shown, problem string){
	readJSON, readRocmBlocks, readAmdBlocks, readMonitor, readConcise, readAmdTable, readNvidiaTable, readCSV,
}

// shown is what one sample prints of one card.
type shown struct {
	name     string // as the tool prints it
	number   string // its number, "" if it has none
	address  string // its PCI address, "" if not printed
	unique   string // its unique id, "" if not printed
	parts    map[string]bool
	busy     printed
	junction printed
	power    Number

	labelled bool // a junction or hotspot sensor is named, whatever it says
	warm     bool // at least one temperature is a possible one
	honest   bool // a 0 % needs no temperature beside it: the tool was not asked for one and invents none
}

// printed is one value as the tool printed it, perhaps more than once.
type printed struct {
	Number
	text  string
	seen  bool
	mixed bool // printed with different values
}

// put takes down a printed value. Two that differ are none.
func (p *printed) put(text string, n Number) {
	if p.seen && n != p.Number {
		p.mixed = true
	}
	p.seen, p.text, p.Number = true, text, n
}

// atLeast takes down one partition's value: a card is as busy as its busiest.
func (p *printed) atLeast(text string, n Number) {
	if !p.seen || n.Known && (!p.Known || n.Value > p.Value) {
		p.seen, p.text, p.Number = true, text, n
	}
}

// sound is the value if it can be true, and else why there is none.
func (p printed) sound(what, unit string, possible func(float64) bool) (Number, string) {
	switch {
	case !p.seen:
		return Number{}, "no " + what + " value"
	case p.mixed:
		return Number{}, what + " is printed twice and differs"
	case !p.Known:
		return Number{}, fmt.Sprintf("%s is %q", what, clip(p.text, 40))
	case !possible(p.Value):
		return Number{}, fmt.Sprintf("%s %g %s is impossible", what, p.Value, unit)
	}
	return p.Number, ""
}

// absent tells how the tools print a sensor that a card does not have.
func (p printed) absent() bool {
	switch strings.ToLower(p.text) {
	case "", "n/a", "none", "unsupported":
		return !p.mixed
	}
	return p.Known && p.Value == 0
}

// heat takes down a temperature that is not the junction's.
func (c *shown) heat(n Number) {
	if n.Known && soundTemperature(n.Value) {
		c.warm = true
	}
}

// hotspot takes down the temperature of a sensor labelled junction or hotspot.
func (c *shown) hotspot(text string, n Number) {
	c.labelled = true
	c.junction.put(text, n)
	c.heat(n)
}

func (c *shown) draws(n Number) {
	if n.Known && soundPower(n.Value) && !c.power.Known {
		c.power = n
	}
}

func (c *shown) reading() Reading {
	r := Reading{Card: c.name, Index: c.number, Unique: c.unique, Power: c.power}
	var whys []string
	note := func(why string) {
		if why != "" {
			whys = append(whys, why)
		}
	}
	var why string
	r.Busy, why = c.busy.sound("busy", "%", soundBusy)
	if r.Busy.Known && r.Busy.Value == 0 && !c.warm && !c.honest {
		// rocm-smi prints 0 % when its read failed (quirk of the library, not of the card)
		r.Busy, why = Number{}, "0 % without any temperature is a failed read"
	}
	note(why)
	if c.labelled {
		r.Junction, why = c.junction.sound("junction", "°C", soundTemperature)
		note(why)
	}
	// The tools name a hotspot for cards that have none, too. One that cannot
	// be read beside a temperature that can is not there.
	r.HasJunction = c.labelled && (!c.warm || !c.junction.absent())
	r.Why = strings.Join(whys, ", ")
	return r
}

// readings names each card by its PCI address, unless two claim the same one.
func readings(cards []*shown) (found []Reading) {
	claims := make(map[string]int)
	for _, c := range cards {
		claims[c.address]++
	}
	for _, c := range cards {
		r := c.reading()
		if c.address != "" && claims[c.address] == 1 {
			r.Card = c.address
		}
		if r.Card == "" {
			r.Card = "gpu"
		}
		found = append(found, r)
	}
	return found
}

func anyKnown(cards []Reading) bool {
	for _, r := range cards {
		if r.Busy.Known || r.Junction.Known {
			return true
		}
	}
	return false
}

// samples sorts what is printed into samples: a card whose part was printed
// before begins a new one.
type samples struct {
	before, last *sample
}

type sample struct {
	cards  []*shown
	byName map[string]*shown
	whole  bool // its end was seen
}

// card is where to take down this part of this card.
func (s *samples) card(name, part string) *shown {
	if s.last == nil || s.last.byName[name] != nil && s.last.byName[name].parts[part] {
		s.before, s.last = s.last, &sample{byName: make(map[string]*shown)}
	}
	s.last.whole = false
	c := s.last.byName[name]
	if c == nil {
		c = &shown{name: name, number: digitsOf(name), parts: make(map[string]bool)}
		s.last.byName[name] = c
		s.last.cards = append(s.last.cards, c)
	}
	c.parts[part] = true
	return c
}

// end marks that the sample's end was seen.
func (s *samples) end() {
	if s.last != nil {
		s.last.whole = true
	}
}

// cards is the last whole sample.
func (s *samples) cards() []*shown {
	switch {
	case s.last == nil:
		return nil
	case s.last.whole || s.before == nil || s.last.covers(s.before):
		return s.last.cards
	default:
		return s.before.cards
	}
}

func (s *sample) covers(before *sample) bool {
	for _, c := range before.cards {
		again := s.byName[c.name]
		if again == nil {
			return false
		}
		for part := range c.parts {
			if !again.parts[part] {
				return false
			}
		}
	}
	return true
}

// complaint quotes the line that says what went wrong, or says that this is no
// output of these tools at all.
func complaint(text string) string {
	first, warning := "", ""
	for line := range lines(text + "\n") {
		line = strings.TrimSpace(line)
		if first == "" {
			first = line
		}
		lower := strings.ToLower(line)
		if strings.Contains(lower, "syntaxwarning") || strings.Contains(lower, "deprecationwarning") {
			continue
		}
		for _, word := range troubles {
			if strings.Contains(lower, word) {
				return fmt.Sprintf("it says %q", clip(line, 160))
			}
		}
		if warning == "" && strings.HasPrefix(lower, "warning") {
			warning = line
		}
	}
	if warning != "" {
		return fmt.Sprintf("it says %q", clip(warning, 160))
	}
	return fmt.Sprintf("no output of rocm-smi, amd-smi or nvidia-smi with a reading in it; it begins %q", clip(first, 60))
}

var troubles = []string{
	"error", "failed", "unable to", "not found", "not supported", "not_supported", "no devices", "no amd gpus", "no json data",
	"no such", "denied", "is lost", "exception", "aborted", "core dumped", "not initialized", "timed out",
}

// clip is at most n characters of text.
func clip(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}
