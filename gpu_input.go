package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"tickdog/check"
	"tickdog/check/gpu"
	"tickdog/units"

	"github.com/urfave/cli/v2"
)

// defaultEvery is the timer's period.
const defaultEvery = "2m"

// maxCapture is far more than a tool prints; what is longer is no capture.
const maxCapture = 4 << 20

// gpuInput shows what a capture says and what the rules would make of it,
// from an empty state and as often as asked. Nothing is stopped: the card of a
// capture is in the past, or on another machine.
func (p *program) gpuInput(c *cli.Context, cfg config) error {
	repeat := c.Int("repeat")
	if repeat < 1 || repeat > 100000 {
		return fmt.Errorf("--repeat: %d checks cannot be made; from 1 to 100000", repeat)
	}
	every, err := secondsOrDuration(c.String("every"))
	if err == nil && every < 0 {
		err = fmt.Errorf("%v is in the past", every)
	}
	if err != nil {
		return fmt.Errorf("--every: %v", err)
	}
	ctx, end := context.WithTimeout(c.Context, passLimit)
	defer end()
	path := c.String("input")
	cards, why := p.readCapture(ctx, path)
	if len(cards) == 0 {
		cards = []gpu.Reading{{Card: noCard, Why: why}}
	}
	docker := units.Docker{Program: cfg.GPU.Docker}
	states := make([]gpu.State, len(cards))
	now := p.moment()
	for range repeat {
		s := pass{program: p, now: now, dryRun: true, json: c.Bool("json"), all: true}
		s.report = report{Pass: "gpu", At: now.Wall.Format(time.RFC3339), DryRun: true, Source: path}
		for i, r := range cards {
			var v gpu.Verdict
			states[i], v = gpu.Decide(states[i], gpu.Seen{Reading: r}, now, cfg.GPU.limits())
			shown := gpuVerdict(r.Card, r, v)
			if shown.Verdict == check.Act {
				shown.Action, shown.Result = "stop", "dry-run"
				shown.WouldRun = [][]string{docker.StopArgv(cfg.GPU.Container, cfg.GPU.StopTimeout)}
			}
			s.report.Verdicts = append(s.report.Verdicts, shown)
		}
		s.print()
		now.Wall, now.Boot = now.Wall.Add(every), now.Boot+every.Seconds()
	}
	return nil
}

// readCapture reads the cards of a capture; why says why there are none. A
// pipe that says nothing is not waited for beyond ctx.
func (p *program) readCapture(ctx context.Context, path string) (cards []gpu.Reading, why string) {
	type read struct {
		text []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		text, err := p.captureText(path)
		done <- read{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, "cannot read the capture: it does not end"
	case got := <-done:
		switch {
		case got.err != nil:
			return nil, fmt.Sprintf("cannot read the capture: %s: %v", path, withoutPath(got.err))
		case len(got.text) > maxCapture:
			return nil, "cannot read the capture: it is longer than one can be"
		}
		cards, why = gpu.Parse(got.text)
		return cards, why
	}
}

func (p *program) captureText(path string) ([]byte, error) {
	in, err := p.open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, maxCapture+1))
}
