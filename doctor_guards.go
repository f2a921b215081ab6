package main

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/check/agents"
	"tickdog/check/cycle"
	"tickdog/units"

	"github.com/urfave/cli/v2"
)

// askManager asks systemd for the guard's service and timer.
func (d *doctor) askManager(c *cli.Context) (map[string]map[string]string, error) {
	return d.place.ctl.Show(c.Context, []string{d.unit + ".service", d.unit + ".timer"}, []string{
		"LoadState", "ActiveState", "SubState", "Result", "FragmentPath", "UnitFileState", "NeedDaemonReload",
		"Environment", "TimeoutStartUSec", "NextElapseUSecMonotonic", "NextElapseUSecRealtime",
	})
}

// checkManager: the user's manager has to run, also when the user is logged out.
func (d *doctor) checkManager(err error) {
	switch {
	case err != nil && d.place.user:
		d.wrong("user manager", "loginctl enable-linger "+userName(), "it cannot be asked: %v", err)
	case err != nil:
		d.wrong("systemd", "", "it cannot be asked: %v", err)
	case d.place.user && !lingers():
		d.wrong("linger", "loginctl enable-linger "+userName(), "the timer stops when %s logs out, and does not start at boot", userName())
	case d.place.user:
		d.ok("linger", "on for %s", userName())
	}
}

func (d *doctor) checkService(unit map[string]string) {
	name := d.unit + ".service"
	journal := "see journalctl -u " + d.unit
	if d.place.user {
		journal = "see journalctl --user -u " + d.unit
	}
	switch {
	case unit["LoadState"] == "not-found":
		d.wrong("service", "tickdog units install "+d.kind, "%s is not installed", name)
	case unit["LoadState"] == "masked":
		d.wrong("service", strings.Join(d.place.ctl.UnmaskArgv(name), " "), "%s is masked", name)
	case unit["LoadState"] != "loaded":
		d.wrong("service", "see systemctl status "+name, "%s: %s", name, unit["LoadState"])
	case unit["NeedDaemonReload"] == "yes":
		d.warn("service", strings.Join(d.place.ctl.DaemonReloadArgv(), " "), "systemd still has an older %s", unit["FragmentPath"])
	case unit["Result"] != "success":
		d.wrong("service", journal, "its last pass did not end by itself: %s", unit["Result"])
	default:
		d.ok("service", "%s", unit["FragmentPath"])
	}
}

// checkTimer looks at whether there is a next pass, which an active timer
// alone does not promise.
func (d *doctor) checkTimer(unit map[string]string) {
	name := d.unit + ".timer"
	enable := strings.Join(d.place.ctl.EnableNowArgv(name), " ")
	switch {
	case unit["LoadState"] == "not-found":
		d.wrong("timer", "tickdog units install "+d.kind, "%s is not installed", name)
	case unit["LoadState"] != "loaded":
		d.wrong("timer", "see systemctl status "+name, "%s: %s", name, unit["LoadState"])
	case unit["ActiveState"] != "active":
		d.wrong("timer", enable, "%s is %s: no pass is scheduled", name, unit["ActiveState"])
	case unit["SubState"] != "running" && !scheduled(unit):
		d.wrong("timer", strings.Join(d.place.ctl.RestartArgv(name), " "), "%s is active (%s), but no next pass is scheduled", name, unit["SubState"])
	case unit["UnitFileState"] == "disabled":
		d.warn("timer", enable, "%s is scheduled, but not enabled: it is gone after a reboot", name)
	default:
		d.ok("timer", "%s is scheduled", name)
	}
}

func scheduled(timer map[string]string) bool {
	set := func(value string) bool { return value != "" && value != "0" && value != "infinity" && value != "n/a" }
	return set(timer["NextElapseUSecMonotonic"]) || set(timer["NextElapseUSecRealtime"])
}

// checkSensor takes one reading, as a pass does.
func (d *doctor) checkSensor() {
	g := &gpuGuard{pass: d.pass, gpuConfig: d.cfg.GPU}
	g.remembered()
	g.look()
	r := g.seen.Reading
	const mend = "see source and card in [gpu], and 'tickdog gpu --dry-run'"
	switch {
	case r.Suspended:
		d.ok("sensor", "%s is suspended, so idle; nothing was read so as not to wake it", r.Card)
	case !r.Busy.Known && !r.Junction.Known:
		d.wrong("sensor", mend, "no reading: %s", r.Why)
	case !r.Busy.Known, !r.Junction.Known:
		d.wrong("sensor", mend, "%s by %s: one of the two rules is blind: %s", g.subject, g.report.Source, r.Why)
	default:
		d.ok("sensor", "%s by %s: busy %v %%, junction %v °C", g.subject, g.report.Source, r.Busy.Value, r.Junction.Value)
	}
}

