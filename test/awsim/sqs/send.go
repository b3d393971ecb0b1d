package sqs

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// attribute is a message attribute.
type attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
}

type sendInput struct {
	ID                      string `json:"Id"` // in a batch
	QueueURL                string `json:"QueueUrl"`
	MessageBody             string
	DelaySeconds            *int
	MessageGroupID          string `json:"MessageGroupId"`
	MessageDeduplicationID  string `json:"MessageDeduplicationId"`
	MessageAttributes       map[string]attribute
	MessageSystemAttributes map[string]attribute
}

type sendOutput struct {
	ID                     string `json:"Id,omitempty"`
	MessageID              string `json:"MessageId"`
	MD5OfMessageBody       string
	MD5OfMessageAttributes string `json:",omitempty"`
}

var groupID = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]{1,128}$")

func (s *Service) sendMessage(_ context.Context, c wire.Call) (any, error) {
	return with(s, c, func(in sendInput) string { return in.QueueURL }, func(in sendInput, q *queue, now time.Time) (any, error) {
		if err := check(in, q); err != nil {
			return nil, err
		}
		return q.send(in, c.Caller, now), nil
	})
}

// size is what counts against the limits: the body and the attributes with their names and types.
func (in sendInput) size() int {
	n := len(in.MessageBody)
	for name, a := range in.MessageAttributes {
		n += len(name) + len(a.DataType) + len(a.BinaryValue)
		if a.StringValue != nil {
			n += len(*a.StringValue)
		}
	}
	return n
}

// check judges one message, alone or in a batch.
func check(in sendInput, q *queue) *wire.Error {
	switch {
	case in.MessageBody == "":
		return missing("MessageBody")
	case !allowed(in.MessageBody):
		return failure("InvalidMessageContents", "", "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	case in.size() > q.maxSize:
		return invalid("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.maxSize)
	case in.DelaySeconds != nil && (*in.DelaySeconds < 0 || *in.DelaySeconds > int(maxDelay/time.Second)):
		return invalid("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", *in.DelaySeconds)
	case in.MessageDeduplicationID != "":
		return invalid("The request includes a parameter that is not valid for this queue type: MessageDeduplicationId")
	case in.MessageGroupID != "" && !groupID.MatchString(in.MessageGroupID):
		return invalid("Value %s for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length.", in.MessageGroupID)
	case len(in.MessageAttributes) > 10:
		return invalid("Number of message attributes [%d] exceeds the allowed maximum [10].", len(in.MessageAttributes))
	}
	for name, a := range in.MessageAttributes {
		kind, _, _ := strings.Cut(a.DataType, ".")
		if kind != "String" && kind != "Number" && kind != "Binary" || (kind == "Binary") != (a.BinaryValue != nil) || (kind == "Binary") == (a.StringValue != nil) {
			return invalid("The message attribute '%s' has an invalid message attribute type or no value of it.", name)
		}
	}
	return nil
}

// allowed holds a text to the characters of XML 1.0, as SQS does.
func allowed(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return true
}

func (q *queue) send(in sendInput, caller wire.Identity, now time.Time) sendOutput {
	delay := q.delay
	if in.DelaySeconds != nil {
		delay = time.Duration(*in.DelaySeconds) * time.Second
	}
	e := entry{id: wire.RequestID(), body: in.MessageBody, group: in.MessageGroupID, sender: caller.AccessKeyID, attributes: in.MessageAttributes, sent: now}
	if trace := in.MessageSystemAttributes["AWSTraceHeader"].StringValue; trace != nil {
		e.trace = *trace
	}
	copies := 1
	if q.duplicate {
		copies = 2
	}
	for range copies {
		one := e
		q.add(&one, delay, now)
	}
	return sendOutput{ID: in.ID, MessageID: e.id, MD5OfMessageBody: sum([]byte(e.body)), MD5OfMessageAttributes: sumOf(e.attributes)}
}

type sendBatchInput struct {
	QueueURL string `json:"QueueUrl"`
	Entries  []sendInput
}

func (s *Service) sendMessageBatch(_ context.Context, c wire.Call) (any, error) {
	return with(s, c, func(in sendBatchInput) string { return in.QueueURL }, func(in sendBatchInput, q *queue, now time.Time) (any, error) {
		total := 0
		for _, e := range in.Entries {
			total += e.size()
		}
		if total > maxSize {
			return nil, failure("BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong", "Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxSize, total)
		}
		return batch(s, c, q, in.Entries, func(e sendInput) (string, string) { return e.ID, e.MessageBody }, func(e sendInput) (any, *wire.Error) {
			if err := check(e, q); err != nil {
				return nil, err
			}
			return q.send(e, c.Caller, now), nil
		})
	})
}

type batchFailure struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// batch does each entry by itself: some may fail while the others are done.
func batch[E any](s *Service, c wire.Call, q *queue, entries []E, name func(E) (id, text string), do func(E) (any, *wire.Error)) (any, error) {
	if len(entries) == 0 {
		return nil, failure("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", "There should be at least one %sRequestEntry in the request.", c.Operation)
	}
	if len(entries) > maxBatch {
		return nil, failure("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent %d.", len(entries))
	}
	seen := map[string]bool{}
	for _, e := range entries {
		id, _ := name(e)
		if !entryID.MatchString(id) {
			return nil, failure("InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		if seen[id] {
			return nil, failure("BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
		seen[id] = true
	}
	var done []any
	var failed []batchFailure
	for _, e := range entries {
		id, text := name(e)
		if s.FailEntry != nil {
			if f := s.FailEntry(c.Operation, q.name, text); f != nil {
				failed = append(failed, batchFailure{ID: id, Code: f.Code, Message: f.Message, SenderFault: f.SenderFault})
				continue
			}
		}
		out, err := do(e)
		if err != nil {
			code := err.Code
			if err.QueryCode != "" {
				code = err.QueryCode
			}
			failed = append(failed, batchFailure{ID: id, Code: code, Message: err.Message, SenderFault: true})
			continue
		}
		done = append(done, out)
	}
	result := map[string]any{}
	if len(done) > 0 {
		result["Successful"] = done
	}
	if len(failed) > 0 {
		result["Failed"] = failed
	}
	return result, nil
}

func sum(b []byte) string {
	s := md5.Sum(b)
	return hex.EncodeToString(s[:])
}

// sumOf is the MD5 of message attributes: by name, each part with its length before it.
// (SQS developer guide, "Calculating the MD5 message digest for message attributes".)
func sumOf(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var b bytes.Buffer
	part := func(p []byte) {
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		b.Write(p)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		part([]byte(name))
		part([]byte(a.DataType))
		if a.StringValue != nil {
			b.WriteByte(1)
			part([]byte(*a.StringValue))
			continue
		}
		b.WriteByte(2)
		part(a.BinaryValue)
	}
	return sum(b.Bytes())
}
