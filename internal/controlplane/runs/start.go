package runs

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// control is the answer to a runner. The reader's record was loaded, because the answer says how long the runner is
// to gather lines of the log.
func (p *Calls) control(c *ledger.Change, w *record.Workflow, now rules.Time) api.Control {
	out := rules.Control(w, now)
	out.LogSeconds = p.cfg.LogIdle.Seconds()
	if r, _, err := ledger.Get[record.Reader](c.Read, record.ReaderKey(w.ID)); err == nil && c.Now.Before(r.Until) {
		out.LogSeconds = p.cfg.LogWait.Seconds()
	}
	return out
}

// admit authenticates a job token and reads the workflow that it is for, with the other records that the call needs.
func admit(ctx context.Context, c *ledger.Change, token string, run api.Run, more ...store.Key) (*record.Workflow, rules.Standing, error) {
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
	// The answer is the same for a wrong token and for an unknown workflow.
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

// alive counts a call of a run as a call of its pool and, if the run holds its workflow, as a sign of life. A
// heartbeat also says which step the run is in; nil leaves the step unchanged.
func alive(ctx context.Context, c *ledger.Change, w *record.Workflow, s rules.Standing, step *string) (rules.Time, error) {
	now, err := c.Called(ctx, w.PoolID)
	if err != nil || s != rules.Holds {
		return now, err
	}
	last, err := c.Beat(w.ID)
	if err != nil {
		return now, err
	}
	if step == nil {
		step = &last.Step
	}
	if sign := rules.Sign(now, *step); rules.MustStore(sign, last) {
		c.Put(record.BeatKey(w.ID), sign)
	}
	return now, nil
}

// Start is the fence: it grants the run of an attempt to one boot of one task that was reported as launched, and
// never to another, and answers with the spec. If the same boot asks again it gets the same answer. If the report of
// the task's launch is still on its way, the call waits a little: on a fast machine the start comes first.
func (p *Calls) Start(ctx context.Context, token string, run api.Run, in api.Start) (out api.Started, err error) {
	var refusal error
	var w *record.Workflow
	var frozen *api.Spec
	err = p.ledger.Await(ctx, startOf(run.Workflow), p.cfg.ReportWait, func(bool) (bool, error) {
		if w, frozen, out.Control, refusal = p.start(ctx, token, run, in); refusal == nil {
			p.ledger.Notify(startOf(run.Workflow)) // other waiting calls are refused now
		}
		return !errors.Is(refusal, workflow.ErrNotReported), nil
	})
	if err = cmp.Or(err, refusal); err != nil {
		return out, err
	}
	if spec, err := p.spec(ctx, w, frozen); err == nil {
		out.Spec = &spec // else the runner asks for it, and gets the error
	}
	return out, nil
}

func (p *Calls) start(ctx context.Context, token string, run api.Run, in api.Start) (w *record.Workflow, spec *api.Spec, out api.Control, err error) {
	var ended error
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		var s rules.Standing
		w, s, err = admit(ctx, c, token, run, record.ReaderKey(run.Workflow), record.SpecKey(run.Workflow))
		if err != nil {
			return err
		}
		now, err := alive(ctx, c, w, s, nil)
		if err != nil {
			return err
		}
		frozen, bad := frozenSpec(c.Read, w.ID)
		if spec = frozen; bad != nil {
			spec = nil // the runner asks for it, and gets the error
		}
		var may rules.Permit
		var held []api.Policy
		if s == rules.MayStart {
			if may, err = permit(ctx, c, w, *frozen); err != nil {
				return err
			}
			if held, err = holding(ctx, c, w); err != nil {
				return err
			}
			may.Policies = len(held) > 0
		}
		granted, err := rules.Start(w, s, run, in.Knows, may, now)
		if err != nil {
			return err
		}
		if s == rules.Holds {
			c.Drop(w) // as in asHolder
		}
		ended = nil
		switch granted.Move.To { //nolint:exhaustive // a start leads to no other state
		case workflow.Running:
			c.Put(record.BeatKey(w.ID), rules.Sign(now, ""))
			if len(held) > 0 {
				c.Create(record.HeldToKey(w.ID, run.Attempt), record.HeldTo{Policies: held})
			}
			c.Put(record.AttemptKey(w.ID, run.Attempt), record.Attempt{Hash: record.Hash(token), Task: run.Task, Boot: run.Boot, Used: may.Fed.Digest})
			if len(frozen.Inputs) > 0 {
				c.Create(record.GivenKey(w.ID, run.Attempt), record.Given{Variables: may.Fed.Variables, Sensitive: may.Fed.Sensitive})
			}
		case workflow.Failed:
			ended = workflow.Refuse(workflow.ErrOver, "", "%s", granted.Detail)
		}
		if err := c.Apply(ctx, w, granted); err != nil {
			return err
		}
		out = p.control(c, w, now)
		return nil
	})
	return w, spec, out, cmp.Or(err, ended)
}

// asHolder handles a call of a run that holds its workflow and reports only about itself. step is the step that the
// run is in; nil leaves it unchanged. also adds the rest of the report to the change. The workflow's record is not
// written: its version changes only when it moves.
func (p *Calls) asHolder(ctx context.Context, token string, run api.Run, step *string, also ...ledger.Decision) (w *record.Workflow, out api.Control, err error) {
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		var s rules.Standing
		if w, s, err = admit(ctx, c, token, run, record.ReaderKey(run.Workflow)); err != nil {
			return err
		}
		if err := rules.NeedsHold(s); err != nil {
			return err
		}
		c.Drop(w)
		now, err := alive(ctx, c, w, s, step)
		if err != nil {
			return err
		}
		out = p.control(c, w, now)
		for _, more := range also {
			if err := more(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
	return w, out, err
}
