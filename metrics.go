package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/check/agents"
	"tickdog/state"
)

// family is a metric: its samples differ in their labels. Every command writes
// the same help for the same name, as node_exporter wants it.
type family struct{ name, kind, help string }

var (
	passTime     = family{"tickdog_pass_timestamp_seconds", "gauge", "When the last pass that looked began; it stands still when the timer is dead."}
	passDuration = family{"tickdog_pass_duration_seconds", "gauge", "How long that pass took."}
	passPaused   = family{"tickdog_paused", "gauge", "Whether a person has paused the guard (1) or not (0)."}

	subjectVerdict = family{"tickdog_verdict", "gauge", "The verdict about a subject: 1 for the one of the five words that holds, 0 for the others."}
	subjectState   = family{"tickdog_state", "gauge", "The state a subject was seen in, as a label; always 1."}
	actions        = family{"tickdog_actions_total", "counter", "Stops and restarts since the file was last deleted, by how they ended."}

	gpuBusy      = family{"tickdog_gpu_busy_ratio", "gauge", "Busy share of the card, 0 to 1; missing without a reading."}
	gpuJunction  = family{"tickdog_gpu_junction_celsius", "gauge", "Junction temperature of the card; missing without a reading."}
	gpuPower     = family{"tickdog_gpu_power_watts", "gauge", "Power drawn by the card; missing without a reading."}
	gpuStreak    = family{"tickdog_gpu_busy_streak_seconds", "gauge", "How long the card has been busy without a pause."}
	gpuHotChecks = family{"tickdog_gpu_hot_checks", "gauge", "Hot checks in a row."}

	agentAnswers  = family{"tickdog_agent_answers", "gauge", "Whether the agent answered a message (1) or not (0); missing if it was not asked."}
	agentHealth   = family{"tickdog_agent_health_seconds", "gauge", "How long /health took to answer; missing if it did not."}
	agentDispatch = family{"tickdog_agent_dispatch_seconds", "gauge", "How long the message took to be answered; missing if it was not."}
	agentSince    = family{"tickdog_agent_since_work_seconds", "gauge", "Time since the last sign of work that no probe can cause."}

	alertsWaiting = family{"tickdog_alerts_waiting", "gauge", "Alerts in the outbox that will be tried again."}
	alertsParked  = family{"tickdog_alerts_parked", "gauge", "Alerts that their channel refused, or that cannot be read."}

	families = []family{
		passTime, passDuration, passPaused, subjectVerdict, subjectState, actions,
		gpuBusy, gpuJunction, gpuPower, gpuStreak, gpuHotChecks,
		agentAnswers, agentHealth, agentDispatch, agentSince,
		alertsWaiting, alertsParked,
	}
)

// metrics are the samples of one pass, by family.
type metrics map[string][]string

// add notes a sample. labels are names and values in turn.
func (m metrics) add(f family, value float64, labels ...string) {
	m[f.name] = append(m[f.name], sample(series(f, labels...), value))
}

func sample(series string, value float64) string {
	return series + " " + strconv.FormatFloat(value, 'f', -1, 64)
}

