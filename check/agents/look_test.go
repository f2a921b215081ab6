package agents

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patient is a prober for answers that come: its limits only matter on a
// machine that stands still.
var patient = Prober{HealthTimeout: 20 * time.Second, DispatchTimeout: 30 * time.Second, Day: time.Date(2026, 9, 27, 22, 15, 3, 0, time.UTC), Proc: "/proc"}

// hasty is a prober for answers that never come.
var hasty = Prober{HealthTimeout: 150 * time.Millisecond, DispatchTimeout: 250 * time.Millisecond, Day: patient.Day, Proc: "/proc"}

// listen serves raw connections on loopback, each with what it was asked.
func listen(t *testing.T, serve func(conn net.Conn, id string)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() { close(done); l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				go func() { <-done; conn.Close() }()
				var request struct{ ID string }
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				json.NewDecoder(req.Body).Decode(&request)
				serve(conn, request.ID)
			})
		}
	})
	return "http://" + l.Addr().String()
}

// says answers every request with the same bytes, in which ID stands for the
// id of the request, and hangs up.
func says(answer string) func(net.Conn, string) {
	return func(conn net.Conn, id string) {
		io.WriteString(conn, strings.ReplaceAll(answer, "ID", id))
	}
}

// then does something more before it hangs up.
func then(answer string, more func(net.Conn)) func(net.Conn, string) {
	return func(conn net.Conn, id string) {
		says(answer)(conn, id)
		more(conn)
	}
}

func hang(conn net.Conn)  { io.Copy(io.Discard, conn) }
func reset(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) }

// repeat writes the same again and again until nobody listens.
func repeat(what string, every time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, what); err != nil {
				return
			}
			time.Sleep(every)
		}
	}
}

