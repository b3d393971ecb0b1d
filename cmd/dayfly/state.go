package main

import (
	"fmt"

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

// Run submits the job and follows it.
func (c *stateList) Run(a *app, cl *client.Client) error {
	return a.onState(cl, api.Submit{Workspace: c.Workspace, Operation: workflow.StateList})
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
