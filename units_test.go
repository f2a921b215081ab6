package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tickdog/units"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/urfave/cli/v2"
)

func init() {
	other := testCommands["systemctl"]
	testCommands["systemctl"] = func() {
		has := func(name string) bool {
			_, err := os.Stat(filepath.Join(os.Getenv("HOME"), name))
			return err == nil
		}
		if has("fleet") && !has("systemd") { // a script about agents
			other()
			return
		}
		fakeSystemctl()
	}
	// `may-fail tickdog …` leaves the exit status open, where it depends on who runs the test.
	scriptCommands["may-fail"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) == 0 {
			ts.Fatalf("usage: may-fail COMMAND...")
		}
		ts.Exec(args[0], args[1:]...)
	}
}

// fakeSystemctl is systemctl as doctor and units use it: `show` prints the
// file $HOME/systemd/UNIT for each unit, or that there is none; no bus if
// $HOME/systemd is missing. Every call is noted.
func fakeSystemctl() {
	home := os.Getenv("HOME")
	note(filepath.Join(home, "systemctl.log"), strings.Join(os.Args[1:], " "))
	if _, err := os.Stat(filepath.Join(home, "systemd")); err != nil {
		fmt.Fprintln(os.Stderr, "Failed to connect to bus: No medium found")
		os.Exit(1)
	}
	_, asked, _ := strings.Cut(strings.Join(os.Args[1:], " "), " -- ")
	for i, unit := range strings.Fields(asked) {
		if i > 0 {
			fmt.Println()
		}
		fmt.Printf("Id=%s\n", unit)
		text, err := os.ReadFile(filepath.Join(home, "systemd", unit))
		if err != nil {
			fmt.Print("LoadState=not-found\nActiveState=inactive\n")
		}
		fmt.Print(string(text))
	}
}

// installer is an install or remove into a directory of the test's own.
type installer struct {
	unitJob
	t     *testing.T
	c     *cli.Context
	out   *bytes.Buffer
	ran   *[]string
	files []string
}

func newInstaller(t *testing.T, kind string) installer {
	dir := t.TempDir()
	out, ran := &bytes.Buffer{}, &[]string{}
	p := &program{stdout: out, stderr: out, moment: readClock, getenv: func(key string) string {
		return map[string]string{"HOME": dir}[key]
	}}
	ctl := units.Systemctl{User: kind == "agents", Run: func(_ context.Context, c units.Command) units.Result {
		*ran = append(*ran, strings.Join(c.Argv, " "))
		return units.Result{Argv: c.Argv}
	}}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.String("config", filepath.Join(dir, "tickdog.toml"), "")
	c := cli.NewContext(cli.NewApp(), flags, nil)
	c.Context = context.Background()
	i := installer{t: t, out: out, ran: ran, c: c, unitJob: unitJob{program: p, place: unitPlace{
		kind: kind, user: kind == "agents", dir: filepath.Join(dir, "units"), pkgDir: filepath.Join(dir, "package"),
		config: filepath.Join(dir, "tickdog.toml"), self: "/opt/bin/tickdog", ctl: ctl,
	}}}
	if err := flags.Set("config", i.place.config); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".service", ".timer"} {
		i.files = append(i.files, filepath.Join(i.place.dir, units.Name(kind)+ext))
	}
	return i
}

// try runs one step and returns what it printed and ran.
func (i installer) try(step func() error) (out, ran string) {
	i.t.Helper()
	i.out.Reset()
	*i.ran = nil
	if err := step(); err != nil {
		i.t.Fatal(err)
	}
	return i.out.String(), strings.Join(*i.ran, "; ")
}

func (i installer) install() (out, ran string) {
	i.t.Helper()
	return i.try(func() error { return i.unitJob.install(i.c, false) })
}

func (i installer) remove() (out, ran string) {
	i.t.Helper()
	return i.try(func() error { return i.unitJob.remove(i.c) })
}

func (i installer) read(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}

func (i installer) write(path, text string) {
	i.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		i.t.Fatal(err)
	}
}

