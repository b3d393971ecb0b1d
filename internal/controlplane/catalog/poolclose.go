package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// namedBy reads the workspaces that name a pool. It is not a snapshot: unless the pool is closed, a workspace may
// begin to name it meanwhile.
func namedBy(ctx context.Context, c *ledger.Change, org, name string) (out []record.Workspace, err error) {
	for ws, err := range ledger.AllOf[record.Workspace](ctx, c, record.Under(record.OrganizationPart(org), "workspace/", 500)) {
		if err != nil {
			return nil, err
		}
		if ws.W.Pool == name {
			out = append(out, ws)
		}
	}
	return out, nil
}

// unnamed refuses if a workspace, a notification, a git host or a trust rule names the pool.
func unnamed(ctx context.Context, c *ledger.Change, org string, pool record.Pool, done string) error {
	refuse := func(noun, name string) error {
		return workflow.Refuse(workflow.ErrInUse, "pool", "%s %s names pool %s; change it before the pool is %s", noun, name, pool.Name, done)
	}
	by, err := namedBy(ctx, c, org, pool.Name)
	if err != nil {
		return err
	}
	if len(by) > 0 {
		return refuse("workspace", by[0].W.Name)
	}
	for n, err := range ledger.AllOf[record.Settings[api.Notification]](ctx, c, record.SettingsOf(org, kind.Notification, 100)) {
		if err != nil {
			return err
		}
		if n.V.Pool == pool.Name {
			return refuse("notification", n.V.Name)
		}
	}
	for g, err := range ledger.AllOf[record.Settings[api.GitHost]](ctx, c, record.SettingsOf(org, kind.GitHost, 100)) {
		if err != nil {
			return err
		}
		if g.V.Pool == pool.Name {
			return refuse("git host", g.V.Name)
		}
	}
	for is, err := range ledger.AllOf[record.Settings[record.Issuer]](ctx, c, record.SettingsOf(org, kind.Issuer, 100)) {
		if err != nil {
			return err
		}
		if slices.ContainsFunc(is.V.Rules, func(r record.Rule) bool { return r.PoolID == pool.ID }) {
			return refuse("a trust rule of issuer", is.V.I.Name)
		}
	}
	return nil
}

