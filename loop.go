package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"tickdog/check"
	"tickdog/check/loop"

	"github.com/urfave/cli/v2"
)

// loopCommand is 'tickdog loop': what an agent's run loop should do next.
func (p *program) loopCommand() *cli.Command {
	return &cli.Command{
		Name:            "loop",
		Usage:           "says what an agent's run loop should do next: proceed, steer, back off or freeze",
		Description:     loopManual,
		HideHelpCommand: true,
		OnUsageError:    usageError,
		Action: func(c *cli.Context) error {
			if word := c.Args().First(); word != "" {
				return fmt.Errorf("there is no command %q; 'tickdog loop --help' lists them", word)
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			p.leaf(p.loopAction(), 0, 0),
			p.leaf(p.loopFailure(), 0, 0),
			p.leaf(p.loopAnswered(), 0, 0),
			p.leaf(p.loopWait(), 0, 0),
			p.leaf(p.loopClassify(), 0, 0),
			p.leaf(p.loopShow(), 0, 0),
			p.leaf(p.loopList(), 0, 0),
			p.leaf(p.loopThaw(), 0, 0),
			p.leaf(p.loopHalt(true), 0, 0),
			p.leaf(p.loopHalt(false), 0, 0),
			p.leaf(p.loopPrune(), 0, 0),
			p.hookCommand(),
		},
	}
}

const loopManual = `Any loop that can start a program asks here: after each action of its agent
('loop action'), after each failure of its model's provider ('loop failure')
and after each answer ('loop answered'). The answer is one JSON object:

  {"action":"proceed"}                       go on
  {"action":"steer","text":...}              give the text to the model, go on
  {"action":"back_off","until_ms":...}       try again, not before that moment
                                             ('loop wait' sleeps until then)
  {"action":"freeze","reason":...}           stop; only 'loop thaw' ends it
  {"action":"halt"}                          stop; 'loop unhalt' ends it

with "corrections" (steers of this episode) and "provider_failures" (in all).
The exit status is 0; with --exit-code it is 0 for proceed, 10 steer,
11 back_off, 12 freeze, 13 halt.

A run is any id you choose: a session's, a job's. What is remembered of it lies
in STATE_DIR/loops, one readable file a run. Coding agents need no loop of
yours: 'loop hook' speaks the hooks of Claude Code, Codex and Gemini CLI.`

// patience is how long a command waits for a run's lock. A verdict takes a
// millisecond, so that whoever holds it for longer is stopped or stuck.
const patience = 5 * time.Second

// verdictExit is what --exit-code makes of an answer.
var verdictExit = map[loop.Next]int{
	loop.Proceed: 0, loop.Steer: 10, loop.BackOff: 11, loop.Freeze: 12, loop.Halt: 13,
}

func runFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "run", Usage: usage} }

func eventFlag() cli.Flag {
	return &cli.StringFlag{Name: "event", Usage: "`ID` of this event: the same one again counts nothing and gets the same answer"}
}

func exitCodeFlag() cli.Flag {
	return &cli.BoolFlag{Name: "exit-code", Usage: "exit with 0 proceed, 10 steer, 11 back_off, 12 freeze, 13 halt"}
}

const whichRun = "`ID` of the run: any text, best a UUID"

// runOf is the run that --run names.
func runOf(c *cli.Context) (string, error) {
	run := c.String("run")
	switch {
	case run == "":
		return "", fmt.Errorf("%s needs --run ID", c.Command.HelpName)
	case len(run) > maxRunID:
		return "", fmt.Errorf("--run: an id of %d bytes; at most %d are allowed", len(run), maxRunID)
	}
	return run, nil
}

const maxRunID = 1024

// openRuns is what every command begins with: the configuration, then the folder.
func (p *program) openRuns(c *cli.Context) (*loops, error) {
	cfg, err := p.loadConfig(c)
	if err != nil {
		return nil, err
	}
	return p.openLoops(cfg.StateDir)
}

