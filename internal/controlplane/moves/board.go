// Package moves keeps, with each move of a workflow, what hangs on it: the lane of its workspace, the
// claimable index, the limits, its timer and its timeline. What is to be done package rules decides; here
// it is done in one commit, after which the pools for which work became claimable are woken.
package moves

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Board is a ledger in which workflows move. Its methods may be called concurrently.
type Board struct {
	ledger *ledger.Ledger
	wakes  *wake.Wakes
	hot    chan struct{} // holds one: see ChangeHot
	clock  clock
}

// New returns the board of a ledger. Alone says that this process makes all passes.
func New(l *ledger.Ledger, wakes *wake.Wakes, alone bool) *Board {
	return &Board{ledger: l, wakes: wakes, hot: make(chan struct{}, 1), clock: clock{first: alone, known: map[store.Key]known{}}}
}

// Change decides and commits one change and then wakes whom it made work claimable for. A decision
// that changes nothing writes nothing.
func (b *Board) Change(ctx context.Context, decision func(ctx context.Context, c *Change) error) error {
	var owed []string
	err := b.ledger.Decide(ctx, func(ctx context.Context) ([]store.Op, error) {
		c := b.NewChange()
		if err := decision(ctx, c); err != nil {
			return nil, err
		}
		owed = c.wake
		return c.build()
	})
	if err != nil {
		return err
	}
	b.wakes.Owe(ctx, owed)
	return nil
}

// ChangeHot is Change for decisions that write an organization's limits, which every claim and
// every end does. Within a process they queue up instead of losing races against one another;
// between processes the versions decide.
func (b *Board) ChangeHot(ctx context.Context, decision func(ctx context.Context, c *Change) error) error {
	select {
	case b.hot <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-b.hot }()
	return b.Change(ctx, decision)
}

// Workflow reads one workflow.
func (b *Board) Workflow(ctx context.Context, org, id string) (record.Workflow, error) {
	if err := record.CheckID(id); err != nil {
		return record.Workflow{}, err
	}
	r, err := b.ledger.Read(ctx, record.WorkflowKey(id))
	if err != nil {
		return record.Workflow{}, ledger.OutOfStore(err)
	}
	w, ok, err := ledger.Get[record.Workflow](r, record.WorkflowKey(id))
	if err == nil && (!ok || w.Org != org) {
		return record.Workflow{}, NoWorkflow(id)
	}
	return w, err
}

// Change collects what one commit does. It holds working copies of the records that were read,
// and names the version of each in the operations that it ends with.
type Change struct {
	*ledger.Change // with the operations of records that are written once

	wfs    map[string]*record.Workflow
	lanes  map[string]*record.Lane
	limits map[store.Key]*record.Limit
	wake   []string // ids of the pools for which work became claimable
	board  *Board

	rearmed bool // the timer was set by hand: leave it
}

// NewChange returns a change of nothing, which is also a way to read.
func (b *Board) NewChange() *Change {
	return &Change{
		Change: b.ledger.NewChange(), board: b,
		wfs: map[string]*record.Workflow{}, lanes: map[string]*record.Lane{}, limits: map[store.Key]*record.Limit{},
	}
}

// DefaultMaxActive is how many runs of a workspace that says nothing may be active at once.
const DefaultMaxActive = 10

// Workflow reads one workflow and its last sign of life. What moving it needs besides is read when it
// is moved.
func (c *Change) Workflow(ctx context.Context, org, id string) (*record.Workflow, error) {
	if err := record.CheckID(id); err != nil {
		return nil, err
	}
	if err := c.Load(ctx, record.WorkflowKey(id), record.BeatKey(id)); err != nil {
		return nil, err
	}
	w, ok, err := ledger.Get[record.Workflow](c.Read, record.WorkflowKey(id))
	if err != nil {
		return nil, err
	}
	if !ok || org != "" && w.Org != org {
		return nil, NoWorkflow(id)
	}
	c.Keep(&w)
	return &w, nil
}

// Keep makes a workflow part of the change: what it is at the end is committed.
func (c *Change) Keep(w *record.Workflow) { c.wfs[w.ID] = w }

// Drop takes a workflow out of the change: its record is not touched, whose version changes only when
// it moves.
func (c *Change) Drop(w *record.Workflow) { delete(c.wfs, w.ID) }

// Wake wakes a pool after the commit.
func (c *Change) Wake(poolID string) { c.wake = append(c.wake, poolID) }

// Prepare reads what moving a workflow needs: its lane and its limits.
func (c *Change) Prepare(ctx context.Context, w *record.Workflow) error {
	return c.Load(ctx, record.LaneKey(w.WorkspaceID), record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID))
}

// NoWorkflow refuses an id that names none.
func NoWorkflow(id string) error {
	return workflow.Refuse(workflow.ErrNotFound, "id", "there is no workflow %s", id)
}

// Lane is the lane of a workspace, which must have been loaded.
func (c *Change) Lane(wsid string) (*record.Lane, error) {
	if l := c.lanes[wsid]; l != nil {
		return l, nil
	}
	l, ok, err := ledger.Get[record.Lane](c.Read, record.LaneKey(wsid))
	if err != nil {
		return nil, err
	}
	if !ok {
		l.Max = DefaultMaxActive
	}
	c.lanes[wsid] = &l
	return &l, nil
}

// Holder is the run that holds the slot of a workspace, with its last sign of life; nil where none does.
func (c *Change) Holder(ctx context.Context, org, wsid string) (*record.Workflow, error) {
	if err := c.Load(ctx, record.LaneKey(wsid)); err != nil {
		return nil, err
	}
	lane, err := c.Lane(wsid)
	if err != nil || lane.Changer == "" {
		return nil, err
	}
	w, err := c.Workflow(ctx, org, lane.Changer)
	if err != nil || !w.SlotHeld {
		return nil, err // it is claimable, and holds nothing yet
	}
	return w, nil
}

// Limit is a count of active workflows, which must have been loaded.
func (c *Change) Limit(k store.Key) (*record.Limit, error) {
	if l := c.limits[k]; l != nil {
		return l, nil
	}
	l, _, err := ledger.Get[record.Limit](c.Read, k)
	if err != nil {
		return nil, err
	}
	c.limits[k] = &l
	return &l, nil
}

// Beat returns the last sign of life of a workflow's run.
func (c *Change) Beat(id string) (record.Beat, error) {
	b, _, err := ledger.Get[record.Beat](c.Read, record.BeatKey(id))
	return b, err
}

// build returns the operations of the whole change; none where nothing changes.
func (c *Change) build() ([]store.Op, error) {
	var checks []store.Op
	save := func(r store.Record) {
		if was := c.Read[r.Key]; string(was.Value) == string(r.Value) {
			// It did not change, but the decision was made on it.
			checks = append(checks, store.Check(r.Key, was.Version))
		} else {
			c.Add(store.Put(r, was.Version))
		}
	}
	for _, w := range c.wfs {
		if !c.rearmed {
			if err := c.timer(w); err != nil {
				return nil, err
			}
		}
		save(record.EncodeWorkflow(w))
	}
	for wsid, l := range c.lanes {
		save(record.Encode(record.LaneKey(wsid), l))
	}
	for k, l := range c.limits {
		save(record.Encode(k, l))
	}
	ops := c.Ops()
	if len(ops) == 0 {
		return nil, nil
	}
	return append(ops, checks...), nil
}
