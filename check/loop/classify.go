package loop

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Class says what a failure means for trying again.
type Class struct {
	Retry Retry // "" only for an exit status of 0: there is nothing to try again
	Code  string
	Told  *time.Duration // the wait that was asked for; nil if none was
}

// ClassifyStatus judges an HTTP answer that is no success to the caller. The
// names of the headers are in lower case; body may be nil. A 2xx is here
// because its body could not be read: the same request would give the same.
//
// Money comes first, for no wait cures it and it wears the status of a rate
// limit; then what the server says itself (x-should-retry, a gRPC push-back);
// then the status.
func ClassifyStatus(status int, headers map[string]string, body []byte, now time.Time) Class {
	c := classifyStatus(status)
	c.Told = toldBy(headers, now)
	switch should := strings.ToLower(strings.TrimSpace(headers["x-should-retry"])); {
	case status >= 400 && spentBy(body):
		c.Retry, c.Code = No, "billing"
	case should == "true":
		c.Retry = Yes
	case should == "false":
		c.Retry = No
	default:
		if push, ok := headers["grpc-retry-pushback-ms"]; ok {
			ms, err := strconv.ParseInt(strings.TrimSpace(push), 10, 64)
			if err != nil || ms < 0 { // how a gRPC server says: do not
				c.Retry = No
			}
		}
	}
	return c
}

func classifyStatus(status int) Class {
	switch {
	case status >= 200 && status <= 299:
		return Class{Retry: No, Code: "unreadable"}
	case status == 401 || status == 403:
		return Class{Retry: No, Code: "auth"}
	case status == 402:
		return Class{Retry: No, Code: "billing"}
	case status == 408:
		return Class{Retry: Yes, Code: "timeout"}
	case status == 409: // the big SDKs try lock timeouts again
		return Class{Retry: Yes, Code: "conflict"}
	case status == 425:
		return Class{Retry: Yes, Code: "early"}
	case status == 429:
		return Class{Retry: Yes, Code: "rate_limit"}
	case status == 499:
		return Class{Retry: Maybe, Code: "cut"}
	case status >= 300 && status <= 498:
		return Class{Retry: No, Code: "refused"}
	case status == 503 || status == 529:
		return Class{Retry: Yes, Code: "overloaded"}
	case status == 500 || status == 502 || status == 504 || status >= 520 && status <= 524:
		return Class{Retry: Yes, Code: "server"}
	case status == 501 || status == 505 || status == 511:
		return Class{Retry: No, Code: "refused"}
	case status >= 500 && status <= 599:
		return Class{Retry: Maybe, Code: "server"}
	}
	return Class{Retry: Maybe, Code: "status"}
}

// ClassifyExit judges the exit status of a process as a shell shows it: 124
// is what timeout(1) makes of a process that it ended, above 128 is a signal.
func ClassifyExit(code int) Class {
	switch {
	case code == 0:
		return Class{Code: "answered"}
	case code == 126 || code == 127:
		return Class{Retry: No, Code: "exec"}
	case code == 64 || code == 78: // EX_USAGE, EX_CONFIG of sysexits.h
		return Class{Retry: No, Code: "config"}
	case code == 75: // EX_TEMPFAIL
		return Class{Retry: Yes, Code: "tempfail"}
	case code == 124:
		return Class{Retry: Maybe, Code: "timeout"}
	case code > 128:
		return Class{Retry: Maybe, Code: "signal"}
	}
	return Class{Retry: Maybe, Code: "exit"}
}

