package runs

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// OutputCommand is dayfly output.
type OutputCommand struct {
	Workspace string `arg:"" help:"The workspace."`
	Name      string `arg:"" optional:"" help:"The output; default all."`
	Raw       bool   `help:"Print the value of the named output alone, a text without quotes."`
}

// maxSearched is how many workflows are searched for the last one that changed the state.
const maxSearched = 2000

// Run prints the outputs.
func (c *OutputCommand) Run(a *cli.App, cl *client.Client) error {
	if c.Raw && (c.Name == "" || a.JSON()) {
		return cli.Usage(errors.New("--raw: goes with the name of one output, and not with -o"))
	}
	if _, err := cl.Workspace(a.Ctx, c.Workspace); err != nil {
		return err
	}
	last, err := c.last(a, cl)
	if err != nil {
		return err
	}
	var outputs []api.Output
	if last.Result != nil {
		outputs = last.Result.Outputs
	}
	if c.Name != "" {
		return c.one(a, last.ID, outputs)
	}
	if a.JSON() {
		return a.Encode(append([]api.Output{}, outputs...))
	}
	if len(outputs) == 0 {
		a.Say("%s, %s, reported no outputs", runtext.Title(last), last.ID)
	}
	for _, o := range outputs {
		if err := a.Print("%s = %s", term.Clean(o.Name), term.Clean(runtext.Output(o))); err != nil {
			return err
		}
	}
	return nil
}

// last is the last run that has changed the workspace's state and succeeded.
func (c *OutputCommand) last(a *cli.App, cl *client.Client) (api.Workflow, error) {
	f := client.Filter{Workspace: c.Workspace, State: string(workflow.Succeeded), Limit: 100}
	for searched := 0; searched < maxSearched; {
		page, err := cl.Workflows(a.Ctx, f)
		if err != nil {
			return api.Workflow{}, err
		}
		for _, w := range page.Items {
			if workflow.ChangesState(w.Type, w.Operation) {
				return cl.Workflow(a.Ctx, w.ID)
			}
		}
		if searched, f.Cursor = searched+len(page.Items), page.Next; f.Cursor == "" {
			break
		}
	}
	return api.Workflow{}, cli.Refused(fmt.Errorf("no run that succeeded has changed the state of workspace %s yet: dayfly run %s --op update", c.Workspace, c.Workspace))
}

// one prints the output that is named.
func (c *OutputCommand) one(a *cli.App, id string, outputs []api.Output) error {
	var names []string
	for _, o := range outputs {
		names = append(names, o.Name)
		value, isText := o.Value.(string)
		switch {
		case o.Name != c.Name:
		case o.Sensitive:
			return cli.Refused(fmt.Errorf("output %s is sensitive: its value never leaves the runner, and only its name is kept", c.Name))
		case a.JSON():
			return a.Encode(o.Value)
		case c.Raw && isText:
			_, err := a.Stdout.Write([]byte(value))
			return err
		default:
			return a.Print("%s", term.Clean(runtext.Output(o)))
		}
	}
	return cli.Refused(fmt.Errorf("%s reported no output %s; its outputs: %s", id, c.Name, cmp.Or(text.Some(names, 10), "none")))
}
