package notify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tickdog/check"
	"tickdog/check/loop"
	"tickdog/state"
)

const (
	boxName    = "outbox"
	lockName   = "outbox.lock" // beside it, so that an empty directory is an empty outbox
	maxWaiting = 100           // alerts a channel
	maxText    = 64 << 10

	// writerTime is how long a pass that is still there may take to settle
	// what it wrote; a pass ends within 270 s.
	writerTime = 10 * time.Minute
)

// Outbox holds the alerts that wait for their channels, one file an alert and
// channel under <state_dir>/outbox. It is for one goroutine; several processes
// may use the same directory, and only one of them sends at a time.
type Outbox struct {
	dir      *state.Dir
	channels []Channel
	own      map[string][]*entry // what this process wrote and has not sent
}

// OpenOutbox returns the outbox inside a state directory. It reads and makes
// nothing yet. In a view nothing is ever written or sent.
func OpenOutbox(dir *state.Dir, channels ...Channel) *Outbox {
	return &Outbox{dir: dir, channels: channels, own: map[string][]*entry{}}
}

// Channels are the names of the channels, in their order.
func (o *Outbox) Channels() (names []string) {
	for _, channel := range o.channels {
		names = append(names, channel.Name())
	}
	return names
}

// Write puts an alert down for every channel, before the act that it tells of,
// and returns the id by which [Outbox.Outcome] knows it (a.ID, if that is a
// plain word not in use). If this pass is killed, the next one sends the alert
// with the words "outcome not seen". After an error nothing is written down,
// for no channel: the caller keeps the alert and uses [Outbox.SendNow].
func (o *Outbox) Write(a Alert) (id string, err error) {
	a.Title, a.Text = cut(state.OneLine(a.Title), 1024), cut(a.Text, maxText)
	if o.dir.ViewOnly() || len(o.channels) == 0 {
		return o.freeID(a.ID, nil), nil
	}
	box, err := o.dir.Sub(boxName)
	if err != nil {
		return "", err
	}
	names, _, err := listNames(box)
	if err != nil {
		return "", err
	}
	seq := 1
	waiting := map[string]int{}
	for _, n := range names {
		seq = max(seq, n.seq+1)
		if !n.parked {
			waiting[n.channel]++
		}
	}
	a.ID = o.freeID(a.ID, names)
	var written []*entry
	for _, channel := range o.channels {
		e := &entry{entryName: newName(seq, a.ID, channel.Name()), alert: a, writer: os.Getpid()}
		if err := e.save(box); err != nil {
			for _, e := range written {
				err = errors.Join(err, box.Remove(e.file))
			}
			return "", err
		}
		written = append(written, e)
	}
	o.own[a.ID] = written
	for _, channel := range o.channels {
		if waiting[channel.Name()] >= maxWaiting {
			o.makeRoom(box, channel.Name())
		}
	}
	return a.ID, nil
}

