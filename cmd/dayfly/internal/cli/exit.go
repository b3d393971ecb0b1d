package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Exit codes. They are part of the interface: scripts decide by them.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitRefused     = 2
	ExitDiffers     = 2 // with --detailed-exitcode, where a refusal is 1
	ExitUnreachable = 3
	ExitCancelled   = 4
	ExitTimeout     = 5
	ExitChanges     = 6
	ExitAwaiting    = 7
	ExitUsage       = 64
	ExitInterrupted = 130
)

// ExitError ends the process with a code; Err is nil where all messages were printed already.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Usage marks an error as wrong usage: it was found without asking a control plane.
func Usage(err error) error { return &ExitError{Code: ExitUsage, Err: err} }

// Refused marks an error as the control plane's answer, in words that fit the command.
func Refused(err error) error { return &ExitError{Code: ExitRefused, Err: err} }

// Detailed is an error with the exit code that --detailed-exitcode wants: 2 means changes, and so never a refusal.
func Detailed(wanted bool, err error) error {
	if err == nil || !wanted || ExitCode(err) != ExitRefused || Sentence(err) == "" { // without a sentence it is no refusal
		return err
	}
	return &ExitError{Code: ExitFailed, Err: errors.New(Sentence(err))}
}

// Report says what went wrong, in one sentence, and returns the exit code.
func Report(stderr io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	if text := Sentence(err); text != "" {
		_, _ = fmt.Fprintln(stderr, "dayfly: "+text)
	}
	return ExitCode(err)
}

// ExitCode is the exit code that an error means.
func ExitCode(err error) int {
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	if errors.Is(err, client.ErrUnreachable) {
		return ExitUnreachable
	}
	if refusal, ok := errors.AsType[*workflow.Error](err); ok {
		if errors.Is(refusal, workflow.ErrBusy) || errors.Is(refusal, workflow.ErrTooMany) {
			return ExitUnreachable
		}
		return ExitRefused
	}
	return ExitFailed
}

// refusals are the texts of all refusals in an error, in their order.
func refusals(err error) []string {
	switch e := err.(type) { //nolint:errorlint // each layer is inspected
	case *workflow.Error:
		for _, kind := range []error{workflow.ErrNotFound, workflow.ErrExists, workflow.ErrInUse, workflow.ErrConflict, workflow.ErrForbidden} {
			if e.Kind == kind { //nolint:errorlint // it is the sentinel itself
				return []string{e.Message} // the command is right as it was typed: the field is for programs
			}
		}
		return []string{e.Error()}
	case interface{ Unwrap() []error }:
		var all []string
		for _, one := range e.Unwrap() {
			all = append(all, refusals(one)...)
		}
		return all
	case interface{ Unwrap() error }:
		return refusals(e.Unwrap())
	}
	return nil
}

// Sentence is the text of an error for a person.
func Sentence(err error) string {
	switch {
	case errors.Is(err, workflow.ErrUnauthenticated), errors.Is(err, workflow.ErrRevoked):
		return "the control plane does not accept this token: log in again with dayfly login, or set DAYFLY_API_TOKEN"
	case errors.Is(err, client.ErrUnreachable):
		return err.Error() + "; is it running? dayfly up starts one here"
	}
	text := err.Error()
	if _, ours := errors.AsType[*ExitError](err); !ours {
		text = cmp.Or(strings.Join(refusals(err), "\n"), text) // without the call that was refused
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = term.Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}
