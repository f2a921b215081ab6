package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/check/loop"
	"tickdog/state"
)

// loops is the folder of the runs: one file a run, and beside it a lock and,
// if a person pulled it, a brake.
//
//	loops/KEY        what is remembered of a run
//	loops/KEY.lock   held while one process decides on it
//	loops/KEY.halt   the brake of this run
//	loops/halt       the brake of all
type loops struct {
	*program
	dir   *state.Dir
	quick bool // wait for the disk only with a freeze
}

const (
	lockSuffix = ".lock"
	haltSuffix = ".halt"
	haltAll    = "halt"
)

// openLoops opens the folder. A folder that cannot be made is no reason to
// leave a loop without an answer: what can be read counts, and nothing is kept.
// Only one that belongs to another user is an error.
func (p *program) openLoops(stateDir string) (*loops, error) {
	if strings.HasPrefix(stateDir, "~") {
		return nil, fmt.Errorf("state_dir is %s, but HOME is not set", stateDir)
	}
	dir, err := state.Open(stateDir)
	if err == nil {
		dir, err = dir.Sub("loops")
	}
	switch {
	case errors.Is(err, state.ErrForeign):
		return nil, err
	case err != nil:
		fmt.Fprintf(p.stderr, "tickdog: %v; nothing will be remembered\n", err)
		return p.viewLoops(stateDir), nil
	}
	return &loops{program: p, dir: dir}, nil
}

// viewLoops opens the folder for looking only.
func (p *program) viewLoops(stateDir string) *loops {
	dir, _ := state.View(stateDir).Sub("loops") // a view's cannot fail
	return &loops{program: p, dir: dir}
}

// halted says whether a brake is on, this run's (if it is not "") or everybody's.
func (l *loops) halted(run string) bool {
	return l.exists(haltAll) || run != "" && l.exists(loop.Key(run)+haltSuffix)
}

func (l *loops) exists(name string) bool {
	_, err := os.Lstat(l.dir.Path(name))
	return err == nil
}

// decide puts what was seen to the policy, one after the other, in one turn of
// the run's lock, and returns the last verdict. It waits for the lock as long
// as patience. What then cannot be locked, read or written is decided on what
// can be read; stderr says so, and kept is false.
func (l *loops) decide(ctx context.Context, run string, patience time.Duration, limits loop.Limits, seen ...loop.Seen) (v loop.Verdict, kept bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	on := l
	if !l.dir.ViewOnly() {
		lock, err := state.WaitLock(ctx, l.dir.Path(loop.Key(run)+lockSuffix))
		if err != nil {
			l.forget(err)
			on = l.view()
		}
		defer lock.Release()
	}
	now := l.moment() // only now: others may have decided while we waited
	limits.Halted = l.halted(run)
	was, file := on.load(run, now)
	is := was
	for _, s := range seen {
		is, v = loop.Decide(is, s, now, limits)
	}
	kept = !on.dir.ViewOnly() && file.how != unreadable
	if kept && (file.how == setAside || !reflect.DeepEqual(was, is)) {
		if err := on.keep(was, is, file, seen, v); err != nil {
			l.forget(err)
			return v, false
		}
	}
	if kept && file.how == fresh {
		// A new run is the moment to forget old ones: rare, and if it fails
		// the next one tries again.
		on.collect(now, pruning{older: keepRuns, frozenOlder: keepFrozen, most: 20, skip: loop.Key(run)})
	}
	return v, kept
}

func (l *loops) forget(why error) {
	fmt.Fprintf(l.stderr, "tickdog: %v; nothing will be remembered\n", why)
}

func (l *loops) view() *loops { return &loops{program: l.program, dir: state.View(l.dir.Path(""))} }

// found is how a run's file was found.
type found struct {
	how   int
	added int // how often something was added to it since it was last written
}

const (
	fresh      = iota // none: a new run
	known             // read
	setAside          // could not be understood and was moved out of the way
	unreadable        // could not be read, and is still there
)

