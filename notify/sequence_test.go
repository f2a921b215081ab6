package notify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/state"

	"pgregory.net/rapid"
)

// TestSequences: whatever is written, settled, sent, refused, lost, killed and
// rebooted in whatever order: no alert is lost, none overtakes another, and
// none arrives twice unless its first answer was lost.
func TestSequences(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		dir, err := state.Open(path)
		if err != nil {
			rt.Fatal(err)
		}
		type fate struct{ arrived, lost, parked int }
		fates := map[string]map[string]*fate{"a": {}, "b": {}}
		order := map[string][]string{}
		var channels []Channel
		drawn := true // the channels fail as drawn; false: they accept all
		for _, name := range []string{"a", "b"} {
			mood := rapid.SampledFrom([]string{"ok", "ok", "away", "lost", "refused"})
			channels = append(channels, &stub{name: name, answer: func(a Alert) error {
				title := a.Title
				f := fates[name][title]
				if f == nil {
					rt.Fatalf("%s got %q, which nobody wrote", name, title)
				}
				how := "ok"
				if drawn {
					how = mood.Draw(rt, "mood")
				}
				if how == "ok" || how == "lost" {
					if f.arrived == 0 {
						order[name] = append(order[name], title)
					}
					f.arrived++
				}
				switch how {
				case "lost":
					f.lost++
					return Retry{Err: errors.New("no answer in time")}
				case "away":
					return Retry{Err: errors.New("away"), After: time.Duration(rapid.IntRange(0, 600).Draw(rt, "told")) * time.Second}
				case "refused":
					f.parked++
					return Refused{errors.New("no")}
				}
				return nil
			}})
		}
		// rapid's draws must come from one goroutine: one channel at a time.
		sendAll := func(o *Outbox, m check.Moment) {
			for _, c := range channels {
				one := &Outbox{dir: o.dir, channels: []Channel{c}, own: o.own}
				one.Send(context.Background(), m)
			}
		}
		o := OpenOutbox(dir, channels...)
		m := start
		var written, open []string
		ids := map[string]string{}
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(*rapid.T) {
				title := fmt.Sprintf("%03d", len(written))
				for _, f := range fates {
					f[title] = &fate{}
				}
				id, err := o.Write(Alert{Title: title, Text: "text", At: m.Wall})
				if err != nil {
					rt.Fatal(err)
				}
				ids[title] = id
				written, open = append(written, title), append(open, title)
			},
			"outcome": func(rt *rapid.T) {
				if len(open) == 0 {
					rt.Skip()
				}
				if err := o.Outcome(ids[open[0]], "done"); err != nil {
					rt.Fatal(err)
				}
				open = open[1:]
			},
			"send": func(*rapid.T) { sendAll(o, m); open = nil },
			"time": func(rt *rapid.T) {
				m = after(m, time.Duration(rapid.IntRange(1, 300).Draw(rt, "seconds"))*time.Second)
			},
			"kill": func(*rapid.T) { o, open = OpenOutbox(dir, channels...), nil },
			"reboot": func(*rapid.T) {
				o, open = OpenOutbox(dir, channels...), nil
				m = check.Moment{Wall: m.Wall.Add(time.Minute), Boot: 10, BootID: m.BootID + "'"}
			},
		})
		drawn = false
		for range 3 {
			m = after(m, 25*time.Hour)
			o = OpenOutbox(dir, channels...)
			sendAll(o, m)
		}
		if len(written) > maxWaiting {
			rt.Skip()
		}
		parked := map[string]map[string]bool{"a": {}, "b": {}}
		for _, e := range o.Waiting(m) {
			if e.Parked == "" {
				rt.Fatalf("still waits: %+v", e)
			}
			parked[e.Channel][e.Title] = true
		}
		for name, all := range fates {
			for title, f := range all {
				if f.arrived == 0 && !parked[name][title] {
					rt.Fatalf("%s never got %s, and it is not parked: %+v", name, title, f)
				}
				if f.arrived > 1+f.lost {
					rt.Fatalf("%s got %s %d times with %d lost answers", name, title, f.arrived, f.lost)
				}
			}
			for i, title := range order[name][min(1, len(order[name])):] {
				if title <= order[name][i] {
					rt.Fatalf("%s got %q", name, order[name])
				}
			}
		}
	})
}

// TestMain lets this binary be the pass that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("NOTIFY_TEST_PASS"); path != "" {
		passes(path, os.Getenv("NOTIFY_TEST_URL"), os.Getenv("NOTIFY_TEST_ROUND"))
	}
	os.Exit(m.Run())
}

// passes writes, settles and sends until it is killed, and says on stdout what
// it had written down.
func passes(path, url, round string) {
	dir, err := state.Open(path)
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		o := OpenOutbox(dir, NewNtfy(url, ""))
		m := check.Moment{Wall: time.Now()}
		text := fmt.Sprintf("%s.%06d", round, i)
		id, err := o.Write(Alert{Text: text, At: m.Wall})
		if err != nil {
			panic(err)
		}
		fmt.Println(text)
		o.Outcome(id, "done")
		o.Send(context.Background(), m)
	}
}

// TestKilledAnywhere kills real processes at any point, over and over: what
// was written down arrives, in order, and at most one alert a kill twice.
func TestKilledAnywhere(t *testing.T) {
	var mu sync.Mutex
	var arrived []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		text, _, _ := strings.Cut(string(body), ";")
		arrived = append(arrived, text)
	})
	dir := newDir(t)
	written := map[string]bool{}
	const rounds = 12
	for round := range rounds {
		pass := exec.Command(os.Args[0])
		pass.Env = append(os.Environ(), "NOTIFY_TEST_PASS="+dir.Path(""), "NOTIFY_TEST_URL="+url, fmt.Sprintf("NOTIFY_TEST_ROUND=%02d", round))
		stdout, err := pass.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := pass.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		for kill := 1 + rand.Intn(20); kill > 0 && lines.Scan(); kill-- {
			written[lines.Text()] = true
		}
		time.Sleep(time.Duration(rand.Intn(3000)) * time.Microsecond)
		pass.Process.Kill()
		for lines.Scan() {
			written[lines.Text()] = true
		}
		pass.Wait()
	}
	send(t, OpenOutbox(dir, NewNtfy(url, "")), check.Moment{Wall: time.Now().Add(time.Hour)})
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	seen, twice, last := map[string]bool{}, 0, ""
	for _, text := range arrived {
		switch {
		case seen[text]:
			twice++
		case text < last:
			t.Errorf("%s after %s", text, last)
		}
		seen[text], last = true, max(last, text)
	}
	for text := range written {
		if !seen[text] {
			t.Errorf("%s was written down and never arrived", text)
		}
	}
	if twice > rounds {
		t.Errorf("%d arrived twice with %d kills", twice, rounds)
	}
	t.Logf("%d written, %d arrived, %d twice", len(written), len(arrived), twice)
}
