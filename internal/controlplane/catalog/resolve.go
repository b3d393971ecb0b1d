package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Choice is the result of routing a workspace: the pools that may get its workflows.
type Choice struct {
	Key    string // of record.Route
	PoolID string // "" with labels: then any pool that has them
	Labels []string
	Scope  record.Scope
	By     string // the reason for the choice, as a clause: "workspace network names it"
}

// Choose resolves a workspace: its labels, else its pool, else that of its nearest project with one, else that of the
// organization, else the built-in one. It is a pure function. named is the id of the pool that the workspace names;
// chain is its projects, the nearest first.
func Choose(ws record.Workspace, chain []record.Project, o record.Organization, named, builtIn string) Choice {
	w := ws.W
	out := Choice{Scope: record.Scope{ID: ws.ID, Workspace: w.Name, Stack: w.Stack, Namespace: w.Namespace, Role: pathOfRoles(w)}}
	for _, p := range chain {
		if p.Name != record.GlobalProject {
			out.Scope.Projects = append(out.Scope.Projects, p.Name)
		}
	}
	if len(w.Labels) > 0 {
		out.Labels = text.Sorted(w.Labels)
		out.Key, out.By = record.LabelRoute(out.Labels), fmt.Sprintf("workspace %s wants %s", w.Name, labels(out.Labels))
		return out
	}
	with := slices.IndexFunc(chain, func(p record.Project) bool { return p.PoolID != "" })
	switch {
	case w.Pool != "":
		out.PoolID, out.By = named, fmt.Sprintf("workspace %s names it", w.Name)
	case with >= 0:
		out.PoolID, out.By = chain[with].PoolID, fmt.Sprintf("project %s has it", chain[with].Name)
	case o.DefaultPool != "":
		out.PoolID, out.By = o.DefaultPool, "it is the default pool of the organization"
	default:
		out.PoolID, out.By = builtIn, "it is the built-in pool"
	}
	if out.Key = record.PoolRoute(out.PoolID); w.Runner != "" {
		out.Key = record.RunnerRoute(out.PoolID, w.Runner)
	}
	return out
}

// Covers says whether a pool is one of the chosen ones. It may still not be assigned.
func (h Choice) Covers(pool record.Pool) bool {
	if h.PoolID == "" {
		return pool.Has(h.Labels)
	}
	return pool.ID == h.PoolID
}

// Disabled says why nothing that is submitted now would be claimed until an admin enables a pool; "" if it would, or
// if there is no pool at all.
func (h Choice) Disabled(ctx context.Context, c *ledger.Change, org string) (string, error) {
	if h.PoolID != "" {
		pool, _, err := ledger.Load[record.Pool](ctx, c, record.PoolKey(org, h.PoolID))
		if err != nil || !pool.Disabled {
			return "", err
		}
		return "pool " + pool.Name + " is disabled", nil
	}
	pools, err := AllPools(ctx, c, org)
	pools = slices.DeleteFunc(pools, func(pool record.Pool) bool { return !h.Covers(pool) || pool.Closed || !pool.AssignedTo(h.Scope) })
	if err != nil || len(pools) == 0 || slices.ContainsFunc(pools, func(pool record.Pool) bool { return !pool.Disabled }) {
		return "", err
	}
	return "all pools with " + labels(h.Labels) + " are disabled", nil
}

// Explain says for each pool of an organization whether it would get a workflow of a type, and why or why not. It is
// a pure function.
func (h Choice) Explain(pools []record.Pool, t workflow.Type) (out []api.PoolVerdict) {
	chosen := ""
	for _, pool := range pools {
		if h.PoolID != "" && pool.ID == h.PoolID {
			chosen = pool.Name
		}
	}
	for _, pool := range pools {
		why := h.refusal(pool, chosen, t)
		if why != "" {
			out = append(out, api.PoolVerdict{Pool: pool.Name, Why: why})
			continue
		}
		out = append(out, api.PoolVerdict{Pool: pool.Name, Gets: true, Why: h.reason()})
	}
	return out
}

func labels(names []string) string {
	if len(names) == 1 {
		return "label " + names[0]
	}
	return "labels " + strings.Join(names, ", ")
}

// reason says why a pool gets a workflow.
func (h Choice) reason() string {
	switch name := record.RunnerOfRoute(h.Key); {
	case name != "":
		return h.By + "; only its instance " + name + " may run it"
	case h.PoolID == "":
		return "it has " + labels(h.Labels) + ": the first of such pools to claim it gets it"
	}
	return h.By
}

// refusal says why a pool would not get a workflow; "" if it would.
func (h Choice) refusal(pool record.Pool, chosen string, t workflow.Type) string {
	if !h.Covers(pool) {
		if h.PoolID != "" {
			return fmt.Sprintf("pool %s is nearer: %s", chosen, h.By)
		}
		var lacks []string
		for _, l := range h.Labels {
			if !slices.Contains(pool.Labels, l) {
				lacks = append(lacks, l)
			}
		}
		return "it lacks " + labels(lacks)
	}
	switch {
	case pool.Closed:
		return "it is closed: it was deleted, and takes no new work"
	case !pool.AssignedTo(h.Scope):
		return fmt.Sprintf("it is not assigned to workspace %s: an admin can assign it to the workspace, its stack, its namespace or one of its projects", h.Scope.Workspace)
	case !pool.Takes(t):
		return fmt.Sprintf("it does not take workflows of type %s", t)
	case !pool.MayAssume(h.Scope):
		return fmt.Sprintf("it assumes roles under the path %s only, and the role of the workspace lies under %s", pool.RolePath, h.Scope.Role)
	case pool.Disabled:
		return "it is disabled: it claims nothing until it is enabled"
	}
	return ""
}

// ChoiceOf resolves a workspace. The records that it reads are part of the change.
func ChoiceOf(ctx context.Context, c *ledger.Change, org string, ws record.Workspace) (Choice, error) {
	w := ws.W
	if w.Pool != "" && workflow.CheckPoolName(w.Pool) != nil {
		return Choice{}, noPool(w.Pool)
	}
	names := PoolNameKey(org, w)
	if err := c.LoadLinked(ctx, RouteKeys(org, w)...); err != nil {
		return Choice{}, err
	}
	chain, err := Projects(ctx, c, org, w.Project)
	if err != nil {
		return Choice{}, err
	}
	for i := range chain[:len(chain)-1] {
		c.Link(record.ProjectKey(org, chain[i].Name), record.ProjectKey(org, chain[i+1].Name))
	}
	o, _, err := ledger.Get[record.Organization](c.Read, record.OrganizationKey(org))
	if err != nil {
		return Choice{}, err
	}
	id, ok, err := ledger.Get[record.Name](c.Read, names)
	if err == nil && !ok && len(w.Labels) == 0 {
		err = noPool(w.Pool)
	}
	return Choose(ws, chain, o, id.ID, id.ID), err
}

// RouteKeys are the first records that ChoiceOf reads for a workspace.
func RouteKeys(org string, w api.Workspace) []store.Key {
	return []store.Key{record.OrganizationKey(org), record.ProjectKey(org, w.Project), PoolNameKey(org, w)}
}

func noPool(name string) error {
	return workflow.Refuse(workflow.ErrNotFound, "pool", "there is no pool %q", text.Cut(name, 64))
}
