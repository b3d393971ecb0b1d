package main

import (
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// stateCommands work on a workspace's state. Each is a job, because state never passes through the control plane.
type stateCommands struct {
	List   stateList   `cmd:"" help:"List the resources in a workspace's state."`
	Unlock stateUnlock `cmd:"" help:"Release the lock that a lost run left on a workspace's state."`
	Pull   statePull   `cmd:"" help:"Copy a workspace's state to a file."`
	Push   statePush   `cmd:"" help:"Make a file a workspace's state, on this machine's agent or by the bucket of a pool on AWS."`
}

type stateList struct {
	Workspace string `arg:"" help:"The workspace."`
}

// Run submits the job, waits for it and prints the addresses that it found. All that is said about the job goes to standard
// error.
func (c *stateList) Run(a *app, cl *client.Client) error {
	w, err := cl.Submit(a.ctx, api.Submit{Workspace: c.Workspace, Type: workflow.Deployment, Operation: workflow.StateList})
	if err != nil {
		return err
	}
	last, live, err := a.watch(cl, w.ID, logView{none: true})
	if err != nil {
		return err
	}
	if last.State != workflow.Succeeded {
		for _, line := range summary(live.Style(), last) {
			live.Line(line)
		}
		return a.ending(last)
	}
	addresses, err := c.addresses(a, cl, last)
	if err != nil {
		return err
	}
	for _, s := range last.Steps {
		if s.Name == api.StepState && len(addresses) == 0 {
			a.say("no resources: %s", term.Clean(s.Text))
		}
	}
	if a.json() {
		return a.encode(addresses)
	}
	for _, address := range addresses {
		if err := a.print("%s", term.Clean(address)); err != nil {
			return err
		}
	}
	return nil
}

// addresses are the lines that the engine printed in the step that lists the state. What the runner adds to them goes to
// standard error: lines may be missing.
func (c *stateList) addresses(a *app, cl *client.Client, w api.Workflow) ([]string, error) {
	found, open := []string{}, false
	for offset := int64(0); ; {
		page, err := cl.Logs(a.ctx, w.ID, w.Attempt, offset, logPage, 0)
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
				a.say("%s", term.Clean(l.Text))
			}
		}
		offset = page.Next
	}
}

type stateUnlock struct {
	Workspace string `arg:"" help:"The workspace."`
	ID        string `arg:"" help:"The id of the lock, as the run that left it reports it."`
	confirmed
}

// Run submits the job and follows it.
func (c *stateUnlock) Run(a *app, cl *client.Client) error {
	if err := c.confirm(a, "this releases lock %s, which keeps two engines from writing the state of workspace %s at once: make sure that no engine uses it", c.ID, c.Workspace); err != nil {
		return err
	}
	return a.onState(cl, api.Submit{Workspace: c.Workspace, Operation: workflow.StateUnlock, LockID: c.ID})
}

func (a *app) onState(cl *client.Client, in api.Submit) error {
	in.Type = workflow.Deployment
	w, err := cl.Submit(a.ctx, in)
	if err != nil {
		return err
	}
	return a.submitted(cl, w, in.Operation, true)
}

// deletedWorkspaces lists where the states of deleted workspaces are.
func (a *app) deletedWorkspaces(cl *client.Client) error {
	return list(a, cl.DeletedWorkspaces, "no deleted workspaces",
		[]string{"WORKSPACE", "ID", "STATE", "SERIAL", "LINEAGE", "DELETED"}, func(d api.DeletedWorkspace) []string {
			serial, lineage := "-", "-"
			if d.Found != nil && d.Found.Lineage != "" {
				serial, lineage = fmt.Sprint(d.Found.Serial), term.Clean(d.Found.Lineage)
			}
			return []string{d.Name, d.ID, placeOf(d.State, d.ID), serial, lineage, ago(&d.DeletedAt) + " by " + term.Clean(d.DeletedBy)}
		})
}

// placeOf says briefly where a state is.
func placeOf(s api.State, id string) string {
	switch s.Kind {
	case api.StateS3:
		return "s3 " + term.Clean(s.Bucket)
	case api.StateSource:
		return "as the code declares"
	case api.StateDirectory:
		if s.Key == "" {
			return "directory"
		}
		return "directory " + id
	}
	return "as the code declares, else " + id
}
