package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SysfsCommand is the hidden first argument that makes this program the child
// which reads sysfs: `tickdog read-sysfs ROOT [CARD]`.
const SysfsCommand = "read-sysfs"

// A read of a sensor file may never return, and no signal helps then. So it is
// a child that reads them: it can be left behind. It prints what it finds, a
// line a file and nothing interpreted:
//
//	card1 vendor "0x1002"
//	card1 gpu_busy_percent !EPERM
//
// and the parent makes readings of that.

// ReadSysfs is that child: it prints what the amdgpu cards under root say to w
// and returns its exit status. The files that only identify a card come first;
// sensors are read of every card at once (one that hangs does not hide
// another), of none that is suspended (reading would wake it), and only of
// card, if it is not "".
func ReadSysfs(w io.Writer, root, card string) int {
	if card == usersOnly {
		printUsers(w, root)
		return 0
	}
	dirs, err := cardDirs(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w, "- class/drm !%s\n", errorName(err))
		return 0
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	print := func(text []byte) {
		mu.Lock()
		defer mu.Unlock()
		w.Write(text)
	}
	for _, dir := range dirs {
		one := readCard{name: filepath.Base(dir), dir: filepath.Join(dir, "device")}
		one.identify()
		print(one.out.Bytes())
		r, ok := reading(one.name, parseDump(one.out.Bytes())[one.name])
		if !ok || card != "" && !r.Is(card) {
			continue
		}
		wait.Go(func() {
			sensors := readCard{name: one.name, dir: one.dir}
			sensors.measure(r.Suspended)
			print(sensors.out.Bytes())
		})
	}
	wait.Wait()
	return 0
}

// usersOnly, as the child's CARD, is no card: it asks for no sensors but for
// the processes that have opened /dev/kfd.
const usersOnly = "users"

