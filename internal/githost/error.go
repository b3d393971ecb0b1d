package githost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// Error is why a host did not carry out a call.
type Error struct {
	Permanent  bool          // whether another try does no better until a person changes something
	RetryAfter time.Duration // that the host asks for, else zero
	Message    string        // a sentence; no secret
	cause      error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the error of the HTTP client, where there was no answer.
func (e *Error) Unwrap() error { return e.cause }

// Refuse returns a permanent error of a call.
func Refuse(format string, args ...any) *Error {
	return &Error{Permanent: true, Message: fmt.Sprintf(format, args...)}
}

// FailedCall is a call that failed, as an adapter saw it.
type FailedCall struct {
	Host  string // "GitHub"
	Doing string // "read pull request 7 of acme/app"
	Needs string // which permission of the token that takes

	Status int         // of the answer; zero: there was none
	Header http.Header // of the answer
	Said   string      // the host's own words

	Cause  error         // of the library
	Secret redact.String // the credential; it is taken out of all words
}

const (
	maxSaid  = 200 // bytes of a host's own words
	maxWhole = 500 // bytes of a sentence with them
	longest  = 24 * time.Hour
	minWait  = time.Minute // after a refusal for the rate that names no time, as GitHub asks for
)

// Classify makes an Error of a failed call. It is a pure function.
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
// https://docs.gitlab.com/security/rate_limits/
func Classify(f FailedCall, now time.Time) *Error {
	said := ""
	if f.Said != "" {
		said = ": " + text.Quote(f.clean(f.Said), maxSaid)
	}
	refused := func(why string) *Error {
		return &Error{Permanent: true, Message: text.Middle(fmt.Sprintf("%s did not %s (%d%s): %s", f.Host, f.Doing, f.Status, said, why), maxWhole)}
	}
	later := func(why string, wait time.Duration) *Error {
		e := refused(why)
		e.Permanent, e.RetryAfter = false, wait
		return e
	}
	wait := patience(f.Header, now)
	switch s := f.Status; {
	case s == 0 || s >= 200 && s <= 299:
		return f.unanswered()
	case s == http.StatusTooManyRequests || s == http.StatusForbidden && f.limited():
		return later("too many calls were made with this token", cmp.Or(wait, minWait))
	case s >= 500 || s == http.StatusRequestTimeout || s == http.StatusConflict || s == http.StatusLocked || s == http.StatusTooEarly:
		return later("it may do so later", wait)
	case s >= 300 && s <= 399:
		return refused("it answered with a redirect; if the repository or the host has another name now, write that")
	case s == http.StatusUnauthorized:
		return refused("the token is wrong, has expired or was revoked")
	case s == http.StatusForbidden:
		return refused("the token needs " + f.Needs)
	case s == http.StatusNotFound || s == http.StatusGone:
		return refused("it is not there, or the token does not see it; it needs " + f.Needs)
	}
	return refused("it does not accept the request")
}

// unanswered is the error of a call without an answer that could be read.
func (f FailedCall) unanswered() *Error {
	cause := f.Cause
	if outer, ok := errors.AsType[*url.Error](cause); ok {
		cause = outer.Err // without the address
	}
	e := &Error{Permanent: errors.Is(cause, outbound.ErrRefused) || errors.Is(cause, outbound.ErrLong), cause: cause}
	switch {
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		e.Message = fmt.Sprintf("%s did not %s in time", f.Host, f.Doing)
	default:
		e.Message = fmt.Sprintf("%s did not %s: %s", f.Host, f.Doing, text.Cut(f.clean(fmt.Sprint(cause)), maxSaid))
	}
	e.Message = text.Middle(e.Message, maxWhole)
	return e
}

// clean takes the credential out of foreign words: a host, or a proxy before it, may repeat a request.
func (f FailedCall) clean(s string) string {
	if !f.Secret.Empty() {
		s = strings.ReplaceAll(s, f.Secret.Reveal(), f.Secret.String())
	}
	return s
}

// limited says whether a refusal is for the rate. GitHub says so with the status of a missing permission.
func (f FailedCall) limited() bool {
	said := strings.ToLower(f.Said)
	return f.Header.Get("Retry-After") != "" || f.Header.Get("X-Ratelimit-Remaining") == "0" ||
		strings.Contains(said, "secondary rate limit") || strings.Contains(said, "abuse detection")
}

// patience is for how long a host asks to be left alone; zero: it does not ask.
func patience(h http.Header, now time.Time) time.Duration {
	var d time.Duration
	if v := h.Get("Retry-After"); v != "" {
		if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
			d = time.Duration(seconds) * time.Second
		} else if at, err := http.ParseTime(v); err == nil {
			d = at.Sub(now)
		}
	} else {
		for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} { // GitHub's, GitLab's
			if at, err := strconv.ParseInt(h.Get(prefix+"Reset"), 10, 64); err == nil && h.Get(prefix+"Remaining") == "0" {
				d = time.Unix(at, 0).Sub(now)
			}
		}
	}
	return min(max(d, 0), longest)
}
