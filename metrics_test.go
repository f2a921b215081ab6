package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/notify"
	"tickdog/state"

	"github.com/google/go-cmp/cmp"
)

// measuredPasses are passes that hold one of everything.
func measuredPasses(t *testing.T) map[string]*pass {
	t.Helper()
	number := func(v float64) *float64 { return &v }
	dir, err := state.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	outbox := notify.OpenOutbox(dir, notify.NewNtfy("http://127.0.0.1:1/t", ""), notify.NewBoard("http://127.0.0.1:1", "", ""))
	if _, err := outbox.Write(notify.Alert{Title: "one that waits", At: testStart}); err != nil {
		t.Fatal(err)
	}
	now := check.Moment{Wall: testStart, Boot: 10000, BootID: "boot-1"}
	gpu := &pass{now: now, outbox: outbox, measured: metrics{}, report: report{Pass: "gpu", Verdicts: []verdict{
		{Subject: "0000:83:00.0", State: "busy", Verdict: check.Act, Action: "stop", Result: "done",
			Reading: &gpuReading{Busy: number(100), Junction: number(91.5)}},
	}}}
	gpu.measured.add(gpuStreak, 3600, "pass", "gpu", "subject", "0000:83:00.0")
	gpu.measured.add(gpuHotChecks, 0, "pass", "gpu", "subject", "0000:83:00.0")
	agents := &pass{now: now, pausedUntil: 1, measured: metrics{}, report: report{Pass: "agents", Verdicts: []verdict{
		{Subject: "lab-a2a-sol.service", State: "healthy", Verdict: check.Rest,
			agentSight: &agentSight{Health: "ok", HealthMS: 3, Dispatch: "completed", DispatchMS: 1250, SinceS: number(0)}},
		{Subject: "lab-a2a-nova.service", State: "wedged", Verdict: check.Hold,
			agentSight: &agentSight{Health: "mute", HealthMS: 4000, Dispatch: "dead", DispatchMS: 15000, SinceS: number(301.5)}},
		{Subject: "lab-a2a-echo.service", State: "down", Verdict: check.Act, Action: "restart", Result: `failed: no "such" \ unit`,
			agentSight: &agentSight{Health: "refused", Dispatch: "skipped"}},
	}}}
	cycle := &pass{now: now, measured: metrics{}, report: report{Pass: "cycle", Verdicts: []verdict{
		{Subject: `two "words"\` + "\n", State: "stopped early (over budget)", Verdict: check.Hold},
	}}}
	return map[string]*pass{"gpu": gpu, "agents": agents, "cycle": cycle}
}

func TestMetrics(t *testing.T) {
	for name, s := range measuredPasses(t) {
		before := map[string]float64{
			`tickdog_actions_total{pass="gpu",subject="0000:83:00.0",action="stop",result="done"}`:                 2,
			`tickdog_actions_total{pass="gpu",subject="gone",action="stop",result="done"}`:                         1,
			`tickdog_actions_total{pass="agents",subject="lab-a2a-echo.service",action="restart",result="failed"}`: 4,
		}
		for one := range before {
			if !strings.Contains(one, `pass="`+name+`"`) {
				delete(before, one)
			}
		}
		text := s.measure(1500*time.Millisecond, before).text()
		golden := "testdata/metrics/tickdog-" + name + ".prom"
		if os.Getenv("UPDATE_SCRIPTS") != "" {
			if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text); diff != "" {
			t.Errorf("%s differs (UPDATE_SCRIPTS=1 rewrites it):\n%s", golden, diff)
		}
		checkPrometheusText(t, text)
		if promtool, err := exec.LookPath("promtool"); err == nil {
			lint := exec.Command(promtool, "check", "metrics")
			lint.Stdin = strings.NewReader(text)
			if out, err := lint.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
				t.Errorf("promtool check metrics: %v\n%s", err, out)
			}
		}
	}
}

// checkPrometheusText holds what promtool would, where it is not installed:
// each family once, with its help and type first, and no series twice.
func checkPrometheusText(t *testing.T, text string) {
	t.Helper()
	sample := regexp.MustCompile(`^([a-z_]+)\{([a-z]+="(\\.|[^"\\])*",?)+\} -?[0-9.]+$`)
	seen, family := map[string]bool{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Fields(line)
		key := line[:max(strings.LastIndexByte(line, ' '), 0)]
		switch {
		case strings.HasPrefix(line, "# HELP "):
			family, key = words[2], "help "+words[2]
		case strings.HasPrefix(line, "# TYPE "):
			key = "type " + words[2]
			if words[2] != family || (words[3] == "counter") != strings.HasSuffix(family, "_total") {
				t.Errorf("type: %s", line)
			}
		case !sample.MatchString(line) || sample.FindStringSubmatch(line)[1] != family:
			t.Errorf("no sample of %s: %s", family, line)
		}
		if seen[key] {
			t.Errorf("twice: %s", key)
		}
		seen[key] = true
	}
}

func TestCounted(t *testing.T) {
	got := counted("testdata/metrics/tickdog-agents.prom")
	const failed = `tickdog_actions_total{pass="agents",subject="lab-a2a-echo.service",action="restart",result="failed"}`
	if got[failed] != 5 || len(got) != 6 {
		t.Errorf("%v", got)
	}
	if got := counted("testdata/metrics/none"); len(got) != 0 {
		t.Errorf("%v", got)
	}
	// What node_exporter would refuse is not carried on.
	damaged := filepath.Join(t.TempDir(), "damaged.prom")
	for _, line := range []string{
		"tickdog_actions_total{ 3\n",
		failed[:len(failed)-2] + "} 3\n",
		failed + " -3\n", failed + " NaN\n",
		failed + " 3 1790546400\n",
		strings.Replace(failed, `echo`, `ec"ho`, 1) + " 3\n",
	} {
		if err := os.WriteFile(damaged, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := counted(damaged); len(got) != 0 {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestMetricsFile: whole, readable by node_exporter's user, and nothing beside it.
func TestMetricsFile(t *testing.T) {
	dir := t.TempDir()
	s := measuredPasses(t)["gpu"]
	s.program = &program{stderr: new(bytes.Buffer), getenv: func(string) string { return "" }}
	s.cfg.Metrics.Textfile = dir
	for range 2 {
		s.writeMetrics()
	}
	path := filepath.Join(dir, "tickdog-gpu.prom")
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `action="stop",result="done"} 2`+"\n") {
		t.Errorf("%v\n%s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v", entries)
	}
	s.cfg.Metrics.Textfile = filepath.Join(dir, "none")
	s.writeMetrics()
	if len(s.report.Notes) != 1 || !strings.Contains(s.report.Notes[0], "metrics: ") {
		t.Errorf("%q", s.report.Notes)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("the collector's directory is not ours to make")
	}
}

// TestAlertRules: the example asks only for metrics and labels that there are.
func TestAlertRules(t *testing.T) {
	const rules = "units/tickdog.rules.yml"
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`tickdog_[a-z_]+`).FindAllString(string(text), -1)
	if len(names) < 8 {
		t.Errorf("only %q", names)
	}
	for _, name := range names {
		if !slices.ContainsFunc(families, func(f family) bool { return f.name == name }) {
			t.Errorf("%s asks for %s, which is no metric", rules, name)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool (Debian's prometheus) is not installed: the rules were only read")
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", "testdata/metrics/tickdog.rules.test.yml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}