const (
	head  = "HTTP/1.1 200 OK\r\n\r\n"
	drip  = 20 * time.Millisecond
	pong  = `{"jsonrpc":"2.0","id":"ID","result":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"pong"}]}}`
	chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// TestOddAnswers: whatever stands on the port ends inside its limit and in one
// class. Each of them answers /health and the dispatch in the same way.
func TestOddAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		serve    func(net.Conn, string)
		health   HealthClass
		dispatch DispatchClass
	}{
		{"answers", says(head + pong), HealthOK, DispatchCompleted},
		{"accepts and says nothing", then("", hang), HealthMute, DispatchDead},
		{"hangs up", says(""), HealthMute, DispatchDead},
		{"resets", then("", reset), HealthMute, DispatchDead},
		{"hangs after the status line", then("HTTP/1.1 200 OK\r\n", hang), HealthMute, DispatchDead},
		{"hangs up within the headers", says("HTTP/1.1 200 OK\r\nContent-Ty"), HealthMute, DispatchDead},
		{"hangs up within our name for HTTP", says("HTT"), HealthMute, DispatchDead},
		{"hangs after the headers", then(head, hang), HealthMute, DispatchDead},
		{"drips headers", then("HTTP/1.1 200 OK\r\n", repeat("a: b\r\n", drip)), HealthMute, DispatchDead},
		{"drips a body", then(head, repeat(" ", drip)), HealthMute, DispatchDead},
		{"drips chunks", then(chunk, repeat("1\r\n \r\n", drip)), HealthMute, DispatchDead},
		{"drips events", then("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", repeat(": ping\n\n", drip)), HealthMute, DispatchDead},
		{"drips 102 Processing", then("", repeat("HTTP/1.1 102 Processing\r\n\r\n", drip)), HealthMute, DispatchDead},
		{"answers after 102 Processing", says("HTTP/1.1 102 Processing\r\n\r\n" + head + pong), HealthOK, DispatchCompleted},
		{"cut off by its length", says("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + pong), HealthMute, DispatchDead},
		{"cut off in a chunk", says(chunk + "100\r\n{"), HealthMute, DispatchDead},
		{"reset in the body", then("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{", reset), HealthMute, DispatchDead},

		{"more than 64 KiB", says(head + pong + strings.Repeat(" ", maxBody)), HealthForeign, DispatchFaulty},
		{"endless body", then(head, repeat(strings.Repeat(" ", 4096), 0)), HealthForeign, DispatchFaulty},
		{"endless chunks", then(chunk, repeat("1000\r\n"+strings.Repeat(" ", 4096)+"\r\n", 0)), HealthForeign, DispatchFaulty},
		{"endless headers", then("HTTP/1.1 200 OK\r\n", repeat(strings.Repeat("a: b\r\n", 500), 0)), HealthForeign, DispatchFaulty},
		{"endless header", then("HTTP/1.1 200 OK\r\nA: ", repeat(strings.Repeat("a", 4096), 0)), HealthForeign, DispatchFaulty},
		{"endless 102 Processing", then("", repeat(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 100), 0)), HealthForeign, DispatchFaulty},
		{"another protocol", says("SSH-2.0-OpenSSH_9.2\r\n"), HealthForeign, DispatchFaulty},
		{"another protocol that stays", then("220 mail\r\n", hang), HealthForeign, DispatchFaulty},
		{"HTTP/2", then("\x00\x00\x12\x04\x00\x00\x00\x00\x00", hang), HealthForeign, DispatchFaulty},
		{"a word and no more", says("hi"), HealthForeign, DispatchFaulty},
		{"a TLS alert", says("\x15\x03\x01\x00\x02\x02\x46"), HealthForeign, DispatchFaulty},
		{"a broken chunk", says(chunk + "zz\r\n{}\r\n"), HealthForeign, DispatchFaulty},
		{"a status that is none", says("HTTP/1.1 abc\r\n\r\n"), HealthForeign, DispatchFaulty},
		{"two lengths", says("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"), HealthForeign, DispatchFaulty},
		{"switches protocols", says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), HealthForeign, DispatchFaulty},

		{"redirects", says("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), HealthForeign, DispatchFaulty},
		{"redirects the POST", says("HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\n\r\n"), HealthForeign, DispatchFaulty},
		{"no content", says("HTTP/1.1 204 No Content\r\n\r\n"), HealthForeign, DispatchFaulty},
		{"nothing", says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), HealthForeign, DispatchFaulty},
		{"HTML", says(head + "<!DOCTYPE html><p>hello"), HealthForeign, DispatchFaulty},
		{"an array", says(head + "[" + pong + "]"), HealthForeign, DispatchFaulty},
		{"null", says(head + "null"), HealthForeign, DispatchFaulty},
		{"NaN", says(head + `{"agent":NaN}`), HealthForeign, DispatchFaulty},
		{"a byte order mark", says(head + "\xef\xbb\xbf" + pong), HealthForeign, DispatchFaulty},
		{"something after the object", says(head + pong + "{}"), HealthForeign, DispatchFaulty},
		{"events", says("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + pong + "\n\n"), HealthForeign, DispatchFaulty},
		{"deep nesting", says(head + strings.Repeat("[", 60000)), HealthForeign, DispatchFaulty},
		{"another agent", says(head + `{"agent":"luna","status":"running"}`), HealthForeign, DispatchFaulty},
		{"JSON that is not ours", says(head + `{"ok":true}`), HealthOK, DispatchFaulty},

		{"400", says("HTTP/1.1 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server."), HealthForeign, DispatchFaulty},
		{"401", says("HTTP/1.1 401 Unauthorized\r\n\r\nno"), HealthForeign, DispatchRefused},
		{"403", says("HTTP/1.1 403 Forbidden\r\n\r\n{}"), HealthForeign, DispatchRefused},
		{"404", says("HTTP/1.1 404 Not Found\r\n\r\n404 page not found"), HealthForeign, DispatchFaulty},
		{"429", says("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\n\r\n"), HealthSick, DispatchOverloaded},
		{"500", says("HTTP/1.1 500 Internal Server Error\r\n\r\noops"), HealthSick, DispatchFaulty},
		{"502", says("HTTP/1.1 502 Bad Gateway\r\n\r\n"), HealthSick, DispatchFaulty},
		{"503 of uvicorn", says("HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked\r\n\r\n13\r\nService Unavailable\r\n0\r\n\r\n"), HealthSick, DispatchOverloaded},
		{"500 around a good answer", says("HTTP/1.1 500 Internal Server Error\r\n\r\n" + pong), HealthSick, DispatchCompleted},
		{"a good answer as text", says("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + pong), HealthOK, DispatchCompleted},
		{"HTTP/1.0", says("HTTP/1.0 200 OK\r\n\r\n" + pong), HealthOK, DispatchCompleted},
		{"64 KiB", says(head + pong + strings.Repeat(" ", maxBody-len(pong)-64)), HealthOK, DispatchCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			prober := patient
			if c.health == HealthMute {
				prober = hasty
			}
			agent := Agent{Name: "sol", URL: listen(t, c.serve)}
			health, dispatch := prober.Health(t.Context(), agent), prober.Dispatch(t.Context(), agent)
			if health.Class != c.health || dispatch.Class != c.dispatch {
				t.Errorf("health %s (%s), dispatch %s (%s); want %s and %s", health.Class, health.Detail, dispatch.Class, dispatch.Detail, c.health, c.dispatch)
			}
			if strings.Contains(c.name, "drips") && dispatch.Detail != "no answer in 0.25 s" {
				t.Errorf("a drip ends as %q", dispatch.Detail)
			}
		})
	}
}

// TestNobodyThere: a port that refuses, one whose queue of connections is
// full, and ones that cannot be asked.
func TestNobodyThere(t *testing.T) {
	closed := Agent{URL: listen(t, says(""))}
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		closed.URL = "http://" + l.Addr().String()
		l.Close()
	}
	expect(t, "refused", patient, closed, HealthRefused, DispatchDead)

	full := Agent{URL: fullBacklog(t)}
	expect(t, "full queue", hasty, full, HealthMute, DispatchDead)

	expect(t, "no route", patient, Agent{URL: "http://127.0.0.1:99999"}, HealthUnknown, DispatchUnknown)
	expect(t, "no URL", patient, Agent{URL: "http://a b"}, HealthUnknown, DispatchUnknown)

	answering := Agent{URL: listen(t, says(head+pong))}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if d := patient.Dispatch(over, answering); d.Class != DispatchUnknown {
		t.Errorf("a pass that is over: dispatch %s (%s), want unknown", d.Class, d.Detail)
	}
	hanging := Agent{URL: listen(t, then("", hang))}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if d := patient.Dispatch(short, hanging); d.Class != DispatchUnknown {
		t.Errorf("a pass that ends before the limit: dispatch %s (%s), want unknown", d.Class, d.Detail)
	}
}

func expect(t *testing.T, what string, p Prober, a Agent, health HealthClass, dispatch DispatchClass) {
	t.Helper()
	h, d := p.Health(t.Context(), a), p.Dispatch(t.Context(), a)
	if h.Class != health || d.Class != dispatch {
		t.Errorf("%s: health %s (%s), dispatch %s (%s); want %s and %s", what, h.Class, h.Detail, d.Class, d.Detail, health, dispatch)
	}
}

// fullBacklog listens and never accepts, until the kernel answers no SYN.
func fullBacklog(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return "http://" + address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the queue takes everybody")
	return ""
}

// TestOutOfDescriptors: what we cannot ask is unknown, never dead. Not
// parallel: the limit is the process's.
func TestOutOfDescriptors(t *testing.T) {
	agent := Agent{URL: listen(t, says(head+pong))}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	h, d := patient.Health(t.Context(), agent), patient.Dispatch(t.Context(), agent)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if h.Class != HealthUnknown || d.Class != DispatchUnknown || !strings.Contains(d.Detail, "too many open files") {
		t.Errorf("health %s (%s), dispatch %s (%s)", h.Class, h.Detail, d.Class, d.Detail)
	}
}

// TestTLS: an agent behind https that nobody vouches for is foreign, and so is
// plain HTTP where https was expected; one that never shakes hands is mute.
func TestTLS(t *testing.T) {
	plain := Agent{URL: strings.Replace(listen(t, says(head+pong)), "http:", "https:", 1)}
	expect(t, "hangs up on a handshake", patient, plain, HealthMute, DispatchDead)

	key, _ := rsa.GenerateKey(rand.Reader, 2048)
	certificate := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, &certificate, &certificate, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.NotFoundHandler()}}
	server.Start()
	defer server.Close()
	expect(t, "https", patient, Agent{URL: "https://" + l.Addr().String()}, HealthForeign, DispatchFaulty)
	expect(t, "https asked in plain", patient, Agent{URL: "http://" + l.Addr().String()}, HealthForeign, DispatchFaulty)
}