func (d *doctor) checkContainer() {
	g := d.cfg.GPU
	running, known, detail := units.Docker{Program: g.Docker, Run: d.run}.Running(d.ctx, g.Container)
	switch {
	case !known:
		d.wrong("docker", "start the engine, or correct docker in [gpu]", "%s", detail)
	case running:
		d.ok("container", "%s runs", g.Container)
	case detail != "":
		d.wrong("container", "correct container in [gpu] (or TICKDOG_CONTAINER)", "%s: %s", g.Container, detail)
	default:
		d.ok("container", "%s is there; it does not run", g.Container)
	}
}

// checkAgents looks at every agent, but sends none a message.
func (d *doctor) checkAgents() {
	if len(d.cfg.Agents.Agent) == 0 {
		d.wrong("agents", "add [[agents.agent]] with name, unit and url ('tickdog units print agents' shows eight)", "none is configured")
		return
	}
	a := newAgentsPass(d.pass)
	shown, err := a.systemctl.Show(d.ctx, a.units(), []string{"LoadState"})
	if err != nil {
		d.wrong("agents", "", "their units cannot be asked for: %v", err)
		return
	}
	good := 0
	for i, g := range a.conf.Agent {
		health := a.prober.Health(d.ctx, a.subject(i))
		switch state := shown[g.Unit]["LoadState"]; {
		case state != "loaded":
			d.wrong("agent "+g.Name, "correct unit in [[agents.agent]]", "%s is %s", g.Unit, state)
		case health.Class == agents.HealthForeign:
			d.wrong("agent "+g.Name, "correct url or name in [[agents.agent]]", "%s answers as something else: %s", g.URL, health.Detail)
		default:
			good++
		}
	}
	if good == len(a.conf.Agent) {
		d.ok("agents", "%d, each with its unit; 'tickdog agents --dry-run' probes them", good)
	}
}

// checkCycle looks for every program, and whether systemd grants the time.
func (d *doctor) checkCycle(service map[string]string) {
	cfg := d.cfg.Cycle
	if len(cfg.Stage) == 0 {
		d.wrong("stages", "add [[cycle.stage]] with name and calls ('tickdog units print cycle' shows three)", "none is configured")
		return
	}
	missing := map[string]string{}
	for _, stage := range cfg.Stage {
		for _, call := range stage.Calls {
			if _, err := exec.LookPath(call[0]); err != nil {
				missing[call[0]] = stage.Name
			}
		}
	}
	for _, program := range slices.Sorted(maps.Keys(missing)) {
		d.wrong("call", "correct calls in [[cycle.stage]], or PATH in the unit", "stage %s: %s cannot be run", missing[program], program)
	}
	worst := cycle.WorstCase(cfg.stages(), cfg.limits())
	if limit, known := systemdSpan(service["TimeoutStartUSec"]); known && limit < worst {
		d.warn("time", fmt.Sprintf("set TimeoutStartSec=%.0f in the unit", (worst+time.Minute).Seconds()), "a cycle may take %v, but systemd ends it after %v", worst, limit)
	}
	if len(missing) == 0 {
		d.ok("stages", "%d; at worst they take %v", len(cfg.Stage), worst)
	}
}

// systemdSpan reads a time as systemctl prints it: "1h 30min 5s". infinity,
// and what it does not know, is not known.
func systemdSpan(text string) (span time.Duration, known bool) {
	units := []struct {
		suffix string
		unit   time.Duration
	}{{"min", time.Minute}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"h", time.Hour}, {"d", 24 * time.Hour}, {"w", 7 * 24 * time.Hour}, {"s", time.Second}}
	words := strings.Fields(text)
next:
	for _, word := range words {
		for _, u := range units {
			number, ok := strings.CutSuffix(word, u.suffix)
			if n, err := strconv.ParseFloat(number, 64); ok && err == nil {
				span += time.Duration(n * float64(u.unit))
				continue next
			}
		}
		return 0, false
	}
	return span, len(words) > 0
}
