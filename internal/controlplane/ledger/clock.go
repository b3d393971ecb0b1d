package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
)

const (
	clockKept = 10 * time.Second // how long a read of the clocks stays valid
	noteEvery = 20 * time.Second // how often a call of a pool is written down
)

// clock caches the service clock and the pools' clocks for a process. Only passes move the service clock on. Between
// them each process extrapolates, and its cache may be clockKept old: a stamp is too early by at most that.
type clock struct {
	mu    sync.Mutex
	first bool // the first pass of a process that makes all of them is still to come
	known map[store.Key]known

	noting sync.Map // ids of the pools whose calls are being written down
}

// keep caches a record.
func (c *clock) keep(now time.Time, r store.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[r.Key] = known{r, now}
}

// has says whether a record was read just now.
func (c *clock) has(now time.Time, k store.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.known[k]
	age := now.Sub(kept.at)
	return ok && age >= 0 && age < clockKept
}

// wrote forgets the organizations that a commit has written: this process uses their new settings at once.
func (c *clock) wrote(ops []store.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range ops {
		if op.Key().Part == record.OrganizationKey("").Part {
			delete(c.known, op.Key())
		}
	}
}

type known struct {
	rec store.Record // without a value if there is none
	at  time.Time
}

// recent returns the records of keys as they were at most clockKept ago.
func (l *Ledger) recent(ctx context.Context, now time.Time, keys ...store.Key) (Read, bool, error) {
	l.clock.mu.Lock()
	out, fresh, first := Read{}, true, l.clock.first
	for _, k := range keys {
		kept, ok := l.clock.known[k]
		age := now.Sub(kept.at)
		fresh = fresh && ok && age >= 0 && age < clockKept
		if kept.rec.Value != nil {
			out[k] = kept.rec
		}
	}
	l.clock.mu.Unlock()
	if fresh {
		return out, first, nil
	}
	out, err := l.Read(ctx, keys...)
	if err != nil {
		return nil, false, err
	}
	for _, k := range keys {
		l.clock.keep(now, store.Record{Key: k, Value: out[k].Value})
	}
	return out, first, nil
}

// time is the moment of now on all clocks, for the runs of a pool, and the pool's last noted call.
func (l *Ledger) time(ctx context.Context, now time.Time, poolID string) (t rules.Time, h record.PoolCall, err error) {
	k := record.PoolCallKey(poolID)
	r, first, err := l.recent(ctx, now, record.ClockKey(), k)
	if err != nil {
		return t, h, err
	}
	c, _, err := Get[record.Clock](r, record.ClockKey())
	if err != nil {
		return t, h, err
	}
	t.Now, t.Service = now, rules.Advance(c, now, first).Service
	h, _, err = Get[record.PoolCall](r, k)
	t.Lag = rules.Lag(h, t.Service)
	return t, h, err
}

// Time returns the moment of the change on all clocks, for the runs of a pool.
func (c *Change) Time(ctx context.Context, poolID string) (rules.Time, error) {
	t, _, err := c.ledger.time(ctx, c.Now, poolID)
	return t, err
}

// Called is Time for a call of the pool, which it notes.
func (c *Change) Called(ctx context.Context, poolID string) (rules.Time, error) {
	c.ledger.NotePoolCall(ctx, c.Now, poolID)
	return c.Time(ctx, poolID)
}

// Tick moves the service clock on, as each pass does, and returns its time.
func (l *Ledger) Tick(ctx context.Context) (time.Time, error) {
	l.clock.mu.Lock()
	first := l.clock.first
	l.clock.mu.Unlock()
	var c record.Clock
	k, now := record.ClockKey(), time.Time{}
	err := l.Change(ctx, func(ctx context.Context, ch *Change) error {
		var err error
		c, _, err = Load[record.Clock](ctx, ch, k)
		now = ch.Now
		c = rules.Advance(c, now, first)
		ch.Put(k, c)
		return err
	})
	if err != nil {
		return c.Service, err
	}
	l.clock.keep(now, record.Encode(k, c))
	l.clock.mu.Lock()
	defer l.clock.mu.Unlock()
	l.clock.first = false
	return c.Service, nil
}

// PoolCallKeys are the records that NotePoolCall reads; none if this process has read them just now.
func (l *Ledger) PoolCallKeys(poolID string) []store.Key {
	if l.clock.has(l.Now(), record.PoolCallKey(poolID)) {
		return nil
	}
	return []store.Key{record.ClockKey(), record.PoolCallKey(poolID)}
}

// NotePoolCall adds a call of a pool to a change, unless one was noted a short time ago.
func (c *Change) NotePoolCall(ctx context.Context, poolID string) error {
	k := record.PoolCallKey(poolID)
	if err := c.Load(ctx, record.ClockKey(), k); err != nil {
		return err
	}
	clock, _, err := Get[record.Clock](c.Read, record.ClockKey())
	h, ok, err2 := Get[record.PoolCall](c.Read, k)
	if err := errors.Join(err, err2); err != nil {
		c.ledger.Log.Error("unreadable record skipped", "err", err)
		return nil
	}
	l := c.ledger
	l.clock.mu.Lock()
	first := l.clock.first
	l.clock.mu.Unlock()
	now := rules.Advance(clock, c.Now, first).Service
	if ok && now.Sub(h.At) < noteEvery {
		return nil
	}
	noted := record.Encode(k, rules.NextPoolCall(h, now))
	c.Add(store.Put(noted, c.Version(k)))
	l.clock.keep(c.Now, noted) // if the commit fails, it is noted some seconds later
	return nil
}

// NotePoolCall notes a call of a pool. If that fails, some silence of the pool's runs is excused that need not be.
func (l *Ledger) NotePoolCall(ctx context.Context, now time.Time, poolID string) {
	t, h, err := l.time(ctx, now, poolID)
	if err != nil || !h.At.IsZero() && t.Service.Sub(h.At) < noteEvery {
		return
	}
	if _, busy := l.clock.noting.LoadOrStore(poolID, true); busy {
		return // another call of this process is doing it
	}
	defer l.clock.noting.Delete(poolID)
	_ = l.Change(ctx, func(ctx context.Context, c *Change) error { return c.NotePoolCall(ctx, poolID) })
}
