package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The variable that lets these tests run, and what it becomes once they have
// namespaces of their own.
const (
	wanted     = "TICKDOG_E2E"
	wantedYes  = "1"
	wantedHere = "in namespaces of its own"
)

// TestMain moves the tests into mount and PID namespaces of their own:
// whatever they mount and start is gone with them, also if they are killed.
func TestMain(m *testing.M) {
	if os.Getenv(wanted) == wantedYes && os.Geteuid() == 0 {
		os.Setenv(wanted, wantedHere)
		self, err := os.Executable()
		unshare, missing := exec.LookPath("unshare")
		if err = errors.Join(err, missing); err == nil {
			err = syscall.Exec(unshare, append([]string{"unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--", self}, os.Args[1:]...), os.Environ())
		}
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// box is a throw-away machine with a real systemd: this machine's own root
// file system under an overlay, booted by systemd-nspawn, with a network of
// its own that is only loopback. Nothing written inside lasts, and nothing
// that tickdog left on this machine shows inside.
type box struct {
	t      *testing.T
	dir    string // root, top and lower lie in it
	cgroup string // its processes' cgroup, "" if there is no cgroup2
	nspawn *exec.Cmd
	ended  chan struct{} // closed when nspawn is gone
	leader int           // its PID 1, as seen from here
	since  time.Time     // what the box said before is not looked at
}

// leftovers are the places where tickdog, its fleet or its container may have
// left something on this machine; and what this machine starts at boot is none
// of the box's business.
var leftovers = []string{
	"etc/tickdog", "var/lib/tickdog", "var/log/tickdog", "usr/bin/tickdog", "usr/local/bin/tickdog",
	"etc/systemd/system/mi50-watchdog*", "etc/systemd/system/dream-cycle*", "etc/systemd/user/lab-*",
	"usr/lib/systemd/*/mi50-watchdog*", "usr/lib/systemd/*/dream-cycle*", "usr/lib/systemd/*/lab-a2a-*",
	"etc/credstore", "var/lib/docker", "etc/docker", "home/lab", "root/.config/tickdog", "root/.local",
	"etc/systemd/system/*.target.wants", "var/lib/systemd/linger", "var/lib/systemd/timers", "etc/machine-id",
}

// boot starts a box, or skips the test where that is not wanted.
func boot(t *testing.T) *box {
	t.Helper()
	if os.Getenv(wanted) != wantedHere {
		t.Skip("boots a machine: needs root, systemd-container, docker.io, rocm-smi, python3-uvicorn, python3-starlette and TICKDOG_E2E=1")
	}
	dir, err := os.MkdirTemp("/var/tmp", "tickdog-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, dir: dir, since: time.Now()}
	t.Cleanup(b.down)
	for _, d := range []string{"lower", "top", "root"} {
		b.must(os.Mkdir(b.sub(d), 0o755))
	}
	b.must(unix.Mount("/", b.sub("lower"), "", unix.MS_BIND, ""))
	b.must(unix.Mount("tmpfs", b.sub("top"), "tmpfs", 0, "mode=755"))
	b.must(os.Mkdir(b.sub("top/upper"), 0o755))
	b.must(os.Mkdir(b.sub("top/work"), 0o755))
	b.must(unix.Mount("overlay", b.sub("root"), "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", b.sub("lower"), b.sub("top/upper"), b.sub("top/work"))))
	for _, pattern := range leftovers {
		found, _ := filepath.Glob(b.sub("root/" + pattern))
		for _, path := range found {
			b.must(os.RemoveAll(path))
		}
	}
	b.must(os.WriteFile(b.sub("root/etc/machine-id"), []byte(strings.Repeat("0d", 16)+"\n"), 0o444))
	b.start()
	if exists(b.path("/var/lib/dpkg/info/tickdog.list")) {
		b.sh("dpkg", "--purge", "tickdog")
	}
	return b
}

func (b *box) sub(name string) string { return filepath.Join(b.dir, name) }

func (b *box) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// start boots what is there.
func (b *box) start() {
	console, err := os.Create(b.sub("console"))
	b.must(err)
	defer console.Close()
	b.nspawn = exec.Command("systemd-nspawn", "-D", b.sub("root"), "-M", filepath.Base(b.dir),
		"--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--link-journal=no",
		"--capability=all", "--system-call-filter=@keyring bpf")
	if exists("/dev/fuse") {
		b.nspawn.Args = append(b.nspawn.Args, "--bind=/dev/fuse")
	}
	b.nspawn.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
	b.nspawn.Stdout, b.nspawn.Stderr = console, console
	b.nspawn.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if b.cgroup == "" {
		b.cgroup = ownCgroup(filepath.Base(b.dir))
	}
	if b.cgroup != "" {
		dir, err := os.Open(b.cgroup)
		b.must(err)
		defer dir.Close()
		b.nspawn.SysProcAttr.UseCgroupFD, b.nspawn.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	b.ended = make(chan struct{})
	b.must(b.nspawn.Start())
	go func() {
		b.nspawn.Wait()
		close(b.ended)
	}()
	b.awaitBoot()
}

// ownCgroup makes a cgroup for one box, or two of them would share theirs.
func ownCgroup(name string) string {
	mounts, _ := os.ReadFile("/proc/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			dir := filepath.Join(f[1], name)
			if os.Mkdir(dir, 0o755) == nil {
				return dir
			}
		}
	}
	return ""
}

// awaitBoot waits for the box's PID 1 and for all that it starts.
func (b *box) awaitBoot() {
	b.t.Helper()
	b.eventually(2*time.Minute, "the box has booted", func() (string, bool) {
		select {
		case <-b.ended:
			b.t.Fatalf("the box ended:\n%s", b.console())
		default:
		}
		pid := strconv.Itoa(b.nspawn.Process.Pid)
		children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		leader, _ := strconv.Atoi(strings.TrimSpace(string(children)))
		if b.leader = leader; leader == 0 {
			return "no PID 1", false
		}
		state, _ := b.try("systemctl", "is-system-running")
		return state, state == "running" || state == "degraded"
	})
}

func (b *box) console() string {
	said, _ := os.ReadFile(b.sub("console"))
	return string(said)
}

// reboot shuts the box down in good order and boots it again. What it has on
// disk stays; what was mounted or listening is gone, as on any machine.
func (b *box) reboot() {
	b.t.Helper()
	b.try("systemctl", "poweroff")
	select {
	case <-b.ended:
	case <-time.After(time.Minute):
		b.t.Fatalf("the box does not power off:\n%s", b.console())
	}
	b.start()
}

// down ends the box, by force if need be, and leaves nothing behind.
func (b *box) down() {
	if b.ended != nil {
		if b.leader != 0 {
			unix.Kill(b.leader, unix.Signal(34+4)) // SIGRTMIN+4: systemd's own poweroff
		}
		select {
		case <-b.ended:
		case <-time.After(15 * time.Second):
			b.nspawn.Process.Kill()
			<-b.ended
		}
	}
	if b.cgroup != "" {
		os.WriteFile(filepath.Join(b.cgroup, "cgroup.kill"), []byte("1"), 0)
		for range 50 { // from the leaves up, once they are empty
			filepath.WalkDir(b.cgroup, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					defer unix.Rmdir(path)
				}
				return nil
			})
			if unix.Rmdir(b.cgroup); !exists(b.cgroup) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for _, mount := range []string{"root", "top", "lower"} {
		unix.Unmount(b.sub(mount), unix.MNT_DETACH)
	}
	// Only what is empty goes: were one of them still mounted, it would be
	// this machine's own files.
	for _, d := range []string{"root", "top", "lower"} {
		unix.Rmdir(b.sub(d))
	}
	os.Remove(b.sub("console"))
	os.Remove(b.dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// journal is the end of what the box's journal says, up to so many lines;
// 0 is all.
func (b *box) journal(most int, arguments ...string) string {
	since := fmt.Sprintf("--since=@%d.%06d", b.since.Unix(), b.since.Nanosecond()/1000)
	said, _ := b.try(append([]string{"journalctl", "--no-pager", "-q", since}, arguments...)...)
	lines := strings.Split(said, "\n")
	if most > 0 && len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return strings.Join(lines, "\n")
}

// failed shows the journal of a test that failed.
func (b *box) failed() {
	if b.t.Failed() {
		b.t.Logf("the box's journal:\n%s", b.journal(100, "-o", "short-precise"))
	}
}

// command is a command as root inside the box.
func (b *box) command(ctx context.Context, argv ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(b.leader), "-m", "-u", "-i", "-p", "-n", "-C", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, argv...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// try runs a command as root inside the box and returns all that it said.
func (b *box) try(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := b.command(ctx, argv...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// sh is try for what has to succeed.
func (b *box) sh(argv ...string) string {
	b.t.Helper()
	out, err := b.try(argv...)
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// as makes a command one of a user's, with the user's own manager.
func (b *box) as(user string, argv ...string) []string {
	b.t.Helper()
	id := b.sh("id", "-u", user)
	return append([]string{"runuser", "-u", user, "--", "env", "HOME=/home/" + user,
		"XDG_RUNTIME_DIR=/run/user/" + id, "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/" + id + "/bus"}, argv...)
}

// path is where a file of the box lies as seen from here. There may be no
// symbolic link on the way.
func (b *box) path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(b.leader), "root", name)
}

// write puts a file into the box.
func (b *box) write(name, content string, mode fs.FileMode) {
	b.t.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	b.must(os.WriteFile(b.path(name), []byte(content), mode))
	b.must(os.Chmod(b.path(name), mode))
}

// read returns a file of the box, "" if there is none.
func (b *box) read(name string) string {
	b.t.Helper()
	content, err := os.ReadFile(b.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatal(err)
	}
	return string(content)
}

// copyIn copies a file of this machine into the box.
func (b *box) copyIn(from, to string, mode fs.FileMode) {
	b.t.Helper()
	content, err := os.ReadFile(from)
	b.must(err)
	b.write(to, string(content), mode)
}

// listen opens a port on the box's loopback, served from here.
func (b *box) listen(address string) net.Listener {
	b.t.Helper()
	l, err := inNetwork(b, func() (net.Listener, error) { return net.Listen("tcp", address) })
	b.must(err)
	b.t.Cleanup(func() { l.Close() })
	return l
}

// client is an HTTP client that asks from inside the box.
func (b *box) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return inNetwork(b, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) })
		},
	}}
}

