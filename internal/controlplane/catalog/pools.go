package catalog

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// viewPool shows a pool with the data of it that is in other records.
func (p *Calls) viewPool(ctx context.Context, org string, rec record.Pool, version int64) (api.Pool, error) {
	out := api.Pool{
		ID: rec.ID, Name: rec.Name, Description: rec.Description, BuiltIn: rec.BuiltIn, IsDisabled: rec.Disabled,
		AllowMultipleInstances: rec.Multiple, AssignedToAll: rec.AssignedToAll, AssignedWorkspaces: rec.AssignedNames(),
		AssignedProjects: rec.Projects, AssignedStacks: rec.Stacks, AssignedNamespaces: rec.Namespaces, Labels: rec.Labels,
		EnabledTypes: rec.Types, Concurrency: rec.Concurrency, RolePath: rec.RolePath, CreatedAt: rec.Created, Version: version, Status: "inactive",
	}
	c := p.ledger.View()
	if err := c.Load(ctx, record.PoolLimitKey(org, rec.ID), record.WakeTargetKey(rec.ID)); err != nil {
		return out, err
	}
	target, _, err := ledger.Get[record.WakeTarget](c.Read, record.WakeTargetKey(rec.ID))
	if err != nil {
		return out, err
	}
	out.WakeTarget = target.Target
	if out.Active, err = c.InUse(ctx, record.PoolLimitKey(org, rec.ID)); err != nil {
		return out, err
	}
	runners, err := Instances(ctx, c, rec.ID)
	if err != nil {
		return out, err
	}
	for _, i := range runners {
		if out.LastSeen == nil || i.Last.After(*out.LastSeen) {
			out.LastSeen = &i.Last
		}
	}
	switch {
	case rec.Closed:
		out.Status = "closed"
	case out.LastSeen == nil:
	case p.ledger.Now().Sub(*out.LastSeen) > Offline:
		out.Status = "offline"
	default:
		out.Status = "healthy"
	}
	return out, nil
}

// applyPool applies settings to a pool's record and checks the result.
func applyPool(r *record.Pool, in api.PoolSettings) error {
	if in.Name != nil {
		if err := workflow.CheckPoolName(*in.Name); err != nil {
			return err
		}
		r.Name = *in.Name
	}
	set(&r.Description, in.Description)
	set(&r.Disabled, in.IsDisabled)
	set(&r.Multiple, in.AllowMultipleInstances)
	set(&r.AssignedToAll, in.AssignedToAll)
	set(&r.Concurrency, in.Concurrency)
	set(&r.RolePath, in.RolePath)
	if in.AssignedWorkspaces != nil {
		r.Assigned = nil
		for _, name := range text.Sorted(*in.AssignedWorkspaces) {
			r.Assigned = append(r.Assigned, record.Assigned{Name: name})
		}
	}
	for _, list := range []struct{ to, from *[]string }{
		{&r.Projects, in.AssignedProjects}, {&r.Stacks, in.AssignedStacks},
		{&r.Namespaces, in.AssignedNamespaces}, {&r.Labels, in.Labels},
	} {
		if list.from != nil {
			*list.to = text.Sorted(*list.from)
		}
	}
	if in.EnabledTypes != nil {
		r.Types = slices.Clone(*in.EnabledTypes)
	}
	if r.Concurrency < 0 || r.Concurrency > 100000 {
		return workflow.Invalid("concurrency", "a concurrency limit lies between 0 (none) and 100000")
	}
	if err := checkRolePath(r.RolePath); err != nil {
		return err
	}
	if err := workflow.CheckText("description", r.Description, 1000); err != nil {
		return err
	}
	for _, t := range r.Types {
		if !slices.Contains(workflow.Types(), t) {
			return workflow.Invalid("enabled_workflow_types", "%q is not a type of workflow; there are deployment, insights_scan and policy_evaluation", text.Cut(string(t), 40))
		}
	}
	return checkAssignments(r)
}

// maxAssigned bounds each list of a pool's assignments.
const maxAssigned = 500

