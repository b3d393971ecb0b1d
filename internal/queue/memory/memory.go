// Package memory is the queue of one process. Everything is lost when the process ends; the claim leases of the control
// plane repair that. It does redelivery, dead letters and, on demand, duplicates as SQS does, and hands out the messages
// of different groups in turn.
//
// Consistency: every method is one step under one lock. A message whose time has come is moved, to
// the waiting ones or to the dead letters, by the next call that looks at the queue; no goroutine
// runs between calls.
package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// defaultVisibility is how long a received message is hidden where Config says nothing.
const defaultVisibility = 30 * time.Second

// Config says how a queue behaves.
type Config struct {
	Visibility  time.Duration // how long a received message is hidden; 0 means 30 s
	MaxReceives int           // deliveries after which a message is a dead letter; 0 means never
	DeadLetter  *Queue        // where dead letters go, at once receivable; nil drops them
	// Duplicate delivers each message twice, even when the first delivery was deleted: the
	// worst that at-least-once allows. It is for tests of receivers.
	Duplicate bool
}

// Queue is a queue.Queue in memory.
type Queue struct {
	config Config

	mu      sync.Mutex
	changed chan struct{}     // closed, and replaced, whenever a message may have become receivable
	nextID  uint64            // of the next message
	nextKey uint64            // of the next kept copy
	kept    map[uint64]*entry // by key
	hidden  []*entry          // the next to come back first
	groups  map[string][]*entry
	order   []string // groups that have waiting messages, the next to be served first
	waiting int
}

// entry is one kept message: waiting in its group's list, or hidden.
type entry struct {
	key       uint64
	id        string
	group     string
	body      []byte
	receives  int       // also names the delivery: each raises it
	visibleAt time.Time // zero unless hidden
}

// New makes an empty queue.
func New(c Config) (*Queue, error) {
	c.Visibility = cmp.Or(c.Visibility, defaultVisibility)
	if c.Visibility < 0 || c.Visibility > queue.MaxVisibility {
		return nil, workflow.Refuse(workflow.ErrInvalid, "visibility", "a visibility time-out is between 0 and %s, not %s", queue.MaxVisibility, c.Visibility)
	}
	if c.MaxReceives < 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "max_receives", "max receives is not negative")
	}
	return &Queue{config: c, changed: make(chan struct{}), kept: map[uint64]*entry{}, groups: map[string][]*entry{}}, nil
}

// Send implements queue.Queue.
func (q *Queue) Send(ctx context.Context, body []byte, group string) error {
	return errors.Join(q.SendBatch(ctx, []queue.Outgoing{{Body: body, Group: group}})...)
}

// SendBatch implements queue.Queue. Only a message whose body is refused fails.
func (q *Queue) SendBatch(ctx context.Context, messages []queue.Outgoing) []error {
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{fmt.Errorf("send messages: %w", err)}, len(messages))
	}
	if err := queue.CheckBatch(messages); err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var errs []error
	for i, m := range messages {
		if err := m.Check(); err != nil {
			if errs == nil {
				errs = make([]error, len(messages))
			}
			errs[i] = err
			continue
		}
		q.nextID++
		id, body := strconv.FormatUint(q.nextID, 10), bytes.Clone(m.Body)
		q.add(id, body, m.Group, m.Delay)
		if q.config.Duplicate {
			q.add(id, body, m.Group, m.Delay)
		}
	}
	return errs
}

// Receive implements queue.Queue.
func (q *Queue) Receive(ctx context.Context, maxMessages int, longest time.Duration) ([]queue.Message, error) {
	if err := queue.CheckReceive(maxMessages, longest); err != nil {
		return nil, err
	}
	end := time.Now().Add(longest)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("receive messages: %w", err)
		}
		messages, changed, next := q.take(maxMessages, end)
		remaining := time.Until(next)
		if len(messages) > 0 || remaining <= 0 && !next.Before(end) {
			return messages, nil
		}
		_ = wait.Until(ctx, remaining, changed)
	}
}

// take hands out waiting messages. If there are none, it returns a channel for changes, and the time
// at which a hidden message comes back, at most end.
func (q *Queue) take(maxMessages int, end time.Time) ([]queue.Message, <-chan struct{}, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.reveal(now)
	var out []queue.Message
	for len(out) < maxMessages && q.waiting > 0 {
		e := q.pop()
		e.receives++
		q.hide(e, now.Add(q.config.Visibility))
		out = append(out, queue.Message{ID: e.id, Body: bytes.Clone(e.body), Receipt: e.receipt(), Receives: e.receives})
	}
	next := end
	if len(q.hidden) > 0 && q.hidden[0].visibleAt.Before(next) {
		next = q.hidden[0].visibleAt
	}
	return out, q.changed, next
}

