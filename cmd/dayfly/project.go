package main

import (
	"errors"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

type projectCommands struct {
	List   projectList   `cmd:"" help:"List projects as a tree."`
	Show   projectShow   `cmd:"" aliases:"get" help:"Show a project."`
	Create projectCreate `cmd:"" help:"Create a project."`
	Update projectUpdate `cmd:"" help:"Change the settings that you name."`
	Delete projectDelete `cmd:"" help:"Delete a project that nothing belongs to."`
}

type projectList struct{}

// Run prints the tree.
func (c *projectList) Run(a *app, cl *client.Client) error {
	all, _, err := gather(a, everything, cl.Projects)
	if err != nil {
		return err
	}
	if a.json() {
		return a.encode(all)
	}
	t := term.NewTable("PROJECT", "POOL", "DESCRIPTION")
	for _, p := range tree(all) {
		t.Row(p.Name, dash(p.Pool), dash(p.Description))
	}
	return t.Write(a.stdout, a.style(), "no projects")
}

// tree puts projects below their parents, with names that are set in by their depth. One whose parent is not in the
// list begins a tree of its own.
func tree(all []api.Project) (out []api.Project) {
	known, below := map[string]bool{}, map[string][]api.Project{}
	for _, p := range all {
		known[p.Name] = true
	}
	for _, p := range all {
		parent := p.Parent
		if !known[parent] {
			parent = ""
		}
		below[parent] = append(below[parent], p)
	}
	var add func(parent, indent string)
	add = func(parent, indent string) {
		for _, p := range below[parent] {
			name := p.Name
			p.Name = indent + name
			out = append(out, p)
			add(name, indent+"  ")
		}
	}
	add("", "")
	return out
}

type projectShow struct {
	Name string `arg:"" help:"The project."`
}

// Run prints the project.
func (c *projectShow) Run(a *app, cl *client.Client) error {
	p, err := cl.Project(a.ctx, c.Name)
	if err != nil {
		return err
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 13)
	line("project", p.Name)
	line("parent", p.Parent)
	line("description", p.Description)
	line("pool", p.Pool)
	if p.Approval != nil {
		line("approval", p.Approval.Text())
	}
	return a.shown(kind.Project, asProject(p), p, "%s", strings.TrimSuffix(b.String(), "\n"))
}

// projectSettings are the flags that creating and changing a project share.
type projectSettings struct {
	Parent      *string `help:"The project above it; default global. A project that is moved takes those below it along."`
	Description *string `help:"What the project is."`
	Pool        *string `help:"Pool of its workspaces, and of those in the projects below it, that name none; empty takes that of the project above it."`
	approvalFlags
}

func (p projectSettings) settings() (api.ProjectSettings, error) {
	approval, err := p.approval()
	return api.ProjectSettings{Parent: p.Parent, Description: p.Description, Pool: p.Pool, Approval: approval}, err
}

type projectCreate struct {
	Name string `arg:"" help:"Name of the project; it never changes."`
	projectSettings
}

// Run creates the project.
func (c *projectCreate) Run(a *app, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	in.Name = &c.Name
	p, err := cl.CreateProject(a.ctx, in)
	if err != nil {
		return err
	}
	return a.done(p, "project %s is created below %s", p.Name, p.Parent)
}

type projectUpdate struct {
	Name string `arg:"" help:"The project; global is the root."`
	projectSettings
}

// Run changes the project.
func (c *projectUpdate) Run(a *app, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	if in == (api.ProjectSettings{}) {
		return usage(errors.New("name what to change: --parent, --description, --pool or --approval"))
	}
	p, err := cl.UpdateProject(a.ctx, c.Name, in)
	if err != nil {
		return err
	}
	return a.done(p, "project %s is changed", p.Name)
}

type projectDelete struct {
	Name string `arg:"" help:"The project."`
	confirmed
}

// Run deletes the project.
func (c *projectDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "project", c.Name, "; nothing may belong to it", cl.DeleteProject)
}
