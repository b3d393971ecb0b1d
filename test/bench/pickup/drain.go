package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// fargate is how many RunTask calls a second Fargate takes, and how many tasks it launches.
const fargate = 20.0

// drain measures how fast what piled up is launched.
func drain(ctx context.Context, b *bench) error {
	b.out.heading("Drain: %d workflows, each in a workspace of its own, are pending when the pool is enabled; woken by the control plane, latency %s", b.pending, stated.name)
	b.out.line("each task is a stand-in that makes a runner's calls through the status API: start, spec, 2 x steps, 2 x logs (%d lines), a heartbeat, the result after %s", standInLines, standInTime)
	w, err := open(ctx, b, stated, map[string]string{"PollingWindow": "0s"})
	if err != nil {
		return err
	}
	defer w.Close()
	defer w.problems(b)
	began := time.Now()
	if err := w.pile(ctx, b.pending); err != nil {
		return fmt.Errorf("submit %d workflows: %w", b.pending, err)
	}
	b.out.line("submitted in %s, by the rules in this process", time.Since(began).Round(time.Second))
	w.alive = true
	w.AWS.ForgetCalls()
	calls := w.tally(ctx)
	// What was submitted last has marked the pool as one that is being woken; that holds for two seconds.
	if err := wait.For(ctx, 3*time.Second); err != nil {
		return err
	}
	if err := w.begin(ctx, byWake); err != nil {
		return err
	}
	enabled, disabled := time.Now(), false
	if _, err := w.Client.UpdatePool(ctx, pool, api.PoolSettings{IsDisabled: &disabled}); err != nil {
		return err
	}
	// Enabling a pool does not wake its poller; the next submit does.
	names, err := w.workspaces(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := w.submit(ctx, names); err != nil {
		return err
	}
	limit := time.Duration(float64(b.pending)/fargate*3)*time.Second + 2*time.Minute
	if err := w.awaitTasks(ctx, b.pending+1, limit); err != nil {
		b.out.line("%v", err) // and what became of them is told below
	}
	launched := time.Now()
	if err := w.awaitEnds(ctx, limit); err != nil {
		b.out.line("%v", err)
	}
	b.out.line("all had ended %s after the last launch", seconds(time.Since(launched)))
	return w.judgeDrain(ctx, b, enabled, calls())
}

// awaitEnds waits until no workflow is left that has not ended.
func (w *world) awaitEnds(ctx context.Context, most time.Duration) error {
	for end := time.Now().Add(most); ; {
		states, _, err := w.states(ctx)
		if err != nil {
			return err
		}
		left := 0
		for state, n := range states {
			if !state.Terminal() {
				left += n
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d have not ended after %s", left, most)
		}
		if err := wait.For(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// tally counts calls of AWS until the function that it returns is called: how often each had which outcome.
func (w *world) tally(ctx context.Context) func() map[string]int {
	counts := map[string]int{}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	add := func() {
		for _, c := range w.AWS.TakeCalls() {
			counts[c.Service+"."+c.Operation+" "+c.Outcome]++
		}
	}
	go func() {
		defer close(ended)
		for wait.For(ctx, time.Second) == nil {
			add()
		}
	}()
	return func() map[string]int {
		cancel()
		<-ended
		add()
		return counts
	}
}

// pile submits n workflows while nothing is claimed.
func (w *world) pile(ctx context.Context, n int) error {
	disabled := true
	if _, err := w.plane.UpdatePool(ctx, admin, pool, api.PoolSettings{IsDisabled: &disabled}); err != nil {
		return err
	}
	names, err := w.workspaces(ctx, n)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(submitters)
	for _, name := range names {
		g.Go(func() error {
			_, err := w.plane.Submit(ctx, admin, "", api.Submit{Workspace: name, Operation: workflow.Preview})
			return err
		})
	}
	return g.Wait()
}

// awaitTasks waits until ECS took tasks for n workflows.
func (w *world) awaitTasks(ctx context.Context, n int, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		w.mu.Lock()
		got, taken := len(w.accepted), w.taken
		w.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return fmt.Errorf("of %d workflows %d were launched in %s", n, got, most)
		}
	}
}

// judgeDrain says how fast it was, and what became of everything.
func (w *world) judgeDrain(ctx context.Context, b *bench, enabled time.Time, calls map[string]int) error {
	w.mu.Lock()
	times := slices.SortedFunc(maps.Values(w.accepted), time.Time.Compare)
	tasks := w.tasks
	w.mu.Unlock()
	if len(times) < 20 {
		return fmt.Errorf("only %d workflows were launched", len(times))
	}
	// Without the burst that the buckets hold at the beginning, and the last batches.
	steady := times[len(times)/10 : len(times)-len(times)/20]
	perSecond := float64(len(steady)-1) / steady[len(steady)-1].Sub(steady[0]).Seconds()
	b.out.line("first launch %s after the pool was enabled, the last %s; load average %s", seconds(times[0].Sub(enabled)), seconds(times[len(times)-1].Sub(enabled)), figures.LoadAverage())
	b.out.line("steady part (launches %d to %d): %.2f a second; slowest ten seconds %.1f a second, longest pause %s",
		len(times)/10, len(times)-len(times)/20, perSecond, slowest(steady, 10*time.Second), seconds(longestPause(steady)))
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if name == "ecs.RunTask ok" || strings.HasPrefix(name, "dynamodb.Transact") || !strings.HasSuffix(name, " ok") {
			b.out.line("%7d  %s (%.2f for each workflow)", calls[name], name, float64(calls[name])/float64(len(times)))
		}
	}
	w.mu.Lock()
	b.out.line("calls of tasks that were not taken at first: %v; tasks that failed: %v", w.repeated, w.failed)
	w.mu.Unlock()
	states, retried, err := w.states(ctx)
	if err != nil {
		return err
	}
	b.out.line("workflows: %v; claimed more than once: %d; tasks beyond one for each: %d", states, retried, tasks-len(times))
	b.out.judge(perSecond >= 0.95*fargate, fmt.Sprintf("drain of %d, launches a second", b.pending), fmt.Sprintf("%.2f", perSecond), fmt.Sprintf(">= %.1f", 0.95*fargate))
	b.out.judge(states[workflow.Succeeded] == b.pending+1, "drain, workflows that did not succeed", fmt.Sprint(b.pending+1-states[workflow.Succeeded]), "= 0")
	b.out.judge(tasks == len(times), "drain, tasks beyond one for each workflow", fmt.Sprint(tasks-len(times)), "= 0")
	return nil
}

// states counts the workflows by state, and those that were claimed more than once.
func (w *world) states(ctx context.Context) (states map[workflow.State]int, retried int, err error) {
	states = map[workflow.State]int{}
	for f := (controlplane.Filter{Limit: 200}); ; {
		page, err := w.plane.Workflows(ctx, admin, f)
		if err != nil {
			return nil, 0, err
		}
		for _, wf := range page.Items {
			states[wf.State]++
			if wf.Attempt > 1 {
				retried++
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return states, retried, nil
		}
	}
}

// slowest is the least rate over any span of such a length that begins with a launch.
func slowest(times []time.Time, span time.Duration) float64 {
	least, end := float64(len(times)), 0
	for i, from := range times {
		for end < len(times) && times[end].Sub(from) < span {
			end++
		}
		if end == len(times) {
			break
		}
		least = min(least, float64(end-i)/span.Seconds())
	}
	return least
}

func longestPause(times []time.Time) (longest time.Duration) {
	for i := range len(times) - 1 {
		longest = max(longest, times[i+1].Sub(times[i]))
	}
	return longest
}
