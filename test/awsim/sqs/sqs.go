// Package sqs is a fake Amazon SQS with standard queues: visibility, receive counts, delays, redrive to
// dead letters, fair groups, partial batch failures, and on demand duplicates. A stale receipt handle
// deletes nothing; a long poll ends with its client and takes nothing for one that is gone.
//
// Sources: the SQS API reference and developer guide. FIFO queues are refused.
package sqs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// Limits of the service.
const (
	maxSize      = 1 << 20 // bytes of a message, and of a batch
	maxBatch     = 10
	maxInFlight  = 120_000
	maxHidden    = 12 * time.Hour
	maxDelay     = 15 * time.Minute
	purgePause   = time.Minute
	maxRetention = 14 * 24 * time.Hour
)

// EntryFault refuses one entry of a batch.
type EntryFault struct {
	Code        string
	Message     string
	SenderFault bool
}

// Service is SQS. Its fields are set before it is used.
type Service struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// FailEntry is asked for each entry of a batch (SendMessageBatch: the body, the others: the receipt
	// handle) and refuses it with what it returns. Nil, or a nil result, refuses nothing.
	FailEntry func(operation, queue, text string) *EntryFault

	mu     sync.Mutex
	queues map[string]*queue // by name
}

// Protocol implements what the server asks: awsJson 1.0, with the older protocol's codes in a header.
func (*Service) Protocol() wire.Protocol { return wire.JSON{Query: true} }

// Operations implements awsim.Service.
func (s *Service) Operations() map[string]wire.Handler {
	return map[string]wire.Handler{
		"CreateQueue":                  s.createQueue,
		"DeleteQueue":                  s.deleteQueue,
		"ListQueues":                   s.listQueues,
		"GetQueueUrl":                  s.getQueueURL,
		"GetQueueAttributes":           s.getQueueAttributes,
		"SetQueueAttributes":           s.setQueueAttributes,
		"PurgeQueue":                   s.purgeQueue,
		"SendMessage":                  s.sendMessage,
		"SendMessageBatch":             s.sendMessageBatch,
		"ReceiveMessage":               s.receiveMessage,
		"DeleteMessage":                s.deleteMessage,
		"DeleteMessageBatch":           s.deleteMessageBatch,
		"ChangeMessageVisibility":      s.changeMessageVisibility,
		"ChangeMessageVisibilityBatch": s.changeMessageVisibilityBatch,
		"StartMessageMoveTask":         s.startMessageMoveTask,
		"ListMessageMoveTasks":         s.listMessageMoveTasks,
	}
}

// Duplicate makes a queue deliver each message that is sent from now on twice, even when the first
// delivery was deleted: what at-least-once allows at its worst.
func (s *Service) Duplicate(name string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.queues[name]
	if !ok {
		return noQueue()
	}
	q.duplicate = on
	return nil
}

func (s *Service) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

func failure(code, query, format string, args ...any) *wire.Error {
	return &wire.Error{Status: http.StatusBadRequest, Code: code, QueryCode: query, Message: fmt.Sprintf(format, args...)}
}

