// Package runs has the commands that submit and follow runs, decide on their plans, and read their logs, outputs,
// artifacts and states.
package runs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/discover"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// RunCommand is dayfly run.
type RunCommand struct {
	Target   string        `arg:"" name:"workspace|dir" help:"Name of a workspace, or path of a directory or workspace file. A path contains a slash, or is a dot."`
	Op       string        `enum:"preview,update,refresh,destroy,scan,evaluate" default:"preview" help:"Operation: preview, update, refresh, destroy, scan for drift, or evaluate policies over the state."`
	Follow   bool          `short:"f" help:"Follow the log until the workflow ends; the exit code reports how it ended."`
	Name     string        `help:"Name of the workspace for a directory; default the name of the directory."`
	Message  string        `short:"m" help:"A note that is kept with the workflow."`
	Priority *int          `help:"From -100 to 100, higher first; default the workspace's default_priority."`
	Timeout  time.Duration `help:"How long the run may take from its start, such as 20m: at most the workspace's max_runtime, or 24h where it names none; default the workspace's."`
	cli.Confirmed

	Downstream bool `help:"With --op update or destroy: also run all workspaces that depend on it, in order: a tree. With --follow the exit code reports how it ended."`
	Every      bool `help:"With --downstream: also run those whose inputs did not change."`

	DetailedExitcode bool `help:"With --follow: exit with 2 if the run succeeded and there are changes, and with 1 where the control plane refuses."`

	TakeOver     bool   `help:"Copy the state that exists elsewhere (beside the code, in the backend that it declares, of a deleted workspace of this name) into the workspace, if it has no state yet."`
	TakeOverFrom string `placeholder:"NAME" help:"Which state to take over if there are several, such as a workspace below terraform.tfstate.d; implies --take-over."`
	BeginAnew    bool   `help:"Use the workspace's own state, even if another state exists elsewhere."`

	runOptions
}

// Run submits the workflow.
func (c *RunCommand) Run(a *cli.App, cl *client.Client) error {
	switch {
	case c.Downstream:
		return c.downstream(a, cl)
	case c.Every:
		return cli.Usage(errors.New("--every: goes with --downstream"))
	case c.DetailedExitcode && !c.Follow:
		return cli.Usage(errors.New("--detailed-exitcode: goes with --follow: the changes of a run are known when it has ended"))
	}
	a.Detailed = c.DetailedExitcode
	return cli.Detailed(c.DetailedExitcode, c.submit(a, cl))
}

func (c *RunCommand) submit(a *cli.App, cl *client.Client) error {
	in, err := c.request(a, cl)
	if err != nil {
		return err
	}
	if err := c.ConfirmRun(a, in.Operation, in.Workspace); err != nil {
		return err
	}

	w, err := cl.Submit(a.Ctx, in)
	if refusal, ok := errors.AsType[*workflow.Error](err); ok && errors.Is(err, workflow.ErrNotFound) && refusal.Field == "workspace" {
		if _, err := os.Stat(c.Target); err == nil {
			return workflow.Refuse(workflow.ErrNotFound, "workspace", "there is no workspace %s; to run the directory of that name here, write ./%s", c.Target, c.Target)
		}
		return workflow.Refuse(workflow.ErrNotFound, "workspace", "there is no workspace %s; dayfly workspace list shows all", in.Workspace)
	}
	if err != nil {
		return err
	}
	if r := in.Register; r != nil {
		a.Say("%s is workspace %s (%s)", c.Target, r.Name, r.Engine)
	}
	return submitted(a, cl, w, in.Operation, c.Follow)
}

// request is the submission that the arguments ask for.
func (c *RunCommand) request(a *cli.App, cl *client.Client) (in api.Submit, err error) {
	in = api.Submit{
		Workspace: c.Target, Priority: c.Priority, Message: c.Message,
		TakeOver: c.TakeOver || c.TakeOverFrom != "", TakeOverFrom: c.TakeOverFrom, BeginAnew: c.BeginAnew,
	}
	if c.Timeout < 0 {
		return in, cli.Usage(fmt.Errorf("--timeout: want a duration above 0, not %s", c.Timeout))
	}
	if c.Timeout > 0 {
		in.MaxRuntime = c.Timeout.String()
	}
	if in.Options, err = c.options(); err != nil {
		return in, err
	}
	if isPath(c.Target) {
		if in.Workspace, in.Register, err = directory(a, cl, c.Target, c.Name); err != nil {
			return in, err
		}
	} else if c.Name != "" {
		return in, cli.Usage(errors.New("--name: is for directories; a workspace already has a name"))
	}
	switch c.Op {
	case "scan":
		in.Type = workflow.InsightsScan
	case "evaluate":
		in.Type = workflow.PolicyEvaluation
	default:
		in.Type, in.Operation = workflow.Deployment, workflow.Operation(c.Op)
	}
	return in, nil
}

