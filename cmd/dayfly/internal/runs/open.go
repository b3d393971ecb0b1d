package runs

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// OpenCommand is dayfly open.
type OpenCommand struct {
	Thing string `arg:"" optional:"" help:"Id of a workflow, or name of a workspace or pool; without it, the first page."`
	Print bool   `help:"Print the address, and open no browser."`
}

// Run prints the address of the thing's page, and opens it in a browser where there is one.
func (c *OpenCommand) Run(a *cli.App, cl *client.Client) error {
	path, err := c.path(a.Ctx, cl)
	if err != nil {
		return err
	}
	address := a.PageAddress(path)
	if address == "" {
		return cli.Refused(errors.New("the control plane serves no web pages, or does not answer"))
	}
	if err := a.Print("%s", address); err != nil || c.Print {
		return err
	}
	if err := a.Browse(context.WithoutCancel(a.Ctx), address); err != nil { // it outlives the command
		a.Say("no browser was opened: %s", err)
	}
	return nil
}

// path is that of the page of the thing.
func (c *OpenCommand) path(ctx context.Context, cl *client.Client) (string, error) {
	if c.Thing == "" {
		return "/", nil
	}
	if strings.HasPrefix(c.Thing, "wf_") {
		w, err := cl.Workflow(ctx, c.Thing)
		return "/runs/" + url.PathEscape(w.ID), err
	}
	w, err := cl.Workspace(ctx, c.Thing)
	if !errors.Is(err, workflow.ErrNotFound) {
		return "/workspaces/" + url.PathEscape(w.Name), err
	}
	p, err := cl.Pool(ctx, c.Thing)
	if errors.Is(err, workflow.ErrNotFound) {
		err = workflow.Refuse(workflow.ErrNotFound, "", "there is no workspace or pool %s, and the id of a workflow begins with wf_", c.Thing)
	}
	return "/pools#pool-" + url.PathEscape(p.Name), err
}