// load reads a run. One that cannot be understood is set aside, said once, and
// starts afresh; but a freeze that could still be read stands, for only a
// person ends it.
func (l *loops) load(run string, now check.Moment) (loop.State, found) {
	r, got := l.read(loop.Key(run), now)
	r.run.Run = run
	switch {
	case !got.Found:
		return loop.State{Run: run}, found{}
	case got.Bad == "":
		return r.run, found{known, r.runs - 1}
	}
	how, where := unreadable, ""
	if got.SetAside != "" {
		how, where = setAside, "; set aside as "+got.SetAside
	}
	fmt.Fprintf(l.stderr, "tickdog: %s: %s%s; the run starts afresh\n", l.dir.Path(loop.Key(run)), got.Bad, where)
	s := loop.State{Run: run, Episode: max(r.run.Episode, 1), Created: now.Epoch(), Updated: now.Epoch()}
	s.Frozen = r.run.Frozen
	return s, found{how: how}
}

// read reads a run's file. If it is bad, its freeze is what counts of it: a line
// before or behind that cannot be understood does not thaw.
func (l *loops) read(key string, now check.Moment) (r runReader, got state.Loaded) {
	got = l.dir.Load(key, now, r.line)
	if got.Bad == "" {
		return r, got
	}
	text, _ := l.dir.ReadFile(cmp.Or(got.SetAside, key))
	for line := range strings.Lines(string(text)) {
		var one runReader
		if line, whole := strings.CutSuffix(line, "\n"); whole && one.line(line) == nil && one.run.Frozen != nil {
			r.run.Frozen = one.run.Frozen
		}
	}
	return r, got
}

// maxAdded is how much is added to a file before it is written anew: as long as
// that is quicker to read than to write.
const maxAdded = 32

// keep writes down what has become of a run. What a hook sees of an agent that
// does well is only added to the file: that costs a tenth of writing it anew.
func (l *loops) keep(was, is loop.State, file found, seen []loop.Seen, v loop.Verdict) error {
	if l.quick && file.how == known && file.added < maxAdded && v.Action == loop.Proceed && is.Pause == was.Pause {
		if l.dir.Append(loop.Key(is.Run), addedLines(was, is, seen, v)) == nil {
			return nil
		}
	}
	return l.save(is)
}

// addedLines are what to add to a run's file after what was seen, if that was
// nothing that ends the run or lets it wait.
func addedLines(was, is loop.State, seen []loop.Seen, v loop.Verdict) (lines []string) {
	for _, s := range seen {
		switch s := s.(type) {
		case loop.Acted:
			if is.Actions == was.Actions { // seen before
				continue
			}
			lines = append(lines, actionLine(is.Tail[len(is.Tail)-1]))
			if s.Event != "" {
				lines = append(lines, answerLine(v, []string{s.Event}))
			}
		case loop.Resulted:
			lines = append(lines, newLine("result", s.Fingerprint).opt("event", s.Event).text("result", s.Result).String())
		}
	}
	return append(lines, firstLine(is))
}

const runHeader = "what which key=value ..., a later line counts: one run of an agent's loop; deleting this file forgets its streak, its tail and its freeze"

func (l *loops) save(s loop.State) error {
	dir := l.dir
	if l.quick && s.Frozen == nil {
		dir = dir.Unsynced()
	}
	return dir.WriteFile(loop.Key(s.Run), []byte("# "+runHeader+"\n"+strings.Join(runLines(s), "\n")+"\n"))
}

// runLines writes a run as a person reads it: each line names a thing, then
// which one.
func runLines(s loop.State) []string {
	lines := []string{firstLine(s)}
	if s.Frozen != nil {
		lines = append(lines, newLine("frozen", epoch(s.Frozen.Epoch)).
			text("reason", s.Frozen.Reason).opt("code", s.Frozen.Code).opt("subject", s.Frozen.Subject).
			text("text", s.Frozen.Text).String())
	}
	if s.Steered != (loop.Stamp{}) {
		lines = append(lines, newLine("steered", "-").stamp("steered", s.Steered).String())
	}
	if p := s.Pause; p != nil {
		lines = append(lines, newLine("pause", strconv.FormatInt(p.UntilMS, 10)).
			stamp("until", p.Until).float("seconds", p.Length).opt("code", p.Code).opt("subject", p.Subject).String())
	}
	for _, t := range s.Thaws {
		lines = append(lines, newLine("thaw", epoch(t.Epoch)).text("why", t.Why).String())
	}
	for _, a := range s.Tail {
		lines = append(lines, actionLine(a))
	}
	// Most events got the same answer as the one before: they share a line.
	for i := 0; i < len(s.Events); {
		v, ids := s.Events[i].Verdict, []string(nil)
		for ; i < len(s.Events) && s.Events[i].Verdict == v; i++ {
			ids = append(ids, s.Events[i].ID)
		}
		lines = append(lines, answerLine(v, ids))
	}
	return lines
}

