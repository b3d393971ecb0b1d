package lambdahost

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// patience is how long a call waits for an environment that has answered and is about to be free,
// before it takes a new one or is refused. A function asks for its next event as soon as it has answered; one that
// never does is not waited for.
const patience = time.Minute

// Invoke runs a function and waits for its answer. An error of the function is a Result; an error
// means that there is none: a *ServiceError that the function was not run, ctx's cause that the caller did not wait:
// the invocation goes on.
func (h *Host) Invoke(ctx context.Context, name string, payload []byte) (Result, error) {
	if len(payload) > MaxSyncPayload {
		return Result{}, tooLarge(MaxSyncPayload, "InvokeFunction")
	}
	inv, err := h.begin(ctx, name, newID(), payload)
	if err != nil {
		return Result{}, err
	}
	select {
	case <-inv.answered:
		return inv.result, inv.err
	case <-ctx.Done():
		return Result{}, fmt.Errorf("invoke %s: %w", name, context.Cause(ctx))
	}
}

// begin finds a place for an event and sets it going.
func (h *Host) begin(ctx context.Context, name, id string, payload []byte) (*invocation, error) {
	patient := time.NewTimer(patience)
	defer patient.Stop()
	waiting, waited := true, false
	for {
		inv, settled, err := h.admit(name, id, payload, waiting, waited)
		if inv != nil || err != nil {
			return inv, err
		}
		waited = true
		select {
		case <-settled:
		case <-patient.C:
			waiting = false
		case <-ctx.Done():
			h.leave(name)
			return nil, fmt.Errorf("invoke %s: %w", name, context.Cause(ctx))
		}
	}
}

// leave ends a wait for an environment.
func (h *Host) leave(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.functions[resolve(name)].waiting--
}

// admit takes a place for an event and a warm environment if there is one, and sets it going. While the
// caller is waiting and a place or a warm environment is about to be free, for which no other waits, it answers with
// what to wait for. waited says that it did so before.
func (h *Host) admit(name, id string, payload []byte, waiting, waited bool) (*invocation, <-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, broken(errClosed.Error())
	}
	f := h.functions[resolve(name)]
	if f == nil {
		return nil, nil, notFound(h.ARN(name))
	}
	if waited {
		f.waiting--
	}
	reason := h.full(f)
	if waiting && f.settling > f.waiting && (reason != "" || len(f.idle) == 0) {
		f.waiting++
		return nil, f.settled, nil
	}
	if reason != "" {
		f.stats.Throttled++
		return nil, nil, throttled(reason)
	}
	inv := newInvocation(id, f.arn, slices.Clone(payload))
	inv.fault = f.strike()
	inv.onAnswer = func() {
		h.mu.Lock()
		f.settling++
		h.mu.Unlock()
	}
	f.busy++
	f.stats.Invocations++
	e := f.warm()
	if e == nil {
		f.stats.ColdStarts++
	}
	h.work.Go(func() { h.serve(f, e, inv) })
	return inv, nil, nil
}

// full says why no further invocation of f may begin, or "".
func (h *Host) full(f *function) string {
	if r := f.spec.ReservedConcurrency; r != nil {
		if f.busy >= *r {
			return "ReservedFunctionConcurrentInvocationLimitExceeded"
		}
		return ""
	}
	left := h.cfg.Concurrency
	for _, other := range h.functions {
		if r := other.spec.ReservedConcurrency; r != nil {
			left -= *r
		} else {
			left -= other.busy
		}
	}
	if left <= 0 {
		return "ConcurrentInvocationLimitExceeded"
	}
	return ""
}

// warm takes the environment that was used last, if it still lives.
func (f *function) warm() *environment {
	for len(f.idle) > 0 {
		e := f.idle[len(f.idle)-1]
		f.idle = f.idle[:len(f.idle)-1]
		e.mu.Lock()
		e.stopIdle()
		e.mu.Unlock()
		select {
		case <-e.proc.done:
			delete(f.all, e)
		default:
			return e
		}
	}
	return nil
}

// strike returns the fault that is for the next invocation, or nil.
func (f *function) strike() *Fault {
	var hit *Fault
	f.faults = slices.DeleteFunc(f.faults, func(fault *Fault) bool {
		switch {
		case fault.Skip > 0:
			fault.Skip--
		case hit == nil:
			hit = fault
			fault.Times--
			return fault.Times == 0
		}
		return false
	})
	return hit
}

// serve is an invocation from its admission until its environment is free or gone.
func (h *Host) serve(f *function, e *environment, inv *invocation) {
	report := Report{Function: f.name, RequestID: inv.id, Began: time.Now(), Cold: e == nil}
	how := died
	defer func() { h.settle(f, e, inv, how, report) }()

	latency := h.cfg.Latency.Invoke
	if e == nil {
		latency += h.cfg.Latency.ColdStart
	}
	if err := sleep(h.ctx, h.cfg.Clock, latency); err != nil {
		inv.fail(broken(err.Error()))
		return
	}
	var limit *time.Timer
	if e == nil {
		if e, limit = h.initialise(f, inv); e == nil {
			return
		}
		report.Init, _ = e.initialised()
	}
	if limit == nil {
		limit = time.NewTimer(e.spec.Timeout)
	}
	defer limit.Stop()
	report.Started = time.Now()
	how = e.run(inv, limit.C)
	report.Duration = time.Since(report.Started)
}

// initialise starts an environment for an event. An init that fails or takes longer than
// Config.InitTimeout is tried once more, on the time of the function: then that time's timer is returned too. Without
// an environment, the caller has its answer.
func (h *Host) initialise(f *function, inv *invocation) (*environment, *time.Timer) {
	var limit *time.Timer
	for second := false; ; second = true {
		e, err := h.launch(f)
		if err != nil {
			inv.fail(broken(err.Error()))
			return nil, nil
		}
		timer := limit
		if !second {
			timer = time.NewTimer(h.cfg.InitTimeout)
		}
		how := e.await(timer.C)
		if how == ready {
			if !second {
				timer.Stop()
			}
			return e, limit
		}
		timer.Stop()
		h.discard(f, e)
		if !second {
			limit = time.NewTimer(e.spec.Timeout)
			continue
		}
		switch {
		case how == tooSlow:
			inv.answer(timedOut(inv.id, e.spec.Timeout), "Unhandled")
		case e.initError != nil:
			inv.answer(e.initError, "Unhandled")
		default:
			inv.answer(failure("Runtime.ExitError", inv.id, e.obituary()), "Unhandled")
		}
		return nil, nil
	}
}

// settle gives the place of an invocation back, and its environment if it may be used again.
func (h *Host) settle(f *function, e *environment, inv *invocation, how outcome, report Report) {
	<-inv.answered
	report.FunctionError = inv.result.FunctionError
	report.TimedOut, report.Died = how == tooSlow, how == died
	// It is counted before its environment goes: whoever sees that one gone finds the reason.
	h.mu.Lock()
	if report.FunctionError != "" {
		f.stats.Errors++
	}
	if report.TimedOut {
		f.stats.TimedOut++
	}
	if report.Died {
		f.stats.Died++
	}
	h.mu.Unlock()
	if e != nil {
		if how != ready || !h.keep(f, e) {
			h.discard(f, e)
		}
		report.PeakMemory = e.peakMemory()
	}
	h.mu.Lock()
	f.busy--
	f.settling--
	close(f.settled)
	f.settled = make(chan struct{})
	f.stats.PeakMemory = max(f.stats.PeakMemory, report.PeakMemory)
	h.mu.Unlock()
	if h.cfg.Observe != nil {
		h.cfg.Observe(report)
	}
}
