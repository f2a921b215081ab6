package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

// TestDocs: the man page and the shell completion that the package installs
// say what --help says. UPDATE_DOCS=1 go test -run TestDocs . writes them anew.
func TestDocs(t *testing.T) {
	app := (&program{}).app()
	for path, want := range map[string]string{
		"testdata/tickdog.8":    manPage(app),
		"testdata/tickdog.bash": bashCompletion(app),
	} {
		if os.Getenv("UPDATE_DOCS") != "" {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(have), want); diff != "" {
			t.Errorf("%s is not what --help says (UPDATE_DOCS=1 go test -run TestDocs . writes it anew):\n%s", path, diff)
		}
	}
}

// eachCommand calls f for every command, a parent before its children, with
// all the words that name it.
func eachCommand(words string, commands []*cli.Command, f func(words string, c *cli.Command)) {
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		f(words+" "+c.Name, c)
		eachCommand(words+" "+c.Name, c.Subcommands, f)
	}
}

func manPage(app *cli.App) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.\" Made from the help texts by TestDocs.`)
	line(`.TH TICKDOG 8`)
	line(".SH NAME\ntickdog \\- %s", roff(app.Usage))
	line(".SH SYNOPSIS\n.B tickdog\n.I command\n[\\fIflags\\fR] [\\fIargument\\fR]")
	line(".SH DESCRIPTION\n%s", roffText(app.Description))
	line(".SH COMMANDS")
	eachCommand("tickdog", app.Commands, func(words string, c *cli.Command) {
		line(".SS %s", roff(strings.TrimSpace(words+" "+c.ArgsUsage)))
		line("%s.", roff(upperFirst(strings.TrimRight(c.Usage, "."))))
		if c.Description != "" {
			line(".PP\n%s", roffText(c.Description))
		}
		for _, f := range c.Flags {
			if name := f.Names()[0]; name == "config" || name == "help" { // told once, below
				continue
			}
			// "--max-busy TIME\tstop after this TIME …", as --help has it
			head, tail, _ := strings.Cut(f.String(), "\t")
			line(".TP\n.B %s\n%s", roff(head), roff(strings.TrimSpace(strings.TrimSuffix(tail, "(default: false)"))))
		}
	})
	line(".PP\nEvery command takes \\fB\\-\\-help\\fR and \\fB\\-\\-config\\fR \\fIFILE\\fR.")
	line(`.SH EXIT STATUS
0 for every pass that ran, whatever it found; 1 and one line on standard error
for wrong flags, a configuration with mistakes, or a state directory that
belongs to another user.
.BR "tickdog doctor" :
1 if something is wrong.
.SH FILES
.TP
.IR /etc/tickdog/tickdog.toml ", " ~/.config/tickdog/tickdog.toml
the configuration of root, and of everybody else
.TP
.IR /var/lib/tickdog ", " ~/.local/state/tickdog
what passes remember, unless the configuration names another
.IR state_dir ;
deleting a file is safe, its first line says what it does
.TP
.IR /etc/credstore/ntfy-token
the token of the ntfy topic, for the system unit
.SH ENVIRONMENT
.TP
.B TICKDOG_CONFIG
the configuration to read
.TP
.BR TICKDOG_MAX_BUSY ", " TICKDOG_HOT_AT ", " TICKDOG_HOT_CHECKS ", " TICKDOG_CONTAINER
the limits of the GPU guard; they win over the configuration
.TP
.BR TICKDOG_NTFY_URL ", " TICKDOG_NTFY_TOKEN
the ntfy topic and its token
.SH SEE ALSO
.BR systemd.timer (5),
.BR journalctl (1),
.BR docker (1)`)
	return b.String()
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "’", `\(cq`, "°", `\(de`, "…", "...", "–", `\(en`, "—", `\(em`, "→", `\(->`)

// roff is one line of text; what begins with a dot is no request.
func roff(s string) string {
	s = roffEscapes.Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// roffText is a help text: paragraphs are filled, indented lines stay as they are.
func roffText(text string) string {
	var out []string
	asIs := false
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, " ")
		switch {
		case indented && !asIs:
			out = append(out, ".nf")
		case !indented && asIs && line != "":
			out = append(out, ".fi")
		}
		if line == "" {
			if !asIs {
				out = append(out, ".PP")
			}
			continue
		}
		asIs = indented
		out = append(out, roff(line))
	}
	if asIs {
		out = append(out, ".fi")
	}
	return strings.Join(out, "\n")
}

// bashCompletion completes commands, flags and the fixed words of arguments.
func bashCompletion(app *cli.App) string {
	var cases strings.Builder
	add := func(words string, completions []string) {
		fmt.Fprintf(&cases, "\t%q) words=%q ;;\n", words, strings.Join(completions, " "))
	}
	var top []string
	for _, c := range app.VisibleCommands() {
		top = append(top, c.Name)
	}
	add("tickdog", append(top, "--help", "--version"))
	eachCommand("tickdog", app.Commands, func(words string, c *cli.Command) {
		var completions []string
		for _, sub := range c.VisibleCommands() {
			completions = append(completions, sub.Name)
		}
		for _, word := range strings.Split(c.ArgsUsage, "|") {
			if strings.Contains(c.ArgsUsage, "|") && strings.ToLower(word) == word && !strings.ContainsAny(word, " []<>") {
				completions = append(completions, word)
			}
		}
		for _, f := range c.Flags {
			completions = append(completions, "--"+f.Names()[0])
		}
		add(words, append(completions, "--help"))
	})
	return `# bash completion for tickdog. Made from the help texts by TestDocs.
_tickdog() {
	local cur=${COMP_WORDS[COMP_CWORD]} at=tickdog word words=
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$at $word" in
` + knownPaths(app) + `) at="$at $word" ;;
		esac
	done
	case ${COMP_WORDS[COMP_CWORD-1]} in
	--config | --input) COMPREPLY=($(compgen -f -- "$cur")); return ;;
	esac
	case $at in
` + cases.String() + `	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
	[ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -o filenames -F _tickdog tickdog
`
}

// knownPaths is the pattern of all commands with all their words.
func knownPaths(app *cli.App) string {
	var paths []string
	eachCommand("tickdog", app.Commands, func(words string, _ *cli.Command) { paths = append(paths, fmt.Sprintf("%q", words)) })
	return "\t\t" + strings.Join(paths, " | ")
}
