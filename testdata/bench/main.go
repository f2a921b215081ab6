// Bench measures tickdog side by side with the shell scripts that it takes the
// place of: the same machine, the same sensors, the same agents, in turn.
//
//	go run ./testdata/bench -out testdata/bench/RESULTS.md
//
// It needs bash, curl and util-linux. Where a real or
// synthetic MI50 is under /sys and rocm-smi is installed, the GPU is measured
// with them; else a copy of an MI50's sysfs serves, and what needs rocm-smi is
// left out and said to be. The agents are this program's own; systemctl is a
// stand-in that answers at once, for the script asks it nothing either while
// all is well.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	runs := flag.Int("n", 20, "`RUNS` of each; the medians are compared")
	wedged := flag.Int("wedged", 10, "`RUNS` of a pass over 8 wedged agents, 15 s each (the script: one)")
	out := flag.String("out", "", "write the report to `FILE` too")
	flag.Parse()
	b := newBench(*runs)
	defer os.RemoveAll(b.dir)
	b.gpu()
	b.agents()
	b.growth()
	if *wedged > 0 {
		b.wedged(*wedged)
	}
	report := b.report()
	fmt.Print(report)
	if *out != "" {
		must(os.WriteFile(*out, []byte(report), 0o644))
	}
}

// cost is what one run took.
type cost struct {
	wall, cpu time.Duration
	peak      int64 // KiB; the largest of the process and those it waited for
}

