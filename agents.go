package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"tickdog/check/agents"
	"tickdog/units"

	"github.com/urfave/cli/v2"
)

func (p *program) agentsCommand() *cli.Command {
	return p.leaf(&cli.Command{
		Name:  "agents",
		Usage: "restart the A2A agents that are wedged or down, and no others",
		Description: `Looks at every agent's unit, at its /health, and sends it one real message.
An agent that answers is left alone, and so is one that is at work: a message
without an answer proves nothing until the agent had no task at two looks, or
showed no sign of work for busy_cap. At most one restart a unit in
restart_every, one after another. The last line is the sweep: 8/8 answer.`,
		Flags: append(passFlags(),
			&cli.BoolFlag{Name: "verbose", Usage: "explain every agent, also those that are left alone (as --dry-run does)"},
		),
		Action: p.agents,
	}, 0, 0)
}

// agentsPass is one pass over the agents.
type agentsPass struct {
	*pass
	conf      agentsConfig
	limits    agents.Limits
	systemctl units.Systemctl
	prober    prober
	memory    *agentsMemory
	course    agents.Course
	results   []verdict    // one an agent, in the order of the configuration
	healed    map[int]bool // restarted, and answering again
}

// prober is what looks at agents: [agents.Prober], or a test's world.
type prober interface {
	Look(ctx context.Context, subjects []agents.Agent, units map[string]map[string]string) []agents.Seen
	Health(ctx context.Context, a agents.Agent) agents.Health
	Dispatch(ctx context.Context, a agents.Agent) agents.Dispatch
	Process(pid int) agents.Process
}

// agents is the pass: lock, load, look, decide, save → act → tell.
func (p *program) agents(c *cli.Context) error {
	cfg, err := p.loadConfig(c, "agents")
	if err != nil {
		return err
	}
	s, err := p.newPass(c, cfg, "agents", cfg.Agents.Name, c.Bool("dry-run"))
	if err != nil {
		return err
	}
	s.all = c.Bool("verbose") || s.dryRun
	a := newAgentsPass(s)

	switch s.lock(a.conf.Lock) {
	case lockBusy:
		return s.finish(false)
	case lockBroken: // two passes at once could restart two agents at once
		s.report.Reason = "without its lock a pass looks at nothing and restarts nothing"
		return s.finish(false)
	}
	if len(a.conf.Agent) == 0 {
		s.report.Reason = "no [[agents.agent]] is configured; nothing to look at"
		return s.finish(true)
	}
	a.run()
	return s.finish(true)
}

// run is the pass behind its lock: load, look, decide, save → act → tell.
func (a *agentsPass) run() {
	a.memory.load(a.now, a.units(), a.note)
	a.logLeft()
	seen := a.look()
	incidents := a.decide(seen)
	a.save(incidents)
	a.act()
	a.say()
}

func newAgentsPass(s *pass) *agentsPass {
	conf := s.cfg.Agents
	user := conf.Scope == "user"
	s.report.Source = "systemctl"
	if user {
		s.report.Source = "systemctl --user"
	}
	return &agentsPass{
		pass: s, conf: conf, limits: conf.limits(),
		systemctl: units.Systemctl{User: user, Run: s.run},
		prober: agents.Prober{
			HealthTimeout: conf.HealthTimeout, DispatchTimeout: conf.DispatchTimeout,
			Day: s.now.Wall, Proc: "/proc",
		},
		memory: openAgentsMemory(s.dir, s.name),
		healed: map[int]bool{},
	}
}

func (c agentsConfig) limits() agents.Limits {
	return agents.Limits{
		Gate:            c.Gate != "off",
		DispatchTimeout: c.DispatchTimeout,
		BusyCap:         c.BusyCap,
		BusyMax:         c.BusyMax,
		StartGrace:      c.StartGrace,
		RestartEvery:    c.RestartEvery,
		FreezeAfter:     c.FreezeAfter,
		PassBudget:      c.PassBudget,
		MaxGap:          c.MaxGap,
		MinGap:          c.MinGap,
	}
}

func (a *agentsPass) units() (units []string) {
	for _, g := range a.conf.Agent {
		units = append(units, g.Unit)
	}
	return units
}

// subject is an agent as look needs to know it.
func (a *agentsPass) subject(i int) agents.Agent {
	g := a.conf.Agent[i]
	known := a.memory.agents[g.Unit]
	return agents.Agent{Name: g.Name, Unit: g.Unit, URL: g.URL, Protocol: known.Protocol, LastDead: known.Dead > 0}
}

