package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

func testProgram(env map[string]string) *program {
	return &program{
		stdin: strings.NewReader(""), stdout: &strings.Builder{}, stderr: &strings.Builder{},
		getenv: func(k string) string { return env[k] }, moment: readClock,
	}
}

// TestConfigMistakes: every mistake of a text at once, each with its line and
// the mend, in the order of the lines.
func TestConfigMistakes(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"fine", "[gpu]\nmax_busy = \"30m\"\nhot_at = 95.5\n", nil},
		{"unknown key", "[gpu]\nmax_busi = \"1h\"\n", []string{"f:2: gpu.max_busi: unknown key; did you mean max_busy?"}},
		{"unknown table", "\n[gpuu]\nx = 1\n", []string{"f:2: gpuu: unknown key; did you mean gpu?"}},
		{"number for a duration", "[gpu]\nmax_busy = 3600\n", []string{`f:2: gpu.max_busy: 3600 is not a duration; write a string with a unit, like "90s", "10m" or "1h"`}},
		{"no unit", "[gpu]\nmax_busy = \"3600\"\n", []string{`f:2: gpu.max_busy: "3600" is not a duration; write a string with a unit, like "90s", "10m" or "1h"`}},
		{"string for a number", "[gpu]\nhot_checks = \"3\"\n", []string{`f:2: gpu.hot_checks: "3" is not a whole number`}},
		{"three at once", "[gpu]\nhot_at = 300\nsource = \"nvidia\"\nhot_checks = 0\n", []string{
			"f:2: gpu.hot_at: 300 °C is never reached by a junction that can be believed; above 0 and below 150 (the default is 97)",
			`f:3: gpu.source: "nvidia" is not one of auto, sysfs, rocm-smi, amd-smi`,
			"f:4: gpu.hot_checks: 0 checks cannot be counted; at least 1 (the default is 3)",
		}},
		{"section is no table", "gpu = 3\n", []string{"f:1: gpu: 3 is not a table; write [gpu] on a line of its own"}},
		{"agent is no list", "[agents]\nagent = \"sol\"\n", []string{`f:2: agents.agent: "sol" is not a list of tables; write [[agents.agent]] on a line of its own`}},
		{"second agent", "[[agents.agent]]\nname = \"a\"\nunit = \"a.service\"\nurl = \"http://127.0.0.1:1\"\n[[agents.agent]]\nname = \"a\"\nunit = \"b\"\nurl = \"127.0.0.1:2\"\n", []string{
			`f:6: agents.agent[1].name: "a" is agents.agent[0]'s already; each agent has its own`,
			`f:7: agents.agent[1].unit: "b" is not a service; write it like "lab-a2a-sol.service"`,
			`f:8: agents.agent[1].url: "127.0.0.1:2" is not a URL; write it like http://127.0.0.1:8300`,
		}},
		{"empty agent", "[[agents.agent]]\n", []string{
			"f:1: agents.agent[0].name: is empty",
			`f:1: agents.agent[0].unit: "" is not a service; write it like "lab-a2a-sol.service"`,
			`f:1: agents.agent[0].url: "" is not a URL; write it like http://127.0.0.1:8300`,
		}},
		{"cycle", "[cycle]\ncall_ceiling = \"0s\"\n[[cycle.stage]]\nname = \"a\"\ncalls = [\n  [\"x\"],\n  [],\n]\n[[cycle.stage]]\nname = \"b\"\n", []string{
			"f:2: cycle.call_ceiling: 0s is too short; at least 100ms",
			`f:5: cycle.stage[0].calls: an empty call; each is a program and its arguments, like ["python3", "-m", "lyra.dream"]`,
			`f:9: cycle.stage[1].calls: a stage without calls does nothing; write calls = [["program", "argument"]]`,
		}},
		{"calls of another shape", "[[cycle.stage]]\nname = \"a\"\ncalls = [\"x\"]\n", []string{
			`f:3: cycle.stage[0].calls: [x] is not a list of commands; write [["program", "argument"], ["program"]]`,
		}},
		{"unknown list of tables", "[agents]\nname = \"x\"\n\n[[agents.agents]]\nname = \"a\"\n[[agents.agents]]\n", []string{"f:4: agents.agents: unknown key; did you mean agent?"}},
		{"a cycle without end", "[cycle]\nbudget = \"2000h\"\nkill_grace = \"-1s\"\n", []string{
			"f:2: cycle.budget: 2000h0m0s is too long; at most 720h0m0s",
			"f:3: cycle.kill_grace: -1s is too short; at least 0s",
		}},
		{"not TOML", "[gpu]\nmax_busy = \n", []string{"f:2: not TOML: expected value but found '\\n' instead"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testProgram(nil).defaults()
			var got []string
			for _, m := range cfg.decode("f", c.text) {
				got = append(got, m.text)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestConfigKeepsDefaultBesideMistake: a key with a mistake keeps its default
// and the others are taken.
func TestConfigKeepsDefaultBesideMistake(t *testing.T) {
	cfg := testProgram(nil).defaults()
	cfg.decode("f", "[gpu]\nmax_busy = 7\nhot_at = 90\n")
	if cfg.GPU.MaxBusy != time.Hour || cfg.GPU.HotAt != 90 {
		t.Errorf("max_busy %v, hot_at %v", cfg.GPU.MaxBusy, cfg.GPU.HotAt)
	}
	if got := cfg.origin["gpu.hot_at"]; got != "f:3" {
		t.Errorf("origin of hot_at is %q", got)
	}
}

// TestTOMLLines: each key's line, over every way a key can be written.
func TestTOMLLines(t *testing.T) {
	got := tomlLines(strings.Join([]string{
		1:  `state_dir = "x" # [gpu] in a comment`,
		2:  `[gpu]`,
		3:  `"hot_at" = 97`,
		4:  `docker = """`,
		5:  `[not.a.table]`,
		6:  `"""`,
		7:  `[[cycle.stage]]`,
		8:  `calls = [ # ]`,
		9:  `  ["a = b", '[x]'],`,
		10: `]`,
		11: `name = "s]["`,
		12: `[[ cycle . stage ]]`,
		13: `name = 's\'`,
		14: `[notify]`,
		15: `ntfy.url = "u"`,
	}, "\n"))
	want := map[string]int{
		"state_dir": 2, "gpu": 3, "gpu.hot_at": 4, "gpu.docker": 5,
		"cycle.stage[0]": 8, "cycle.stage[0].calls": 9, "cycle.stage[0].name": 12,
		"cycle.stage[1]": 13, "cycle.stage[1].name": 14, "notify": 15, "notify.ntfy": 16, "notify.ntfy.url": 16,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// FuzzConfig promises: a text is either taken whole or every mistake names a
// line that exists; and a text that is TOML is never called something else.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{"", "[gpu]\nmax_busy = 3\n", "[[agents.agent]]\nunit = \"\"\n", "a.b.c = {d = [1]}\n", "[gpu]\n[gpu.x]\ny='''\n\n'''\n", "[[cycle.stage]]\ncalls=[[]]\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cfg := testProgram(nil).defaults()
		lines := strings.Count(text, "\n") + 1
		var tree map[string]any
		_, err := toml.Decode(text, &tree)
		for _, m := range cfg.decode("f", text) {
			if m.line > lines || (m.line < 1 && err == nil) {
				t.Errorf("%q: line %d of %d", m.text, m.line, lines)
			}
			if err == nil && strings.Contains(m.text, "not TOML") {
				t.Errorf("%q is TOML", text)
			}
		}
	})
}

// TestConfigPlaces: a named file must be there; the default one may be missing.
func TestConfigPlaces(t *testing.T) {
	home := t.TempDir()
	p := testProgram(map[string]string{"HOME": home})
	if got := p.expand("~/x"); got != filepath.Join(home, "x") {
		t.Errorf("~/x is %s", got)
	}
	if got := p.expand("~other/x"); got != "~other/x" {
		t.Errorf("~other/x is %s", got)
	}
	if os.Geteuid() != 0 {
		if path, asked := p.configPath(nil); asked || path != filepath.Join(home, ".config/tickdog/tickdog.toml") {
			t.Errorf("default place is %s", path)
		}
	}
}