// checkAssignments checks the assignments and the labels of a pool.
func checkAssignments(r *record.Pool) error {
	for _, list := range []struct {
		field, noun string
		names       []string
	}{
		{"assigned_workspaces", "workspace", r.AssignedNames()}, {"assigned_projects", "project", r.Projects},
		{"assigned_stacks", "stack", r.Stacks}, {"assigned_namespaces", "namespace", r.Namespaces},
	} {
		if len(list.names) > maxAssigned {
			return workflow.Invalid(list.field, "a pool names at most %d %ss", maxAssigned, list.noun)
		}
		for _, name := range list.names {
			if err := workflow.CheckWorkspaceName(name); err != nil {
				return workflow.Invalid(list.field, "%q is not the name of a %s", text.Cut(name, 64), list.noun)
			}
		}
	}
	return checkLabels(r.Labels, maxPoolLabels)
}

// How many labels a pool may have, and how many a workspace may want.
const (
	maxPoolLabels  = 20
	maxLabelTarget = 10
)

var labelForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._:=-]{1,63}$`) })

// checkLabels refuses invalid labels, and too many of them.
func checkLabels(labels []string, limit int) error {
	if len(labels) > limit {
		return workflow.Invalid("labels", "there may be at most %d labels here, not %d", limit, len(labels))
	}
	for _, l := range labels {
		if !labelForm().MatchString(l) {
			return workflow.Invalid("labels", "%q is not a label: a label has 1 to 63 characters of A-Z, a-z, 0-9 and ._:=-", text.Cut(l, 64))
		}
	}
	return nil
}

// resolveAssigned refuses unknown workspaces and projects, and fills in the ids of workspaces. The commit fails if
// one of them is deleted meanwhile. A project that was in the list before cannot have been deleted.
func resolveAssigned(ctx context.Context, c *ledger.Change, org string, r *record.Pool, before record.Pool) error {
	var named []store.Key
	workspace := func(name string) store.Key { return record.WorkspaceKey(org, name) }
	for _, one := range r.Assigned {
		if one.ID == "" {
			named = append(named, workspace(one.Name))
		}
	}
	for _, name := range r.Projects {
		if name != record.GlobalProject && !slices.Contains(before.Projects, name) {
			named = append(named, record.ProjectKey(org, name))
		}
	}
	k, missing, err := c.Missing(ctx, org, named...)
	if err != nil {
		return err
	}
	if noun, name, _ := strings.Cut(k.Sort, "/"); missing {
		return workflow.Invalid("assigned_"+noun+"s", "there is no %s %q: make it first, or correct the name", noun, name)
	}
	r.Assigned = slices.Clone(r.Assigned)
	for i, one := range r.Assigned {
		if one.ID != "" {
			continue
		}
		ws, _, err := ledger.Get[record.Workspace](c.Read, workspace(one.Name))
		if err != nil {
			return err
		}
		r.Assigned[i].ID = ws.ID
	}
	return nil
}

// unassign ends the assignments of pools to a workspace that is deleted. The change goes by the whole tree of
// projects.
func unassign(ctx context.Context, c *ledger.Change, org, id string) error {
	pools, err := AllPools(ctx, c, org)
	if err != nil {
		return err
	}
	of := func(one record.Assigned) bool { return one.ID == id }
	for _, pool := range pools {
		if !slices.ContainsFunc(pool.Assigned, of) {
			continue
		}
		k := record.PoolKey(org, pool.ID)
		pool, ok, err := ledger.Load[record.Pool](ctx, c, k)
		if err != nil {
			return err
		}
		if ok {
			pool.Assigned = slices.DeleteFunc(pool.Assigned, of)
			c.Put(k, pool)
		}
	}
	return nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// mintToken gives a pool a token.
func mintToken(c *ledger.Change, org, poolID, name string) (value string) {
	value, _ = identity.Mint(c, record.Token{Org: org, Audience: identity.Pool, Name: name, PoolID: poolID})
	return value
}

// CreatePool makes a pool and its first token.
func (p *Calls) CreatePool(ctx context.Context, who identity.Principal, key string, in api.PoolSettings) (api.PoolToken, error) {
	target := ""
	set(&target, in.Name)
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "pool.create", target); err != nil {
		return api.PoolToken{}, err
	}
	if in.Name == nil {
		return api.PoolToken{}, workflow.Invalid("name", "a pool needs a name")
	}
	rec := record.Pool{ID: record.NewID("pool_", p.ledger.Now()), AssignedToAll: in.AssignedWorkspaces == nil && in.AssignedProjects == nil && in.AssignedStacks == nil && in.AssignedNamespaces == nil}
	if err := applyPool(&rec, in); err != nil {
		return api.PoolToken{}, err
	}
	var token string
	rerouted := false
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		if err := takeName(ctx, c, who, key, rec); err != nil {
			return err
		}
		if err := c.At(record.PoolNameKey(who.Organization, rec.Name), in.Version, "pool"); err != nil {
			return err
		}
		rec.Created = c.Now
		if err := resolveAssigned(ctx, c, who.Organization, &rec, record.Pool{}); err != nil {
			return err
		}
		if err := p.setTarget(ctx, c, rec.ID, in.WakeTarget); err != nil {
			return err
		}
		c.Create(record.PoolKey(who.Organization, rec.ID), rec)
		if rerouted = len(rec.Labels) > 0; rerouted {
			var err error
			if rerouted, err = rerouteLabels(ctx, c, who.Organization); err != nil {
				return err
			}
		}
		token = mintToken(c, who.Organization, rec.ID, "pool "+rec.Name)
		identity.Audit(c, who, "pool.create", rec.Name, "done", "")
		return nil
	})
	if err != nil {
		return api.PoolToken{}, err
	}
	if rerouted {
		p.RerouteAll(ctx, who.Organization)
	}
	pool, err := p.viewPool(ctx, who.Organization, rec, 1)
	return api.PoolToken{Pool: pool, Token: token}, err
}

// takeName gives a new pool its name, and notes the idempotency key of its request, if that has one.
func takeName(ctx context.Context, c *ledger.Change, who identity.Principal, key string, pool record.Pool) error {
	nk, once := record.PoolNameKey(who.Organization, pool.Name), record.IdempotencyKey(who.Organization, who.ID, key)
	keys := []store.Key{nk}
	if key != "" {
		keys = append(keys, once)
	}
	if err := c.Load(ctx, keys...); err != nil {
		return err
	}
	repeated := key != "" && c.Version(once) != store.Absent
	switch exists := c.Version(nk) != store.Absent; {
	case exists && repeated:
		// A token is shown once, so a repeated request cannot get the same answer as the first.
		return workflow.Refuse(workflow.ErrExists, "name", "pool %s was made by the same request before, and its token is shown only once; rotate the token to get a new one", pool.Name)
	case exists:
		return workflow.Refuse(workflow.ErrExists, "name", "there is a pool %s already", pool.Name)
	case repeated:
		return workflow.Refuse(workflow.ErrKeyReused, "Idempotency-Key", "this idempotency key was used for another request; use a new one")
	}
	if key != "" {
		c.PutUntil(once, record.Idempotency{Request: record.Hash("pool " + pool.Name), Result: pool.ID}, c.Now.Add(record.IdempotencyKept))
	}
	c.Create(nk, record.Name{ID: pool.ID})
	return nil
}

// Pools lists the pools.
func (p *Calls) Pools(ctx context.Context, who identity.Principal, cursor string, limit int) (api.Page[api.Pool], error) {
	out := api.Page[api.Pool]{Items: []api.Pool{}}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "pool.list", "", who.AnyProject); err != nil {
		return out, err
	}
	page, err := p.ledger.List(ctx, record.Under(record.OrganizationPart(who.Organization), "pool/", ledger.PageSize(limit, 100)), cursor)
	if err != nil {
		return out, err
	}
	for _, r := range page.Records {
		rec, err := record.Decode[record.Pool](r)
		if err != nil {
			return out, err
		}
		v, err := p.viewPool(ctx, who.Organization, rec, r.Version)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, shownTo(who, v))
	}
	out.Next = page.Next
	return out, nil
}

// Pool answers about one pool.
func (p *Calls) Pool(ctx context.Context, who identity.Principal, name string) (api.Pool, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "pool.show", name, who.AnyProject); err != nil {
		return api.Pool{}, err
	}
	c := p.ledger.View()
	rec, err := byName(ctx, c, who.Organization, name)
	if err != nil {
		return api.Pool{}, err
	}
	pool, err := p.viewPool(ctx, who.Organization, rec, c.Version(record.PoolKey(who.Organization, rec.ID)))
	if err == nil && who.Has(api.RoleViewer) {
		err = p.load(ctx, c, who.Organization, rec, &pool)
	}
	return shownTo(who, pool), err
}

// shownTo is a pool as a caller may see it. A caller with roles in projects only sees enough to choose a pool and to
// know whether it works, but not which workspaces of others it serves or which roles it may assume.
func shownTo(who identity.Principal, pool api.Pool) api.Pool {
	if who.Has(api.RoleViewer) {
		return pool
	}
	return api.Pool{
		ID: pool.ID, Name: pool.Name, Description: pool.Description, BuiltIn: pool.BuiltIn, Status: pool.Status, IsDisabled: pool.IsDisabled,
		EnabledTypes: pool.EnabledTypes, Concurrency: pool.Concurrency, Active: pool.Active, LastSeen: pool.LastSeen, CreatedAt: pool.CreatedAt, Version: pool.Version,
	}
}

// UpdatePool changes the given settings of a pool.
func (p *Calls) UpdatePool(ctx context.Context, who identity.Principal, name string, in api.PoolSettings) (api.Pool, error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "pool.update", name); err != nil {
		return api.Pool{}, err
	}
	return p.updatePool(ctx, who, "pool.update", name, func(record.Pool) (api.PoolSettings, error) { return in, nil })
}

// updatePool changes the settings of a pool. The new ones may depend on those before.
func (p *Calls) updatePool(ctx context.Context, who identity.Principal, action, name string, settings func(before record.Pool) (api.PoolSettings, error)) (api.Pool, error) {
	var rec record.Pool
	var version int64
	rerouted := false
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		rerouted = false
		before, err := byName(ctx, c, who.Organization, name)
		if err != nil {
			return err
		}
		in, err := settings(before)
		if err != nil {
			return err
		}
		k := record.PoolKey(who.Organization, before.ID)
		if err := c.At(k, in.Version, "pool"); err != nil {
			return err
		}
		rec = before
		if err := applyPool(&rec, in); err != nil {
			return err
		}
		if err := resolveAssigned(ctx, c, who.Organization, &rec, before); err != nil {
			return err
		}
		if err := p.setTarget(ctx, c, rec.ID, in.WakeTarget); err != nil {
			return err
		}
		if err := renamePool(ctx, c, who.Organization, before, rec.Name); err != nil {
			return err
		}
		version = c.Version(k)
		if c.Put(k, rec); !c.Alters(k, record.WakeTargetKey(rec.ID)) {
			return ledger.ErrUnchanged
		}
		version++
		if rerouted = reroutes(before, rec); rerouted {
			if rerouted, err = rerouteLabels(ctx, c, who.Organization); err != nil {
				return err
			}
		}
		identity.Audit(c, who, action, name, "done", strings.Join(changed(in), ", "))
		// The pool may be enabled, widened or assigned now.
		c.Wake(rec.ID)
		return nil
	})
	if err == nil && rec.Name != name {
		err = p.renameInWorkspaces(ctx, who, name, rec.Name)
	}
	if err != nil {
		return api.Pool{}, err
	}
	if rerouted {
		p.RerouteAll(ctx, who.Organization)
	}
	return p.viewPool(ctx, who.Organization, rec, version)
}

// renamePool gives a pool a new name, unless it has it already. Nothing may name the pool.
func renamePool(ctx context.Context, c *ledger.Change, org string, before record.Pool, name string) error {
	if name == before.Name {
		return nil
	}
	if before.BuiltIn {
		return workflow.Invalid("name", "the built-in pool keeps its name")
	}
	nk := record.PoolNameKey(org, name)
	if err := c.Load(ctx, nk); err != nil {
		return err
	}
	if c.Version(nk) != store.Absent {
		return workflow.Refuse(workflow.ErrExists, "name", "there is a pool %s already", name)
	}
	if err := unnamed(ctx, c, org, before, "renamed"); err != nil {
		return err
	}
	c.Remove(record.PoolNameKey(org, before.Name))
	c.Create(nk, record.Name{ID: before.ID})
	return nil
}

// reroutes says whether a change of a pool may lead workspaces to other pools: one with labels is chosen for its
// labels and its assignments. Any other pool is chosen by name or as a default, even where it is not assigned: work
// waits for it then.
func reroutes(before, after record.Pool) bool {
	lists := func(r record.Pool) [][]string {
		return [][]string{r.AssignedNames(), r.Projects, r.Stacks, r.Namespaces}
	}
	return !slices.Equal(before.Labels, after.Labels) || len(after.Labels) > 0 &&
		(before.AssignedToAll != after.AssignedToAll || !slices.EqualFunc(lists(before), lists(after), slices.Equal))
}

// changed names the given settings, and describes a given approval.
func changed(in any) []string {
	var out []string
	v := reflect.ValueOf(in)
	for i := range v.NumField() { // every field, so that the audit names new ones too
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if a, ok := f.Interface().(*api.Approval); ok {
				name += " " + a.Text()
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// RotatePoolToken gives a pool a new token; older ones stay valid for the overlap.
func (p *Calls) RotatePoolToken(ctx context.Context, who identity.Principal, name string, in api.RotateToken) (api.PoolToken, error) {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "pool.rotate_token", name); err != nil {
		return api.PoolToken{}, err
	}
	const maxOverlap = 7 * 24 * 3600
	if in.OverlapSeconds < 0 || in.OverlapSeconds > maxOverlap {
		return api.PoolToken{}, workflow.Invalid("overlap_seconds", "an overlap lasts at most a week")
	}
	var rec record.Pool
	var token string
	var version int64
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		var err error
		if rec, err = byName(ctx, c, who.Organization, name); err != nil {
			return err
		}
		version = c.Version(record.PoolKey(who.Organization, rec.ID))
		olds, err := identity.Tokens(ctx, c, who.Organization)
		if err != nil {
			return err
		}
		until := c.Now.Add(time.Duration(in.OverlapSeconds) * time.Second)
		for _, old := range olds {
			if old.Audience == identity.Pool && old.PoolID == rec.ID {
				identity.Shorten(c, old, until)
			}
		}
		token = mintToken(c, who.Organization, rec.ID, "pool "+rec.Name)
		identity.Audit(c, who, "pool.rotate_token", name, "done", fmt.Sprintf("overlap %ds", in.OverlapSeconds))
		return nil
	})
	if err != nil {
		return api.PoolToken{}, err
	}
	pool, err := p.viewPool(ctx, who.Organization, rec, version)
	return api.PoolToken{Pool: pool, Token: token}, err
}

// EnsurePoolToken gives a pool a new token under a name and ends older ones of that name. A process that is both
// control plane and agent gets its token in this way at each start.
func (p *Calls) EnsurePoolToken(ctx context.Context, organization, pool, name string) (token string, err error) {
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		rec, err := byName(ctx, c, organization, pool)
		if err != nil {
			return err
		}
		olds, err := identity.Tokens(ctx, c, organization)
		if err != nil {
			return err
		}
		for _, old := range olds {
			if old.Audience == identity.Pool && old.PoolID == rec.ID && old.Name == name {
				c.Add(store.Delete(record.TokenKey(old.Hash), old.Version))
				c.Add(store.Delete(record.TokenIDKey(organization, old.ID), old.Version))
			}
		}
		token = mintToken(c, organization, rec.ID, name)
		return nil
	})
	return token, err
}
