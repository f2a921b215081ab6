package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tickdog/check/gpu"

	"github.com/urfave/cli/v2"
)

// gpuOverride is a key of [gpu] that a flag, and maybe the environment, may set.
type gpuOverride struct {
	key, flag, env string
	usage          string // with the value's name in backquotes and the default
	set            func(g *gpuConfig, value string) error
}

var gpuOverrides = []gpuOverride{
	{"max_busy", "max-busy", "TICKDOG_MAX_BUSY", "stop after this `TIME` of being busy without a pause, 3600 or 1h (default: 1h)", func(g *gpuConfig, value string) error {
		d, err := secondsOrDuration(value)
		if err == nil && d < time.Second {
			err = fmt.Errorf("%v is too short; at least 1s", d)
		}
		g.MaxBusy = d
		return err
	}},
	{"hot_at", "hot-at", "TICKDOG_HOT_AT", "hot is a junction at or above `CELSIUS` (default: 97)", func(g *gpuConfig, value string) (err error) {
		if g.HotAt, err = strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("%q is not a number of °C; write it like 97", value)
		}
		if why := badHotAt(g.HotAt); why != "" {
			return fmt.Errorf("%s", why)
		}
		return nil
	}},
	{"hot_checks", "hot-checks", "TICKDOG_HOT_CHECKS", "stop at `N` hot checks in a row (default: 3)", func(g *gpuConfig, value string) (err error) {
		if g.HotChecks, err = strconv.Atoi(value); err != nil || g.HotChecks < 1 {
			return fmt.Errorf("%q is not a number of checks; a whole number from 1", value)
		}
		return nil
	}},
	{"container", "container", "TICKDOG_CONTAINER", "the `CONTAINER` to stop (default: lyra-brain)", func(g *gpuConfig, value string) error {
		g.Container = value
		if why := badContainer(value); why != "" {
			return fmt.Errorf("%s", why)
		}
		return nil
	}},
	{"card", "card", "", "the `CARD` to guard: PCI address, card number or unique id (default: the only one that has a junction sensor)", func(g *gpuConfig, value string) error {
		g.Card = value
		return nil
	}},
}

// gpuLimitFlags are the flags of the limits. Each takes a text, so that one
// place says what may be written, for a flag and for the environment.
func gpuLimitFlags() (flags []cli.Flag) {
	for _, o := range gpuOverrides {
		usage := o.usage
		if o.env != "" {
			usage += " [$" + o.env + "]"
		}
		flags = append(flags, &cli.StringFlag{Name: o.flag, Usage: usage})
	}
	return flags
}

// gpuLimits lets flags, and else the environment, win over the configuration,
// and notes where each value came from. flag gives a flag's text ("" = not
// given); a command that has no such flags gives one that always says "".
func (p *program) gpuLimits(cfg *config, flag func(name string) string) error {
	for _, o := range gpuOverrides {
		value, from := flag(o.flag), "--"+o.flag
		origin := "flag " + from
		if value == "" && o.env != "" {
			value, from = strings.TrimSpace(p.getenv(o.env)), o.env
			origin = "environment " + o.env
		}
		if value == "" {
			continue
		}
		if err := o.set(&cfg.GPU, value); err != nil {
			return fmt.Errorf("%s: %v", from, err)
		}
		cfg.origin["gpu."+o.key] = origin
	}
	return nil
}

// secondsOrDuration reads 3600 and 1h alike.
func secondsOrDuration(text string) (time.Duration, error) {
	if s, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(s) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time; write seconds (3600) or a unit (90s, 10m, 1h)", text)
	}
	return d, nil
}

// limits are the numbers of the two rules.
func (g gpuConfig) limits() gpu.Limits {
	return gpu.Limits{
		MaxBusy: g.MaxBusy, BusyAbove: g.BusyAbove, HotAt: g.HotAt, HotChecks: g.HotChecks,
		MaxGap: g.MaxGap, MinGap: g.MinGap,
	}
}
