package units

import "embed"

//go:embed *.service *.timer *.toml
var embedded embed.FS

// Kinds are the guards that have unit files.
var Kinds = []string{"gpu", "agents", "cycle"}

// Scope tells where a kind's units run: "user" for agents, "system" for the
// others.
func Scope(kind string) string {
	if kind == "agents" {
		return "user"
	}
	return "system"
}

// UnitName is what a kind's unit files are called, without .service or .timer.
func UnitName(kind string) string {
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
	unit := UnitName(kind)
	if unit == "" {
		return nil
	}
	var files []File
	for _, name := range []string{unit + ".service", unit + ".timer", kind + ".toml"} {
		text, err := embedded.ReadFile(name)
		if err != nil {
			panic("units: " + err.Error()) // it was there when this was compiled
		}
		files = append(files, File{Name: name, Text: string(text), Config: name == kind+".toml"})
	}
	return files
}
