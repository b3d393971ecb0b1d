package sqs

import (
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/wire"
)

// moveTask is one run of StartMessageMoveTask. Here it is over when it was started.
type moveTask struct {
	TaskHandle                        string `json:",omitempty"` // only while it runs
	Status                            string
	SourceArn                         string
	DestinationArn                    string `json:",omitempty"`
	ApproximateNumberOfMessagesMoved  int
	ApproximateNumberOfMessagesToMove int
	StartedTimestamp                  int64 // milliseconds
}

// startMessageMoveTask moves the visible messages of a dead-letter queue to another queue, or back to where
// each came from. They are new messages there: with new ids, never received.
func (s *Service) startMessageMoveTask(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct{ SourceArn, DestinationArn string }](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.byARN(in.SourceArn)
	if from == nil {
		return nil, failure("ResourceNotFoundException", "", "The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	isDead := false
	for _, q := range s.queues {
		isDead = isDead || q.redrive != nil && q.redrive.Target == from.arn
	}
	if !isDead {
		return nil, invalid("Source queue must be configured as a Dead Letter Queue.")
	}
	if in.DestinationArn != "" && s.byARN(in.DestinationArn) == nil {
		return nil, failure("ResourceNotFoundException", "", "The resource that you specified for the DestinationArn parameter doesn't exist.")
	}
	now := s.now()
	from.settle(now)
	task := moveTask{TaskHandle: wire.RequestID(), Status: "COMPLETED", SourceArn: from.arn, DestinationArn: in.DestinationArn, ApproximateNumberOfMessagesToMove: from.visible, StartedTimestamp: now.UnixMilli()}
	for n := from.visible; n > 0; n-- {
		e := from.pop()
		target := in.DestinationArn
		if target == "" {
			target = e.source
		}
		to := s.byARN(target)
		if to == nil {
			from.push(e)
			task.Status = "FAILED"
			continue
		}
		delete(from.kept, e.key)
		moved := entry{id: wire.RequestID(), body: e.body, group: e.group, sender: e.sender, trace: e.trace, attributes: e.attributes, sent: now}
		to.add(&moved, time.Duration(0), now)
		task.ApproximateNumberOfMessagesMoved++
	}
	handle := task.TaskHandle
	task.TaskHandle = ""
	from.moves = append(from.moves, task)
	return map[string]any{"TaskHandle": handle}, nil
}

func (s *Service) listMessageMoveTasks(_ context.Context, c wire.Call) (any, error) {
	in, err := wire.Decode[struct {
		SourceArn  string
		MaxResults int
	}](c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byARN(in.SourceArn)
	if q == nil {
		return nil, failure("ResourceNotFoundException", "", "The resource that you specified for the SourceArn parameter doesn't exist.")
	}
	newest := slices.Clone(q.moves)
	slices.Reverse(newest)
	return map[string]any{"Results": newest[:min(len(newest), max(in.MaxResults, 1))]}, nil
}
