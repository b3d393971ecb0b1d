// Package queue carries messages at least once: a received message is hidden for a while and
// comes back unless it is deleted. It keeps no order and promises no single delivery; whoever
// receives must be able to bear duplicates.
package queue

import (
	"context"
	"errors"
	"time"
)

// Bounds that every implementation keeps, because SQS does.
const (
	MaxBatch      = 10             // messages in one Receive
	MaxBody       = 256 << 10      // bytes of one body; ours are far below it
	MaxVisibility = 12 * time.Hour // longest time that a message may be hidden
	MaxWait       = 20 * time.Second
)

// ErrStale means that the receipt is no longer the message's latest: it came back and was handed
// out again, or it is gone. The message is untouched.
var ErrStale = errors.New("queue: stale receipt")

// Message is one delivery.
type Message struct {
	ID       string // the same for each delivery of a message
	Body     []byte
	Receipt  string // names this delivery
	Receives int    // how often it was delivered, this one included
}

// Queue is what every implementation provides. Methods may be called concurrently.
type Queue interface {
	// Send adds a message. group names whom it belongs to (a tenant); implementations may use it
	// to keep one group from starving the others.
	Send(ctx context.Context, body []byte, group string) error
	// Receive hands out up to max messages (1 to MaxBatch), hidden for the queue's visibility
	// time-out. It waits up to wait (0 to MaxWait) for the first; none is not an error.
	Receive(ctx context.Context, maxMessages int, wait time.Duration) ([]Message, error)
	// Hide sets how long from now the delivery stays hidden; 0 gives it back at once.
	Hide(ctx context.Context, receipt string, d time.Duration) error
	// Delete ends the message. Deleting one that is gone is no error.
	Delete(ctx context.Context, receipt string) error
	// Depth is the number of messages waiting to be received, which may be approximate.
	Depth(ctx context.Context) (int, error)
}
