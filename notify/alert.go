package notify

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Alert is one message to people.
type Alert struct {
	ID     string    // "" lets [Outbox.Write] choose one
	Name   string    // who tells: "mi50-watchdog"
	Title  string    // one line; may be ""
	Text   string    // the message
	Urgent bool      // ntfy's highest priority instead of its usual one
	Tags   []string  // ntfy's tags
	Kind   string    // the board's kind; "" is "report"
	At     time.Time // when it happened
}

// Channel is where alerts go. Send delivers one alert with one request. An
// error is a [Retry], a [Refused], or, like any other error, one to try again.
type Channel interface {
	Name() string // a short word, the same in every pass: it is part of file names
	Send(ctx context.Context, a Alert) error
}

// Retry is a failure that may pass: no connection, no answer in time, or one of
// the statuses 408, 425, 429 and 5xx.
type Retry struct {
	After time.Duration // how long the server asked us to wait; 0 if it did not say
	Err   error
}

func (e Retry) Error() string { return e.Err.Error() }

// Unwrap is the failure itself.
func (e Retry) Unwrap() error { return e.Err }

// Refused is any other answer than yes: sending the same again cannot help.
type Refused struct{ Err error }

func (e Refused) Error() string { return "refused: " + e.Err.Error() }

// Unwrap is the failure itself.
func (e Refused) Unwrap() error { return e.Err }

// notSeen is what a reader is told of an act whose pass did not live to see it.
const notSeen = "outcome not seen"

// withOutcome adds what came of an act to the text that told of it.
func withOutcome(text, outcome string) string {
	switch {
	case outcome == "", text == "":
		return text + outcome
	case strings.ContainsAny(outcome[:1], " ;,\n"): // brings its own joint
		return text + outcome
	}
	return text + "; " + outcome
}

// late is how old an alert may be before its text says when it happened.
const late = 10 * time.Minute

// withHistory adds what a reader of a delayed alert must know.
func withHistory(text string, at, now time.Time, dropped int) string {
	if !at.IsZero() && now.Sub(at) >= late {
		text += "\n(happened " + at.Format(time.RFC3339) + ")"
	}
	switch {
	case dropped == 1:
		text += "\n(1 older alert was dropped: too many were waiting)"
	case dropped > 1:
		text += fmt.Sprintf("\n(%d older alerts were dropped: too many were waiting)", dropped)
	}
	return text
}

// cut shortens text to at most so many bytes, between two characters.
func cut(text string, most int) string {
	const mark = "…"
	if len(text) <= most {
		return text
	}
	end := most - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
