package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The queue of a workspace decides which of its runs are in the claimable index, where claims look. The index has
// only runs that could start now if the limits of the pool and of the organization allow it. Of the runs that change
// state it has the first one, and only while no other holds the slot; of the others, as many as the workspace's limit
// allows. The rest are in the waiting lists of the workspace. So a claim does not need to look at workspaces, and
// never has to skip a run that waits for another run of its workspace.
//
// Each commit that changes the waiting lists or the claimable runs of a workspace also writes the workspace's queue
// record. The record's version puts such commits in order: if two free or fill a place at once, one loses the race
// and decides again.

// DefaultMaxActive is how many runs of a workspace may be active at once if the workspace sets no limit.
const DefaultMaxActive = 10

// Queue reads the queue of a workspace and makes it part of the change.
func (c *Change) Queue(ctx context.Context, wsid string) (*record.Queue, error) {
	if q := c.queues[wsid]; q != nil {
		return q, nil
	}
	q, ok, err := Load[record.Queue](ctx, c, record.QueueKey(wsid))
	if err != nil {
		return nil, err
	}
	if !ok {
		q.Max = DefaultMaxActive
	}
	c.queues[wsid] = &q
	return &q, nil
}

// Holder is the run that holds the slot of a workspace, with its last sign of life; nil if the slot is free.
func (c *Change) Holder(ctx context.Context, org, wsid string) (*record.Workflow, error) {
	q, err := c.Queue(ctx, wsid)
	if err != nil || q.Changer == "" {
		return nil, err
	}
	w, err := c.Workflow(ctx, org, q.Changer)
	if err != nil || !w.SlotHeld {
		return nil, err // it is claimable, and does not hold the slot yet
	}
	return w, nil
}

// Enqueue makes a new pending workflow claimable, or adds it to a waiting list of its workspace.
func (c *Change) Enqueue(ctx context.Context, w *record.Workflow) error {
	q, err := c.Queue(ctx, w.WorkspaceID)
	if err != nil {
		return err
	}
	if w.ChangesState() && q.Changer != "" {
		if overtaken, err := c.overtake(ctx, w, q); overtaken || err != nil {
			return err
		}
	}
	return c.Promote(ctx, w.WorkspaceID, w)
}

// overtake puts w in the place of the claimable state-changing run of its workspace, if that run is not claimed yet
// and ranks behind w.
func (c *Change) overtake(ctx context.Context, w *record.Workflow, q *record.Queue) (bool, error) {
	if q.Unsaved != "" && !w.Entry().Push {
		return false, nil // the one that is claimable pushes a state
	}
	first, ok, err := Load[record.Workflow](ctx, c, record.WorkflowKey(q.Changer))
	if err != nil || !ok || first.State != workflow.Pending || first.Rank() <= w.Rank() {
		return false, err
	}
	// If the first one is claimed meanwhile, this is decided again.
	c.Check(record.WorkflowKey(first.ID))
	if found, err := c.unplace(ctx, q, &first); err != nil {
		return false, err
	} else if !found {
		return false, fmt.Errorf("claimable workflow %s moved between reads: %w", first.ID, store.ErrConflict)
	}
	if k := first.WaitKey(); c.plans(k) { // this change was about to take it out of the list
		c.Forget(k)
	} else {
		c.Create(k, first.Entry())
	}
	q.WaitC++
	q.Changer = w.ID
	c.place(q, w.Rank(), w.Entry())
	return true, nil
}

// leave takes a claimable or active run out of the queue of its workspace. If the run could not write its state, the
// queue then waits for a decision about that state.
func leave(q *record.Queue, w *record.Workflow) {
	if w.ChangesState() {
		q.Changer = ""
		if w.Unsaved {
			q.Unsaved = w.ID
		}
	} else {
		q.Placed = slices.DeleteFunc(q.Placed, func(id string) bool { return id == w.ID })
	}
}

// Decided ends the wait for a decision about a state that could not be written. The note, for the timeline of its
// run, names the run that pushed a state, or the admin who gave that one up.
func (c *Change) Decided(ctx context.Context, q *record.Queue, n rules.Note) error {
	id := q.Unsaved
	q.Unsaved = ""
	w, err := c.Workflow(ctx, "", id)
	if errors.Is(err, workflow.ErrNotFound) {
		return nil
	}
	if err == nil {
		w.Unsaved = false
		c.Note(w, n)
	}
	return err
}

// waiter is a workflow that waits for a place.
type waiter struct {
	rank     string
	entry    record.Entry
	arriving bool // not in a list yet
}

