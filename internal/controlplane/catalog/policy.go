package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Policies reads the policy groups that hold for a workspace now, with the waivers for a run that starts now. The
// commit does not name the record that they are in: a whole organization shares it, and its commits would wait for
// one another. So a start and a change of the same moment have no other order.
func Policies(ctx context.Context, c *ledger.Change, org string, ws record.Workspace) ([]api.Policy, error) {
	k := record.PoliciesKey(org)
	all, ok, err := ledger.Load[record.Policies](ctx, c, k)
	if err != nil || !ok || len(all.Groups) == 0 {
		return nil, err
	}
	chain, err := Chain(ctx, c, org, ws.W.Project)
	if err != nil {
		return nil, err
	}
	return Held(all, ws.W.Name, chain, c.Now), nil
}

// Held decides which policy groups hold for a workspace at a time: those that name it, or one of its projects, of
// which chain has the names. A waiver counts until its time, and only where the group is waivable. It is a pure
// function.
func Held(all record.Policies, workspace string, chain []string, now time.Time) (out []api.Policy) {
	for _, g := range all.Groups {
		above := slices.ContainsFunc(chain, func(project string) bool { return slices.Contains(g.Projects, project) })
		if g.IsDisabled || !above && !slices.Contains(g.Workspaces, workspace) {
			continue
		}
		p := api.Policy{Group: g.Name, Enforcement: g.Enforcement, Source: g.Source}
		for _, w := range all.Waivers {
			if g.Enforcement == api.PolicyWaivable && w.Group == g.Name && w.Workspace == workspace && now.Before(w.Until) {
				p.Waivers = append(p.Waivers, api.PolicyWaiver{Name: w.Name, Rule: w.Rule, Address: w.Address, Reason: w.Reason, GivenBy: w.GivenBy, Until: w.Until})
			}
		}
		out = append(out, p)
	}
	return out
}

// unwaived refuses to delete a workspace that has waivers in force: another one that is made under its name would
// pass by them. The commit fails if one is given meanwhile.
func unwaived(ctx context.Context, c *ledger.Change, org, name string) error {
	k := record.PoliciesKey(org)
	all, _, err := ledger.Load[record.Policies](ctx, c, k)
	if err != nil {
		return err
	}
	for _, w := range all.Waivers {
		if w.Workspace == name && c.Now.Before(w.Until) {
			return workflow.Refuse(workflow.ErrInUse, "workspace", "workspace %s has waivers that are in force, such as %s: have an admin of the organization delete them first", name, w.Name)
		}
	}
	c.Check(k)
	return nil
}
