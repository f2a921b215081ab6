package gpu

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// StateHeader explains the state file to whoever opens it.
const StateHeader = "<card> <busy_seconds, or - when idle> <hot_checks> <checked_boottime> <boot_id>; deleting this file starts every count anew"

// StateColumns is how many columns a state line has before its key=value pairs.
const StateColumns = 5

// Columns are the five columns of a card's state line.
func (s State) Columns(card string) []string {
	busy, boot := "-", "-"
	if s.Running {
		busy = decimal(s.Busy.Seconds())
	}
	if s.BootID != "" {
		boot = s.BootID
	}
	return []string{card, busy, strconv.Itoa(s.HotChecks), decimal(s.CheckedAt), boot}
}

// Pairs are what follows the columns: only what is not as usual, in a fixed
// order. A stamp that is missing is that of the last check.
func (s State) Pairs() (pairs [][2]string) {
	add := func(given bool, key, value string) {
		if given {
			pairs = append(pairs, [2]string{key, value})
		}
	}
	add(s.Running && s.BusyAt != s.CheckedAt, "busy_boottime", decimal(s.BusyAt))
	add(s.HotChecks > 0 && s.HotAt != s.CheckedAt, "hot_boottime", decimal(s.HotAt))
	add(s.HotChecks > 0 && s.JunctionAt != s.CheckedAt, "junction_boottime", decimal(s.JunctionAt))
	add(s.Failed > 0, "failed_stops", strconv.Itoa(s.Failed))
	add(s.Foreign, "foreign", "yes")
	add(s.Blind > 0, "blind_passes", strconv.Itoa(s.Blind))
	add(s.Paused, "paused", "yes")
	return pairs
}

// ParseState reads a state line that was split into its columns and pairs.
// ParseState of what Columns and Pairs gave is the same State again; pairs it
// does not know are another version's and left alone. The error says what
// is wrong with the line.
func ParseState(columns []string, pair func(key string) (value string, ok bool)) (card string, s State, err error) {
	if len(columns) != StateColumns {
		return "", State{}, fmt.Errorf("%d columns instead of %d", len(columns), StateColumns)
	}
	fail := func(what, text string) {
		if err == nil {
			err = fmt.Errorf("%s %q is no such number", what, text)
		}
	}
	number := func(what, text string) float64 {
		v, bad := strconv.ParseFloat(text, 64)
		if bad != nil || math.IsNaN(v) || v < 0 || v > 1e9 {
			fail(what, text)
			return 0
		}
		return v
	}
	count := func(what, text string) int {
		v, bad := strconv.Atoi(text)
		if bad != nil || v < 0 || v > 1e9 {
			fail(what, text)
			return 0
		}
		return v
	}
	stamp := func(key string) float64 {
		if text, ok := pair(key); ok {
			return number(key, text)
		}
		return s.CheckedAt
	}
	howMany := func(key string) int {
		if text, ok := pair(key); ok {
			return count(key, text)
		}
		return 0
	}
	yes := func(key string) bool {
		text, ok := pair(key)
		if ok && text != "yes" {
			fail(key, text)
		}
		return ok
	}

	s.CheckedAt = number("checked_boottime", columns[3])
	if s.BootID = columns[4]; s.BootID == "-" {
		s.BootID = ""
	}
	if columns[1] != "-" {
		s.Running = true
		s.Busy = time.Duration(math.Round(number("busy_seconds", columns[1])*1e6)) * time.Microsecond
		s.BusyAt = stamp("busy_boottime")
	}
	if s.HotChecks = count("hot_checks", columns[2]); s.HotChecks > 0 {
		s.HotAt, s.JunctionAt = stamp("hot_boottime"), stamp("junction_boottime")
	}
	s.Failed, s.Blind = howMany("failed_stops"), howMany("blind_passes")
	s.Foreign, s.Paused = yes("foreign"), yes("paused")
	if err != nil {
		return "", State{}, err
	}
	return columns[0], s, nil
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
