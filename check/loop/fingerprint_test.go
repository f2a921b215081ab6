package loop

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSameAction(t *testing.T) {
	for name, actions := range map[string][]string{
		"order and blanks": {
			`{"tool":"edit","args":{"path":"a.go","line":3}}`,
			`{ "args" : { "line" : 3 , "path":"a.go" },` + "\n\t" + `"tool":"edit" }`,
		},
		"escapes":     {`{"tool":"echo","args":{"text":"A/é"}}`, `{"tool":"echo","args":{"text":"\u0041\/\u00e9"}}`},
		"ids, stamps": {`{"tool":"x","args":{"a":1}}`, `{"id":"call_1","timestamp":"2026-09-27T12:00:00Z","tool":"x","args":{"a":1},"tool_use_id":"toolu_01"}`},
		"description": {
			`{"tool":"Bash","input":{"command":"make"}}`,
			`{"tool":"Bash","input":{"command":"make","description":"Builds","timeout":5000,"run_in_background":false}}`,
			`{"tool":"Bash","input":{"command":"  make "},"description":"Builds it"}`,
		},
		"flat":             {`{"tool":"Bash","command":"make  all"}`, `{"description":"d","command":"make all","id":"7","tool":"Bash"}`},
		"a string of JSON": {`{"toolName":"bash","toolArgs":"{\"a\":1,\"b\":2}"}`, `{"toolName":"bash","toolArgs":"{\"b\": 2, \"a\": 1}"}`, `{"toolName":"bash","toolArgs":{"b":2,"a":1}}`},
		"generated ids":    {`{"tool":"x","input":{"a":1,"id":"toolu_01A09q90qw90lq917835lq9"}}`, `{"tool":"x","input":{"a":1,"id":"01932a7c-1000-7000-8000-000000000001"}}`},
		"OpenAI's call": {
			`{"id":"call_1","type":"function","function":{"name":"sh","arguments":"{\"command\":\"make\",\"description\":\"d\"}"}}`,
			`{"id":"call_2","type":"function","function":{"arguments":"{ \"command\": \"make\" }","name":"sh"}}`,
		},
		"a call of MCP": {
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sh","arguments":{"command":"make","description":"d"},"_meta":{"progressToken":1}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sh","arguments":{"command":"make"},"_meta":{"progressToken":2}}}`,
		},
		"who acts": {`{"tool":"x","args":{"a":1},"session_id":"s1","transcript_path":"/1"}`, `{"tool":"x","args":{"a":1},"session_id":"s2"}`},
		"no JSON":  {"make all", "  make all\n"},
	} {
		for _, a := range actions[1:] {
			if Fingerprint([]byte(a)) != Fingerprint([]byte(actions[0])) {
				t.Errorf("%s: %s is not %s", name, a, actions[0])
			}
		}
	}
}

func TestAnotherAction(t *testing.T) {
	actions := []string{
		``, `{}`, `[]`, `null`, `"x"`, `x`, `{"tool":"edit"}`, `{"tool":"view"}`,
		`{"tool":"edit","args":{"path":"a.go","line":3}}`, `{"tool":"edit","args":{"path":"b.go","line":3}}`,
		`{"tool":"edit","args":{"path":"a.go","line":4}}`, `{"tool":"edit","args":{"path":"a.go","line":"3"}}`,
		`{"tool":"edit","args":{"path":"a.go","line":3,"old":"x"}}`, `{"tool":"view","args":{"path":"a.go","line":3}}`,
		`{"tool":"get","args":{"id":42}}`, `{"tool":"get","args":{"id":43}}`, `{"tool":"get","args":{"id":"doc-1"}}`, `{"tool":"get","args":{"id":"doc-2"}}`,
		`{"tool":"add","args":{"title":"t","description":"one"}}`, `{"tool":"add","args":{"title":"t","description":"two"}}`,
		`{"tool":"add","params":{"name":"n","id":"one"}}`, `{"tool":"add","params":{"name":"n","id":"two"}}`,
		`{"tool":"keys","session_id":"one","keys":"x"}`, `{"tool":"keys","session_id":"two","keys":"x"}`,
		`{"function":{"name":"sh","arguments":"{\"id\":1}"}}`, `{"function":{"name":"sh","arguments":"{\"id\":2}"}}`,
		`{"tool":"Bash","input":{"command":"echo 'a  b'"}}`, `{"tool":"Bash","input":{"command":"echo 'a b'"}}`,
		`{"tool":"Bash","input":{"command":"echo a b"}}`, `{"tool":"Bash","input":{"command":"echo ab"}}`,
		"{\"tool\":\"Bash\",\"input\":{\"command\":\"python - <<X\\n  a\\nX\"}}", "{\"tool\":\"Bash\",\"input\":{\"command\":\"python - <<X\\na\\nX\"}}",
		`{"tool":"n","args":{"v":12345678901234567890}}`, `{"tool":"n","args":{"v":12345678901234567891}}`,
		`{"tool":"l","args":{"v":["a","b"]}}`, `{"tool":"l","args":{"v":["b","a"]}}`,
	}
	seen := map[string]string{}
	for _, a := range actions {
		f := Fingerprint([]byte(a))
		if other, ok := seen[f]; ok || len(f) != 32 {
			t.Errorf("%s is the same as %s", a, other)
		}
		seen[f] = a
	}
}

func TestHugeAction(t *testing.T) {
	huge := []byte(`{"tool":"write","args":{"path":"a","text":"` + strings.Repeat("x", 10<<20) + `"}}`)
	deep := []byte(strings.Repeat("[", 100_000))
	start := time.Now()
	if Fingerprint(huge) == Fingerprint(huge[:len(huge)-1]) || Fingerprint(deep) == "" {
		t.Error("fingerprints of huge actions")
	}
	if took := time.Since(start); took > 20*time.Second { // some 100 ms on an idle machine
		t.Errorf("took %v", took)
	}
}

func TestDigest(t *testing.T) {
	same := [][2]string{
		{`{"stdout":"x","durationMs":12}`, `{"durationMs":99,"stdout":"x"}`},
		{`"text"`, ` "text" `},
	}
	for _, s := range same {
		if Digest([]byte(s[0])) != Digest([]byte(s[1])) {
			t.Errorf("%s changed to %s", s[0], s[1])
		}
	}
	for _, s := range [][2]string{{`{"stdout":"12:00:01"}`, `{"stdout":"12:00:02"}`}, {`"a"`, `"b"`}, {`{"exit":0}`, `{"exit":1}`}} {
		if Digest([]byte(s[0])) == Digest([]byte(s[1])) {
			t.Errorf("%s is the same as %s", s[0], s[1])
		}
	}
}

// FuzzFingerprint: the order of the keys and the blanks between them never
// change a fingerprint, nothing panics, and it is always 32 hex digits.
func FuzzFingerprint(f *testing.F) {
	for _, s := range []string{
		`{"tool":"edit","args":{"path":"a.go","line":3,"deep":[{"b":1,"a":null}]}}`,
		`{"command":"echo 'a  b' \"c","timeout":1}`, `[1,"x",{}]`, `"\ud800"`, `not JSON`, ``, `{"a":1e400}`, `{"input":"{\"a\":1}"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, action []byte) {
		want := Fingerprint(action)
		if len(want) != 32 || strings.Trim(want, "0123456789abcdef") != "" {
			t.Fatalf("%q", want)
		}
		value, ok := decode(action)
		if !ok || !utf8.Valid(action) {
			return
		}
		var spread bytes.Buffer
		if err := json.Indent(&spread, encode(value), " ", "\t"); err != nil {
			t.Fatal(err)
		}
		for _, other := range [][]byte{encode(value), spread.Bytes(), backwards(value)} {
			if got := Fingerprint(other); got != want {
				t.Fatalf("%s\n%s\ndiffers from\n%s\n%s", got, other, want, action)
			}
		}
	})
}

// backwards writes a value with its keys in falling order.
func backwards(value any) []byte {
	switch value := value.(type) {
	case map[string]any:
		var keys []string
		for key := range value {
			keys = append(keys, key)
		}
		var b bytes.Buffer
		b.WriteByte('{')
		for len(keys) > 0 {
			last := 0
			for i := range keys {
				if keys[i] > keys[last] {
					last = i
				}
			}
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			b.Write(encode(keys[last]))
			b.WriteByte(':')
			b.Write(backwards(value[keys[last]]))
			keys = append(keys[:last], keys[last+1:]...)
		}
		b.WriteByte('}')
		return b.Bytes()
	case []any:
		parts := make([][]byte, len(value))
		for i := range value {
			parts[i] = backwards(value[i])
		}
		return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']')
	}
	return encode(value)
}
