package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tickdog/state"

	"github.com/urfave/cli/v2"
)

// longestPause bounds a pause, so that it ends by itself whatever was typed
// and whatever a clock was set to when it was made.
const longestPause = 30 * 24 * time.Hour

const pauseHeader = "epoch_it_ends why …; deleting this ends the pause at once"

func (p *program) pauseCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:      "pause",
		Usage:     "let a guard look and say but not act, for a while",
		ArgsUsage: "gpu|agents",
		Description: `A pause always ends by itself; a second one takes the place of the first.
While 'gpu' is paused its temperature rule still stops a hot card, and when the
pause ends the busy count starts over. While 'agents' is paused nothing is
restarted. Waits for a pass that is under way.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "for", Usage: "how long: a `TIME` like 90m, 2h or 7200 (seconds); at most 720h"},
			&cli.StringFlag{Name: "why", Usage: "a `TEXT` that every pass repeats, for whoever wonders"},
			dryRunFlag("say what would be written, and write nothing"),
		},
		Action: p.pause,
	}, 1, 1)
}

func (p *program) resumeCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:        "resume",
		Usage:       "end a pause before its time",
		ArgsUsage:   "gpu|agents",
		Description: "Waits for a pass that is under way.",
		Flags:       []cli.Flag{dryRunFlag("say what would be done, and do nothing")},
		Action:      p.resume,
	}, 1, 1)
}

func dryRunFlag(usage string) cli.Flag { return &cli.BoolFlag{Name: "dry-run", Usage: usage} }

func (p *program) pause(c *cli.Context) error {
	if c.String("for") == "" {
		return errors.New("pause needs --for TIME, like --for 2h: a pause always ends by itself")
	}
	length, err := secondsOrDuration(c.String("for"))
	if err != nil {
		return fmt.Errorf("--for: %v", err)
	}
	if length < time.Second || length > longestPause {
		return fmt.Errorf("--for: %v is not between 1s and %.0fh", length, longestPause.Hours())
	}
	why := oneLine(c.String("why"))
	if why == "" {
		why = "no reason given"
	}
	h, err := p.hold(c)
	if err != nil {
		return err
	}
	defer h.release()
	now := p.moment()
	until := now.Wall.Add(length)
	line := strconv.FormatInt(until.Unix(), 10) + " " + why
	if err := h.dir.Save(h.name+"-pause", pauseHeader, []string{line}); err != nil {
		return err
	}
	text := fmt.Sprintf("paused until %s: %s", until.Format(time.DateTime), why)
	if h.kind == "gpu" {
		text += "; the temperature rule still stops a hot card"
	}
	h.did(h.name, text)
	return nil
}

func (p *program) resume(c *cli.Context) error {
	h, err := p.hold(c)
	if err != nil {
		return err
	}
	defer h.release()
	now := p.moment()
	pause, found := pauseOf{}, false
	h.dir.Load(h.name+"-pause", now, func(text string) (err error) {
		pause, err = parsePause(text, now.Epoch())
		found = err == nil && pause.ends > now.Epoch()
		return err
	})
	if err := h.dir.Remove(h.name + "-pause"); err != nil {
		return err
	}
	if !found {
		h.say(h.name, "was not paused")
		return nil
	}
	h.did(h.name, fmt.Sprintf("resumed (was paused until %s: %s)", pause.until(now.Wall.Location()), pause.why))
	return nil
}

// pauseOf is the line of a pause file.
type pauseOf struct {
	ends int64 // epoch
	why  string
}

func (p pauseOf) until(zone *time.Location) string {
	return time.Unix(p.ends, 0).In(zone).Format(time.DateTime)
}

func parsePause(text string, now int64) (pauseOf, error) {
	words := state.Split(text, 2)
	ends, err := strconv.ParseInt(words[0], 10, 64)
	switch {
	case err != nil:
		return pauseOf{}, fmt.Errorf("%q is no epoch", words[0])
	case ends-now > int64(longestPause.Seconds()):
		return pauseOf{}, fmt.Errorf("%d is more than %.0f hours away", ends, longestPause.Hours())
	case len(words) == 1:
		return pauseOf{ends, "no reason given"}, nil
	}
	return pauseOf{ends, words[1]}, nil
}

// paused says until when and why a person has paused this guard: "until
// 2026-09-28 00:00:00: new fans"; "" if nobody has. A pause that has ended is
// removed, and one that cannot be understood pauses nothing.
func (s *pass) paused() string {
	var pause pauseOf
	file := s.name + "-pause"
	found, good := s.load(file, func(text string) (err error) {
		pause, err = parsePause(text, s.now.Epoch())
		return err
	})
	switch {
	case !found || !good:
		return ""
	case pause.ends <= s.now.Epoch():
		if err := s.dir.Remove(file); err != nil {
			s.note("%v", err)
		}
		return ""
	}
	s.pausedUntil = pause.ends
	return "until " + pause.until(s.now.Wall.Location()) + ": " + pause.why
}

// holding is what a command needs that changes a guard's state from outside:
// the guard's state directory, while no pass of it is under way.
type holding struct {
	*program
	cfg    config
	kind   string // gpu, agents
	name   string // prefix of its state files
	dir    *state.Dir
	lock   *state.Lock
	dryRun bool
}

// hold takes hold of the guard that the command's argument names.
func (p *program) hold(c *cli.Context) (*holding, error) {
	kind := c.Args().First()
	if kind != "gpu" && kind != "agents" {
		return nil, fmt.Errorf("%s: there is no guard %q to %[1]s; there are gpu and agents", c.Command.Name, kind)
	}
	cfg, err := p.loadConfig(c, kind)
	if err != nil {
		return nil, err
	}
	return p.holdGuard(c, cfg, kind)
}

// holdGuard waits for the pass that is under way, if there is one, and says
// that it does. A pass ends within 270 s; a wait that takes longer is an error.
func (p *program) holdGuard(c *cli.Context, cfg config, kind string) (*holding, error) {
	h := &holding{program: p, cfg: cfg, kind: kind, name: cfg.GPU.Name, dryRun: c.Bool("dry-run")}
	path := cfg.GPU.Lock
	if kind == "agents" {
		h.name, path = cfg.Agents.Name, cfg.Agents.Lock
	}
	if h.dryRun {
		h.dir = state.View(cfg.StateDir)
		return h, nil
	}
	var err error
	if h.dir, err = state.Open(cfg.StateDir); err != nil {
		return nil, err
	}
	h.lock, err = state.TryLock(path)
	if errors.Is(err, state.ErrBusy) {
		fmt.Fprintf(p.stderr, "tickdog: a pass is under way and holds %s; waiting for it\n", path)
		ctx, end := context.WithTimeout(c.Context, passLimit+30*time.Second)
		defer end()
		h.lock, err = state.WaitLock(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *holding) release() { h.lock.Release() }

// did says what was done, or would have been.
func (h *holding) did(subject, text string) {
	if h.dryRun {
		text = "would be " + text
	}
	h.say(subject, text)
}

func (h *holding) say(subject, text string) {
	fmt.Fprintln(h.stdout, oneLine(subject+": "+text))
}
