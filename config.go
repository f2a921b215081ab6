package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"tickdog/check/agents"

	"github.com/BurntSushi/toml"
	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// config is the whole configuration, defaults filled in. Its toml tags are the
// keys of the file; a field without a tag is not a key.
type config struct {
	StateDir string        `toml:"state_dir"`
	GPU      gpuConfig     `toml:"gpu"`
	Agents   agentsConfig  `toml:"agents"`
	Cycle    cycleConfig   `toml:"cycle"`
	Notify   notifyConfig  `toml:"notify"`
	Metrics  metricsConfig `toml:"metrics"`

	path   string            // the file that was read; "" if there is none
	origin map[string]string // "gpu.max_busy" → where its value came from; missing = the default
	lines  map[string]int    // "gpu.max_busy" → its line in path
}

type gpuConfig struct {
	Name        string        `toml:"name"`
	Lock        string        `toml:"lock"`
	Log         string        `toml:"log"`
	Source      string        `toml:"source"`
	Sysfs       string        `toml:"sysfs"`
	RocmSMI     string        `toml:"rocm_smi"`
	AmdSMI      string        `toml:"amd_smi"`
	ReadTimeout time.Duration `toml:"read_timeout"`
	Card        string        `toml:"card"`
	Container   string        `toml:"container"`
	Docker      string        `toml:"docker"`
	MaxBusy     time.Duration `toml:"max_busy"`
	BusyAbove   float64       `toml:"busy_above"` // percent
	HotAt       float64       `toml:"hot_at"`     // °C
	HotChecks   int           `toml:"hot_checks"`
	MaxGap      time.Duration `toml:"max_gap"`
	MinGap      time.Duration `toml:"min_gap"`
	IdleSamples int           `toml:"idle_samples"`
	StopTimeout time.Duration `toml:"stop_timeout"`
	Kill        bool          `toml:"kill"`
}

type agentsConfig struct {
	Name            string        `toml:"name"`
	Lock            string        `toml:"lock"`
	Log             string        `toml:"log"`
	Scope           string        `toml:"scope"`
	Gate            string        `toml:"gate"`
	Alerts          string        `toml:"alerts"`
	HealthTimeout   time.Duration `toml:"health_timeout"`
	DispatchTimeout time.Duration `toml:"dispatch_timeout"`
	BusyCap         time.Duration `toml:"busy_cap"`
	BusyMax         time.Duration `toml:"busy_max"`
	StartGrace      time.Duration `toml:"start_grace"`
	RestartEvery    time.Duration `toml:"restart_every"`
	RestartTimeout  time.Duration `toml:"restart_timeout"`
	Settle          time.Duration `toml:"settle"`
	FreezeAfter     int           `toml:"freeze_after"`
	PassBudget      time.Duration `toml:"pass_budget"`
	MaxGap          time.Duration `toml:"max_gap"`
	MinGap          time.Duration `toml:"min_gap"`
	Agent           []agentConfig `toml:"agent"`
}

type agentConfig struct {
	Name string `toml:"name"`
	Unit string `toml:"unit"`
	URL  string `toml:"url"`
}

type cycleConfig struct {
	Name        string        `toml:"name"`
	Lock        string        `toml:"lock"`
	Log         string        `toml:"log"`
	Budget      time.Duration `toml:"budget"`
	CallCeiling time.Duration `toml:"call_ceiling"`
	KillGrace   time.Duration `toml:"kill_grace"`
	Stage       []stageConfig `toml:"stage"`
}

type stageConfig struct {
	Name  string     `toml:"name"`
	Calls [][]string `toml:"calls"`
}

type notifyConfig struct {
	Ntfy      ntfyConfig      `toml:"ntfy"`
	Board     boardConfig     `toml:"board"`
	Heartbeat heartbeatConfig `toml:"heartbeat"`
}

type ntfyConfig struct {
	URL       string `toml:"url"`
	TokenFile string `toml:"token_file"`
}

