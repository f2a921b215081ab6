package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tickdog/check"
	"tickdog/notify"
	"tickdog/units"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

func (p *program) doctorCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:      "doctor",
		Usage:     "is everything there that a guard needs on this machine? each with the mend",
		ArgsUsage: strings.Join(units.Kinds, "|"),
		Description: `Looks, changes nothing, and tells nobody (but for --test-alert). A line a
check: ok, warn (worth a look), bad (the guard cannot do its work). The exit
status is 1 if something is bad. Run it as the user whom the unit runs as.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
			&cli.BoolFlag{Name: "test-alert", Usage: "send one real alert through every configured channel"},
		},
		Action: p.doctor,
	}, 1, 1)
}

// finding is what one check found.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn, bad
	Text   string `json:"text"`
	Mend   string `json:"mend,omitempty"`
}

// doctor is a pass that only looks: as under --dry-run it takes no lock and
// writes no file, and what it runs is as bounded.
type doctor struct {
	*pass
	kind     string
	unit     string // its name, without .service or .timer
	place    unitPlace
	findings []finding
	bad      bool
}

func (p *program) doctor(c *cli.Context) error {
	kind, err := kindArgument(c)
	if err != nil {
		return err
	}
	d := &doctor{kind: kind, unit: units.Name(kind), place: p.unitPlace(c, kind)}
	shown, managerErr := d.askManager(c)
	p = p.withUnit(d.kind, shown[d.unit+".service"])

	cfg, configErr := p.loadConfig(c, kind)
	if configErr != nil {
		_ = p.finishConfig(&cfg) // the mistakes are told; the rest is checked with what could be read
	} else if kind == "gpu" {
		configErr = p.gpuLimits(&cfg, func(string) string { return "" })
	}
	name := map[string]string{"gpu": cfg.GPU.Name, "agents": cfg.Agents.Name, "cycle": cfg.Cycle.Name}[kind]
	if d.pass, err = p.newPass(c, cfg, kind, name, true); err != nil {
		return err
	}
	defer d.end()

	d.checkConfig(configErr)
	d.checkUser()
	d.checkManager(managerErr)
	if managerErr == nil {
		d.checkService(shown[d.unit+".service"])
		d.checkTimer(shown[d.unit+".timer"])
	}
	d.checkPlaces()
	switch kind {
	case "gpu":
		d.checkSensor()
		d.checkContainer()
	case "agents":
		d.checkAgents()
	case "cycle":
		d.checkCycle(shown[d.unit+".service"])
	}
	d.checkChannels(c.Bool("test-alert"))
	d.checkOutbox()
	return d.conclude()
}

// withUnit is the program as the unit starts it: with the limits of the
// unit's Environment= lines, and with its credential.
func (p *program) withUnit(kind string, service map[string]string) *program {
	unit := map[string]string{}
	for _, word := range strings.Fields(service["Environment"]) {
		if key, value, ok := strings.Cut(strings.Trim(word, `"`), "="); ok && strings.HasPrefix(key, "TICKDOG_") {
			unit[key] = value
		}
	}
	if kind == "gpu" {
		unit["CREDENTIALS_DIRECTORY"] = "/etc/credstore" // where LoadCredential=ntfy-token finds it
	}
	inUnit := *p
	inUnit.getenv = func(key string) string {
		if value := p.getenv(key); value != "" {
			return value
		}
		return unit[key]
	}
	return &inUnit
}

func (d *doctor) ok(check, format string, args ...any) { d.found(check, "ok", "", format, args...) }

func (d *doctor) warn(check, mend, format string, args ...any) {
	d.found(check, "warn", mend, format, args...)
}

func (d *doctor) wrong(check, mend, format string, args ...any) {
	d.bad = true
	d.found(check, "bad", mend, format, args...)
}

func (d *doctor) found(name, result, mend, format string, args ...any) {
	f := finding{Check: name, Result: result, Text: oneLine(fmt.Sprintf(format, args...)), Mend: mend}
	d.findings = append(d.findings, f)
	if d.json {
		return
	}
	line := fmt.Sprintf("%-4s %s: %s", f.Result, f.Check, f.Text)
	if f.Mend != "" {
		line += "; " + f.Mend
	}
	word := map[string]check.Verdict{"ok": check.Rest, "warn": check.Watch, "bad": check.Hold}[result]
	io.WriteString(d.stdout, d.inkFor(d.stdout).line(word, line))
}