func TestUnitsInstallAndRemove(t *testing.T) {
	i := newInstaller(t, "gpu")
	out, ran := i.install()
	if ran != "systemctl daemon-reload" || !strings.Contains(out, "\n  systemctl enable --now mi50-watchdog.timer\n") {
		t.Errorf("ran %q\n%s", ran, out)
	}
	if got := i.read(i.files[0]); !strings.Contains(got, "\nExecStart=/opt/bin/tickdog gpu\n") {
		t.Errorf("the service starts something else:\n%s", got)
	}
	if got := i.read(i.place.config); !strings.Contains(got, "[gpu]") {
		t.Errorf("config:\n%s", got)
	}
	// Again: nothing to do, and a config that a person has edited stays.
	i.write(i.place.config, "[gpu]\ncontainer = \"mine\"\n")
	if out, ran = i.install(); ran != "" || strings.Count(out, "as it should be") != 2 || !strings.Contains(out, "tickdog.toml: left alone\n") {
		t.Errorf("ran %q\n%s", ran, out)
	}
	// A newer tickdog replaces what an older one wrote.
	i.place.self = "/opt/bin/tickdog2"
	if out, ran = i.install(); ran == "" || !strings.Contains(i.read(i.files[0]), "tickdog2 gpu") {
		t.Errorf("ran %q\n%s", ran, out)
	}
	out, ran = i.remove()
	if ran != "systemctl disable --now mi50-watchdog.timer; systemctl stop mi50-watchdog.service; systemctl daemon-reload" {
		t.Errorf("ran %q\n%s", ran, out)
	}
	if i.read(i.files[0])+i.read(i.files[1]) != "" || i.read(i.place.config) == "" {
		t.Error("units left, or the config gone")
	}
	if out, ran = i.remove(); strings.Contains(ran, "daemon-reload") {
		t.Errorf("twice removed: ran %q\n%s", ran, out)
	}
}

func TestUnitsLeavesWhatIsNotItsOwn(t *testing.T) {
	i := newInstaller(t, "gpu")
	i.install()
	edited := strings.Replace(i.read(i.files[1]), "OnUnitActiveSec=2min", "OnUnitActiveSec=1min", 1)
	i.write(i.files[1], edited)
	i.write(i.files[0], "[Service]\nExecStart=/bin/true\n")

	out, ran := i.install()
	if ran != "" || strings.Count(out, "left alone; it was edited") != 2 || i.read(i.files[1]) != edited {
		t.Errorf("ran %q\n%s", ran, out)
	}
	if out, _ = i.remove(); strings.Count(out, "left alone; it was edited") != 2 || i.read(i.files[1]) != edited {
		t.Errorf("remove:\n%s", out)
	}
	out, ran = i.try(func() error { return i.unitJob.install(i.c, true) })
	if ran == "" || i.read(i.files[1]+".old") != edited || !sealed(i.read(i.files[1])) {
		t.Errorf("--force: ran %q\n%s", ran, out)
	}
}

func TestUnitsDryRun(t *testing.T) {
	i := newInstaller(t, "gpu")
	i.dryRun = true
	out, ran := i.install()
	if ran != "" || strings.Count(out, "would write ") != 3 || !strings.Contains(out, "would run systemctl daemon-reload") {
		t.Errorf("ran %q\n%s", ran, out)
	}
	if entries, _ := os.ReadDir(filepath.Dir(i.place.config)); len(entries) != 0 {
		t.Errorf("a dry run left %v", entries)
	}
	i.dryRun = false
	i.install()
	i.dryRun = true
	if out, ran = i.remove(); ran != "" || strings.Count(out, "would remove ") != 2 || i.read(i.files[0]) == "" {
		t.Errorf("ran %q\n%s", ran, out)
	}
}

// Where the package has the units, no copy hides its next version.
func TestUnitsBesideThePackage(t *testing.T) {
	i := newInstaller(t, "gpu")
	i.place.self = units.Program
	i.install() // before the package came
	for _, f := range units.Files("gpu") {
		if !f.Config {
			i.write(filepath.Join(i.place.pkgDir, f.Name), f.Text)
		}
	}
	if out, ran := i.install(); ran == "" || i.read(i.files[0])+i.read(i.files[1]) != "" {
		t.Errorf("ran %q\n%s", ran, out)
	}
	if out, ran := i.install(); ran != "" || strings.Count(out, "the package has it") != 2 {
		t.Errorf("ran %q\n%s", ran, out)
	}
	i.place.self = "/opt/bin/tickdog" // one built by hand, on purpose
	if out, _ := i.install(); !strings.Contains(i.read(i.files[0]), "/opt/bin/tickdog") {
		t.Errorf("%s", out)
	}
}

