package runs

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Held lists the pool's active workflows; with an instance, those that it claimed.
func (p *Calls) Held(ctx context.Context, who identity.Principal, instance, cursor string) (api.Page[api.JobState], error) {
	out := api.Page[api.JobState]{Items: []api.JobState{}}
	if err := who.NeedsPool("list its claims"); err != nil {
		return out, err
	}
	if instance != "" && cursor == "" {
		// An agent without free capacity makes only this call. A second instance is refused its claims, not this. A
		// second process of the instance is refused both: it would mistake the claims of the other for its own.
		err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
			_, err := seen(ctx, c, who, api.Claim{Instance: text.Cut(instance, 128)})
			return err
		})
		if err != nil && !errors.Is(err, workflow.ErrInUse) {
			return out, err
		}
	}
	page, err := p.ledger.List(ctx, store.Scan{Part: record.ActivePart(who.PoolID), Limit: 100}, cursor)
	if err != nil {
		return out, err
	}
	var ids []string
	for _, r := range page.Records {
		a, err := record.Decode[record.Active](r)
		if err != nil {
			p.skipped(err)
			continue
		}
		if instance == "" || a.Instance == instance {
			ids = append(ids, r.Key.Sort)
		}
	}
	states, err := p.states(ctx, who, ids)
	if err != nil {
		return out, err
	}
	// A workflow that ended between the two reads is no longer active.
	out.Items = append(out.Items, slices.DeleteFunc(states, func(s api.JobState) bool { return !s.Active })...)
	out.Next = page.Next
	return out, nil
}

// States says where jobs stand. With a wait it answers when one of them is to be cancelled or is over, or when the
// wait is over.
func (p *Calls) States(ctx context.Context, who identity.Principal, in api.StatesQuery) (api.States, error) {
	if err := who.NeedsPool("ask for its jobs"); err != nil {
		return api.States{}, err
	}
	if len(in.IDs) == 0 || len(in.IDs) > 100 {
		return api.States{}, workflow.Refuse(workflow.ErrInvalid, "ids", "ask for 1 to 100 jobs at once")
	}
	var out api.States
	err := p.ledger.Await(ctx, ledger.StatesOf(who.PoolID), time.Duration(in.WaitSeconds)*time.Second, func(bool) (bool, error) {
		var err error
		out.Jobs, err = p.states(ctx, who, in.IDs)
		return slices.ContainsFunc(out.Jobs, func(s api.JobState) bool { return s.Cancel || !s.Active }), err
	})
	return out, err
}

// states answers about each job except those whose records cannot be read: to call such a job unknown would stop its
// task.
func (p *Calls) states(ctx context.Context, who identity.Principal, ids []string) ([]api.JobState, error) {
	var keys []store.Key
	for _, id := range ids {
		if record.CheckID(id) == nil {
			keys = append(keys, record.WorkflowKey(id), record.BeatKey(id))
		}
	}
	r, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	now, err := p.ledger.View().Called(ctx, who.PoolID)
	if err != nil {
		return nil, err
	}
	out := make([]api.JobState, 0, len(ids))
	for _, id := range ids {
		w, ok, err := ledger.Get[record.Workflow](r, record.WorkflowKey(id))
		if err != nil {
			p.skipped(err)
			continue
		}
		if !ok || w.PoolID != who.PoolID || w.Org != who.Organization {
			out = append(out, api.JobState{ID: text.Cut(id, 64)})
			continue
		}
		beat, _, err := ledger.Get[record.Beat](r, record.BeatKey(id))
		if err != nil {
			p.skipped(err)
			continue
		}
		out = append(out, rules.JobState(&w, beat, now))
	}
	return out, nil
}
