package loop

import (
	"testing"
	"time"
)

func TestClassifyStatus(t *testing.T) {
	for status, want := range map[int]string{
		200: "no unreadable", 204: "no unreadable", 301: "no refused",
		400: "no refused", 404: "no refused", 405: "no refused", 410: "no refused", 413: "no refused", 415: "no refused", 422: "no refused", 418: "no refused",
		401: "no auth", 403: "no auth", 402: "no billing",
		408: "yes timeout", 409: "yes conflict", 425: "yes early", 429: "yes rate_limit", 499: "unknown cut",
		500: "yes server", 502: "yes server", 503: "yes overloaded", 504: "yes server", 520: "yes server", 524: "yes server", 529: "yes overloaded",
		501: "no refused", 505: "no refused", 511: "no refused", 507: "unknown server", 525: "unknown server", 100: "unknown status",
	} {
		c := ClassifyStatus(status, nil, nil, time.Time{})
		if got := string(c.Retry) + " " + c.Code; got != want || c.Told != nil {
			t.Errorf("%d: %s %v, want %s", status, got, c.Told, want)
		}
	}
}

func TestClassifyBody(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"…","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`: "no billing",
		`{"error":{"type":"requests","code":"rate_limit_exceeded"}}`:                                     "yes rate_limit",
		`{"error":{"code":"organization_spend_limit_exceeded","type":7}}`:                                "no billing",
		`{"type":"error","error":{"type":"enforced_spend_limit_reached","message":"…"}}`:                 "no billing",
		`{"type":"error","error":{"type":"rate_limit_error"}}`:                                           "yes rate_limit",
		`{"code":"credit_balance_exhausted","error":"text"}`:                                             "no billing",
		`{"error":"insufficient_quota in a sentence proves nothing"}`:                                    "yes rate_limit",
		`[1]`: "yes rate_limit", `not JSON`: "yes rate_limit", ``: "yes rate_limit",
	} {
		c := ClassifyStatus(429, map[string]string{"x-should-retry": ""}, []byte(body), time.Time{})
		if got := string(c.Retry) + " " + c.Code; got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if c := ClassifyStatus(429, map[string]string{"x-should-retry": "true"}, []byte(`{"error":{"code":"insufficient_quota"}}`), time.Time{}); c.Retry != No {
		t.Errorf("no money, but told to retry: %s", c.Retry)
	}
}

func TestClassifyHeaders(t *testing.T) {
	now := time.Date(2026, 9, 27, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status  int
		headers map[string]string
		retry   Retry
		told    time.Duration // -1: none
	}{
		"none":                     {429, nil, Yes, -1},
		"seconds":                  {429, map[string]string{"retry-after": "30"}, Yes, 30 * time.Second},
		"broken seconds":           {429, map[string]string{"retry-after": "1.5"}, Yes, 1500 * time.Millisecond},
		"milliseconds come first":  {429, map[string]string{"retry-after": "30", "retry-after-ms": "250.5"}, Yes, 251 * time.Millisecond},
		"a bad one falls back":     {429, map[string]string{"retry-after": "30", "retry-after-ms": "soon"}, Yes, 30 * time.Second},
		"a date":                   {503, map[string]string{"retry-after": "Sun, 27 Sep 2026 12:00:45 GMT"}, Yes, 45 * time.Second},
		"a date, its clock is off": {503, map[string]string{"retry-after": "Sun, 27 Sep 2026 13:00:45 GMT", "date": "Sun, 27 Sep 2026 13:00:00 GMT"}, Yes, 45 * time.Second},
		"a date that has passed":   {503, map[string]string{"retry-after": "Sun, 27 Sep 2026 11:59:00 GMT"}, Yes, 0},
		"the old forms of a date":  {503, map[string]string{"retry-after": "Sunday, 27-Sep-26 12:00:45 GMT"}, Yes, 45 * time.Second},
		"negative":                 {429, map[string]string{"retry-after": "-1"}, Yes, -1},
		"no number":                {429, map[string]string{"retry-after": "NaN"}, Yes, -1},
		"endless":                  {429, map[string]string{"retry-after": "Inf"}, Yes, -1},
		"monstrous":                {429, map[string]string{"retry-after": "1000000000000000000"}, Yes, -1},
		"empty":                    {429, map[string]string{"retry-after": ""}, Yes, -1},
		"should not":               {500, map[string]string{"x-should-retry": "false"}, No, -1},
		"should":                   {400, map[string]string{"x-should-retry": "true"}, Yes, -1},
		"push-back":                {503, map[string]string{"grpc-retry-pushback-ms": "700"}, Yes, 700 * time.Millisecond},
		"negative push-back":       {503, map[string]string{"grpc-retry-pushback-ms": "-1"}, No, -1},
		"no push-back":             {503, map[string]string{"grpc-retry-pushback-ms": "never"}, No, -1},
	} {
		got := ClassifyStatus(c.status, c.headers, nil, now)
		told := time.Duration(-1)
		if got.Told != nil {
			told = *got.Told
		}
		if got.Retry != c.retry || told != c.told {
			t.Errorf("%s: %s %v, want %s %v", name, got.Retry, told, c.retry, c.told)
		}
	}
}

