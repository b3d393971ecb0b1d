// Package queue delivers messages at least once: a received message is hidden for a while and
// comes back unless it is deleted. It keeps no order and promises no single delivery; receivers
// must tolerate duplicates.
package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds that every implementation keeps, because SQS does.
const (
	MaxBatch      = 10               // messages in one Receive or SendBatch
	MaxBody       = 1 << 20          // bytes of one body (Amazon SQS Developer Guide, Amazon SQS message quotas)
	MaxVisibility = 12 * time.Hour   // longest time that a message may be hidden
	MaxDelay      = 15 * time.Minute // longest time that a message may be hidden at first
	MaxWait       = 20 * time.Second
)

// ErrStale means that the receipt no longer holds the message: it came back (and may have been handed
// out again), or it is gone. The message is untouched.
var ErrStale = errors.New("queue: stale receipt")

// Message is one delivery.
type Message struct {
	ID       string // the same for each delivery of a message
	Body     []byte
	Receipt  string // names this delivery
	Receives int    // how often it was delivered, this one included
}

// Outgoing is one message to send.
type Outgoing struct {
	Body  []byte
	Group string // its owner (a tenant)
	// Delay is how long it is hidden at first, at most MaxDelay; 0 means not at all.
	Delay time.Duration
}

// Check holds a message to the bounds of every queue.
func (m Outgoing) Check() error {
	if m.Delay < 0 || m.Delay > MaxDelay {
		return workflow.Refuse(workflow.ErrInvalid, "delay", "a message is delayed for 0 to %s, not %s", MaxDelay, m.Delay)
	}
	return CheckBody(m.Body)
}

// Queue is implemented by each kind of queue. Methods may be called concurrently.
type Queue interface {
	// Send adds a message, which is text in UTF-8 without the characters that CheckBody refuses. group names its owner
	// (a tenant); implementations may use it to keep one group from starving the others.
	Send(ctx context.Context, body []byte, group string) error
	// SendBatch adds up to MaxBatch messages at once. It returns nil if all were taken, else one error
	// for each message in their order, nil for those that were taken. A message whose error is not a
	// refusal (a time-out, a broken connection) may have been taken all the same.
	SendBatch(ctx context.Context, messages []Outgoing) []error
	// Receive hands out up to max messages (1 to MaxBatch), hidden for the queue's visibility
	// time-out. It waits up to wait (0 to MaxWait) for the first; none is not an error.
	Receive(ctx context.Context, maxMessages int, wait time.Duration) ([]Message, error)
	// Hide sets how long from now the delivery stays hidden; 0 gives it back at once.
	Hide(ctx context.Context, receipt string, d time.Duration) error
	// Delete ends the message. Deleting one that is gone is not an error.
	Delete(ctx context.Context, receipt string) error
	// Depth is the number of messages waiting to be received, which may be approximate.
	Depth(ctx context.Context) (int, error)
}

// CheckBody holds a body to the bounds of every queue.
func CheckBody(body []byte) error {
	if len(body) == 0 {
		return workflow.Refuse(workflow.ErrInvalid, "body", "a message has a body")
	}
	if len(body) > MaxBody {
		return workflow.Refuse(workflow.ErrTooLarge, "body", "a message has at most %d bytes; this one has %d", MaxBody, len(body))
	}
	if !utf8.Valid(body) {
		return workflow.Refuse(workflow.ErrInvalid, "body", "a message is text in UTF-8")
	}
	if i := bytes.IndexFunc(body, refused); i >= 0 {
		r, _ := utf8.DecodeRune(body[i:])
		return workflow.Refuse(workflow.ErrInvalid, "body", "a message does not have the character %U", r)
	}
	return nil
}

// refused reports whether SQS refuses a character: it takes those of XML 1.0 (SQS API reference, SendMessage).
func refused(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\uFFFE' || r == '\uFFFF'
}

// CheckReceive holds the arguments of Receive to their bounds.
func CheckReceive(maxMessages int, wait time.Duration) error {
	if maxMessages < 1 || maxMessages > MaxBatch {
		return workflow.Refuse(workflow.ErrInvalid, "max", "1 to %d messages are received at once, not %d", MaxBatch, maxMessages)
	}
	if wait < 0 || wait > MaxWait {
		return workflow.Refuse(workflow.ErrInvalid, "wait", "a receive waits 0 to %s, not %s", MaxWait, wait)
	}
	return nil
}

// CheckHide holds the time of Hide to its bounds.
func CheckHide(d time.Duration) error {
	if d < 0 || d > MaxVisibility {
		return workflow.Refuse(workflow.ErrInvalid, "d", "a message is hidden for 0 to %s, not %s", MaxVisibility, d)
	}
	return nil
}

// CheckBatch holds a batch to its bound. Its error is that of each message.
func CheckBatch(messages []Outgoing) error {
	if len(messages) > MaxBatch {
		return workflow.Refuse(workflow.ErrInvalid, "messages", "at most %d messages are sent at once, not %d", MaxBatch, len(messages))
	}
	return nil
}

// GroupID is the name of a group in SQS: up to 128 letters, digits and punctuation marks. Fairness needs no more than
// that the same group has the same one.
func GroupID(group string) string {
	if len(group) <= 128 && !strings.ContainsFunc(group, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return group
	}
	sum := sha256.Sum256([]byte(group))
	return hex.EncodeToString(sum[:])
}