func firstLine(s loop.State) string {
	return newLine("run", loop.Key(s.Run)).
		text("id", shortID(s.Run)).num("episode", s.Episode).
		num("created_epoch", int(s.Created)).num("updated_epoch", int(s.Updated)).
		num("actions", s.Actions).num("steers", s.Steers).num("provider_failures", s.ProviderFailures).
		num("corrections", s.Corrections).num("streak", s.Streak).String()
}

func actionLine(a loop.Action) string {
	return newLine("action", a.Fingerprint).opt("event", a.Event).opt("result", a.Result).String()
}

// answerLine is what was answered to these events. Their ids need no quotes
// (see eventID), and there are many.
func answerLine(v loop.Verdict, ids []string) string {
	line := newLine("answer", string(v.Action)).
		num("corrections", v.Corrections).num("provider_failures", v.ProviderFailures).
		opt("reason", v.Reason).opt("code", v.Code).opt("subject", v.Subject).opt("text", v.Text)
	if v.UntilMS != 0 {
		line = line.num("until_ms", int(v.UntilMS))
	}
	return line.String() + " events=" + strings.Join(ids, ",")
}

// shortID keeps a monstrous id from filling the file; the key says which run it is.
func shortID(run string) string {
	if len(run) > 200 {
		return strings.ToValidUTF8(run[:200], "") + "…"
	}
	return run
}

func epoch(n int64) string { return strconv.FormatInt(n, 10) }

// runLine builds one line of a run's file.
type runLine struct{ state.Line }

func newLine(what, which string) runLine {
	return runLine{state.Line{Columns: []string{what, which}}}
}

func (l runLine) text(key, value string) runLine {
	l.Pairs = append(l.Pairs, state.Pair{Key: key, Value: value})
	return l
}

// opt leaves out what is empty.
func (l runLine) opt(key, value string) runLine {
	if value == "" {
		return l
	}
	return l.text(key, value)
}

func (l runLine) num(key string, n int) runLine { return l.text(key, strconv.Itoa(n)) }

func (l runLine) float(key string, f float64) runLine {
	return l.text(key, strconv.FormatFloat(f, 'f', -1, 64))
}

func (l runLine) stamp(key string, s loop.Stamp) runLine {
	return l.float(key+"_boottime", s.Boot).text("boot_id", s.BootID)
}

// runReader reads the lines of a run's file.
type runReader struct {
	run  loop.State // without its id
	id   string     // as the file shows it
	runs int        // lines that say so
	err  error      // of the line at hand
}

