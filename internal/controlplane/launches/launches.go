// Package launches takes a pool's reports about its claims: queued, given back, launched or not, and the end
// of a task.
package launches

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/authority"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Calls answers what a pool reports.
type Calls struct {
	board *moves.Board
	wakes *wake.Wakes
}

// New returns the calls.
func New(board *moves.Board, wakes *wake.Wakes) *Calls {
	return &Calls{board: board, wakes: wakes}
}

// ClaimedBy reads a workflow for a report of the pool that claimed it. ok is false where the report
// is about an attempt that is past: it changes nothing, and is no error.
func ClaimedBy(ctx context.Context, c *moves.Change, who authority.Principal, id string, attempt int) (w *record.Workflow, ok bool, err error) {
	w, err = c.Workflow(ctx, who.Organization, id)
	if err != nil {
		return nil, false, err
	}
	if who.Audience != authority.Pool || w.PoolID != who.PoolID {
		return nil, false, moves.NoWorkflow(id) // another pool's workflows are not there for it
	}
	if attempt < 1 || attempt > w.Attempt {
		return nil, false, workflow.Refuse(workflow.ErrInvalid, "attempt", "workflow %s has had %s; %d is none of them", id, text.Count(w.Attempt, "attempt"), attempt)
	}
	return w, attempt == w.Attempt, nil
}

// Queued says that a claimed job lies in the launch queue: its lease becomes the longer one.
func (p *Calls) Queued(ctx context.Context, who authority.Principal, id string, in api.Attempt) error {
	return p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		w, ok, err := ClaimedBy(ctx, c, who, id, in.Attempt)
		if err != nil || !ok {
			return err
		}
		return c.Apply(ctx, w, rules.Queued(w, c.Now))
	})
}

// Release gives a claim back before anything of it was launched: the workflow is claimable again at
// once, and the claim does not count as lapsed.
func (p *Calls) Release(ctx context.Context, who authority.Principal, id string, in api.Release) error {
	return p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		w, ok, err := ClaimedBy(ctx, c, who, id, in.Attempt)
		if err != nil || !ok {
			return err
		}
		out, err := rules.Release(w, in)
		if err != nil {
			return err
		}
		return c.Apply(ctx, w, out)
	})
}

// Launch records what became of a launch. Only a claimed workflow is moved by it, and only when no
// other task of the attempt may be alive.
func (p *Calls) Launch(ctx context.Context, who authority.Principal, id string, in api.Launch) error {
	if err := rules.CheckLaunch(in); err != nil {
		return err
	}
	err := p.board.ChangeHot(ctx, func(ctx context.Context, c *moves.Change) error {
		if err := record.CheckID(id); err != nil {
			return err
		}
		// All that it may take, in one request.
		if err := c.Load(ctx, record.WorkflowKey(id), record.BeatKey(id), record.HoldKey(who.PoolID)); err != nil {
			return err
		}
		w, ok, err := ClaimedBy(ctx, c, who, id, in.Attempt)
		if err != nil || !ok {
			return err
		}
		out, err := rules.Launch(w, in, c.Now)
		if err != nil {
			return err
		}
		return c.Apply(ctx, w, out)
	})
	p.wakes.Ring(wake.StartOf(id))
	return err
}

// Lost records the proven end of a task. Once a run has started, only the end of its own task
// counts; all else goes to the timeline.
func (p *Calls) Lost(ctx context.Context, who authority.Principal, id string, in api.Lost) error {
	if in.Task == "" {
		return workflow.Refuse(workflow.ErrInvalid, "task", "the report of an end names the task")
	}
	err := p.board.ChangeHot(ctx, func(ctx context.Context, c *moves.Change) error {
		w, ok, err := ClaimedBy(ctx, c, who, id, in.Attempt)
		if err != nil || !ok {
			return err
		}
		now, err := c.Time(ctx, w.PoolID)
		if err != nil {
			return err
		}
		out, err := rules.Lost(w, in, now)
		if err != nil {
			return err
		}
		return c.Apply(ctx, w, out)
	})
	if err == nil {
		p.wakes.Ring(wake.StatesOf(who.PoolID))
	}
	return err
}
