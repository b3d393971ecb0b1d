package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// named is where a workspace names another one.
type named struct {
	field     string
	workspace string
	sensitive bool
}

// newlyNamed are the dependencies that a change adds. An input that is changed counts as a new one.
func newlyNamed(before, in api.Workspace) (out []named) {
	for i, one := range in.Inputs {
		if !slices.Contains(before.Inputs, one) {
			out = append(out, named{fmt.Sprintf("inputs[%d].workspace", i), one.Workspace, one.Sensitive})
		}
	}
	for i, one := range in.After {
		if !slices.Contains(before.After, one) {
			out = append(out, named{fmt.Sprintf("after[%d]", i), one, false})
		}
	}
	return out
}

// updateGraph adds the new dependencies of a workspace to the graph of its organization. who must be able to see each
// workspace that is named anew. A missing one may be part of a set that is applied together, so the refusal says what
// to do.
func updateGraph(ctx context.Context, c *ledger.Change, who identity.Principal, before, in api.Workspace) error {
	was, wasSensitive := rules.DependsOn(before)
	on, sensitive := rules.DependsOn(in)
	if len(was)+len(on) == 0 {
		return nil
	}
	// Before the workspaces: a deletion writes it, so one that this change does not see makes it lose the race.
	k := record.GraphKey(who.Organization)
	graph, _, err := ledger.Load[record.Graph](ctx, c, k)
	if err != nil {
		return err
	}
	for _, n := range newlyNamed(before, in) {
		if err := mayName(ctx, c, who, in, n); err != nil {
			return err
		}
	}
	if slices.Equal(was, on) && slices.Equal(wasSensitive, sensitive) && slices.Equal(graph.On[in.Name], on) {
		return nil
	}
	graph = with(graph, in.Name, on, sensitive)
	if path := rules.Cycle(graph.On, in.Name); path != nil {
		return workflow.Refuse(workflow.ErrInvalid, fieldOf(in, path[1]), "workspaces would depend on one another: %s; take one of these dependencies away", cycleText(path))
	}
	if n := rules.Edges(graph.On); n > record.MaxDependencies {
		return workflow.Refuse(workflow.ErrTooLarge, "inputs", "the workspaces of an organization have at most %d dependencies together, and this would make it %d: put resources that always change together into one workspace", record.MaxDependencies, n)
	}
	c.Put(k, graph)
	return nil
}

// with is a graph in which a workspace depends on others. The graph that was read does not change.
func with(graph record.Graph, name string, on, sensitive []string) record.Graph {
	set := func(all map[string][]string, list []string) map[string][]string {
		out := maps.Clone(all)
		if out == nil {
			out = map[string][]string{}
		}
		if out[name] = list; len(list) == 0 {
			delete(out, name)
		}
		return out
	}
	return record.Graph{On: set(graph.On, on), Sensitive: set(graph.Sensitive, sensitive)}
}

// fieldOf is the field in which a workspace names another one.
func fieldOf(in api.Workspace, other string) string {
	for _, n := range newlyNamed(api.Workspace{}, in) {
		if n.workspace == other {
			return n.field
		}
	}
	return "inputs"
}

// cycleText shows a cycle. A very long one is cut in the middle.
func cycleText(path []string) string {
	const maxShown = 12
	if len(path) > maxShown {
		path = slices.Concat(path[:maxShown/2], []string{"..."}, path[len(path)-maxShown/2:])
	}
	return strings.Join(path, " -> ")
}

// mayName refuses a dependency on a workspace that does not exist, or that who may not see. Only an admin of both
// workspaces can share a sensitive output: anyone with the right to submit runs of the receiving one can read it.
func mayName(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Workspace, n named) error {
	gone := workflow.Refuse(workflow.ErrNotFound, n.field, "there is no workspace %s that you may see: apply that one first, or correct the name; dayfly apply -f with all files orders them by itself", n.workspace)
	if n.workspace == in.Name {
		return nil // the cycle is refused
	}
	other, err := Workspace(ctx, c, who.Organization, n.workspace)
	if errors.Is(err, workflow.ErrNotFound) {
		return gone
	}
	if err != nil {
		return err
	}
	sees, err := Sees(ctx, c, who)(other.W.Project)
	switch {
	case err != nil:
		return err
	case !sees:
		return gone
	case !n.sensitive || who.Has(api.RoleAdmin):
		return nil
	}
	theirs, err := Chain(ctx, c, who.Organization, other.W.Project)
	if err != nil {
		return err
	}
	ours, err := Chain(ctx, c, who.Organization, in.Project)
	if err == nil && (!who.Has(api.RoleAdmin, theirs...) || !who.Has(api.RoleAdmin, ours...)) {
		err = workflow.Refuse(workflow.ErrForbidden, strings.TrimSuffix(n.field, ".workspace")+".sensitive", "a sensitive output of workspace %s is given to workspace %s by an admin of both; leave inputs as they are, or ask one", n.workspace, in.Name)
	}
	return err
}