func (r *runReader) line(text string) error {
	l, err := state.ParseLine(text, 2)
	if err != nil {
		return err
	}
	r.err = nil
	get := func(key string) string { v, _ := l.Get(key); return v }
	switch which := l.Columns[1]; l.Columns[0] {
	case "run":
		r.runs++
		r.id = get("id")
		r.run.Episode = max(1, r.int("episode", get("episode")))
		r.run.Created = int64(r.int("created_epoch", get("created_epoch")))
		r.run.Updated = int64(r.int("updated_epoch", get("updated_epoch")))
		r.run.Actions = r.int("actions", get("actions"))
		r.run.Steers = r.int("steers", get("steers"))
		r.run.ProviderFailures = r.int("provider_failures", get("provider_failures"))
		r.run.Corrections = r.int("corrections", get("corrections"))
		r.run.Streak = r.int("streak", get("streak"))
	case "frozen":
		r.run.Frozen = &loop.Frozen{
			Epoch: int64(r.int("epoch", which)), Reason: get("reason"),
			Code: get("code"), Subject: get("subject"), Text: get("text"),
		}
	case "steered":
		r.run.Steered = loop.Stamp{Boot: r.float("steered_boottime", get("steered_boottime")), BootID: get("boot_id")}
	case "pause":
		r.run.Pause = &loop.Pause{
			UntilMS: int64(r.int("until_ms", which)),
			Until:   loop.Stamp{Boot: r.float("until_boottime", get("until_boottime")), BootID: get("boot_id")},
			Length:  r.float("seconds", get("seconds")), Code: get("code"), Subject: get("subject"),
		}
	case "thaw":
		r.run.Thaws = append(r.run.Thaws, loop.Thaw{Epoch: int64(r.int("epoch", which)), Why: get("why")})
	case "action":
		r.run.Tail = append(r.run.Tail, loop.Action{Fingerprint: which, Event: get("event"), Result: get("result")})
	case "result":
		// What it does to the tail is the policy's business.
		seen := loop.Resulted{Event: get("event"), Fingerprint: which, Result: get("result")}
		r.run, _ = loop.Decide(r.run, seen, check.Moment{Wall: time.Unix(r.run.Updated, 0)}, loop.Limits{})
	case "answer":
		v := loop.Verdict{
			Action: loop.Next(which), Text: get("text"), Reason: get("reason"),
			Code: get("code"), Subject: get("subject"),
			Corrections:      r.int("corrections", get("corrections")),
			ProviderFailures: r.int("provider_failures", get("provider_failures")),
		}
		if until, ok := l.Get("until_ms"); ok {
			v.UntilMS = int64(r.int("until_ms", until))
		}
		if _, ok := verdictExit[v.Action]; !ok {
			return fmt.Errorf("%q is no answer", which)
		}
		for id := range strings.SplitSeq(get("events"), ",") {
			r.run.Events = append(r.run.Events, loop.Event{ID: id, Verdict: v})
		}
	default:
		return fmt.Errorf("%q is nothing that a run has", l.Columns[0])
	}
	return r.err
}

// int reads a count or an epoch: what is written here is never negative.
func (r *runReader) int(key, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		r.err = fmt.Errorf("%s=%q is no count", key, text)
		return 0
	}
	return n
}

func (r *runReader) float(key, text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f < 1e12) { // also NaN
		r.err = fmt.Errorf("%s=%q is no number of seconds", key, text)
		return 0
	}
	return f
}

// eventID is an event's id as a file can hold it.
func eventID(id string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/@", r))
	}
	if len(id) <= 80 && strings.IndexFunc(id, func(r rune) bool { return !plain(r) }) < 0 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "x-" + hex.EncodeToString(sum[:16])
}

// setHalt pulls or lifts the brake of one run, or of all if run is "". It takes
// no lock: a brake must work while the run is stuck.
func (l *loops) setHalt(run string, on bool, why string) error {
	name := haltAll
	if run != "" {
		name = loop.Key(run) + haltSuffix
	}
	if !on {
		return l.dir.Remove(name)
	}
	line := newLine("halt", epoch(l.moment().Epoch()))
	if run != "" {
		line = line.text("id", shortID(run))
	}
	err := l.dir.Save(name, "halt epoch key=value: a person's brake; deleting this file lifts it", []string{line.opt("why", why).String()})
	if err == nil {
		return nil
	}
	// A full disk mostly still has room for an empty file, and that it is
	// there is enough.
	file, e := os.OpenFile(l.dir.Path(name), os.O_CREATE|os.O_WRONLY, 0o600)
	if e != nil {
		return err
	}
	fmt.Fprintf(l.stderr, "tickdog: %v; the brake is on, without its reason\n", err)
	return file.Close()
}

// listed is a run as its file shows it.
type listed struct {
	key, id string
	run     loop.State
	bad     string // why the file cannot be understood
	halted  bool
}

