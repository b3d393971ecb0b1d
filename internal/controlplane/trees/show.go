package trees

import (
	"context"
	"errors"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// inTree is the scope of calls about a tree: the projects of all its workspaces. A caller who may see one of them may
// see the tree, without the others.
func (p *Calls) inTree(org, id string) identity.Scope {
	return func(ctx context.Context) (out []string, err error) {
		c := p.ledger.View()
		t, err := p.treeOf(ctx, c, org, id)
		if err != nil {
			return nil, err
		}
		projects, err := projectsOfTree(ctx, c, t)
		if err != nil {
			return nil, err
		}
		for _, name := range projects {
			chain, err := catalog.Chain(ctx, c, org, name)
			if err != nil && !errors.Is(err, workflow.ErrNotFound) {
				return nil, err
			}
			for _, above := range chain {
				if !slices.Contains(out, above) {
					out = append(out, above)
				}
			}
		}
		return out, nil
	}
}

// projectsOfTree are the projects of the workspaces of a tree, by their names. Those that were deleted are in none.
func projectsOfTree(ctx context.Context, c *ledger.Change, t record.RunTree) (map[string]string, error) {
	keys := make([]store.Key, len(t.Nodes))
	for i, n := range t.Nodes {
		keys[i] = record.WorkspaceKey(t.Org, n.Workspace)
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, n := range t.Nodes {
		ws, ok, err := ledger.Get[record.Workspace](c.Read, keys[i])
		if err != nil {
			return nil, err
		}
		if ok && ws.ID == n.WorkspaceID {
			out[n.Workspace] = ws.W.Project
		}
	}
	return out, nil
}

// seesNodes returns a function that says which nodes of a tree who may see.
func seesNodes(ctx context.Context, c *ledger.Change, who identity.Principal) func(record.RunTree) (map[string]bool, error) {
	sees := catalog.Sees(ctx, c, who)
	return func(t record.RunTree) (map[string]bool, error) {
		out := map[string]bool{}
		if who.Has(api.RoleViewer) {
			for _, n := range t.Nodes {
				out[n.Workspace] = true
			}
			return out, nil
		}
		projects, err := projectsOfTree(ctx, c, t)
		for name, project := range projects {
			var one error
			out[name], one = sees(project)
			err = errors.Join(err, one)
		}
		return out, err
	}
}

// Tree shows a tree with the nodes that who may see.
func (p *Calls) Tree(ctx context.Context, who identity.Principal, id string) (api.Tree, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "tree.show", id, p.inTree(who.Organization, id)); err != nil {
		return api.Tree{}, err
	}
	c := p.ledger.View()
	t, err := p.treeOf(ctx, c, who.Organization, id)
	if err != nil {
		return api.Tree{}, err
	}
	seen, err := seesNodes(ctx, c, who)(t)
	if err != nil {
		return api.Tree{}, err
	}
	edges, err := edgesOf(ctx, c, who.Organization)
	return viewTree(t, edges, seen), err
}

// Trees lists the trees of the organization, the newest first.
func (p *Calls) Trees(ctx context.Context, who identity.Principal, cursor string, limit int) (api.Page[api.Tree], error) {
	out := api.Page[api.Tree]{Items: []api.Tree{}}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "tree.list", "", who.AnyProject); err != nil {
		return out, err
	}
	days, err := p.ledger.Retention(ctx, who.Organization)
	if err != nil {
		return out, err
	}
	c := p.ledger.View()
	edges, err := edgesOf(ctx, c, who.Organization)
	if err != nil {
		return out, err
	}
	nodes, seen := seesNodes(ctx, c, who), map[string]map[string]bool{}
	scan := store.Scan{Part: record.RunTreePart(who.Organization), Reverse: true, Limit: ledger.PageSize(limit, 50), To: record.NewID(record.RunTreeIDs, record.Before(c.Now, days.Workflows))}
	return ledger.ListWhere(ctx, p.ledger, scan, cursor, func(t record.RunTree) (bool, error) {
		var err error
		seen[t.ID], err = nodes(t)
		return slices.ContainsFunc(t.Nodes, func(n record.TreeNode) bool { return seen[t.ID][n.Workspace] }), err
	}, func(t record.RunTree, _ int64) api.Tree { return viewTree(t, edges, seen[t.ID]) })
}

// viewTree is a tree with the nodes that a caller may see. It is a pure function.
func viewTree(t record.RunTree, edges map[string][]string, sees map[string]bool) api.Tree {
	out := api.Tree{
		ID: t.ID, Workspace: t.Workspace, Operation: t.Op, Every: t.Every, Message: t.Message, State: t.State, CancelRequested: t.Cancelled != nil,
		SubmittedBy: t.By, SubmittedByID: t.ByID, SubmittedAt: t.Submitted, Size: len(t.Nodes), Nodes: []api.TreeNode{},
	}
	if !t.Ended.IsZero() {
		out.EndedAt = &t.Ended
	}
	for _, n := range t.Nodes {
		if !sees[n.Workspace] {
			continue
		}
		node := api.TreeNode{Workspace: n.Workspace, State: n.State, Workflow: n.Run, Note: n.Note}
		if n.State == api.TreeWaiting {
			for _, name := range rules.TreeBefore(t, n.Workspace, edges) {
				if before := t.Node(name); sees[name] && (before.State == api.TreeWaiting || before.State == api.TreeRunning) {
					node.WaitsFor = append(node.WaitsFor, name)
				}
			}
		}
		if n.Blocked != "" && !sees[n.Blocked] {
			node.Note = "a workspace before it failed or was cancelled"
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}
