package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
	"github.com/dayfly-dev/dayfly/test/cloud"
)

// traces is how many pick-ups are looked into.
const traces = 9

// observe keeps what the host reports.
func (w *world) observe(r lambdahost.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch {
		w.invocations = append(w.invocations, r)
	}
}

// answered keeps what the gateway of the control plane reports.
func (w *world) answered(r cloud.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watch {
		w.requests = append(w.requests, r)
	}
}

// trace picks some workflows up, one at a time, and prints the way that they took: the medians of its stages, and of
// the last one every request, invocation and call, in milliseconds from the sending of the submit on.
func (w *world) trace(ctx context.Context, b *bench, by trigger) error {
	var names []string
	of := map[string]figures.Sample{}
	var last seen
	var from time.Time
	for range traces {
		if err := wait.For(ctx, 3*time.Second); err != nil {
			return err
		}
		w.AWS.ForgetCalls()
		w.mu.Lock()
		w.invocations, w.requests, w.watch = nil, nil, true
		w.mu.Unlock()
		took, err := w.pick(ctx, 1, by)
		if err != nil {
			return err
		}
		w.mu.Lock()
		from = w.last.Add(-took[0])
		w.mu.Unlock()
		if err := wait.For(ctx, 1500*time.Millisecond); err != nil { // for what comes after the launch
			return err
		}
		last = w.seen()
		for _, s := range last.stages() {
			if !slices.Contains(names, s.name) {
				names = append(names, s.name)
			}
			of[s.name] = append(of[s.name], s.to.Sub(s.from))
		}
	}
	b.out.line("where the time goes: medians of %d pick-ups, in ms; each stage begins where the one before it ends", traces)
	for _, name := range names {
		b.out.line("%8.1f  %s", milliseconds(of[name].At(0.5)), name)
	}
	b.out.line("the last of them: begin, end and length, in ms from the sending of the submit on (one-shot: from the schedule on)")
	for _, s := range last.timeline() {
		b.out.line("%8.1f %8.1f %7.1f  %s", milliseconds(s.from.Sub(from)), milliseconds(s.to.Sub(from)), milliseconds(s.to.Sub(s.from)), s.name)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// seen is what was seen since it was last forgotten.
func (w *world) seen() seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return seen{
		calls: w.AWS.Calls(), invocations: slices.Clone(w.invocations), requests: slices.Clone(w.requests),
		control: w.FunctionName(w.Control, "LongPolls"), poller: w.FunctionName(w.Pool, "Poller"), dispatcher: w.FunctionName(w.Pool, "Dispatcher"),
	}
}

// timeline is everything in the order in which it began.
func (s seen) timeline() (out []stage) {
	for _, r := range s.invocations {
		how := "warm"
		if r.Cold {
			how = fmt.Sprintf("cold, init %s", r.Init.Round(time.Millisecond))
		}
		out = append(out, stage{fmt.Sprintf("%s runs (%s)", short(r.Function), how), r.Started, r.Started.Add(r.Duration)})
	}
	for _, r := range s.requests {
		out = append(out, stage{fmt.Sprintf("API: %s %s", r.Method, r.Path), r.Began, r.Ended})
	}
	for _, c := range s.calls {
		role := c.Caller.ARN[strings.LastIndex(c.Caller.ARN, "/")+1:]
		out = append(out, stage{fmt.Sprintf("  %s: %s.%s %s", short(role), c.Service, c.Operation, c.Outcome), c.Began, c.Time})
	}
	slices.SortFunc(out, func(a, b stage) int { return a.from.Compare(b.from) })
	return out
}
