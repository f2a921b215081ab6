package loop

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// maxWords is how many bytes of a subject, a code or a reason are kept.
const maxWords = 200

// masks are what must not reach a state file, and what stands in its place:
// credentials in an address, what follows the name of a secret (with = or :, as
// a flag, in a query), cookies, keys by the prefixes that their makers give
// them, JSON web tokens. They are compiled
// when first needed: most starts mask nothing, and a hook's must be quick.
var masks = sync.OnceValue(func() (list []mask) {
	for _, m := range []struct{ pattern, instead string }{
		{`(://)[^/\s@]+@`, "${1}***@"},
		{`(?i)([a-z0-9_\-]*(?:api[_-]?key|token|secret|passw(?:or)?d|authorization|credential)[a-z0-9_\-]*["']?\s*[:=]\s*["']?)((?:bearer|basic)\s+)?([^\s"'&,;]+)`, "${1}${2}***"},
		{`(?i)((?:^|\s)--?[a-z0-9_\-]*(?:key|token|secret|passw(?:or)?d)\s+)[^\s\-][^\s]*`, "${1}***"},
		{`(?i)((?:^|[?&;\s])(?:key|sid|session|sessionid|auth|sig|signature)=)[^\s"'&,;]+`, "${1}***"},
		{`(?i)(cookie:\s*).+`, "${1}***"},
		{`(?s)-----BEGIN [A-Z ]*PRIVATE KEY.*`, "***"},
		{`(?i)\b((?:bearer|basic)\s+)[^\s"',;]{6,}`, "${1}***"},
		{`\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{6,}`, "***"},
		{`\b(?:sk|pk|rk|tk|ghp|gho|ghs|ghu|ghr|hf|gsk|npm)_[A-Za-z0-9_]{6,}`, "***"},
		{`\b(?:glpat|pypi|xox[abeprs])-[A-Za-z0-9_\-]{6,}`, "***"},
		{`\bgithub_pat_[A-Za-z0-9_]{6,}`, "***"},
		{`\b(?:AKIA|ASIA)[A-Z0-9]{12,}`, "***"},
		{`\bAIza[A-Za-z0-9_\-]{20,}`, "***"},
		{`\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-.]+`, "***"},
	} {
		list = append(list, mask{regexp.MustCompile(m.pattern), m.instead})
	}
	return list
})

type mask struct {
	pattern *regexp.Regexp
	instead string
}

// Mask is text as it may be kept and shown: one line of at most 200 bytes,
// control characters gone, secrets replaced by ***.
func Mask(text string) string {
	if len(text) > 16*maxWords { // enough to find where a secret ends
		text = text[:16*maxWords]
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.TrimSpace(text)
	for _, m := range masks() {
		text = m.pattern.ReplaceAllString(text, m.instead)
	}
	for cut := maxWords; len(text) > maxWords; cut-- {
		if utf8.RuneStart(text[cut]) {
			text = text[:cut]
		}
	}
	return text
}