// tellLoop decides and prints the answer.
func (p *program) tellLoop(c *cli.Context, limits loop.Limits, seen loop.Seen) error {
	run, err := runOf(c)
	if err != nil {
		return err
	}
	l, err := p.openRuns(c)
	if err != nil {
		return err
	}
	v, _ := l.decide(c.Context, run, patience, limits, seen)
	return p.printVerdict(c, v)
}

// viewRun is the run that --run names and the runs' files, for a command that
// only looks.
func (p *program) viewRun(c *cli.Context) (run string, l *loops, err error) {
	if run, err = runOf(c); err != nil {
		return "", nil, err
	}
	cfg, err := p.loadConfig(c)
	if err != nil {
		return "", nil, err
	}
	return run, p.viewLoops(cfg.StateDir), nil
}

// printVerdict prints the one JSON object and sets the exit status.
func (p *program) printVerdict(c *cli.Context, v loop.Verdict) error {
	if err := p.printJSON(verdictJSON(v)); err != nil {
		return err
	}
	if code := verdictExit[v.Action]; code != 0 && c.Bool("exit-code") {
		return exitCode(code)
	}
	return nil
}

// verdictJSON is a verdict as it is printed: a halt has nothing to count, for
// it looks at no run; a back-off has all its keys, also with nothing to say.
func verdictJSON(v loop.Verdict) any {
	switch v.Action {
	case loop.Halt:
		return struct {
			Action loop.Next `json:"action"`
		}{v.Action}
	case loop.BackOff:
		return struct {
			Action           loop.Next `json:"action"`
			UntilMS          int64     `json:"until_ms"`
			Code             string    `json:"code"`
			Subject          string    `json:"subject"`
			Corrections      int       `json:"corrections"`
			ProviderFailures int       `json:"provider_failures"`
		}{v.Action, v.UntilMS, v.Code, v.Subject, v.Corrections, v.ProviderFailures}
	}
	return v
}

func (p *program) printJSON(v any) error {
	line, err := jsonLine(v)
	if err == nil {
		_, err = p.stdout.Write(line)
	}
	return err
}

// jsonLine is v as one line; a text keeps its <, > and &.
func jsonLine(v any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return line.Bytes(), err
}

// maxAction is how large an action's JSON may be.
const maxAction = 16 << 20

func (p *program) loopAction() *cli.Command {
	return &cli.Command{
		Name:  "action",
		Usage: "record an action of the agent, and hear whether the run repeats itself",
		Description: `Call it before each action that the agent takes. Three equal actions in a row
are a stall: the first time the answer is "steer", with a text to give to the
model; if it repeats itself again after it could have read that (2 s), the
answer is "freeze", and stays so until 'loop thaw'. Only the end of the run
counts: a repetition that another action has broken is over.

The action is given as JSON, say {"tool":"shell","args":{"command":"make"}}.
Equal means equal in every argument that matters: not in the order of the keys
or in blanks, nor in ids, timestamps and a description beside a command, which
differ from call to call. Or compare by yourself and give --fingerprint.

  tickdog loop action --run "$ID" --json - <<<'{"tool":"shell","args":{"command":"make"}}'`,
		Flags: []cli.Flag{
			runFlag(whichRun),
			&cli.StringFlag{Name: "json", Usage: "`FILE` with the action as JSON; - is standard input"},
			&cli.StringFlag{Name: "fingerprint", Usage: "`HEX` that is the same for the same action, instead of --json"},
			eventFlag(),
			&cli.BoolFlag{Name: "cycles", Usage: "look for A-B-A-B, and cycles of three and four, too: three full turns"},
			exitCodeFlag(),
		},
		Action: func(c *cli.Context) error {
			if c.IsSet("json") == c.IsSet("fingerprint") {
				return errors.New("loop action needs either --json FILE or --fingerprint HEX")
			}
			fingerprint := strings.ToLower(c.String("fingerprint"))
			if c.IsSet("fingerprint") {
				if len(fingerprint) == 0 || len(fingerprint) > 128 || strings.Trim(fingerprint, "0123456789abcdef") != "" {
					return fmt.Errorf("--fingerprint: %q is not 1 to 128 hex digits", c.String("fingerprint"))
				}
			} else {
				text, err := p.readInput(c.String("json"))
				if err == nil && len(bytes.TrimSpace(text)) == 0 {
					err = errors.New("it is empty")
				}
				if err != nil {
					return fmt.Errorf("--json: %v", err)
				}
				fingerprint = loop.Fingerprint(text)
			}
			return p.tellLoop(c, loop.Limits{Cycles: c.Bool("cycles")},
				loop.Acted{Fingerprint: fingerprint, Event: eventID(c.String("event"))})
		},
	}
}

