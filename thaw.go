package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

func (p *program) thawCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:      "thaw",
		Usage:     "let tickdog restart a unit again that it had given up on",
		ArgsUsage: "UNIT",
		Description: `A unit that freeze_after restarts did not help is frozen until it answers by
itself or is thawed. Thawing forgets those attempts; the budget of one restart
in restart_every still holds. UNIT may be an agent's name, or lack '.service'.
Waits for a pass that is under way. Exit status 1 if there is no such unit.`,
		Flags:  []cli.Flag{dryRunFlag("say what would be thawed, and write nothing")},
		Action: p.thaw,
	}, 1, 1)
}

func (p *program) thaw(c *cli.Context) error {
	cfg, err := p.loadConfig(c, "agents")
	if err != nil {
		return err
	}
	h, err := p.holdGuard(c, cfg, "agents")
	if err != nil {
		return err
	}
	defer h.release()

	now := p.moment()
	memory := openAgentsMemory(h.dir, h.name)
	var known []string
	for _, g := range cfg.Agents.Agent {
		known = append(known, g.Unit)
	}
	memory.load(now, known, func(format string, args ...any) {
		fmt.Fprintf(p.stderr, "tickdog: %s\n", oneLine(fmt.Sprintf(format, args...)))
	})
	for unit := range memory.fleet.Frozen { // also one that is configured no more
		known = append(known, unit)
	}
	unit, ok := findUnit(c.Args().First(), known, cfg.Agents.Agent)
	if !ok {
		return fmt.Errorf("there is no unit %q; there are %s", c.Args().First(), unitList(known))
	}

	frozen, was := memory.fleet.Frozen[unit]
	if !was {
		h.say(unit, "was not frozen")
		return nil
	}
	delete(memory.fleet.Frozen, unit)
	if attempt, tried := memory.fleet.Attempts[unit]; tried {
		attempt.Count = 0
		memory.fleet.Attempts[unit] = attempt
	}
	// The attempts first: a unit that is no longer frozen and still has too
	// many would be frozen again by the next pass.
	if err := memory.saveRestarts(); err != nil {
		return err
	}
	if err := memory.saveFrozen(); err != nil {
		return err
	}
	text := fmt.Sprintf("thawed (frozen since %s: %s)", time.Unix(frozen.Epoch, 0).In(now.Wall.Location()).Format(time.DateTime), frozen.Reason)
	if free := memory.fleet.Free(unit, now, cfg.Agents.limits()); free > 0 {
		text += "; its next restart is free at " + now.Wall.Add(free).Format(time.TimeOnly)
	}
	h.did(unit, text)
	return nil
}

// findUnit is the unit that a person means.
func findUnit(word string, units []string, agents []agentConfig) (unit string, ok bool) {
	for _, u := range units {
		if word == u || word+".service" == u {
			return u, true
		}
	}
	for _, g := range agents {
		if word == g.Name {
			return g.Unit, true
		}
	}
	return "", false
}

func unitList(units []string) string {
	if len(units) == 0 {
		return "none: no [[agents.agent]] is configured"
	}
	return strings.Join(units, ", ")
}
