package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxProjectDepth bounds the tree: how many projects lie between a workspace and the root, the root included.
const maxProjectDepth = 8

// Projects reads a project and those above it into the change, the nearest first; the root is the last.
func Projects(ctx context.Context, c *ledger.Change, org, name string) (out []record.Project, err error) {
	for range maxProjectDepth {
		p, ok, err := ledger.Load[record.Project](ctx, c, record.ProjectKey(org, name))
		switch {
		case err != nil:
			return nil, err
		case !ok && name == record.GlobalProject:
			p = record.Project{Name: name}
		case !ok:
			return nil, noProject(name)
		}
		if out = append(out, p); p.Name == record.GlobalProject {
			return out, nil
		}
		name = p.Parent
	}
	return nil, workflow.Refuse(workflow.ErrInvalid, "project", "project %q lies too deep: at most %d projects lie on the way from the root", text.Cut(name, 64), maxProjectDepth)
}

// join has a change write the project that something new belongs to, so that a deletion of the project at the same
// time fails. The project was read. The root is never deleted.
func join(c *ledger.Change, org, name string) error {
	k := record.ProjectKey(org, name)
	rec, ok, err := ledger.Get[record.Project](c.Read, k)
	if err == nil && ok && name != record.GlobalProject {
		c.Put(k, rec)
	}
	return err
}

// ListProjects lists the projects, the root first. A caller with roles in projects only sees those above and below
// them.
func (p *Calls) ListProjects(ctx context.Context, who identity.Principal, cursor string, limit int) (out api.Page[api.Project], err error) {
	sees, err := p.seesProjects(ctx, who, "project.list", "")
	if err != nil {
		return out, err
	}
	page, err := p.ledger.List(ctx, record.Under(record.OrganizationPart(who.Organization), "project/", ledger.PageSize(limit, 200)), cursor)
	if err != nil {
		return out, err
	}
	shown, versions := []record.Project{}, []int64{}
	if cursor == "" {
		c := p.ledger.View()
		chain, err := Projects(ctx, c, who.Organization, record.GlobalProject)
		if err != nil {
			return out, err
		}
		shown, versions = chain, append(versions, c.Version(record.ProjectKey(who.Organization, record.GlobalProject)))
	}
	for _, r := range page.Records {
		rec, err := record.Decode[record.Project](r)
		if err != nil {
			return out, err
		}
		if rec.Name != record.GlobalProject && sees(rec.Name) {
			shown, versions = append(shown, rec), append(versions, r.Version)
		}
	}
	out.Items, err = p.viewProjects(ctx, who.Organization, shown, versions)
	out.Next = page.Next
	return out, err
}

// seesProjects says which projects a caller may see. A caller who may see none is refused.
func (p *Calls) seesProjects(ctx context.Context, who identity.Principal, action, target string) (func(string) bool, error) {
	if who.Has(api.RoleViewer) || len(who.Grants) == 0 {
		return func(string) bool { return true }, identity.Allow(ctx, p.ledger, who, api.RoleViewer, action, target)
	}
	parents, err := parentsOf(ctx, p.ledger.View(), who.Organization)
	return func(name string) bool { return sees(parents, who.Grants, name) }, err
}

// sees says whether a project lies above or below one with a role of the caller. It is a pure function.
func sees(parents map[string]string, grants map[string]string, name string) bool {
	above := pathTo(parents, name)
	for granted := range grants {
		if slices.Contains(above, granted) || slices.Contains(pathTo(parents, granted), name) {
			return true
		}
	}
	return false
}

// pathTo is a project and those above it, the nearest first.
func pathTo(parents map[string]string, name string) (out []string) {
	for range maxProjectDepth {
		if out = append(out, name); name == record.GlobalProject {
			break
		}
		name = cmp.Or(parents[name], record.GlobalProject)
	}
	return out
}

// parentsOf reads the tree of projects: the parent of each.
func parentsOf(ctx context.Context, c *ledger.Change, org string) (map[string]string, error) {
	out := map[string]string{}
	for rec, err := range ledger.AllOf[record.Project](ctx, c, record.Under(record.OrganizationPart(org), "project/", 500)) {
		if err != nil {
			return nil, err
		}
		out[rec.Name] = rec.Parent
	}
	return out, nil
}

func (p *Calls) viewProjects(ctx context.Context, org string, list []record.Project, versions []int64) ([]api.Project, error) {
	var ids, projects []string
	for _, rec := range list {
		projects = append(projects, rec.Name)
		if rec.PoolID != "" {
			ids = append(ids, rec.PoolID)
		}
	}
	names, err := Names(ctx, p.ledger, org, ids...)
	if err != nil {
		return nil, err
	}
	approvals, err := p.approvalsOf(ctx, org, projects...)
	if err != nil {
		return nil, err
	}
	out := make([]api.Project, 0, len(list))
	for i, version := range versions {
		rec := list[i]
		v := api.Project{Name: rec.Name, Parent: rec.Parent, Description: rec.Description, Pool: names[rec.PoolID], Approval: approvals[i], Version: version}
		if !rec.Created.IsZero() {
			v.CreatedAt = &rec.Created
		}
		out = append(out, v)
	}
	return out, nil
}