// TestGenerations: which words are spoken first, what is tried after them, and
// what is remembered.
func TestGenerations(t *testing.T) {
	unknownMethod := `{"jsonrpc":"2.0","id":"ID","error":{"code":-32601,"message":"method not found"}}`
	unknownVersion := `{"jsonrpc":"2.0","id":null,"error":{"code":-32009,"message":"version"}}`
	for _, c := range []struct {
		name, before, answer03, answer10 string
		methods                          string
		class                            DispatchClass
		after                            string
	}{
		{"0.3, new", "", pong, unknownMethod, "message/send", DispatchCompleted, "0.3"},
		{"0.3, known", "0.3", pong, unknownMethod, "message/send", DispatchCompleted, "0.3"},
		{"1.0, new", "", unknownMethod, pong, "message/send SendMessage", DispatchCompleted, "1.0"},
		{"1.0 by version, new", "", unknownVersion, pong, "message/send SendMessage", DispatchCompleted, "1.0"},
		{"1.0, known", "1.0", unknownMethod, pong, "SendMessage", DispatchCompleted, "1.0"},
		{"went back to 0.3", "1.0", pong, unknownMethod, "SendMessage message/send", DispatchCompleted, "0.3"},
		{"a word nobody knows", "2.0", pong, unknownMethod, "message/send", DispatchCompleted, "0.3"},
		{"neither", "", unknownMethod, unknownVersion, "message/send SendMessage", DispatchRefused, ""},
		{"1.0 and broken", "1.0", unknownMethod, "{}", "SendMessage", DispatchFaulty, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var request struct {
					ID, Method string
					Params     struct {
						Message struct {
							Kind, Role, MessageID, ContextID string
							Parts                            []struct{ Kind, Text string }
						}
						Configuration map[string]any
					}
				}
				if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
					t.Error(err)
				}
				asked = append(asked, request.Method)
				m, answer := request.Params.Message, c.answer03
				want := [...]string{"message", "user", "text", ""}
				if request.Method == "SendMessage" {
					answer, want = c.answer10, [...]string{"", "ROLE_USER", "", "1.0"}
				}
				if got := [...]string{m.Kind, m.Role, m.Parts[0].Kind, r.Header.Get("A2A-Version")}; got != want {
					t.Errorf("%s speaks %q, want %q", request.Method, got, want)
				}
				if !strings.HasPrefix(m.Parts[0].Text, "tickdog") || m.MessageID == "" || m.ContextID != "tickdog-2026-09-27" || r.URL.Path != "/" || r.Method != "POST" {
					t.Errorf("%s %s %+v", r.Method, r.URL, m)
				}
				if _, wordOf03 := request.Params.Configuration["blocking"]; wordOf03 != (request.Method == "message/send") {
					t.Errorf("%s: configuration %v", request.Method, request.Params.Configuration)
				}
				io.WriteString(w, strings.ReplaceAll(answer, "ID", request.ID))
			}))
			defer server.Close()
			d := patient.Dispatch(t.Context(), Agent{URL: server.URL + "/", Protocol: c.before})
			if got := strings.Join(asked, " "); got != c.methods || d.Class != c.class || d.Protocol != c.after {
				t.Errorf("asked %q, %s (%s), remembers %q; want %q, %s, %q", got, d.Class, d.Detail, d.Protocol, c.methods, c.class, c.after)
			}
		})
	}
}

