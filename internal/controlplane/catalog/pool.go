package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Offline is how long a pool may be without a claim before it counts as offline.
const Offline = 3 * time.Minute

// serves refuses a workspace or a type of workflow that a pool does not serve, and says why.
func serves(r record.Pool, s record.Scope, t workflow.Type) error {
	if !r.AssignedTo(s) {
		return workflow.Refuse(workflow.ErrForbidden, "pool", "pool %s is not assigned to workspace %s; an admin can assign it, or the workspace can name another pool", r.Name, s.Workspace)
	}
	if !r.Takes(t) {
		return workflow.Invalid("type", "pool %s does not take workflows of type %s", r.Name, t)
	}
	return nil
}

// byName reads a pool into the change.
func byName(ctx context.Context, c *ledger.Change, org, name string) (record.Pool, error) {
	if workflow.CheckPoolName(name) != nil {
		return record.Pool{}, noPool(name)
	}
	n, ok, err := ledger.Load[record.Name](ctx, c, record.PoolNameKey(org, name))
	if err != nil {
		return record.Pool{}, err
	}
	if !ok {
		return record.Pool{}, noPool(name)
	}
	pool, ok, err := ledger.Load[record.Pool](ctx, c, record.PoolKey(org, n.ID))
	if err == nil && (!ok || pool.Name != name) {
		// Renamed or deleted between the two reads.
		return record.Pool{}, fmt.Errorf("pool %s moved between reads: %w", name, store.ErrConflict)
	}
	return pool, err
}

// PoolID is the id of the pool of a name.
func PoolID(ctx context.Context, c *ledger.Change, org, name string) (string, error) {
	pool, err := byName(ctx, c, org, name)
	return pool.ID, err
}

// Named reads the pool of a name into the change; without a name the built-in one.
func Named(ctx context.Context, c *ledger.Change, org, name string) (record.Pool, error) {
	return byName(ctx, c, org, cmp.Or(name, builtInPool))
}

// PoolNameKey is the key of the name of the pool that a workspace names, else of the built-in one.
func PoolNameKey(org string, w api.Workspace) store.Key {
	return record.PoolNameKey(org, cmp.Or(w.Pool, builtInPool))
}

// PoolFor routes a type of workflow of a workspace, and returns the pool that runs it: none with labels. It refuses
// if that pool does not serve them. It also reads the pool's wake mark, so that the commit can set it.
func PoolFor(ctx context.Context, c *ledger.Change, org string, ws record.Workspace, t workflow.Type) (pool record.Pool, err error) {
	if _, err := Route(ctx, c, org, ws); err != nil {
		return pool, err
	}
	q, err := c.Queue(ctx, ws.ID)
	if err != nil {
		return pool, err
	}
	id := record.PoolOfRoute(q.Route.Key)
	if id == "" {
		return pool, nil
	}
	keys := []store.Key{record.PoolKey(org, id), record.WakeKey(id), record.WakeTargetKey(id)}
	c.Link(record.QueueKey(ws.ID), keys...)
	c.Link(PoolNameKey(org, ws.W), keys...)
	if err := c.Load(ctx, keys...); err != nil {
		return pool, err
	}
	pool, ok, err := ledger.Get[record.Pool](c.Read, keys[0])
	switch {
	case err == nil && !ok:
		err = fmt.Errorf("pool %s was deleted between reads: %w", id, store.ErrConflict)
	case err == nil && pool.Closed:
		err = closed(pool)
	case err == nil:
		err = serves(pool, q.Route.Scope, t)
	}
	if err == nil {
		err = checkRoleOfPool(pool, ws.W)
	}
	return pool, err
}

// Names reads the names of pools by their ids.
func Names(ctx context.Context, l *ledger.Ledger, org string, ids ...string) (map[string]string, error) {
	slices.Sort(ids)
	var keys []store.Key
	for _, id := range slices.Compact(ids) {
		keys = append(keys, record.PoolKey(org, id))
	}
	r, err := l.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, k := range keys {
		if pool, ok, err := ledger.Get[record.Pool](r, k); err != nil {
			return nil, err
		} else if ok {
			out[pool.ID] = pool.Name
		}
	}
	return out, nil
}

// Instances reads the instances that were seen under a pool.
func Instances(ctx context.Context, c *ledger.Change, poolID string) ([]record.Runner, error) {
	page, err := c.Range(ctx, record.Under(record.RunnerKey(poolID, "").Part, "runner/", 1000))
	if err != nil {
		return nil, err
	}
	return record.DecodeAll[record.Runner](page.Records)
}
