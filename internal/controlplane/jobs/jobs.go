// Package jobs takes the calls of runners: the start, which is the fence, the spec, signs of life, steps and
// the result.
package jobs

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Calls answers runners.
type Calls struct {
	ledger *ledger.Ledger
	board  *moves.Board
	wakes  *wake.Wakes
	log    *slog.Logger
	quota  int64
	wait   time.Duration
}

// New returns the calls. quota is what the log of an attempt may hold; wait, how long a runner gathers lines while
// somebody reads them.
func New(ledger *ledger.Ledger, board *moves.Board, wakes *wake.Wakes, log *slog.Logger, quota int64, wait time.Duration) *Calls {
	return &Calls{ledger: ledger, board: board, wakes: wakes, log: log, quota: quota, wait: wait}
}

// Control is the answer to a runner. It says how long to gather lines of the log where the reader's record was loaded.
func Control(c *moves.Change, w *record.Workflow, now rules.Time, wait time.Duration) api.Control {
	out := rules.Control(w, now)
	if r, _, err := ledger.Get[record.Reader](c.Read, record.ReaderKey(w.ID)); err == nil && c.Now.Before(r.Until) {
		out.LogSeconds = wait.Seconds()
	}
	return out
}

// Admit authenticates a job token and reads the workflow that it is for, with more of what the
// call needs.
func Admit(ctx context.Context, c *moves.Change, token string, run api.Run, more ...store.Key) (*record.Workflow, rules.Standing, error) {
	if err := rules.CheckRun(run); err != nil {
		return nil, 0, err
	}
	k := record.AttemptKey(run.Workflow, run.Attempt)
	if err := c.Load(ctx, append([]store.Key{k, record.WorkflowKey(run.Workflow), record.BeatKey(run.Workflow)}, more...)...); err != nil {
		return nil, 0, err
	}
	a, ok, err := ledger.Get[record.Attempt](c.Read, k)
	if err != nil {
		return nil, 0, err
	}
	// A wrong token and a workflow that does not exist are told apart by nobody.
	if !ok || subtle.ConstantTimeCompare([]byte(a.Hash), []byte(record.Hash(token))) != 1 {
		return nil, 0, workflow.Refuse(workflow.ErrUnauthenticated, "", "this is not the token of attempt %d of that job", run.Attempt)
	}
	w, err := c.Workflow(ctx, "", run.Workflow)
	if err != nil {
		return nil, 0, err
	}
	s, err := rules.Admit(w, run)
	return w, s, err
}

// Alive takes a call of a run for one of its pool and, where the run holds its workflow, for a sign of life. A
// heartbeat also says which step the run is in.
func Alive(ctx context.Context, c *moves.Change, w *record.Workflow, s rules.Standing, step ...string) (rules.Time, error) {
	now, err := c.Called(ctx, w.PoolID)
	if err != nil || s != rules.Holds {
		return now, err
	}
	last, err := c.Beat(w.ID)
	if err != nil {
		return now, err
	}
	sign := rules.Sign(now, append(step, last.Step)[0])
	if rules.IsNews(sign, last) {
		c.Put(record.BeatKey(w.ID), sign)
	}
	return now, nil
}

// Start is the fence: it grants the run of an attempt to one boot of one task that was reported as
// launched, and to no other, ever. The same boot asking again gets the same answer. A task whose
// report is still on its way is let wait for it a little: on a fast machine it is here first.
func (p *Calls) Start(ctx context.Context, token string, run api.Run, in api.Start) (api.Control, error) {
	var out api.Control
	var refusal error
	err := p.wakes.Await(ctx, wake.StartOf(run.Workflow), reportWait, func(bool) (bool, error) {
		if out, refusal = p.start(ctx, token, run, in); refusal == nil {
			p.wakes.Ring(wake.StartOf(run.Workflow)) // whoever else waits for it is refused now
		}
		return !errors.Is(refusal, workflow.ErrNotReported), nil
	})
	return out, cmp.Or(err, refusal)
}

// reportWait is how long a start waits for the report of its launch.
const reportWait = 3 * time.Second

func (p *Calls) start(ctx context.Context, token string, run api.Run, in api.Start) (api.Control, error) {
	var out api.Control
	var ended error
	err := p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		w, s, err := Admit(ctx, c, token, run, record.ReaderKey(run.Workflow))
		if err != nil {
			return err
		}
		now, err := Alive(ctx, c, w, s)
		if err != nil {
			return err
		}
		granted, err := rules.Start(w, s, run, in.Knows, now)
		if err != nil {
			return err
		}
		if s == rules.Holds {
			c.Drop(w) // as in lives
		}
		ended = nil
		switch granted.Move.To { //nolint:exhaustive // a start leads to no other state
		case workflow.Running:
			c.Put(record.BeatKey(w.ID), rules.Sign(now, ""))
			c.Put(record.AttemptKey(w.ID, run.Attempt), record.Attempt{Hash: record.Hash(token), Task: run.Task, Boot: run.Boot})
		case workflow.Failed:
			ended = workflow.Refuse(workflow.ErrOver, "", "%s", granted.Detail)
		}
		if err := c.Apply(ctx, w, granted); err != nil {
			return err
		}
		out = Control(c, w, now, p.wait)
		return nil
	})
	return out, cmp.Or(err, ended)
}

