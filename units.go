package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tickdog/units"

	"github.com/BurntSushi/toml"
	"github.com/urfave/cli/v2"
)

func (p *program) unitsCommand() *cli.Command {
	kinds := strings.Join(units.Kinds, "|")
	dryRun := &cli.BoolFlag{Name: "dry-run", Usage: "say what would be written and run; do nothing"}
	return &cli.Command{
		Name:  "units",
		Usage: "print, install or remove a guard's systemd units and its sample config",
		Description: `gpu is a system unit and is installed by root, agents a user unit and installed
by the agents' user. cycle is either, as who installs it. Nothing is enabled:
install prints the command that does.`,
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action:          p.noSubcommand,
		Subcommands: []*cli.Command{
			p.leaf(&cli.Command{
				Name: "print", Usage: "print the files", ArgsUsage: kinds,
				Action: p.unitsPrint,
			}, 1, 1),
			p.leaf(&cli.Command{
				Name: "install", Usage: "write the unit files, and the sample config if there is no config yet", ArgsUsage: kinds,
				Description: `A config is never overwritten, nor is a unit file that somebody else wrote or
has edited; --force replaces that and keeps the old one as NAME.old.`,
				Flags:  []cli.Flag{dryRun, &cli.BoolFlag{Name: "force", Usage: "replace unit files that tickdog did not write, keeping each as NAME.old"}},
				Action: p.unitsInstall,
			}, 1, 1),
			p.leaf(&cli.Command{
				Name: "remove", Usage: "stop the timer and remove what install wrote; config and state stay", ArgsUsage: kinds,
				Flags:  []cli.Flag{dryRun},
				Action: p.unitsRemove,
			}, 1, 1),
		},
	}
}

// noSubcommand is a command of commands alone, or with a word it does not know.
func (p *program) noSubcommand(c *cli.Context) error {
	if word := c.Args().First(); word != "" {
		return fmt.Errorf("%s has no command %q; '%s --help' lists them", c.Command.HelpName, word, c.Command.HelpName)
	}
	return cli.ShowSubcommandHelp(c)
}

// kindArgument is the one argument: gpu, agents or cycle.
func kindArgument(c *cli.Context) (string, error) {
	kind := c.Args().First()
	if !slices.Contains(units.Kinds, kind) {
		return "", fmt.Errorf("%s knows %s, not %q", c.Command.HelpName, strings.Join(units.Kinds, ", "), kind)
	}
	return kind, nil
}

func (p *program) unitsPrint(c *cli.Context) error {
	kind, err := kindArgument(c)
	if err != nil {
		return err
	}
	place := p.unitPlace(c, kind)
	for i, f := range units.Files(kind) {
		path := filepath.Join(place.dir, f.Name)
		if f.Config {
			path = place.config
		}
		if i > 0 {
			fmt.Fprintln(p.stdout)
		}
		fmt.Fprintf(p.stdout, "# --- %s\n%s", path, f.For(units.Program, place.user).Text)
	}
	return nil
}

// unitPlace is where a kind's files belong, for the user who asks.
type unitPlace struct {
	kind   string
	user   bool // the user's manager, not the system's
	dir    string
	pkgDir string // where the Debian package has the same files
	config string
	self   string // this program
	ctl    units.Systemctl
}

func (p *program) unitPlace(c *cli.Context, kind string) unitPlace {
	place := unitPlace{kind: kind, user: kind == "agents" || kind == "cycle" && os.Geteuid() != 0}
	place.ctl = units.Systemctl{User: place.user}
	place.config, _ = p.configPath(c)
	place.self, _ = os.Executable()
	place.dir, place.pkgDir = "/etc/systemd/system", "/usr/lib/systemd/system"
	if place.user {
		home := p.getenv("XDG_CONFIG_HOME")
		if home == "" {
			home = p.expand("~/.config")
		}
		place.dir, place.pkgDir = filepath.Join(home, "systemd/user"), "/usr/lib/systemd/user"
	}
	return place
}

// unitFile is one unit file of a kind, and what is there in its stead.
type unitFile struct {
	path, want string
	packaged   bool   // the package has the same
	have       string // "" if there is none
	ours       bool   // have is what an install wrote, unedited
}