// renameInWorkspaces gives a pool's new name to the workspaces that began to name it during the rename. Work that was
// submitted during the rename names the pool by its id and needs no change.
func (p *Calls) renameInWorkspaces(ctx context.Context, who identity.Principal, old, name string) error {
	by, err := namedBy(ctx, p.ledger.View(), who.Organization, old)
	if err != nil {
		return err
	}
	for _, ws := range by {
		err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
			k, nk := record.WorkspaceKey(who.Organization, ws.W.Name), record.PoolNameKey(who.Organization, old)
			if err := c.Load(ctx, k, nk); err != nil {
				return err
			}
			now, _, err := ledger.Get[record.Workspace](c.Read, k)
			if err != nil || now.ID != ws.ID || now.W.Pool != old || c.Version(nk) != store.Absent {
				return err // changed again, or the name belongs to another pool by now
			}
			now.W.Pool = name
			c.Put(k, now)
			identity.Audit(c, who, "workspace.apply", now.W.Name, "done", "its pool "+old+" was renamed to "+name)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unnamedAnywhere refuses if anything names the pool or has it.
func unnamedAnywhere(ctx context.Context, c *ledger.Change, org string, pool record.Pool) error {
	if err := unnamed(ctx, c, org, pool, "deleted"); err != nil {
		return err
	}
	for project, err := range ledger.AllOf[record.Project](ctx, c, record.Under(record.OrganizationPart(org), "project/", 500)) {
		if err != nil {
			return err
		}
		if project.PoolID == pool.ID {
			return workflow.Refuse(workflow.ErrInUse, "pool", "project %s has pool %s; change it before the pool is deleted", project.Name, pool.Name)
		}
	}
	return nil
}

// waits names some work that waits for a pool; "" if there is none. More may come while workspaces are routed again.
func waits(ctx context.Context, c *ledger.Change, org string, pool record.Pool) (string, error) {
	rerouting, rk := record.ReroutingKey(org), record.RoutesKey(org)
	if err := c.Load(ctx, rerouting, rk); err != nil {
		return "", err
	}
	if c.Version(rerouting) != store.Absent {
		return "workspaces of the organization are being routed to their pools", nil
	}
	by, err := namedBy(ctx, c, org, pool.Name)
	if err != nil {
		return "", err
	}
	for _, ws := range by {
		queue, _, err := ledger.Load[record.Queue](ctx, c, record.QueueKey(ws.ID))
		if err != nil {
			return "", err
		}
		if !queue.Empty() {
			return fmt.Sprintf("workflows of workspace %s wait or run in pool %s", ws.W.Name, pool.Name), nil
		}
	}
	routes, _, err := ledger.Get[record.Routes](c.Read, rk)
	if err != nil {
		return "", err
	}
	keys := []string{record.PoolRoute(pool.ID)}
	for name := range routes.Pins {
		keys = append(keys, record.RunnerRoute(pool.ID, name))
	}
	for _, key := range keys {
		for _, t := range workflow.Types() {
			page, err := c.Range(ctx, store.Scan{Part: record.ClaimPart(key, t), Limit: 1})
			if err != nil {
				return "", err
			}
			if len(page.Records) > 0 {
				return fmt.Sprintf("workflows wait for pool %s", pool.Name), nil
			}
		}
	}
	return "", nil
}

// runs says how many workflows run in a pool; "" if there are none.
func runs(ctx context.Context, c *ledger.Change, org string, pool record.Pool) (string, error) {
	k := record.PoolLimitKey(org, pool.ID)
	active, err := c.InUse(ctx, k)
	c.Check(k)
	if err != nil || active == 0 {
		return "", err
	}
	return fmt.Sprintf("pool %s has %s", pool.Name, text.Count(active, "active workflow")), nil
}

// DeletePool closes a pool that nothing names and in which nothing runs, and deletes it with its tokens. Workflows
// that wait for it go to the new pools of their workspaces. A workflow that was submitted during the check by a
// workspace that began to name the pool is still served: the closed pool takes no new work, and is deleted when all
// its work has ended.
func (p *Calls) DeletePool(ctx context.Context, who identity.Principal, name string) error {
	if err := identity.Allow(ctx, p.ledger, who, api.RoleAdmin, "pool.delete", name); err != nil {
		return err
	}
	var pool record.Pool
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) (err error) {
		if pool, err = byName(ctx, c, who.Organization, name); err != nil || pool.Closed {
			return err
		}
		if pool.BuiltIn {
			return workflow.Invalid("pool", "the built-in pool cannot be deleted; it can be disabled")
		}
		if err := unnamedAnywhere(ctx, c, who.Organization, pool); err != nil {
			return err
		}
		if busy, err := runs(ctx, c, who.Organization, pool); busy != "" || err != nil {
			if err == nil {
				err = workflow.Refuse(workflow.ErrInUse, "pool", "%s; cancel them or let them end", busy)
			}
			return err
		}
		ok := record.OrganizationKey(who.Organization)
		o, _, err := ledger.Load[record.Organization](ctx, c, ok)
		if err != nil {
			return err
		}
		c.Check(ok) // it does not begin to be the default meanwhile
		if o.DefaultPool == pool.ID {
			o.DefaultPool = ""
			c.Put(ok, o)
		}
		if err := Reroute(ctx, c, who.Organization); err != nil {
			return err
		}
		// A commit that read the pool as open loses its race now. Later reads see it closed and refuse.
		pool.Closed = true
		c.Put(record.PoolKey(who.Organization, pool.ID), pool)
		c.Create(record.ClosedKey(who.Organization, pool.ID), record.Name{ID: pool.ID})
		identity.Audit(c, who, "pool.delete", name, "done", "")
		return nil
	})
	if err != nil {
		return err
	}
	p.RerouteAll(ctx, who.Organization)
	return p.remove(ctx, who.Organization, pool.ID)
}

// remove deletes a closed pool if none of its workflows waits or runs.
func (p *Calls) remove(ctx context.Context, org, id string) error {
	return p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		k, closed := record.PoolKey(org, id), record.ClosedKey(org, id)
		if err := c.Load(ctx, k, closed); err != nil {
			return err
		}
		pool, _, err := ledger.Get[record.Pool](c.Read, k)
		if err != nil {
			return err
		}
		if !pool.Closed { // another call has deleted it
			c.Remove(closed)
			return nil
		}
		// First the active workflows: the end of one may make another claimable, in the same commit. A claim changes
		// the limit, which the commit checks.
		for _, remaining := range []func(context.Context, *ledger.Change, string, record.Pool) (string, error){runs, waits} {
			if work, err := remaining(ctx, c, org, pool); work != "" || err != nil {
				return err
			}
		}
		nk, none := record.PoolNameKey(org, pool.Name), ""
		if err := c.Load(ctx, nk); err != nil {
			return err
		}
		cut := record.CutKey(org, id)
		if err := c.Load(ctx, cut); err != nil {
			return err
		}
		if err := p.setTarget(ctx, c, id, &none); err != nil {
			return err
		}
		c.Remove(cut)
		c.Remove(k)
		c.Remove(nk)
		c.Remove(closed)
		return nil
	})
}

// RemoveClosed deletes the closed pools of an organization whose work has ended. The clock calls it.
func (p *Calls) RemoveClosed(ctx context.Context, org string) error {
	page, err := p.ledger.Range(ctx, store.Scan{Part: record.ClosedPart(org), Limit: 100})
	if err != nil {
		return err
	}
	var failures []error
	for _, r := range page.Records {
		if err := p.remove(ctx, org, r.Key.Sort); err != nil {
			failures = append(failures, fmt.Errorf("remove pool %s: %w", r.Key.Sort, err))
		}
	}
	return errors.Join(failures...)
}
