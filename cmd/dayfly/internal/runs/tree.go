package runs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// TreeCommands are the commands of dayfly tree.
type TreeCommands struct {
	List   treeList   `cmd:"" help:"List trees, the newest first."`
	Show   treeShow   `cmd:"" help:"Show a tree, with where each of its workspaces stands."`
	Cancel treeCancel `cmd:"" help:"Cancel the workspaces of a tree that wait, and its runs that have not ended."`
}

type treeList struct {
	Limit int `short:"n" default:"20" help:"How many at most."`
	cli.Watching
}

// Run prints the list.
func (c *treeList) Run(a *cli.App, cl *client.Client) error {
	if err := cli.CheckLimit(c.Limit); err != nil {
		return err
	}
	style, now := a.Style(), time.Now()
	more, err := cli.ListUpTo(a, c.Limit, cl.Trees, "no trees: begin one with dayfly run WORKSPACE --downstream --op update",
		[]string{"TREE", "WORKSPACE", "OPERATION", "STATE", "DONE", "AGE", "BY"}, func(t api.Tree) []string {
			return []string{t.ID, t.Workspace, string(t.Operation), style.State(runtext.TreeState(t)), treeDone(t), text.Duration(now.Sub(t.SubmittedAt)), t.SubmittedBy}
		})
	if more {
		a.SayMore(c.Limit, "")
	}
	return err
}

