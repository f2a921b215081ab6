package notify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/state"
)

// entry is one alert that waits for one channel: one file of the outbox.
type entry struct {
	entryName
	alert    Alert
	settled  bool // the outcome of the act is in the text, or there is none to come
	writer   int  // pid of the pass that is to settle it
	attempts int
	tried    stamp         // the last attempt
	wait     time.Duration // from then to the next one
	failure  string        // what the last attempt met
	dropped  int           // older alerts that went to make room
	upTo     string        // the file of the last of them
}

// stamp is a moment as a file keeps it: by boottime within a boot, by the wall
// clock after it.
type stamp struct {
	epoch  int64
	boot   float64
	bootID string
}

// left is how much of wait is left at m. A stamp from the future is a clock
// that was wrong once, and holds nothing back.
func (s stamp) left(wait time.Duration, m check.Moment) time.Duration {
	since, known := m.Since(s.boot, s.bootID)
	if !known && s.bootID == m.BootID {
		return 0
	}
	if !known {
		since = time.Duration(m.Epoch()-s.epoch) * time.Second
		if since < 0 {
			return 0
		}
	}
	return max(wait-since, 0)
}

// entryName is a file's name, 000017-5f3c9a7e.ntfy: the order of writing, the
// alert and the channel. One that was refused ends in .parked.
type entryName struct {
	file    string
	seq     int
	id      string
	channel string
	parked  bool
}

const parkedSuffix = ".parked"

func newName(seq int, id, channel string) entryName {
	return entryName{file: fmt.Sprintf("%06d-%s.%s", seq, id, channel), seq: seq, id: id, channel: channel}
}

func parseName(file string) (n entryName, ok bool) {
	n.file = file
	file, n.parked = strings.CutSuffix(file, parkedSuffix)
	number, rest, ok := strings.Cut(file, "-")
	if !ok {
		return n, false
	}
	dot := strings.LastIndexByte(rest, '.')
	seq, err := strconv.Atoi(number)
	if err != nil || seq < 0 || dot < 0 {
		return n, false
	}
	n.seq, n.id, n.channel = seq, rest[:dot], rest[dot+1:]
	return n, plainWord(n.id) && plainWord(n.channel)
}

