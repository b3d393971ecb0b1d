package runs

import (
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// StateCommands work on a workspace's state. Each is a job, because state never passes through the control plane.
type StateCommands struct {
	List   stateList   `cmd:"" help:"List the resources in a workspace's state."`
	Unlock stateUnlock `cmd:"" help:"Release the lock that a lost run left on a workspace's state."`
	Pull   statePull   `cmd:"" help:"Copy a workspace's state to a file."`
	Push   statePush   `cmd:"" help:"Make a file a workspace's state, on this machine's agent or by the bucket of a pool on AWS."`
}

type stateList struct {
	Workspace string `arg:"" help:"The workspace."`
}

// Run submits the job, waits for it and prints the addresses that it found. Messages about the job go to standard
// error.
func (c *stateList) Run(a *cli.App, cl *client.Client) error {
	w, err := cl.Submit(a.Ctx, api.Submit{Workspace: c.Workspace, Type: workflow.Deployment, Operation: workflow.StateList})
	if err != nil {
		return err
	}
	last, live, err := watch(a, cl, w.ID, logView{none: true})
	if err != nil {
		return err
	}
	if last.State != workflow.Succeeded {
		for _, line := range summary(live.Style(), last) {
			live.Line(line)
		}
		return ending(a, last)
	}

	addresses, err := c.addresses(a, cl, last)
	if err != nil {
		return err
	}
	for _, s := range last.Steps {
		if s.Name == api.StepState && len(addresses) == 0 {
			a.Say("no resources: %s", term.Clean(s.Text))
		}
	}
	if a.JSON() {
		return a.Encode(addresses)
	}
	for _, address := range addresses {
		if err := a.Print("%s", term.Clean(address)); err != nil {
			return err
		}
	}
	return nil
}

// addresses are the lines that the engine printed in the step that lists the state. Lines of the runner go to
// standard error: they may say that lines are missing.
func (c *stateList) addresses(a *cli.App, cl *client.Client, w api.Workflow) ([]string, error) {
	found, open := []string{}, false
	for offset := int64(0); ; {
		page, err := cl.Logs(a.Ctx, w.ID, w.Attempt, offset, logPage, 0)
		if err != nil || len(page.Lines) == 0 {
			return found, err
		}
		for _, l := range page.Lines {
			switch listed := l.Step == api.StepState; {
			case listed && open:
				found[len(found)-1] += l.Text
				open = l.More
			case listed && !l.IsRunner():
				found = append(found, l.Text)
				open = l.More
			case (listed || l.Step == "") && strings.HasPrefix(l.Text, api.RunnerLine):
				a.Say("%s", term.Clean(l.Text))
			}
		}
		offset = page.Next
	}
}

type stateUnlock struct {
	Workspace string `arg:"" help:"The workspace."`
	ID        string `arg:"" help:"The id of the lock, as the run that left it reports it."`
	cli.Confirmed
}

// Run submits the job and follows it.
func (c *stateUnlock) Run(a *cli.App, cl *client.Client) error {
	if err := c.Confirm(a, "this releases lock %s, which keeps two engines from writing the state of workspace %s at once: make sure that no engine uses it", c.ID, c.Workspace); err != nil {
		return err
	}
	return onState(a, cl, api.Submit{Workspace: c.Workspace, Operation: workflow.StateUnlock, LockID: c.ID})
}

func onState(a *cli.App, cl *client.Client, in api.Submit) error {
	in.Type = workflow.Deployment
	w, err := cl.Submit(a.Ctx, in)
	if err != nil {
		return err
	}
	return submitted(a, cl, w, in.Operation, true)
}