// treeDone counts the nodes of a tree that have ended.
func treeDone(t api.Tree) string {
	done := 0
	for _, n := range t.Nodes {
		if n.State != api.TreeWaiting && n.State != api.TreeRunning {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, len(t.Nodes))
}

type treeShow struct {
	ID string `arg:"" help:"The tree."`
	cli.Watching
}

// Run prints the tree.
func (c *treeShow) Run(a *cli.App, cl *client.Client) error {
	t, err := cl.Tree(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	a.Over = t.EndedAt != nil
	if a.JSON() {
		return a.Encode(t)
	}
	var b strings.Builder
	style := a.Style()
	line := cli.Lines(&b, style, "", 12)
	line("tree", t.ID)
	line("operation", runtext.Tree(t))
	line("message", t.Message)
	line("state", runtext.TreeState(t))
	line("submitted", term.Time(t.SubmittedAt)+" by "+t.SubmittedBy)
	if t.EndedAt != nil {
		line("ended", term.Time(*t.EndedAt))
	}
	if hidden := t.Size - len(t.Nodes); hidden > 0 {
		line("hidden", text.Count(hidden, "workspace")+" of projects in which you have no role")
	}
	if err := a.Print("%s", b.String()); err != nil {
		return err
	}

	table := term.NewTable("WORKSPACE", "STATE", "WORKFLOW", "NOTE")
	for _, n := range runtext.Nodes(t) {
		state, note := runtext.Node(n)
		table.Row(n.Workspace, style.State(state), cli.Dash(n.Workflow), cli.Dash(note))
	}
	return table.Write(a.Stdout, style, "no workspaces")
}

type treeCancel struct {
	ID     string `arg:"" help:"The tree."`
	Reason string `help:"Why; kept in the timelines of its runs and in the audit trail."`
}

// Run cancels the tree.
func (c *treeCancel) Run(a *cli.App, cl *client.Client) error {
	t, err := cl.CancelTree(a.Ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	if t.EndedAt != nil {
		return a.Done(t, "tree %s is over: %s", t.ID, t.State)
	}
	return a.Done(t, "tree %s is being cancelled: its engines are interrupted and get time to stop; dayfly tree show %s shows how far it is", t.ID, t.ID)
}

// followTree shows each change of a node of a tree, until the tree ends or only waits for the approvals of plans.
func followTree(a *cli.App, cl *client.Client, t api.Tree) error {
	w := a.Stdout
	if a.JSON() {
		w = a.Stderr // standard output is for the result
	}
	live := term.NewLive(w, a.StyleOf(w))
	shown, wide, frame := map[string]api.TreeNode{}, 0, 0
	for _, n := range t.Nodes {
		wide = max(wide, term.Width(n.Workspace))
	}

	err := new(cli.Poll).Until(a.Ctx, func() (bool, error) {
		now, err := cl.Tree(a.Ctx, t.ID)
		if err != nil {
			return false, err
		}
		t, frame = now, frame+1
		for _, n := range runtext.Nodes(t) {
			was, known := shown[n.Workspace]
			if n.State != api.TreeWaiting && (!known || was.State != n.State || was.Workflow != n.Workflow || was.Note != n.Note) {
				live.Line(nodeLine(live.Style(), n, wide))
			}
			shown[n.Workspace] = n
		}
		live.Status(fmt.Sprintf("%s %s %s, %s done", string(frames[frame%len(frames)]), t.ID, runtext.TreeState(t), treeDone(t)))
		return t.EndedAt != nil || len(awaited(t)) > 0, nil
	}, cli.LookEvery)

	live.Status("")
	switch {
	case a.Ctx.Err() != nil:
		a.Say("\nstopped following: tree %s goes on\n  look at it: dayfly tree show %s\n  cancel it:  dayfly tree cancel %s", t.ID, t.ID, t.ID)
		return &cli.ExitError{Code: cli.ExitInterrupted}
	case err != nil:
		return err
	case a.JSON():
		if err := a.Encode(t); err != nil {
			return err
		}
	default:
		live.Line(fmt.Sprintf("%s %s of %s: %s, %s done", live.Style().Bold(t.ID), t.Operation, t.Workspace, live.Style().State(runtext.TreeState(t)), treeDone(t)))
	}
	if plans := awaited(t); len(plans) > 0 && t.EndedAt == nil {
		return errors.Join(live.Err(), &cli.ExitError{Code: cli.ExitAwaiting, Err: fmt.Errorf("the tree goes on when plans are approved: dayfly workflow approve %s", strings.Join(plans, ", "))})
	}
	return errors.Join(live.Err(), outcome(workflow.State(t.State)))
}

// nodeLine says where a node stands.
func nodeLine(style term.Style, n api.TreeNode, wide int) string {
	state, note := runtext.Node(n)
	out := term.Clean(n.Workspace) + strings.Repeat(" ", wide-term.Width(n.Workspace)) + "  " + style.State(state)
	for _, more := range []string{n.Workflow, note} {
		if more != "" {
			out += "  " + term.Clean(more)
		}
	}
	return out
}

// awaited are the previews of a tree whose plans wait for an approval, if nothing else of it runs.
func awaited(t api.Tree) (previews []string) {
	for _, n := range t.Nodes {
		if n.State == api.TreeRunning {
			if n.Note != api.TreeAwaits {
				return nil
			}
			previews = append(previews, n.Workflow)
		}
	}
	return previews
}

// downstream begins a tree at a workspace.
func (c *RunCommand) downstream(a *cli.App, cl *client.Client) error {
	op := workflow.Operation(c.Op)
	if err := c.checkDownstream(op); err != nil {
		return cli.Usage(err)
	}

	g, err := cl.Graph(a.Ctx)
	if err != nil {
		return err
	}
	steps := treeSteps(g, c.Target, op)
	if len(steps) == 1 {
		a.Say("nothing depends on %s", c.Target)
	} else {
		a.Say("in this order, those of one line at once:")
	}

	all := 0
	for i, names := range steps {
		all += len(names)
		a.Say("%3d  %s", i+1, strings.Join(names, ", "))
	}
	effect := "changes the resources that %s and %s that depend on it manage"
	if op == workflow.Destroy {
		effect = "destroys everything that %s and %s that depend on it manage"
	}
	if err := c.Confirm(a, "this tree "+effect, c.Target, text.Count(all-1, "workspace")); err != nil {
		return err
	}
	t, err := cl.SubmitTree(a.Ctx, api.NewTree{Workspace: c.Target, Operation: op, Every: c.Every, Message: c.Message})
	switch {
	case err != nil:
		return err
	case c.Follow:
		return followTree(a, cl, t)
	case a.JSON():
		return a.Encode(t)
	}
	if err := a.Print("%s", t.ID); err != nil {
		return err
	}
	a.Say("submitted a tree of %s; look at it with dayfly tree show %s", text.Count(t.Size, "workspace"), t.ID)
	return nil
}

// checkDownstream refuses arguments that do not go with --downstream.
func (c *RunCommand) checkDownstream(op workflow.Operation) error {
	switch {
	case op != workflow.Update && op != workflow.Destroy:
		return errors.New("--downstream: goes with --op update or --op destroy")
	case isPath(c.Target), c.Name != "":
		return errors.New("--downstream: name a workspace: only registered workspaces depend on others")
	case c.DetailedExitcode, c.Priority != nil, c.Timeout != 0, c.TakeOver, c.TakeOverFrom != "", c.BeginAnew:
		return errors.New("--downstream: goes with --op, --every, --message, --follow and --yes; run a workspace alone for the other flags")
	}
	if options, err := c.options(); err != nil || options != nil {
		return errors.Join(errors.New("--downstream: its runs have no options; run a workspace alone for them"), err)
	}
	return nil
}

// treeSteps are the workspaces of a tree in the order of their runs: each step is done before the next one at the
// latest. It is a pure function.
func treeSteps(g api.Graph, root string, op workflow.Operation) (steps [][]string) {
	depth := map[string]int{root: 0}
	for range g.Workspaces { // settings make no circle, so the longest way has fewer steps than there are workspaces
		for _, d := range g.Dependencies {
			if at, in := depth[d.On]; in && (depth[d.Workspace] <= at) {
				depth[d.Workspace] = at + 1
			}
		}
	}
	deepest := 0
	for _, at := range depth {
		deepest = max(deepest, at)
	}
	steps = make([][]string, deepest+1)
	for name, at := range depth {
		steps[at] = append(steps[at], name)
	}
	for _, names := range steps {
		slices.Sort(names)
	}
	if op == workflow.Destroy {
		slices.Reverse(steps)
	}
	return steps
}