// maxPromoted bounds the runs that one commit makes claimable: two operations each. One commit frees one place. Many
// places become free at once only when a limit is raised, and then the following commits of the workspace fill the
// rest.
const maxPromoted = 30

// maxWaiting bounds the search among waiting runs for one that pushes a state.
const maxWaiting = 1000

// line has the waiting runs of one kind, with those that are just arriving.
type line struct {
	prefix  string
	changes bool
	count   *int // of the queue's record
	heads   []waiter
	read    bool
}

// Promote makes runs of a workspace claimable while there is room, best rank first: of those that wait there and of
// those that arrive (new ones, and ones whose claim has ended). One that arrives and is not promoted waits.
func (c *Change) Promote(ctx context.Context, wsid string, arriving ...*record.Workflow) error {
	q, err := c.Queue(ctx, wsid)
	if err != nil {
		return err
	}
	lines := [...]*line{{prefix: record.WaitChangers, changes: true, count: &q.WaitC}, {prefix: record.WaitOthers, count: &q.WaitO}}
	for _, w := range arriving {
		for _, l := range lines {
			if l.changes == w.ChangesState() {
				l.heads = append(l.heads, waiter{w.Rank(), w.Entry(), true})
			}
		}
	}
	for range c.fits() {
		next, err := c.next(ctx, wsid, q, lines[:])
		if err != nil {
			return err
		}
		if next == nil {
			break
		}
		one := next.heads[0]
		next.heads = next.heads[1:]
		if next.changes {
			q.Changer = one.entry.ID
		} else {
			q.Placed = append(q.Placed, one.entry.ID)
		}
		if !one.arriving {
			*next.count--
			c.RemoveOnce(store.Key{Part: record.QueuePart(wsid), Sort: next.prefix + one.rank})
		}
		c.place(q, one.rank, one.entry)
	}
	for _, l := range lines {
		for _, one := range l.heads {
			if one.arriving {
				*l.count++
				c.Create(store.Key{Part: record.QueuePart(wsid), Sort: l.prefix + one.rank}, one.entry)
			}
		}
	}
	return nil
}

// next is the line whose first run has the best rank among the lines that there is room for; nil if there is none. A
// list is read only if there is room for one of its runs: most commits read none.
func (c *Change) next(ctx context.Context, wsid string, q *record.Queue, lines []*line) (best *line, err error) {
	if q.Used() >= q.Max {
		return nil, nil
	}
	for _, l := range lines {
		if l.changes && q.Changer != "" {
			continue // the slot is taken
		}
		if *l.count > 0 && !l.read {
			if err := c.fill(ctx, wsid, q, l); err != nil {
				return nil, err
			}
		}
		if l.changes && q.Unsaved != "" && !l.pushFirst() {
			continue
		}
		if len(l.heads) > 0 && (best == nil || l.heads[0].rank < best.heads[0].rank) {
			best = l
		}
	}
	return best, nil
}

// fill adds to a line the first runs of its waiting list.
func (c *Change) fill(ctx context.Context, wsid string, q *record.Queue, l *line) error {
	limit := maxPromoted
	if l.changes && q.Unsaved != "" {
		limit = maxWaiting
	}
	waiting, err := c.waiters(ctx, wsid, l.prefix, limit)
	if err != nil {
		return err
	}
	l.read, l.heads = true, append(l.heads, waiting...)
	slices.SortFunc(l.heads, func(a, b waiter) int { return cmp.Compare(a.rank, b.rank) })
	return nil
}

// pushFirst moves the first run that pushes a state to the head of the line. It reports whether there is one.
func (l *line) pushFirst() bool {
	i := slices.IndexFunc(l.heads, func(w waiter) bool { return w.entry.Push })
	if i < 0 {
		return false
	}
	push := l.heads[i]
	l.heads = slices.Insert(slices.Delete(l.heads, i, i+1), 0, push)
	return true
}

// waiters reads the first runs of a waiting list.
func (c *Change) waiters(ctx context.Context, wsid, prefix string, limit int) ([]waiter, error) {
	page, err := c.Range(ctx, record.Under(record.QueuePart(wsid), prefix, limit))
	if err != nil {
		return nil, err
	}
	var out []waiter
	for _, r := range page.Records {
		if c.plans(r.Key) {
			continue // an end in this change has promoted it
		}
		e, err := record.Decode[record.Entry](r)
		if err != nil {
			return nil, err
		}
		out = append(out, waiter{rank: strings.TrimPrefix(r.Key.Sort, prefix), entry: e})
	}
	return out, nil
}
