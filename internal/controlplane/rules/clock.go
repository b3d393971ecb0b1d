package rules

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of the service clock, and of the clocks of the pools.
const (
	maxTick = time.Minute      // maximum that a pass adds, so that a step of the wall clock cannot put it ahead
	setBack = 5 * time.Minute  // more than this: the wall clock was set back; less: another machine's is ahead
	oneCall = time.Minute      // a pool need not call more than once in this time
	maxGap  = 30 * time.Minute // the longest silence of a pool that excuses its runs
)

// Time is one moment on all the clocks that decisions use.
type Time struct {
	Now     time.Time     // wall clock: for people, for the lapse of claims and for queue time-outs
	Service time.Time     // see Advance
	Lag     time.Duration // by how much the clock of the workflow's pool is behind the service clock: see Lag
}

// Wall is when the service clock is expected to reach a time.
func (t Time) Wall(at time.Time) time.Time { return t.Now.Add(at.Sub(t.Service)) }

// Advance moves the service clock on to now. It counts only time in which the control plane was running, as far as
// its passes show. A gap between two passes adds at most maxTick. The first pass of a process that makes all passes
// adds nothing, because the time before it is unknown. So an outage, a crash loop or a step of the wall clock does
// not make a run silent or overdue. Between two passes, Advance returns the present time of the clock.
func Advance(c record.Clock, now time.Time, first bool) record.Clock {
	gone := now.Sub(c.Last)
	switch {
	case c.Service.IsZero():
		return record.Clock{Last: now, Service: now}
	case gone < 0 && gone >= -setBack:
		return c
	case gone > 0 && !first:
		c.Service = c.Service.Add(min(gone, maxTick))
	}
	c.Last = now
	return c
}

// Lag is by how much a pool's clock is behind the service clock. A pool's clock stands still in minutes without a
// call of the pool, for at most maxGap. The lag never shrinks, so that a pool that comes and goes keeps its runs.
func Lag(h record.PoolCall, service time.Time) time.Duration {
	if h.At.IsZero() {
		return 0
	}
	return h.Lag + min(max(service.Sub(h.At)-oneCall, 0), maxGap)
}

// NextPoolCall notes a call of a pool.
func NextPoolCall(h record.PoolCall, service time.Time) record.PoolCall {
	return record.PoolCall{At: Latest(h.At, service), Lag: Lag(h, service)}
}

// Deadline is when a run is to end, on the service clock.
func Deadline(w *record.Workflow) time.Time { return time.UnixMilli(w.Service.Deadline).UTC() }

// SlotEnds is when a run is certainly over, on the service clock.
func SlotEnds(w *record.Workflow) time.Time { return Deadline(w).Add(workflow.DeadlineGrace) }

// ResultDue is how long the result of a run that was handed over is awaited, on the service clock.
func ResultDue(w *record.Workflow) time.Time {
	return time.UnixMilli(w.Service.HandedOver).UTC().Add(workflow.ResultGrace)
}

// lastHeartbeat is when a run last gave a sign of life, on the service clock. The start counts as one.
func lastHeartbeat(w *record.Workflow, b record.Beat) time.Time {
	return Latest(Deadline(w).Add(-w.MaxRuntime), b.Service)
}

// silentAt is when a run has been silent for too long, on the service clock. excused is how much of the time since
// the last sign of life does not count.
func silentAt(w *record.Workflow, b record.Beat, excused time.Duration) time.Time {
	return lastHeartbeat(w, b).Add(workflow.Silence + excused)
}

// excused is how long the clock of a run's pool has stood still since the last sign of life.
func excused(b record.Beat, t Time) time.Duration {
	return max(t.Lag-b.Lag, 0)
}

// Sign is the sign of life that a run gives at a time.
func Sign(t Time, step string) record.Beat {
	return record.Beat{At: t.Now, Step: step, Service: t.Service, Lag: t.Lag}
}

// signEvery is how often a sign of life without a new step is stored.
const signEvery = 20 * time.Second

// MustStore says whether a sign of life is to be stored in place of the last one.
func MustStore(sign, last record.Beat) bool {
	age := sign.At.Sub(last.At)
	return sign.Step != last.Step || age < 0 || age >= signEvery
}
