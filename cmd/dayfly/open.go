package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type openCommand struct {
	Thing string `arg:"" optional:"" help:"Id of a workflow, or name of a workspace or pool; without it, the first page."`
	Print bool   `help:"Print the address, and open no browser."`
}

// Run prints the address of the thing's page, and opens it in a browser where there is one.
func (c *openCommand) Run(a *app, cl *client.Client) error {
	path, err := c.path(a.ctx, cl)
	if err != nil {
		return err
	}
	address := a.pageAddress(path)
	if address == "" {
		return refused(errors.New("the control plane serves no web pages, or does not answer"))
	}
	if err := a.print("%s", address); err != nil || c.Print {
		return err
	}
	if err := a.browse(context.WithoutCancel(a.ctx), address); err != nil { // it outlives the command
		a.say("no browser was opened: %s", err)
	}
	return nil
}

// path is that of the page of the thing.
func (c *openCommand) path(ctx context.Context, cl *client.Client) (string, error) {
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
		err = refused(fmt.Errorf("there is no workspace or pool %s, and the id of a workflow begins with wf_", c.Thing))
	}
	return "/pools#pool-" + url.PathEscape(p.Name), err
}

// pageWait bounds the question whether there are pages.
const pageWait = time.Second

// pageAddress is the address of a page of the control plane in use; empty, if that serves none.
func (a *app) pageAddress(path string) string {
	to, err := credentials.Find(a.getenv)
	if err != nil || !servesPages(a.ctx, to.URL) {
		return ""
	}
	return to.URL + path
}

// servesPages reports whether the control plane at an address serves pages.
func servesPages(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/", nil)
	if err != nil {
		return false
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := c.Do(r) // without the token: the pages have a sign-in of their own
	if err != nil {
		return false
	}
	defer answer.Body.Close() //nolint:errcheck // it is not read
	return answer.Header.Get("Content-Security-Policy") != "" && answer.StatusCode < http.StatusBadRequest
}

// runPage is the line that a result for people ends with; empty elsewhere.
func (a *app) runPage(id string) string {
	if a.style().Height == 0 {
		return ""
	}
	if address := a.pageAddress("/runs/" + id); address != "" {
		return "page  " + address
	}
	return ""
}