// Project answers about one project.
func (p *Calls) Project(ctx context.Context, who identity.Principal, name string) (api.Project, error) {
	sees, err := p.seesProjects(ctx, who, "project.show", name)
	if err != nil {
		return api.Project{}, err
	}
	if !sees(name) {
		return api.Project{}, identity.Allow(ctx, p.ledger, who, api.RoleViewer, "project.show", name)
	}
	return p.projectAsItIs(ctx, who.Organization, name)
}

func (p *Calls) projectAsItIs(ctx context.Context, org, name string) (api.Project, error) {
	c := p.ledger.View()
	if workflow.CheckWorkspaceName(name) != nil {
		return api.Project{}, noProject(name)
	}
	chain, err := Projects(ctx, c, org, name)
	if err != nil {
		return api.Project{}, err
	}
	out, err := p.viewProjects(ctx, org, chain[:1], []int64{c.Version(record.ProjectKey(org, name))})
	if err != nil {
		return api.Project{}, err
	}
	return out[0], nil
}

func noProject(name string) error {
	return workflow.Refuse(workflow.ErrNotFound, "project", "there is no project %q", text.Cut(name, 64))
}

// CreateProject makes a project. The same key with the same request answers as it did the first time.
func (p *Calls) CreateProject(ctx context.Context, who identity.Principal, key string, in api.ProjectSettings) (api.Project, error) {
	name := ""
	set(&name, in.Name)
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "project.create", name); err != nil {
		return api.Project{}, err
	}
	if workflow.CheckWorkspaceName(name) != nil {
		return api.Project{}, workflow.Invalid("name", "a project has a name of 1 to 64 characters of A-Z, a-z, 0-9, _ and -")
	}
	if name == record.GlobalProject {
		return api.Project{}, workflow.Refuse(workflow.ErrExists, "name", "project global is the root of all projects and always exists")
	}
	asked, err := json.Marshal(in)
	if err != nil {
		return api.Project{}, fmt.Errorf("encode project %s: %w", name, err)
	}
	request := record.Hash("project " + string(asked))
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		if before, err := c.Once(ctx, who.Organization, who.ID, key, request, name); before != "" || err != nil {
			return err
		}
		k := record.ProjectKey(who.Organization, name)
		if err := c.Tree(ctx, who.Organization); err != nil {
			return err
		}
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		if c.Version(k) != store.Absent {
			return workflow.Refuse(workflow.ErrExists, "name", "there is a project %s already", name)
		}
		if err := c.At(k, in.Version, "project"); err != nil {
			return err
		}
		rec := record.Project{ID: record.NewID("prj_", c.Now), Name: name, Parent: record.GlobalProject, Created: c.Now}
		if err := applyProject(ctx, c, who.Organization, &rec, in, 1); err != nil {
			return err
		}
		c.Create(k, rec)
		identity.Audit(c, who, "project.create", name, "done", strings.Join(changed(in), ", "))
		return nil
	})
	if err != nil {
		return api.Project{}, err
	}
	return p.projectAsItIs(ctx, who.Organization, name)
}

// applyProject applies settings to a project's record and checks the result. height is how many levels of the tree
// the project and those below it take. A change with a parent goes by the whole tree.
func applyProject(ctx context.Context, c *ledger.Change, org string, rec *record.Project, in api.ProjectSettings, height int) error {
	if err := setApproval(ctx, c, org, rec.Name, in.Approval); err != nil {
		return err
	}
	set(&rec.Description, in.Description)
	if err := workflow.CheckText("description", rec.Description, 1000); err != nil {
		return err
	}
	if in.Pool != nil {
		if err := setPool(ctx, c, org, rec, *in.Pool); err != nil {
			return err
		}
	}
	if rec.Name == record.GlobalProject {
		if in.Parent != nil && *in.Parent != "" {
			return workflow.Invalid("parent", "project global is the root of all projects and has no parent")
		}
		rec.Parent = ""
		return nil
	}
	if in.Parent == nil {
		return nil
	}
	rec.Parent = cmp.Or(*in.Parent, record.GlobalProject)
	return checkParent(ctx, c, org, *rec, height)
}

// setPool sets the pool of a project by its name; an empty name takes it away.
func setPool(ctx context.Context, c *ledger.Change, org string, rec *record.Project, name string) error {
	rec.PoolID = ""
	if name == "" {
		return nil
	}
	pool, err := byName(ctx, c, org, name)
	if err == nil && pool.Closed {
		err = closed(pool)
	}
	if err != nil {
		return err
	}
	rec.PoolID = pool.ID
	nameFor(c, org, pool)
	return nil
}

