package setup

import (
	"errors"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
)

// ProjectCommands are the commands of dayfly project.
type ProjectCommands struct {
	List   projectList   `cmd:"" help:"List projects as a tree."`
	Show   projectShow   `cmd:"" aliases:"get" help:"Show a project."`
	Create projectCreate `cmd:"" help:"Create a project."`
	Update projectUpdate `cmd:"" help:"Change the settings that you name."`
	Delete projectDelete `cmd:"" help:"Delete a project that nothing belongs to."`
}

type projectList struct{}

// Run prints the tree.
func (c *projectList) Run(a *cli.App, cl *client.Client) error {
	all, _, err := cli.Gather(a, cli.Everything, cl.Projects)
	if err != nil {
		return err
	}
	if a.JSON() {
		return a.Encode(all)
	}
	t := term.NewTable("PROJECT", "POOL", "DESCRIPTION")
	for _, p := range tree(all) {
		t.Row(p.Name, cli.Dash(p.Pool), cli.Dash(p.Description))
	}
	return t.Write(a.Stdout, a.Style(), "no projects")
}

// tree puts projects below their parents, with names that are indented by their depth. One whose parent is not in the
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
func (c *projectShow) Run(a *cli.App, cl *client.Client) error {
	p, err := cl.Project(a.Ctx, c.Name)
	if err != nil {
		return err
	}
	var b strings.Builder
	line := cli.Lines(&b, term.Style{}, "", 13)
	line("project", p.Name)
	line("parent", p.Parent)
	line("description", p.Description)
	line("pool", p.Pool)
	if p.Approval != nil {
		line("approval", p.Approval.Text())
	}
	return shown(a, kind.Project, asProject(p), p, "%s", strings.TrimSuffix(b.String(), "\n"))
}

// projectSettings are the flags that creating and changing a project share.
type projectSettings struct {
	Parent      *string `help:"The project above it; default global. A project that is moved takes those below it along."`
	Description *string `help:"Description of the project."`
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
func (c *projectCreate) Run(a *cli.App, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	in.Name = &c.Name
	p, err := cl.CreateProject(a.Ctx, in)
	if err != nil {
		return err
	}
	return a.Done(p, "project %s is created below %s", p.Name, p.Parent)
}

type projectUpdate struct {
	Name string `arg:"" help:"The project; global is the root."`
	projectSettings
}

// Run changes the project.
func (c *projectUpdate) Run(a *cli.App, cl *client.Client) error {
	in, err := c.settings()
	if err != nil {
		return err
	}
	if in == (api.ProjectSettings{}) {
		return cli.Usage(errors.New("name what to change: --parent, --description, --pool or --approval"))
	}
	p, err := cl.UpdateProject(a.Ctx, c.Name, in)
	if err != nil {
		return err
	}
	return a.Done(p, "project %s is changed", p.Name)
}

type projectDelete struct {
	Name string `arg:"" help:"The project."`
	cli.Confirmed
}

// Run deletes the project.
func (c *projectDelete) Run(a *cli.App, cl *client.Client) error {
	return c.Delete(a, "project", c.Name, "; nothing may belong to it", cl.DeleteProject)
}
