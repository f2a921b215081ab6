package notify

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// CheckNtfy asks an ntfy topic whether it takes this token, without
// publishing anything. It returns nil if nothing speaks against it, a Refused
// if the topic needs a token or refuses this one, and a Retry if the server
// can't be reached or fails. It ends with ctx, and after 10 s at the latest.
func CheckNtfy(ctx context.Context, address, token string) error {
	ctx, end := context.WithTimeout(ctx, sendTime)
	defer end()
	header := http.Header{}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	err := ask(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/auth", header)
	if status := (statusError{}); !errors.As(err, &status) || status.code != http.StatusForbidden {
		return err
	}
	// May not read, which a token for publishing need not. A message that is
	// to be delivered at an impossible time is judged for its token first,
	// and then refused as a bad request.
	header.Set("Delay", "never")
	return ask(ctx, http.MethodPost, address, header)
}

// statusError is an answer that speaks against the request.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

// ask sends an empty request and judges only who may ask and whether the
// server works: an answer such as 400 or 404 to an odd question is none.
func ask(ctx context.Context, method, address string, header http.Header) error {
	answer, err := request(ctx, method, address, header, "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said := statusError{code: answer.StatusCode, text: describe(answer)}
	switch said.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return Refused{said}
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Retry{Err: said}
	}
	return nil
}