// readInput reads the file, or standard input if it is -. It may be empty.
func (p *program) readInput(path string) ([]byte, error) {
	in, err := p.open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxAction+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxAction:
		return nil, fmt.Errorf("more than %d MiB", maxAction>>20)
	}
	return text, nil
}

func (p *program) loopFailure() *cli.Command {
	return &cli.Command{
		Name:  "failure",
		Usage: "record a failure of the provider, and hear whether and when to try again",
		Description: `With --retry no the answer is "freeze" at once: waiting cannot help. With yes
or unknown it is "back_off", until now plus the longer of the run's own wait
and the one that was told (--retry-after). The own wait is 500 ms, doubled for
each failure in a row, at most 60 s, plus up to half of it, drawn from the
run's id: a run replays its own waits, and its neighbours come at other times.

There is no ceiling unless you set one: with --at-most 8 the ninth failure in a
row freezes. If you have only an exit status or an HTTP status, give that
instead of --code and --retry; see 'loop classify'.

A loop around a command that fails now and then:

  id=$(cat /proc/sys/kernel/random/uuid)
  until flaky-command; do
      tickdog loop failure --run "$id" --exit $? --subject flaky --at-most 8 --exit-code
      [ $? -eq 11 ] || exit 1
      tickdog loop wait --run "$id" --exit-code || exit 1
  done
  tickdog loop answered --run "$id"`,
		Flags: append([]cli.Flag{
			runFlag(whichRun),
			&cli.StringFlag{Name: "code", Usage: "what kind of failure it was, in a `WORD`: rate_limit, auth, cut"},
			&cli.StringFlag{Name: "subject", Usage: "who or what failed, in a few `WORDS`; secrets in it are masked"},
			&cli.StringFlag{Name: "retry", Usage: "`yes|no|unknown`: may the same request succeed later?"},
			&cli.StringFlag{Name: "retry-after", Usage: "the `WAIT` that was asked for: 30, 30s, or the value of a Retry-After header; what is no wait is ignored"},
			&cli.IntFlag{Name: "at-most", Usage: "wait for at most `N` failures in a row; the next one freezes"},
			eventFlag(),
			exitCodeFlag(),
		}, classifyFlags()...),
		Action: func(c *cli.Context) error {
			now := p.moment().Wall
			f := loop.Failed{Code: loop.Mask(c.String("code")), Subject: loop.Mask(c.String("subject")), Event: eventID(c.String("event"))}
			class, given, err := p.classOf(c, now)
			switch {
			case err != nil:
				return err
			case given && c.IsSet("retry"):
				return errors.New("loop failure takes either --retry or what --status, --exit or --error say, not both")
			case given && class.Retry == "":
				return errors.New("--exit: 0 is no failure; 'tickdog loop answered' ends a streak")
			case given:
				f.Retry = class.Retry
				if f.Code == "" {
					f.Code = class.Code
				}
				if class.Told != nil {
					f.Told = *class.Told
				}
			default:
				if f.Retry, err = parseRetry(c.String("retry")); err != nil {
					return err
				}
				if f.Code == "" {
					return errors.New("loop failure needs --code WORD (or --status, --exit or --error)")
				}
			}
			if told := c.String("retry-after"); told != "" {
				wait, ok := loop.ParseTold(told, now)
				if ok {
					f.Told = wait
				} else {
					fmt.Fprintf(p.stderr, "tickdog: --retry-after %q is no wait; the run's own counts\n", told)
				}
			}
			var limits loop.Limits
			if c.IsSet("at-most") {
				n := c.Int("at-most")
				if n < 0 {
					return fmt.Errorf("--at-most: %d is below 0", n)
				}
				limits.AtMost = &n
			}
			return p.tellLoop(c, limits, f)
		},
	}
}

