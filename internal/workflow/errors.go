package workflow

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The sentinels. Each is one kind of refusal and survives the network through the
// table in package api; test for them with errors.Is on either side.
var (
	ErrInvalid         = errors.New("invalid")              // the request is wrong and stays wrong
	ErrUnsupported     = errors.New("not in this version")  // understood, but not possible in this version
	ErrTooLarge        = errors.New("too large")            // beyond a stated bound
	ErrNotFound        = errors.New("not found")            // no such thing, or not yours to see
	ErrConflict        = errors.New("conflict")             // lost race: another change came first
	ErrExists          = errors.New("already exists")       // the name is taken
	ErrInUse           = errors.New("in use")               // something still depends on it
	ErrUnauthenticated = errors.New("unauthenticated")      // no token, or one that is not known
	ErrRevoked         = errors.New("token revoked")        // known once, no longer valid
	ErrForbidden       = errors.New("forbidden")            // known, and not allowed to
	ErrInstanceTaken   = errors.New("instance taken")       // another live process works as this instance
	ErrAlreadyStarted  = errors.New("already started")      // another boot holds the run: exit, do nothing
	ErrNotStarted      = errors.New("not started")          // this call needs a granted start
	ErrOver            = errors.New("run over")             // this attempt is over: kill the engine and exit
	ErrExpired         = errors.New("expired")              // it was there, and is not kept any longer
	ErrNotReported     = errors.New("task not reported")    // transient: the dispatcher's report is on its way
	ErrLogGap          = errors.New("log gap")              // lines before these are missing: send from the named one
	ErrKeyReused       = errors.New("idempotency key used") // the same key with another request
	ErrTooMany         = errors.New("too many requests")    // too many: slow down
	ErrBusy            = errors.New("busy")                 // transient: try again with jitter
)

// Error is a refusal: its sentinel, a sentence that a person can act on, and the field that it is about.
type Error struct {
	Kind       error         // one of the sentinels
	Field      string        // dotted path of the field, or empty
	Message    string        // a sentence for the person who asked
	RetryAfter time.Duration // how long to wait before asking again; 0 means unsaid
}

// Refuse makes an Error. field may be empty.
func Refuse(kind error, field, format string, args ...any) error {
	return &Error{Kind: kind, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Invalid is Refuse for a request that is wrong and stays wrong.
func Invalid(field, format string, args ...any) error {
	return Refuse(ErrInvalid, field, format, args...)
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap lets errors.Is find the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// Mistakes are all that is wrong with something that a person wrote, so that all of it is said at once: for each, where
// it stands, what is wrong and what would be right. Together they are ErrInvalid.
type Mistakes []string

// Add adds a mistake; place is a line, a field or both.
func (m *Mistakes) Add(place, format string, args ...any) {
	*m = append(*m, place+": "+fmt.Sprintf(format, args...))
}

// Err returns the mistakes; nil where there are none.
func (m Mistakes) Err() error {
	if len(m) == 0 {
		return nil
	}
	return m
}

func (m Mistakes) Error() string { return strings.Join(m, "\n") }

// Unwrap lets errors.Is find the sentinel.
func (m Mistakes) Unwrap() error { return ErrInvalid }
