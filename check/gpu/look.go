package gpu

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Command is a program that a look must run, for the root to run it bounded.
type Command struct {
	Key     string // what it is known by: "sysfs", "rocm-smi", "amd-smi"
	Argv    []string
	Env     []string // added to the environment
	Timeout time.Duration
	Grace   time.Duration // from being asked to end to being killed; 0 leaves it to Run
}

// Output is what came of a Command.
type Output struct {
	Stdout    []byte
	Failure   string // "" if it ended with exit 0; else why not, in one phrase
	Cut       bool   // it printed more than is kept
	Complaint string // the last line it wrote to stderr, "" if there is none
}

// Run runs a Command and comes back soon after its Timeout, whatever hangs.
type Run func(context.Context, Command) Output

// Source is where readings come from.
type Source struct {
	Kind    string        // auto, sysfs, rocm-smi or amd-smi
	Sysfs   string        // usually /sys
	RocmSMI string        // a path, or a name to find on PATH and in /opt/rocm*/bin
	AmdSMI  string        // the same
	Timeout time.Duration // for one read of the sensors
	Self    string        // this program: it reads sysfs in a child, see ReadSysfs
	Run     Run
}

// Sight is what one look saw.
type Sight struct {
	Source string // sysfs, rocm-smi or amd-smi; "" if none is there
	Cards  []Reading
	Why    string // why there is nothing, or not all; "" if all is well
}

const (
	sampleEvery = 400 * time.Millisecond // long enough for the SMU's next average, short enough for a token gap
	slowSource  = 2 * time.Second        // a source that needs longer is asked once a pass
)

// Look reads every card once. With Kind auto it settles on the first source
// that is there; that a read fails is no reason to take another.
// card, if not "", spares the sensors of the others (sysfs only).
func (s Source) Look(ctx context.Context, card string) Sight {
	switch s.Kind {
	case "sysfs":
		sight, there := s.lookSysfs(ctx, card)
		if !there {
			sight.Why = "no amdgpu card under " + s.Sysfs
		}
		return sight
	case "rocm-smi", "amd-smi":
		sight, there := s.lookTool(ctx, s.Kind)
		if !there {
			sight.Why = s.program(s.Kind) + ": not found on PATH or in /opt/rocm*/bin"
		}
		return sight
	}
	if sight, there := s.lookSysfs(ctx, card); there {
		return sight
	}
	for _, kind := range []string{"rocm-smi", "amd-smi"} {
		if sight, there := s.lookTool(ctx, kind); there {
			return sight
		}
	}
	return Sight{Why: fmt.Sprintf("no amdgpu card under %s, and neither %s nor %s is there", s.Sysfs, s.RocmSMI, s.AmdSMI)}
}

// Watch looks at one card. If confirm is set (a busy streak is running) and
// the first sample says idle, it takes up to samples more: a single 0 %
// between two tokens does not end an hour's count. The Sight is the first
// look's; the Reading has no numbers, and says why, if the card is not there.
func (s Source) Watch(ctx context.Context, card string, confirm bool, busyAbove float64, samples int) (Reading, Sight) {
	began := time.Now()
	sight := s.Look(ctx, card)
	first := sight.pick(card)
	if !confirm || first.Suspended || !first.Busy.Known || first.Busy.Value > busyAbove {
		return first, sight
	}
	s.Kind = sight.Source
	for range samples {
		if time.Since(began) > slowSource {
			break
		}
		select {
		case <-ctx.Done():
			return first, sight
		case <-time.After(sampleEvery):
		}
		began = time.Now()
		r := s.Look(ctx, card).pick(card)
		if r.Card == first.Card && r.Busy.Known && r.Busy.Value > busyAbove {
			if !r.Junction.Known {
				r.Junction = first.Junction
			}
			return r, sight
		}
	}
	return first, sight
}

func (s Sight) pick(card string) Reading {
	r, why := Pick(s.Cards, card)
	if why != "" && s.Why != "" && len(s.Cards) == 0 {
		why = s.Why
	}
	if why != "" {
		return Reading{Why: why}
	}
	return r
}

// Pick is the one card that want names (a PCI address, a card number or a
// unique id). Without want there must be only one candidate: a card that has a
// junction sensor, or else the only card. why says why there is no card, and
// names those that there are; it is never "the first one".
func Pick(cards []Reading, want string) (card Reading, why string) {
	fits := func(r Reading) bool { return r.Is(want) }
	if want == "" {
		fits = func(r Reading) bool { return r.HasJunction }
	}
	found := filter(cards, fits)
	if want == "" && len(found) == 0 {
		found = cards
	}
	switch {
	case len(found) == 1:
		return found[0], ""
	case len(cards) == 0:
		return Reading{}, "no card"
	case want == "":
		return Reading{}, fmt.Sprintf("%d cards and none chosen: %s; name one with card = \"…\"", len(found), names(found))
	case len(found) == 0:
		return Reading{}, fmt.Sprintf("card %s is not there; there is %s", want, names(cards))
	default:
		return Reading{}, fmt.Sprintf("card %s is not unique: %s", want, names(found))
	}
}

// Is tells whether want names this card: by PCI address (in either case, with
// or without domain), by number, by the name the tool prints, or by unique id.
func (r Reading) Is(want string) bool {
	if want == "" {
		return false
	}
	if address := PCIAddress(want); address != "" {
		return address == PCIAddress(r.Card)
	}
	if strings.EqualFold(want, r.Card) {
		return true
	}
	if number := cardNumber(want); number != "" && number == r.number() {
		return true
	}
	id := uniqueID(want)
	return id != "" && id == uniqueID(r.Unique)
}

func (r Reading) number() string {
	if r.Index != "" {
		return cardNumber(r.Index)
	}
	return cardNumber(r.Card)
}

var (
	pciAddress = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)
	cardWord   = regexp.MustCompile(`^(?:card|gpu)?\[?([0-9]{1,3})\]?$`)
)

// PCIAddress is a PCI address as sysfs writes it (0000:1c:00.0): lower case,
// with a domain of four digits unless it needs more. "" if s is none.
func PCIAddress(s string) string {
	m := pciAddress.FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return ""
	}
	domain := strings.TrimLeft(m[1], "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + ":" + m[2]
}

func cardNumber(s string) string {
	m := cardWord.FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return ""
	}
	if n := strings.TrimLeft(m[1], "0"); n != "" {
		return n
	}
	return "0"
}

func uniqueID(s string) string {
	return strings.TrimLeft(strings.TrimPrefix(strings.ToLower(s), "0x"), "0")
}

func filter(cards []Reading, fits func(Reading) bool) (found []Reading) {
	for _, r := range cards {
		if fits(r) {
			found = append(found, r)
		}
	}
	return found
}

func names(cards []Reading) string {
	var words []string
	for _, r := range cards {
		word := r.Card
		if r.Index != "" && PCIAddress(r.Card) != "" {
			word += " (" + r.Index + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}
