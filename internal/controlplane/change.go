package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A change collects what one commit does. It holds working copies of the records that were read,
// and names the version of each in the operations that it ends with.
type change struct {
	*ledger.Change // with the operations of records that are written once
	p              *Plane

	wfs    map[string]*record.Workflow
	lanes  map[string]*record.Lane
	limits map[store.Key]*record.Limit
	wake   []string // ids of the pools for which work became claimable

	rearmed bool // the timer was set by hand: leave it
}

func (p *Plane) newChange() *change {
	return &change{
		Change: p.ledger.NewChange(), p: p,
		wfs: map[string]*record.Workflow{}, lanes: map[string]*record.Lane{}, limits: map[store.Key]*record.Limit{},
	}
}

// workflow reads one workflow and its last sign of life. What moving it needs besides is read when it
// is moved.
func (c *change) workflow(ctx context.Context, org, id string) (*record.Workflow, error) {
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
		return nil, noWorkflow(id)
	}
	c.wfs[id] = &w
	return &w, nil
}

// prepare reads what moving a workflow needs: its lane and its limits.
func (c *change) prepare(ctx context.Context, w *record.Workflow) error {
	return c.Load(ctx, record.LaneKey(w.WorkspaceID), record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID))
}

func noWorkflow(id string) error {
	return workflow.Refuse(workflow.ErrNotFound, "id", "there is no workflow %s", id)
}

func (c *change) lane(wsid string) (*record.Lane, error) {
	if l := c.lanes[wsid]; l != nil {
		return l, nil
	}
	l, ok, err := ledger.Get[record.Lane](c.Read, record.LaneKey(wsid))
	if err != nil {
		return nil, err
	}
	if !ok {
		l.Max = defaultMaxActive
	}
	c.lanes[wsid] = &l
	return &l, nil
}

func (c *change) limit(k store.Key) (*record.Limit, error) {
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

// beat returns the last sign of life of a workflow's run.
func (c *change) beat(id string) (time.Time, error) {
	b, _, err := ledger.Get[record.Beat](c.Read, record.BeatKey(id))
	return b.At, err
}

// event appends to a workflow's timeline.
func (c *change) event(w *record.Workflow, kind, text string, more ...func(*api.Event)) {
	w.Seq++
	e := api.Event{Seq: w.Seq, At: c.Now, Kind: kind, Attempt: w.Attempt, Text: record.Cut(text, 1000)}
	for _, m := range more {
		m(&e)
	}
	c.Create(record.EventKey(w.ID, w.Seq), e)
}

func byTask(ref string) func(*api.Event)   { return func(e *api.Event) { e.Task = ref } }
func byActor(name string) func(*api.Event) { return func(e *api.Event) { e.Actor = name } }

// recordDetail is how much of the detail of an end its record keeps; the result beside it has all of
// it.
const recordDetail = 200

// move applies a move of the table to a workflow and everything that hangs on it. proven says
// that nothing of the run is left that could act on the workspace's state.
func (c *change) move(ctx context.Context, w *record.Workflow, m workflow.Move, detail string, proven bool) error {
	if m.From != w.State {
		return fmt.Errorf("move of %s from %s, which is %s", w.ID, m.From, w.State)
	}
	w.State, w.Reason, w.Detail, w.Since = m.To, m.Reason, record.Cut(detail, recordDetail), c.Now
	if m.Lapse {
		w.Lapses++
	}
	if m.To == workflow.Pending || m.To.Terminal() {
		if err := c.prepare(ctx, w); err != nil {
			return err
		}
	}
	switch m.To {
	case workflow.Pending:
		return c.requeue(w)
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		w.Ended = c.Now
		if m.From == workflow.Pending {
			return c.unqueue(ctx, w)
		}
		if w.ChangesState() && w.SlotHeld && !proven && !mutate.On(mutate.EarlySlot) { // see package mutate
			return nil // it stays active until its end is proven
		}
		return c.retire(ctx, w)
	case workflow.Claimed, workflow.Running:
	}
	return nil
}

// requeue makes a claimed or running workflow claimable again. It keeps its place in its lane.
func (c *change) requeue(w *record.Workflow) error {
	w.SlotHeld = false
	w.Lease, w.Tasks, w.Instance, w.HandedOver = time.Time{}, nil, "", time.Time{}
	c.Create(w.ClaimKey(), w.Entry())
	c.wake = append(c.wake, w.PoolID)
	return c.deactivate(w)
}

// unqueue takes a pending workflow out of the claimable index, or out of the waiting list.
func (c *change) unqueue(ctx context.Context, w *record.Workflow) error {
	claimable, waiting := w.ClaimKey(), w.WaitKey()
	if err := c.Load(ctx, claimable, waiting); err != nil {
		return err
	}
	lane, err := c.lane(w.WorkspaceID)
	if err != nil {
		return err
	}
	if _, ok := c.Read[claimable]; ok {
		c.Remove(claimable, ledger.Once)
		leave(lane, w)
		return c.promote(ctx, w)
	}
	c.Remove(waiting, ledger.Once)
	if w.ChangesState() {
		lane.WaitC--
	} else {
		lane.WaitO--
	}
	return nil
}

// retire ends a workflow's being active: the limits, its slot or place, and whoever waits for it.
func (c *change) retire(ctx context.Context, w *record.Workflow) error {
	if err := c.prepare(ctx, w); err != nil {
		return err
	}
	if err := c.deactivate(w); err != nil {
		return err
	}
	if w.ChangesState() && !w.SlotHeld {
		return nil // its slot was freed before
	}
	return c.freeLane(ctx, w)
}

// freeLane gives a workflow's slot or place to whoever waits for it.
func (c *change) freeLane(ctx context.Context, w *record.Workflow) error {
	if err := c.prepare(ctx, w); err != nil {
		return err
	}
	w.SlotHeld = false
	lane, err := c.lane(w.WorkspaceID)
	if err != nil {
		return err
	}
	leave(lane, w)
	return c.promote(ctx, w)
}

func (c *change) deactivate(w *record.Workflow) error {
	if !w.Active {
		return nil
	}
	w.Active = false
	c.Remove(record.ActiveKey(w.PoolID, w.ID), ledger.Once)
	for _, k := range []store.Key{record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID)} {
		l, err := c.limit(k)
		if err != nil {
			return err
		}
		l.Active--
		n := min(len(l.Cut), wake.Most)
		c.wake = append(c.wake, l.Cut[:n]...)
		l.Cut = slices.Clone(l.Cut[n:])
	}
	return nil
}