// unitFiles are the kind's unit files, as they are and as they should be.
func (u unitPlace) unitFiles() (files []unitFile, err error) {
	for _, f := range units.Files(u.kind) {
		if f.Config {
			continue
		}
		file := unitFile{path: filepath.Join(u.dir, f.Name)}
		text := f.For(u.self, u.user).Text
		file.want = text + seal(text)
		if there, err := os.ReadFile(filepath.Join(u.pkgDir, f.Name)); err == nil {
			file.packaged = string(there) == text
		}
		have, err := os.ReadFile(file.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		file.have = string(have)
		file.ours = sealed(file.have)
		files = append(files, file)
	}
	return files, nil
}

// seal is the last line of a unit file that install writes. It holds a hash of
// the lines before it: by it a later install or remove knows whether the file
// is as it was written, or a person's by now.
func seal(text string) string {
	return fmt.Sprintf("\n# Written by 'tickdog units install', which replaces it as long as nobody edits it (%x).\n", sha256.Sum256([]byte(text)))
}

func sealed(text string) bool {
	at := strings.LastIndex(text, "\n# Written by 'tickdog units install'")
	return at >= 0 && text[at:] == seal(text[:at])
}

// unitJob does what it says, or only says it.
type unitJob struct {
	*program
	place  unitPlace
	dryRun bool
}

func (j unitJob) say(format string, args ...any) { fmt.Fprintf(j.stdout, format+"\n", args...) }

// do is one step: "write X", with what does it.
func (j unitJob) do(what string, step func() error) error {
	if j.dryRun {
		j.say("would %s", what)
		return nil
	}
	if err := step(); err != nil {
		return fmt.Errorf("%s: %v", what, err)
	}
	j.say("%s", what)
	return nil
}

// run is one systemctl command.
func (j unitJob) run(c *cli.Context, argv []string) error {
	return j.do("run "+strings.Join(argv, " "), func() error {
		if failure := j.place.ctl.Do(c.Context, argv, 90*time.Second).Failure(); failure != "" {
			return errors.New(failure)
		}
		return nil
	})
}

func (p *program) unitJob(c *cli.Context) (unitJob, error) {
	kind, err := kindArgument(c)
	if err != nil {
		return unitJob{}, err
	}
	j := unitJob{program: p, place: p.unitPlace(c, kind), dryRun: c.Bool("dry-run")}
	root := os.Geteuid() == 0
	switch {
	case kind == "agents" && root:
		return j, errors.New("the agents' units are a user's: run this as the user whose agents they are, without sudo (for a user lab: sudo -iu lab tickdog units … agents)")
	case kind == "gpu" && !root:
		return j, errors.New("the GPU guard is a system unit: run this as root (sudo)")
	}
	return j, nil
}

func (p *program) unitsInstall(c *cli.Context) error {
	j, err := p.unitJob(c)
	if err != nil {
		return err
	}
	if why := j.place.unusable(); why != "" {
		return errors.New(why)
	}
	return j.install(c, c.Bool("force"))
}

func (j unitJob) install(c *cli.Context, force bool) error {
	files, err := j.place.unitFiles()
	if err != nil {
		return err
	}
	changed := false
	for _, f := range files {
		wrote, err := j.installUnit(f, force)
		if err != nil {
			return err
		}
		changed = changed || wrote
	}
	if err := j.installConfig(c); err != nil {
		return err
	}
	if changed {
		if err := j.run(c, j.place.ctl.DaemonReloadArgv()); err != nil {
			return fmt.Errorf("%v\nthe files are written; systemd will know them after that command", err)
		}
	}
	j.sayNext()
	return nil
}

// unusable is why a unit could not start this very program: the sandbox hides
// where it lies, or it is about to vanish.
func (u unitPlace) unusable() string {
	under := func(dirs ...string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(u.self, dir+"/") })
	}
	const mend = "copy it to /usr/local/bin (or install the package) and run it from there"
	switch {
	case u.self == "":
		return "cannot tell where this program lies; " + mend
	case strings.ContainsAny(u.self, " \t\n\"'\\%$;"):
		return fmt.Sprintf("the path %q cannot stand in a unit file; %s", u.self, mend)
	case strings.Contains(u.self, "/go-build"):
		return fmt.Sprintf("%s is 'go run's and gone when it ends; build it (go build .), then %s", u.self, mend)
	case under("/tmp", "/var/tmp", "/dev/shm"), !u.user && u.kind == "gpu" && under("/home", "/root", "/run/user"):
		return fmt.Sprintf("the unit will not see %s (its sandbox hides that directory); %s", u.self, mend)
	}
	return ""
}