func parseRetry(word string) (loop.Retry, error) {
	switch r := loop.Retry(word); r {
	case loop.Yes, loop.No, loop.Maybe:
		return r, nil
	case "":
		return "", errors.New("loop failure needs --retry yes, no or unknown (or --status, --exit or --error)")
	}
	return "", fmt.Errorf("--retry: %q is not yes, no or unknown", word)
}

func (p *program) loopAnswered() *cli.Command {
	return &cli.Command{
		Name:  "answered",
		Usage: "record an answer of the provider: the failures in a row are over",
		Description: `The next failure waits as long as a first one again. What the run was steered
for stays, and a frozen run stays frozen.`,
		Flags: []cli.Flag{runFlag(whichRun), exitCodeFlag()},
		Action: func(c *cli.Context) error {
			return p.tellLoop(c, loop.Limits{}, loop.Answered{})
		},
	}
}

func (p *program) loopWait() *cli.Command {
	return &cli.Command{
		Name:  "wait",
		Usage: "sleep until the run may try again",
		Description: `Sleeps until the moment that the last failure named, and prints what holds
then: normally "proceed". It returns early, within a fraction of a second, when
the run is halted ("halt"), frozen ("freeze") or answered, and at once if there
is nothing to wait for. A stepped clock neither prolongs nor shortens it.`,
		Flags: []cli.Flag{runFlag(whichRun), exitCodeFlag()},
		Action: func(c *cli.Context) error {
			run, l, err := p.viewRun(c)
			if err != nil {
				return err
			}
			until, over := int64(0), 0.0 // the wait at hand, and the boottime at which it has been slept
			for {
				now := p.moment()
				s, _ := l.load(run, now)
				switch {
				case s.Pause == nil:
				case s.Pause.UntilMS != until:
					until, over = s.Pause.UntilMS, now.Boot+s.Remaining(now).Seconds()
				case now.Boot >= over:
					s.Pause = nil // a clock that is years off would have it begin again for ever
				}
				v := s.Standing(now, loop.Limits{Halted: l.halted(run)})
				if v.Action != loop.BackOff {
					return p.printVerdict(c, v)
				}
				select {
				case <-c.Context.Done():
					return fmt.Errorf("interrupted; the run has to wait another %v", s.Remaining(p.moment()))
				case <-time.After(min(s.Remaining(now), 100*time.Millisecond)):
				}
			}
		},
	}
}

func classifyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "status", Usage: "the HTTP status `N` of the answer"},
		&cli.StringSliceFlag{Name: "header", Usage: "a header `K:V` of the answer; may be given several times"},
		&cli.StringFlag{Name: "body", Usage: "`FILE` with the answer's body, - is standard input: money that ran out looks like a rate limit"},
		&cli.IntFlag{Name: "exit", Usage: "the exit status `N` of a program, as a shell shows it"},
		&cli.StringFlag{Name: "error", Usage: "the failure's `NAME`: dns, refused, reset, certificate, rate_limit, billing_error ..."},
	}
}

