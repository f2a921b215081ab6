package agents

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// An answer is cut here: one that goes on is no answer of an agent, and must
// not fill the memory of the pass.
const (
	maxBody   = 64 << 10
	maxHeader = 16 << 10 // and whatever chunking adds to the body
)

// ending says how one HTTP exchange ended, before anybody looks at what was
// said.
type ending int

const (
	answered ending = iota // a whole HTTP answer, whatever it says
	declined               // nobody listens
	silent                 // no complete answer in time, reset, or cut off
	garbled                // something answered that is not HTTP, or has no end
	unasked                // we could not ask: no descriptor, no route, the pass is over
)

// reply is what came of one exchange. Status and body are set if it was
// answered, err if it was not.
type reply struct {
	end    ending
	status int
	body   []byte
	err    error
}

var (
	errLimit   = errors.New("no complete answer in time")
	errEndless = errors.New("the answer has no end")
	errNotHTTP = errors.New("the answer is not HTTP")
)

// within gives a probe its limit. An exchange that ends because of it is
// silent; one that ends because ctx did was not asked to the end.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, errLimit)
}

// exchange sends one request over a connection of its own and reads the whole
// answer. Dial, TLS, request, headers and body share the one limit that ctx
// has from within; there is no proxy, no redirect, no second try and no
// connection left behind.
//
// It stands on net.Conn because a probe must know what http.Transport hides:
// whether somebody hung up, spoke something else, or never spoke.
func exchange(ctx context.Context, req *http.Request) reply {
	r := talk(ctx, req)
	if r.end == silent && ctx.Err() != nil {
		r.err = context.Cause(ctx)
		if r.err != errLimit {
			r.end = unasked
		}
	}
	return r
}

func talk(ctx context.Context, req *http.Request) reply {
	conn, err := dial(ctx, req.URL)
	if err != nil {
		return reply{end: dialEnding(err), err: err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()

	req.Close = true
	if err := req.Write(conn); err != nil {
		return reply{end: readEnding(err), err: err}
	}
	in := &bounded{r: conn, left: maxHeader + maxBody}
	status, body, err := read(bufio.NewReader(in), req)
	switch {
	case err == nil:
		return reply{end: answered, status: status, body: body}
	case err == errNotHTTP, err == errEndless, in.err == nil:
		return reply{end: readEnding(err), err: err}
	}
	// Half a line is malformed too, but that it was cut off says more.
	return reply{end: readEnding(in.err), err: in.err}
}

func read(r *bufio.Reader, req *http.Request) (status int, body []byte, err error) {
	if head, err := r.Peek(len("HTTP/")); len(head) > 0 && !bytes.HasPrefix([]byte("HTTP/"), head) {
		return 0, nil, errNotHTTP
	} else if err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(r, req)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(r, req) // 100 Continue and its like come before the answer
	}
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if len(body) > maxBody {
		return 0, nil, errEndless
	}
	return resp.StatusCode, body, err
}

func dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil || u.Scheme != "https" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: u.Hostname()})
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, handshakeError{err}
	}
	return secure, nil
}

// handshakeError marks what went wrong after somebody had picked up.
type handshakeError struct{ error }

func dialEnding(err error) ending {
	var shake handshakeError
	switch {
	case errors.As(err, &shake):
		return readEnding(shake.error)
	case errors.Is(err, syscall.ECONNREFUSED):
		return declined
	case hungUp(err):
		return silent // a full accept queue never answers; that is not "nobody listens"
	}
	return unasked
}

func readEnding(err error) ending {
	if hungUp(err) {
		return silent
	}
	return garbled
}

// hungUp: the other side went away or kept us waiting.
func hungUp(err error) bool {
	var wait interface{ Timeout() bool }
	return errors.As(err, &wait) && wait.Timeout() ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, context.Canceled)
}

// bounded reads so many bytes; after them comes errEndless, where
// io.LimitedReader would pretend that the other side had finished. It keeps
// the error that ended it.
type bounded struct {
	r    io.Reader
	left int
	err  error
}

func (b *bounded) Read(p []byte) (n int, err error) {
	if b.left <= 0 {
		err = errEndless
	} else {
		n, err = b.r.Read(p[:min(len(p), b.left)])
		b.left -= n
	}
	b.err = err
	return n, err
}

// why puts an exchange that was not answered into one plain phrase.
func (r reply) why(limit time.Duration) string {
	switch {
	case r.end == answered:
		return ""
	case r.end == declined:
		return "nothing listens there"
	case r.err == errLimit:
		return fmt.Sprintf("no answer in %g s", limit.Seconds())
	case r.end == silent:
		return "the answer was cut off: " + r.err.Error()
	}
	return r.err.Error()
}
