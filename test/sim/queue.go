package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/queue"
)

// visibility is how long a received message stays hidden.
const visibility = 30 * time.Second

// simQueue is a queue that delivers at least once and in any order. Every copy of a message wakes the dispatchers
// when its time comes.
type simQueue struct {
	w       *world
	s       *stack
	n       int
	copies  []*copied
	doubles int           // messages that come twice
	poison  int           // messages that become dead letters, some of them after they were handled
	delays  int           // messages that come late
	delay   time.Duration // by so much
}

type copied struct {
	id       string
	body     []byte
	at       time.Duration // when it can be received
	receives int
	key      int
}

// sender is the queue as one process of the poller sees it.
type sender struct {
	*simQueue
	p *process
}

// SendBatch implements poller.Queue.
func (q sender) SendBatch(ctx context.Context, messages []queue.Outgoing) []error {
	err := tells(ctx, q.w, q.p, queues, "send", func(context.Context) error {
		for _, m := range messages {
			q.send(m.Body, m.Delay)
		}
		return nil
	})
	if err == nil {
		return nil
	}
	errs := make([]error, len(messages))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (q *simQueue) send(body []byte, delay time.Duration) {
	q.w.guard.scan("a message", string(body))
	q.n++
	id := fmt.Sprint(q.n)
	late := delay + between(q.w.roll("message", q.w.clock), 10*time.Millisecond, 2*time.Second)
	if q.poison > 0 {
		q.poison--
		r := q.w.roll("poison", q.w.clock)
		q.s.bury(slices.Clone(body), 200, between(r, time.Second, 20*time.Minute))
		if r.IntN(3) > 0 {
			return
		}
	}
	if q.delays > 0 {
		q.delays--
		late += q.delay
	}
	q.put(id, body, late)
	if q.doubles > 0 {
		q.doubles--
		q.put(id, body, late+between(q.w.roll("double", q.w.clock), 0, 20*time.Minute))
	}
}

func (q *simQueue) put(id string, body []byte, in time.Duration) {
	q.n++
	c := &copied{id: id, body: slices.Clone(body), key: q.n}
	q.copies = append(q.copies, c)
	q.show(c, in)
}

// show makes a copy receivable after a while.
func (q *simQueue) show(c *copied, in time.Duration) {
	c.at = q.w.clock + in
	q.w.after(in, "message", func() {
		if slices.Contains(q.copies, c) && c.at <= q.w.clock {
			q.s.deliver()
		}
	})
}

// Depth implements poller.Queue.
func (q sender) Depth(ctx context.Context) (int, error) {
	return ask(ctx, q.w, q.p, queues, "depth", func(context.Context) (int, error) {
		n := 0
		for _, c := range q.copies {
			if c.at <= q.w.clock {
				n++
			}
		}
		return n, nil
	})
}

// receiver is the queue as one process of the dispatcher sees it.
type receiver struct {
	*simQueue
	p *process
}

// Receive implements dispatcher.Queue.
func (q receiver) Receive(ctx context.Context, most int, _ time.Duration) ([]queue.Message, error) {
	return ask(ctx, q.w, q.p, queues, "receive", func(context.Context) ([]queue.Message, error) {
		var out []queue.Message
		for _, c := range q.copies {
			if c.at > q.w.clock || len(out) == most {
				continue
			}
			c.receives++
			q.show(c, visibility)
			out = append(out, queue.Message{ID: c.id, Body: slices.Clone(c.body), Receipt: c.receipt(), Receives: c.receives})
		}
		r := q.w.roll("order", q.w.clock)
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out, nil
	})
}

func (c *copied) receipt() string { return fmt.Sprintf("%d.%d", c.key, c.receives) }

// Hide implements dispatcher.Queue.
func (q receiver) Hide(ctx context.Context, receipt string, d time.Duration) error {
	return tells(ctx, q.w, q.p, queues, "hide", func(context.Context) error {
		for _, c := range q.copies {
			if c.receipt() == receipt {
				q.show(c, d)
				return nil
			}
		}
		return queue.ErrStale
	})
}

// Delete implements dispatcher.Queue.
func (q receiver) Delete(ctx context.Context, receipt string) error {
	return tells(ctx, q.w, q.p, queues, "delete", func(context.Context) error {
		key, _, _ := strings.Cut(receipt, ".")
		for i, c := range q.copies {
			if c.receipt() == receipt {
				q.copies = slices.Delete(q.copies, i, i+1)
				return nil
			}
			if fmt.Sprint(c.key) == key {
				return queue.ErrStale
			}
		}
		return nil
	})
}