// freeID is the wanted id, or a drawn one if that cannot be used.
func (o *Outbox) freeID(wanted string, names []entryName) string {
	used := slices.ContainsFunc(names, func(n entryName) bool { return n.id == wanted })
	if _, mine := o.own[wanted]; plainWord(wanted) && !used && !mine {
		return wanted
	}
	id := make([]byte, 8)
	rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// Outcome adds to an alert's text what came of the act, and lets it go. text
// brings its own joint (a blank, a comma, a semicolon, a line break) or gets
// "; "; an empty one only says that there is no more to come, as does
// [Outbox.Send]. After an error the outcome is still sent if this pass is the
// one that sends.
func (o *Outbox) Outcome(id, text string) error {
	return o.settleOwn(id, func(a *Alert) { a.Text = cut(withOutcome(a.Text, text), maxText) })
}

// Rewrite is Outcome for an act that came out so that the alert must say
// something else: title and text take the place of what was written down.
func (o *Outbox) Rewrite(id, title, text string) error {
	return o.settleOwn(id, func(a *Alert) { a.Title, a.Text = cut(state.OneLine(title), 1024), cut(text, maxText) })
}

func (o *Outbox) settleOwn(id string, reword func(*Alert)) error {
	box := o.box()
	var errs []error
	for _, e := range o.own[id] {
		if e.settled {
			continue
		}
		reword(&e.alert)
		e.settled = true
		if o.dir.ViewOnly() {
			continue
		}
		now, loaded := loadEntry(state.View(box.Path("")), e.entryName, check.Moment{})
		if !loaded.Found { // a pass that waited for us too long has sent it
			errs = append(errs, fmt.Errorf("%s no longer waits: %w", e.file, fs.ErrNotExist))
			continue
		}
		now.alert, now.settled = e.alert, true
		if err := now.save(box); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// box is the outbox's directory for reading, and for writing once it is there.
func (o *Outbox) box() *state.Dir {
	if !o.dir.ViewOnly() {
		if _, err := os.Lstat(o.dir.Path(boxName)); err == nil {
			if box, err := o.dir.Sub(boxName); err == nil {
				return box
			}
		}
	}
	return state.View(o.dir.Path(boxName))
}

// Delivery is what became of one alert on one channel in one pass.
type Delivery struct {
	Channel   string
	ID        string
	Title     string // or, of a file that cannot be understood, its name
	Delivered bool
	Parked    bool          // refused: it is shown, and not tried again
	Again     time.Duration // until the next attempt
	Err       error         // nil if it was delivered and is gone from the outbox
}

// ErrDropped is the Err of an alert that went because more than 100 waited.
var ErrDropped = errors.New("dropped: more than 100 were waiting")

// Send delivers what waits: all channels side by side, each oldest first, 10 s
// in all. A channel's first failure ends its turn. A transport error, 408, 425,
// 429 and 5xx are tried again by a later pass, after the longer of the loop's
// back-off and what the server asked for (a day at most); anything else is
// parked. While another process sends, or the outbox cannot be written (what
// is sent could not be taken out and would be sent again), nothing is sent.
func (o *Outbox) Send(ctx context.Context, m check.Moment) []Delivery {
	if o.dir.ViewOnly() {
		return nil
	}
	names, _, err := listNames(state.View(o.dir.Path(boxName)))
	if err != nil {
		return []Delivery{{Title: boxName, Err: err}}
	}
	if len(names) == 0 {
		return nil
	}
	box, err := o.dir.Sub(boxName)
	if err != nil {
		return []Delivery{{Title: boxName, Err: err}}
	}
	// What this pass wrote and never settled had no act to wait for. The next
	// pass must not think otherwise of what is not delivered now.
	defer func() {
		for id := range o.own {
			o.Outcome(id, "")
		}
	}()
	lock, err := state.TryLock(o.dir.Path(lockName))
	if errors.Is(err, state.ErrBusy) {
		return nil
	}
	if err == nil {
		err = unix.Access(box.Path(""), unix.W_OK)
	}
	defer lock.Release()
	if err != nil {
		return []Delivery{{Title: boxName, Err: fmt.Errorf("not sent, for it could not be taken out: %w", err)}}
	}

	ctx, end := context.WithTimeout(ctx, sendTime)
	defer end()
	turns := make([][]Delivery, len(o.channels))
	var wg sync.WaitGroup
	for i, channel := range o.channels {
		wg.Go(func() { turns[i] = o.turn(ctx, box, channel, m) })
	}
	wg.Wait()
	return slices.Concat(turns...)
}

// leastTime is what must be left of the 10 s for a further alert to start: one
// that is cut off may have arrived, and will arrive again.
const leastTime = 2 * time.Second

// turn is one channel's share of Send.
func (o *Outbox) turn(ctx context.Context, box *state.Dir, channel Channel, m check.Moment) (done []Delivery) {
	entries, done := o.queue(box, channel.Name(), m)
	for i, e := range entries {
		if deadline, ok := ctx.Deadline(); ctx.Err() != nil || ok && i > 0 && time.Until(deadline) < leastTime {
			break
		}
		if e.tried.left(e.wait, m) > 0 || !o.settle(e, m) {
			break
		}
		a := e.alert
		a.Text = withHistory(a.Text, a.At, m.Wall, e.dropped)
		d := Delivery{Channel: channel.Name(), ID: e.id, Title: a.Title}
		err := channel.Send(ctx, a)
		if err == nil {
			d.Delivered = true
			if err := box.Remove(e.file); err != nil {
				d.Err = fmt.Errorf("delivered, but it will be again: %w", err)
				return append(done, d)
			}
			done = append(done, d)
			continue
		}
		d.Err = fmt.Errorf("%s: %w", channel.Name(), err)
		e.attempts++
		e.tried = stamp{m.Epoch(), m.Boot, m.BootID}
		e.failure = err.Error()
		if refused := (Refused{}); errors.As(err, &refused) {
			d.Parked = true
			d.Err = errors.Join(d.Err, e.park(box))
			return append(done, d)
		}
		e.wait = loop.Wait(loop.Seed(e.id), e.attempts)
		if told := (Retry{}); errors.As(err, &told) {
			e.wait = min(max(e.wait, told.After), longestTold)
		}
		d.Again = e.wait
		d.Err = errors.Join(d.Err, e.save(box))
		return append(done, d)
	}
	return done
}

// settle makes sure that an alert's text is complete, or says that the outcome
// is not known. It is false while the pass that is to say it still runs.
func (o *Outbox) settle(e *entry, m check.Moment) bool {
	for _, mine := range o.own[e.id] {
		if mine.file == e.file {
			// What this pass has in hand counts, also where the disk was too
			// full to take it.
			e.alert, e.settled = mine.alert, true
			return true
		}
	}
	if e.settled {
		return true
	}
	age := m.Wall.Sub(e.alert.At).Abs()
	if e.writer != os.Getpid() && age < writerTime && alive(e.writer) {
		return false
	}
	e.alert.Text, e.settled = withOutcome(e.alert.Text, notSeen), true
	return true
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// park marks an entry as refused. The rename comes first: it is what keeps the
// entry from being sent again.
func (e *entry) park(box *state.Dir) error {
	to := e.file + parkedSuffix
	if err := box.Rename(e.file, to); err != nil {
		return err
	}
	e.file, e.parked, e.wait = to, true, 0
	return e.save(box)
}

// queue loads what waits for a channel, oldest first and at most 100, and
// reports what had to go.
func (o *Outbox) queue(box *state.Dir, channel string, m check.Moment) (entries []*entry, gone []Delivery) {
	names, _, err := listNames(box)
	if err != nil {
		return nil, []Delivery{{Channel: channel, Title: boxName, Err: err}}
	}
	for _, n := range names {
		if n.parked || n.channel != channel {
			continue
		}
		e, loaded := loadEntry(box, n, m)
		switch {
		case loaded.Bad != "" && loaded.SetAside != "":
			gone = append(gone, Delivery{Channel: channel, Title: n.file, Err: fmt.Errorf("%s; set aside as %s", loaded.Bad, loaded.SetAside)})
		case loaded.Bad != "":
			gone = append(gone, Delivery{Channel: channel, Title: n.file, Err: errors.New(loaded.Bad)})
		case loaded.Found:
			entries = append(entries, e)
		}
	}

	// A killed pass may have counted alerts and not yet removed them.
	upTo, counted := entryName{}, false
	for _, e := range entries {
		if n, ok := parseName(e.upTo); ok && (!counted || upTo.before(n) < 0) {
			upTo, counted = n, true
		}
	}
	var old []*entry
	entries = slices.DeleteFunc(entries, func(e *entry) bool {
		was := counted && e.before(upTo) <= 0
		if was {
			old = append(old, e)
		}
		return was
	})
	if over := len(entries) - maxWaiting; over > 0 {
		first := entries[over]
		for _, e := range entries[:over] {
			first.dropped += 1 + e.dropped
			first.upTo = e.file
		}
		// Counted before removed: a kill in between counts none twice.
		if err := first.save(box); err != nil {
			return entries, append(gone, Delivery{Channel: channel, Title: boxName, Err: err})
		}
		old = append(old, entries[:over]...)
		entries = entries[over:]
	}
	for _, e := range old {
		gone = append(gone, Delivery{Channel: channel, ID: e.id, Title: e.alert.Title, Err: errors.Join(ErrDropped, box.Remove(e.file))})
	}
	return entries, gone
}

// makeRoom drops the oldest of a channel, unless another process is at it.
func (o *Outbox) makeRoom(box *state.Dir, channel string) {
	if lock, err := state.TryLock(o.dir.Path(lockName)); err == nil {
		o.queue(box, channel, check.Moment{Wall: time.Now()})
		lock.Release()
	}
}

// SendNow sends an alert that could not be written down to every channel, once,
// side by side, 10 s in all. The error names the channels that did not take it.
func (o *Outbox) SendNow(ctx context.Context, a Alert) error {
	if o.dir.ViewOnly() {
		return nil
	}
	ctx, end := context.WithTimeout(ctx, sendTime)
	defer end()
	errs := make([]error, len(o.channels))
	var wg sync.WaitGroup
	for i, channel := range o.channels {
		wg.Go(func() {
			if err := channel.Send(ctx, a); err != nil {
				errs[i] = fmt.Errorf("%s: %w", channel.Name(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Entry is one file of the outbox, for people.
type Entry struct {
	File       string
	Channel    string
	Configured bool // there is such a channel; without one the file stays as it is
	ID         string
	Title      string // or the first line of the text
	Text       string
	At         time.Time
	Attempts   int
	Next       time.Time // when it may be tried again; zero for one that never will be
	Failure    string    // what the last attempt met
	Parked     string    // why it is not tried again; "" if it is
}

// Waiting lists what lies in the outbox, in the order of writing, parked
// alerts and files that were set aside last. It changes nothing.
func (o *Outbox) Waiting(m check.Moment) []Entry {
	box := state.View(o.dir.Path(boxName))
	names, aside, err := listNames(box)
	if err != nil {
		return []Entry{{File: boxName, Parked: err.Error()}}
	}
	var waiting, parked []Entry
	for _, n := range names {
		e, loaded := loadEntry(box, n, m)
		if !loaded.Found {
			continue // sent this very moment
		}
		entry := Entry{
			File:     n.file,
			Channel:  n.channel,
			ID:       n.id,
			Title:    e.alert.Title,
			Text:     e.alert.Text,
			At:       e.alert.At,
			Attempts: e.attempts,
			Failure:  e.failure,
			Configured: slices.ContainsFunc(o.channels, func(c Channel) bool {
				return c.Name() == n.channel
			}),
		}
		if entry.Title == "" {
			entry.Title, _, _ = strings.Cut(e.alert.Text, "\n")
		}
		switch {
		case loaded.Bad != "":
			entry.Parked = "cannot be understood: " + loaded.Bad
		case n.parked:
			entry.Parked = e.failure
			if entry.Parked == "" {
				entry.Parked = "refused"
			}
		default:
			entry.Next = m.Wall.Add(e.tried.left(e.wait, m))
			waiting = append(waiting, entry)
			continue
		}
		parked = append(parked, entry)
	}
	for _, file := range aside {
		name, _, _ := strings.Cut(file, ".bad-")
		n, _ := parseName(name)
		parked = append(parked, Entry{File: file, Channel: n.channel, ID: n.id, Configured: true,
			Parked: "could not be understood and was set aside"})
	}
	return append(waiting, parked...)
}
