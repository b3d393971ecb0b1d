package runs

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// claimedBy reads a workflow for a report of the pool that claimed it, with the other records that the report needs.
// ok is false if the report is about an earlier attempt: it changes nothing, and is not an error.
func claimedBy(ctx context.Context, c *ledger.Change, who identity.Principal, id string, attempt int, more ...store.Key) (w *record.Workflow, ok bool, err error) {
	w, err = c.Workflow(ctx, who.Organization, id, more...)
	if err != nil {
		return nil, false, err
	}
	if who.Audience != identity.Pool || w.PoolID != who.PoolID {
		return nil, false, ledger.NoWorkflow(id) // a pool does not see workflows of other pools
	}
	if attempt < 1 || attempt > w.Attempt {
		return nil, false, workflow.Refuse(workflow.ErrInvalid, "attempt", "workflow %s has had %s; there is no attempt %d", id, text.Count(w.Attempt, "attempt"), attempt)
	}
	return w, attempt == w.Attempt, nil
}

// report is the decision about a pool's report of an attempt that it claimed.
func report(who identity.Principal, id string, attempt int, decide func(context.Context, *ledger.Change, *record.Workflow) (rules.Outcome, error), more ...store.Key) ledger.Decision {
	return func(ctx context.Context, c *ledger.Change) error {
		w, ok, err := claimedBy(ctx, c, who, id, attempt, more...)
		if err != nil || !ok {
			return err
		}
		out, err := decide(ctx, c, w)
		if err != nil {
			return err
		}
		return c.Apply(ctx, w, out)
	}
}

// Queued says that a claimed job is in the launch queue: its lease becomes the longer one.
func (p *Calls) Queued(ctx context.Context, who identity.Principal, id string, in api.Attempt) error {
	return p.ledger.Change(ctx, report(who, id, in.Attempt, func(_ context.Context, c *ledger.Change, w *record.Workflow) (rules.Outcome, error) {
		return rules.Queued(w, c.Now), nil
	}))
}

// Release gives a claim back before any task of it was launched: the workflow is claimable again at once, and the
// claim does not count as lapsed.
func (p *Calls) Release(ctx context.Context, who identity.Principal, id string, in api.Release) error {
	return p.ledger.Change(ctx, report(who, id, in.Attempt, func(_ context.Context, _ *ledger.Change, w *record.Workflow) (rules.Outcome, error) {
		return rules.Release(w, in)
	}))
}

// Launch records the outcome of a launch. It moves only a claimed workflow, and only if no other task of the attempt
// may be alive.
func (p *Calls) Launch(ctx context.Context, who identity.Principal, id string, in api.Launch) error {
	if err := rules.CheckLaunch(in); err != nil {
		return err
	}
	err := p.ledger.Change(ctx, report(who, id, in.Attempt, func(_ context.Context, c *ledger.Change, w *record.Workflow) (rules.Outcome, error) {
		return rules.Launch(w, in, c.Now)
	}, record.HoldKey(who.PoolID))) // all that it may need, in one request
	p.ledger.Notify(startOf(id))
	return err
}

// Lost records the proven end of a task. Once a run has started, only the end of its own task counts; any other goes
// to the timeline.
func (p *Calls) Lost(ctx context.Context, who identity.Principal, id string, in api.Lost) error {
	if in.Task == "" {
		return workflow.Refuse(workflow.ErrInvalid, "task", "the report of a task's end must name the task")
	}
	err := p.ledger.Change(ctx, report(who, id, in.Attempt, func(ctx context.Context, c *ledger.Change, w *record.Workflow) (out rules.Outcome, err error) {
		now, err := c.Time(ctx, w.PoolID)
		if err != nil {
			return out, err
		}
		return rules.Lost(w, in, now)
	}))
	if err == nil {
		p.ledger.Notify(ledger.StatesOf(who.PoolID))
	}
	return err
}
