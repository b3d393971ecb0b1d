package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxSteps = 50 // in one report

	// gather is how long a report waits for the next change, unless it is the last. A step often ends just
	// when the next one begins, so a short job makes only one report.
	gather = 50 * time.Millisecond
)

// steps keeps the steps of a run and reports the latest of each until it is taken.
type steps struct {
	send func(ctx context.Context, in api.Steps) error
	log  func() int64 // how many lines it has
	wake chan struct{}
	last chan struct{} // closed when flush is first called: from then on steps are sent at once

	mu       sync.Mutex
	flushed  bool       // last is closed
	held     bool       // nothing is reported by itself
	all      []api.Step // by sequence number, from 1
	version  []int      // how often each changed
	taken    []int      // up to which change it was reported
	started  []time.Time
	progress chan struct{} // closed and replaced when something was taken
}

func newSteps(send func(context.Context, api.Steps) error, log func() int64) *steps {
	return &steps{send: send, log: log, wake: make(chan struct{}, 1), last: make(chan struct{}), progress: make(chan struct{})}
}

// begin adds a step and returns its sequence number.
func (s *steps) begin(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.all = append(s.all, api.Step{Seq: len(s.all) + 1, Name: text.Cut(name, 64), Status: workflow.StepRunning, StartedAt: now.UTC()})
	s.version, s.taken, s.started = append(s.version, 1), append(s.taken, 0), append(s.started, now)
	s.signal()
	return len(s.all)
}

// any reports whether a step has started.
func (s *steps) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// finish ends a step.
func (s *steps) finish(seq int, status workflow.StepStatus, found string, exitCode *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := &s.all[seq-1]
	step.Status, step.Text, step.ExitCode = status, text.Middle(found, 1000), exitCode
	step.LogEnd = s.log()
	step.Seconds = time.Since(s.started[seq-1]).Seconds()
	s.version[seq-1]++
	s.signal()
}

func (s *steps) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// due returns the steps that changed since they were last taken, and their changes.
func (s *steps) due() (out []api.Step, versions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		return nil, nil
	}
	return s.changed(maxSteps)
}

// changed is due with the lock held, for at most limit steps.
func (s *steps) changed(limit int) (out []api.Step, versions []int) {
	for i, step := range s.all {
		if s.version[i] > s.taken[i] && len(out) < limit {
			out, versions = append(out, step), append(versions, s.version[i])
		}
	}
	return out, versions
}

// hold keeps the unreported steps for the result, until release. It does nothing and returns false if they are too
// many.
func (s *steps) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	unreported, _ := s.changed(maxSteps)
	s.held = len(unreported) <= api.MaxLastSteps
	return s.held
}

// rest returns the steps to send with the result, and a function to call when they were taken.
func (s *steps) rest() (unreported []api.Step, reported func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unreported, versions := s.changed(api.MaxLastSteps)
	return unreported, func() { s.reported(unreported, versions) }
}

// release undoes hold.
func (s *steps) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.signal()
}

// reported notes that steps were taken.
func (s *steps) reported(batch []api.Step, versions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, step := range batch {
		s.taken[step.Seq-1] = max(s.taken[step.Seq-1], versions[i])
	}
	close(s.progress)
	s.progress = make(chan struct{})
}

// run reports until ctx ends.
func (s *steps) run(ctx context.Context) {
	retry := newBackoff()
	for ctx.Err() == nil {
		if batch, _ := s.due(); len(batch) == 0 {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		s.gather(ctx)
		batch, versions := s.due()
		if len(batch) == 0 {
			continue // they go with the result
		}
		if err := s.send(ctx, api.Steps{Steps: batch}); err != nil {
			_ = wait.For(ctx, max(retry.NextBackOff(), api.RetryAfter(err)))
			continue
		}
		retry.Reset()
		s.reported(batch, versions)
	}
}

// gather waits a little for the next change.
func (s *steps) gather(ctx context.Context) {
	_ = wait.Until(ctx, gather, s.last)
}

// flush waits until every step was taken as it is now.
func (s *steps) flush(ctx context.Context) error {
	s.mu.Lock()
	if !s.flushed {
		s.flushed = true
		close(s.last)
	}
	s.mu.Unlock()
	for {
		s.mu.Lock()
		progress := s.progress
		s.mu.Unlock()
		unreported, _ := s.due()
		if len(unreported) == 0 {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return fmt.Errorf("%s not reported: %w", text.Are(len(unreported), "step"), context.Cause(ctx))
		}
	}
}
