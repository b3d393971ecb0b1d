package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Change collects what one commit does: what was read, and the operations that name the versions of
// that.
type Change struct {
	Now  time.Time
	Read Read

	ledger *Ledger
	asked  map[store.Key]bool // what was read, also where there was nothing
	ops    []store.Op
}

// NewChange returns a change without operations, which is also a way to read.
func (l *Ledger) NewChange() *Change {
	return &Change{Now: l.Now(), Read: Read{}, ledger: l, asked: map[store.Key]bool{}}
}

// Change decides and commits one change. A decision that changes nothing writes nothing.
func (l *Ledger) Change(ctx context.Context, decision func(ctx context.Context, c *Change) error) error {
	return l.Decide(ctx, func(ctx context.Context) ([]store.Op, error) {
		c := l.NewChange()
		err := decision(ctx, c)
		return c.ops, err
	})
}

// Ops returns the operations so far.
func (c *Change) Ops() []store.Op { return c.ops }

// Range reads a partition. What it returns is not what the commit names: see store.Store.
func (c *Change) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	return c.ledger.Range(ctx, s)
}

// Ranges is Range for several partitions.
func (c *Change) Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error) {
	return c.ledger.Ranges(ctx, scans...)
}

// Load reads keys that were not read yet: what was decided on stays what the commit names.
func (c *Change) Load(ctx context.Context, keys ...store.Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k store.Key) bool { return c.asked[k] })
	if len(keys) == 0 {
		return nil
	}
	r, err := c.ledger.Read(ctx, keys...)
	if err != nil {
		return err
	}
	for _, k := range keys {
		c.asked[k] = true
	}
	for k, rec := range r {
		c.Read[k] = rec
	}
	return nil
}

// Take adds what was read of keys just before the change was begun, as if Load had read it. It is for the first try
// of a decision: the one after a lost race must read anew.
func (c *Change) Take(r Read, keys ...store.Key) {
	for _, k := range keys {
		c.asked[k] = true
		if rec, ok := r[k]; ok {
			c.Read[k] = rec
		}
	}
}

// Version is what the commit must name for a key: 0 where there was no record.
func (c *Change) Version(k store.Key) int64 { return c.Read.Version(k) }

// Put writes a record in place of what was read.
func (c *Change) Put(k store.Key, v any) {
	c.Add(store.Put(record.Encode(k, v), c.Version(k)))
}

// Create writes a record that must not be there.
func (c *Change) Create(k store.Key, v any) {
	c.Add(store.Put(record.Encode(k, v), store.Absent))
}

// Remove deletes a record.
func (c *Change) Remove(k store.Key, version int64) { c.Add(store.Delete(k, version)) }

// Forget takes back what was to be done with a record.
func (c *Change) Forget(k store.Key) {
	c.ops = slices.DeleteFunc(c.ops, func(op store.Op) bool { return op.Key() == k })
}

// Check makes the commit fail where a record that was read has changed. An operation on it that is there already
// does so.
func (c *Change) Check(k store.Key) {
	if !slices.ContainsFunc(c.ops, func(op store.Op) bool { return op.Key() == k }) {
		c.Add(store.Check(k, c.Version(k)))
	}
}

// Add adds an operation.
func (c *Change) Add(op store.Op) { c.ops = append(c.ops, op) }

// Once is the version of a record that is made, never changed and deleted.
const Once int64 = 1