func (p *program) loopClassify() *cli.Command {
	return &cli.Command{
		Name:  "classify",
		Usage: "tell what a failure means for trying again",
		Description: `Prints {"retry":"yes|no|unknown","code":...}, and "retry_after" (a value for
'loop failure --retry-after') and "retry_after_ms" if the server asked for a
wait. Nothing is recorded. "retry" is "" for an exit status of 0.

  yes      429, 408, 409, 425, 500, 502, 503, 504, 520-524, 529; exit 75
  no       400, 401, 402, 403, 404 and the like, 501, 505, 511, a 2xx that
           cannot be read, a 429 whose body says that the money is gone;
           exit 64, 78, 126, 127
  unknown  499, a connection cut while the answer was awaited; any other exit
           status: it may have had an effect

x-should-retry, retry-after-ms, retry-after (seconds or a date, taken against
the Date header) and grpc-retry-pushback-ms are heeded.
Names for --error: ` + strings.Join(loop.Names(), ", ") + `.`,
		Flags: classifyFlags(),
		Action: func(c *cli.Context) error {
			class, given, err := p.classOf(c, p.moment().Wall)
			if err != nil {
				return err
			}
			if !given {
				return errors.New("loop classify needs --status N, --exit N or --error NAME")
			}
			out := struct {
				Retry   loop.Retry `json:"retry"`
				Code    string     `json:"code"`
				After   string     `json:"retry_after,omitempty"`
				AfterMS *int64     `json:"retry_after_ms,omitempty"`
			}{Retry: class.Retry, Code: class.Code}
			if class.Told != nil {
				ms := class.Told.Milliseconds()
				out.After, out.AfterMS = class.Told.String(), &ms
			}
			return p.printJSON(out)
		},
	}
}