// list reads all runs, the one that moved last first.
func (l *loops) list(now check.Moment) ([]listed, error) {
	names, err := l.dir.List()
	if err != nil {
		return nil, err
	}
	view := l.view()
	var runs []listed
	for _, name := range names {
		if name == haltAll || strings.Contains(name, ".") {
			continue
		}
		r, got := view.read(name, now)
		if !got.Found {
			continue
		}
		runs = append(runs, listed{key: name, id: r.id, run: r.run, bad: got.Bad, halted: l.exists(name + haltSuffix)})
	}
	slices.SortStableFunc(runs, func(a, b listed) int { return int(b.run.Updated - a.run.Updated) })
	return runs, nil
}

// How long runs are kept after they moved last.
const (
	keepRuns   = 14 * 24 * time.Hour
	keepFrozen = 90 * 24 * time.Hour // frozen or halted: a person may still ask
)

// pruning says what is old.
type pruning struct {
	older, frozenOlder time.Duration
	most               int    // look at no run that was written lately, remove at most so many; 0: all
	skip               string // a key that stays
	force              bool   // also if everything looks old
	dryRun             bool
}

// errAllOld says that even the run that moved last is more than a month old:
// rather the clock has jumped than that nothing has happened.
var errAllOld = errors.New("nothing removed: even the newest run is more than 30 days old; if the clock is right, use --force")

// collect removes the runs that have not moved for long, and returns their
// keys. Each goes under its own lock, so that one that moves meanwhile stays.
func (l *loops) collect(now check.Moment, p pruning) (removed []string, err error) {
	names, err := l.dir.List()
	if err != nil {
		return nil, err
	}
	var keys []string
	files := map[string][]string{} // what lies beside a run, by its key
	written := time.Time{}         // the newest of all runs
	for _, name := range names {
		key, _, beside := strings.Cut(name, ".")
		switch {
		case key == haltAll || key == p.skip:
			continue
		case beside:
			files[key] = append(files[key], name)
		default:
			if at := l.written(name); at.After(written) {
				written = at
			}
		}
		if !slices.Contains(keys[max(0, len(keys)-1):], key) { // names are sorted
			keys = append(keys, key)
		}
	}
	if !written.IsZero() && now.Wall.Sub(written) > 30*24*time.Hour && !p.force {
		return nil, errAllOld
	}
	for _, key := range keys {
		if p.most > 0 {
			if len(removed) == p.most {
				break
			}
			if now.Wall.Sub(l.written(key)) < p.older {
				continue
			}
		}
		gone, err := l.collectRun(key, files[key], now, p)
		if err != nil {
			return removed, err
		}
		if gone {
			removed = append(removed, key)
		}
	}
	return removed, nil
}

// written is when a file was written last; a missing one was never.
func (l *loops) written(name string) time.Time {
	info, err := os.Lstat(l.dir.Path(name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// collectRun removes a run that is old, with all that lies beside it; of one
// that is not, only what was set aside long ago.
func (l *loops) collectRun(key string, beside []string, now check.Moment, p pruning) (gone bool, err error) {
	if !p.dryRun {
		lock, err := state.TryLock(l.dir.Path(key + lockSuffix))
		if err != nil {
			return false, nil // somebody is at it
		}
		defer lock.Release()
	}
	r, got := l.view().read(key, now)
	moved := time.Unix(r.run.Updated, 0)
	if got.Bad != "" { // nothing in it says when
		moved = l.written(key)
	}
	limit := p.older
	if r.run.Frozen != nil || l.exists(key+haltSuffix) {
		limit = p.frozenOlder
	}
	gone = got.Found && now.Wall.Sub(moved) >= limit
	if !got.Found { // left over from a run that is gone
		gone = !slices.ContainsFunc(beside, func(name string) bool { return now.Wall.Sub(l.written(name)) < limit })
	}
	if p.dryRun {
		return gone, nil
	}
	for _, name := range append(beside, key) {
		lock := name == key+lockSuffix
		old := strings.Contains(name, ".bad-") && now.Wall.Sub(l.written(name)) >= p.older
		if !lock && (gone || old) {
			if err := l.dir.Remove(name); err != nil {
				return false, err
			}
		}
	}
	if gone { // last, and while it is held: who waits for it will see that it is another file
		return true, l.dir.Remove(key + lockSuffix)
	}
	return false, nil
}