// Users are the processes that compute on an AMD GPU, as far as the kernel
// lists them; none if it cannot be asked.
func (s Source) Users(ctx context.Context) (pids []int) {
	out := s.Run(ctx, s.child(usersOnly))
	for line := range strings.Lines(string(out.Stdout)) {
		if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "- user "); ok {
			if pid, err := strconv.Atoi(pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return pids
}

func printUsers(w io.Writer, root string) {
	entries, _ := os.ReadDir(filepath.Join(root, "class/kfd/kfd/proc")) // not there: nobody is seen
	for _, e := range entries {
		fmt.Fprintf(w, "- user %s\n", e.Name())
	}
}

func (s Source) child(card string) Command {
	argv := []string{s.Self, SysfsCommand, s.Sysfs}
	if card != "" {
		argv = append(argv, card)
	}
	return Command{Key: "sysfs", Argv: argv, Timeout: s.Timeout, Grace: time.Second} // it has nothing to put away
}

var cardDir = regexp.MustCompile(`^card[0-9]+$`)

// cardDirs are the cards, without their connectors (card0-DP-1) and render nodes.
func cardDirs(root string) (dirs []string, err error) {
	drm := filepath.Join(root, "class/drm")
	entries, err := os.ReadDir(drm)
	for _, e := range entries {
		if cardDir.MatchString(e.Name()) {
			dirs = append(dirs, filepath.Join(drm, e.Name()))
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { // card10 comes after card9
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return dirs, err
}

type readCard struct {
	name, dir string
	out       bytes.Buffer
}

// identify reads what the kernel answers from memory, asleep or not.
func (c *readCard) identify() {
	if to, err := filepath.EvalSymlinks(c.dir); err == nil {
		c.say("device", filepath.Base(to), nil)
	}
	for _, file := range []string{"vendor", "uevent", "unique_id", "power/runtime_status"} {
		c.read(file)
	}
	for _, file := range c.glob("hwmon/hwmon*/temp*_label") {
		c.read(file)
	}
}

// measure reads the sensors. It ends with a line of its own: without it, they
// did not answer in time.
func (c *readCard) measure(suspended bool) {
	if !suspended {
		c.read("gpu_busy_percent")
		for _, pattern := range []string{"temp*_input", "power1_average", "power1_input"} {
			for _, file := range c.glob("hwmon/hwmon*/" + pattern) {
				c.read(file)
			}
		}
	}
	c.say("measured", "", nil)
}

func (c *readCard) glob(pattern string) (files []string) {
	found, _ := filepath.Glob(filepath.Join(c.dir, pattern)) // the only error is a bad pattern
	for _, path := range found {
		files = append(files, strings.TrimPrefix(path, c.dir+"/"))
	}
	return files
}

// read prints one file. Attributes are at most a page.
func (c *readCard) read(file string) {
	f, err := os.Open(filepath.Join(c.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var text []byte
	if err == nil {
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, 4096))
	}
	c.say(file, string(text), err)
}

func (c *readCard) say(file, text string, err error) {
	if err != nil {
		fmt.Fprintf(&c.out, "%s %s !%s\n", c.name, file, errorName(err))
		return
	}
	fmt.Fprintf(&c.out, "%s %s %q\n", c.name, file, text)
}

// errorName is an errno as manual pages name it, for a person to look up.
func errorName(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
	}
	return "ERROR"
}

// lookSysfs reads the cards through the child. there is false if it found no
// amdgpu card at all.
func (s Source) lookSysfs(ctx context.Context, card string) (sight Sight, there bool) {
	out := s.Run(ctx, s.child(card))
	sight = Sight{Source: "sysfs"}
	sight.Cards, sight.Why = sysfsCards(out.Stdout, out.Failure)
	return sight, len(sight.Cards) > 0 || sight.Why != ""
}

// sysfsCards makes readings of what the child printed. failure is how the
// child failed, or "". It takes any text: what is not the child's is no
// reading.
func sysfsCards(dump []byte, failure string) (cards []Reading, why string) {
	found := parseDump(dump)
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if r, ok := reading(name, found[name]); ok {
			if _, measured := found[name]["measured"]; !measured && failure != "" {
				r.Why = "the sensors did not answer: " + failure
			}
			cards = append(cards, r)
		}
	}
	switch drm, failed := found["-"]["class/drm"]; {
	case failure != "":
		why = failure
	case failed:
		why = "class/drm: " + strings.TrimPrefix(drm, "!")
	}
	return cards, why
}

// parseDump sorts the child's lines by card and file. A value is the file's
// text without blanks around it, or ! and the name of the error.
func parseDump(dump []byte) map[string]map[string]string {
	found := map[string]map[string]string{}
	for line := range strings.Lines(string(dump)) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		file, value, ok := strings.Cut(rest, " ")
		if !ok || name != "-" && !cardDir.MatchString(name) {
			continue
		}
		if !strings.HasPrefix(value, "!") {
			text, err := strconv.Unquote(value)
			if err != nil {
				continue
			}
			value = strings.TrimSpace(text)
		}
		if found[name] == nil {
			found[name] = map[string]string{}
		}
		found[name][file] = value
	}
	return found
}

// reading makes a Reading of a card's files. ok is false for a card of another
// vendor or driver.
func reading(name string, files map[string]string) (r Reading, ok bool) {
	uevent := properties(files["uevent"])
	if files["vendor"] != "0x1002" || uevent["DRIVER"] != "" && uevent["DRIVER"] != "amdgpu" {
		return Reading{}, false
	}
	r = Reading{
		Card:      PCIAddress(uevent["PCI_SLOT_NAME"]),
		Index:     strings.TrimPrefix(name, "card"),
		Suspended: files["power/runtime_status"] == "suspended",
	}
	if r.Card == "" {
		r.Card = PCIAddress(files["device"])
	}
	if r.Card == "" {
		r.Card = name
	}
	if id := uniqueID(files["unique_id"]); !strings.HasPrefix(id, "!") {
		r.Unique = id
	}
	junction, temps := temperatures(files)
	r.HasJunction = junction != ""
	if _, measured := files["measured"]; !measured || r.Suspended {
		return r, true
	}

	var missing []string
	number := func(file string, scale float64, sound func(float64) bool) Number {
		text, there := files[file]
		v, err := strconv.ParseUint(text, 10, 32)
		switch value := float64(v) / scale; {
		case !there:
			missing = append(missing, filepath.Base(file)+": no such file")
		case strings.HasPrefix(text, "!"):
			missing = append(missing, filepath.Base(file)+": "+text[1:])
		case text == "":
			missing = append(missing, filepath.Base(file)+": empty")
		case err != nil:
			missing = append(missing, fmt.Sprintf("%s: %.20q is no reading", filepath.Base(file), text))
		case !sound(value):
			missing = append(missing, fmt.Sprintf("%s: %v cannot be true", filepath.Base(file), value))
		default:
			return Known(value)
		}
		return Number{}
	}
	r.Busy = number("gpu_busy_percent", 1, soundBusy)
	if r.HasJunction {
		r.Junction = number(junction, 1000, soundTemperature)
	}
	r.Why = strings.Join(missing, "; ")
	if r.HasJunction && r.Busy == Known(0) && !slices.ContainsFunc(temps, func(file string) bool {
		return number(file, 1000, soundTemperature).Known
	}) {
		r.Busy = Number{} // a card that has fallen off its bus reads 0 %, too
		r.Why += "; so its 0 % is not believed"
	}
	if r.Power = number(hwmonFile(files, "power1_average"), 1e6, soundPower); !r.Power.Known {
		r.Power = number(hwmonFile(files, "power1_input"), 1e6, soundPower)
	}
	return r, true
}

func soundBusy(v float64) bool        { return v >= 0 && v <= 100 }
func soundTemperature(v float64) bool { return v > 0 && v < 150 }
func soundPower(v float64) bool       { return v > 0 && v < 5000 }

var tempLabel = regexp.MustCompile(`^(hwmon/hwmon[0-9]+/temp[0-9]+)_label$`)

// temperatures are the file of the sensor that is labelled junction ("" if
// none is: edge is never taken for it), and the files of all.
func temperatures(files map[string]string) (junction string, all []string) {
	for file, label := range files {
		if m := tempLabel.FindStringSubmatch(file); m != nil {
			input := m[1] + "_input"
			all = append(all, input)
			if label = strings.ToLower(label); label == "junction" || label == "hotspot" {
				if junction == "" || input < junction {
					junction = input
				}
			}
		}
	}
	return junction, all
}

func hwmonFile(files map[string]string, name string) string {
	best := name
	for file := range files {
		if strings.HasSuffix(file, "/"+name) && (best == name || file < best) {
			best = file
		}
	}
	return best
}

// properties are the KEY=value lines of a uevent file.
func properties(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			found[key] = value
		}
	}
	return found
}