// TestTasks: a task that was only taken on proves nothing until it has ended.
func TestTasks(t *testing.T) {
	task := func(state string) string {
		return `{"jsonrpc":"2.0","id":"ID","result":{"kind":"task","id":"t1","status":{"state":"` + state + `"}}}`
	}
	rpcError := func(code int, message string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":"ID","error":{"code":%d,"message":%q}}`, code, message)
	}
	for _, c := range []struct {
		name    string
		answers []string // the last one again and again
		class   DispatchClass
	}{
		{"at once", []string{task("completed")}, DispatchCompleted},
		{"in the end", []string{task("submitted"), task("working"), task("working"), task("completed")}, DispatchCompleted},
		{"fails in the end", []string{task("working"), task("failed")}, DispatchCompleted},
		{"asks in the end", []string{task("working"), task("input-required")}, DispatchRefused},
		{"never ends", []string{task("working")}, DispatchDead},
		{"is forgotten", []string{task("working"), rpcError(-32001, "not found")}, DispatchRefused},
		{"cannot be looked up", []string{task("working"), rpcError(-32603, "no store")}, DispatchRefused},
		{"cannot be asked for", []string{task("working"), rpcError(-32601, "no method")}, DispatchRefused},
		{"turns into nonsense", []string{task("working"), "{}"}, DispatchFaulty},
		{"ends after the connection does", []string{task("working"), ""}, DispatchDead},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			url := listen(t, func(conn net.Conn, id string) {
				answer := c.answers[min(int(n.Add(1)), len(c.answers))-1]
				if answer != "" {
					says(head+answer)(conn, id)
				}
			})
			prober := patient
			if c.name == "never ends" {
				prober = hasty
			}
			d := prober.Dispatch(t.Context(), Agent{URL: url})
			if d.Class != c.class {
				t.Errorf("%s (%s), want %s", d.Class, d.Detail, c.class)
			}
			if c.name == "never ends" && d.Detail != "no answer in 0.25 s, its task is working" {
				t.Errorf("says %q", d.Detail)
			}
		})
	}
}

