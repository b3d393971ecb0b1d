package runs

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

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
	ws, err := cl.Workspace(a.Ctx, c.Workspace)
	if err != nil {
		return err
	}
	last, err := c.last(a, cl)
	if err != nil {
		return err
	}
	result := cmp.Or(last.Result, &api.Result{})
	if c.Name != "" {
		return c.one(a, ws, last.ID, *result)
	}
	switch none := len(result.Outputs) == 0; {
	case len(result.OmittedOutputs) > 0:
		a.Say("these outputs did not fit into the result of %s: %s; to read one: %s", last.ID, term.Clean(strings.Join(result.OmittedOutputs, ", ")), howToRead(ws, ""))
	case none && result.Truncated:
		a.Say("the result of %s was cut and has no outputs; to read one: %s", last.ID, howToRead(ws, ""))
	case none && !a.JSON():
		a.Say("%s, %s, reported no outputs", runtext.Title(last), last.ID)
	}
	if a.JSON() {
		return a.Encode(append([]api.Output{}, result.Outputs...))
	}
	for _, o := range result.Outputs {
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
func (c *OutputCommand) one(a *cli.App, ws api.Workspace, id string, result api.Result) error {
	var names []string
	for _, o := range result.Outputs {
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
	if slices.Contains(result.OmittedOutputs, c.Name) {
		return cli.Refused(fmt.Errorf("output %s did not fit into the result of %s; to read it: %s", c.Name, id, howToRead(ws, c.Name)))
	}
	also := ""
	if result.Truncated { // also by a runner that names none that it leaves out, or more than can be named
		also = "; not all of them may have fitted into its result; to read one: " + howToRead(ws, "")
	}
	return cli.Refused(fmt.Errorf("%s reported no output %s; its outputs: %s%s", id, c.Name, cmp.Or(text.Some(names, 10), "none"), also))
}

// howToRead says how to read the value of an output that did not fit into a result; without a name, of any.
func howToRead(ws api.Workspace, name string) string {
	word := "NAME"
	switch {
	case name != "" && ws.Engine == api.EngineTerragrunt:
		word = text.ShellWord(path.Base(name)) // before it is the path of the unit
	case name != "":
		word = text.ShellWord(name)
	}
	switch ws.Engine {
	case api.EngineTerraform, api.EngineTofu: // beside code that declares a backend, -state does not count
		return fmt.Sprintf("in a directory without code, dayfly state pull %s, then %s output -state=%s.tfstate %s", ws.Name, ws.Engine, ws.Name, word)
	case api.EngineTerragrunt:
		return fmt.Sprintf("in the directory of its unit, terragrunt output %s", word)
	case api.EnginePulumi:
		return fmt.Sprintf("with the backend and the stack of the workspace, pulumi stack output %s", word)
	}
	return "have the command leave it as a file in DAYFLY_ARTIFACTS, for dayfly artifact get"
}