func noQueue() *wire.Error {
	return failure("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
}

func invalid(format string, args ...any) *wire.Error {
	return failure("InvalidParameterValue", "", format, args...)
}

func missing(name string) *wire.Error {
	return failure("MissingParameter", "", "The request must contain the parameter %s.", name)
}

// queue finds a queue by its URL, of which only the path counts. The lock is held.
func (s *Service) queue(url string) (*queue, error) {
	if url == "" {
		return nil, missing("QueueUrl")
	}
	q, ok := s.queues[url[strings.LastIndex(url, "/")+1:]]
	if !ok || !strings.HasSuffix(url, "/"+wire.Account+"/"+q.name) {
		return nil, noQueue()
	}
	return q, nil
}

func (s *Service) byARN(arn string) *queue {
	q := s.queues[arn[strings.LastIndex(arn, ":")+1:]]
	if q == nil || q.arn != arn {
		return nil
	}
	return q
}

func url(c wire.Call, name string) string {
	scheme := "http://"
	if c.Request != nil && c.Request.TLS != nil {
		scheme = "https://"
	}
	host := "sqs." + wire.Region + ".amazonaws.com"
	if c.Request != nil {
		host = c.Request.Host
	}
	return scheme + host + "/" + wire.Account + "/" + name
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func (s *Service) createQueue(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		QueueName  string
		Attributes map[string]string
	}](c)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(in.QueueName, ".fifo") || in.Attributes["FifoQueue"] == "true" {
		return nil, failure("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", "This fake has no FIFO queues.")
	}
	if !queueName.MatchString(in.QueueName) {
		return nil, invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q, ok := s.queues[in.QueueName]; ok {
		for name, value := range in.Attributes {
			if q.attributes[name] != value {
				return nil, failure("QueueNameExists", "QueueAlreadyExists", "A queue already exists with the same name and a different value for attribute %s", name)
			}
		}
		return map[string]any{"QueueUrl": url(c, q.name)}, nil
	}
	now := s.now()
	q := &queue{
		name: in.QueueName, arn: "arn:aws:sqs:" + wire.Region + ":" + wire.Account + ":" + in.QueueName,
		attributes: map[string]string{
			"VisibilityTimeout": "30", "DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0",
			"MessageRetentionPeriod": "345600", "MaximumMessageSize": strconv.Itoa(maxSize), "SqsManagedSseEnabled": "true",
		},
		created: now, modified: now, changed: make(chan struct{}),
	}
	q.purge()
	if err := s.set(q, in.Attributes); err != nil {
		return nil, err
	}
	if s.queues == nil {
		s.queues = map[string]*queue{}
	}
	s.queues[q.name] = q
	return map[string]any{"QueueUrl": url(c, q.name)}, nil
}

// settable attributes, with the bounds of those that are numbers.
var settable = map[string]struct{ from, to int }{
	"VisibilityTimeout":             {0, int(maxHidden / time.Second)},
	"DelaySeconds":                  {0, int(maxDelay / time.Second)},
	"ReceiveMessageWaitTimeSeconds": {0, 20},
	"MessageRetentionPeriod":        {60, int(maxRetention / time.Second)},
	"MaximumMessageSize":            {1024, maxSize},
	"RedrivePolicy":                 {},
	"RedriveAllowPolicy":            {},
	"Policy":                        {},
	"SqsManagedSseEnabled":          {},
	"KmsMasterKeyId":                {},
	"KmsDataKeyReusePeriodSeconds":  {60, 86400},
}

// set changes attributes of a queue, all or none. The lock is held.
func (s *Service) set(q *queue, changes map[string]string) error {
	all := maps.Clone(q.attributes)
	if changes["KmsMasterKeyId"] != "" {
		if changes["SqsManagedSseEnabled"] == "true" {
			return failure("InvalidAttributeName", "", "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.")
		}
		all["SqsManagedSseEnabled"] = "false"
	}
	for name, value := range changes {
		bounds, ok := settable[name]
		if !ok {
			return failure("InvalidAttributeName", "", "Unknown Attribute %s.", name)
		}
		n, err := strconv.Atoi(value)
		if bounds.to > 0 && (err != nil || n < bounds.from || n > bounds.to) {
			return failure("InvalidAttributeValue", "", "Invalid value for the parameter %s.", name)
		}
		if name == "SqsManagedSseEnabled" && value != "true" && value != "false" {
			return failure("InvalidAttributeValue", "", "Invalid value for the parameter %s.", name)
		}
		all[name] = value
		if value == "" {
			delete(all, name)
		}
	}
	var policy *redrive
	if text := all["RedrivePolicy"]; text != "" {
		var p struct {
			Target      string      `json:"deadLetterTargetArn"`
			MaxReceives json.Number `json:"maxReceiveCount"`
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return failure("InvalidAttributeValue", "", "Value %s for parameter RedrivePolicy is invalid. Reason: Redrive policy is not a valid JSON map.", text)
		}
		n, err := strconv.Atoi(p.MaxReceives.String())
		if err != nil || n < 1 || n > 1000 {
			return failure("InvalidAttributeValue", "", "Value %s for parameter RedrivePolicy is invalid. Reason: Invalid value for maxReceiveCount: %s, valid values are from 1 to 1000 both inclusive.", text, p.MaxReceives)
		}
		if s.byARN(p.Target) == nil {
			return failure("InvalidAttributeValue", "", "Value %s for parameter RedrivePolicy is invalid. Reason: Dead letter target does not exist.", text)
		}
		policy = &redrive{Target: p.Target, MaxReceives: n}
	}
	seconds := func(name string) time.Duration {
		n, _ := strconv.Atoi(all[name]) // checked above
		return time.Duration(n) * time.Second
	}
	q.attributes, q.redrive = all, policy
	q.visibility, q.delay = seconds("VisibilityTimeout"), seconds("DelaySeconds")
	q.wait, q.retention = seconds("ReceiveMessageWaitTimeSeconds"), seconds("MessageRetentionPeriod")
	q.maxSize, _ = strconv.Atoi(all["MaximumMessageSize"])
	return nil
}

type queueInput struct {
	QueueURL       string `json:"QueueUrl"`
	AttributeNames []string
	Attributes     map[string]string
}

// with decodes an input and does what is asked of the queue that it names, under the lock.
func with[T any](s *Service, c wire.Call, url func(T) string, do func(in T, q *queue, now time.Time) (any, error)) (any, error) {
	in, err := wire.Decode[T](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.queue(url(in))
	if err != nil {
		return nil, err
	}
	now := s.now()
	q.settle(now)
	return do(in, q, now)
}

func (s *Service) withQueue(c wire.Call, do func(in queueInput, q *queue, now time.Time) (any, error)) (any, error) {
	return with(s, c, func(in queueInput) string { return in.QueueURL }, do)
}

func (s *Service) deleteQueue(_ context.Context, c wire.Call) (any, error) {
	return s.withQueue(c, func(_ queueInput, q *queue, _ time.Time) (any, error) {
		delete(s.queues, q.name)
		q.purge()
		q.wake()
		return nil, nil
	})
}

func (s *Service) listQueues(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct{ QueueNamePrefix string }](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	urls := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		if strings.HasPrefix(name, in.QueueNamePrefix) {
			urls = append(urls, url(c, name))
		}
	}
	return map[string]any{"QueueUrls": urls}, nil
}

func (s *Service) getQueueURL(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct{ QueueName string }](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues[in.QueueName] == nil {
		return nil, noQueue()
	}
	return map[string]any{"QueueUrl": url(c, in.QueueName)}, nil
}

func (s *Service) getQueueAttributes(_ context.Context, c wire.Call) (any, error) {
	return s.withQueue(c, func(in queueInput, q *queue, _ time.Time) (any, error) {
		all := maps.Clone(q.attributes)
		all["QueueArn"] = q.arn
		all["CreatedTimestamp"] = strconv.FormatInt(q.created.Unix(), 10)
		all["LastModifiedTimestamp"] = strconv.FormatInt(q.modified.Unix(), 10)
		all["ApproximateNumberOfMessages"] = strconv.Itoa(q.visible)
		all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(q.inFlight)
		all["ApproximateNumberOfMessagesDelayed"] = strconv.Itoa(len(q.hidden) - q.inFlight)
		if slices.Contains(in.AttributeNames, "All") {
			return map[string]any{"Attributes": all}, nil
		}
		some := map[string]string{}
		for _, name := range in.AttributeNames {
			value, ok := all[name]
			if _, known := settable[name]; !ok && !known {
				return nil, failure("InvalidAttributeName", "", "Unknown Attribute %s.", name)
			}
			if ok {
				some[name] = value
			}
		}
		return map[string]any{"Attributes": some}, nil
	})
}

func (s *Service) setQueueAttributes(_ context.Context, c wire.Call) (any, error) {
	return s.withQueue(c, func(in queueInput, q *queue, now time.Time) (any, error) {
		if err := s.set(q, in.Attributes); err != nil {
			return nil, err
		}
		q.modified = now
		return nil, nil
	})
}

func (s *Service) purgeQueue(_ context.Context, c wire.Call) (any, error) {
	return s.withQueue(c, func(_ queueInput, q *queue, now time.Time) (any, error) {
		if !q.purged.IsZero() && now.Sub(q.purged) < purgePause {
			return nil, failure("PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress", "Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
		}
		q.purged = now
		q.purge()
		return nil, nil
	})
}