type boardConfig struct {
	URL     string `toml:"url"`
	Agent   string `toml:"agent"`
	Project string `toml:"project"`
}

type heartbeatConfig struct {
	URL string `toml:"url"`
}

type metricsConfig struct {
	Textfile string `toml:"textfile"`
}

// defaults are the values of design section 7; without a file they are all there is.
func (p *program) defaults() config {
	stateDir := "/var/lib/tickdog"
	if os.Geteuid() != 0 {
		stateDir = "~/.local/state/tickdog"
	}
	return config{
		StateDir: stateDir,
		GPU: gpuConfig{
			Name: "mi50-watchdog", Lock: "/run/lock/mi50-watchdog.lock",
			Source: "auto", Sysfs: "/sys", RocmSMI: "rocm-smi", AmdSMI: "amd-smi", ReadTimeout: 15 * time.Second,
			Container: "lyra-brain", Docker: "docker",
			MaxBusy: time.Hour, BusyAbove: 0, HotAt: 97, HotChecks: 3,
			MaxGap: 10 * time.Minute, MinGap: time.Minute, IdleSamples: 5, StopTimeout: 30 * time.Second,
		},
		Agents: agentsConfig{
			Name: "a2a-selfheal", Lock: "/run/lock/lab-a2a-selfheal.lock", Log: "~/.solos/logs/a2a-selfheal.log",
			Scope: "user", Gate: "on", Alerts: "incidents",
			HealthTimeout: agents.HealthTimeout, DispatchTimeout: agents.DispatchTimeout,
			BusyCap: 5 * time.Minute, BusyMax: 30 * time.Minute, StartGrace: time.Minute,
			RestartEvery: 10 * time.Minute, RestartTimeout: time.Minute, Settle: time.Minute,
			FreezeAfter: 3, PassBudget: 100 * time.Second, MaxGap: 10 * time.Minute, MinGap: time.Minute,
		},
		Cycle: cycleConfig{
			Name: "dream-cycle", Lock: "/run/lock/dream-cycle.lock",
			Budget: 20 * time.Minute, CallCeiling: 5 * time.Minute, KillGrace: 10 * time.Second,
		},
		Notify: notifyConfig{Board: boardConfig{Agent: "a2a-selfheal"}},
		origin: map[string]string{},
		lines:  map[string]int{},
	}
}

// loadConfig reads the configuration file, if there is one. A mistake in the
// named sections ("gpu", "agents", "cycle") or in what every command uses is an
// error that lists them all, each with file:line and the mend; a mistake in
// another section is a warning on stderr and that key keeps its default.
func (p *program) loadConfig(c *cli.Context, sections ...string) (config, error) {
	cfg := p.defaults()
	path, asked := p.configPath(c)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return cfg, p.finishConfig(&cfg)
	case err != nil:
		return cfg, fmt.Errorf("cannot read the configuration: %v", err)
	}
	cfg.path = path
	mistakes := cfg.decode(path, string(text))
	var fatal []error
	for _, m := range mistakes {
		if m.section != "" && !slices.Contains(sections, m.section) {
			fmt.Fprintf(p.stderr, "tickdog: warning: %s\n", m.text)
			continue
		}
		fatal = append(fatal, errors.New(m.text))
	}
	if len(fatal) > 0 {
		return cfg, errors.Join(fatal...)
	}
	return cfg, p.finishConfig(&cfg)
}

// configPath is the file to read, and whether a person named it (then it must be there).
func (p *program) configPath(c *cli.Context) (path string, asked bool) {
	if path = c.String("config"); path != "" {
		return path, true
	}
	if path = p.getenv("TICKDOG_CONFIG"); path != "" {
		return path, true
	}
	if os.Geteuid() == 0 {
		return "/etc/tickdog/tickdog.toml", false
	}
	return p.expand("~/.config/tickdog/tickdog.toml"), false
}