// look sees all agents.
func (a *agentsPass) look() []agents.Seen {
	shown, err := a.systemctl.Show(a.ctx, a.units(), agents.UnitProperties)
	subjects := make([]agents.Agent, len(a.conf.Agent))
	for i := range subjects {
		subjects[i] = a.subject(i)
	}
	seen := a.prober.Look(a.ctx, subjects, shown)
	for i := range seen {
		if err != nil {
			seen[i].Unit.Detail = err.Error()
		}
	}
	return seen
}

// decide judges every agent, and then the fleet.
func (a *agentsPass) decide(seen []agents.Seen) []agents.Incident {
	var all []agents.Standing
	for i, g := range a.conf.Agent {
		prev := a.memory.agents[g.Unit]
		next, v := agents.Decide(prev, seen[i], a.now, a.limits)
		all = append(all, agents.Standing{Unit: g.Unit, Prev: prev, State: next, Seen: seen[i], Alone: v})
	}
	a.memory.fleet, a.course = agents.Plan(a.memory.fleet, all, a.held(), a.now, a.limits)
	a.results = make([]verdict, len(all))
	for i, g := range a.course.Agents {
		a.memory.agents[g.Unit] = g.State
		a.results[i] = a.verdict(g)
	}
	return a.course.Incidents
}

// save writes down what was decided, and with it what a person is told of
// incidents. What can't be written down would be told again at every pass:
// then it is only noted here.
func (a *agentsPass) save(incidents []agents.Incident) {
	var alerts []*told
	if a.conf.Alerts == "incidents" {
		for _, in := range incidents {
			urgent := in.Kind == agents.Frozen || in.Kind == "storm"
			alert := a.tell(urgent, []string{"warning"}, "%s: %s (%s)", in.Kind, strings.Join(in.Units, ", "), in.Reason)
			alert.outcome("") // it tells of no act
			alerts = append(alerts, alert)
		}
	}
	if err := errors.Join(a.memory.saveAgents(), a.memory.saveFleet()); err != nil {
		a.note("%v", err)
		a.told = slices.DeleteFunc(a.told, func(t *told) bool { return t.id == "" && slices.Contains(alerts, t) })
	}
}

// verdict is a standing as the report has it.
func (a *agentsPass) verdict(g agents.Standing) verdict {
	h, d := g.Seen.Health, g.Seen.Dispatch
	v := verdict{
		Subject: g.Unit, State: g.Verdict.State, Verdict: g.Verdict.Verdict, Reason: g.Verdict.Reason,
		agentSight: &agentSight{Health: string(h.Class), HealthMS: h.Ms, Dispatch: string(d.Class), DispatchMS: d.Ms},
	}
	if h.Task.Known {
		v.Task = &h.Task.Text
	}
	if since, ok := a.now.Since(g.State.Since, g.State.BootID); ok {
		s := math.Round(since.Seconds()*1000) / 1000
		v.SinceS = &s
	}
	return v
}

// say prepares the report: a line an agent, and the sweep last.
func (a *agentsPass) say() {
	a.report.Verdicts = a.results
	var lines []string
	for i, g := range a.course.Agents {
		lines = append(lines, agentsHistoryLine(a.now, g.Seen, a.results[i]))
	}
	a.remember(lines...)
	if a.all && !a.json {
		for i, g := range a.course.Agents {
			a.results[i].Reason += times(g.Seen)
		}
	}
	a.report.Summary = a.sweep()
}

// times are how long both looks at an agent took.
func times(s agents.Seen) string {
	text := fmt.Sprintf(" [health %s %.2f s", s.Health.Class, float64(s.Health.Ms)/1000)
	if s.Dispatch.Class == agents.DispatchSkipped || s.Dispatch.Repeated {
		return text + ", message not sent]"
	}
	return text + fmt.Sprintf(", message %s %.2f s]", s.Dispatch.Class, float64(s.Dispatch.Ms)/1000)
}

// sweep is the pass in one line: how many answer, and what the others are.
func (a *agentsPass) sweep() string {
	answer := 0
	var states []string
	names := map[string][]string{}
	add := func(state, name string) {
		if names[state] == nil {
			states = append(states, state)
		}
		names[state] = append(names[state], name)
	}
	for i, v := range a.results {
		name := a.conf.Agent[i].Name
		switch {
		case a.healed[i]:
			add("restarted", name)
		case v.State != agents.Healthy:
			add(v.State, name)
			continue
		case a.course.Agents[i].Seen.Dispatch.Slow || a.course.Agents[i].Seen.Health.Slow:
			add("slow", name)
		}
		answer++
	}
	line := fmt.Sprintf("%d/%d answer", answer, len(a.results))
	for _, state := range states {
		line += "; " + state + ": " + strings.Join(names[state], ", ")
	}
	return line
}

// held is why nothing may be restarted in this pass, "" if nothing forbids it.
func (a *agentsPass) held() string {
	if until := a.paused(); until != "" {
		return "paused " + until
	}
	return ""
}
