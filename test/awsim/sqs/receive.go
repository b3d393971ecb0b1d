package sqs

import (
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

type receiveInput struct {
	QueueURL                    string `json:"QueueUrl"`
	MaxNumberOfMessages         *int
	WaitTimeSeconds             *int
	VisibilityTimeout           *int
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
}

type message struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	Body                   string
	MD5OfBody              string
	Attributes             map[string]string    `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty"`
	MD5OfMessageAttributes string               `json:",omitempty"`
}

func between(name string, value *int, from, to int) error {
	if value != nil && (*value < from || *value > to) {
		return invalid("Value %d for parameter %s is invalid. Reason: Must be between %d and %d, if provided.", *value, name, from, to)
	}
	return nil
}

func (s *Service) receiveMessage(ctx context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[receiveInput](c)
	if err != nil {
		return nil, err
	}
	for _, err := range []error{
		between("MaxNumberOfMessages", in.MaxNumberOfMessages, 1, maxBatch),
		between("WaitTimeSeconds", in.WaitTimeSeconds, 0, 20),
		between("VisibilityTimeout", in.VisibilityTimeout, 0, int(maxHidden/time.Second)),
	} {
		if err != nil {
			return nil, err
		}
	}
	var end time.Time // of the poll
	for {
		if ctx.Err() != nil {
			return nil, wire.Drop // the caller has gone and cannot take a message
		}
		out, changed, left, err := s.take(in, &end)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 || left <= 0 {
			result := map[string]any{}
			if len(out) > 0 {
				result["Messages"] = out
			}
			return result, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take hands out what is visible. Where nothing is, it returns what to wait for: a change, or the time
// until a hidden message comes back, at most until the end of the poll, which the first call sets.
func (s *Service) take(in receiveInput, end *time.Time) ([]message, <-chan struct{}, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(in.QueueURL)
	if err != nil {
		return nil, nil, 0, err
	}
	now := s.now()
	if end.IsZero() {
		*end = now.Add(q.wait)
		if in.WaitTimeSeconds != nil {
			*end = now.Add(time.Duration(*in.WaitTimeSeconds) * time.Second)
		}
	}
	q.settle(now)
	limit, visibility := 1, q.visibility
	if in.MaxNumberOfMessages != nil {
		limit = *in.MaxNumberOfMessages
	}
	if in.VisibilityTimeout != nil {
		visibility = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	var out []message
	for n := q.visible; n > 0 && len(out) < limit; n-- { // with visibility 0 a message is visible again at once
		if q.inFlight >= maxInFlight {
			return nil, nil, 0, failure("OverLimit", "", "Too many messages are in flight (the limit is %d).", maxInFlight)
		}
		e := q.pop()
		if now.Sub(e.sent) >= q.retention {
			delete(q.kept, e.key)
			continue
		}
		if q.redrive != nil && e.receives >= q.redrive.MaxReceives {
			if dead := s.byARN(q.redrive.Target); dead != nil {
				delete(q.kept, e.key)
				e.receives, e.first, e.source = 0, time.Time{}, q.arn
				dead.add(e, 0, now)
				continue
			}
		}
		e.receives++
		e.received = now
		if e.first.IsZero() {
			e.first = now
		}
		q.hide(e, now.Add(visibility))
		out = append(out, q.delivery(e, in))
	}
	next := *end
	if len(q.hidden) > 0 && q.hidden[0].visibleAt.Before(next) {
		next = q.hidden[0].visibleAt
	}
	left := next.Sub(now)
	if left <= 0 && next.Before(*end) {
		left = time.Nanosecond
	}
	return out, q.changed, left, nil
}

func (q *queue) delivery(e *entry, in receiveInput) message {
	m := message{MessageID: e.id, ReceiptHandle: q.handle(e), Body: e.body, MD5OfBody: sum([]byte(e.body))}
	all := map[string]string{
		"ApproximateReceiveCount":          strconv.Itoa(e.receives),
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(e.first.UnixMilli(), 10),
		"SentTimestamp":                    strconv.FormatInt(e.sent.UnixMilli(), 10),
		"SenderId":                         e.sender,
	}
	for name, value := range map[string]string{"MessageGroupId": e.group, "AWSTraceHeader": e.trace, "DeadLetterQueueSourceArn": e.source} {
		if value != "" {
			all[name] = value
		}
	}
	for _, name := range append(in.AttributeNames, in.MessageSystemAttributeNames...) {
		if name == "All" {
			m.Attributes = all
			break
		}
		if value, ok := all[name]; ok {
			if m.Attributes == nil {
				m.Attributes = map[string]string{}
			}
			m.Attributes[name] = value
		}
	}
	for name, a := range e.attributes {
		if wanted(name, in.MessageAttributeNames) {
			if m.MessageAttributes == nil {
				m.MessageAttributes = map[string]attribute{}
			}
			m.MessageAttributes[name] = a
		}
	}
	m.MD5OfMessageAttributes = sumOf(m.MessageAttributes)
	return m
}

func wanted(name string, patterns []string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(p, name); p == "All" || ok && err == nil {
			return true
		}
	}
	return false
}

// A receipt handle names a queue, a kept copy of a message and a delivery of it. It is opaque to clients.
func (q *queue) handle(e *entry) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s/%d/%d", q.name, e.key, e.receives))
}

// parseHandle reads a receipt handle.
func parseHandle(handle string) (queue string, key uint64, receives int, err error) {
	text, err := base64.StdEncoding.DecodeString(handle)
	parts := strings.Split(string(text), "/")
	if err != nil || len(parts) != 3 {
		return "", 0, 0, failure("ReceiptHandleIsInvalid", "", "The input receipt handle is invalid.")
	}
	key, err = strconv.ParseUint(parts[1], 10, 64)
	if err == nil {
		receives, err = strconv.Atoi(parts[2])
	}
	if err != nil || receives < 1 {
		return "", 0, 0, failure("ReceiptHandleIsInvalid", "", "The input receipt handle is invalid.")
	}
	return parts[0], key, receives, nil
}

// find returns the message that a handle of this queue names, or nil where it is gone, and whether the
// handle is that of its latest delivery. A handle lasts as long as a message can be hidden.
func (q *queue) find(handle string, now time.Time) (e *entry, latest bool, failed *wire.Error) {
	if handle == "" {
		return nil, false, missing("ReceiptHandle")
	}
	name, key, receives, err := parseHandle(handle)
	if err != nil || name != q.name {
		return nil, false, failure("ReceiptHandleIsInvalid", "", "The input receipt handle %q is not a valid receipt handle of this queue.", handle)
	}
	e = q.kept[key]
	latest = e != nil && e.receives == receives
	if latest && now.Sub(e.received) > maxHidden {
		return nil, false, invalid("Value %s for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.", handle)
	}
	return e, latest, nil
}

type handleInput struct {
	ID                string `json:"Id"` // in a batch
	QueueURL          string `json:"QueueUrl"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

type handlesInput struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []handleInput
}

func (in handleInput) name() (id, text string) { return in.ID, in.ReceiptHandle }

// drop deletes a message. With a handle of an earlier delivery it succeeds and deletes nothing: "if you
// don't use the most recent receipt handle, the message might not be deleted".
func (q *queue) drop(handle string, now time.Time) *wire.Error {
	e, latest, err := q.find(handle, now)
	if err != nil {
		return err
	}
	if latest {
		q.remove(e)
		delete(q.kept, e.key)
	}
	return nil
}

func (s *Service) deleteMessage(_ context.Context, c wire.Call) (any, error) {
	return with(s, c, func(in handleInput) string { return in.QueueURL }, func(in handleInput, q *queue, now time.Time) (any, error) {
		if err := q.drop(in.ReceiptHandle, now); err != nil {
			return nil, err
		}
		return nil, nil
	})
}

func (s *Service) deleteMessageBatch(_ context.Context, c wire.Call) (any, error) {
	return with(s, c, func(in handlesInput) string { return in.QueueURL }, func(in handlesInput, q *queue, now time.Time) (any, error) {
		return batch(s, c, q, in.Entries, handleInput.name, func(e handleInput) (any, *wire.Error) {
			return map[string]string{"Id": e.ID}, q.drop(e.ReceiptHandle, now)
		})
	})
}

// change sets a message's visibility from now on. It must be in flight by the very delivery that the
// handle names.
func (q *queue) change(in handleInput, now time.Time) *wire.Error {
	if in.VisibilityTimeout == nil {
		return missing("VisibilityTimeout")
	}
	d := time.Duration(*in.VisibilityTimeout) * time.Second
	if d < 0 || d > maxHidden {
		return invalid("Value %d for parameter VisibilityTimeout is invalid. Reason: VisibilityTimeout must be an integer between 0 and 43200.", *in.VisibilityTimeout)
	}
	e, latest, err := q.find(in.ReceiptHandle, now)
	switch {
	case err != nil:
		return err
	case !latest:
		return invalid("Value %s for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.", in.ReceiptHandle)
	case e.index < 0:
		return failure("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", "The specified message isn't in flight.")
	case now.Add(d).Sub(e.received) > maxHidden:
		return invalid("Value %d for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds].", *in.VisibilityTimeout)
	}
	q.remove(e)
	q.hide(e, now.Add(d))
	q.settle(now)
	q.wake() // waiting calls must see that the time of the next one has changed
	return nil
}

func (s *Service) changeMessageVisibility(_ context.Context, c wire.Call) (any, error) {
	return with(s, c, func(in handleInput) string { return in.QueueURL }, func(in handleInput, q *queue, now time.Time) (any, error) {
		if err := q.change(in, now); err != nil {
			return nil, err
		}
		return nil, nil
	})
}

func (s *Service) changeMessageVisibilityBatch(_ context.Context, c wire.Call) (any, error) {
	return with(s, c, func(in handlesInput) string { return in.QueueURL }, func(in handlesInput, q *queue, now time.Time) (any, error) {
		return batch(s, c, q, in.Entries, handleInput.name, func(e handleInput) (any, *wire.Error) {
			return map[string]string{"Id": e.ID}, q.change(e, now)
		})
	})
}