// submitted says that a workflow was submitted, or follows it. One that became a preview is followed up to its plan.
func submitted(a *cli.App, cl *client.Client, w api.Workflow, asked workflow.Operation, toEnd bool) error {
	if w.For != "" && asked != w.Operation {
		return applied(a, cl, w)
	}
	if toEnd {
		return followRun(a, cl, w.ID, logView{})
	}
	if a.JSON() {
		return a.Encode(w)
	}
	if err := a.Print("%s", w.ID); err != nil {
		return err
	}
	a.Say("submitted %s; follow it with dayfly workflow logs -f %s", runtext.Title(w), w.ID)
	if page := a.RunPage(w.ID); page != "" {
		a.Say("%s", page)
	}
	return nil
}

func isPath(target string) bool {
	return target == "." || target == ".." || strings.ContainsRune(target, filepath.Separator)
}

// directory returns the name of the workspace that a directory stands for, and the settings that must be registered
// first; nil means none.
func directory(a *cli.App, cl *client.Client, path, name string) (workspace string, register *api.Workspace, err error) {
	w, described, err := describe(path, name, a.Getenv)
	if err != nil {
		return "", nil, cli.Usage(err)
	}
	uses := discover.Widen(&w)
	old, err := cl.Workspace(a.Ctx, w.Name)
	switch {
	case errors.Is(err, workflow.ErrNotFound):
	case err != nil:
		return "", nil, err
	case old.Source.RootModule() != w.Source.RootModule():
		// The same name for another directory would run this code over that one's state.
		return "", nil, cli.Refused(fmt.Errorf("workspace %s is already used for %s: give this directory another name with --name", w.Name, workspacefile.Origin(old.Source)))
	case !described && strings.HasPrefix(w.Source.Directory+"/", strings.TrimSuffix(old.Source.Directory, "/")+"/"):
		return old.Name, nil, nil // its settings come from elsewhere: leave them
	case !described: // but its code has come to call modules that they leave out
		old.Source = w.Source
		w = workspacefile.Of(old)
	}
	if uses != "" {
		a.Say("%s uses %s: %s is copied, and it runs in %s", path, uses, w.Source.Directory, w.Source.Path)
	}
	return w.Name, &w, nil
}

// describe returns the workspace of a directory, as its workspace file describes it, or else by the files in it. The
// path of a workspace file means its directory. described reports whether there was such a file.
func describe(path, name string, getenv func(string) string) (w api.Workspace, described bool, err error) {
	dir, err := filepath.Abs(path)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return w, false, fmt.Errorf("there is no directory or workspace file %s", path)
	}
	if err != nil {
		return w, false, err
	}

	file := filepath.Join(dir, workspacefile.Name)
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return w, false, err
	case !info.IsDir() && !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(dir)):
		return w, false, fmt.Errorf("%s is neither a directory nor a workspace file: run the directory that it is in", path)
	case !info.IsDir():
		dir, file = filepath.Dir(dir), dir
	}

	list, err := workspacefile.Read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		engine, err := engineOf(dir, getenv)
		if err != nil {
			return w, false, err
		}
		w = api.Workspace{RunSettings: api.RunSettings{Engine: engine, Source: api.Source{Directory: dir}}}
	case err != nil:
		return w, false, err
	case len(list) > 1:
		return w, false, fmt.Errorf("%s describes %d workspaces: register them with dayfly apply -f %s and run one by its name", file, len(list), file)
	default:
		w, described = list[0], true
	}

	if name != "" {
		w.Name = name
	}
	if w.Name == "" {
		w.Name = workflow.NoID(filepath.Base(dir))
	}
	if err := workflow.CheckWorkspaceName(w.Name); err != nil {
		return w, false, fmt.Errorf("%w: give one with --name", err)
	}
	return w, described, nil
}

// engineOf chooses the engine of a directory by its files and, if both tofu and terraform could run them, by which of
// the two is installed.
func engineOf(dir string, getenv func(string) string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
			return !e.IsDir() && slices.ContainsFunc(names, func(s string) bool { return e.Name() == s || s[0] == '.' && strings.HasSuffix(e.Name(), s) })
		})
	}
	engine := ""
	for _, e := range slices.Backward(api.Engines()) {
		if engine == "" && has(e.Files...) {
			engine = e.Name
		}
	}
	switch engine {
	case "":
		if found, err := discover.Tree(dir, discover.Options{}); err == nil && len(found.Workspaces) > 0 {
			return "", fmt.Errorf("%s has no code of its own, and %s below it, such as %s: dayfly workspace discover %s finds them all", dir, text.Count(len(found.Workspaces), "root module"), found.Workspaces[0].Dir, text.ShellWord(dir))
		}
		return "", fmt.Errorf("%s has neither a %s nor files of an engine, such as main.tf, terragrunt.hcl or Pulumi.yaml: there is nothing to run", dir, workspacefile.Name)
	case api.EngineTerraform:
	default:
		return engine, nil
	}
	if lock, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl")); err == nil && bytes.Contains(lock, []byte("registry.opentofu.org")) {
		return api.EngineTofu, nil
	}
	if !cli.Installed("terraform", getenv) && cli.Installed("tofu", getenv) {
		return api.EngineTofu, nil
	}
	return api.EngineTerraform, nil
}
