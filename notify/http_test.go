package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tickdog/check"

	"github.com/google/go-cmp/cmp"
)

// serve starts a server on loopback that ends with the test, also while it is
// still answering.
func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// hang is a server that takes requests and never answers.
func hang(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String() // the kernel completes the connection
}

// closed is an address where nobody listens.
func closed(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	return "http://" + listener.Addr().String()
}

func TestNtfyRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	alert := Alert{
		Name: "mi50-watchdog", Title: "stopped lyra-brain (91 °C)\nsecond line", Text: "busy 3600 s\nof 3600 s",
		Urgent: true, Tags: []string{"warning", "fire"},
	}
	if err := NewNtfy(url+"/topic", " tk_secret\n").Send(context.Background(), alert); err != nil {
		t.Fatal(err)
	}
	if got.Method != "POST" || got.URL.Path != "/topic" || string(body) != alert.Text {
		t.Errorf("%s %s %q", got.Method, got.URL, body)
	}
	title, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Title"))
	if err != nil || title != "stopped lyra-brain (91 °C) second line" {
		t.Errorf("Title is %q: %q, %v", got.Header.Get("Title"), title, err)
	}
	for key, want := range map[string]string{"Priority": "urgent", "Tags": "warning,fire", "Authorization": "Bearer tk_secret"} {
		if got.Header.Get(key) != want {
			t.Errorf("%s is %q, want %q", key, got.Header.Get(key), want)
		}
	}

	alert = Alert{Title: "plain", Text: strings.Repeat("é", 4000)}
	if err := NewNtfy(url+"/topic", "").Send(context.Background(), alert); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Title") != "plain" || got.Header.Get("Priority") != "default" || got.Header["Authorization"] != nil || got.Header["Tags"] != nil {
		t.Errorf("%v", got.Header)
	}
	if len(body) > 4096 || len(body) < 4090 || !strings.HasSuffix(string(body), "é…") {
		t.Errorf("%d bytes: …%q", len(body), body[len(body)-10:])
	}

	if err := NewNtfy(url+"/topic", "").Send(context.Background(), Alert{Name: "me", Title: "only a title"}); err != nil {
		t.Fatal(err)
	}
	if string(body) != "only a title" || got.Header.Get("Title") != "me" {
		t.Errorf("%q, Title %q", body, got.Header.Get("Title"))
	}
}

func TestNtfyBadToken(t *testing.T) {
	var requests atomic.Int32
	url := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	err := NewNtfy(url, "tk_a\nX-Injected: 1").Send(context.Background(), Alert{Text: "x"})
	if !errors.As(err, &Refused{}) || strings.Contains(err.Error(), "tk_a") {
		t.Errorf("error %v", err)
	}
	if requests.Load() != 0 {
		t.Error("it was sent all the same")
	}
}

func TestBoardRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
	})
	for _, test := range []struct {
		board Channel
		alert Alert
		want  map[string]string
	}{
		{NewBoard(url+"/", "a2a-selfheal", "lab"), Alert{Title: "restarted <nova>", Text: "restarted <nova>; answering", Kind: "alert"},
			map[string]string{"agent": "a2a-selfheal", "kind": "alert", "content": "restarted <nova>; answering", "project": "lab"}},
		{NewBoard(url, "", ""), Alert{Name: "mi50-watchdog", Title: "head", Text: "body"},
			map[string]string{"agent": "mi50-watchdog", "kind": "report", "content": "body", "project": ""}},
		{NewBoard(url, "", ""), Alert{Name: "n", Title: "head"},
			map[string]string{"agent": "n", "kind": "report", "content": "head", "project": ""}},
	} {
		if err := test.board.Send(context.Background(), test.alert); err != nil {
			t.Fatal(err)
		}
		if got.Method != "POST" || got.URL.Path != "/reports" || got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
		}
		var said map[string]string
		if err := json.Unmarshal(body, &said); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, said); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAnswers(t *testing.T) {
	soon := func() string { return time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat) }
	for _, test := range []struct {
		name        string
		status      int
		header      map[string]string
		body        string
		wantRefused bool
		wantRetry   bool
		after       time.Duration
		says        string
	}{
		{name: "ok", status: 200},
		{name: "no content", status: 204},
		{name: "quota", status: 429, header: map[string]string{"Retry-After": "3600"}, body: `{"code":42901}` + "\n", wantRetry: true, after: time.Hour, says: `429 Too Many Requests: {"code":42901}`},
		{name: "quota, date", status: 429, header: map[string]string{"Retry-After": soon(), "Date": time.Now().UTC().Format(http.TimeFormat)}, wantRetry: true, after: 90 * time.Second},
		{name: "quota, date by a clock that is off", status: 503, header: map[string]string{"Retry-After": "Fri, 01 Jan 2010 00:01:00 GMT", "Date": "Fri, 01 Jan 2010 00:00:00 GMT"}, wantRetry: true, after: time.Minute},
		{name: "date that has passed", status: 503, header: map[string]string{"Retry-After": "Fri, 01 Jan 2010 00:01:00 GMT"}, wantRetry: true},
		{name: "a year", status: 429, header: map[string]string{"Retry-After": "31536000"}, wantRetry: true, after: 24 * time.Hour},
		{name: "nonsense", status: 429, header: map[string]string{"Retry-After": "NaN"}, wantRetry: true},
		{name: "negative", status: 429, header: map[string]string{"Retry-After": "-5"}, wantRetry: true},
		{name: "broken", status: 500, wantRetry: true, says: "500 Internal Server Error"},
		{name: "full", status: 507, wantRetry: true},
		{name: "timeout", status: 408, wantRetry: true},
		{name: "early", status: 425, wantRetry: true},
		{name: "token", status: 401, wantRefused: true, says: "refused: 401 Unauthorized"},
		{name: "topic", status: 403, wantRefused: true},
		{name: "gone", status: 404, wantRefused: true},
		{name: "large", status: 413, wantRefused: true},
		{name: "redirect", status: 302, header: map[string]string{"Location": "/elsewhere"}, wantRefused: true, says: "to /elsewhere (redirects are not followed)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var requests atomic.Int32
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				for key, value := range test.header {
					w.Header().Set(key, value)
				}
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			err := NewNtfy(url, "").Send(context.Background(), Alert{Text: "x"})
			refused, retry := Refused{}, Retry{}
			if got := errors.As(err, &refused); got != test.wantRefused {
				t.Errorf("refused: %v (%v)", got, err)
			}
			if got := errors.As(err, &retry); got != test.wantRetry {
				t.Errorf("retry: %v (%v)", got, err)
			}
			if retry.After < test.after-2*time.Second || retry.After > test.after+2*time.Second {
				t.Errorf("wait %v, want %v", retry.After, test.after)
			}
			if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%v does not say %q", err, test.says)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests", requests.Load())
			}
		})
	}
}

