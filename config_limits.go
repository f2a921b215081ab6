package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// validate notes every value that no pass could work with.
func (d *decoder) validate() {
	cfg := d.cfg
	d.notEmpty("state_dir", cfg.StateDir)
	d.validateGPU(cfg.GPU)
	d.validateAgents(cfg.Agents)
	d.validateCycle(cfg.Cycle)
	d.maybeURL("notify.ntfy.url", cfg.Notify.Ntfy.URL)
	d.maybeURL("notify.board.url", cfg.Notify.Board.URL)
	d.maybeURL("notify.heartbeat.url", cfg.Notify.Heartbeat.URL)
	d.notEmpty("notify.board.agent", cfg.Notify.Board.Agent)
}

func (d *decoder) validateGPU(g gpuConfig) {
	d.fileName("gpu.name", g.Name)
	d.notEmpty("gpu.lock", g.Lock)
	d.oneOf("gpu.source", g.Source, "auto", "sysfs", "rocm-smi", "amd-smi")
	d.notEmpty("gpu.sysfs", g.Sysfs)
	d.notEmpty("gpu.rocm_smi", g.RocmSMI)
	d.notEmpty("gpu.amd_smi", g.AmdSMI)
	d.notEmpty("gpu.docker", g.Docker)
	d.containerName("gpu.container", g.Container)
	d.within("gpu.read_timeout", g.ReadTimeout, 100*time.Millisecond, time.Minute)
	d.atLeast("gpu.max_busy", g.MaxBusy, time.Second)
	if g.BusyAbove < 0 || g.BusyAbove >= 100 {
		d.wrong("gpu.busy_above", "%v would never tell busy from idle; a percentage from 0 to 99", g.BusyAbove)
	}
	if why := badHotAt(g.HotAt); why != "" {
		d.wrong("gpu.hot_at", "%s", why)
	}
	if g.HotChecks < 1 {
		d.wrong("gpu.hot_checks", "%d checks cannot be counted; at least 1 (the default is 3)", g.HotChecks)
	}
	d.atLeast("gpu.max_gap", g.MaxGap, time.Second)
	d.atLeast("gpu.min_gap", g.MinGap, 0)
	if g.IdleSamples < 0 || g.IdleSamples > 20 {
		d.wrong("gpu.idle_samples", "%d is outside 0 to 20 (0 = believe the first sample)", g.IdleSamples)
	}
	d.within("gpu.stop_timeout", g.StopTimeout, time.Second, 2*time.Minute)
}

// badHotAt is why a junction limit cannot be used: outside it no reading would
// ever count, since a junction is only believed above 0 and below 150 °C.
func badHotAt(celsius float64) string {
	if celsius > 0 && celsius < 150 {
		return ""
	}
	return fmt.Sprintf("%v °C is never reached by a junction that can be believed; above 0 and below 150 (the default is 97)", celsius)
}

func (d *decoder) validateAgents(a agentsConfig) {
	d.fileName("agents.name", a.Name)
	d.notEmpty("agents.lock", a.Lock)
	d.oneOf("agents.scope", a.Scope, "user", "system")
	d.oneOf("agents.gate", a.Gate, "on", "off")
	d.oneOf("agents.alerts", a.Alerts, "incidents", "restarts")
	d.within("agents.health_timeout", a.HealthTimeout, 10*time.Millisecond, time.Minute)
	d.within("agents.dispatch_timeout", a.DispatchTimeout, 10*time.Millisecond, time.Minute)
	d.atLeast("agents.busy_cap", a.BusyCap, 0)
	d.atLeast("agents.busy_max", a.BusyMax, time.Second)
	d.atLeast("agents.start_grace", a.StartGrace, 0)
	d.atLeast("agents.restart_every", a.RestartEvery, time.Second)
	d.within("agents.restart_timeout", a.RestartTimeout, time.Second, 2*time.Minute)
	d.within("agents.settle", a.Settle, 0, 2*time.Minute)
	if a.FreezeAfter < 1 {
		d.wrong("agents.freeze_after", "%d attempts would never restart anything; at least 1 (the default is 3)", a.FreezeAfter)
	}
	d.within("agents.pass_budget", a.PassBudget, time.Second, 4*time.Minute)
	d.atLeast("agents.max_gap", a.MaxGap, time.Second)
	d.atLeast("agents.min_gap", a.MinGap, 0)
	seen := map[string]string{}
	for i, one := range a.Agent {
		key := fmt.Sprintf("agents.agent[%d]", i)
		d.notEmpty(key+".name", one.Name)
		if !strings.HasSuffix(one.Unit, ".service") || strings.ContainsAny(one.Unit, " \t\n/*?[") || one.Unit == ".service" || one.Unit[0] == '-' {
			d.wrong(key+".unit", "%q is not a service; write it like \"lab-a2a-sol.service\"", one.Unit)
		}
		if why := badURL(one.URL); why != "" {
			d.wrong(key+".url", "%s", why)
		}
		for _, once := range [][2]string{{"name", one.Name}, {"unit", one.Unit}, {"url", one.URL}} {
			id := once[0] + " " + once[1]
			if first, twice := seen[id]; twice && once[1] != "" {
				d.wrong(key+"."+once[0], "%q is %s's already; each agent has its own", once[1], first)
			}
			seen[id] = key
		}
	}
}

