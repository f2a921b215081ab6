package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"tickdog/check"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

func main() {
	p := &program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, moment: readClock,
	}
	os.Exit(p.run(os.Args))
}

// program is all that the commands know of the world outside their files:
// a test hands them another clock and changes nothing else.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	moment         func() check.Moment // the moment of a pass; asked once a pass
}

// exitCode is an error that has nothing more to say: its line is out already.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// run is the whole program but for the exit: it returns the exit status.
func (p *program) run(args []string) int {
	if status, done := p.fastPath(args); done {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that is gone, even the journal, ends no pass
	app := p.app()
	err := app.RunContext(ctx, flagsFirst(app.Commands, args))
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(p.stderr, "tickdog: %v\n", err)
	return 1
}

// app is the command tree.
func (p *program) app() *cli.App {
	return &cli.App{
		Name:                      "tickdog",
		Usage:                     "stops a runaway GPU job, restarts a wedged agent, and leaves healthy work alone",
		Description:               manual,
		Version:                   version(),
		HideHelpCommand:           true,
		UseShortOptionHandling:    false,
		DisableSliceFlagSeparator: true, // a header's value may hold a comma
		Writer:                    p.stdout,
		ErrWriter:                 io.Discard, // run prints the one line
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              usageError,
		CommandNotFound:           nil,
		Action:                    p.noCommand,
		Commands:                  p.commands(),
	}
}

const manual = `systemd timers start tickdog; each start is one pass that looks, decides,
remembers, acts, tells and exits with status 0, whatever it found. Try any
guard with --dry-run: it says what it sees and what it would run, and touches
nothing. What a pass remembers lies in small text files ('tickdog status'
shows them); what is missing on this machine, 'tickdog doctor' finds.

Every line reads '<subject> <verdict> <state>: <reason>', with one of five
verdicts: rest (nothing to do), watch (something is building up), act (done),
hold (a rule forbids it, or a person should look), unknown (could not see).`

// noCommand is 'tickdog' alone (the help) and 'tickdog WORD' with a word that is no command.
func (p *program) noCommand(c *cli.Context) error {
	if word := c.Args().First(); word != "" {
		return fmt.Errorf("there is no command %q; 'tickdog --help' lists them", word)
	}
	return cli.ShowAppHelp(c)
}

func usageError(c *cli.Context, err error, _ bool) error {
	name := c.App.Name
	if c.Command != nil && c.Command.HelpName != "" && c.Command.Name != "" {
		name = c.Command.HelpName
	}
	return fmt.Errorf("%v; '%s --help' lists the flags", err, name)
}

// leaf gives a command what all of them share: --config, an exact number of
// arguments, and usage errors that say where to read on.
func (p *program) leaf(c *cli.Command, atLeast, atMost int) *cli.Command {
	c.Flags = append(c.Flags, &cli.StringFlag{
		Name:  "config",
		Usage: "read `FILE` instead of $TICKDOG_CONFIG, /etc/tickdog/tickdog.toml (root) or ~/.config/tickdog/tickdog.toml",
	})
	c.OnUsageError = usageError
	c.HideHelpCommand = true
	action := c.Action
	c.Action = func(ctx *cli.Context) error {
		switch n := ctx.Args().Len(); {
		case n > atMost && atMost == 0:
			return fmt.Errorf("%s takes no argument, but got %q", ctx.Command.HelpName, ctx.Args().First())
		case n > atMost:
			return fmt.Errorf("%s takes only %s, but got %q too", ctx.Command.HelpName, c.ArgsUsage, ctx.Args().Get(atMost))
		case n < atLeast:
			return fmt.Errorf("%s needs %s; '%s --help' says more", ctx.Command.HelpName, c.ArgsUsage, ctx.Command.HelpName)
		}
		return action(ctx)
	}
	return c
}

// flagsFirst puts a command's flags before its arguments, for urfave/cli drops
// flags that stand behind one: 'gpu extra --dry-run' would run live.
func flagsFirst(commands []*cli.Command, args []string) []string {
	at, takes := 1, map[string]bool(nil)
	for at < len(args) {
		c := findCommand(commands, args[at])
		if c == nil {
			break
		}
		takes, commands = valueFlags(c), c.Subcommands
		at++
	}
	if takes == nil {
		return args
	}
	out := append([]string(nil), args[:at]...)
	var words []string
	for i := at; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			words = append(words, args[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' { // a lone - is standard input
			words = append(words, a)
			continue
		}
		out = append(out, a)
		if takes[strings.TrimLeft(a, "-")] {
			if i++; i == len(args) {
				return out // so that the parser misses the value, and takes nothing for it
			}
			out = append(out, args[i])
		}
	}
	if len(words) > 0 {
		out = append(append(out, "--"), words...)
	}
	return out
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// valueFlags are the names of a command's flags that take the next word as their value.
func valueFlags(c *cli.Command) map[string]bool {
	takes := map[string]bool{}
	for _, f := range c.Flags {
		if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
			for _, name := range f.Names() {
				takes[name] = true
			}
		}
	}
	return takes
}

// open opens the file at path for reading; - is standard input.
func (p *program) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(p.stdin), nil
	}
	return os.Open(path)
}

// readClock reads the moment of a pass.
func readClock() check.Moment {
	m := check.Moment{Wall: time.Now()}
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) == nil {
		m.Boot = float64(ts.Sec) + float64(ts.Nsec)/1e9
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		m.BootID = strings.TrimSpace(string(id))
	}
	return m
}

// release is the version of a packaged build; .ci/deb sets it.
var release = ""

// version names the release, or else the commit that the binary was built from.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return s.Value[:12]
			}
		}
	}
	return "devel"
}