// classOf judges what --status, --exit or --error say; given is false if there
// is none of them.
func (p *program) classOf(c *cli.Context, now time.Time) (class loop.Class, given bool, err error) {
	var which []string
	for _, name := range []string{"status", "exit", "error"} {
		if c.IsSet(name) {
			which = append(which, "--"+name)
		}
	}
	if len(which) > 1 {
		return class, false, fmt.Errorf("%s: one of them is enough", strings.Join(which, " and "))
	}
	if !c.IsSet("status") && (c.IsSet("header") || c.IsSet("body")) {
		return class, false, errors.New("--header and --body need --status")
	}
	switch {
	case c.IsSet("exit"):
		if n := c.Int("exit"); n >= 0 && n <= 255 {
			return loop.ClassifyExit(n), true, nil
		}
		return class, false, fmt.Errorf("--exit: %d is not between 0 and 255", c.Int("exit"))
	case c.IsSet("error"):
		class, known := loop.ClassifyName(c.String("error"))
		if !known {
			return class, false, fmt.Errorf("--error: %q is none of %s", c.String("error"), strings.Join(loop.Names(), ", "))
		}
		return class, true, nil
	case !c.IsSet("status"):
		return class, false, nil
	}
	status := c.Int("status")
	if status < 100 || status > 599 {
		return class, false, fmt.Errorf("--status: %d is not between 100 and 599", status)
	}
	headers := map[string]string{}
	for _, h := range c.StringSlice("header") {
		name, value, found := strings.Cut(h, ":")
		if !found || strings.TrimSpace(name) == "" {
			return class, false, fmt.Errorf("--header: %q is not Name: value", h)
		}
		headers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	var body []byte
	if path := c.String("body"); path != "" {
		if body, err = p.readInput(path); err != nil {
			return class, false, fmt.Errorf("--body: %v", err)
		}
	}
	return loop.ClassifyStatus(status, headers, body, now), true, nil
}

// shownRun is a run as show and list print it: what it would be told now, then
// what is remembered.
type shownRun struct {
	loop.Verdict
	Halted  bool   `json:"halted"`
	Run     string `json:"run"`
	Known   bool   `json:"known"` // false: nothing is remembered of it
	Episode int    `json:"episode"`
	Streak  int    `json:"streak"`  // failures in a row
	Actions int    `json:"actions"` // in all
	Steers  int    `json:"steers"`  // in all
	Created string `json:"created,omitempty"`
	Updated string `json:"updated,omitempty"`
	Thawed  string `json:"thawed,omitempty"` // why, the last time
	File    string `json:"file"`
	Bad     string `json:"bad,omitempty"` // why the file cannot be understood
}

func (l *loops) shown(s loop.State, id, key string, known, halted bool, now check.Moment) shownRun {
	r := shownRun{
		Verdict: s.Standing(now, loop.Limits{Halted: halted}), Halted: halted,
		Run: id, Known: known, Episode: s.Episode, Streak: s.Streak, Actions: s.Actions, Steers: s.Steers,
		File: l.dir.Path(key),
	}
	r.Corrections, r.ProviderFailures = s.Corrections, s.ProviderFailures // a halt leaves them out
	if known {
		r.Created, r.Updated = localTime(s.Created), localTime(s.Updated)
	}
	if n := len(s.Thaws); n > 0 {
		r.Thawed = s.Thaws[n-1].Why
	}
	return r
}

func localTime(epoch int64) string { return time.Unix(epoch, 0).Format(time.RFC3339) }

func (p *program) loopShow() *cli.Command {
	return &cli.Command{
		Name:  "show",
		Usage: "show a run: what it would be told now, and what is remembered of it",
		Description: `Changes nothing. For a frozen run "text" says how a person ends it; "file" is
where it all lies, to be read or deleted.`,
		Flags: []cli.Flag{runFlag(whichRun), exitCodeFlag()},
		Action: func(c *cli.Context) error {
			run, l, err := p.viewRun(c)
			if err != nil {
				return err
			}
			now := p.moment()
			s, file := l.load(run, now)
			r := l.shown(s, run, loop.Key(run), file.how == known, l.halted(run), now)
			if err := p.printJSON(r); err != nil {
				return err
			}
			if code := verdictExit[r.Action]; code != 0 && c.Bool("exit-code") {
				return exitCode(code)
			}
			return nil
		},
	}
}

func (p *program) loopList() *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the runs, the one that moved last first",
		Description: `Prints {"halted":...,"runs":[...]}, each run as 'loop show' prints it; "halted" is
the brake of all. 'tickdog status' shows the same as a table.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "frozen", Usage: "only those that are frozen"}},
		Action: func(c *cli.Context) error {
			cfg, err := p.loadConfig(c)
			if err != nil {
				return err
			}
			now, l := p.moment(), p.viewLoops(cfg.StateDir)
			runs, err := l.list(now)
			if err != nil {
				return err
			}
			out := struct {
				Halted bool       `json:"halted"`
				Runs   []shownRun `json:"runs"`
			}{l.halted(""), []shownRun{}}
			for _, r := range runs {
				if c.Bool("frozen") && r.run.Frozen == nil {
					continue
				}
				shown := l.shown(r.run, r.id, r.key, true, out.Halted || r.halted, now)
				shown.Bad = r.bad
				out.Runs = append(out.Runs, shown)
			}
			return p.printJSON(out)
		},
	}
}

func (p *program) loopThaw() *cli.Command {
	return &cli.Command{
		Name:  "thaw",
		Usage: "let a frozen run go on: a person's decision",
		Description: `Starts a new episode of the run: the failures in a row, the corrections and the
tail of its actions start over, the totals stay. Who thaws says why; it is kept.
Exit status 1 if nothing is known of such a run.`,
		Flags: []cli.Flag{
			runFlag(whichRun),
			&cli.StringFlag{Name: "why", Usage: "why it may go on, in a few `WORDS`"},
			exitCodeFlag(),
		},
		Action: func(c *cli.Context) error {
			run, err := runOf(c)
			if err != nil {
				return err
			}
			why := loop.Mask(c.String("why"))
			if why == "" {
				return errors.New("loop thaw needs --why TEXT")
			}
			cfg, err := p.loadConfig(c)
			if err != nil {
				return err
			}
			if !p.viewLoops(cfg.StateDir).exists(loop.Key(run)) {
				return fmt.Errorf("nothing is known of a run %q; 'tickdog loop list' lists them", run)
			}
			l, err := p.openLoops(cfg.StateDir)
			if err != nil {
				return err
			}
			v, kept := l.decide(c.Context, run, patience, loop.Limits{}, loop.Thawed{Why: why})
			if !kept {
				return errors.New("the run could not be thawed")
			}
			return p.printVerdict(c, v)
		},
	}
}

func (p *program) loopHalt(on bool) *cli.Command {
	cmd := &cli.Command{
		Name:  "halt",
		Usage: "pull the brake: every command answers halt, for one run or for all",
		Description: `Every command on the run, or on any run without --run, answers {"action":"halt"}
until 'loop unhalt'; 'loop wait' returns within a fraction of a second. Nothing
is counted meanwhile. It works while the run's file is locked or broken.`,
		Flags: []cli.Flag{
			runFlag("`ID` of the run; without it the brake of all runs"),
			&cli.StringFlag{Name: "why", Usage: "why, in a few `WORDS`"},
			exitCodeFlag(),
		},
	}
	if !on {
		cmd.Name = "unhalt"
		cmd.Usage = "lift the brake"
		cmd.Description = `Lifts the brake of one run, or without --run the brake of all, and prints what
holds now. The one does not lift the other. A run that was frozen still is.`
		cmd.Flags = []cli.Flag{cmd.Flags[0], cmd.Flags[2]}
	}
	cmd.Action = func(c *cli.Context) error {
		run, err := "", error(nil)
		if c.IsSet("run") {
			if run, err = runOf(c); err != nil {
				return err
			}
		}
		l, err := p.openRuns(c)
		if err != nil {
			return err
		}
		if l.dir.ViewOnly() {
			return errors.New("the brake could not be moved")
		}
		if err := l.setHalt(run, on, loop.Mask(c.String("why"))); err != nil {
			return err
		}
		now := p.moment()
		s, _ := l.view().load(run, now)
		return p.printVerdict(c, s.Standing(now, loop.Limits{Halted: l.halted(run)}))
	}
	return cmd
}