func (d *doctor) conclude() error {
	if d.json {
		text, err := json.Marshal(struct {
			Doctor string    `json:"doctor"`
			OK     bool      `json:"ok"`
			Checks []finding `json:"checks"`
		}{d.kind, !d.bad, d.findings})
		if err != nil {
			return err
		}
		fmt.Fprintf(d.stdout, "%s\n", text)
	}
	if d.bad {
		return exitCode(1)
	}
	return nil
}

func (d *doctor) checkConfig(err error) {
	switch {
	case err != nil:
		for line := range strings.Lines(err.Error()) {
			d.wrong("config", "", "%s", strings.TrimSpace(line))
		}
	case d.cfg.path == "":
		d.ok("config", "there is none at %s; the defaults hold", d.place.config)
	default:
		d.ok("config", "%s", d.cfg.path)
	}
}

func (d *doctor) checkUser() {
	root := os.Geteuid() == 0
	switch {
	case d.kind == "agents" && root && d.cfg.Agents.Scope == "user":
		d.wrong("user", "run this as them: sudo -iu lab tickdog doctor agents", "root is not the user whose agents these are")
	case d.kind == "gpu" && !root:
		d.warn("user", "run this as root", "this looks with the rights of %s, the unit runs as root", userName())
	default:
		d.ok("user", "%s", userName())
	}
}

// checkPlaces looks at everything that a pass writes.
func (d *doctor) checkPlaces() {
	d.checkDirectory("state directory", d.cfg.StateDir, "state_dir")
	lock := map[string]string{"gpu": d.cfg.GPU.Lock, "agents": d.cfg.Agents.Lock, "cycle": d.cfg.Cycle.Lock}[d.kind]
	log := map[string]string{"gpu": d.cfg.GPU.Log, "agents": d.cfg.Agents.Log, "cycle": d.cfg.Cycle.Log}[d.kind]
	if why := d.unopenable(lock); why != "" {
		d.wrong("lock", fmt.Sprintf("make it openable, or name another (lock in [%s])", d.kind), "%s", why)
	} else {
		d.ok("lock", "%s", lock)
	}
	if log != "" {
		d.checkDirectory("action log", filepath.Dir(log), "log")
	}
	if dir := d.cfg.Metrics.Textfile; dir != "" {
		d.checkDirectory("metrics", dir, "textfile")
	}
}

// checkDirectory tries to write into a directory that a pass writes into, and
// makes if it is missing.
func (d *doctor) checkDirectory(name, dir, key string) {
	mend := fmt.Sprintf("make it writable for %s, or name another (%s)", userName(), key)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := dir
		for errors.Is(err, fs.ErrNotExist) && parent != "/" {
			parent = filepath.Dir(parent)
			_, err = os.Stat(parent)
		}
		if err == nil {
			err = unix.Access(parent, unix.W_OK|unix.X_OK)
		}
		switch {
		case err != nil:
			d.wrong(name, mend, "%s is missing and cannot be made: %s: %v", dir, parent, err)
		case d.place.user:
			d.warn(name, "mkdir -p "+dir, "%s is missing, and the unit may only write to directories that are there", dir)
		default:
			d.ok(name, "%s is missing; the first pass makes it", dir)
		}
		return
	case err != nil:
		d.wrong(name, mend, "%v", err)
		return
	case !info.IsDir():
		d.wrong(name, mend, "%s is no directory", dir)
		return
	}
	if owner := int(info.Sys().(*syscall.Stat_t).Uid); key == "state_dir" && owner != os.Geteuid() {
		d.wrong(name, "run tickdog as its owner, or chown it", "%s belongs to another user (%d)", dir, owner)
		return
	}
	if err := tryWriting(dir); err != nil {
		d.wrong(name, mend, "%s: %v", dir, err)
		return
	}
	d.ok(name, "%s", dir)
}

// tryWriting writes a file and takes it away again: the only test that sees a
// full disk, a quota and a read-only mount alike.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, ".tickdog-doctor-*")
	if err != nil {
		return plainPathError(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 4096))
	return plainPathError(errors.Join(err, f.Close()))
}