// TestLook: one pass over a fleet, in order, without a second message to an
// agent that is still at work on the last one.
func TestLook(t *testing.T) {
	agent := func(name, task string, sent *atomic.Int32) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				fmt.Fprintf(w, `{"agent":%q,"status":"running","circuit_open":false,"current_task":%s}`, name, task)
				return
			}
			sent.Add(1)
			var request struct{ ID string }
			json.NewDecoder(r.Body).Decode(&request)
			io.WriteString(w, strings.ReplaceAll(pong, "ID", request.ID))
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	var idle, ours, other atomic.Int32
	agents := []Agent{
		{Name: "sol", Unit: "sol.service", URL: agent("sol", "null", &idle), LastDead: true},
		{Name: "ace", Unit: "ace.service", URL: agent("ace", `"tickdog livene..."`, &ours), LastDead: true},
		{Name: "mira", Unit: "mira.service", URL: agent("mira", `"tickdog livene..."`, &ours)},
		{Name: "nova", Unit: "nova.service", URL: agent("luna", "null", &other)},
		{Name: "echo", Unit: "echo.service", URL: "http://127.0.0.1:1"},
	}
	seen := patient.Look(t.Context(), agents, map[string]map[string]string{
		"sol.service": {"LoadState": "loaded", "ActiveState": "active", "MainPID": fmt.Sprint(unix.Getpid()), "CPUUsageNSec": "1500000000"},
		"ace.service": {"LoadState": "loaded", "ActiveState": "active", "MainPID": fmt.Sprint(unix.Getpid()), "CPUUsageNSec": "[not set]"},
	})
	type summary struct {
		unit     bool
		health   HealthClass
		dispatch DispatchClass
		repeated bool
	}
	for i, want := range []summary{
		{true, HealthOK, DispatchCompleted, false},
		{true, HealthOK, DispatchDead, true},
		{false, HealthOK, DispatchCompleted, false},
		{false, HealthForeign, DispatchSkipped, false},
		{false, HealthRefused, DispatchSkipped, false},
	} {
		s := seen[i]
		if got := (summary{s.Unit.Asked, s.Health.Class, s.Dispatch.Class, s.Dispatch.Repeated}); got != want {
			t.Errorf("%s: %+v, want %+v\n%+v", agents[i].Name, got, want, s)
		}
	}
	if idle.Load() != 1 || ours.Load() != 1 || other.Load() != 0 {
		t.Errorf("sent %d, %d and %d messages, want 1, 1 and 0", idle.Load(), ours.Load(), other.Load())
	}
	sol, ace := seen[0], seen[1]
	if !sol.Process.CPUKnown || sol.Process.CPU != 1.5 || sol.Process.State == "" || sol.Unit.Monotonic == 0 {
		t.Errorf("sol's process: %+v, unit %+v", sol.Process, sol.Unit)
	}
	if !ace.Process.CPUKnown || ace.Process.CPU == 0 {
		t.Errorf("ace's process: %+v", ace.Process)
	}
	if task := sol.Health.Task; !task.Known || task.Text != "" {
		t.Errorf("sol's task: %+v", task)
	}
}

