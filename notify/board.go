package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// maxContent keeps a report readable, and the request small.
const maxContent = 16 << 10

type board struct{ url, agent, project string }

// NewBoard is the channel of the fleet's board: it posts reports to
// url/reports, in the name of agent ("" is the alert's own name), for project.
func NewBoard(url, agent, project string) Channel {
	return board{url: strings.TrimRight(url, "/"), agent: agent, project: project}
}

func (board) Name() string { return "board" }

func (b board) Send(ctx context.Context, a Alert) error {
	report := struct {
		Agent   string `json:"agent"`
		Kind    string `json:"kind"`
		Content string `json:"content"`
		Project string `json:"project"`
	}{b.agent, a.Kind, cut(content(a), maxContent), b.project}
	if report.Agent == "" {
		report.Agent = a.Name
	}
	if report.Kind == "" {
		report.Kind = "report"
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(report); err != nil {
		return Refused{err}
	}
	header := http.Header{"Content-Type": {"application/json"}}
	return post(ctx, b.url+"/reports", header, body.String())
}

// content is the text: the board shows one field and who reports, so a title
// has nothing to add to it.
func content(a Alert) string {
	if a.Text == "" {
		return a.Title
	}
	return a.Text
}
