package runs

import (
	"context"
	"errors"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Restored cancels what had not started when the records were copied that this store was restored from. It may have
// run since, and a deployment is never started twice. What was running is left to the rules of time. It is idempotent.
func (p *Calls) Restored(ctx context.Context, by string) (cancelled int, err error) {
	c := p.ledger.View()
	for org, err := range c.All(ctx, store.Scan{Part: "orgs", Limit: 100}) {
		if err != nil {
			return cancelled, err
		}
		// All that waits or is claimed has a timer on the wall clock.
		for _, part := range append(record.TimerParts(org.Key.Sort), record.OldTimerPart(org.Key.Sort)) {
			n, err := p.notStartedOf(ctx, org.Key.Sort, store.Scan{Part: part, To: record.ServiceTimers, Limit: 100}, by)
			if cancelled += n; err != nil {
				return cancelled, err
			}
		}
	}
	return cancelled, nil
}

// notStartedOf cancels what has not started of the workflows that timers name.
func (p *Calls) notStartedOf(ctx context.Context, org string, timers store.Scan, by string) (cancelled int, err error) {
	for timer, err := range p.ledger.View().All(ctx, timers) {
		if err != nil {
			return cancelled, err
		}
		t, err := record.Decode[record.Name](timer)
		if err != nil {
			p.skipped(err)
			continue
		}
		done, err := p.notStarted(ctx, org, t.ID, by)
		if err != nil {
			return cancelled, err
		}
		if done {
			cancelled++
		}
	}
	return cancelled, nil
}

// notStarted cancels a workflow if it has not started.
func (p *Calls) notStarted(ctx context.Context, org, id, by string) (cancelled bool, err error) {
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		cancelled = false
		w, err := c.Workflow(ctx, org, id)
		if errors.Is(err, workflow.ErrNotFound) {
			return nil // a timer that was left over
		}
		if err != nil || w.State != workflow.Pending && w.State != workflow.Claimed {
			return err
		}
		out, err := rules.Cancel(w, by, "", c.Now)
		if err != nil {
			return err
		}
		cancelled = true
		return c.Apply(ctx, w, out)
	})
	return cancelled, err
}