// TestEightDeadCostOne: agents are looked at side by side.
func TestEightDeadCostOne(t *testing.T) {
	url := listen(t, then("", hang))
	began := time.Now()
	for i, s := range hasty.Look(t.Context(), make8(url), nil) {
		if s.Health.Class != HealthMute || s.Dispatch.Class != DispatchDead {
			t.Errorf("%d: %+v", i, s)
		}
	}
	one := hasty.HealthTimeout + hasty.DispatchTimeout
	if took := time.Since(began); took > 4*one {
		t.Errorf("eight took %v, one takes %v", took, one)
	}
}

func make8(url string) []Agent {
	agents := make([]Agent, 8)
	for i := range agents {
		agents[i] = Agent{Name: fmt.Sprint(i), Unit: fmt.Sprint(i), URL: url}
	}
	return agents
}

// TestThousandAgents: bounded connections and memory, whether they answer or
// not.
func TestThousandAgents(t *testing.T) {
	var open, most atomic.Int64
	count := func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			for now := open.Add(1); ; {
				if old := most.Load(); now <= old || most.CompareAndSwap(old, now) {
					break
				}
			}
		case http.StateClosed:
			open.Add(-1)
		}
	}
	for _, c := range []struct {
		name   string
		prober Prober
		want   DispatchClass
	}{
		{"healthy", patient, DispatchCompleted},
		{"wedged", Prober{HealthTimeout: 20 * time.Second, DispatchTimeout: time.Second}, DispatchDead},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var request struct{ ID string }
				json.NewDecoder(r.Body).Decode(&request)
				if c.want == DispatchDead && request.ID != "" {
					<-r.Context().Done()
				}
				io.WriteString(w, strings.ReplaceAll(pong, "ID", request.ID))
			}))
			server.Config.ConnState = count
			server.Start()
			defer server.Close()
			agents := make([]Agent, 1000)
			for i := range agents {
				agents[i] = Agent{Name: "sol", Unit: fmt.Sprint(i), URL: server.URL}
			}
			peak := watchMemory()
			began := time.Now()
			seen := c.prober.Look(t.Context(), agents, nil)
			t.Logf("%v, at most %d connections and %d MiB, the servers' included", time.Since(began), most.Load(), peak()>>20)
			for _, s := range seen {
				if s.Health.Class != HealthOK || s.Dispatch.Class != c.want {
					t.Fatalf("%+v", s)
				}
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("took %v", took)
			}
		})
	}
	// The server sees a connection end a little later than we do.
	if most.Load() > 2*mostAtOnce+100 {
		t.Errorf("%d connections at once, at most %d were to be", most.Load(), mostAtOnce)
	}
}

// watchMemory returns the most that heap and stacks held until it is asked.
func watchMemory() func() uint64 {
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse+m.StackInuse)
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(stop); return <-peak }
}
