package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"tickdog/state"
)

const (
	maxAnswer    = 64 << 10         // bytes of an answer that are read
	sendTime     = 10 * time.Second // all sending of a pass
	heartbeatCap = 3 * time.Second
	longestTold  = 24 * time.Hour // a server that asks for more is asked again tomorrow
)

// client goes straight to the address it is given: no proxy, no redirect, no
// connection kept, and no request sent a second time behind our back.
var client = sync.OnceValue(func() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxAnswer,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1 only
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
})

// request is one exchange. ctx bounds all of it.
func request(ctx context.Context, method, address string, header http.Header, body string) (*http.Response, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, Refused{errors.Unwrap(err)} // without the address: it may be a secret
	}
	if at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, Refused{errors.New("not an http:// or https:// address")}
	}
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, Refused{err}
	}
	for key, values := range header {
		r.Header[key] = values
	}
	r.Header.Set("User-Agent", "tickdog")
	answer, err := client().Do(r)
	if err != nil {
		return nil, Retry{Err: plain(err)}
	}
	return answer, nil
}

// plain is a transport error without the address, which may hold a secret topic.
func plain(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer in time")
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		return outer.Err
	}
	return err
}

// post sends body and judges the answer by its status: nil, [Retry] or [Refused].
func post(ctx context.Context, address string, header http.Header, body string) error {
	answer, err := request(ctx, http.MethodPost, address, header, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	status := answer.StatusCode
	if status/100 == 2 {
		return nil // accepted; what it says besides is not waited for
	}
	err = errors.New(describe(answer))
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests, status/100 == 5:
		return Retry{After: toldWait(answer.Header, time.Now()), Err: err}
	}
	return Refused{err}
}

// describe is an answer in one short line.
func describe(answer *http.Response) string {
	text := strconv.Itoa(answer.StatusCode) + " " + http.StatusText(answer.StatusCode)
	if to := answer.Header.Get("Location"); to != "" && answer.StatusCode/100 == 3 {
		return cut(state.OneLine(text+" to "+to+" (redirects are not followed)"), 300)
	}
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if said := strings.TrimSpace(state.OneLine(string(body))); said != "" {
		text += ": " + said
	}
	return cut(strings.TrimSpace(text), 300)
}

// toldWait reads Retry-After: seconds, or a date, which is compared with the
// server's own clock where it tells it. 0 is not told or not understood.
func toldWait(header http.Header, now time.Time) time.Duration {
	told := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(told, 64); err == nil {
		if !(seconds > 0) { // NaN too
			return 0
		}
		return time.Duration(math.Min(seconds, longestTold.Seconds()) * float64(time.Second))
	}
	date, err := http.ParseTime(told)
	if err != nil {
		return 0
	}
	if server, err := http.ParseTime(header.Get("Date")); err == nil {
		now = server
	}
	return min(max(date.Sub(now), 0), longestTold)
}

// Get asks for address once and returns the status and at most 64 KiB of the
// body. It ends with ctx, and after 10 s at the latest; it uses no proxy and
// follows no redirect. An answer of any status is no error.
func Get(ctx context.Context, address string) (status int, body []byte, err error) {
	ctx, end := context.WithTimeout(ctx, sendTime)
	defer end()
	answer, err := request(ctx, http.MethodGet, address, nil, "")
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return answer.StatusCode, body, Retry{Err: plain(err)}
	}
	return answer.StatusCode, body, nil
}

// Heartbeat tells the server at address, with one GET, that a pass ran. It
// takes 3 s at most and is never repeated: the next pass brings the next one.
// An empty address is no heartbeat.
func Heartbeat(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	ctx, end := context.WithTimeout(ctx, heartbeatCap)
	defer end()
	answer, err := request(ctx, http.MethodGet, address, nil, "")
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}
