// Command agent03 is an agent on the A2A SDK of the 0.3 generation.
package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/a2aproject/a2a-go/a2asrv/limiter"

	"tickdog/testdata/a2a/manner"
)

func main() {
	manner.Serve(func(a *manner.Agent) http.Handler {
		handler := a2asrv.NewHandler(executor{a}, a2asrv.WithConcurrencyConfig(limiter.ConcurrencyConfig{MaxExecutions: a.Quota}))
		return a2asrv.NewJSONRPCHandler(hurried{handler, a})
	})
}

type executor struct{ *manner.Agent }

func (e executor) Execute(ctx context.Context, r *a2asrv.RequestContext, queue eventqueue.Queue) error {
	text := r.Message.Parts[0].(a2a.TextPart).Text
	how, end := e.Begin(text)
	defer end()
	status := func(state a2a.TaskState) error {
		event := a2a.NewStatusUpdateEvent(r, state, nil)
		event.Final = state != a2a.TaskStateWorking
		return queue.Write(ctx, event)
	}
	switch how {
	case manner.Answer, manner.Hang:
		manner.Provide(ctx, how)
		return queue.Write(ctx, a2a.NewMessage(a2a.MessageRoleAgent, a2a.TextPart{Text: "pong"}))
	case manner.Error:
		return errors.New("provider returned 529 overloaded")
	}
	if err := queue.Write(ctx, a2a.NewSubmittedTask(r, r.Message)); err != nil {
		return err
	}
	if err := status(a2a.TaskStateWorking); err != nil {
		return err
	}
	manner.Provide(ctx, how)
	switch how {
	case manner.Fail:
		return status(a2a.TaskStateFailed)
	case manner.Input:
		return status(a2a.TaskStateInputRequired)
	}
	return status(a2a.TaskStateCompleted)
}

func (e executor) Cancel(ctx context.Context, r *a2asrv.RequestContext, queue eventqueue.Queue) error {
	return queue.Write(ctx, a2a.NewStatusUpdateEvent(r, a2a.TaskStateCanceled, nil))
}

// hurried ignores that it was asked to wait, as some servers do.
type hurried struct {
	a2asrv.RequestHandler
	agent *manner.Agent
}

func (h hurried) OnSendMessage(ctx context.Context, p *a2a.MessageSendParams) (a2a.SendMessageResult, error) {
	if h.agent.Hurried() {
		p.Config.Blocking = new(bool)
	}
	return h.RequestHandler.OnSendMessage(ctx, p)
}