// plainPathError is the error without the name of a file that nobody knows.
func plainPathError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// unopenable is why a lock file cannot be opened. It is not taken: that would
// cost a pass that starts just now its tick.
func (d *doctor) unopenable(lock string) string {
	f, err := os.Open(lock)
	if err == nil {
		f.Close()
		return ""
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	if err := unix.Access(filepath.Dir(lock), unix.W_OK|unix.X_OK); err != nil {
		return fmt.Sprintf("%s cannot be made: %s: %v", lock, filepath.Dir(lock), err)
	}
	return ""
}

// checkChannels asks the board and ntfy, without telling them anything.
func (d *doctor) checkChannels(send bool) {
	if b := d.cfg.Notify.Board; b.URL != "" {
		status, _, err := notify.Get(d.ctx, strings.TrimRight(b.URL, "/")+"/health")
		switch {
		case err != nil:
			d.wrong("board", "start it, or correct url in [notify.board]; alerts wait in the outbox meanwhile", "%s: %v", b.URL, err)
		case status/100 != 2:
			d.warn("board", "see what runs at url in [notify.board]", "%s: /health answers %d", b.URL, status)
		default:
			d.ok("board", "%s", b.URL)
		}
	}
	if n := d.cfg.Notify.Ntfy; n.URL != "" {
		token, err := d.ntfyToken(n)
		if err != nil {
			d.wrong("ntfy", "make token_file readable, or leave it out", "%v", err)
		} else {
			d.checkNtfy(token)
		}
	}
	if d.cfg.Notify.Board.URL == "" && d.cfg.Notify.Ntfy.URL == "" {
		d.warn("alerts", "name a url in [notify.ntfy] or [notify.board]", "nobody is told of anything but by the log")
		return
	}
	if send {
		d.sendTestAlert()
	}
}

func (d *doctor) checkNtfy(token string) {
	err := notify.CheckNtfy(d.ctx, d.cfg.Notify.Ntfy.URL, token)
	var refused notify.Refused
	switch {
	case errors.As(err, &refused) && token == "":
		d.wrong("ntfy", "put a token into /etc/credstore/ntfy-token or name a token_file", "it wants a token: %v", refused.Err)
	case errors.As(err, &refused):
		d.wrong("ntfy", "make a new token, or allow this one to write to the topic", "it refuses the token: %v", refused.Err)
	case err != nil:
		d.wrong("ntfy", "see whether url in [notify.ntfy] can be reached from here; alerts wait in the outbox meanwhile", "%v", err)
	default:
		d.ok("ntfy", "answers")
	}
}

// sendTestAlert goes past the outbox: a test that fails is not to be kept.
func (d *doctor) sendTestAlert() {
	channels, _ := d.channels(d.cfg) // a token that can't be read was told above
	for _, channel := range channels {
		err := channel.Send(d.ctx, notify.Alert{
			Name: d.name, Title: d.name + ": a test", Kind: "report", At: d.now.Wall,
			Text: d.name + ": a test alert, sent by tickdog doctor on " + hostname(),
		})
		if err != nil {
			d.wrong("test alert", "", "%s: %v", channel.Name(), err)
		} else {
			d.ok("test alert", "%s took it", channel.Name())
		}
	}
}

// checkOutbox tells what waits, and what will never be delivered.
func (d *doctor) checkOutbox() {
	parked, late := 0, 0
	var why string
	for _, e := range d.outbox.Waiting(d.now) {
		switch {
		case e.Parked != "":
			parked++
			why = e.Channel + ": " + e.Parked
		case d.now.Wall.Sub(e.At) > 5*time.Minute:
			late++
			why = e.Channel + ": " + e.Failure
		}
	}
	switch dir := d.dir.Path("outbox"); {
	case parked > 0:
		d.wrong("outbox", fmt.Sprintf("mend the channel; what is old news can be deleted in %s", dir), "%d refused alerts lie there (%s)", parked, why)
	case late > 0:
		d.warn("outbox", "they are tried again by themselves", "%d alerts wait for longer than 5 min (%s)", late, why)
	default:
		d.ok("outbox", "nothing waits")
	}
}