// named are the failures that have a name and no status: how a request died on
// the way, and the errors that Claude Code's StopFailure hook reports.
var named = map[string]Class{
	"dns":             {Retry: Yes, Code: "transport"}, // nothing was sent
	"refused":         {Retry: Yes, Code: "transport"},
	"tls":             {Retry: Yes, Code: "transport"},
	"connect_timeout": {Retry: Yes, Code: "transport"},
	"certificate":     {Retry: No, Code: "unbuilt"},
	"unbuilt":         {Retry: No, Code: "unbuilt"},
	"reset":           {Retry: Maybe, Code: "cut"}, // sent; it may have been done, and billed
	"eof":             {Retry: Maybe, Code: "cut"},
	"read_timeout":    {Retry: Maybe, Code: "cut"},
	"cut":             {Retry: Maybe, Code: "cut"},
	"unreadable":      {Retry: No, Code: "unreadable"},

	"rate_limit":             {Retry: Yes, Code: "rate_limit"},
	"overloaded":             {Retry: Yes, Code: "overloaded"},
	"server_error":           {Retry: Yes, Code: "server_error"},
	"authentication_failed":  {Retry: No, Code: "authentication_failed"},
	"oauth_org_not_allowed":  {Retry: No, Code: "oauth_org_not_allowed"},
	"account_on_hold":        {Retry: No, Code: "account_on_hold"},
	"verification_required":  {Retry: No, Code: "verification_required"},
	"billing_error":          {Retry: No, Code: "billing_error"},
	"invalid_request":        {Retry: No, Code: "invalid_request"},
	"model_not_found":        {Retry: No, Code: "model_not_found"},
	"cloud_credential_error": {Retry: No, Code: "cloud_credential_error"},
	"max_output_tokens":      {Retry: No, Code: "max_output_tokens"},
	"unknown":                {Retry: Maybe, Code: "unknown"},
}

// ClassifyName judges a failure by its name. An unknown name is [Maybe], under
// its own name, and false.
func ClassifyName(name string) (Class, bool) {
	if c, ok := named[name]; ok {
		return c, true
	}
	return Class{Retry: Maybe, Code: name}, false
}

// Names lists the names that [ClassifyName] knows, sorted.
func Names() []string {
	var names []string
	for name := range named {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// toldBy is the wait that the headers ask for, the finest unit first.
func toldBy(headers map[string]string, now time.Time) *time.Duration {
	for _, name := range []string{"retry-after-ms", "grpc-retry-pushback-ms"} {
		if ms, err := strconv.ParseFloat(strings.TrimSpace(headers[name]), 64); err == nil {
			if told, ok := sane(ms / 1000); ok {
				return &told
			}
		}
	}
	// A date is by the server's clock, which Date shows.
	if date, err := parseDate(headers["date"]); err == nil {
		now = date
	}
	if told, ok := ParseTold(headers["retry-after"], now); ok {
		return &told
	}
	return nil
}

// longestTold is where a told wait is nonsense and not a wait.
const longestTold = 366 * 24 * time.Hour

// ParseTold reads a wait as a server or a person writes it: seconds ("30",
// "1.5"), a duration ("1m30s") or an HTTP date, which is taken against now and
// is 0 if it has passed. What is negative, no number or longer than a year is
// no wait (false).
func ParseTold(text string, now time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return sane(seconds)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return sane(d.Seconds())
	}
	if date, err := parseDate(text); err == nil {
		return sane(max(0, date.Sub(now).Seconds()))
	}
	return 0, false
}

func sane(seconds float64) (time.Duration, bool) {
	if math.IsNaN(seconds) || seconds < 0 || seconds > longestTold.Seconds() {
		return 0, false
	}
	return time.Duration(math.Round(seconds*1e3)) * time.Millisecond, true
}

// parseDate reads the three forms of RFC 9110 5.6.7.
func parseDate(text string) (date time.Time, err error) {
	for _, form := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if date, err = time.Parse(form, strings.TrimSpace(text)); err == nil {
			return date, nil
		}
	}
	return date, err
}

// spent are the error codes that mean: the money is gone. OpenAI and Anthropic
// send them with the status of a rate limit.
var spent = []string{
	"insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded",
	"project_spend_limit_exceeded", "organization_usage_limit_exceeded",
	"enforced_spend_limit_reached", "billing_error", "billing_hard_limit_reached",
}

// spentBy looks for one of them where the providers put it: as the code or the
// type of the answer or of its error.
func spentBy(body []byte) bool {
	type fault struct {
		Code any `json:"code"`
		Type any `json:"type"`
	}
	var answer struct {
		fault
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return false
	}
	var inner fault
	json.Unmarshal(answer.Error, &inner)
	for _, word := range []any{answer.Code, answer.Type, inner.Code, inner.Type} {
		if s, ok := word.(string); ok && slices.Contains(spent, s) {
			return true
		}
	}
	return false
}
