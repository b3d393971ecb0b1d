package runner

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	heartbeatTimeout = 10 * time.Second // in addition to the announced hold
	minInterval      = 10 * time.Millisecond

	// firstHeartbeat is the time from the start to the first heartbeat, where heartbeats are held. It need not go at
	// once, because the answer to start said the same. It goes soon, because its answer comes at once if the run is
	// cancelled.
	firstHeartbeat = 250 * time.Millisecond

	watchEvery = time.Second // between two looks at the clock, because a timer stops while the machine sleeps
)

// observe acts on the answer to a call that was sent at that time.
func (r *run) observe(sent time.Duration, c api.Control) {
	r.mu.Lock()
	// An answer without both is not from the control plane.
	if c.HeartbeatSeconds > 0 || c.RemainingSeconds != 0 {
		remaining := sent + seconds(c.RemainingSeconds)
		r.firstDeadline = cmp.Or(r.firstDeadline, remaining)
		r.deadline = min(r.firstDeadline, remaining)
	}
	if c.HeartbeatSeconds > 0 {
		r.interval = max(seconds(c.HeartbeatSeconds), minInterval)
		r.hold = seconds(c.HoldSeconds)
		r.answered = max(r.answered, sent)
		r.gather = seconds(c.LogSeconds)
		if r.logs != nil {
			r.logs.SetWait(r.gather)
		}
	}
	r.mu.Unlock()
	if c.Cancel && r.cancelled.CompareAndSwap(false, true) {
		r.stop(stopCancelled)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// stop ends the engine with the grace of its reason. The first reason counts; a later one may shorten the grace.
func (r *run) stop(s *stop) {
	now := r.clock()
	r.mu.Lock()
	by := now + r.cfg.Grace
	if s.atOnce {
		by = now
	}
	// For every reason, no process of the engine may remain when the grace of the deadline ends.
	if last := r.deadline + workflow.DeadlineGrace - killMargin; s == stopDeadline || r.deadline > 0 && last < by {
		by = last
	}
	if r.killBy == 0 || by < r.killBy {
		r.killBy = by
	}
	r.mu.Unlock()
	r.log.Info("run is stopped", "reason", s.reason)
	r.end(s)
}

// over gives the run up, because this boot does not hold it any more. Once the engine has ended, only the result
// remains, and only the answer to the result counts: other answers may just say that it has arrived.
func (r *run) over(err error) {
	if !r.reporting.Load() && r.gone.CompareAndSwap(false, true) {
		r.lose(err)
		close(r.lost)
	}
}

// killTime returns when a stopped engine is killed; 0 means that the engine is not stopped.
func (r *run) killTime() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killBy
}

// heartbeats reports that the runner lives, if no other call did within the interval. If heartbeats are held, there
// is always one, because its answer brings a change at once. After a failure it waits for the next tick.
func (r *run) heartbeats(ctx context.Context) {
	for last := time.Duration(-1); ; {
		r.mu.Lock()
		hold, next := r.hold, nextBeat(last, r.answered, r.interval, r.hold)
		r.mu.Unlock()
		if rest := next - r.clock(); rest > 0 {
			if wait.For(ctx, rest) != nil {
				return
			}
			continue
		}
		last = r.clock()
		bounded, cancel := context.WithTimeout(ctx, heartbeatTimeout+hold)
		control, err := r.cfg.Relay.Heartbeat(bounded, api.Heartbeat{Step: text.Cut(r.stepName(), 64)})
		cancel()
		switch {
		case err == nil:
			r.observe(last, control)
		case ctx.Err() != nil:
			return
		case client.RunOver(err):
			r.over(err)
			return
		default:
			r.log.Debug("heartbeat not answered", "err", err)
		}
	}
}

// nextBeat decides when the next heartbeat goes: last is when the latest one was sent, negative for none, and
// answered when the latest answered call was sent. It is a pure function.
func nextBeat(last, answered, interval, hold time.Duration) time.Duration {
	switch {
	case hold == 0:
		return max(last, answered) + interval
	case last < 0:
		return answered + firstHeartbeat
	}
	return last + interval
}

// watch ends the run at its deadline.
func (r *run) watch(ctx context.Context) {
	for {
		r.mu.Lock()
		deadline := r.deadline
		r.mu.Unlock()
		rest := deadline - r.clock()
		if deadline == 0 {
			rest = watchEvery // until the spec gives the longest time
		}
		if rest <= 0 {
			r.stop(stopDeadline)
			return
		}
		if wait.For(ctx, min(rest, watchEvery)) != nil {
			return
		}
	}
}

// sendLogs and sendSteps also act on the control in the answer.

func (r *run) sendLogs(ctx context.Context, in api.Logs) (int64, error) {
	sent := r.clock()
	taken, err := r.cfg.Relay.Logs(ctx, in)
	switch {
	case err == nil:
		r.observe(sent, taken.Control)
	case client.RunOver(err):
		r.over(err)
	}
	return taken.Next, err
}

func (r *run) sendSteps(ctx context.Context, in api.Steps) error {
	sent := r.clock()
	control, err := r.cfg.Relay.Steps(ctx, in)
	switch {
	case err == nil:
		r.observe(sent, control)
	case client.RunOver(err):
		r.over(err)
	case !client.Transient(err) && !errors.Is(err, workflow.ErrConflict) && ctx.Err() == nil:
		// The report will never be taken. The log has the same facts.
		r.log.Error("steps refused", "err", err)
		return nil
	}
	return err
}

func newBackoff() *backoff.ExponentialBackOff {
	b := &backoff.ExponentialBackOff{InitialInterval: firstRetry, RandomizationFactor: 0.4, Multiplier: 2, MaxInterval: maxRetry}
	b.Reset()
	return b
}
