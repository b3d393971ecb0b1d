package ledger

import (
	"context"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The claimable runs of a workspace are under one key, that of the route in the record of its queue. If the key
// changes, the commit that changes the route also moves the claimable runs, as many as fit into it. The route names
// the old keys until no run remains there. Which pools a workspace belongs to is the caller's decision.

// maxOps bounds the operations of a change that makes runs claimable, or moves them. The rest is for build.
const maxOps = 80

// fits is how many pairs of operations a change still has room for.
func (c *Change) fits() int { return min(maxPromoted, (maxOps-len(c.ops))/2) }

// Route leads a workspace to another key. more says that claimable runs remain under old keys: the next Route goes on
// with them.
func (c *Change) Route(ctx context.Context, wsid string, to record.Route) (more bool, err error) {
	q, err := c.Queue(ctx, wsid)
	if err != nil {
		return false, err
	}
	olds := slices.DeleteFunc(append([]string{q.Route.Key}, q.Route.Old...), func(key string) bool { return key == "" || key == to.Key })
	slices.Sort(olds)
	olds = slices.Compact(olds)
	q.Route = to
	if len(olds) == 0 || q.Used() == 0 {
		return false, nil
	}
	moves, err := c.claimables(ctx, append([]string{q.Changer}, q.Placed...), olds)
	if err != nil {
		return false, err
	}
	room := c.fits()
	for i, m := range moves {
		if i >= room {
			q.Route.Old = olds
			return true, nil
		}
		c.RemoveOnce(m.at)
		c.place(q, m.w.Rank(), m.w.Entry())
	}
	return false, nil
}

// claimable is a claimable run and the key of its entry.
type claimable struct {
	w  record.Workflow
	at store.Key
}

// claimables finds which of some runs have entries under keys. Their records are not part of the change: any change
// that moves them also writes the queue's record, or deletes the entry.
func (c *Change) claimables(ctx context.Context, ids, under []string) (out []claimable, err error) {
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == "" })
	var keys []store.Key
	for _, id := range ids {
		keys = append(keys, record.WorkflowKey(id))
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, err
	}
	keys = nil
	var pending []record.Workflow
	for _, id := range ids {
		w, ok, err := Get[record.Workflow](c.Read, record.WorkflowKey(id))
		if err != nil {
			c.ledger.Log.Error("unreadable record skipped", "err", err) // its entry is skipped by claims as well
		}
		if err == nil && ok && w.State == workflow.Pending {
			pending = append(pending, w)
			for _, key := range under {
				keys = append(keys, w.ClaimKey(key))
			}
		}
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, err
	}
	for _, w := range pending {
		for _, key := range under {
			if at := w.ClaimKey(key); c.Version(at) != store.Absent {
				out = append(out, claimable{w, at})
			}
		}
	}
	return out, nil
}

// place puts an entry into the claimable index, and wakes the pools that may claim it.
func (c *Change) place(q *record.Queue, rank string, e record.Entry) {
	c.Create(store.Key{Part: record.ClaimPart(q.Route.Key, e.Type), Sort: rank}, e)
	for _, pool := range q.Route.Wake {
		c.Wake(pool)
	}
}

// claimKeys are the keys that the entry of a claimable run may have.
func claimKeys(q *record.Queue, w *record.Workflow) (keys []store.Key) {
	for _, route := range append([]string{q.Route.Key}, q.Route.Old...) {
		keys = append(keys, w.ClaimKey(route))
	}
	return keys
}

// unplace takes a run's entry out of the claimable index. It reports whether there was one.
func (c *Change) unplace(ctx context.Context, q *record.Queue, w *record.Workflow) (found bool, err error) {
	keys := claimKeys(q, w)
	if err := c.Load(ctx, keys...); err != nil {
		return false, err
	}
	for _, k := range keys {
		i := slices.IndexFunc(c.ops, func(op store.Op) bool { return op.Key() == k })
		switch {
		case i >= 0 && c.ops[i].IsPut(): // this change was about to move it there
			c.Forget(k)
			found = true
		case i < 0 && c.Version(k) != store.Absent:
			c.RemoveOnce(k)
			found = true
		}
	}
	return found, nil
}

// Routes reads the routes of an organization and makes them part of the change: the commit fails if they change
// meanwhile.
func (c *Change) Routes(ctx context.Context, org string) (*record.Routes, error) {
	k := record.RoutesKey(org)
	if r := c.routes[k]; r != nil {
		return r, nil
	}
	r, _, err := Load[record.Routes](ctx, c, k)
	if err != nil {
		return nil, err
	}
	c.routes[k] = &r
	return &r, nil
}
