package setup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/runtext"
)

// deletedWorkspaces lists where the states of deleted workspaces are.
func deletedWorkspaces(a *cli.App, cl *client.Client) error {
	return cli.List(a, cl.DeletedWorkspaces, "no deleted workspaces",
		[]string{"WORKSPACE", "ID", "STATE", "FOUND", "DELETED"}, func(d api.DeletedWorkspace) []string {
			found := "-"
			if d.Found != nil && d.Found.Lineage != "" {
				found = term.Clean(runtext.WhichState(d.Found.Lineage, d.Found.Serial))
			}
			return []string{d.Name, d.ID, placeOf(d.State, d.ID), found, cli.Ago(&d.DeletedAt) + " by " + term.Clean(d.DeletedBy)}
		})
}

// WorkspaceCommands are the commands of dayfly workspace.
type WorkspaceCommands struct {
	Discover workspaceDiscover `cmd:"" help:"Find the root modules of a tree, and write a workspace file for each."`
	List     workspaceList     `cmd:"" help:"List workspaces."`
	Show     workspaceShow     `cmd:"" aliases:"get" help:"Show a workspace."`
	Delete   workspaceDelete   `cmd:"" help:"Delete a workspace; the infrastructure that it made stays."`
}

type workspaceList struct {
	Deleted bool `help:"List deleted workspaces, and where their states are."`
}

// Run prints the list.
func (c *workspaceList) Run(a *cli.App, cl *client.Client) error {
	if c.Deleted {
		return deletedWorkspaces(a, cl)
	}
	return cli.List(a, cl.Workspaces, "no workspaces: register one with dayfly apply -f FILE, or run a directory",
		[]string{"WORKSPACE", "PROJECT", "ENGINE", "POOL", "SOURCE"}, func(w api.Workspace) []string {
			pool := w.Pool
			if len(w.Labels) > 0 {
				pool = "with " + strings.Join(w.Labels, ",")
			}
			return []string{w.Name, w.Project, w.Engine, cli.Dash(pool), cli.Dash(workspacefile.Origin(w.Source))}
		})
}

type workspaceShow struct {
	Name string `arg:"" help:"The workspace."`
}

// Run prints the workspace.
func (c *workspaceShow) Run(a *cli.App, cl *client.Client) error {
	w, err := cl.Workspace(a.Ctx, c.Name)
	if err != nil {
		return err
	}
	var b strings.Builder
	line := cli.Lines(&b, term.Style{}, "", 16)
	line("workspace", w.Name)
	line("id", w.ID)
	line("project", w.Project)
	line("stack", w.Stack)
	line("namespace", w.Namespace)
	line("description", w.Description)
	line("engine", strings.TrimSpace(w.Engine+" "+w.EngineVersion))
	line("source", workspacefile.Origin(w.Source))
	line("path", w.Source.Path)
	if g := w.Source.Git; g != nil {
		line("ref", g.Ref)
		line("version", g.Version)
		line("path", g.Path)
	}
	if x := w.Source.Archive; x != nil {
		line("sha256", x.SHA256)
		line("path", x.Path)
	}

	line("state", statePlace(w))
	line("pool", w.Pool)
	line("labels", strings.Join(w.Labels, ", "))
	line("runner", w.Runner)
	line("role", w.Role)
	line("preview role", w.PreviewRole)
	line("size", w.Size)
	line("max runtime", w.MaxRuntime)
	for _, step := range slices.Sorted(maps.Keys(w.Flags)) {
		line("flags", step+": "+strings.Join(w.Flags[step], " "))
	}
	line("var files", strings.Join(w.VarFiles, ", "))
	if w.Install != nil {
		line("install", fmt.Sprint(*w.Install))
	}

	var around api.Activity
	if !a.JSON() { // the result for programs has the settings alone
		if around, err = cl.WorkspaceActivity(a.Ctx, c.Name); err != nil {
			return err
		}
	}
	for _, d := range around.WaitsFor {
		line("waits for", dependencyText(d.On, d.Outputs))
	}
	for _, d := range around.Feeds {
		line("feeds", dependencyText(d.Workspace, d.Outputs))
	}
	if at := around.OutputsAt; at != nil {
		line("outputs", "stored "+at.Local().Format("2006-01-02 15:04:05"))
	}

	if c := around.Checks; c != nil {
		line("checks", fmt.Sprintf("%d failing, see dayfly workflow show %s", c.Failing, c.Workflow))
	}
	if x := w.Applied; x != nil {
		line("applied", x.Commit+" by "+x.Workflow)
	}
	if w.Approval != nil {
		line("approval", w.Approval.Text())
	}
	for _, s := range w.Secrets {
		line("secret", s.Env+s.File+" from "+s.Ref+alsoForPulls(s.Preview))
	}
	for _, m := range w.Modules {
		line("modules of", m.Host+" with "+m.TokenRef+m.SSHKeyRef+alsoForPulls(m.Preview))
	}
	return shown(a, kind.Workspace, workspacefile.Of(w), w, "%s", strings.TrimSuffix(b.String(), "\n"))
}

// dependencyText names the workspace on the other side of a dependency, with the outputs that pass between the two.
func dependencyText(name string, outputs []string) string {
	if len(outputs) == 0 {
		return name
	}
	return name + ": " + strings.Join(outputs, ", ")
}

func alsoForPulls(preview bool) string {
	if preview {
		return ", also for pull requests"
	}
	return ""
}

// statePlace says where a workspace's state is, as far as its settings say.
func statePlace(w api.Workspace) string {
	switch {
	case w.State != nil && w.State.Kind != "":
		return strings.TrimSpace(w.State.Kind + " " + w.State.Bucket)
	case api.EngineOf(w.Engine).OwnState != "":
		return "" // only the engine knows
	}
	return "as the code declares, else the control plane's default"
}

type workspaceDelete struct {
	Name string `arg:"" help:"The workspace."`
	cli.Confirmed
}

// Run deletes the workspace.
func (c *workspaceDelete) Run(a *cli.App, cl *client.Client) error {
	return c.Delete(a, "workspace", c.Name, " with its settings, and leaves the infrastructure that it made", cl.DeleteWorkspace)
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
