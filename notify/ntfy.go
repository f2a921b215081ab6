package notify

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strings"
	"unicode"

	"tickdog/state"
)

// maxMessage is ntfy's limit in bytes: a longer message becomes an attachment,
// or is refused where the server has none.
const maxMessage = 4096

type ntfy struct{ url, token string }

// NewNtfy is the channel of an ntfy topic: url is the topic's address, token an
// access token or "" (blanks around it are ignored; one that holds a control
// character is never sent, the alert is refused instead).
func NewNtfy(url, token string) Channel {
	return ntfy{url: url, token: strings.TrimSpace(token)}
}

func (ntfy) Name() string { return "ntfy" }

func (n ntfy) Send(ctx context.Context, a Alert) error {
	header := http.Header{}
	if n.token != "" {
		if strings.IndexFunc(n.token, unicode.IsControl) >= 0 {
			return Refused{errors.New("the ntfy token holds a line break or a control character")}
		}
		header.Set("Authorization", "Bearer "+n.token)
	}
	title, text := a.Title, a.Text
	if text == "" { // ntfy would say "triggered"
		title, text = a.Name, title
	}
	if title != "" {
		header.Set("Title", headerText(title))
	}
	header.Set("Priority", "default")
	if a.Urgent {
		header.Set("Priority", "urgent")
	}
	if len(a.Tags) > 0 {
		header.Set("Tags", headerText(strings.Join(a.Tags, ",")))
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	return post(ctx, n.url, header, cut(strings.ToValidUTF8(text, "\uFFFD"), maxMessage))
}

// headerText is text as a header can carry it: one line, RFC 2047 if it is not
// ASCII (ntfy decodes it).
func headerText(text string) string {
	return mime.QEncoding.Encode("utf-8", cut(state.OneLine(text), 256))
}
