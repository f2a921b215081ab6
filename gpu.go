package main

import (
	"fmt"
	"os"
	"strings"

	"tickdog/check"
	"tickdog/check/gpu"

	"github.com/urfave/cli/v2"
)

func (p *program) gpuCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:  "gpu",
		Usage: "one pass of the GPU guard: stops the container of a GPU that runs too long or too hot",
		Description: `Reads busy %, junction temperature and power from sysfs, rocm-smi or amd-smi.
Busy for --max-busy without a pause, or a junction of --hot-at at --hot-checks
checks in a row: the container is stopped. A reading that is missing counts as
neither. With --input a capture of one of the tools is read instead, and
nothing is touched:

   tickdog gpu --input capture.txt --repeat 31 --every 2m`,
		Flags: append(append(passFlags(), gpuLimitFlags()...),
			&cli.StringFlag{Name: "input", Usage: "read a capture from `FILE` (- is standard input) instead of the sensors; implies --dry-run, from an empty state, and shows every card"},
			&cli.IntFlag{Name: "repeat", Value: 1, Usage: "with --input: check it `N` times"},
			&cli.StringFlag{Name: "every", Value: defaultEvery, DefaultText: defaultEvery, Usage: "with --repeat: the `TIME` between two checks, 120 or 2m"},
		),
		Action: p.gpuPass,
	}, 0, 0)
}

// gpuPass is one pass.
func (p *program) gpuPass(c *cli.Context) error {
	cfg, err := p.loadConfig(c, "gpu")
	if err != nil {
		return err
	}
	if err := p.gpuLimits(&cfg, c.String); err != nil {
		return err
	}
	if c.IsSet("input") {
		return p.gpuInput(c, cfg)
	}
	if c.IsSet("repeat") || c.IsSet("every") {
		return fmt.Errorf("--repeat and --every go with --input; on a host the timer repeats")
	}
	s, err := p.newPass(c, cfg, "gpu", cfg.GPU.Name, c.Bool("dry-run"))
	if err != nil {
		return err
	}
	g := &gpuGuard{pass: s, gpuConfig: cfg.GPU}
	g.all = true

	if g.lock(cfg.GPU.Lock) == lockBusy { // a broken lock does not keep a hot card running
		return g.finish(false)
	}
	g.remembered()
	g.look()
	g.decide()
	g.save() // a stop is safe to repeat: it happens even if this fails
	if g.verdict.Stop {
		g.act()
		g.save()
	}
	g.tellBlind()
	g.say()
	return g.finish(true)
}

// gpuGuard is one pass of this guard.
type gpuGuard struct {
	*pass
	gpuConfig
	cards   gpuCards    // what is remembered
	seen    gpu.Seen    // what is seen
	verdict gpu.Verdict // what follows
	subject string      // the card of this pass
	next    gpu.State   // what will be remembered of it

	unsaved        bool // it could not be written down, and that was said
	action, result string
	wouldRun       [][]string
}

// look reads the sensors of the one card that this guard watches.
func (g *gpuGuard) look() {
	var sight gpu.Sight
	g.seen.Reading, sight = g.sensors().Watch(g.ctx, g.Card, g.cards.running(g.now, g.MaxGap), g.BusyAbove, g.IdleSamples)
	g.report.Source = sight.Source
	was := g.cards.watched(g.now, g.MaxGap)
	if g.Card == "" && was != "" && gpu.PCIAddress(g.seen.Reading.Card) != "" {
		if _, gone := gpu.Pick(sight.Cards, was); gone != "" { // nothing takes its place, though it is now the only one
			g.seen.Reading = gpu.Reading{Why: gone + "; name one with card = \"…\" if another is meant now"}
		}
	}
	g.subject = g.cards.subject(g.seen.Reading, g.Card, was)
}

func (g *gpuGuard) sensors() gpu.Source {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	return gpu.Source{
		Kind: g.Source, Sysfs: g.Sysfs, RocmSMI: g.RocmSMI, AmdSMI: g.AmdSMI,
		Timeout: g.ReadTimeout, Self: self, Run: g.runForLook,
	}
}

func (g *gpuGuard) decide() {
	g.seen.Paused = g.paused()
	g.next, g.verdict = gpu.Decide(g.cards.of(g.subject), g.seen, g.now, g.gpuConfig.limits())
	g.cards.set(g.subject, g.next)
}

// tellBlind tells, once an incident, that a rule has had no reading for a while.
func (g *gpuGuard) tellBlind() {
	if !g.verdict.TellBlind {
		return
	}
	g.tell(false, []string{"see_no_evil"}, "blind for %d passes: %s is not guarded (%s)", gpu.BlindAfter, g.subject, g.verdict.Reason)
	g.log(g.Log, fmt.Sprintf("blind %s %s", g.subject, g.verdict.Reason))
}

// say puts the verdict into the report, the history and the metrics.
func (g *gpuGuard) say() {
	v := gpuVerdict(g.subject, g.seen.Reading, g.verdict)
	v.Action, v.Result, v.WouldRun = g.action, g.result, g.wouldRun
	g.report.Verdicts = append(g.report.Verdicts, v)
	g.remember(gpuHistoryLine(g.now, g.seen, v))
	g.measured.add(gpuStreak, g.next.Busy.Seconds(), "pass", "gpu", "subject", g.subject)
	g.measured.add(gpuHotChecks, float64(g.next.HotChecks), "pass", "gpu", "subject", g.subject)
}

// gpuVerdict is a card's verdict as every report has it.
func gpuVerdict(subject string, r gpu.Reading, v gpu.Verdict) verdict {
	known := func(n gpu.Number) *float64 {
		if !n.Known {
			return nil
		}
		return &n.Value
	}
	return verdict{
		Subject: subject, State: v.State, Verdict: v.Word, Reason: v.Reason,
		Reading: &gpuReading{Busy: known(r.Busy), Junction: known(r.Junction), Power: known(r.Power)},
	}
}

// because adds to the verdict's reason.
func (g *gpuGuard) because(word check.Verdict, format string, args ...any) {
	g.verdict.Word = word
	g.verdict.Reason = strings.TrimPrefix(g.verdict.Reason+"; "+fmt.Sprintf(format, args...), "; ")
}
