package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/notify"
	"tickdog/state"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

// passLimit is how long a pass may last whatever hangs: the units'
// TimeoutStartSec is 300 s, and what is left is for a clean end.
const passLimit = 270 * time.Second

// pass is one start of a guard. A command's file calls its steps in the one
// order: lock, load, look, decide, save → act → tell.
type pass struct {
	*program
	ctx    context.Context // ends with SIGTERM or after passLimit
	end    context.CancelFunc
	now    check.Moment
	cfg    config
	name   string // prefix of its state files, alerts and log lines
	dryRun bool
	json   bool
	all    bool // print the resting subjects too
	dir    *state.Dir
	held   *state.Lock
	outbox *notify.Outbox
	told   []*told // this pass's alerts
	stuck  stuck   // what earlier passes had to leave behind
	report report
	said   bool // the report is out; a note has to go elsewhere

	began       time.Time // for durations only; the moment of the pass is now
	pausedUntil int64     // epoch at which a pause ends; 0 if there is none
	measured    metrics   // what only the guard itself knows
}

// passFlags are the flags of every guard.
func passFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "say what is seen and what would be run; write, stop and tell nothing"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object a pass instead of a line a subject"},
	}
}

// newPass opens what a pass of the command called kind works with. Its errors
// are the only ones that end a guard with another status than 0.
func (p *program) newPass(c *cli.Context, cfg config, kind, name string, dryRun bool) (*pass, error) {
	s := &pass{program: p, cfg: cfg, name: name, now: p.moment(), dryRun: dryRun, json: c.Bool("json"), began: time.Now(), measured: metrics{}}
	s.ctx, s.end = context.WithTimeout(c.Context, passLimit)
	s.report = report{Pass: kind, At: s.now.Wall.Format(time.RFC3339), DryRun: dryRun}
	if dryRun {
		s.dir = state.View(cfg.StateDir)
	} else {
		dir, err := state.Open(cfg.StateDir)
		if errors.Is(err, state.ErrForeign) {
			return nil, err
		}
		if err != nil {
			s.note("%v", err)
		}
		s.dir = dir
	}
	channels, err := p.channels(cfg)
	if err != nil {
		s.note("%v", err)
	}
	s.outbox = notify.OpenOutbox(s.dir, channels...)
	return s, nil
}

// note says something once beside the verdicts: on stderr, or in the JSON if
// that is still to be printed.
func (s *pass) note(format string, args ...any) {
	text := oneLine(fmt.Sprintf(format, args...))
	s.report.Notes = append(s.report.Notes, text)
	if !s.json || s.said {
		io.WriteString(s.stderr, s.inkFor(s.stderr).line(check.Hold, "tickdog: "+text))
	}
}

// locked is how taking a pass's lock ended.
type locked int

const (
	lockHeld   locked = iota // this pass is the only one
	lockBusy                 // another pass runs: say so in one line and exit 0
	lockBroken               // the lock file cannot be opened
)

// lock takes the pass's lock. A dry run takes none and disturbs no one.
func (s *pass) lock(path string) locked {
	if s.dryRun {
		return lockHeld
	}
	held, err := state.TryLock(path)
	switch {
	case err == nil:
		s.held = held
		return lockHeld
	case errors.Is(err, state.ErrBusy):
		s.report.Reason = fmt.Sprintf("another pass holds %s; nothing done", path)
		return lockBusy
	}
	s.note("lock: %v", err)
	return lockBroken
}

// load reads a state file line by line. What could not be read is noted once
// (the file is set aside, so the next pass finds none) and returned as false:
// the caller then saves its careful assumption.
func (s *pass) load(file string, line func(text string) error) (found, good bool) {
	got := s.dir.Load(file, s.now, line)
	if got.Bad == "" {
		return got.Found, true
	}
	if got.SetAside != "" {
		s.note("%s: %s; set aside as %s", s.dir.Path(file), got.Bad, got.SetAside)
	} else {
		s.note("%s: %s", s.dir.Path(file), got.Bad)
	}
	return got.Found, false
}

// log adds a line to the action log at path, if there is one.
func (s *pass) log(path, line string) {
	if path == "" || s.dryRun {
		return
	}
	if err := notify.Log(path, s.now, oneLine(line)); err != nil {
		s.note("action log: %v", err)
	}
}

// remember appends lines to the pass's history in the state directory. Without
// it the pass goes on: only replay will lack it.
func (s *pass) remember(lines ...string) {
	if s.dryRun {
		return
	}
	for _, line := range lines {
		if err := state.AppendCapped(s.dir.Path(s.name+"-history"), line, historyCap); err != nil {
			s.note("history: %v", err)
			return
		}
	}
}

// historyCap keeps at least a week of 2-minute passes over eight agents, and
// three months of a card's.
const historyCap = 24 << 20

// told is an alert on its way.
type told struct {
	pass    *pass
	alert   notify.Alert
	id      string // in the outbox; "" if it could not be written down
	settled bool
}