func (p *program) loopPrune() *cli.Command {
	return &cli.Command{
		Name:  "prune",
		Usage: "forget the runs that have not moved for long",
		Description: `Removes the files of runs that have not moved for --older, and of those that are
frozen or halted after --frozen-older, with what lies beside them. A new run
does the same by itself, a few at a time. If even the newest run is more than
30 days old, rather the clock is wrong than the runs old: then --force is needed.
Prints {"removed":[...],"dry_run":...}.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "older", Usage: "`AGE` of a run", Value: "14d"},
			&cli.StringFlag{Name: "frozen-older", Usage: "`AGE` of a frozen or halted run", Value: "90d"},
			&cli.BoolFlag{Name: "force", Usage: "also if everything looks old"},
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be removed, and remove nothing"},
		},
		Action: func(c *cli.Context) error {
			how := pruning{force: c.Bool("force"), dryRun: c.Bool("dry-run")}
			var err error
			if how.older, err = parseAge(c.String("older")); err != nil {
				return fmt.Errorf("--older: %v", err)
			}
			if how.frozenOlder, err = parseAge(c.String("frozen-older")); err != nil {
				return fmt.Errorf("--frozen-older: %v", err)
			}
			cfg, err := p.loadConfig(c)
			if err != nil {
				return err
			}
			l := p.viewLoops(cfg.StateDir)
			if !how.dryRun {
				if l, err = p.openLoops(cfg.StateDir); err != nil {
					return err
				}
			}
			removed, err := l.collect(p.moment(), how)
			switch {
			case errors.Is(err, errAllOld):
				fmt.Fprintf(p.stderr, "tickdog: %v\n", err)
			case err != nil:
				return err
			}
			return p.printJSON(struct {
				Removed []string `json:"removed"`
				DryRun  bool     `json:"dry_run"`
			}{append([]string{}, removed...), how.dryRun})
		},
	}
}

// parseAge reads a duration that may also be in days: 14d.
func parseAge(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("%q is no age such as 14d or 12h", text)
}
