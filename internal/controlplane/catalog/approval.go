package catalog

import (
	"context"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Requirements are those of the organization, the projects and the workspace that require approvals, in that order,
// the root of the projects first. The change has read the workspace. from are the keys of the records behind them,
// for a caller whose commit must fail if one of them changes. A commit that names records which a whole organization
// shares waits for other commits, and costs units.
//
// All records are read at once if they are those of the last time. A caller that reads the ApprovalKey of the
// workspace's project with LoadLinked before reads them with its own records.
func Requirements(ctx context.Context, c *ledger.Change, org string, ws record.Workspace) (out []rules.Requirement, from []store.Key, err error) {
	first := record.ApprovalKey(org, ws.W.Project)
	if err := c.LoadLinked(ctx, first); err != nil {
		return nil, nil, err
	}
	chain, err := Projects(ctx, c, org, ws.W.Project)
	if err != nil {
		return nil, nil, err
	}
	whole := record.ApprovalKey(org, "")
	keys, of := []store.Key{whole}, map[store.Key]string{whole: "the organization"}
	from = []store.Key{record.WorkspaceKey(org, ws.W.Name)}
	next := []store.Key{whole}
	for _, p := range slices.Backward(chain) {
		k := record.ApprovalKey(org, p.Name)
		keys, of[k] = append(keys, k), "project "+p.Name
		next = append(next, k, record.ProjectKey(org, p.Name))
		if p.Name != record.GlobalProject { // the root stays where it is
			from = append(from, record.ProjectKey(org, p.Name))
		}
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, nil, err
	}
	c.Link(first, next...)
	for _, k := range keys {
		a, _, err := ledger.Get[api.Approval](c.Read, k)
		if err != nil {
			return nil, nil, err
		}
		if a.Required {
			out = append(out, rules.Requirement{Of: of[k], Approval: a})
		}
	}
	if a := ws.W.Approval; a != nil && a.Required {
		out = append(out, rules.Requirement{Of: "the workspace", Approval: *a})
	}
	return out, append(from, keys...), nil
}

// setApproval sets the approval that an organization or one of its projects requires; nil leaves it as it is. The
// record of a removed approval stays, so that its version never begins again.
func setApproval(ctx context.Context, c *ledger.Change, org, project string, in *api.Approval) error {
	if in == nil {
		return nil
	}
	a, err := rules.CheckApproval("approval", in)
	if err != nil {
		return err
	}
	k := record.ApprovalKey(org, project)
	if err := c.Load(ctx, k); err != nil || a == nil && c.Version(k) == store.Absent {
		return err
	}
	if a == nil {
		a = &api.Approval{}
	}
	c.Put(k, *a)
	return nil
}

// approvalsOf reads the approvals that projects require, or for an empty name the organization; nil where none is
// required.
func (p *Calls) approvalsOf(ctx context.Context, org string, projects ...string) ([]*api.Approval, error) {
	var keys []store.Key
	for _, name := range projects {
		keys = append(keys, record.ApprovalKey(org, name))
	}
	found, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	out := make([]*api.Approval, len(keys))
	for i, k := range keys {
		a, _, err := ledger.Get[api.Approval](found, k)
		if err != nil {
			return nil, err
		}
		if a.Required {
			out[i] = &a
		}
	}
	return out, nil
}
