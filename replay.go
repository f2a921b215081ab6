package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"tickdog/check/agents"
	"tickdog/check/gpu"

	"github.com/urfave/cli/v2"
)

func (p *program) replayCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:      "replay",
		Usage:     "run what was recorded through the same rules, at any limits",
		ArgsUsage: "FILE",
		Description: `FILE is a guard's own <name>-history from its state directory, or readings of a
GPU, one a line:

   epoch busy junction [watts]      1790546400 97 88.5       (- is no reading)

or a trace of captures: what rocm-smi, amd-smi or nvidia-smi printed, each
after a line '# epoch'. It says when the guard would have acted and why, how
near it came, the longest busy stretch and the hottest moment, and draws it.
Limits in a list are compared side by side; those not given are the guard's own:

   tickdog replay --max-busy 30m,1h,2h --hot-at 90,97 mi50-watchdog-history

What was recorded after a stop or a restart would not have happened. It is not
judged, until the card was idle and not hot, or the agent has answered.`,
		Flags: append(replayFlags(),
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object, with every stop, restart and near miss"},
			&cli.BoolFlag{Name: "no-picture", Usage: "print the tables only"},
		),
		Action: p.replay,
	}, 1, 1)
}

// replayFlags are the limits that can be compared, each a list.
func replayFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "max-busy", Usage: "GPU: stop after this `TIME` of being busy, 3600 or 1h, or a list"},
		&cli.StringFlag{Name: "hot-at", Usage: "GPU: hot is a junction at or above `CELSIUS`, or a list"},
		&cli.StringFlag{Name: "hot-checks", Usage: "GPU: stop at `N` hot checks in a row, or a list"},
		&cli.StringFlag{Name: "card", Usage: "GPU: only this `CARD`"},
		&cli.StringFlag{Name: "gate", Usage: "agents: the busy gate, `on` or off, or on,off"},
		&cli.StringFlag{Name: "busy-cap", Usage: "agents: wedged is without a sign of work for this `TIME`, or a list"},
	}
}

// replayReport is what replay says.
type replayReport struct {
	File   string        `json:"file"`
	Form   string        `json:"form"`
	Note   string        `json:"note,omitempty"` // what of the file could not be read
	Cards  []cardReplay  `json:"cards,omitempty"`
	Agents *agentsReplay `json:"agents,omitempty"`
}

func (p *program) replay(c *cli.Context) error {
	cfg, err := p.loadConfig(c)
	if err != nil {
		return err
	}
	if err := p.gpuLimits(&cfg, func(string) string { return "" }); err != nil {
		return err
	}
	path := c.Args().First()
	rec, err := p.readRecording(path)
	if err != nil {
		return err
	}
	wrong, of := []string{"gate", "busy-cap"}, formAgents
	if rec.form == formAgents {
		wrong, of = []string{"max-busy", "hot-at", "hot-checks", "card"}, "a GPU's readings"
	}
	for _, flag := range wrong {
		if c.IsSet(flag) {
			return fmt.Errorf("--%s is for %s; %s holds %s", flag, of, path, rec.form)
		}
	}
	r := replayReport{File: path, Form: rec.form}
	if rec.unread > 0 {
		r.Note = fmt.Sprintf("%s could not be read; the first: %s:%s", count(rec.unread, "line"), path, rec.firstBad)
	}
	if rec.form == formAgents {
		trials, err := agentsTrials(cfg.Agents, c)
		if err != nil {
			return err
		}
		r.Agents = replayAgents(rec, trials)
	} else {
		trials, err := gpuTrials(cfg.GPU, c)
		if err != nil {
			return err
		}
		for _, track := range rec.cards {
			if want := c.String("card"); want == "" || (gpu.Reading{Card: track.subject}).Is(want) {
				r.Cards = append(r.Cards, replayCard(track, trials))
			}
		}
		if len(r.Cards) == 0 {
			return fmt.Errorf("--card: %s is not in %s; there is %s", c.String("card"), path, trackNames(rec.cards))
		}
	}
	if c.Bool("json") {
		return p.printJSON(r)
	}
	pic := picture{unicode: p.unicodeTerminal(), columns: p.columns()}
	pic.off = c.Bool("no-picture")
	_, err = io.WriteString(p.stdout, r.text(pic))
	return err
}

func trackNames(tracks []*cardTrack) string {
	var names []string
	for _, t := range tracks {
		names = append(names, t.subject)
	}
	return strings.Join(names, ", ")
}

// maxTrials is what a person can still compare.
const maxTrials = 100

// gpuTrials are all combinations of the limits given.
func gpuTrials(g gpuConfig, c *cli.Context) ([]gpu.Limits, error) {
	trials := []gpuConfig{g}
	for _, o := range gpuOverrides {
		if o.flag == "card" || o.flag == "container" || !c.IsSet(o.flag) {
			continue
		}
		var more []gpuConfig
		for _, one := range trials {
			for _, value := range strings.Split(c.String(o.flag), ",") {
				if err := o.set(&one, strings.TrimSpace(value)); err != nil {
					return nil, fmt.Errorf("--%s: %v", o.flag, err)
				}
				more = append(more, one)
			}
		}
		trials = more
	}
	var limits []gpu.Limits
	for _, one := range trials {
		limits = append(limits, one.limits())
	}
	return limits, tooMany(len(limits))
}

// agentsTrials are all combinations of the agents' limits given.
func agentsTrials(a agentsConfig, c *cli.Context) ([]agents.Limits, error) {
	gates, caps := []bool{a.Gate != "off"}, []time.Duration{a.BusyCap}
	if c.IsSet("gate") {
		gates = nil
		for _, word := range strings.Split(c.String("gate"), ",") {
			switch word = strings.TrimSpace(word); word {
			case "on", "off":
				gates = append(gates, word == "on")
			default:
				return nil, fmt.Errorf("--gate: %q is neither on nor off", word)
			}
		}
	}
	if c.IsSet("busy-cap") {
		caps = nil
		for _, word := range strings.Split(c.String("busy-cap"), ",") {
			d, err := secondsOrDuration(strings.TrimSpace(word))
			if err != nil {
				return nil, fmt.Errorf("--busy-cap: %v", err)
			}
			caps = append(caps, d)
		}
	}
	var limits []agents.Limits
	for _, gate := range gates {
		for i, cap := range caps {
			if !gate && i > 0 {
				break // without the gate nothing asks for it
			}
			l := a.limits()
			l.Gate, l.BusyCap = gate, cap
			limits = append(limits, l)
		}
	}
	return limits, tooMany(len(limits))
}

func tooMany(n int) error {
	if n > maxTrials {
		return fmt.Errorf("%d combinations of limits are more than anybody can compare; at most %d", n, maxTrials)
	}
	return nil
}

// event is one thing that would have happened, or nearly.
type event struct {
	At      time.Time `json:"at"`
	Subject string    `json:"subject,omitempty"`
	Reason  string    `json:"reason"`
}

// bounds are the first and the last of n moments; clocks are set back at times.
func bounds(n int, at func(int) time.Time) (from, to time.Time) {
	from, to = at(0), at(0)
	for i := range n {
		if at(i).Before(from) {
			from = at(i)
		}
		if at(i).After(to) {
			to = at(i)
		}
	}
	return from, to
}

// plain writes 1h0m0s as 1h.
func plain(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

const minuteLayout = "2006-01-02 15:04"

// stretch is a time from one moment to another, as a person says it.
func stretch(d time.Duration) string {
	d = d.Round(time.Second)
	switch days, hours := int(d.Hours())/24, int(d.Hours())%24; {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case days < 2:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days %d h", days, hours)
	}
}
