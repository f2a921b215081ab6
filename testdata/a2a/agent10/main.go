// Command agent10 is an agent on the A2A SDK of the 1.0 generation.
package main

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/limiter"

	"tickdog/testdata/a2a/manner"
)

func main() {
	manner.Serve(func(a *manner.Agent) http.Handler {
		handler := a2asrv.NewHandler(executor{a}, a2asrv.WithConcurrencyConfig(limiter.ConcurrencyConfig{MaxExecutions: a.Quota}))
		return a2asrv.NewJSONRPCHandler(hurried{handler, a})
	})
}

type executor struct{ *manner.Agent }

func (e executor) Execute(ctx context.Context, r *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		how, end := e.Begin(r.Message.Parts[0].Text())
		defer end()
		switch how {
		case manner.Answer, manner.Hang:
			manner.Provide(ctx, how)
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("pong")), nil)
			return
		case manner.Error:
			yield(nil, errors.New("provider returned 529 overloaded"))
			return
		}
		if !yield(a2a.NewSubmittedTask(r, r.Message), nil) || !yield(a2a.NewStatusUpdateEvent(r, a2a.TaskStateWorking, nil), nil) {
			return
		}
		manner.Provide(ctx, how)
		last := a2a.TaskStateCompleted
		switch how {
		case manner.Fail:
			last = a2a.TaskStateFailed
		case manner.Input:
			last = a2a.TaskStateInputRequired
		}
		yield(a2a.NewStatusUpdateEvent(r, last, nil), nil)
	}
}

func (e executor) Cancel(ctx context.Context, r *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(r, a2a.TaskStateCanceled, nil), nil)
	}
}

// hurried ignores that it was asked to wait, as some servers do.
type hurried struct {
	a2asrv.RequestHandler
	agent *manner.Agent
}

func (h hurried) SendMessage(ctx context.Context, r *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	if h.agent.Hurried() {
		r.Config.ReturnImmediately = true
	}
	return h.RequestHandler.SendMessage(ctx, r)
}
