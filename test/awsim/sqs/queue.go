package sqs

import (
	"container/heap"
	"container/list"
	"time"
)

// queue is one queue. The service's lock guards it.
type queue struct {
	name       string
	arn        string
	attributes map[string]string // as they were set, with defaults
	visibility time.Duration
	delay      time.Duration
	wait       time.Duration
	retention  time.Duration
	maxSize    int
	redrive    *redrive
	created    time.Time
	modified   time.Time
	purged     time.Time
	duplicate  bool
	moves      []moveTask

	changed  chan struct{} // closed, and replaced, whenever a message may have become receivable
	nextKey  uint64
	kept     map[uint64]*entry // by key
	hidden   hiddenHeap        // in flight or delayed: the next to become visible first
	groups   map[string]*list.List
	turn     list.List // of group names that have visible messages, the next to be served first
	visible  int
	inFlight int
}

// redrive is a queue's RedrivePolicy.
type redrive struct {
	Target      string `json:"deadLetterTargetArn"`
	MaxReceives int    `json:"maxReceiveCount"`
}

// entry is one kept message: visible in its group's list, or hidden.
type entry struct {
	key        uint64
	id         string
	body       string
	group      string
	sender     string
	trace      string
	source     string // ARN of the queue for which it is a dead letter
	attributes map[string]attribute
	sent       time.Time
	received   time.Time // the latest delivery
	first      time.Time // the first delivery
	receives   int       // also names the delivery
	visibleAt  time.Time
	delayed    bool
	index      int           // in hidden, or -1
	place      *list.Element // in its group's list, or nil
}

func (q *queue) add(e *entry, delay time.Duration, now time.Time) {
	q.nextKey++
	e.key, e.index, e.place = q.nextKey, -1, nil
	q.kept[e.key] = e
	if delay > 0 {
		e.delayed = true
		q.hide(e, now.Add(delay))
		return
	}
	q.push(e)
}

// settle makes visible what has waited long enough.
func (q *queue) settle(now time.Time) {
	for len(q.hidden) > 0 && !q.hidden[0].visibleAt.After(now) {
		e := q.hidden[0]
		q.remove(e)
		e.delayed = false
		q.push(e)
	}
}

// push puts a message at the end of its group.
func (q *queue) push(e *entry) {
	g := q.groups[e.group]
	if g == nil {
		g = list.New()
		q.groups[e.group] = g
		q.turn.PushBack(e.group)
	}
	e.place = g.PushBack(e)
	q.visible++
	q.wake()
}

// pop takes the next message of the group whose turn it is: a standard queue with message groups
// keeps a busy group from starving the others ("fair queues"). There is one.
func (q *queue) pop() *entry {
	first := q.turn.Front()
	e := q.groups[first.Value.(string)].Front().Value.(*entry)
	q.turn.MoveToBack(first)
	q.remove(e)
	return e
}

// remove takes a message out of wherever it is; it stays kept.
func (q *queue) remove(e *entry) {
	if e.index >= 0 {
		heap.Remove(&q.hidden, e.index)
		if !e.delayed {
			q.inFlight--
		}
		return
	}
	g := q.groups[e.group]
	g.Remove(e.place)
	e.place = nil
	q.visible--
	if g.Len() > 0 {
		return
	}
	delete(q.groups, e.group)
	for t := q.turn.Back(); t != nil; t = t.Prev() {
		if t.Value == e.group {
			q.turn.Remove(t)
			return
		}
	}
}

func (q *queue) hide(e *entry, until time.Time) {
	e.visibleAt = until
	heap.Push(&q.hidden, e)
	if !e.delayed {
		q.inFlight++
	}
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// purge forgets every message.
func (q *queue) purge() {
	q.kept = map[uint64]*entry{}
	q.hidden = nil
	q.groups = map[string]*list.List{}
	q.turn.Init()
	q.visible, q.inFlight = 0, 0
}

// hiddenHeap is ordered by the time at which a message becomes visible.
type hiddenHeap []*entry

func (h hiddenHeap) Len() int           { return len(h) }
func (h hiddenHeap) Less(i, j int) bool { return h[i].visibleAt.Before(h[j].visibleAt) }
func (h hiddenHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *hiddenHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *hiddenHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