// Hide implements queue.Queue. A message that came back but was not handed out again can still be
// hidden by its last receipt.
func (q *Queue) Hide(ctx context.Context, receipt string, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("hide message: %w", err)
	}
	if err := queue.CheckHide(d); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.reveal(now)
	e, latest := q.find(receipt)
	if e == nil || !latest {
		return fmt.Errorf("hide message: %w", queue.ErrStale)
	}
	q.remove(e)
	q.hide(e, now.Add(d))
	q.reveal(now)
	// Waiting receivers must see that the time of the next message has changed.
	q.wake()
	return nil
}

// Delete implements queue.Queue. A receipt of an earlier delivery deletes nothing and is
// queue.ErrStale.
func (q *Queue) Delete(ctx context.Context, receipt string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete message: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reveal(time.Now())
	e, latest := q.find(receipt)
	if e == nil {
		return nil
	}
	if !latest {
		return fmt.Errorf("delete message: %w", queue.ErrStale)
	}
	q.remove(e)
	delete(q.kept, e.key)
	return nil
}

// Depth implements queue.Queue; it is exact.
func (q *Queue) Depth(ctx context.Context) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("count messages: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reveal(time.Now())
	return q.waiting, nil
}

// reveal moves every hidden message whose time has come.
func (q *Queue) reveal(now time.Time) {
	for len(q.hidden) > 0 && !q.hidden[0].visibleAt.After(now) {
		e := q.hidden[0]
		q.remove(e)
		if q.config.MaxReceives > 0 && e.receives >= q.config.MaxReceives {
			delete(q.kept, e.key)
			if q.config.DeadLetter != nil {
				q.config.DeadLetter.bury(e)
			}
			continue
		}
		q.push(e)
	}
}

// bury takes over a message of another queue. A queue is made after its dead letters, and locks are taken in that order
// only, so there is no deadlock.
func (q *Queue) bury(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(e.id, e.body, e.group, 0)
}

func (q *Queue) add(id string, body []byte, group string, delay time.Duration) {
	q.nextKey++
	e := &entry{key: q.nextKey, id: id, group: group, body: body}
	q.kept[e.key] = e
	if delay > 0 {
		q.hide(e, time.Now().Add(delay))
		q.wake() // waiting receivers must see when the next one comes
		return
	}
	q.push(e)
}

// push puts a message at the end of its group.
func (q *Queue) push(e *entry) {
	if q.groups[e.group] == nil {
		q.order = append(q.order, e.group)
	}
	q.groups[e.group] = append(q.groups[e.group], e)
	q.waiting++
	q.wake()
}

// pop takes the first message of the first group, and puts that group last. There must be one.
func (q *Queue) pop() *entry {
	group := q.order[0]
	e := q.groups[group][0]
	q.order = append(q.order[1:], group)
	q.remove(e)
	return e
}

// remove takes a message out of wherever it is; it stays kept.
func (q *Queue) remove(e *entry) {
	if !e.visibleAt.IsZero() {
		q.hidden, e.visibleAt = without(q.hidden, e), time.Time{}
		return
	}
	q.waiting--
	if q.groups[e.group] = without(q.groups[e.group], e); len(q.groups[e.group]) == 0 {
		delete(q.groups, e.group)
		q.order = without(q.order, e.group)
	}
}

func without[T comparable](list []T, one T) []T {
	i := slices.Index(list, one)
	return slices.Delete(list, i, i+1)
}

// hide keeps the hidden messages in the order of their times, after those of the same time. They are few: those that
// are handled now, and those that were given back.
func (q *Queue) hide(e *entry, until time.Time) {
	e.visibleAt = until
	i, _ := slices.BinarySearchFunc(q.hidden, until, func(h *entry, at time.Time) int { return cmp.Or(h.visibleAt.Compare(at), -1) })
	q.hidden = slices.Insert(q.hidden, i, e)
}

func (q *Queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (e *entry) receipt() string {
	return strconv.FormatUint(e.key, 10) + "." + strconv.Itoa(e.receives)
}

// find returns the message that a receipt names, if it is still kept, and whether the receipt is
// that of its latest delivery.
func (q *Queue) find(receipt string) (e *entry, latest bool) {
	name, _, _ := strings.Cut(receipt, ".")
	key, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return nil, false
	}
	e = q.kept[key]
	return e, e != nil && e.receives > 0 && e.receipt() == receipt
}