// finishConfig takes what the environment says over the file and expands ~.
func (p *program) finishConfig(cfg *config) error {
	if u := p.getenv("TICKDOG_NTFY_URL"); u != "" {
		if why := badURL(u); why != "" {
			return fmt.Errorf("TICKDOG_NTFY_URL: %s", why)
		}
		cfg.Notify.Ntfy.URL = u
		cfg.origin["notify.ntfy.url"] = "environment TICKDOG_NTFY_URL"
	}
	for _, path := range []*string{
		&cfg.StateDir, &cfg.GPU.Lock, &cfg.GPU.Log, &cfg.GPU.Sysfs, &cfg.GPU.RocmSMI, &cfg.GPU.AmdSMI, &cfg.GPU.Docker,
		&cfg.Agents.Lock, &cfg.Agents.Log, &cfg.Cycle.Lock, &cfg.Cycle.Log,
		&cfg.Notify.Ntfy.TokenFile, &cfg.Metrics.Textfile,
	} {
		*path = p.expand(*path)
	}
	return nil
}

// expand puts the home directory in place of a leading ~.
func (p *program) expand(path string) string {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path
	}
	home := p.getenv("HOME")
	if home == "" {
		return path
	}
	return filepath.Join(home, path[1:])
}

// mistake is one thing wrong with the file.
type mistake struct {
	key     string // "" if the text is not TOML
	section string // gpu, agents or cycle; "" if every command uses it
	line    int
	text    string // "file:line: key: what; the mend"
}

// decode fills the configuration from the text and returns every mistake, in
// the order of their lines. A key with a mistake keeps its default.
func (cfg *config) decode(path, text string) []mistake {
	tree := map[string]any{}
	if _, err := toml.Decode(text, &tree); err != nil {
		var pe toml.ParseError
		if errors.As(err, &pe) {
			return []mistake{{line: pe.Position.Line, text: fmt.Sprintf("%s:%d: not TOML: %s", path, pe.Position.Line, pe.Message)}}
		}
		return []mistake{{text: fmt.Sprintf("%s: not TOML: %v", path, err)}}
	}
	d := decoder{cfg: cfg, path: path, lines: tomlLines(text)}
	cfg.lines = d.lines
	d.table("", reflect.ValueOf(cfg).Elem(), tree)
	d.validate()
	slices.SortStableFunc(d.mistakes, func(a, b mistake) int { return a.line - b.line })
	return d.mistakes
}

type decoder struct {
	cfg      *config
	path     string
	lines    map[string]int
	mistakes []mistake
}

// wrong notes a mistake of the key, on its own line (of a list of tables, the
// first's) or on that of the nearest table above it. Only a key's first counts:
// what cannot be read is not also missing.
func (d *decoder) wrong(key, format string, args ...any) {
	if slices.ContainsFunc(d.mistakes, func(m mistake) bool { return m.key == key }) {
		return
	}
	line := 1
	for at := key; at != ""; at = parentKey(at) {
		if n := cmp.Or(d.lines[at], d.lines[at+"[0]"]); n > 0 {
			line = n
			break
		}
	}
	section, _, _ := strings.Cut(key, ".")
	if !slices.Contains([]string{"gpu", "agents", "cycle"}, section) {
		section = ""
	}
	d.mistakes = append(d.mistakes, mistake{key, section, line, fmt.Sprintf("%s:%d: %s: %s", d.path, line, key, fmt.Sprintf(format, args...))})
}