// tell writes an alert down, before the act it tells of: "<name>: <text>". An
// alert that cannot be written is kept in hand and sent by deliver; it neither
// delays nor prevents the act. What comes of the act is added by outcome; an
// alert that tells of none goes out as it is.
func (s *pass) tell(urgent bool, tags []string, format string, args ...any) *told {
	t := &told{pass: s, alert: notify.Alert{
		Name: s.name, Title: s.name + " on " + hostname(), At: s.now.Wall,
		Text: s.name + ": " + oneLine(fmt.Sprintf(format, args...)), Urgent: urgent, Tags: tags,
	}}
	if s.dryRun {
		return t
	}
	s.told = append(s.told, t)
	id, err := s.outbox.Write(t.alert)
	if err != nil {
		s.note("alert not written down, will be sent directly: %v", err)
		return t
	}
	t.id = id
	return t
}

// outcome adds what came of the act and lets the alert go.
func (t *told) outcome(text string) {
	if t.settled {
		return
	}
	t.settled = true
	switch {
	case t.pass.dryRun:
	case t.id == "":
		if text != "" {
			t.alert.Text += "; " + text
		}
	default:
		if err := t.pass.outbox.Outcome(t.id, text); err != nil {
			t.pass.note("alert: %v", err)
		}
	}
}

// rewrite lets the alert of an act go that came out otherwise than written down.
func (t *told) rewrite(format string, args ...any) {
	if t.settled {
		return
	}
	t.settled = true
	t.alert.Text = t.pass.name + ": " + oneLine(fmt.Sprintf(format, args...))
	if t.pass.dryRun || t.id == "" {
		return
	}
	if err := t.pass.outbox.Rewrite(t.id, t.alert.Title, t.alert.Text); err != nil {
		t.pass.note("alert: %v", err)
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "this host"
	}
	return name
}

// finish prints the report, sends what waits, leaves the metrics, releases the
// lock and knocks at the heartbeat. Printing comes first: a person at a
// terminal does not wait for a slow ntfy.
func (s *pass) finish(watched bool) error {
	defer s.end()
	s.print()
	if !s.dryRun && watched {
		s.deliver()
		s.writeMetrics()
	}
	if err := s.held.Release(); err != nil {
		s.note("lock: %v", err)
	}
	if !s.dryRun && watched && s.cfg.Notify.Heartbeat.URL != "" {
		if err := notify.Heartbeat(s.ctx, s.cfg.Notify.Heartbeat.URL); err != nil {
			s.note("heartbeat: %v", err)
		}
	}
	return nil
}

// print writes the report of one pass.
func (s *pass) print() {
	s.said = true
	if s.json {
		s.report.writeJSON(s.stdout)
		return
	}
	s.report.writeText(s.stdout, s.all, s.inkFor(s.stdout))
}

// deliver sends what the outbox holds and what could not be put there.
func (s *pass) deliver() {
	own := map[string]bool{}
	for _, t := range s.told {
		t.outcome("")
		if t.id != "" {
			own[t.id] = true
			continue
		}
		if err := s.outbox.SendNow(s.ctx, t.alert); err != nil {
			s.note("alert %q: %v", t.alert.Text, err)
		}
	}
	for _, d := range s.outbox.Send(s.ctx, s.now) {
		// What still waits from earlier passes was said when it began; status shows it.
		if d.Err != nil && (own[d.ID] || d.Again == 0) {
			s.note("alert %q not delivered: %v", d.Title, d.Err)
		}
	}
}

// channels are where alerts go.
func (p *program) channels(cfg config) (channels []notify.Channel, err error) {
	if n := cfg.Notify.Ntfy; n.URL != "" {
		var token string
		token, err = p.ntfyToken(n)
		channels = append(channels, notify.NewNtfy(n.URL, token))
	}
	if b := cfg.Notify.Board; b.URL != "" {
		channels = append(channels, notify.NewBoard(b.URL, b.Agent, b.Project))
	}
	return channels, err
}

// ntfyToken is the access token from the environment, the file that the
// configuration names, or the credential ntfy-token that systemd passes.
func (p *program) ntfyToken(n ntfyConfig) (string, error) {
	if token := p.getenv("TICKDOG_NTFY_TOKEN"); token != "" {
		return strings.TrimSpace(token), nil
	}
	if n.TokenFile != "" {
		token, err := readToken(n.TokenFile)
		if err != nil {
			return "", fmt.Errorf("ntfy token: %v", err)
		}
		return token, nil
	}
	if dir := p.getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		if token, err := readToken(filepath.Join(dir, "ntfy-token")); err == nil {
			return token, nil
		}
	}
	return "", nil
}

// maxToken is longer than any token.
const maxToken = 4096

// readToken reads a token without waiting for one: a pipe would hold up the
// stop that comes before the alert.
func readToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if len(text) > maxToken {
		err = fmt.Errorf("%s: longer than a token can be", path)
	}
	return strings.TrimSpace(string(text)), err
}
