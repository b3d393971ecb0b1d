package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Confirmed is the flag of a command that cannot be undone. A cancel cannot be undone either, but does not ask: its
// user is in a hurry.
type Confirmed struct {
	Yes bool `short:"y" help:"Do it without asking; needed where there is no terminal."`
}

// Confirm lets the command go on if its flag or the person at the terminal says so. The text says what the
// command does.
func (c Confirmed) Confirm(a *App, format string, args ...any) error {
	if c.Yes {
		return nil
	}
	effect := fmt.Sprintf(format, args...)
	if !term.IsTerminal(a.Stdin) || !term.IsTerminal(a.Stderr) {
		return Usage(fmt.Errorf("%s, and there is no terminal to ask on: use --yes", effect))
	}
	answer, err := term.Ask(a.Ctx, a.Stdin, a.Stderr, strings.ToUpper(effect[:1])+effect[1:]+". Type yes to go on: ")
	if err != nil {
		return Unanswered(err)
	}
	if answer != "yes" {
		return &ExitError{Code: ExitFailed, Err: errors.New("not confirmed: nothing was done")}
	}
	return nil
}

// Delete deletes something by its name if Confirm lets it. The warning follows the name.
func (c Confirmed) Delete(a *App, kind, name, warning string, call func(context.Context, string) error) error {
	if err := c.Confirm(a, "this deletes %s %s%s", kind, name, warning); err != nil {
		return err
	}
	if err := call(a.Ctx, name); err != nil {
		return err
	}
	return a.Done(map[string]string{"deleted": name}, "%s %s is deleted", kind, name)
}

// ConfirmOverlap is Confirm for a new token or secret that ends the one before at once.
func (c Confirmed) ConfirmOverlap(a *App, overlap time.Duration, name string) error {
	switch {
	case overlap < 0 || overlap%time.Second != 0:
		return Usage(fmt.Errorf("--overlap: want whole seconds, not %s", overlap))
	case overlap > 0:
		return nil
	}
	return c.Confirm(a, "this ends the present %s at once; --overlap 1h leaves an hour to replace it", name)
}

// ConfirmRun is Confirm for a run that changes the resources of its workspace.
func (c Confirmed) ConfirmRun(a *App, op workflow.Operation, workspace string) error {
	switch op {
	case workflow.Destroy:
		return c.Confirm(a, "this run destroys everything that workspace %s manages", workspace)
	case workflow.Update:
		return c.Confirm(a, "this run changes the resources that workspace %s manages", workspace)
	case workflow.Preview, workflow.Refresh, workflow.StateList, workflow.StateUnlock, workflow.StatePull, workflow.StatePush:
		// They change nothing that the code describes, or ask for themselves.
	}
	return nil
}

// Unanswered is the end of a command whose prompt got no usable answer.
func Unanswered(err error) error {
	if errors.Is(err, term.ErrAborted) {
		return &ExitError{Code: ExitInterrupted, Err: errors.New("interrupted: nothing was done")}
	}
	return Usage(err)
}

// DataFlag names a data directory.
type DataFlag struct {
	Data string `type:"path" help:"The data directory; default /var/lib/dayfly for root, else ~/.local/share/dayfly."`
}

// Directory is the data directory that the flag names, or the default.
func (d DataFlag) Directory(a *App) (string, error) {
	if d.Data != "" {
		return d.Data, nil
	}
	dir, err := embedded.DefaultData(a.Getenv)
	if err != nil {
		return "", Usage(err)
	}
	return dir, nil
}

// Watching is the flag of commands that can be repeated.
type Watching struct {
	Watch bool `help:"Show it again as it changes: on a terminal in place, elsewhere only lines that are new or different. It ends with Ctrl-C, and for one workflow when that has ended."`
}