func (c *change) activate(w *record.Workflow) error {
	w.Active = true
	c.Create(record.ActiveKey(w.PoolID, w.ID), record.Active{Instance: w.Instance})
	for _, k := range []store.Key{record.OrganizationLimitKey(w.Org), record.PoolLimitKey(w.Org, w.PoolID)} {
		l, err := c.limit(k)
		if err != nil {
			return err
		}
		l.Active++
	}
	return nil
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

// promote makes claimable what now has room in the lane of w, best rank first.
func (c *change) promote(ctx context.Context, w *record.Workflow) error {
	lane, err := c.lane(w.WorkspaceID)
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
				if heads[list.prefix], err = c.waiters(ctx, w.WorkspaceID, list.prefix, most); err != nil {
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
		c.wake = append(c.wake, next.entry.PoolID)
	}
	return nil
}

func (c *change) waiters(ctx context.Context, wsid, prefix string, n int) ([]waiter, error) {
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

// timer moves the entry of a workflow in the timers to where the next thing is due.
func (c *change) timer(w *record.Workflow) error {
	beat, err := c.beat(w.ID)
	if err != nil {
		return err
	}
	at := int64(0)
	if next := nextDue(w, beat, time.Time{}); !next.IsZero() {
		at = next.UnixMilli() + 1
	}
	if at == w.Timer {
		return nil
	}
	if w.Timer != 0 {
		c.Remove(record.TimerKey(w.Org, w.Timer, w.ID), ledger.Once)
	}
	if at != 0 {
		c.Create(record.TimerKey(w.Org, at, w.ID), record.Name{ID: w.ID})
	}
	w.Timer = at
	return nil
}

// build returns the operations of the whole change; none where nothing changes.
func (c *change) build() ([]store.Op, error) {
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

// change decides and commits one change and then wakes whom it made work claimable for. A decision
// that changes nothing writes nothing.
func (p *Plane) change(ctx context.Context, decision func(ctx context.Context, c *change) error) error {
	var owed []string
	err := p.ledger.Decide(ctx, func(ctx context.Context) ([]store.Op, error) {
		c := p.newChange()
		if err := decision(ctx, c); err != nil {
			return nil, err
		}
		owed = c.wake
		return c.build()
	})
	if err != nil {
		return err
	}
	p.wakes.Owe(ctx, owed)
	return nil
}

// changeHot is change for decisions that write an organization's limits, which every claim and
// every end does. Within a process they queue up instead of losing races against one another;
// between processes the versions decide.
func (p *Plane) changeHot(ctx context.Context, decision func(ctx context.Context, c *change) error) error {
	select {
	case p.hot <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.hot }()
	return p.change(ctx, decision)
}
