package client

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ErrUnreachable means that the control plane did not answer: there was no connection, time ran out, or something in
// between answered instead. The request may have been carried out.
var ErrUnreachable = errors.New("cannot reach the control plane")

// Transient reports whether the same request may succeed later without anybody changing it.
func Transient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, workflow.ErrBusy) ||
		errors.Is(err, workflow.ErrTooMany) || errors.Is(err, workflow.ErrNotReported)
}

// RunOver reports whether an answer to a runner means that it does not hold its run, or no longer does: it kills its
// engine and exits. A gateway's refusal never means that.
func RunOver(err error) bool {
	return slices.ContainsFunc([]error{
		workflow.ErrAlreadyStarted, workflow.ErrOver, workflow.ErrUnauthenticated,
		workflow.ErrRevoked, workflow.ErrForbidden, workflow.ErrNotFound,
	}, func(end error) bool { return errors.Is(err, end) })
}

// problem decodes an error answer. It is ours only with the media type of problems and a code: a gateway's error page
// must not be taken for a refusal, which could end a run.
func problem(response *http.Response, text []byte) (api.Problem, bool) {
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	var p api.Problem
	if err != nil || media != "application/problem+json" && media != "application/json" {
		return api.Problem{}, false
	}
	// The token endpoint's problems are plain JSON with an error of RFC 6749 beside the code.
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" || media == "application/json" && p.OAuth == "" {
		return api.Problem{}, false
	}
	p.Status, p.Title = response.StatusCode, http.StatusText(response.StatusCode)
	return p, true
}