// inNetwork calls open on a thread that is in the box's network. What it opens
// stays there.
func inNetwork[T any](b *box, open func() (T, error)) (opened T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		network, failed := os.Open(fmt.Sprintf("/proc/%d/ns/net", b.leader))
		if failed == nil {
			defer network.Close()
			failed = unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)
		}
		if err = failed; err == nil {
			opened, err = open()
		}
	}()
	<-done
	return opened, err
}

// eventually waits until something holds, and says what it saw last if it
// never does. A loaded machine is slow, so limits are generous.
func (b *box) eventually(limit time.Duration, what string, holds func() (saw string, ok bool)) {
	b.t.Helper()
	began := time.Now()
	for {
		saw, ok := holds()
		if ok {
			b.t.Logf("%5.1f s until %s", time.Since(began).Seconds(), what)
			return
		}
		if time.Since(began) > limit {
			b.t.Fatalf("not in %v: %s; last seen:\n%s", limit, what, saw)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// run runs a part of a test in a box.
func (b *box) run(name string, part func(t *testing.T)) {
	whole := b.t
	whole.Run(name, func(t *testing.T) {
		b.t = t
		defer func() {
			b.failed()
			b.t = whole
		}()
		part(t)
	})
}

// build builds programs of this repository, statically.
func build(t *testing.T, dir string, packages ...string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", out + "/"}, packages...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said.String())
	}
	return out
}