// endless answers with a body that does not end.
func endless(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		for chunk := bytes.Repeat([]byte("x"), 4096); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func TestEverySendEnds(t *testing.T) {
	for name, url := range map[string]string{
		"refused connection": closed(t),
		"no answer":          hang(t),
		"half an answer": serve(t, func(w http.ResponseWriter, r *http.Request) {
			connection, buffer, _ := http.NewResponseController(w).Hijack()
			defer connection.Close()
			buffer.WriteString("HTTP/1.1 200 OK\r\nContent-")
			buffer.Flush()
		}),
		"endless headers": serve(t, func(w http.ResponseWriter, r *http.Request) {
			connection, buffer, _ := http.NewResponseController(w).Hijack()
			defer connection.Close()
			buffer.WriteString("HTTP/1.1 200 OK\r\n")
			for {
				if _, err := buffer.WriteString("X-Long: " + strings.Repeat("x", 1000) + "\r\n"); err != nil {
					return
				}
			}
		}),
		"endless error": serve(t, endless(500)),
		"dripping error": serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for r.Context().Err() == nil {
				io.WriteString(w, "x")
				http.NewResponseController(w).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := NewNtfy(url+"/secret-topic", "").Send(ctx, Alert{Text: "x"})
			if !errors.As(err, &Retry{}) {
				t.Errorf("error %v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if strings.Contains(err.Error(), "secret-topic") || len(err.Error()) > 400 {
				t.Errorf("says too much: %.500v", err)
			}
		})
	}
	t.Run("endless success", func(t *testing.T) {
		if err := NewNtfy(serve(t, endless(200)), "").Send(context.Background(), Alert{Text: "x"}); err != nil {
			t.Error(err)
		}
	})
	for _, url := range []string{"", "ntfy.example/topic", "file:///etc/passwd", "http://", "http://%zz"} {
		if err := NewNtfy(url, "").Send(context.Background(), Alert{Text: "x"}); !errors.As(err, &Refused{}) {
			t.Errorf("%q: error %v", url, err)
		}
	}
}

func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", closed(t))
	t.Setenv("http_proxy", closed(t))
	url := serve(t, func(http.ResponseWriter, *http.Request) {})
	if err := NewNtfy(url, "").Send(context.Background(), Alert{Text: "x"}); err != nil {
		t.Error(err)
	}
	if proxy := client().Transport.(*http.Transport).Proxy; proxy != nil { // loopback never uses one anyway
		t.Error("the client has a proxy")
	}
}

func TestGetAndHeartbeat(t *testing.T) {
	var beats atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/beat":
			beats.Add(1)
		case "/endless":
			endless(200)(w, r)
		default:
			w.WriteHeader(404)
			io.WriteString(w, "nothing here")
		}
	})
	ctx := context.Background()
	if status, body, err := Get(ctx, url); status != 404 || string(body) != "nothing here" || err != nil {
		t.Errorf("%d %q %v", status, body, err)
	}
	if status, body, err := Get(ctx, url+"/endless"); status != 200 || len(body) != maxAnswer || err != nil {
		t.Errorf("%d, %d bytes, %v", status, len(body), err)
	}
	if _, _, err := Get(ctx, closed(t)); err == nil {
		t.Error("nobody listened and there is no error")
	}
	if err := Heartbeat(ctx, url+"/beat"); err != nil || beats.Load() != 1 {
		t.Errorf("%v, %d beats", err, beats.Load())
	}
	if err := Heartbeat(ctx, url); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v", err)
	}
	if err := Heartbeat(ctx, ""); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := Heartbeat(short, hang(t)); err == nil {
		t.Error("no answer is no error")
	}
}

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "a.log")
	zone := time.FixedZone("", -7*3600)
	m := check.Moment{Wall: time.Date(2026, 9, 27, 22, 15, 3, 0, zone)}
	if err := Log(path, m, "restart lab-a2a-nova.service wedged"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != "2026-09-27T22:15:03-07:00 restart lab-a2a-nova.service wedged\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := Log("", m, "x"); err != nil {
		t.Error(err)
	}
	for _, how := range []string{"wedged; outcome not seen", "again"} { // the first is there already, the second one's unit is another
		if err := errors.Join(LogOnce(path, m, "restart lab-a2a-nova.service", how), LogOnce(path, m, "restart lab-a2a-ace.service", how)); err != nil {
			t.Error(err)
		}
	}
	const want = "2026-09-27T22:15:03-07:00 restart lab-a2a-nova.service wedged\n2026-09-27T22:15:03-07:00 restart lab-a2a-ace.service wedged; outcome not seen\n"
	if text, _ := os.ReadFile(path); string(text) != want {
		t.Errorf("%q", text)
	}
}