// series is a sample without its value.
func series(f family, labels ...string) string {
	var b strings.Builder
	b.WriteString(f.name)
	for i := 0; i+1 < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(labels[i] + `="` + labelText.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD")) + `"`)
	}
	b.WriteByte('}')
	return b.String()
}

var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// text is Prometheus' text format.
func (m metrics) text() string {
	var b strings.Builder
	for _, f := range families {
		if len(m[f.name]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for _, one := range m[f.name] {
			b.WriteString(one + "\n")
		}
	}
	return b.String()
}

// counted are the actions that the file at path counts already.
func counted(path string) map[string]float64 {
	counts := map[string]float64{}
	text, err := os.ReadFile(path)
	if err != nil {
		return counts // a counter that starts at 0 again is what Prometheus expects
	}
	// Only what sample writes: one line that is none would make node_exporter
	// refuse the whole file, and would be carried on for ever.
	const label = `="(?:[^"\\]|\\[\\"n])*"`
	ours := regexp.MustCompile(`(?m)^(` + actions.name + `\{pass` + label + `,subject` + label + `,action` + label + `,result` + label + `\}) (\d+)$`)
	for _, line := range ours.FindAllStringSubmatch(strings.ToValidUTF8(string(text), "\uFFFD"), -1) {
		if n, err := strconv.ParseFloat(line[2], 64); err == nil {
			counts[line[1]] = n
		}
	}
	return counts
}

// acts is what a pass of a kind may do to a subject; each is counted from 0 on,
// for Prometheus sees no increase in a series that begins at 1.
var acts = map[string]string{"gpu": "stop", "agents": "restart"}

// measure turns a pass into samples: what it saw, did and held back. before are
// the actions that were counted by earlier passes; it takes them over.
func (s *pass) measure(took time.Duration, before map[string]float64) metrics {
	m, pass := metrics{}, s.report.Pass
	m.add(passTime, float64(s.now.Epoch()), "pass", pass)
	m.add(passDuration, took.Seconds(), "pass", pass)
	m.add(passPaused, truth(s.pausedUntil > 0), "pass", pass)
	for _, v := range s.report.Verdicts {
		on := []string{"pass", pass, "subject", v.Subject}
		for _, word := range check.Verdicts {
			m.add(subjectVerdict, truth(v.Verdict == word), append(on, "verdict", string(word))...)
		}
		m.add(subjectState, 1, append(on, "state", v.State)...)
		if act := acts[pass]; act != "" {
			for _, result := range []string{"done", "failed"} {
				now := truth(v.Action == act && strings.HasPrefix(v.Result, result))
				labels := append(on, "action", act, "result", result)
				one := series(actions, labels...)
				m.add(actions, before[one]+now, labels...)
				delete(before, one)
			}
		}
		if r := v.Reading; r != nil {
			known := func(f family, value *float64, unit float64) {
				if value != nil {
					m.add(f, *value/unit, on...)
				}
			}
			known(gpuBusy, r.Busy, 100)
			known(gpuJunction, r.Junction, 1)
			known(gpuPower, r.Power, 1)
		}
		if v.agentSight != nil {
			v.agentSight.measure(m, on)
		}
	}
	for _, one := range slices.Sorted(maps.Keys(before)) { // subjects that this pass did not see
		if n := before[one]; n > 0 {
			m[actions.name] = append(m[actions.name], sample(one, n))
		}
	}
	for name, samples := range s.measured {
		m[name] = append(m[name], samples...)
	}
	s.measureOutbox(m)
	return m
}

func (a *agentSight) measure(m metrics, on []string) {
	if a.Health == string(agents.HealthOK) {
		m.add(agentHealth, float64(a.HealthMS)/1000, on...)
	}
	switch agents.DispatchClass(a.Dispatch) {
	case agents.DispatchCompleted, agents.DispatchRefused:
		m.add(agentAnswers, 1, on...)
		m.add(agentDispatch, float64(a.DispatchMS)/1000, on...)
	case agents.DispatchSkipped, agents.DispatchUnknown:
	default:
		m.add(agentAnswers, 0, on...)
	}
	if a.SinceS != nil {
		m.add(agentSince, *a.SinceS, on...)
	}
}

// measureOutbox counts what waits, also for channels that have nothing there.
func (s *pass) measureOutbox(m metrics) {
	if s.outbox == nil {
		return
	}
	waiting, parked := map[string]float64{}, map[string]float64{}
	channels := s.outbox.Channels()
	for _, e := range s.outbox.Waiting(s.now) {
		if _, seen := waiting[e.Channel]; !seen && !e.Configured {
			channels = append(channels, e.Channel)
		}
		if waiting[e.Channel] += truth(e.Parked == ""); e.Parked != "" {
			parked[e.Channel]++
		}
	}
	for _, channel := range channels {
		m.add(alertsWaiting, waiting[channel], "pass", s.report.Pass, "channel", channel)
		m.add(alertsParked, parked[channel], "pass", s.report.Pass, "channel", channel)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// writeMetrics leaves what this pass saw for node_exporter's textfile
// collector: one file a command, readable by everybody, and never half a one.
func (s *pass) writeMetrics() {
	if s.cfg.Metrics.Textfile == "" {
		return
	}
	path := filepath.Join(s.cfg.Metrics.Textfile, "tickdog-"+s.report.Pass+".prom")
	text := s.measure(time.Since(s.began), counted(path)).text()
	if err := state.Replace(path, []byte(text), 0o644); err != nil {
		s.note("metrics: %v", err)
	}
}
