package api

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// kinds is the one table between sentinels, stable codes and statuses. Both ends use it, so
// that errors.Is answers the same on either side of the network.
var kinds = []Kind{
	{workflow.ErrInvalid, "invalid", http.StatusUnprocessableEntity},
	{workflow.ErrUnsupported, "not_in_this_version", http.StatusUnprocessableEntity},
	{workflow.ErrKeyReused, "idempotency_key_reused", http.StatusUnprocessableEntity},
	{workflow.ErrTooLarge, "too_large", http.StatusRequestEntityTooLarge},
	{workflow.ErrNotFound, "not_found", http.StatusNotFound},
	{workflow.ErrConflict, "conflict", http.StatusConflict},
	{workflow.ErrExists, "already_exists", http.StatusConflict},
	{workflow.ErrInUse, "in_use", http.StatusConflict},
	{workflow.ErrInstanceTaken, "instance_taken", http.StatusConflict},
	{workflow.ErrAlreadyStarted, "already_started", http.StatusConflict},
	{workflow.ErrNotStarted, "not_started", http.StatusConflict},
	{workflow.ErrOver, "run_over", http.StatusGone},
	{workflow.ErrExpired, "log_expired", http.StatusGone},
	{workflow.ErrUnauthenticated, "unauthenticated", http.StatusUnauthorized},
	{workflow.ErrRevoked, "token_revoked", http.StatusUnauthorized},
	{workflow.ErrForbidden, "forbidden", http.StatusForbidden},
	{workflow.ErrLogGap, "log_gap", http.StatusRequestedRangeNotSatisfiable},
	{workflow.ErrTooMany, "too_many_requests", http.StatusTooManyRequests},
	{workflow.ErrBusy, "busy", http.StatusServiceUnavailable},
	{workflow.ErrNotReported, "task_not_reported", http.StatusServiceUnavailable},
}

// Kind is one row of the table.
type Kind struct {
	Err    error // the sentinel
	Code   string
	Status int
}

// Kinds returns a copy of the table.
func Kinds() []Kind { return slices.Clone(kinds) }

// CodeInternal is the code of an error that the caller can do nothing about.
const CodeInternal = "internal"

// HeaderRequestID names a request, in its answer and in the log of its server.
const HeaderRequestID = "X-Request-Id"

// RequestID is the id that a caller gave its request, where that is short and plain, else a new one.
func RequestID(given string) string {
	const limit, plain = 64, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=+/-"
	if given == "" || len(given) > limit || strings.Trim(given, plain) != "" {
		return rand.Text()[:12]
	}
	return given
}

// Problem is an error answer, RFC 9457, with a stable code of ours. Its media type is
// application/problem+json.
type Problem struct {
	Type   string       `json:"type,omitempty" doc:"Always about:blank"`
	Title  string       `json:"title" doc:"The text of the HTTP status"`
	Status int          `json:"status" doc:"The HTTP status"`
	Code   string       `json:"code" doc:"Stable, machine-readable kind of the error"`
	Detail string       `json:"detail,omitempty" doc:"What is wrong and what to do about it"`
	Errors []FieldError `json:"errors,omitempty" doc:"Each field that is wrong"`
	Next   *int64       `json:"next,omitempty" doc:"With log_gap: the first line that is missing"`

	// Of POST /v1/token alone, as RFC 6749 wants them.
	OAuth       string `json:"error,omitempty" doc:"Of POST /v1/token: the error code of RFC 6749" example:"invalid_request"`
	Description string `json:"error_description,omitempty" doc:"Of POST /v1/token: the detail once more"`
}

// FieldError is one mistake in a request.
type FieldError struct {
	Field   string `json:"field" doc:"Dotted path of the field" example:"source.git.url"`
	Message string `json:"message" doc:"The mistake in the field" example:"this field is required"`
}

// ProblemFor turns an error of the rules into its answer. An error that is not a refusal becomes an internal one that
// does not show its cause: log it before.
func ProblemFor(err error) Problem {
	for _, row := range kinds {
		if !errors.Is(err, row.Err) {
			continue
		}
		p := Problem{Title: http.StatusText(row.Status), Status: row.Status, Code: row.Code, Detail: row.Err.Error()}
		if e, ok := errors.AsType[*workflow.Error](err); ok {
			p.Detail = e.Message
			if e.Field != "" {
				p.Errors = []FieldError{{Field: e.Field, Message: e.Message}}
			}
		}
		if gap, ok := errors.AsType[*LogGapError](err); ok {
			p.Detail = gap.Error()
			p.Next = &gap.Next
		}
		return p
	}
	return Problem{
		Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError,
		Code: CodeInternal, Detail: "the control plane failed; its log has the cause",
	}
}

// RetryAfter returns how long an error asks its caller to wait; 0 means it does not say.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*workflow.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// longestRetryAfter bounds the wait that a server may ask for.
const longestRetryAfter = 24 * time.Hour

// ParseRetryAfter reads a Retry-After header, in seconds or as a date; 0 means that it says nothing. It is at most a day.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), longestRetryAfter)
}

// Said is the message of an error without its request, so that equal errors have equal messages.
func Said(err error) string {
	if e, ok := errors.AsType[*workflow.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// Err turns an answer back into the error that the rules gave. With an unknown code, such as one of a later version, the
// status decides: some 4xx are permanent, anything else is transient, ErrBusy.
func (p Problem) Err(retryAfter time.Duration) error {
	var field string
	if len(p.Errors) > 0 {
		field = p.Errors[0].Field
	}
	if p.Next != nil {
		return &LogGapError{Next: *p.Next}
	}
	wrap := func(kind error) error {
		return &workflow.Error{Kind: kind, Field: field, Message: p.sentence(), RetryAfter: retryAfter}
	}
	for _, row := range kinds {
		if row.Code == p.Code {
			return wrap(row.Err)
		}
	}
	if p.Status == http.StatusConflict && p.Code != "" {
		return wrap(workflow.ErrConflict)
	}
	// The code is not ours: a gateway answered. Its 401 or 403 is transient and must never be taken for our refusal,
	// which would end a run. So is everything else that is not plainly about the request.
	switch p.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return wrap(workflow.ErrInvalid)
	case http.StatusRequestEntityTooLarge:
		return wrap(workflow.ErrTooLarge)
	case http.StatusTooManyRequests:
		return wrap(workflow.ErrTooMany)
	default:
		return wrap(workflow.ErrBusy)
	}
}

// Ours reports whether the answer has a code of ours: then it came from the control plane (or a
// relay), and not from a gateway between.
func (p Problem) Ours() bool {
	for _, row := range kinds {
		if row.Code == p.Code {
			return true
		}
	}
	return p.Code == CodeInternal
}

func (p Problem) sentence() string {
	s := p.Detail
	if s == "" {
		s = fmt.Sprintf("the control plane answered %d %s", p.Status, p.Title)
	}
	for i, e := range p.Errors {
		if i == 0 && (e.Message == p.Detail) {
			continue
		}
		s += "; " + e.Field + ": " + e.Message
	}
	return s
}

// LogGapError says that lines are missing before those that were sent. It is a
// workflow.ErrLogGap.
type LogGapError struct {
	Next int64 // the first line that is missing
}

func (e *LogGapError) Error() string {
	return fmt.Sprintf("send the log from line %d", e.Next)
}

// Unwrap makes errors.Is find workflow.ErrLogGap.
func (e *LogGapError) Unwrap() error { return workflow.ErrLogGap }
