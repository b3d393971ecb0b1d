package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Change collects the operations of one commit. It has the records that were read, and working copies of some. The
// operations name the version of each record.
type Change struct {
	Now  time.Time
	Read Read

	ledger *Ledger
	view   bool               // it is never committed: see View
	asked  map[store.Key]bool // keys that were read, also those without a record
	ops    []store.Op

	// The working copies. Their final values are committed.
	workflows map[string]*record.Workflow
	known     map[string]*record.Workflow // also those that were dropped
	queues    map[string]*record.Queue    // by the ids of their workspaces
	limits    map[store.Key]*record.Limit
	routes    map[store.Key]*record.Routes

	timerSet bool              // by hand: leave it
	wake     []string          // ids of the pools for which work became claimable
	marked   map[string]string // pools whose mark this change sets, with their wake targets
	freed    []place           // of limits
	events   []string          // organizations with new outbox events
}

// Decision decides what a change does. It may be called many times and must have no effects of its own, except on
// variables that it sets anew each time.
type Decision = func(ctx context.Context, c *Change) error

func (l *Ledger) newChange() *Change {
	return &Change{
		Now: l.Now(), Read: Read{}, ledger: l, asked: map[store.Key]bool{},
		workflows: map[string]*record.Workflow{}, known: map[string]*record.Workflow{}, queues: map[string]*record.Queue{}, limits: map[store.Key]*record.Limit{},
		routes: map[store.Key]*record.Routes{},
	}
}

// View returns a change that is only read from. It is not tried again, so its errors are ones that a caller can act
// on.
func (l *Ledger) View() *Change {
	c := l.newChange()
	c.view = true
	return c
}

// ErrUnchanged ends a decision that finds everything in the requested state: nothing is written then, not even planned
// operations, and that is no error.
var ErrUnchanged = errors.New("nothing to change")

// Change decides and commits one change and then wakes the pools for which it made work claimable. A decision without
// changes writes nothing.
func (l *Ledger) Change(ctx context.Context, decision Decision) error {
	return l.ChangeAfter(ctx, Ahead{}, decision)
}

// ChangeAfter is Change for a decision for which some records were already read.
func (l *Ledger) ChangeAfter(ctx context.Context, before Ahead, decision Decision) error {
	var done *Change
	first := true
	err := l.decide(ctx, func(ctx context.Context) ([]store.Op, error) {
		c := l.newChange()
		done = c
		c.take(before)
		before = Ahead{} // after a lost race it reads again
		if err := decision(ctx, c); err != nil {
			return nil, err
		}
		if first {
			c.mark()
		}
		first = false
		ops, err := c.build()
		if err != nil {
			return nil, err
		}
		return ops, c.expiring(ctx, ops)
	})
	if errors.Is(err, ErrUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	for id := range done.workflows {
		l.moved(id)
	}
	l.owe(ctx, append(done.wake, l.waitFor(ctx, done.freed, maxWoken-len(done.wake))...), done.marked)
	l.notify(ctx, done.events)
	return nil
}

// ChangeHot is ChangeAfter for decisions that write an organization's limits, as every claim does. Within a process
// such changes wait in line instead of losing races against each other; between processes the versions decide.
func (l *Ledger) ChangeHot(ctx context.Context, before Ahead, decision Decision) error {
	select {
	case l.hot <- struct{}{}:
	default:
		before = Ahead{} // those before it in line change the limits
		select {
		case l.hot <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-l.hot }()
	return l.ChangeAfter(ctx, before, decision)
}

// Ahead has records that were read for several decisions at once. The zero value has none.
type Ahead struct {
	Read Read
	keys []store.Key
}

// ReadAhead reads keys for the decisions that follow. If it fails, the decisions read for themselves and report the
// error.
func (l *Ledger) ReadAhead(ctx context.Context, keys ...store.Key) Ahead {
	r, err := l.Read(ctx, keys...)
	if err != nil {
		return Ahead{}
	}
	return Ahead{r, keys}
}

// take adds records that were read just before the change began, as if Load had read them.
func (c *Change) take(before Ahead) {
	for _, k := range before.keys {
		c.asked[k] = true
		if rec, ok := before.Read[k]; ok {
			c.Read[k] = rec
		}
	}
}

// Load reads keys that were not read yet: the commit names the versions that the decision was made on.
func (c *Change) Load(ctx context.Context, keys ...store.Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k store.Key) bool { return c.asked[k] })
	for part := range slices.Chunk(keys, store.MaxGet) {
		records, err := c.ledger.store.Get(ctx, part...)
		if err != nil {
			return c.readError(fmt.Errorf("read records: %w", err))
		}
		for _, r := range records {
			c.Read[r.Key] = r
		}
	}
	for _, k := range keys {
		c.asked[k] = true
	}
	return nil
}