// Spec gives a started run what it is to do.
func (p *Calls) Spec(ctx context.Context, token string, run api.Run) (api.Spec, error) {
	var w *record.Workflow
	err := p.board.Change(ctx, func(ctx context.Context, c *moves.Change) (err error) {
		w, _, err = lives(ctx, c, token, run)
		return err
	})
	if err != nil {
		return api.Spec{}, err
	}
	return p.spec(ctx, w)
}

// lives admits a run that holds its workflow and tells of itself alone. The workflow's record is not touched: its
// version changes only when it moves.
func lives(ctx context.Context, c *moves.Change, token string, run api.Run, step ...string) (*record.Workflow, rules.Time, error) {
	w, s, err := Admit(ctx, c, token, run, record.ReaderKey(run.Workflow))
	if err == nil {
		err = rules.NeedsHold(s)
	}
	if err != nil {
		return nil, rules.Time{}, err
	}
	c.Drop(w)
	now, err := Alive(ctx, c, w, s, step...)
	return w, now, err
}

// Heartbeat records a sign of life.
func (p *Calls) Heartbeat(ctx context.Context, token string, run api.Run, in api.Heartbeat) (api.Control, error) {
	var out api.Control
	err := p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		w, now, err := lives(ctx, c, token, run, record.Cut(in.Step, 64))
		if err != nil {
			return err
		}
		out = Control(c, w, now, p.wait)
		return nil
	})
	return out, err
}

// Steps records where the steps of a run stand.
func (p *Calls) Steps(ctx context.Context, token string, run api.Run, in api.Steps) (api.Control, error) {
	var out api.Control
	err := p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		w, now, err := lives(ctx, c, token, run)
		if err != nil {
			return err
		}
		out = Control(c, w, now, p.wait)
		latest := map[int]api.Step{}
		var keys []store.Key
		for _, step := range in.Steps {
			if step.Seq < 1 || step.Seq > 9999 {
				return workflow.Refuse(workflow.ErrInvalid, "steps", "a step's seq lies between 1 and 9999")
			}
			latest[step.Seq] = step
			keys = append(keys, record.StepKey(w.ID, run.Attempt, step.Seq))
		}
		if err := c.Load(ctx, keys...); err != nil {
			return err
		}
		for seq, step := range latest {
			k := record.StepKey(w.ID, run.Attempt, seq)
			before, ok, err := ledger.Get[api.Step](c.Read, k)
			if err != nil {
				return err
			}
			// A late report of the beginning does not undo the end.
			if ok && before.Status != workflow.StepRunning {
				continue
			}
			c.Put(k, step)
		}
		return nil
	})
	return out, err
}

// Result records how a run ended. A result of the boot that holds the run is final; one that comes
// late never changes a terminal state, but is told in the timeline, and proves the end.
func (p *Calls) Result(ctx context.Context, token string, run api.Run, in api.Result) (api.Control, error) {
	if err := rules.CheckResult(in); err != nil {
		return api.Control{}, err
	}
	var out api.Control
	var ran *record.Workflow
	err := p.board.ChangeHot(ctx, func(ctx context.Context, c *moves.Change) error {
		ran = nil
		k := record.ResultKey(run.Workflow, run.Attempt)
		w, s, err := Admit(ctx, c, token, run, k)
		if err != nil {
			return err
		}
		now, err := c.Called(ctx, w.PoolID)
		if err != nil {
			return err
		}
		out = rules.Control(w, now)
		if c.Version(k) != store.Absent {
			return nil // reported before
		}
		data, err := json.Marshal(in)
		if err != nil || len(data) > store.MaxValue {
			return workflow.Refuse(workflow.ErrTooLarge, "", "the result has %d bytes, the most is %d", len(data), store.MaxValue)
		}
		ended, err := rules.Result(w, s, run, in, c.Now)
		if err != nil {
			return err
		}
		if ended.Moves() {
			ran = w
		}
		c.Create(k, in)
		if in.State != nil {
			if err := remember(ctx, c, w, *in.State); err != nil {
				return err
			}
		}
		return c.Apply(ctx, w, ended)
	})
	if err == nil && ran != nil {
		p.log.Info("workflow ended", "job_id", ran.ID, "attempt", ran.Attempt, "state", ran.State, "reason", ran.Reason)
	}
	return out, err
}

// remember keeps what a run found of its workspace's state.
func remember(ctx context.Context, c *moves.Change, w *record.Workflow, found api.StateFound) error {
	k := record.StateKey(w.Org, w.WorkspaceID)
	if err := c.Load(ctx, k); err != nil {
		return err
	}
	known, _, err := ledger.Get[api.StateFound](c.Read, k)
	if err != nil {
		return err
	}
	c.Put(k, rules.Remember(known, found))
	return nil
}

// spec reads a frozen spec, and what is known of the state by now.
func (p *Calls) spec(ctx context.Context, w *record.Workflow) (api.Spec, error) {
	k, state := record.SpecKey(w.ID), record.StateKey(w.Org, w.WorkspaceID)
	r, err := p.ledger.Read(ctx, k, state)
	if err != nil {
		return api.Spec{}, ledger.OutOfStore(err)
	}
	spec, ok, err := ledger.Get[api.Spec](r, k)
	if err == nil && !ok {
		err = fmt.Errorf("workflow %s has no spec", w.ID)
	}
	if err != nil {
		return api.Spec{}, err
	}
	spec.Attempt, spec.LogQuota = w.Attempt, p.quota
	if known, ok, err := ledger.Get[api.StateFound](r, state); err != nil {
		return api.Spec{}, err
	} else if ok {
		spec.Known, spec.Namesakes, spec.RanBefore = &known, nil, false
	}
	return spec, nil
}
