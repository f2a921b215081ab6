package gpu

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// toolEnv makes the tools speak one language and keeps Python's warnings out.
var toolEnv = []string{"LC_ALL=C", "PYTHONWARNINGS=ignore"}

// What the tools are asked: JSON, with the PCI address where they can give it.
// The second form is for a tool too old to know all of the first one's flags.
var (
	rocmAsks = [][]string{
		{"--showuse", "--showtemp", "--showpower", "--showbus", "--showuniqueid", "--json"},
		{"--showuse", "--showtemp", "--json"},
	}
	amdAsks = [][]string{
		{"metric", "--usage", "--temperature", "--power", "--json"},
		{"metric", "--usage", "--temperature", "--json"},
	}
	amdList = []string{"list", "--json"}
)

func (s Source) program(kind string) string {
	if kind == "amd-smi" {
		return s.AmdSMI
	}
	return s.RocmSMI
}

// lookTool asks rocm-smi or amd-smi. there is false if it is not installed.
func (s Source) lookTool(ctx context.Context, kind string) (sight Sight, there bool) {
	sight.Source = kind
	path := FindTool(s.program(kind))
	if path == "" {
		return Sight{}, false
	}
	asks := rocmAsks
	if kind == "amd-smi" {
		asks = amdAsks
	}
	for _, ask := range asks {
		out := s.ask(ctx, kind, path, ask)
		sight.Cards, sight.Why = Parse(out.Stdout)
		switch {
		case len(sight.Cards) > 0:
			sight.Why = "" // an exit status neither makes nor spoils a reading
		case out.Cut:
			sight.Why = kind + ": printed more than a reading can be"
		case out.Failure != "":
			sight.Why = out.Failure
		case out.Complaint != "":
			sight.Why = kind + ": " + out.Complaint // rocm-smi exits 0 without a driver, and prints nothing
		default:
			sight.Why = kind + ": " + sight.Why
		}
		if len(sight.Cards) > 0 || !refusesFlags(out.Failure) {
			break
		}
	}
	if kind == "amd-smi" && len(sight.Cards) > 0 {
		out := s.ask(ctx, kind, path, amdList)
		sight.Cards = withAddresses(sight.Cards, out.Stdout)
	}
	return sight, true
}

func (s Source) ask(ctx context.Context, kind, path string, args []string) Output {
	return s.Run(ctx, Command{Key: kind, Argv: append([]string{path}, args...), Env: toolEnv, Timeout: s.Timeout})
}

// refusesFlags knows how Python's argparse refuses a flag.
func refusesFlags(failure string) bool {
	return strings.Contains(failure, "unrecognized arguments") || strings.Contains(failure, "invalid choice") ||
		strings.Contains(failure, "ambiguous option")
}

// FindTool is the path of a program: as it is if it has a slash, else from
// PATH, else from ROCm's own directories, the newest release first. "" if it
// is nowhere. (A systemd unit's PATH lacks /opt/rocm/bin.)
func FindTool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if strings.Contains(name, "/") {
		return ""
	}
	found, _ := filepath.Glob("/opt/rocm*/bin/" + name)
	slices.Sort(found)
	slices.Reverse(found)
	for _, path := range append([]string{"/opt/rocm/bin/" + name}, found...) {
		if path, err := exec.LookPath(path); err == nil {
			return path
		}
	}
	return ""
}

// withAddresses puts the PCI address that `amd-smi list` gives in place of a
// card's number.
func withAddresses(cards []Reading, list []byte) []Reading {
	type gpu struct {
		GPU *int   `json:"gpu"`
		BDF string `json:"bdf"`
	}
	var listed []gpu
	var wrapped struct {
		Data []gpu `json:"gpu_data"`
	}
	if json.Unmarshal(list, &listed) != nil && json.Unmarshal(list, &wrapped) == nil {
		listed = wrapped.Data
	}
	cards = slices.Clone(cards)
	for i, r := range cards {
		for _, g := range listed {
			if address := PCIAddress(g.BDF); g.GPU != nil && address != "" && PCIAddress(r.Card) == "" && r.number() == strconv.Itoa(*g.GPU) {
				cards[i].Index, cards[i].Card = r.number(), address
			}
		}
	}
	return cards
}