// sameSensitive reports whether two workspaces take the same sensitive outputs.
func sameSensitive(a, b api.Workspace) bool {
	plain := func(in api.WorkspaceInput) bool { return !in.Sensitive }
	return slices.Equal(slices.DeleteFunc(slices.Clone(a.Inputs), plain), slices.DeleteFunc(slices.Clone(b.Inputs), plain))
}

// leaveGraph removes a deleted workspace from the graph of dependencies. It refuses while others depend on it. The
// record is written in any case: a dependency that is made at the same moment must not miss the deletion.
func leaveGraph(ctx context.Context, c *ledger.Change, org, name string) error {
	k := record.GraphKey(org)
	graph, _, err := ledger.Load[record.Graph](ctx, c, k)
	if err != nil {
		return err
	}
	if need := rules.Dependents(graph.On, name); len(need) > 0 {
		return workflow.Refuse(workflow.ErrInUse, "workspace", "%s on workspace %s: %s; take the dependencies out of their inputs and after first", dependText(len(need)), name, text.Some(need, 10))
	}
	c.Put(k, with(graph, name, nil, nil))
	return nil
}

// unscheduled refuses to delete a workspace or a project that a schedule names: its runs would go on with another one
// that is made under the name. The change goes by the whole tree of projects.
func unscheduled(ctx context.Context, c *ledger.Change, org, noun, name string) error {
	for s, err := range ledger.AllOf[record.Settings[api.Schedule]](ctx, c, record.SettingsOf(org, kind.Schedule, 100)) {
		if err != nil {
			return err
		}
		names := s.V.Workspaces
		if noun == "project" {
			names = s.V.Projects
		}
		if slices.Contains(names, name) {
			return workflow.Refuse(workflow.ErrInUse, noun, "schedule %s names %s %s: have an admin of the organization take it out first", s.V.Name, noun, name)
		}
	}
	return nil
}

func dependText(n int) string {
	if n == 1 {
		return "1 workspace depends"
	}
	return text.Count(n, "workspace") + " depend"
}

// Graph lists the dependencies between the workspaces that who may see.
func (p *Calls) Graph(ctx context.Context, who identity.Principal) (api.Graph, error) {
	out := api.Graph{Workspaces: []string{}, Dependencies: []api.Dependency{}}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workspace.graph", "", who.AnyProject); err != nil {
		return out, err
	}
	all, err := dependencies(ctx, p.ledger.View(), who, func(string, string) bool { return true })
	if err != nil {
		return out, err
	}
	for _, d := range all {
		out.Workspaces = append(out.Workspaces, d.Workspace, d.On)
	}
	slices.Sort(out.Workspaces)
	out.Workspaces, out.Dependencies = slices.Compact(out.Workspaces), append(out.Dependencies, all...)
	return out, nil
}

// Around are the workspaces that one depends on, and those that depend on it, of those that who may see.
func Around(ctx context.Context, c *ledger.Change, who identity.Principal, name string) (waitsFor, feeds []api.Dependency, err error) {
	all, err := dependencies(ctx, c, who, func(workspace, on string) bool { return workspace == name || on == name })
	for _, d := range all {
		if d.Workspace == name {
			waitsFor = append(waitsFor, d)
		} else {
			feeds = append(feeds, d)
		}
	}
	return waitsFor, feeds, err
}

// dependencies are those of an organization that are wanted, between workspaces that who may see, in order.
func dependencies(ctx context.Context, c *ledger.Change, who identity.Principal, wants func(workspace, on string) bool) (out []api.Dependency, err error) {
	graph, _, err := ledger.Load[record.Graph](ctx, c, record.GraphKey(who.Organization))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(graph.On)) {
		for _, on := range graph.On[name] {
			if wants(name, on) {
				out = append(out, api.Dependency{Workspace: name, On: on})
				names[name], names[on] = true, true
			}
		}
	}
	all, err := visible(ctx, c, who, names)
	if err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(d api.Dependency) bool {
		return all[d.Workspace].Name == "" || all[d.On].Name == ""
	})
	for i := range out {
		d := &out[i]
		for _, in := range all[d.Workspace].Inputs {
			if in.Workspace == d.On && !slices.Contains(d.Outputs, in.Output) {
				d.Outputs = append(d.Outputs, in.Output)
			}
		}
		slices.Sort(d.Outputs)
	}
	return out, nil
}

// visible reads those of some workspaces that exist and that who may see, by their names.
func visible(ctx context.Context, c *ledger.Change, who identity.Principal, names map[string]bool) (map[string]api.Workspace, error) {
	var keys []store.Key
	for name := range names {
		keys = append(keys, record.WorkspaceKey(who.Organization, name))
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, err
	}
	sees, out := Sees(ctx, c, who), map[string]api.Workspace{}
	for _, k := range keys {
		ws, ok, err := ledger.Get[record.Workspace](c.Read, k)
		if err == nil && ok { // else it was deleted meanwhile
			ok, err = sees(ws.W.Project)
		}
		if err != nil {
			return nil, err
		}
		if ok {
			out[ws.W.Name] = ws.W
		}
	}
	return out, nil
}