// installUnit writes one unit file, unless there is a reason not to.
func (j unitJob) installUnit(f unitFile, force bool) (wrote bool, err error) {
	write := func() error { return writeFile(f.path, f.want) }
	switch {
	case f.packaged && f.have == "":
		j.say("%s: the package has it", filepath.Base(f.path))
		return false, nil
	case f.packaged && f.ours:
		return true, j.do("remove "+f.path+" (the package has it)", func() error { return os.Remove(f.path) })
	case f.have == f.want:
		j.say("%s: as it should be", f.path)
		return false, nil
	case f.have == "", f.ours:
		return true, j.do("write "+f.path, write)
	case force:
		return true, j.do(fmt.Sprintf("write %s, with the old one kept as %s.old", f.path, filepath.Base(f.path)), func() error {
			if err := os.Rename(f.path, f.path+".old"); err != nil {
				return err
			}
			return write()
		})
	}
	j.say("%s: left alone; it was edited, or tickdog did not write it (--force replaces it, 'tickdog units print %s' shows what it would be)", f.path, j.place.kind)
	return false, nil
}

// installConfig writes the sample config if there is none, and says what is
// missing in the one that there is. A user unit may write only to directories
// that are there when it starts, so those are made here.
func (j unitJob) installConfig(c *cli.Context) error {
	u := j.place
	text, err := os.ReadFile(u.config)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		files := units.Files(u.kind)
		sample := files[len(files)-1].For(u.self, u.user).Text
		if err := j.do("write "+u.config, func() error { return writeFile(u.config, sample) }); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		var sections map[string]any
		if _, err := toml.Decode(string(text), &sections); err == nil && sections[u.kind] == nil {
			j.say("%s: left alone; it has no [%s] yet ('tickdog units print %s' shows one)", u.config, u.kind, u.kind)
		} else {
			j.say("%s: left alone", u.config)
		}
	}
	if !u.user || j.dryRun {
		return nil
	}
	cfg, err := j.loadConfig(c, u.kind)
	if err != nil {
		return fmt.Errorf("the files are written, but:\n%v", err)
	}
	dirs := []string{cfg.StateDir}
	if u.kind == "agents" && cfg.Agents.Log != "" {
		dirs = append(dirs, filepath.Dir(cfg.Agents.Log))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (j unitJob) sayNext() {
	ctl := strings.Join(j.place.ctl.EnableNowArgv(units.Name(j.place.kind)+".timer"), " ")
	j.say("next:")
	j.say("  tickdog doctor %s", j.place.kind)
	if j.place.user && !lingers() {
		j.say("  loginctl enable-linger    # or it runs only while you are logged in")
	}
	j.say("  %s", ctl)
}

func (p *program) unitsRemove(c *cli.Context) error {
	j, err := p.unitJob(c)
	if err != nil {
		return err
	}
	return j.remove(c)
}

func (j unitJob) remove(c *cli.Context) error {
	files, err := j.place.unitFiles()
	if err != nil {
		return err
	}
	unit := units.Name(j.place.kind)
	// Neither is an error: the timer may be off or gone, and the files must go all the same.
	for _, argv := range [][]string{j.place.ctl.DisableNowArgv(unit + ".timer"), j.place.ctl.StopArgv(unit + ".service")} {
		if err := j.run(c, argv); err != nil {
			j.say("%v", err)
		}
	}
	changed := false
	for _, f := range files {
		switch {
		case f.have == "":
		case f.ours:
			changed = true
			if err := j.do("remove "+f.path, func() error { return os.Remove(f.path) }); err != nil {
				return err
			}
		default:
			j.say("%s: left alone; it was edited, or tickdog did not write it", f.path)
		}
		if f.packaged {
			j.say("%s: the package has it; apt remove tickdog removes it", filepath.Base(f.path))
		}
	}
	if changed {
		if err := j.run(c, j.place.ctl.DaemonReloadArgv()); err != nil {
			return err
		}
	}
	j.say("%s and the state stay", j.place.config)
	return nil
}

// writeFile writes a file that everybody may read, whole or not at all.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// userName is the name of the user who runs this.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// lingers tells whether this user's manager runs without anybody logged in.
func lingers() bool {
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", userName()))
	return err == nil
}
