package moves

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Enqueue makes a new pending workflow claimable, or lets it wait in its workspace.
func (c *Change) Enqueue(ctx context.Context, w *record.Workflow, lane *record.Lane) error {
	if w.ChangesState() && lane.Changer != "" {
		if overtaken, err := c.overtake(ctx, w, lane); overtaken || err != nil {
			return err
		}
	}
	return c.Promote(ctx, w.WorkspaceID, w)
}

// overtake puts w in the place of the claimable state-changing run of its workspace if that is not
// claimed yet and ranks behind it.
func (c *Change) overtake(ctx context.Context, w *record.Workflow, lane *record.Lane) (bool, error) {
	if err := c.Load(ctx, record.WorkflowKey(lane.Changer)); err != nil {
		return false, err
	}
	first, ok, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(lane.Changer))
	if err != nil || !ok || first.State != workflow.Pending || first.Rank() <= w.Rank() {
		return false, err
	}
	c.Check(record.WorkflowKey(first.ID))
	c.Remove(first.ClaimKey(), ledger.Once)
	c.Create(first.WaitKey(), first.Entry())
	lane.WaitC++
	lane.Changer = w.ID
	c.Create(w.ClaimKey(), w.Entry())
	c.Wake(w.PoolID)
	return true, nil
}

// leave takes a claimable or active run out of its lane.
func leave(l *record.Lane, w *record.Workflow) {
	if w.ChangesState() {
		l.Changer = ""
	} else {
		l.Others--
	}
}

// enter puts a run into its lane.
func enter(l *record.Lane, id string, changes bool) {
	if changes {
		l.Changer = id
	} else {
		l.Others++
	}
}

// room says whether a run that changes state, and whether another one, could become claimable.
func room(l *record.Lane) (changer, other bool) {
	used := l.Used()
	return l.Changer == "" && used < l.Max, used < l.Max
}

// waiter is one that waits for a place in its lane.
type waiter struct {
	rank     string
	entry    record.Entry
	arriving bool // in no list yet
}

// mostPromoted bounds what one commit makes claimable: two operations each. One commit frees one place; many become
// free at once only when a limit was raised, and then the following commits of the lane take the rest.
const mostPromoted = 30

// line is the waiting runs of one kind, and those that have just come to them.
type line struct {
	prefix  string
	changes bool
	count   *int // of the lane
	heads   []waiter
	read    bool
}

// Promote makes claimable what has room in the lane of a workspace, best rank first: of those that wait there and of
// those that arrive, new ones and ones whose claim has ended. What arrives without being promoted waits.
func (c *Change) Promote(ctx context.Context, wsid string, arriving ...*record.Workflow) error {
	lane, err := c.Lane(wsid)
	if err != nil {
		return err
	}
	lines := [...]*line{{prefix: record.WaitChangers, changes: true, count: &lane.WaitC}, {prefix: record.WaitOthers, count: &lane.WaitO}}
	for _, w := range arriving {
		for _, l := range lines {
			if l.changes == w.ChangesState() {
				l.heads = append(l.heads, waiter{w.Rank(), w.Entry(), true})
			}
		}
	}
	for range mostPromoted {
		next, err := c.next(ctx, wsid, lane, lines[:])
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		one := next.heads[0]
		next.heads = next.heads[1:]
		enter(lane, one.entry.ID, next.changes)
		if !one.arriving {
			*next.count--
			c.Remove(store.Key{Part: record.LanePart(wsid), Sort: next.prefix + one.rank}, ledger.Once)
		}
		c.Create(store.Key{Part: record.ClaimPart(one.entry.PoolID, one.entry.Type), Sort: one.rank}, one.entry)
		c.Wake(one.entry.PoolID)
	}
	for _, l := range lines {
		for _, one := range l.heads {
			if one.arriving {
				*l.count++
				c.Create(store.Key{Part: record.LanePart(wsid), Sort: l.prefix + one.rank}, one.entry)
			}
		}
	}
	return nil
}

// next is the line whose first has the best rank of those that there is room for; nil where there is none.
func (c *Change) next(ctx context.Context, wsid string, lane *record.Lane, lines []*line) (best *line, err error) {
	changer, other := room(lane)
	for _, l := range lines {
		if l.changes && !changer || !l.changes && !other {
			continue
		}
		if *l.count > 0 && !l.read {
			waiting, err := c.waiters(ctx, wsid, l.prefix)
			if err != nil {
				return nil, err
			}
			l.read, l.heads = true, append(l.heads, waiting...)
			slices.SortFunc(l.heads, func(a, b waiter) int { return cmp.Compare(a.rank, b.rank) })
		}
		if len(l.heads) > 0 && (best == nil || l.heads[0].rank < best.heads[0].rank) {
			best = l
		}
	}
	return best, nil
}

// waiters reads the first of a waiting list.
func (c *Change) waiters(ctx context.Context, wsid, prefix string) ([]waiter, error) {
	page, err := c.Range(ctx, store.Scan{Part: record.LanePart(wsid), From: prefix, To: record.After(prefix), Limit: mostPromoted})
	if err != nil {
		return nil, fmt.Errorf("read waiting list: %w", err)
	}
	var out []waiter
	for _, r := range page.Records {
		e, err := record.Decode[record.Entry](r)
		if err != nil {
			return nil, err
		}
		out = append(out, waiter{rank: strings.TrimPrefix(r.Key.Sort, prefix), entry: e})
	}
	return out, nil
}
