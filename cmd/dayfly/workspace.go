package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type workspaceCommands struct {
	Apply  workspaceApply  `cmd:"" help:"Create or change the workspaces that a file describes."`
	List   workspaceList   `cmd:"" help:"List workspaces."`
	Show   workspaceShow   `cmd:"" help:"Show a workspace."`
	Delete workspaceDelete `cmd:"" help:"Delete a workspace; the infrastructure that it made stays."`
}

type workspaceApply struct {
	File []string `short:"f" required:"" sep:"none" help:"A workspace file, or - for standard input; --- separates several workspaces. May be repeated."`
}

// read reads all files, before anything is registered.
func (c *workspaceApply) read(a *app) (list []api.Workspace, err error) {
	var errs []error
	from := map[string]string{}
	for i, file := range c.File {
		var more []api.Workspace
		var err error
		switch {
		case file != "-":
			more, err = workspacefile.Read(file)
		case slices.Contains(c.File[:i], "-"):
			err = errors.New("-f -: standard input can be read only once")
		default:
			more, err = workspacefile.ReadFrom(a.stdin, "standard input", ".")
		}
		for _, w := range more {
			if bad := workflow.CheckWorkspaceName(w.Name); bad != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", file, bad))
			}
			if first, twice := from[w.Name]; twice {
				err = errors.Join(err, fmt.Errorf("%s: workspace %s is described in %s too; describe it once", file, w.Name, first))
			}
			from[w.Name] = file
		}
		list, errs = append(list, more...), append(errs, err)
	}
	return list, errors.Join(errs...)
}

// applied is a workspace and what was done with it.
type applied struct {
	api.Workspace
	Outcome api.Outcome `json:"outcome"`
}

// Run registers the workspaces of the files, in order, up to the first that is refused.
func (c *workspaceApply) Run(a *app, cl *client.Client) error {
	list, err := c.read(a)
	if err != nil {
		return usage(err)
	}
	stored := make([]applied, 0, len(list))
	for _, w := range list {
		now, outcome, err := cl.PutWorkspace(a.ctx, w)
		if err != nil {
			return &exitError{code: exitCode(err), err: fmt.Errorf("workspace %s: %s", w.Name, sentence(err))}
		}
		stored = append(stored, applied{now, outcome})
		if !a.json() {
			if err := a.print("workspace %s is %s", now.Name, outcome); err != nil {
				return err
			}
		}
	}
	if a.json() {
		return a.encode(stored)
	}
	return nil
}

type workspaceList struct {
	Deleted bool `help:"List deleted workspaces, and where their states are."`
}

// Run prints the list.
func (c *workspaceList) Run(a *app, cl *client.Client) error {
	if c.Deleted {
		return a.deletedWorkspaces(cl)
	}
	return list(a, cl.Workspaces, "no workspaces: register one with dayfly workspace apply -f FILE, or run a directory",
		[]string{"WORKSPACE", "ENGINE", "POOL", "SOURCE"}, func(w api.Workspace) []string {
			return []string{w.Name, w.Engine, dash(w.Pool), dash(origin(w.Source))}
		})
}

type workspaceShow struct {
	Name string `arg:"" help:"The workspace."`
}

// Run prints the workspace.
func (c *workspaceShow) Run(a *app, cl *client.Client) error {
	w, err := cl.Workspace(a.ctx, c.Name)
	if err != nil {
		return err
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("workspace", w.Name)
	line("id", w.ID)
	line("description", w.Description)
	line("engine", strings.TrimSpace(w.Engine+" "+w.EngineVersion))
	line("source", origin(w.Source))
	if g := w.Source.Git; g != nil {
		line("ref", g.Ref)
		line("path", g.Path)
	}
	if x := w.Source.Archive; x != nil {
		line("sha256", x.SHA256)
		line("path", x.Path)
	}
	line("state", statePlace(w))
	line("pool", w.Pool)
	line("role", w.Role)
	line("size", w.Size)
	line("max runtime", w.MaxRuntime)
	for _, s := range w.Secrets {
		line("secret", s.Env+s.File+" from "+s.Ref)
	}
	return a.done(w, "%s", strings.TrimSuffix(b.String(), "\n"))
}

// statePlace says where a workspace's state is, as far as its settings say.
func statePlace(w api.Workspace) string {
	switch {
	case w.State != nil && w.State.Kind != "":
		return strings.TrimSpace(w.State.Kind + " " + w.State.Bucket)
	case w.Engine == api.EngineCommand:
		return "" // only its commands know
	}
	return "as the code declares, else the control plane's default"
}

type workspaceDelete struct {
	Name string `arg:"" help:"The workspace."`
	confirmed
}

// Run deletes the workspace.
func (c *workspaceDelete) Run(a *app, cl *client.Client) error {
	if err := c.confirm(a, "this deletes the settings of workspace %s, and leaves the infrastructure that it made", c.Name); err != nil {
		return err
	}
	if err := cl.DeleteWorkspace(a.ctx, c.Name); err != nil {
		return err
	}
	return a.done(map[string]string{"deleted": c.Name}, "workspace %s is deleted", c.Name)
}

// done says that something was done, as text or JSON.
func (a *app) done(v any, format string, args ...any) error {
	if a.json() {
		return a.encode(v)
	}
	return a.print(format, args...)
}
