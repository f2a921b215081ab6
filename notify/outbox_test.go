package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tickdog/check"
	"tickdog/check/loop"
	"tickdog/state"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var start = check.Moment{Wall: time.Unix(1_790_000_000, 0).UTC(), Boot: 1000, BootID: "boot-a"}

func after(m check.Moment, d time.Duration) check.Moment {
	return check.Moment{Wall: m.Wall.Add(d), Boot: m.Boot + d.Seconds(), BootID: m.BootID}
}

// stub is a channel that does as it is told, and remembers what it took.
type stub struct {
	name   string
	answer func(Alert) error // nil accepts
	mu     sync.Mutex
	took   []string
}

func (s *stub) Name() string { return s.name }

func (s *stub) Send(ctx context.Context, a Alert) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answer != nil {
		if err := s.answer(a); err != nil {
			return err
		}
	}
	s.took = append(s.took, a.Text)
	return nil
}

func (s *stub) taken() []string { took := s.took; s.took = nil; return took }

func away(Alert) error { return Retry{Err: errors.New("away")} }

func newDir(t testing.TB) *state.Dir {
	t.Helper()
	dir, err := state.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, o *Outbox, a Alert) string {
	t.Helper()
	if a.At.IsZero() {
		a.At = start.Wall
	}
	id, err := o.Write(a)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func send(t testing.TB, o *Outbox, m check.Moment) []Delivery {
	t.Helper()
	return o.Send(context.Background(), m)
}

// files are the files of the outbox.
func files(t testing.TB, dir *state.Dir) []string {
	t.Helper()
	list, err := state.View(dir.Path("outbox")).List()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func want(t testing.TB, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestWrittenActedSent(t *testing.T) {
	dir, a, b := newDir(t), &stub{name: "a"}, &stub{name: "b"}
	o := OpenOutbox(dir, a, b)
	id := write(t, o, Alert{ID: "incident-1", Name: "mi50-watchdog", Title: "stopped", Text: "stopped lyra-brain", Urgent: true, Tags: []string{"x", "y"}, Kind: "alert"})
	if id != "incident-1" {
		t.Errorf("id %q", id)
	}
	want(t, files(t, dir), "000001-incident-1.a", "000001-incident-1.b")
	text, _ := os.ReadFile(dir.Path("outbox/000001-incident-1.a"))
	if got := string(text); got != "# an alert that a has not accepted yet; deleting this file drops it\n"+
		"alert incident-1 name=mi50-watchdog kind=alert urgent=true tags=x,y at_epoch=1790000000\n"+
		"title stopped\n"+
		"text stopped lyra-brain\n"+
		"outcome not seen pid="+strconv.Itoa(os.Getpid())+"\n" {
		t.Errorf("a person reads:\n%s", got)
	}
	if err := o.Outcome(id, " — stopped in 1.2 s"); err != nil {
		t.Fatal(err)
	}
	for i, d := range send(t, o, start) {
		if !d.Delivered || d.Err != nil || d.Channel != o.channels[i].Name() || d.Title != "stopped" || d.ID != id {
			t.Errorf("%+v", d)
		}
	}
	for _, c := range []*stub{a, b} {
		want(t, c.taken(), "stopped lyra-brain — stopped in 1.2 s")
	}
	want(t, files(t, dir))
	if again := send(t, OpenOutbox(dir, a, b), start); again != nil || a.took != nil {
		t.Errorf("sent again: %+v %q", again, a.took)
	}
}

func TestTextSurvivesTheFile(t *testing.T) {
	for _, text := range []string{"", "\n", "a\n\nb\n", "# no comment\n title x", "tab\there", "text\noutcome not seen\ndropped 3"} {
		dir, c := newDir(t), &stub{name: "c"}
		write(t, OpenOutbox(dir, c), Alert{Title: "t", Text: text, Name: `a "b"`})
		got, loaded := loadEntry(dir, entryName{file: "outbox/" + files(t, dir)[0]}, start)
		if loaded.Bad != "" || got.alert.Text != text || got.alert.Name != `a "b"` || got.settled {
			t.Errorf("%q became %q %+v", text, got.alert.Text, loaded)
		}
	}
}

func TestKilledBeforeTheOutcome(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	write(t, OpenOutbox(dir, c), Alert{Text: "restarted nova"})
	send(t, OpenOutbox(dir, c), start)
	want(t, c.taken(), "restarted nova; outcome not seen")
}

func TestAnAlertWithoutAnActNeedsNoOutcome(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c", answer: away}
	o := OpenOutbox(dir, c)
	write(t, o, Alert{Text: "blind for 5 passes"})
	send(t, o, start)
	c.answer = nil
	send(t, OpenOutbox(dir, c), after(start, 2*time.Minute))
	want(t, c.taken(), "blind for 5 passes")
}

// TestWriterStillAtWork: another command's pass has written its alert and is
// about to act; its outcome is waited for as long as it lives.
func TestWriterStillAtWork(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	dir, c := newDir(t), &stub{name: "c"}
	write(t, OpenOutbox(dir, c), Alert{Text: "first"})
	file := dir.Path("outbox/" + files(t, dir)[0])
	text, _ := os.ReadFile(file)
	mine, theirs := fmt.Sprintf("pid=%d", os.Getpid()), fmt.Sprintf("pid=%d", other.Process.Pid)
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), mine, theirs, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	o := OpenOutbox(dir, c)
	write(t, o, Alert{Text: "second"})
	if got := send(t, o, start); got != nil || c.took != nil {
		t.Fatalf("sent without its outcome, or out of order: %+v %q", got, c.took)
	}
	t.Run("it hangs", func(t *testing.T) {
		late := check.Moment{Wall: start.Wall.Add(time.Hour)}
		e, _ := loadEntry(dir, entryName{file: "outbox/" + files(t, dir)[0]}, late)
		if !o.settle(e, late) {
			t.Error("still waited for after an hour")
		}
	})
	other.Process.Kill()
	other.Wait()
	send(t, o, start)
	want(t, c.taken(), "first; outcome not seen", "second")
}

func TestWaits(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c", answer: away}
	o := OpenOutbox(dir, c)
	id := write(t, o, Alert{Text: "x"})
	m := start
	for streak := 1; streak <= 10; streak++ {
		got := send(t, OpenOutbox(dir, c), m)
		wait := loop.Wait(loop.Seed(id), streak)
		if len(got) != 1 || got[0].Delivered || got[0].Again != wait || got[0].Err == nil {
			t.Fatalf("streak %d: %+v, want a wait of %v", streak, got, wait)
		}
		if got := send(t, OpenOutbox(dir, c), after(m, wait-50*time.Millisecond)); got != nil {
			t.Fatalf("streak %d: tried too early: %+v", streak, got)
		}
		m = after(m, wait+50*time.Millisecond)
	}

	c.answer = func(Alert) error { return Retry{After: time.Hour, Err: errors.New("429")} }
	if got := send(t, OpenOutbox(dir, c), m); got[0].Again != time.Hour {
		t.Errorf("told wait: %+v", got)
	}
	c.answer = nil
	if got := o.Waiting(m); len(got) != 1 || got[0].Attempts != 11 || !got[0].Next.Equal(m.Wall.Add(time.Hour)) || got[0].Failure != "429" || !got[0].Configured {
		t.Errorf("%+v", got)
	}
	for name, early := range map[string]check.Moment{
		"same boot":               after(m, 59*time.Minute),
		"same boot, clock jumped": {Wall: m.Wall.Add(48 * time.Hour), Boot: m.Boot + 3000, BootID: m.BootID},
		"after a reboot":          {Wall: m.Wall.Add(59 * time.Minute), Boot: 5, BootID: "boot-b"},
	} {
		if got := send(t, OpenOutbox(dir, c), early); got != nil {
			t.Errorf("%s: sent too early: %+v", name, got)
		}
	}
	for name, due := range map[string]check.Moment{
		"same boot":                     after(m, 61*time.Minute),
		"same boot, clock stepped back": {Wall: m.Wall.Add(-48 * time.Hour), Boot: m.Boot + 3700, BootID: m.BootID},
		"after a reboot":                {Wall: m.Wall.Add(61 * time.Minute), Boot: 5, BootID: "boot-b"},
		"stamp from the future":         {Wall: m.Wall.Add(-time.Hour), Boot: 5, BootID: "boot-b"},
	} {
		text, _ := os.ReadFile(dir.Path("outbox/" + files(t, dir)[0]))
		if got := send(t, OpenOutbox(dir, c), due); len(got) != 1 || !got[0].Delivered {
			t.Errorf("%s: not sent: %+v", name, got)
		}
		if err := os.WriteFile(dir.Path("outbox/000001-"+id+".c"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestParked(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c", answer: func(a Alert) error {
		if a.Text == "bad" {
			return Refused{errors.New("413 too large")}
		}
		return nil
	}}
	o := OpenOutbox(dir, c)
	for _, text := range []string{"one", "bad", "two"} {
		write(t, o, Alert{Text: text, Title: "title of " + text})
	}
	got := send(t, o, start)
	if len(got) != 2 || !got[1].Parked || got[1].Delivered || got[1].Err == nil {
		t.Errorf("%+v", got)
	}
	send(t, OpenOutbox(dir, c), start)
	want(t, c.taken(), "one", "two")
	waiting := OpenOutbox(dir, c).Waiting(start)
	if len(waiting) != 1 || waiting[0].Title != "title of bad" || waiting[0].Parked != "refused: 413 too large" || !waiting[0].Next.IsZero() {
		t.Errorf("%+v", waiting)
	}

	// As its header says: without .parked it is sent again.
	file := dir.Path("outbox/" + waiting[0].File)
	if text, _ := os.ReadFile(file); !strings.Contains(string(text), "taking .parked off") {
		t.Errorf("%s", text)
	}
	if err := os.Rename(file, strings.TrimSuffix(file, ".parked")); err != nil {
		t.Fatal(err)
	}
	c.answer = nil
	send(t, OpenOutbox(dir, c), start)
	want(t, c.taken(), "bad")
	want(t, files(t, dir))
}

func TestAFailingChannelCostsOneAttempt(t *testing.T) {
	attempts := 0
	dir, good := newDir(t), &stub{name: "good"}
	bad := &stub{name: "bad", answer: func(Alert) error { attempts++; return errors.New("no idea") }}
	o := OpenOutbox(dir, bad, good)
	for i := range 5 {
		write(t, o, Alert{Text: fmt.Sprint(i)})
	}
	send(t, o, start)
	want(t, good.taken(), "0", "1", "2", "3", "4")
	if attempts != 1 {
		t.Errorf("%d attempts", attempts)
	}
	bad.answer = nil
	send(t, o, after(start, time.Minute))
	want(t, bad.taken(), "0", "1", "2", "3", "4")
}

func TestDelayedAlertSaysWhenItHappened(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	write(t, OpenOutbox(dir, c), Alert{Text: "x"})
	o := OpenOutbox(dir, c)
	write(t, o, Alert{Text: "y", At: start.Wall.Add(55 * time.Minute)})
	send(t, o, after(start, time.Hour))
	want(t, c.taken(), "x; outcome not seen\n(happened 2026-09-21T14:13:20Z)", "y")
}

func TestAtMostAHundredWait(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c", answer: away}
	o := OpenOutbox(dir, c)
	const all = 130
	for i := range all {
		o.Outcome(write(t, o, Alert{Text: fmt.Sprint(i)}), "")
		if got := len(files(t, dir)); got > maxWaiting+1 {
			t.Fatalf("%d wait", got)
		}
	}
	send(t, o, start)
	if got := len(files(t, dir)); got != maxWaiting {
		t.Errorf("%d wait", got)
	}
	c.answer = nil
	send(t, OpenOutbox(dir, c), after(start, time.Minute))
	got := c.taken()
	if len(got) != maxWaiting || got[0] != "30\n(30 older alerts were dropped: too many were waiting)" || got[1] != "31" || got[99] != "129" {
		t.Errorf("%d delivered, first %q, second %q", len(got), got[0], got[1])
	}
}

// TestKilledWhileDropping: counted, not yet removed; the next pass counts none
// of them twice, and takes no new one for an old one.
func TestKilledWhileDropping(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c", answer: away}
	o := OpenOutbox(dir, c)
	for i := range maxWaiting {
		write(t, o, Alert{Text: fmt.Sprint(i)})
	}
	oldest, second := files(t, dir)[0], files(t, dir)[1]
	first, _ := os.ReadFile(dir.Path("outbox/" + oldest))
	write(t, o, Alert{Text: "100"})
	send(t, o, start)
	if got := files(t, dir)[0]; got != second {
		t.Fatalf("%s is the oldest, want %s", got, second)
	}
	if err := os.WriteFile(dir.Path("outbox/"+oldest), first, 0o600); err != nil {
		t.Fatal(err)
	}
	c.answer = nil
	send(t, o, after(start, time.Minute))
	got := c.taken()
	if len(got) != maxWaiting || got[0] != "1\n(1 older alert was dropped: too many were waiting)" || got[99] != "100" {
		t.Errorf("%d: %q", len(got), got)
	}
}

func TestCorruptFile(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	o := OpenOutbox(dir, c)
	for _, text := range []string{"one", "two", "three"} {
		write(t, o, Alert{Text: text})
	}
	for i, junk := range map[int]string{0: "\x00\x00", 1: "alert id\nnonsense\n"} {
		if err := os.WriteFile(dir.Path("outbox/"+files(t, dir)[i]), []byte(junk), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir.Path("outbox/000009-empty.c"), []byte("# somebody's notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.Path("outbox/README"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	view := o.Waiting(start)
	if len(view) != 3 && len(view) != 4 {
		t.Errorf("%+v", view)
	}
	got := send(t, o, start)
	bad := 0
	for _, d := range got {
		if d.Err != nil {
			bad++
			if !strings.Contains(d.Err.Error(), "set aside as ") {
				t.Errorf("%+v", d)
			}
		}
	}
	if bad != 3 || len(got) != 4 {
		t.Errorf("%+v", got)
	}
	want(t, c.taken(), "three")
	if got := o.Waiting(start); len(got) != 3 || got[0].Parked == "" || got[0].Channel != "c" {
		t.Errorf("%+v", got)
	}
	if got := send(t, o, start); got != nil {
		t.Errorf("told twice: %+v", got)
	}
}

// TestIsWrittenForAllOrNone: what cannot be written for every channel is not
// written at all, for then it is sent directly.
func TestIsWrittenForAllOrNone(t *testing.T) {
	dir, a, b := newDir(t), &stub{name: "a"}, &stub{name: "b"}
	if err := os.MkdirAll(dir.Path("outbox/000001-x.b.new/stuck"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := OpenOutbox(dir, a, b)
	if _, err := o.Write(Alert{ID: "x", Text: "t"}); err == nil {
		t.Fatal("no error")
	}
	want(t, files(t, dir))
	if err := o.SendNow(context.Background(), Alert{Text: "t"}); err != nil {
		t.Fatal(err)
	}
	send(t, o, start)
	want(t, a.taken(), "t")
	want(t, b.taken(), "t")
}

func TestRewrite(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c", answer: away}
	o := OpenOutbox(dir, c)
	id := write(t, o, Alert{Title: "restarting", Text: "restarting nova"})
	if err := o.Rewrite(id, "left alone", "nova answers again"); err != nil {
		t.Fatal(err)
	}
	if err := o.Outcome(id, "too late"); err != nil {
		t.Fatal(err)
	}
	send(t, o, start)
	later := OpenOutbox(dir, c)
	if got := later.Waiting(start); len(got) != 1 || got[0].Title != "left alone" || got[0].Attempts != 1 {
		t.Errorf("%+v", got)
	}
	c.answer = nil
	send(t, later, after(start, time.Minute))
	want(t, c.taken(), "nova answers again")
}

func TestOutcomeThatCannotBeWritten(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	o := OpenOutbox(dir, c)
	id := write(t, o, Alert{Text: "restarted"})
	if err := os.MkdirAll(dir.Path("outbox/"+files(t, dir)[0]+".new/stuck"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := o.Outcome(id, "answering"); err == nil {
		t.Error("no error")
	}
	send(t, o, start)
	want(t, c.taken(), "restarted; answering")
}

func TestOutcomeOfWhatIsGone(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	o := OpenOutbox(dir, c)
	id := write(t, o, Alert{Text: "x"})
	send(t, OpenOutbox(dir, c), start)
	if err := o.Outcome(id, "late"); err == nil {
		t.Error("no error")
	}
	want(t, files(t, dir))
}

func TestNowhereToWrite(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	if err := os.WriteFile(dir.Path("outbox"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := OpenOutbox(dir, c)
	if _, err := o.Write(Alert{Text: "x"}); err == nil {
		t.Error("written into a file")
	}
	if got := send(t, o, start); len(got) != 1 || got[0].Err == nil {
		t.Errorf("%+v", got)
	}
	if got := o.Waiting(start); len(got) != 1 || got[0].Parked == "" {
		t.Errorf("%+v", got)
	}
}

func TestAnotherProcessSends(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	o := OpenOutbox(dir, c)
	write(t, o, Alert{Text: "one"})
	lock, err := state.TryLock(dir.Path(lockName))
	if err != nil {
		t.Fatal(err)
	}
	write(t, o, Alert{Text: "two"})
	if got := send(t, o, start); got != nil {
		t.Errorf("%+v", got)
	}
	lock.Release()
	send(t, o, start)
	want(t, c.taken(), "one", "two")
}

func TestViewAndNothingConfigured(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	write(t, OpenOutbox(dir, c), Alert{Text: "x"})

	o := OpenOutbox(state.View(dir.Path("")), c)
	id := write(t, o, Alert{Text: "y"})
	if err := errors.Join(o.Outcome(id, "z"), o.SendNow(context.Background(), Alert{})); err != nil {
		t.Error(err)
	}
	if got := send(t, o, start); got != nil || c.took != nil || len(files(t, dir)) != 1 {
		t.Errorf("a dry run sent %+v %q", got, c.took)
	}

	none := OpenOutbox(dir)
	none.Outcome(write(t, none, Alert{Text: "y"}), "z")
	if got := send(t, none, start); got != nil || len(files(t, dir)) != 1 {
		t.Errorf("%+v %q", got, files(t, dir))
	}
	if got := none.Waiting(start); len(got) != 1 || got[0].Configured || got[0].Channel != "c" {
		t.Errorf("%+v", got)
	}
	fresh := newDir(t)
	none = OpenOutbox(fresh)
	write(t, none, Alert{Text: "y"})
	if got := none.Waiting(start); got != nil {
		t.Errorf("%+v", got)
	}
	if _, err := os.Lstat(fresh.Path("outbox")); err == nil {
		t.Error("an outbox without a channel")
	}
}

func TestIDs(t *testing.T) {
	dir, c := newDir(t), &stub{name: "c"}
	o := OpenOutbox(dir, c)
	seen := map[string]bool{}
	for _, id := range []string{"same", "same", "../../etc/passwd", "", "", "a b", strings.Repeat("x", 300)} {
		got := write(t, o, Alert{ID: id, Text: "x"})
		if seen[got] || !plainWord(got) {
			t.Errorf("%q became %q", id, got)
		}
		seen[got] = true
	}
	if got := len(files(t, dir)); got != len(seen) {
		t.Errorf("%d files for %d alerts", got, len(seen))
	}
}

// TestRealServers goes through both real channels, with one that is rate
// limited first and one that never answers.
func TestRealServers(t *testing.T) {
	var mu sync.Mutex
	var topic, reports []string
	limited := true
	ntfyURL := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if limited {
			w.Header().Set("Retry-After", "300")
			w.WriteHeader(429)
			return
		}
		body, _ := io.ReadAll(r.Body)
		topic = append(topic, string(body))
	})
	boardURL := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, string(body))
	})
	dir := newDir(t)
	o := OpenOutbox(dir, NewNtfy(ntfyURL, ""), NewBoard(boardURL, "me", ""))
	for _, text := range []string{"one", "two"} {
		o.Outcome(write(t, o, Alert{Text: text}), "done")
	}
	got := send(t, o, start)
	if len(got) != 3 || got[0].Again != 300*time.Second || !got[1].Delivered || !got[2].Delivered {
		t.Errorf("%+v", got)
	}
	limited = false
	send(t, o, after(start, 299*time.Second))
	if topic != nil {
		t.Errorf("asked before the told time: %q", topic)
	}
	send(t, o, after(start, 301*time.Second))
	want(t, topic, "one; done", "two; done")
	if len(reports) != 2 || !strings.Contains(reports[0], `"content":"one; done"`) {
		t.Errorf("%q", reports)
	}

	write(t, o, Alert{Text: "three"})
	o = OpenOutbox(dir, NewNtfy(hang(t), ""), NewBoard(boardURL, "me", ""))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	got = o.Send(ctx, start)
	if len(got) != 2 || got[0].Err == nil || !got[1].Delivered {
		t.Errorf("%+v", got)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	cancel()
	if got := o.Send(ctx, after(start, time.Hour)); got != nil {
		t.Errorf("tried after its time: %+v", got)
	}
	if err := o.SendNow(ctx, Alert{Text: "x"}); err == nil || !strings.Contains(err.Error(), "ntfy: ") || !strings.Contains(err.Error(), "board: ") {
		t.Errorf("error %v", err)
	}
}
