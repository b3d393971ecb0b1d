package setup

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// targets are the flags for the assignments of a pool.
type targets struct {
	Name      string   `arg:"" help:"The pool."`
	Workspace []string `short:"w" help:"A workspace. May be repeated, as all of these."`
	Project   []string `short:"p" help:"A project, with all projects below it."`
	Stack     []string `help:"The workspaces that have this stack."`
	Namespace []string `help:"The workspaces that have this namespace."`
	All       bool     `help:"Every workspace. Names are kept, and take effect when this is removed."`
}

func (t targets) assignments() (api.Assignments, error) {
	if !t.All && len(t.Workspace)+len(t.Project)+len(t.Stack)+len(t.Namespace) == 0 {
		return api.Assignments{}, cli.Usage(errors.New("name the targets: --workspace, --project, --stack, --namespace or --all"))
	}
	return api.Assignments{All: t.All, Workspaces: t.Workspace, Projects: t.Project, Stacks: t.Stack, Namespaces: t.Namespace}, nil
}

type poolAssign struct{ targets }

// Run assigns the pool.
func (c *poolAssign) Run(a *cli.App, cl *client.Client) error {
	to, err := c.assignments()
	if err != nil {
		return err
	}
	return assign(a, cl, c.Name, api.AssignmentChange{Add: to})
}

type poolUnassign struct{ targets }

// Run removes assignments.
func (c *poolUnassign) Run(a *cli.App, cl *client.Client) error {
	from, err := c.assignments()
	if err != nil {
		return err
	}
	return assign(a, cl, c.Name, api.AssignmentChange{Remove: from})
}

func assign(a *cli.App, cl *client.Client, pool string, in api.AssignmentChange) error {
	p, err := cl.AssignPool(a.Ctx, pool, in)
	if err != nil {
		return err
	}
	if p.AssignedToAll && !in.Add.All {
		a.Say("every workspace may use pool %s: the names that it is assigned to take effect when you remove that with dayfly pool unassign %s --all", p.Name, p.Name)
	}
	return a.Done(p, "pool %s is assigned to %s", p.Name, assignedTo(p))
}

type poolSetDefault struct {
	Name string `arg:"" help:"The pool; the built-in one stands for none."`
}

// Run makes the pool the organization's default.
func (c *poolSetDefault) Run(a *cli.App, cl *client.Client) error {
	o, err := cl.UpdateOrganization(a.Ctx, api.OrganizationSettings{DefaultPool: &c.Name})
	if err != nil {
		return err
	}
	return a.Done(o, "pool %s takes the workspaces for which neither they nor their projects name a pool", o.DefaultPool)
}

type poolExplain struct {
	Workspace string `arg:"" help:"The workspace."`
	Type      string `enum:"deployment,insights_scan,policy_evaluation" default:"deployment" help:"Type of the workflow: deployment, insights_scan or policy_evaluation."`
}

// Run prints which pools would get a workflow, those first, and why the others would not.
func (c *poolExplain) Run(a *cli.App, cl *client.Client) error {
	all, _, err := cli.Gather(a, cli.Everything, func(ctx context.Context, cursor string, limit int) (api.Page[api.PoolVerdict], error) {
		return cl.ExplainPools(ctx, api.ExplainPools{Workspace: c.Workspace, Type: workflow.Type(c.Type), Cursor: cursor, Limit: limit})
	})
	if err != nil {
		return err
	}
	rank := func(v api.PoolVerdict) int {
		if v.Gets {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(x, y api.PoolVerdict) int { return cmp.Compare(rank(x), rank(y)) })
	if a.JSON() {
		return a.Encode(all)
	}

	t := term.NewTable("POOL", "GETS IT", "WHY")
	for _, v := range all {
		gets := "no"
		if v.Gets {
			gets = "yes"
		}
		t.Row(v.Pool, gets, term.Clean(v.Why))
	}
	if err := t.Write(a.Stdout, a.Style(), "no pools"); err != nil {
		return err
	}
	if len(all) > 0 && !all[0].Gets {
		a.Say("no pool would get a %s of workspace %s", c.Type, c.Workspace)
	}
	return nil
}