// The agents' unit can only write to directories that are there when it
// starts, so install makes them.
func TestUnitsAgentsDirectories(t *testing.T) {
	i := newInstaller(t, "agents")
	i.place.user = true
	out, ran := i.install()
	if ran != "systemctl --user daemon-reload" || !strings.Contains(out, "\n  systemctl --user enable --now lab-a2a-selfheal.timer\n") {
		t.Errorf("ran %q\n%s", ran, out)
	}
	for _, dir := range []string{".solos/state", ".solos/logs"} {
		if info, err := os.Stat(filepath.Join(filepath.Dir(i.place.config), dir)); err != nil || !info.IsDir() {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestUnitsConfigWithoutTheSection(t *testing.T) {
	i := newInstaller(t, "cycle")
	i.write(i.place.config, "[gpu]\ncontainer = \"mine\"\n")
	if out, _ := i.install(); !strings.Contains(out, "it has no [cycle] yet ('tickdog units print cycle' shows one)") {
		t.Error(out)
	}
}

func TestUnusableProgram(t *testing.T) {
	for _, tc := range []struct {
		kind, self string
		user       bool
		usable     bool
	}{
		{"gpu", "/usr/bin/tickdog", false, true},
		{"gpu", "/usr/local/bin/tickdog", false, true},
		{"gpu", "/root/tickdog", false, false},
		{"gpu", "/home/brian/bin/tickdog", false, false},
		{"gpu", "/tmp/tickdog", false, false},
		{"gpu", "/root/.cache/go-build/ab/tickdog", false, false},
		{"gpu", "/opt/my tools/tickdog", false, false},
		{"gpu", "", false, false},
		{"agents", "/home/lab/bin/tickdog", true, true},
		{"agents", "/var/tmp/tickdog", true, false},
		{"cycle", "/home/lyra/bin/tickdog", false, true},
	} {
		if why := (unitPlace{kind: tc.kind, self: tc.self, user: tc.user}).unusable(); (why == "") != tc.usable {
			t.Errorf("%s at %q: %q", tc.kind, tc.self, why)
		}
	}
}

// The shipped samples are configurations without a mistake, and what they say
// of a default is the default.
func TestSampleConfigs(t *testing.T) {
	for _, kind := range units.Kinds {
		t.Run(kind, func(t *testing.T) {
			files := units.Files(kind)
			sample := files[len(files)-1]
			p := &program{getenv: func(string) string { return "" }}
			cfg := p.defaults()
			for _, m := range cfg.decode(sample.Name, sample.Text) {
				t.Error(m.text)
			}
			// with each commented key of the guard's own table let in
			var b strings.Builder
			own := false
			for line := range strings.Lines(sample.Text) {
				if strings.HasPrefix(line, "[") || strings.HasPrefix(line, "#[") {
					own = strings.HasPrefix(line, "["+kind+"]")
				}
				if bare, commented := strings.CutPrefix(line, "#"); commented && own && !strings.HasPrefix(bare, " ") && !strings.HasPrefix(bare, "log =") {
					line = bare
				}
				b.WriteString(line)
			}
			full := p.defaults()
			for _, m := range full.decode(sample.Name, b.String()) {
				t.Error(m.text)
			}
			want := p.defaults()
			full.Agents.Agent, full.Cycle.Stage = nil, nil
			for _, pair := range [][2]any{{full.GPU, want.GPU}, {full.Agents, want.Agents}, {full.Cycle, want.Cycle}} {
				if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
					t.Errorf("the sample says\n%+v\nthe defaults are\n%+v", pair[0], pair[1])
				}
			}
		})
	}
	p := &program{getenv: func(string) string { return "" }}
	cfg := p.defaults()
	cfg.decode("agents.toml", units.Files("agents")[2].Text)
	if len(cfg.Agents.Agent) != 8 || cfg.Agents.Agent[7].URL != "http://127.0.0.1:8307" || cfg.Agents.Agent[7].Unit != "lab-a2a-min.service" {
		t.Errorf("the fleet: %+v", cfg.Agents.Agent)
	}
}

func TestSystemdSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5min": 5 * time.Minute, "1h": time.Hour, "1h 30min 5s": time.Hour + 30*time.Minute + 5*time.Second,
		"1min 30.5s": 90*time.Second + 500*time.Millisecond, "2d": 48 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if got, known := systemdSpan(text); !known || got != want {
			t.Errorf("%s: %v %v", text, got, known)
		}
	}
	for _, text := range []string{"infinity", "", "5", "soon"} {
		if got, known := systemdSpan(text); known {
			t.Errorf("%s: %v", text, got)
		}
	}
}
