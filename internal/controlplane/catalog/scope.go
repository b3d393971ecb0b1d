package catalog

import (
	"cmp"
	"context"
	"errors"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Chain reads the names of a project and of those above it, the nearest first: a role in any of them counts.
func Chain(ctx context.Context, c *ledger.Change, org, project string) ([]string, error) {
	projects, err := Projects(ctx, c, org, cmp.Or(project, record.GlobalProject))
	return names(projects), err
}

func names(projects []record.Project) (out []string) {
	for _, p := range projects {
		out = append(out, p.Name)
	}
	return out
}

// InWorkspace is the scope of calls about a workspace.
func (p *Calls) InWorkspace(org, name string) identity.Scope {
	return func(ctx context.Context) ([]string, error) {
		c := p.ledger.View()
		ws, err := Workspace(ctx, c, org, name)
		if err != nil {
			return nil, err
		}
		return Chain(ctx, c, org, ws.W.Project)
	}
}

// InApplied is the scope of a call that makes or changes a workspace: its present project, or for a new one the
// project that it names. Apply checks the same again, and whether the workspace may be moved.
func (p *Calls) InApplied(org string, in api.Workspace) identity.Scope {
	return func(ctx context.Context) ([]string, error) {
		scope, err := p.InWorkspace(org, in.Name)(ctx)
		if errors.Is(err, workflow.ErrNotFound) {
			return Chain(ctx, p.ledger.View(), org, in.Project)
		}
		return scope, err
	}
}

// Sees returns a function that says whether who may see the workspaces of a project.
func Sees(ctx context.Context, c *ledger.Change, who identity.Principal) func(project string) (bool, error) {
	return func(project string) (bool, error) {
		if who.Has(api.RoleViewer) {
			return true, nil
		}
		chain, err := Chain(ctx, c, who.Organization, project)
		if errors.Is(err, workflow.ErrNotFound) {
			return false, nil
		}
		return err == nil && who.Has(api.RoleViewer, chain...), err
	}
}

// mayApply refuses a change of a workspace that who may not make. It needs an operator in the workspace's project, an
// admin there for the fields that only an admin sets, and an admin in both projects if the workspace is moved. Stack
// and namespace need an admin of the organization: a pool of another project may serve them. The pool is the one that
// the changed workspace names.
func mayApply(ctx context.Context, c *ledger.Change, who identity.Principal, before, in api.Workspace, pool record.Pool) error {
	was := before.Project
	to, err := Chain(ctx, c, who.Organization, in.Project)
	if err != nil {
		return err
	}
	if was != in.Project {
		if err := join(c, who.Organization, in.Project); err != nil {
			return err
		}
	}
	if who.Has(api.RoleAdmin) {
		return nil
	}
	for _, label := range []struct{ field, was, is string }{{"stack", before.Stack, in.Stack}, {"namespace", before.Namespace, in.Namespace}} {
		if label.was != label.is {
			return workflow.Refuse(workflow.ErrForbidden, label.field, "the %s of a workspace decides which pools of the organization serve it and is set by an admin of the organization; leave it as it is, or ask one", label.field)
		}
	}
	if was != "" && was != in.Project {
		from, err := Chain(ctx, c, who.Organization, was)
		if err == nil && (!who.Has(api.RoleAdmin, from...) || !who.Has(api.RoleAdmin, to...)) {
			err = workflow.Refuse(workflow.ErrForbidden, "project", "workspace %s is in project %s: only an admin of both projects can move it to project %s; leave project as it is, or ask one", in.Name, was, in.Project)
		}
		return err
	}
	switch {
	case who.Has(api.RoleAdmin, to...):
		return nil
	case !who.Has(api.RoleOperator, to...):
		return workflow.Refuse(workflow.ErrForbidden, "project", "to change workspace %s needs the role operator in project %s", in.Name, in.Project)
	}
	return adminsFields(before, in, pool)
}
