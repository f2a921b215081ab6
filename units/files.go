package units

import (
	"embed"
	"strings"
)

//go:embed *.service *.timer *.toml
var embedded embed.FS

// Program is where the unit files look for tickdog: where the package puts it.
const Program = "/usr/bin/tickdog"

// Kinds are the guards that have unit files.
var Kinds = []string{"gpu", "agents", "cycle"}

// Name is what a kind's unit files are called, without .service or .timer; ""
// for a kind that there is not.
func Name(kind string) string {
	return map[string]string{"gpu": "mi50-watchdog", "agents": "lab-a2a-selfheal", "cycle": "dream-cycle"}[kind]
}

// File is an embedded file.
type File struct {
	Name   string // its base name
	Text   string
	Config bool // a sample config, for a person to edit; else a unit file
}

// Files are the service, the timer and the sample config of a kind; none for
// a kind that there is not.
func Files(kind string) []File {
	unit := Name(kind)
	if unit == "" {
		return nil
	}
	var files []File
	for _, name := range []string{unit + ".service", unit + ".timer", kind + ".toml"} {
		text, err := embedded.ReadFile(name)
		if err != nil {
			panic("units: " + err.Error()) // it was there when this was compiled
		}
		files = append(files, File{Name: name, Text: string(text), Config: strings.HasSuffix(name, ".toml")})
	}
	return files
}

// For is the file as it is for tickdog at the path program and, if user is
// set, for the user's manager. A cycle may be either's; its file is written
// for the system's, and a user's manager cannot mount ProtectKernelLogs= and
// takes StateDirectory= for a place beside the config (systemd 252).
func (f File) For(program string, user bool) File {
	var b strings.Builder
	for line := range strings.Lines(f.Text) {
		key, _, _ := strings.Cut(line, "=")
		switch {
		case user && (key == "ProtectKernelLogs" || strings.HasPrefix(key, "StateDirectory")):
			continue
		case user && strings.HasPrefix(line, "state_dir = \"/var/lib/"):
			line = "state_dir = \"~/.local/state/tickdog\"\n"
		case key == "ExecStart":
			line = strings.Replace(line, Program, program, 1)
		}
		b.WriteString(line)
	}
	f.Text = b.String()
	return f
}