// longestCycle is more than any job that must end may take.
const longestCycle = 30 * 24 * time.Hour

func (d *decoder) validateCycle(c cycleConfig) {
	d.fileName("cycle.name", c.Name)
	d.notEmpty("cycle.lock", c.Lock)
	d.between("cycle.budget", c.Budget, time.Second, longestCycle)
	d.between("cycle.call_ceiling", c.CallCeiling, 100*time.Millisecond, longestCycle)
	d.between("cycle.kill_grace", c.KillGrace, 0, time.Minute)
	names := map[string]bool{}
	for i, s := range c.Stage {
		key := fmt.Sprintf("cycle.stage[%d]", i)
		d.notEmpty(key+".name", s.Name)
		if names[s.Name] && s.Name != "" {
			d.wrong(key+".name", "%q is the name of an earlier stage already", s.Name)
		}
		names[s.Name] = true
		if len(s.Calls) == 0 {
			d.wrong(key+".calls", "a stage without calls does nothing; write calls = [[\"program\", \"argument\"]]")
		}
		for _, call := range s.Calls {
			if len(call) == 0 || call[0] == "" {
				d.wrong(key+".calls", "an empty call; each is a program and its arguments, like [\"python3\", \"-m\", \"lyra.dream\"]")
			}
		}
	}
}

func (d *decoder) notEmpty(key, value string) {
	if strings.TrimSpace(value) == "" {
		d.wrong(key, "is empty")
	}
}

// fileName guards a value that becomes the beginning of file names in the state directory.
func (d *decoder) fileName(key, value string) {
	if value == "" || strings.ContainsAny(value, "/ \t\n\x00") || value[0] == '.' {
		d.wrong(key, "%q cannot begin file names; letters, digits and hyphens", value)
	}
}

// containerName refuses what docker would take for a flag or could never be a name.
func (d *decoder) containerName(key, value string) {
	if why := badContainer(value); why != "" {
		d.wrong(key, "%s", why)
	}
}

func badContainer(value string) string {
	if value == "" || value[0] == '-' || strings.ContainsAny(value, " \t\n/\x00") {
		return fmt.Sprintf("%q is not a container's name or id; 'docker ps' shows them", value)
	}
	return ""
}

func (d *decoder) oneOf(key, value string, words ...string) {
	if !slices.Contains(words, value) {
		d.wrong(key, "%q is not one of %s", value, strings.Join(words, ", "))
	}
}

func (d *decoder) atLeast(key string, value, least time.Duration) {
	if value < least {
		d.wrong(key, "%v is too short; at least %v", value, least)
	}
}

func (d *decoder) between(key string, value, least, most time.Duration) {
	d.atLeast(key, value, least)
	if value > most {
		d.wrong(key, "%v is too long; at most %v", value, most)
	}
}

func (d *decoder) within(key string, value, least, most time.Duration) {
	if value < least || value > most {
		d.wrong(key, "%v is outside %v to %v: a pass must end within 270 s", value, least, most)
	}
}

func (d *decoder) maybeURL(key, value string) {
	if value == "" {
		return
	}
	if why := badURL(value); why != "" {
		d.wrong(key, "%s", why)
	}
}
