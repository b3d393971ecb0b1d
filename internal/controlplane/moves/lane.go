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
	changer, other := room(lane)
	switch {
	case w.ChangesState() && changer, !w.ChangesState() && other && lane.WaitO == 0:
		enter(lane, w.ID, w.ChangesState())
		c.Create(w.ClaimKey(), w.Entry())
		c.Wake(w.PoolID)
		return nil
	case w.ChangesState() && lane.Changer != "":
		overtaken, err := c.overtake(ctx, w, lane)
		if overtaken || err != nil {
			return err
		}
	}
	c.Create(w.WaitKey(), w.Entry())
	if w.ChangesState() {
		lane.WaitC++
	} else {
		lane.WaitO++
	}
	return nil
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
	used := l.Others
	if l.Changer != "" {
		used++
	}
	return l.Changer == "" && used < l.Max, used < l.Max
}

// waiter is the first of a waiting list.
type waiter struct {
	key   store.Key
	rank  string
	entry record.Entry
}

// Promote makes claimable what now has room in the lane of a workspace, best rank first.
func (c *Change) Promote(ctx context.Context, wsid string) error {
	lane, err := c.Lane(wsid)
	if err != nil {
		return err
	}
	// One commit frees one place; more than a few become free only when a limit was raised, and
	// then the following commits take the rest.
	const most = 4
	heads := map[string][]waiter{}
	for range most {
		changer, other := room(lane)
		var ready []waiter
		for _, list := range []struct {
			prefix  string
			wanted  bool
			waiting int
		}{{record.WaitChangers, changer, lane.WaitC}, {record.WaitOthers, other, lane.WaitO}} {
			if !list.wanted || list.waiting == 0 {
				continue
			}
			if _, ok := heads[list.prefix]; !ok {
				if heads[list.prefix], err = c.waiters(ctx, wsid, list.prefix, most); err != nil {
					return err
				}
			}
			if h := heads[list.prefix]; len(h) > 0 {
				ready = append(ready, h[0])
			}
		}
		if len(ready) == 0 {
			return nil
		}
		next := slices.MinFunc(ready, func(a, b waiter) int { return cmp.Compare(a.rank, b.rank) })
		prefix := record.WaitOthers
		changes := strings.HasPrefix(next.key.Sort, record.WaitChangers)
		if changes {
			prefix = record.WaitChangers
			lane.WaitC--
		} else {
			lane.WaitO--
		}
		heads[prefix] = heads[prefix][1:]
		enter(lane, next.entry.ID, changes)
		c.Remove(next.key, ledger.Once)
		c.Create(store.Key{Part: record.ClaimPart(next.entry.PoolID, next.entry.Type), Sort: next.rank}, next.entry)
		c.Wake(next.entry.PoolID)
	}
	return nil
}

func (c *Change) waiters(ctx context.Context, wsid, prefix string, n int) ([]waiter, error) {
	page, err := c.Range(ctx, store.Scan{Part: record.LanePart(wsid), From: prefix, To: record.After(prefix), Limit: n})
	if err != nil {
		return nil, fmt.Errorf("read waiting list: %w", err)
	}
	var out []waiter
	for _, r := range page.Records {
		e, err := record.Decode[record.Entry](r)
		if err != nil {
			return nil, err
		}
		out = append(out, waiter{key: r.Key, rank: strings.TrimPrefix(r.Key.Sort, prefix), entry: e})
	}
	return out, nil
}