// readError makes of a read's error one that the reader can act on. A decision that is tried again keeps the store's
// error.
func (c *Change) readError(err error) error {
	if c.view {
		return outOfStore(err)
	}
	return err
}

// Range reads a partition. The commit does not name the records that it returns: see store.Store.
func (c *Change) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	page, err := c.ledger.store.Range(ctx, s)
	if err != nil {
		err = c.readError(fmt.Errorf("read %s from %q: %w", s.Part, s.From, err))
	}
	return page, err
}

// Ranges is Range for several scans; together they are not a snapshot.
func (c *Change) Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error) {
	if several, ok := c.ledger.store.(ranger); ok {
		pages, err := several.Ranges(ctx, scans...)
		return pages, c.readError(err)
	}
	pages := make([]store.Page, len(scans))
	for i, s := range scans {
		var err error
		if pages[i], err = c.Range(ctx, s); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// All goes through the records of a scan, page by page. It ends with the first error.
func (c *Change) All(ctx context.Context, s store.Scan) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		for {
			page, err := c.Range(ctx, s)
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, r := range page.Records {
				if !yield(r, nil) {
					return
				}
			}
			if s.After = page.Next; s.After == "" {
				return
			}
		}
	}
}

// AllOf decodes the records of a scan, page by page. It ends with the first error.
func AllOf[T any](ctx context.Context, c *Change, s store.Scan) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for r, err := range c.All(ctx, s) {
			var v T
			if err == nil {
				v, err = record.Decode[T](r)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Version is the version that the commit must name for a key: 0 if there was no record.
func (c *Change) Version(k store.Key) int64 { return c.Read.Version(k) }

// At refuses a change of a record that has another version than the one that its caller has seen; 0 means that the caller
// names none. what names the record to people.
func (c *Change) At(k store.Key, version int64, what string) error {
	if version != 0 && version != c.Version(k) {
		return workflow.Refuse(workflow.ErrConflict, "version", "the %s was changed by someone else: it has version %d now", what, c.Version(k))
	}
	return nil
}

// Alters says whether the planned operations change one of the records, which were read.
func (c *Change) Alters(keys ...store.Key) bool {
	return slices.ContainsFunc(c.ops, func(op store.Op) bool {
		return slices.Contains(keys, op.Key()) && (op.IsDelete() || op.IsPut() && !bytes.Equal(op.Record().Value, c.Read[op.Key()].Value))
	})
}

// Put writes a record in place of the one that was read.
func (c *Change) Put(k store.Key, v any) { c.PutUntil(k, v, time.Time{}) }

// PutUntil is Put for a record that the store may drop after a time; the zero time means never.
func (c *Change) PutUntil(k store.Key, v any, expires time.Time) {
	c.Forget(k) // a check of the same record, or an earlier value
	r := record.Encode(k, v)
	if !expires.IsZero() {
		r.Expires = expires.Unix()
	}
	c.Add(store.Put(r, c.Version(k)))
}

// Create writes a record that must not exist.
func (c *Change) Create(k store.Key, v any) {
	c.Add(store.Put(record.Encode(k, v), store.Absent))
}

// Remove deletes a record that was read, if there was one.
func (c *Change) Remove(k store.Key) {
	if v := c.Version(k); v != store.Absent {
		c.Add(store.Delete(k, v))
	}
}

// RemoveOnce deletes a record that is never changed between its creation and its deletion: it need not be read first.
func (c *Change) RemoveOnce(k store.Key) { c.Add(store.Delete(k, 1)) }

// Forget removes the planned operations on a record.
func (c *Change) Forget(k store.Key) {
	c.ops = slices.DeleteFunc(c.ops, func(op store.Op) bool { return op.Key() == k })
}

// plans says whether the change has an operation on a record.
func (c *Change) plans(k store.Key) bool {
	return slices.ContainsFunc(c.ops, func(op store.Op) bool { return op.Key() == k })
}

// Check makes the commit fail if a record that was read has changed. An operation on that record does the same, so
// Check adds nothing then.
func (c *Change) Check(k store.Key) {
	if !c.plans(k) {
		c.Add(store.Check(k, c.Version(k)))
	}
}

// Tree makes the change one of those that depend on the whole tree of projects: the commit fails if another of them
// was committed meanwhile. It is called before any read of the tree.
func (c *Change) Tree(ctx context.Context, org string) error {
	k := record.TreeKey(org)
	if err := c.Load(ctx, k); err != nil {
		return err
	}
	c.Put(k, record.Tree{Changed: c.Now})
	return nil
}

// Missing reads workspaces and projects that a record begins to name, and returns the key of the first that does not
// exist; missing says whether there is one. None of them is deleted before the commit: a deletion depends on the
// tree, as this change does from then on.
func (c *Change) Missing(ctx context.Context, org string, keys ...store.Key) (k store.Key, missing bool, err error) {
	if len(keys) == 0 {
		return k, false, nil
	}
	if err := c.Tree(ctx, org); err != nil {
		return k, false, err
	}
	if err := c.Load(ctx, keys...); err != nil {
		return k, false, err
	}
	for _, k := range keys {
		if c.Version(k) == store.Absent {
			return k, true, nil
		}
	}
	return k, false, nil
}

// Once makes the change the one of an Idempotency-Key: result is the id of the object that it makes. If the same
// request was served under that key before, it returns the id of that time. Without a key it does nothing.
func (c *Change) Once(ctx context.Context, org, who, key, request, result string) (before string, err error) {
	if key == "" {
		return "", nil
	}
	k := record.IdempotencyKey(org, who, key)
	used, ok, err := Load[record.Idempotency](ctx, c, k)
	switch {
	case err != nil:
		return "", err
	case ok && used.Request != request:
		return "", workflow.Refuse(workflow.ErrKeyReused, "Idempotency-Key", "this idempotency key was used for another request; use a new one")
	case ok:
		return used.Result, nil
	}
	c.PutUntil(k, record.Idempotency{Request: request, Result: result}, c.Now.Add(record.IdempotencyKept))
	return "", nil
}

// Add adds an operation.
func (c *Change) Add(op store.Op) { c.ops = append(c.ops, op) }

// Ops returns the operations so far.
func (c *Change) Ops() []store.Op { return c.ops }

// Workflow reads one workflow and its last sign of life, with the other records that the call needs, and makes it
// part of the change: its final value is committed. The other records of a move are read when it moves. An empty org
// means any.
func (c *Change) Workflow(ctx context.Context, org, id string, more ...store.Key) (*record.Workflow, error) {
	if err := record.CheckID(id); err != nil {
		return nil, err
	}
	k := record.WorkflowKey(id)
	if err := c.Load(ctx, append(more, k, record.BeatKey(id))...); err != nil {
		return nil, err
	}
	w, ok, err := Get[record.Workflow](c.Read, k)
	if err != nil {
		return nil, err
	}
	if !ok || org != "" && w.Org != org {
		return nil, NoWorkflow(id)
	}
	if err := c.ledger.kept(ctx, &w); err != nil {
		return nil, err
	}
	c.Keep(&w)
	return &w, nil
}

// Keep makes a workflow part of the change.
func (c *Change) Keep(w *record.Workflow) { c.workflows[w.ID], c.known[w.ID] = w, w }

// Drop takes a workflow out of the change: its record is not written. The version changes only when the workflow
// moves.
func (c *Change) Drop(w *record.Workflow) { delete(c.workflows, w.ID) }

// Beat returns the last sign of life of a workflow's run.
func (c *Change) Beat(id string) (record.Beat, error) {
	b, _, err := Get[record.Beat](c.Read, record.BeatKey(id))
	return b, err
}

// Wake wakes a pool after the commit.
func (c *Change) Wake(poolID string) { c.wake = append(c.wake, poolID) }

// build returns the operations of the whole change; none if nothing changes.
func (c *Change) build() ([]store.Op, error) {
	var checks []store.Op
	save := func(r store.Record) {
		if was := c.Read[r.Key]; string(was.Value) == string(r.Value) {
			// It has not changed, but the decision was made on it.
			checks = append(checks, store.Check(r.Key, was.Version))
		} else {
			c.Add(store.Put(r, was.Version))
		}
	}
	for _, w := range c.workflows {
		if !c.timerSet {
			if err := c.timer(w); err != nil {
				return nil, err
			}
		}
		save(record.EncodeWorkflow(w))
	}
	for wsid, q := range c.queues {
		save(record.Encode(record.QueueKey(wsid), q))
	}
	for k, limit := range c.limits {
		save(record.Encode(k, limit))
	}
	for k, r := range c.routes {
		if v := c.Version(k); v == store.Absent && r.Zero() {
			checks = append(checks, store.Check(k, v))
		} else {
			save(record.Encode(k, r))
		}
	}
	if len(c.ops) == 0 {
		return nil, nil
	}
	return append(c.ops, checks...), nil
}
