package runs

import (
	"context"
	"errors"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// EndRestored keeps the runs of an organization's restored records from starting: unstarted runs are cancelled, and
// plans that wait for an approval or a merge expire. Each may have been done since the copy was made, and a
// deployment is never started twice. It adds its counts to out.
func (p *Calls) EndRestored(ctx context.Context, org, by string, out *api.Restored) error {
	// All waiting or claimed runs have a timer on the wall clock.
	for _, part := range record.TimerParts(org) {
		n, err := p.notStartedOf(ctx, org, store.Scan{Part: part, To: record.ServiceTimers, Limit: 100}, by)
		if out.Workflows += n; err != nil {
			return err
		}
	}
	for _, list := range []store.Scan{
		{Part: record.ReviewPart(org), Limit: 100}, record.Under(record.OrganizationPart(org), record.CarriedPrefixes, 100),
	} {
		for r, err := range p.ledger.View().All(ctx, list) {
			if err == nil {
				err = p.expire(ctx, org, r, by, out)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// expire ends the review that an entry of a list names, and removes the entry.
func (p *Calls) expire(ctx context.Context, org string, entry store.Record, by string, out *api.Restored) error {
	of, err := record.Decode[record.Name](entry)
	if err != nil {
		return err
	}
	expired := 0
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		expired = 0
		k := record.ReviewKey(of.ID)
		if err := c.Load(ctx, entry.Key, k); err != nil {
			return err
		}
		c.Remove(entry.Key)
		w, err := c.Workflow(ctx, org, of.ID)
		if errors.Is(err, workflow.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		r, ok, err := ledger.Get[record.Review](c.Read, k)
		if err != nil || !ok || r.Status != api.ReviewWaiting && r.Status != api.ReviewMerge || rules.Expired(r, c.Now) {
			return err
		}
		r.Status, r.Expires, expired = api.ReviewWaiting, c.Now, 1
		c.Put(k, r)
		c.Note(w, rules.Note{Kind: "expired", Text: "its plan expires by " + by + ": it may have been applied since; make a new preview", Actor: by})
		return nil
	})
	out.Plans += expired
	return err
}

// notStartedOf cancels those of the workflows that timers name that have not started.
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
			return nil // an orphaned timer
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
