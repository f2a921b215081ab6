package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	for _, kind := range Kinds {
		files := Files(kind)
		if len(files) != 3 {
			t.Fatalf("%s has %d files", kind, len(files))
		}
		for _, f := range files {
			if !strings.HasPrefix(f.Text, "# ") || !strings.HasSuffix(f.Text, "\n") {
				t.Errorf("%s does not begin by explaining itself", f.Name)
			}
			if f.Config != strings.HasSuffix(f.Name, ".toml") {
				t.Errorf("%s: Config = %v", f.Name, f.Config)
			}
		}
		service, timer := files[0].Text, files[1].Text
		for _, line := range []string{"Type=oneshot", "ExecStart=/usr/bin/tickdog " + kind, "TimeoutStartSec=", "TimeoutStopSec=", "NoNewPrivileges=yes"} {
			if !strings.Contains(service, "\n"+line) {
				t.Errorf("%s: no %s", files[0].Name, line)
			}
		}
		if kind != "cycle" && !strings.Contains(service, "\nTimeoutStartSec=300\n") {
			t.Errorf("%s: a pass may take 300 s", files[0].Name)
		}
		for _, line := range []string{"AccuracySec=1s", "WantedBy=timers.target"} {
			if !strings.Contains(timer, "\n"+line+"\n") {
				t.Errorf("%s: no %s", files[1].Name, line)
			}
		}
	}
	if Files("nothing") != nil {
		t.Error("files of a kind that there is not")
	}
}

// TestVerify has systemd itself read the units, where there is one.
func TestVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	dir := t.TempDir()
	self, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	for _, kind := range Kinds {
		var args []string
		if kind == "agents" {
			args = append(args, "--user")
		}
		args = append(args, "verify")
		for _, f := range Files(kind) {
			if !f.Config {
				// the program need not be installed for this
				args = append(args, write(t, dir, f.Name, strings.ReplaceAll(f.Text, "/usr/bin/tickdog", self)))
			}
		}
		c := exec.Command(analyze, args...)
		c.Env = append(c.Environ(), "XDG_RUNTIME_DIR="+dir, "LC_ALL=C")
		if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A cycle's unit can be a user's too; the sandbox lines that would keep it
// from starting there are left out.
func TestFor(t *testing.T) {
	for _, f := range Files("cycle") {
		if same := f.For(Program, false); same != f {
			t.Errorf("%s differs for the system and the package's path", f.Name)
		}
		u := f.For("/opt/tickdog", true)
		for _, not := range []string{"/var/lib/tickdog", "\nStateDirectory", "\nProtectKernelLogs", "ExecStart=" + Program} {
			if strings.Contains(u.Text, not) {
				t.Errorf("%s for a user has %q", f.Name, not)
			}
		}
		if strings.HasSuffix(f.Name, ".service") && !strings.Contains(u.Text, "\nExecStart=/opt/tickdog cycle\n") {
			t.Errorf("%s does not start /opt/tickdog", f.Name)
		}
	}
}
