package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Codes of errors that only HTTP knows; all others stand in package api's table.
const (
	codeInvalid   = "invalid"
	codeNoRoute   = "no_route"
	codeMethod    = "method_not_allowed"
	codeMediaType = "invalid_media_type"
	codeTimeout   = "request_timeout"
)

const (
	problemType      = "application/problem+json"
	retryAfterHeader = "Retry-After"
)

// refusal is an error answer on its way through huma. Its body is the problem alone.
type refusal struct {
	api.Problem
	header http.Header
}

func (r *refusal) Error() string             { return r.Detail }
func (r *refusal) GetStatus() int            { return r.Status }
func (r *refusal) GetHeaders() http.Header   { return r.header }
func (r *refusal) ContentType(string) string { return problemType }

// refuse turns an error of the rules into its answer. Every error of every route passes through here. Errors that the
// caller can do nothing about are logged here and nowhere else.
func (s *server) refuse(ctx context.Context, err error) *refusal {
	p := api.ProblemFor(err)
	after := api.RetryAfter(err)
	if p.Code == api.CodeInternal {
		p = s.unforeseen(ctx, err, p)
	}
	header := http.Header{}
	if after == 0 && mayRetry(p.Status) {
		after = time.Second
	}
	if after > 0 {
		header.Set(retryAfterHeader, strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10))
	}
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", "Bearer")
	}
	return &refusal{Problem: p, header: header}
}

// mayRetry reports whether an answer of a status says when to repeat the call.
func mayRetry(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests
}

// unforeseen answers an error that is not a refusal. A busy store, an unknown outcome, a race that was lost each time
// and a time-out are transient; anything else is a failure that a human must look at.
func (s *server) unforeseen(ctx context.Context, err error, internal api.Problem) api.Problem {
	busy := func(level slog.Level, message string) api.Problem {
		s.log.Log(ctx, level, "request not served", "request_id", requestID(ctx), "err", err)
		return api.ProblemFor(&workflow.Error{Kind: workflow.ErrBusy, Message: message})
	}
	switch {
	case ctx.Err() != nil: // the client left or the server stops: nobody may read this
		return busy(slog.LevelDebug, "the request was ended before its answer; try again")
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrConflict),
		errors.Is(err, context.DeadlineExceeded):
		return busy(slog.LevelWarn, "the control plane is busy; try again")
	}
	s.log.ErrorContext(ctx, "request failed", "request_id", requestID(ctx), "err", err)
	return internal
}

// writeProblem answers an error outside of huma.
func (s *server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	answer := s.refuse(r.Context(), err)
	write(w, answer.Problem, answer.header)
}

func write(w http.ResponseWriter, p api.Problem, header http.Header) {
	maps.Copy(w.Header(), header)
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	text, _ := json.Marshal(p) // of strings and numbers: it cannot fail
	_, _ = w.Write(append(text, '\n'))
}

// translate turns huma's own errors, which are about the request's form, into problems. It
// runs as a transformer of answers because that needs no change of huma's global error maker.
func translate(_ huma.Context, _ string, v any) (any, error) {
	if model, ok := v.(*huma.ErrorModel); ok {
		return mistakes(model), nil
	}
	return v, nil
}

const maxMistakes = 20 // that one answer names

func mistakes(m *huma.ErrorModel) api.Problem {
	p := api.Problem{Status: m.Status, Title: http.StatusText(m.Status), Code: codeInvalid, Detail: m.Detail}
	for _, e := range m.Errors {
		p.Errors = append(p.Errors, mistake(e))
	}
	switch m.Status {
	case http.StatusUnsupportedMediaType:
		p.Code, p.Detail, p.Errors = codeMediaType, "send the body as application/json", nil
	case http.StatusInternalServerError:
		p.Code, p.Errors = api.CodeInternal, nil
	}
	slices.SortFunc(p.Errors, func(a, b api.FieldError) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
	})
	p.Errors = p.Errors[:min(len(p.Errors), maxMistakes)]
	if len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Message
	}
	return p
}

var requiredMessage, _, _ = strings.Cut(validation.MsgExpectedRequiredProperty, "%s")

// mistake names the field itself, where huma names the object that it is missing from, and never
// repeats the value that was sent.
func mistake(e *huma.ErrorDetail) api.FieldError {
	field := strings.TrimPrefix(e.Location, "body.")
	if rest, ok := strings.CutPrefix(e.Message, requiredMessage); ok {
		name, _, _ := strings.Cut(rest, " ")
		if field == "body" {
			return api.FieldError{Field: name, Message: "this field is required"}
		}
		return api.FieldError{Field: field + "." + name, Message: "this field is required"}
	}
	if e.Message == validation.MsgUnexpectedProperty {
		return api.FieldError{Field: field, Message: "there is no field of this name"}
	}
	return api.FieldError{Field: field, Message: e.Message}
}
