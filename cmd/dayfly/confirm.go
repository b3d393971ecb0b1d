package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// confirmed is the flag of a command that cannot be undone. A cancel cannot be undone either, and asks nothing: whoever
// types it is in a hurry.
type confirmed struct {
	Yes bool `short:"y" help:"Do it without asking; needed where there is no terminal."`
}

// confirm lets the command go on if its flag or the person at the terminal says so. The text says what the
// command does.
func (c confirmed) confirm(a *app, format string, args ...any) error {
	if c.Yes {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if !term.IsTerminal(a.stdin) || !term.IsTerminal(a.stderr) {
		return usage(fmt.Errorf("%s, and there is no terminal to ask on: say --yes", what))
	}
	answer, err := term.Ask(a.ctx, a.stdin, a.stderr, strings.ToUpper(what[:1])+what[1:]+". Type yes to go on: ")
	if err != nil {
		return unanswered(err)
	}
	if answer != "yes" {
		return &exitError{code: exitFailed, err: errors.New("not confirmed: nothing was done")}
	}
	return nil
}

// delete deletes something by its name if confirm lets it. The warning follows the name.
func (c confirmed) delete(a *app, kind, name, warning string, call func(context.Context, string) error) error {
	if err := c.confirm(a, "this deletes %s %s%s", kind, name, warning); err != nil {
		return err
	}
	if err := call(a.ctx, name); err != nil {
		return err
	}
	return a.done(map[string]string{"deleted": name}, "%s %s is deleted", kind, name)
}

// confirmOverlap is confirm for a new token or secret that ends the one before at once.
func (c confirmed) confirmOverlap(a *app, overlap time.Duration, what string) error {
	switch {
	case overlap < 0 || overlap%time.Second != 0:
		return usage(fmt.Errorf("--overlap: want whole seconds, not %s", overlap))
	case overlap > 0:
		return nil
	}
	return c.confirm(a, "this ends the present %s at once; --overlap 1h leaves an hour to replace it", what)
}

// confirmRun is confirm for a run that changes what its workspace manages.
func (c confirmed) confirmRun(a *app, op workflow.Operation, workspace string) error {
	switch op {
	case workflow.Destroy:
		return c.confirm(a, "this run destroys everything that workspace %s manages", workspace)
	case workflow.Update:
		return c.confirm(a, "this run changes what workspace %s manages", workspace)
	case workflow.Preview, workflow.Refresh, workflow.StateList, workflow.StateUnlock, workflow.StatePull, workflow.StatePush:
		// They change nothing that the code describes, or ask for themselves.
	}
	return nil
}

// unanswered is the end of a command whose prompt got no usable answer.
func unanswered(err error) error {
	if errors.Is(err, term.ErrLeft) {
		return &exitError{code: exitInterrupted, err: errors.New("interrupted: nothing was done")}
	}
	return usage(err)
}
