package catalog

import (
	"context"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// AssignPool changes the assignments of a pool, all in one commit.
func (p *Calls) AssignPool(ctx context.Context, who identity.Principal, name string, in api.AssignmentChange) (api.Pool, error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "pool.assign", name); err != nil {
		return api.Pool{}, err
	}
	return p.updatePool(ctx, who, "pool.assign", name, func(before record.Pool) (api.PoolSettings, error) { return assigned(before, in) })
}

// assigned turns a change of assignments into settings of a pool. It is a pure function.
func assigned(before record.Pool, in api.AssignmentChange) (out api.PoolSettings, err error) {
	if in.Add.All && in.Remove.All {
		return out, workflow.Invalid("remove.all", "all is added and removed at once; name it once")
	}
	if in.Add.All || in.Remove.All {
		out.AssignedToAll = &in.Add.All
	}
	for _, list := range []struct {
		name             string
		was, add, remove []string
		to               **[]string
	}{
		{"workspace", before.AssignedNames(), in.Add.Workspaces, in.Remove.Workspaces, &out.AssignedWorkspaces},
		{"project", before.Projects, in.Add.Projects, in.Remove.Projects, &out.AssignedProjects},
		{"stack", before.Stacks, in.Add.Stacks, in.Remove.Stacks, &out.AssignedStacks},
		{"namespace", before.Namespaces, in.Add.Namespaces, in.Remove.Namespaces, &out.AssignedNamespaces},
	} {
		if len(list.add)+len(list.remove) == 0 {
			continue
		}
		for _, name := range list.remove {
			if !slices.Contains(list.was, name) {
				return out, workflow.Invalid("remove."+list.name+"s", "pool %s is not assigned to %s %q: correct the name", before.Name, list.name, text.Cut(name, 64))
			}
		}
		now := slices.DeleteFunc(slices.Clone(list.was), func(name string) bool { return slices.Contains(list.remove, name) })
		now = append(now, list.add...)
		*list.to = &now
	}
	if out == (api.PoolSettings{}) {
		return out, workflow.Invalid("add", "name at least one workspace, project, stack or namespace, or all, to add or to remove")
	}
	return out, nil
}

// ExplainPools says for each pool whether it would get a workflow of a workspace, and why or why not.
func (p *Calls) ExplainPools(ctx context.Context, who identity.Principal, in api.ExplainPools) (api.Page[api.PoolVerdict], error) {
	out := api.Page[api.PoolVerdict]{Items: []api.PoolVerdict{}}
	c := p.ledger.View()
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.pools", in.Workspace, p.InWorkspace(who.Organization, in.Workspace)); err != nil {
		return out, err
	}
	if in.Type == "" {
		in.Type = workflow.Deployment
	}
	if !slices.Contains(workflow.Types(), in.Type) {
		return out, workflow.Invalid("type", "%q is not a type of workflow; there are deployment, insights_scan and policy_evaluation", text.Cut(string(in.Type), 40))
	}
	ws, err := Workspace(ctx, c, who.Organization, in.Workspace)
	if err != nil {
		return out, err
	}
	choice, err := ChoiceOf(ctx, c, who.Organization, ws)
	if err != nil {
		return out, err
	}
	page, err := p.ledger.List(ctx, record.Under(record.OrganizationPart(who.Organization), "pool/", ledger.PageSize(in.Limit, 200)), in.Cursor)
	if err != nil {
		return out, err
	}
	pools, err := record.DecodeAll[record.Pool](page.Records)
	if err != nil {
		return out, err
	}
	shown := len(pools)
	if choice.PoolID != "" { // the others are explained by it, on whichever page it is
		chosen, ok, err := ledger.Load[record.Pool](ctx, c, record.PoolKey(who.Organization, choice.PoolID))
		if err != nil {
			return out, err
		}
		if ok {
			pools = append(pools, chosen)
		}
	}
	out.Items = append(out.Items, choice.Explain(pools, in.Type)[:shown]...)
	out.Next = page.Next
	return out, nil
}