func TestClassifyExit(t *testing.T) {
	for code, want := range map[int]string{
		0: " answered", 1: "unknown exit", 2: "unknown exit", 64: "no config", 78: "no config", 75: "yes tempfail",
		124: "unknown timeout", 126: "no exec", 127: "no exec", 128: "unknown exit", 130: "unknown signal", 137: "unknown signal", 143: "unknown signal",
	} {
		c := ClassifyExit(code)
		if got := string(c.Retry) + " " + c.Code; got != want {
			t.Errorf("%d: %s, want %s", code, got, want)
		}
	}
}

func TestClassifyName(t *testing.T) {
	for name, want := range map[string]Retry{
		"dns": Yes, "refused": Yes, "tls": Yes, "certificate": No, "reset": Maybe, "read_timeout": Maybe, "unreadable": No,
		"rate_limit": Yes, "overloaded": Yes, "server_error": Yes, "authentication_failed": No, "oauth_org_not_allowed": No,
		"account_on_hold": No, "verification_required": No, "billing_error": No, "invalid_request": No, "model_not_found": No,
		"cloud_credential_error": No, "max_output_tokens": No, "unknown": Maybe,
	} {
		if c, known := ClassifyName(name); c.Retry != want || !known {
			t.Errorf("%s: %s, want %s", name, c.Retry, want)
		}
	}
	if c, known := ClassifyName("a_new_one"); known || c.Retry != Maybe || c.Code != "a_new_one" {
		t.Errorf("an unknown name: %+v", c)
	}
}

func TestParseTold(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, " 30s ": 30 * time.Second, "1m30s": 90 * time.Second, "0": 0, "250ms": 250 * time.Millisecond, "1e3": 1000 * time.Second,
		"": -1, "-1": -1, "-5s": -1, "NaN": -1, "soon": -1, "1e18": -1, "99999999h": -1, "30 s": -1,
	} {
		got, ok := ParseTold(text, time.Time{})
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"claude-sonnet-4-20250514":            "claude-sonnet-4-20250514",
		"task-runner of unit nova":            "task-runner of unit nova",
		"sk-proj-abcDEF123456":                "***",
		"key sk-ant-api03-xyz_123-4":          "key ***",
		"GET https://user:pw@host/x":          "GET https://***@host/x",
		"https://h/v1?api_key=abc&x":          "https://h/v1?api_key=***&x",
		"Authorization: Bearer abcdefgh":      "Authorization: Bearer ***",
		"bearer abcdefgh failed":              "bearer *** failed",
		`{"token": "abc"}`:                    `{"token": "***"}`,
		"ghp_abcdefghijkl":                    "***",
		"AKIAABCDEFGHIJKLMNOP":                "***",
		"eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln":  "***",
		"a\nb\x00c\x1b[31m":                   "a b c [31m",
		"\xff":                                "\uFFFD",
		"psql --password hunter2 -h db":       "psql --password *** -h db",
		"no-token error, --retry-token -v":    "no-token error, --retry-token -v",
		"https://h/x?key=abc&model=m":         "https://h/x?key=***&model=m",
		"model=m session=abc":                 "model=m session=***",
		"Cookie: a=b; c=d":                    "Cookie: ***",
		"-----BEGIN RSA PRIVATE KEY----- MII": "***",
	} {
		if got := Mask(text); got != want {
			t.Errorf("Mask(%q) = %q, want %q", text, got, want)
		}
	}
}
