package ecs

import (
	"sync"
	"time"
)

// outbox delivers events one at a time, in their order but for those that are delayed.
type outbox struct {
	service *Service
	deliver func([]byte)

	mu      sync.Mutex
	how     func(version int64, event []byte) Delivery
	waiting [][]byte
	busy    bool
}

func (o *outbox) set(how func(int64, []byte) Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.how = how
}

// add takes an event. It does not wait.
func (o *outbox) add(version int64, event []byte) {
	if o.deliver == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	d := o.how(version, event)
	if d.Copies < 1 {
		return
	}
	if d.Delay > 0 {
		o.service.running.Go(func() {
			if o.service.wait(d.Delay, nil) {
				o.put(event, d.Copies)
			}
		})
		return
	}
	o.append(event, d.Copies)
}

func (o *outbox) put(event []byte, copies int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.append(event, copies)
}

// append queues an event and sees to it that somebody delivers. The lock is held.
func (o *outbox) append(event []byte, copies int) {
	for range copies {
		o.waiting = append(o.waiting, event)
	}
	if !o.busy {
		o.busy = true
		o.service.running.Go(o.drain)
	}
}

func (o *outbox) drain() {
	for {
		o.mu.Lock()
		if len(o.waiting) == 0 {
			o.busy = false
			o.mu.Unlock()
			return
		}
		event := o.waiting[0]
		o.waiting = o.waiting[1:]
		o.mu.Unlock()
		o.deliver(event)
	}
}

// Late is a Delivery of one copy after d.
func Late(d time.Duration) Delivery { return Delivery{Copies: 1, Delay: d} }