// plainWord tells whether s can be a part of a file's name.
func plainWord(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// before orders names as they were written.
func (n entryName) before(other entryName) int {
	return cmp.Or(cmp.Compare(n.seq, other.seq), cmp.Compare(n.file, other.file))
}

// listNames returns the entries' names in the order of writing, and the names
// of those that were set aside.
func listNames(box *state.Dir) (names []entryName, aside []string, err error) {
	files, err := box.List()
	for _, file := range files {
		if n, ok := parseName(file); ok {
			names = append(names, n)
		} else if strings.Contains(file, ".bad-") {
			aside = append(aside, file)
		}
	}
	slices.SortFunc(names, entryName.before)
	return names, aside, err
}

const entryHeader = "an alert that %s has not accepted yet; deleting this file drops it"
const parkedHeader = "an alert that %s refused; deleting this file drops it, taking .parked off its name sends it again"

// save writes the entry down.
func (e *entry) save(box *state.Dir) error {
	header := entryHeader
	if e.parked {
		header = parkedHeader
	}
	a := e.alert
	about := state.Line{Columns: []string{"alert", e.id}}
	about.Add("name", a.Name)
	if a.Kind != "" {
		about.Add("kind", a.Kind)
	}
	if a.Urgent {
		about.Add("urgent", "true")
	}
	if len(a.Tags) > 0 {
		about.Add("tags", strings.Join(a.Tags, ","))
	}
	if !a.At.IsZero() {
		about.Add("at_epoch", strconv.FormatInt(a.At.Unix(), 10))
	}
	lines := []string{about.String(), "title " + a.Title}
	for _, line := range strings.Split(a.Text, "\n") {
		lines = append(lines, "text "+line)
	}
	if !e.settled {
		lines = append(lines, fmt.Sprintf("outcome not seen pid=%d", e.writer))
	}
	if e.attempts > 0 {
		tried := state.Line{Columns: []string{"tried", strconv.Itoa(e.attempts)}}
		tried.Add("tried_epoch", strconv.FormatInt(e.tried.epoch, 10))
		tried.Add("tried_boottime", strconv.FormatFloat(e.tried.boot, 'f', -1, 64))
		tried.Add("boot_id", e.tried.bootID)
		tried.Add("wait", e.wait.String())
		tried.Add("failure", e.failure)
		lines = append(lines, tried.String())
	}
	if e.dropped > 0 {
		lines = append(lines, fmt.Sprintf("dropped %d up_to=%s", e.dropped, e.upTo))
	}
	return box.Save(e.file, fmt.Sprintf(header, e.channel), lines)
}

// loadEntry reads the file called n.file.
func loadEntry(box *state.Dir, n entryName, m check.Moment) (*entry, state.Loaded) {
	e := &entry{entryName: n, settled: true}
	e.alert.ID = n.id
	var text []string
	var known bool
	loaded := box.Load(n.file, m, func(line string) error {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "alert":
			known = true
			return e.parseAbout(line, m)
		case "title":
			e.alert.Title = rest
		case "text":
			text = append(text, rest)
		case "outcome":
			l, err := state.ParseLine(line, 3)
			if err != nil {
				return err
			}
			e.settled = false
			pid, _ := l.Get("pid")
			e.writer, _ = strconv.Atoi(pid)
		case "tried":
			return e.parseTried(line)
		case "dropped":
			l, err := state.ParseLine(line, 2)
			if err != nil {
				return err
			}
			e.upTo, _ = l.Get("up_to")
			e.dropped, err = strconv.Atoi(l.Columns[1])
			return err
		default:
			return fmt.Errorf("%q is none of alert, title, text, outcome, tried, dropped", cut(word, 40))
		}
		return nil
	})
	e.alert.Text = strings.Join(text, "\n")
	if loaded.Found && loaded.Bad == "" && !known && e.alert.Title == "" && len(text) == 0 {
		aside := fmt.Sprintf("%s.bad-%d", n.file, m.Epoch())
		loaded.Bad = "holds no alert"
		if box.Rename(n.file, aside) == nil && !box.ViewOnly() {
			loaded.SetAside = aside
		}
	}
	return e, loaded
}

func (e *entry) parseAbout(line string, m check.Moment) error {
	l, err := state.ParseLine(line, 2)
	if err != nil {
		return err
	}
	for _, pair := range l.Pairs {
		switch pair.Key {
		case "name":
			e.alert.Name = pair.Value
		case "kind":
			e.alert.Kind = pair.Value
		case "urgent":
			e.alert.Urgent = pair.Value == "true"
		case "tags":
			e.alert.Tags = strings.Split(pair.Value, ",")
		case "at_epoch":
			epoch, err := strconv.ParseInt(pair.Value, 10, 64)
			if err != nil {
				return errors.New("at_epoch is no number")
			}
			e.alert.At = time.Unix(epoch, 0).In(m.Wall.Location())
		}
	}
	return nil
}

func (e *entry) parseTried(line string) error {
	l, err := state.ParseLine(line, 2)
	if err != nil {
		return err
	}
	if e.attempts, err = strconv.Atoi(l.Columns[1]); err != nil {
		return errors.New("tried: no number")
	}
	// What cannot be understood here holds nothing back: the alert is due.
	get := func(key string) string { value, _ := l.Get(key); return value }
	e.tried.epoch, _ = strconv.ParseInt(get("tried_epoch"), 10, 64)
	e.tried.boot, _ = strconv.ParseFloat(get("tried_boottime"), 64)
	e.tried.bootID = get("boot_id")
	e.wait, _ = time.ParseDuration(get("wait"))
	e.wait = min(e.wait, longestTold)
	e.failure = get("failure")
	return nil
}