// checkParent refuses a parent that does not exist, that lies in the project itself, or under which it would lie too
// deep.
func checkParent(ctx context.Context, c *ledger.Change, org string, rec record.Project, height int) error {
	if workflow.CheckWorkspaceName(rec.Parent) != nil {
		return workflow.Invalid("parent", "%q is not the name of a project", text.Cut(rec.Parent, 64))
	}
	above, err := Projects(ctx, c, org, rec.Parent)
	if err != nil {
		return err
	}
	for _, one := range above {
		if one.Name == rec.Name {
			return workflow.Invalid("parent", "project %s lies below project %s, or is that project: a project cannot lie below itself", rec.Parent, rec.Name)
		}
	}
	if len(above)+height > maxProjectDepth {
		return workflow.Invalid("parent", "below project %s it would lie too deep: at most %d projects lie on the way from the root", rec.Parent, maxProjectDepth)
	}
	return nil
}

// nameFor has a change write the pool that something begins to name by its id, so that a deletion of the pool at the
// same time fails. The pool was read.
func nameFor(c *ledger.Change, org string, pool record.Pool) {
	c.Put(record.PoolKey(org, pool.ID), pool)
}

// UpdateProject changes the given settings of a project. Its workspaces, and those of the projects below it, may go
// to another pool by it.
func (p *Calls) UpdateProject(ctx context.Context, who identity.Principal, name string, in api.ProjectSettings) (api.Project, error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "project.update", name); err != nil {
		return api.Project{}, err
	}
	if workflow.CheckWorkspaceName(name) != nil {
		return api.Project{}, noProject(name)
	}
	if in.Name != nil && *in.Name != name {
		return api.Project{}, workflow.Invalid("name", "a project keeps its name: make another one, and move the workspaces and projects in it")
	}
	rerouted := false
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		rerouted = false
		if in.Parent != nil { // no two moves together may make a circle, or a tree that is too deep
			if err := c.Tree(ctx, who.Organization); err != nil {
				return err
			}
		}
		chain, err := Projects(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		k := record.ProjectKey(who.Organization, name)
		if err := c.At(k, in.Version, "project"); err != nil {
			return err
		}
		rec, height := chain[0], 1
		if in.Parent != nil {
			parents, err := parentsOf(ctx, c, who.Organization)
			if err != nil {
				return err
			}
			for below := range parents {
				height = max(height, slices.Index(pathTo(parents, below), name)+1)
			}
		}
		if err := applyProject(ctx, c, who.Organization, &rec, in, height); err != nil {
			return err
		}
		if rec == chain[0] && !c.Alters(record.ApprovalKey(who.Organization, name)) {
			return ledger.ErrUnchanged
		}
		c.Put(k, rec)
		identity.Audit(c, who, "project.update", name, "done", strings.Join(changed(in), ", "))
		if rerouted = rec.PoolID != chain[0].PoolID || rec.Parent != chain[0].Parent; rerouted {
			return Reroute(ctx, c, who.Organization)
		}
		return nil
	})
	if err != nil {
		return api.Project{}, err
	}
	if rerouted {
		p.RerouteAll(ctx, who.Organization)
	}
	return p.projectAsItIs(ctx, who.Organization, name)
}

// DeleteProject removes a project that nothing belongs to and nothing names.
func (p *Calls) DeleteProject(ctx context.Context, who identity.Principal, name string) error {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "project.delete", name); err != nil {
		return err
	}
	if name == record.GlobalProject {
		return workflow.Invalid("project", "project global is the root of all projects and cannot be deleted")
	}
	if workflow.CheckWorkspaceName(name) != nil {
		return noProject(name)
	}
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		// Anything that joins the project after these reads changes its record or the tree's, and this is decided
		// again.
		if err := c.Tree(ctx, who.Organization); err != nil {
			return err
		}
		if _, err := Projects(ctx, c, who.Organization, name); err != nil {
			return err
		}
		if err := c.Load(ctx, record.ApprovalKey(who.Organization, name)); err != nil {
			return err
		}
		user, err := inProject(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		if user != "" {
			return workflow.Refuse(workflow.ErrInUse, "project", "%s; change that before project %s is deleted", user, name)
		}
		if err := unscheduled(ctx, c, who.Organization, "project", name); err != nil {
			return err
		}
		c.Remove(record.ProjectKey(who.Organization, name))
		c.Remove(record.ApprovalKey(who.Organization, name))
		identity.Audit(c, who, "project.delete", name, "done", "")
		return nil
	})
}

// inProject names something that belongs to a project or names it; "" if there is nothing.
func inProject(ctx context.Context, c *ledger.Change, org, name string) (string, error) {
	parents, err := parentsOf(ctx, c, org)
	if err != nil {
		return "", err
	}
	for child, parent := range parents {
		if parent == name {
			return fmt.Sprintf("project %s lies below it", child), nil
		}
	}
	for ws, err := range ledger.AllOf[record.Workspace](ctx, c, record.Under(record.OrganizationPart(org), "workspace/", 500)) {
		if err != nil {
			return "", err
		}
		if ws.W.Project == name {
			return fmt.Sprintf("workspace %s belongs to it", ws.W.Name), nil
		}
	}
	pools, err := AllPools(ctx, c, org)
	if err != nil {
		return "", err
	}
	for _, pool := range pools {
		if slices.Contains(pool.Projects, name) {
			return fmt.Sprintf("pool %s is assigned to it", pool.Name), nil
		}
	}
	return identity.GrantIn(ctx, c, org, name)
}
