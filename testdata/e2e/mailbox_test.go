package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mailbox stands in for ntfy and for the board: it takes what is posted to it
// in a box, and may refuse it first.
type mailbox struct {
	mu      sync.Mutex
	letters []letter
	refuse  []http.HandlerFunc // the answers to the next requests

	refuseToken bool        // ntfy: nobody may write
	closed      atomic.Bool // hangs up on everybody
}

// letter is one accepted request.
type letter struct {
	At      time.Time
	Path    string
	Title   string // ntfy: a header
	Content string // ntfy: the body; board: its content
	Agent   string // board only
}

func (l letter) String() string {
	return fmt.Sprintf("%s %s %s %q %q", l.At.Format(time.TimeOnly), l.Path, l.Agent, l.Title, l.Content)
}

// newMailbox opens a mailbox on a port of the box's loopback.
func (b *box) newMailbox(port int) *mailbox {
	m := &mailbox{}
	server := &http.Server{Handler: m, ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(b.listen(fmt.Sprintf("127.0.0.1:%d", port)))
	b.t.Cleanup(func() { server.Close() })
	return m
}

func (m *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.closed.Load() {
		panic(http.ErrAbortHandler)
	}
	body, _ := io.ReadAll(r.Body)
	if answer := m.refusal(); answer != nil {
		answer(w, r)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuseToken && r.URL.Path != "/reports" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.Method == http.MethodGet || r.Header.Get("Delay") != "" { // a question, nothing to keep
		io.WriteString(w, "{}")
		return
	}
	l := letter{At: time.Now(), Path: r.URL.Path, Title: r.Header.Get("Title"), Content: string(body)}
	if r.URL.Path == "/reports" {
		var report struct{ Agent, Kind, Content, Project string }
		if json.Unmarshal(body, &report) != nil || report.Agent == "" || report.Content == "" || report.Kind == "" {
			http.Error(w, "no report", http.StatusUnprocessableEntity)
			return
		}
		l.Agent, l.Content = report.Agent, report.Content
	}
	m.letters = append(m.letters, l)
}

// refuseNext answers the next requests with these statuses.
func (m *mailbox) refuseNext(retryAfter string, statuses ...int) {
	for _, status := range statuses {
		m.answerNext(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", retryAfter)
			w.WriteHeader(status)
		})
	}
}

// answerNext answers one of the next requests in its own way.
func (m *mailbox) answerNext(answer http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = append(m.refuse, answer)
}

func (m *mailbox) refusal() http.HandlerFunc {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.refuse) == 0 {
		return nil
	}
	next := m.refuse[0]
	m.refuse = m.refuse[1:]
	return next
}

// refusals tells how many refusals are still to come.
func (m *mailbox) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.refuse)
}

// got returns the letters so far that mention all of these.
func (m *mailbox) got(mention ...string) []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []letter
next:
	for _, l := range m.letters {
		for _, what := range mention {
			if !strings.Contains(l.Title+"\n"+l.Content, what) {
				continue next
			}
		}
		found = append(found, l)
	}
	return found
}

// empty forgets what came so far.
func (m *mailbox) empty() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.letters = nil
}

// show logs all that came.
func (m *mailbox) show(t *testing.T) {
	t.Helper()
	for _, l := range m.got() {
		t.Log("letter:", l)
	}
}
