package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/test/lambdahost"
)

// moment is something that ended while a workflow was picked up.
type moment struct {
	at   time.Time
	what string
}

// observe keeps what the host reports.
func (w *world) observe(r lambdahost.Report) {
	how := "warm"
	if r.Cold {
		how = fmt.Sprintf("cold, init %s", r.Init.Round(time.Millisecond))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.invocations = append(w.invocations,
		moment{r.Began, fmt.Sprintf("%s: invoked (%s)", short(r.Function), how)},
		moment{r.Began.Add(r.Duration), fmt.Sprintf("%s: done, %s after it was invoked", short(r.Function), r.Duration.Round(time.Millisecond))})
}

// short is a name without what all names have in common.
func short(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "dayfly-wake-"), "dayfly-")
}

// trace picks one workflow up and prints every call and every invocation around that, in milliseconds from the
// answer of the submit on.
func (w *world) trace(ctx context.Context, b *bench, by trigger) error {
	if err := rest(ctx, 3*time.Second); err != nil {
		return err
	}
	w.AWS.ForgetCalls()
	w.mu.Lock()
	w.invocations = nil
	w.mu.Unlock()
	took, err := w.pick(ctx, 1, by)
	if err != nil {
		return err
	}
	w.mu.Lock()
	from := w.last.Add(-took[0])
	w.mu.Unlock()
	if err := rest(ctx, time.Second); err != nil { // for what comes after the launch
		return err
	}
	w.mu.Lock()
	all := slices.Clone(w.invocations)
	w.mu.Unlock()
	for _, c := range w.AWS.Calls() {
		role := c.Caller.ARN[strings.LastIndex(c.Caller.ARN, "/")+1:]
		all = append(all, moment{c.Time, fmt.Sprintf("%s: %s.%s %s", short(role), c.Service, c.Operation, c.Outcome)})
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	b.out.Line("one pick-up, in ms from the answer of the submit on (one-shot: from the schedule on); calls when they ended")
	for _, m := range all {
		b.out.Line("%8.1f  %s", float64(m.at.Sub(from))/float64(time.Millisecond), m.what)
	}
	return nil
}