// table fills one struct from one TOML table.
func (d *decoder) table(prefix string, into reflect.Value, tree map[string]any) {
	fields := map[string]reflect.Value{}
	for i := range into.NumField() {
		if tag := into.Type().Field(i).Tag.Get("toml"); tag != "" {
			fields[tag] = into.Field(i)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		full := joinKey(prefix, key)
		field, ok := fields[key]
		if !ok {
			d.wrong(full, "unknown key; %s", nearest(key, slices.Sorted(maps.Keys(fields))))
			continue
		}
		d.value(full, field, tree[key])
	}
}

// value fills one field; a value of the wrong type is a mistake that shows the right form.
func (d *decoder) value(key string, into reflect.Value, value any) {
	switch into.Interface().(type) {
	case time.Duration:
		s, ok := value.(string)
		t, err := time.ParseDuration(s)
		if !ok || err != nil {
			d.wrong(key, "%s is not a duration; write a string with a unit, like \"90s\", \"10m\" or \"1h\"", shown(value))
			return
		}
		into.SetInt(int64(t))
	case string:
		s, ok := value.(string)
		if !ok {
			d.wrong(key, "%s is not a string; write it in quotes", shown(value))
			return
		}
		into.SetString(s)
	case bool:
		b, ok := value.(bool)
		if !ok {
			d.wrong(key, "%s is neither true nor false", shown(value))
			return
		}
		into.SetBool(b)
	case int:
		n, ok := value.(int64)
		if !ok {
			d.wrong(key, "%s is not a whole number", shown(value))
			return
		}
		into.SetInt(n)
	case float64:
		switch n := value.(type) {
		case int64:
			into.SetFloat(float64(n))
		case float64:
			into.SetFloat(n)
		default:
			d.wrong(key, "%s is not a number", shown(value))
			return
		}
	case [][]string:
		calls, ok := callLists(value)
		if !ok {
			d.wrong(key, "%s is not a list of commands; write [[\"program\", \"argument\"], [\"program\"]]", shown(value))
			return
		}
		into.Set(reflect.ValueOf(calls))
	default:
		switch into.Kind() {
		case reflect.Struct:
			tree, ok := value.(map[string]any)
			if !ok {
				d.wrong(key, "%s is not a table; write [%s] on a line of its own", shown(value), key)
				return
			}
			d.table(key, into, tree)
			return
		case reflect.Slice: // an array of tables
			trees, ok := value.([]map[string]any)
			if !ok {
				d.wrong(key, "%s is not a list of tables; write [[%s]] on a line of its own", shown(value), key)
				return
			}
			list := reflect.MakeSlice(into.Type(), len(trees), len(trees))
			for i, tree := range trees {
				d.table(fmt.Sprintf("%s[%d]", key, i), list.Index(i), tree)
			}
			into.Set(list)
			return
		}
	}
	d.cfg.origin[key] = fmt.Sprintf("%s:%d", d.path, d.lines[key])
}

func callLists(value any) (calls [][]string, ok bool) {
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	for _, item := range list {
		words, ok := item.([]any)
		if !ok {
			return nil, false
		}
		call := []string{}
		for _, word := range words {
			s, ok := word.(string)
			if !ok {
				return nil, false
			}
			call = append(call, s)
		}
		calls = append(calls, call)
	}
	return calls, true
}

// shown is a wrong value as the reader wrote it, near enough and short.
func shown(value any) string {
	var s string
	switch v := value.(type) {
	case string:
		s = fmt.Sprintf("%q", v)
	case map[string]any, []map[string]any:
		return "a table"
	default:
		s = fmt.Sprint(v)
	}
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return s
}

// nearest says which key was meant, if one is near, else which there are.
func nearest(key string, keys []string) string {
	best, far := "", 4
	for _, k := range keys {
		if n := smetrics.WagnerFischer(strings.ToLower(key), k, 1, 1, 1); n < far {
			best, far = k, n
		}
	}
	if best != "" && far < len(key) {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return "the keys here are " + strings.Join(keys, ", ")
}

func joinKey(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

func parentKey(key string) string {
	if i := strings.LastIndexAny(key, ".["); i >= 0 {
		return key[:i]
	}
	return ""
}

// badURL is why a URL cannot be used, or "".
func badURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Sprintf("%q is not a URL; write it like http://127.0.0.1:8300", withoutSecrets(s))
	}
	return ""
}

// withoutSecrets is what was meant to be a URL as it may be shown: without the
// user, the password and the query, which is where tokens are.
func withoutSecrets(s string) string {
	s, _, _ = strings.Cut(s, "?")
	if at := strings.LastIndex(s, "@"); at >= 0 {
		s = "…" + s[at:]
	}
	return s
}