// bench is the place and the results.
type bench struct {
	runs    int
	dir     string // with tickdog, empty, systemctl, and all that they write
	scripts string
	sysfs   string // "" if the machine's own serves
	smi     bool   // rocm-smi over the same card
	text    strings.Builder
	targets [][4]string
	remarks []string     // why a target was missed
	mode    atomic.Value // of the agents: "healthy", "wedged"
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newBench(runs int) *bench {
	dir, err := os.MkdirTemp("", "tickdog-bench-")
	must(err)
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "tickdog").Output()
	must(err)
	b := &bench{runs: runs, dir: dir}
	repo := strings.TrimSpace(string(root))
	b.scripts = filepath.Join(repo, "testdata/bench")
	must(os.WriteFile(b.path("empty.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	b.build(repo, "tickdog", ".")
	b.build(dir, "empty", "empty.go")
	b.build(repo, "systemctl", "./testdata/bench/systemctl")
	b.build(repo, "measure", "./testdata/bench/measure")

	if _, err := os.Stat("/sys/class/drm/card0/device/gpu_busy_percent"); err == nil {
		_, err := exec.LookPath("rocm-smi")
		b.smi = err == nil
	} else {
		b.sysfs = filepath.Join(repo, "testdata/captures/sysfs/single-mi50")
	}
	b.mode.Store("healthy")
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// build builds as the package does.
func (b *bench) build(in, name, what string) {
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", b.path(name), what)
	cmd.Dir = in
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		must(fmt.Errorf("%v\n%s", err, text))
	}
}

// run runs a command once. One that fails, or a pass that sees nothing, is no result.
func (b *bench) run(env []string, argv ...string) (c cost) {
	path, err := exec.LookPath(argv[0])
	must(err)
	cmd := exec.Command(b.path("measure"), append([]string{path}, argv[1:]...)...)
	cmd.Env = append(os.Environ(), "PATH="+b.dir+":"+os.Getenv("PATH"), "HOME="+b.dir, "XDG_RUNTIME_DIR="+b.dir)
	cmd.Env = append(cmd.Env, env...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	read, write, err := os.Pipe()
	must(err)
	defer read.Close()
	cmd.ExtraFiles = []*os.File{write}
	err = cmd.Run()
	write.Close()
	must(err)
	var wall, cpu, status int64
	_, err = fmt.Fscan(read, &wall, &cpu, &c.peak, &status)
	must(err)
	if argv[0] == "rocm-smi" {
		status = 0 // it exits 2 when a sensor is missing, and has said all it knows
	}
	if status != 0 || strings.Contains(text.String(), "unknown") {
		must(fmt.Errorf("%v: exit %d\n%s", argv, status, text.Bytes()))
	}
	c.wall, c.cpu = time.Duration(wall), time.Duration(cpu)*time.Microsecond
	return c
}

// contender is one of those that are measured in turn.
type contender struct {
	name string
	run  func() cost
}

// measure runs all of them in turn, so that whatever else the machine does
// meets each alike, and returns the median of each.
func (b *bench) measure(runs int, contenders ...contender) []cost {
	all := make([][]cost, len(contenders))
	if runs > 1 { // the first one fills caches
		for _, c := range contenders {
			c.run()
		}
	}
	for range runs {
		for k, c := range contenders {
			all[k] = append(all[k], c.run())
		}
	}
	medians := make([]cost, len(contenders))
	for k, costs := range all {
		medians[k] = median(costs)
		fmt.Fprintf(os.Stderr, "%s: %v\n", contenders[k].name, medians[k])
	}
	return medians
}

func median(costs []cost) (m cost) {
	pick := func(less func(a, b cost) int) cost {
		slices.SortFunc(costs, less)
		return costs[len(costs)/2]
	}
	m.wall = pick(func(a, b cost) int { return cmp.Compare(a.wall, b.wall) }).wall
	m.cpu = pick(func(a, b cost) int { return cmp.Compare(a.cpu, b.cpu) }).cpu
	m.peak = pick(func(a, b cost) int { return cmp.Compare(a.peak, b.peak) }).peak
	return m
}

func (b *bench) table(title string, names []string, medians []cost) {
	fmt.Fprintf(&b.text, "\n## %s\n\n| what | wall | CPU | peak memory |\n| --- | ---: | ---: | ---: |\n", title)
	for i, m := range medians {
		fmt.Fprintf(&b.text, "| %s | %s | %s | %.1f MiB |\n", names[i], ms(m.wall), ms(m.cpu), float64(m.peak)/1024)
	}
}

func ms(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// target notes what was wanted and what came out.
func (b *bench) target(what, want, got string, met bool) {
	word := "met"
	if !met {
		word = "**missed**"
	}
	b.targets = append(b.targets, [4]string{what, want, got, word})
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// config writes a configuration and returns its path.
func (b *bench) config(name, text string) string {
	must(os.WriteFile(b.path(name), fmt.Appendf(nil, "state_dir = %q\n%s", b.path(name+"-state"), text), 0o600))
	return b.path(name)
}

// gpu measures a pass over one card that is busy and cool.
func (b *bench) gpu() {
	sysfs := ""
	if b.sysfs != "" {
		sysfs = fmt.Sprintf("sysfs = %q\n", b.sysfs)
	}
	gpu := func(source string) string {
		return b.config("gpu-"+source+".toml", fmt.Sprintf("[gpu]\nlock = %q\nsource = %q\nmax_busy = \"1000h\"\n%s", b.path("gpu-"+source+".lock"), source, sysfs))
	}
	direct, through := gpu("sysfs"), gpu("rocm-smi")
	pass := func(config string) func() cost {
		return func() cost { return b.run(nil, b.path("tickdog"), "gpu", "--config", config) }
	}
	names := []string{"an empty Go program", "`tickdog gpu`, sysfs", "`tickdog --version`: no more than a start"}
	contenders := []contender{
		{names[0], func() cost { return b.run(nil, b.path("empty")) }},
		{names[1], pass(direct)},
		{names[2], func() cost { return b.run(nil, b.path("tickdog"), "--version") }},
	}
	if b.smi {
		names = append(names, "rocm-smi alone, asked the same", "`tickdog gpu`, rocm-smi", "the script (rocm-smi)")
		contenders = append(contenders,
			contender{names[3], func() cost { // with the arguments that tickdog gives it
				return b.run(nil, "rocm-smi", "--showuse", "--showtemp", "--showpower", "--showbus", "--showuniqueid", "--json")
			}},
			contender{names[4], pass(through)},
			contender{names[5], func() cost {
				return b.run([]string{"STATE=" + b.path("script-state"), "MAX_BUSY=3600000"}, filepath.Join(b.scripts, "mi50-watchdog.sh"))
			}})
	}
	m := b.measure(b.runs, contenders...)
	b.table("A GPU pass", names, m)
	empty, overSysfs, start := m[0], m[1], m[2]
	b.target("a `gpu` pass over sysfs: CPU against an empty Go program", "≤ 3 ×", fmt.Sprintf("%.1f ×", ratio(overSysfs.cpu, empty.cpu)), ratio(overSysfs.cpu, empty.cpu) <= 3)
	if ratio(overSysfs.cpu, empty.cpu) > 3 {
		b.remarks = append(b.remarks, fmt.Sprintf("A pass over sysfs is two starts of the program: its own, and that of the child which reads the sensors, so that a sensor file that hangs in the kernel hangs no pass. Two starts that do nothing are %.1f × an empty program already (command tree, TOML, HTTP client and their tables); without the child a pass would cost about half, and a dead card could block the guard.", 2*ratio(start.cpu, empty.cpu)))
	}
	b.target("a `gpu` pass: peak memory", "< 20 MiB", fmt.Sprintf("%.1f MiB", float64(overSysfs.peak)/1024), overSysfs.peak < 20<<10)
	if !b.smi {
		b.target("a `gpu` pass against the script with rocm-smi", "20 × less CPU", "not measured: no rocm-smi over an amdgpu card here", false)
		return
	}
	smi, overSMI, script := m[3], m[4], m[5]
	b.target("a `gpu` pass over sysfs: CPU against the script with rocm-smi", "≥ 20 × less", fmt.Sprintf("%.1f × less", ratio(script.cpu, overSysfs.cpu)), ratio(script.cpu, overSysfs.cpu) >= 20)
	b.target("a `gpu` pass over rocm-smi: wall against rocm-smi itself", "≤ 1.1 ×", fmt.Sprintf("%.2f ×", ratio(overSMI.wall, smi.wall)), ratio(overSMI.wall, smi.wall) <= 1.1)
}

// fleet starts agents and returns the product's and the script's idea of them.
func (b *bench) fleet(name string, n int) (config, agents string, stop func()) {
	text := fmt.Sprintf("[agents]\nlock = %q\nlog = %q\n", b.path(name+".lock"), b.path(name+".log"))
	var servers []*http.Server
	for i := range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(err)
		agent := fmt.Sprintf("agent%d", i)
		server := &http.Server{Handler: b.agent(agent)}
		go server.Serve(listener)
		servers = append(servers, server)
		port := listener.Addr().(*net.TCPAddr).Port
		agents += fmt.Sprintf("%s:%d ", agent, port)
		text += fmt.Sprintf("[[agents.agent]]\nname = %q\nunit = \"lab-a2a-%s.service\"\nurl = \"http://127.0.0.1:%d\"\n", agent, agent, port)
	}
	return b.config(name+".toml", text), agents, func() {
		for _, s := range servers {
			s.Close()
		}
	}
}

// agent answers like one of the fleet; a wedged one says that it is well.
func (b *bench) agent(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"agent":%q,"status":"running","circuit_open":false,"current_task":null}`, name)
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		var request struct{ ID json.RawMessage }
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &request)
		if b.mode.Load() == "wedged" {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"kind":"message","role":"agent","messageId":"m","parts":[{"kind":"text","text":"pong"}]}}`, request.ID)
	})
	return mux
}

func (b *bench) sweep(config string) func() cost {
	return func() cost { return b.run(nil, b.path("tickdog"), "agents", "--config", config) }
}

func (b *bench) script(agents string) func() cost {
	return func() cost {
		return b.run([]string{"AGENTS=" + agents, "DIR=" + b.dir, "LOCK=" + b.path("script.lock")}, filepath.Join(b.scripts, "a2a_selfheal.sh"))
	}
}

// agents measures a pass over the fleet of eight, all well.
func (b *bench) agents() {
	config, agents, stop := b.fleet("eight", 8)
	defer stop()
	names := []string{"`tickdog agents`", "the script"}
	m := b.measure(b.runs, contender{names[0], b.sweep(config)}, contender{names[1], b.script(agents)})
	b.table("8 healthy agents", names, m)
	b.target("8 healthy agents: CPU against the script", "≥ 8 × less", fmt.Sprintf("%.1f × less", ratio(m[1].cpu, m[0].cpu)), ratio(m[1].cpu, m[0].cpu) >= 8)
	b.target("8 healthy agents: wall against the script", "≥ 8 × less", fmt.Sprintf("%.1f × less", ratio(m[1].wall, m[0].wall)), ratio(m[1].wall, m[0].wall) >= 8)
}

// growth measures how the cost grows with the number of agents.
func (b *bench) growth() {
	raiseFileLimit()
	var names []string
	var medians []cost
	for _, n := range []int{8, 64, 512, 1000, 4096} {
		config, _, stop := b.fleet(fmt.Sprintf("fleet%d", n), n)
		name := fmt.Sprintf("%d agents", n)
		m := b.measure(max(10, b.runs/2), contender{name, b.sweep(config)})
		stop()
		names, medians = append(names, name), append(medians, m...)
		if n == 1000 {
			b.target("1,000 healthy agents: wall", "< 4 s", ms(m[0].wall), m[0].wall < 4*time.Second)
			b.target("1,000 healthy agents: peak memory", "< 64 MiB", fmt.Sprintf("%.1f MiB", float64(m[0].peak)/1024), m[0].peak < 64<<10)
		}
	}
	b.table("More agents, all healthy", names, medians)
	first, last := medians[0], medians[len(medians)-1]
	fmt.Fprintf(&b.text, "\nFrom 8 to 4096 agents each further one costs %.0f µs of CPU and %.1f KiB: the cost grows with their number and no faster.\n",
		float64((last.cpu-first.cpu).Microseconds())/4088, float64(last.peak-first.peak)/4088)
}

// wedged measures a pass over eight agents that say they are well and never
// answer a message.
func (b *bench) wedged(runs int) {
	config, agents, stop := b.fleet("wedged", 8)
	defer stop()
	b.mode.Store("wedged")
	defer b.mode.Store("healthy")
	names := []string{"`tickdog agents`", "the script (one run)"}
	m := []cost{
		// Each from an empty state: a pass that heals waits for the healed too.
		b.measure(runs, contender{names[0], func() cost {
			must(os.RemoveAll(config + "-state"))
			return b.sweep(config)()
		}})[0],
		b.measure(1, contender{names[1], b.script(agents)})[0],
	}
	b.table("8 wedged agents", names, m)
	b.target("8 wedged agents: the verdict", "≤ 20 s", ms(m[0].wall), m[0].wall <= 20*time.Second)
}

func (b *bench) report() string {
	var s strings.Builder
	fmt.Fprintf(&s, "# tickdog beside the scripts it replaces\n\nWritten by `go run ./testdata/bench -out testdata/bench/RESULTS.md`: medians of %d runs (of at least 10 where\none takes long), the contenders in turn, on %s.\nCPU and peak memory include the programs that each one starts and waits for (rocm-smi, curl, systemctl).\n", b.runs, machine())
	if b.sysfs == "" {
		s.WriteString("The card is what this machine shows under /sys; rocm-smi reads the same one.\n")
	}
	s.WriteString("\n| target | wanted | measured | |\n| --- | --- | --- | --- |\n")
	for _, t := range b.targets {
		fmt.Fprintf(&s, "| %s | %s | %s | %s |\n", t[0], t[1], t[2], t[3])
	}
	for _, r := range b.remarks {
		s.WriteString("\n" + r + "\n")
	}
	return s.String() + b.text.String()
}

// machine says on what this was measured.
func machine() string {
	model := "an unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %d cores, %s", model, runtime.NumCPU(), runtime.Version())
}

func raiseFileLimit() {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
	}
}
