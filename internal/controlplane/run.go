package controlplane

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/mutate"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// standing is what a runner's call finds.
type standing int

const (
	mayStart standing = iota + 1 // claimed, and no boot holds it
	holds                        // this boot holds the run, or its slot
	ended                        // this boot held it; the end was recorded
)

// admit decides what a call that names run may do: a pure function of the record.
func admit(w *record.Workflow, run api.Run) (standing, error) {
	over := func(why string) error {
		return workflow.Refuse(workflow.ErrOver, "", "attempt %d of %s is over: %s; stop the engine and exit", run.Attempt, w.ID, why)
	}
	if run.Attempt != w.Attempt {
		return 0, over(fmt.Sprintf("attempt %d came after it", w.Attempt))
	}
	mine := w.Holder.Is(run) || mutate.On(mutate.NoStartFence) // see package mutate
	switch w.State {
	case workflow.Claimed:
		return mayStart, nil
	case workflow.Running:
		if mine {
			return holds, nil
		}
		return 0, workflow.Refuse(workflow.ErrAlreadyStarted, "", "attempt %d of %s was started by another boot; exit and do nothing", run.Attempt, w.ID)
	case workflow.Pending:
		return 0, over("its claim has lapsed")
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		switch {
		case mine && w.SlotHeld:
			return holds, nil // given up for lost, but nobody stops it
		case mine:
			return ended, nil
		case w.Holder.Boot != "":
			return 0, workflow.Refuse(workflow.ErrAlreadyStarted, "", "attempt %d of %s was started by another boot; exit and do nothing", run.Attempt, w.ID)
		}
		return 0, over("the workflow is " + string(w.State))
	}
	return 0, fmt.Errorf("workflow %s has the unknown state %q", w.ID, w.State)
}

// runnerCall authenticates a job token and reads the workflow that it is for, with more of what the
// call needs.
func (c *change) runnerCall(ctx context.Context, token string, run api.Run, more ...store.Key) (*record.Workflow, standing, error) {
	if err := checkRun(run); err != nil {
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
	w, err := c.workflow(ctx, "", run.Workflow)
	if err != nil {
		return nil, 0, err
	}
	s, err := admit(w, run)
	return w, s, err
}

func checkRun(run api.Run) error {
	if err := record.CheckID(run.Workflow); err != nil {
		return err
	}
	if run.Attempt < 1 || run.Attempt > 9999 {
		return workflow.Refuse(workflow.ErrInvalid, api.HeaderAttempt, "the attempt is a number from 1")
	}
	if run.Task == "" || len(run.Task) > 512 {
		return workflow.Refuse(workflow.ErrInvalid, api.HeaderTask, "the task is named in 1 to 512 bytes")
	}
	if len(run.Boot) != 32 {
		return workflow.Refuse(workflow.ErrInvalid, api.HeaderBoot, "the boot is 32 hexadecimal digits")
	}
	return nil
}

// control is the answer to a runner.
func control(w *record.Workflow, now time.Time) api.Control {
	return api.Control{
		Cancel:           !w.CancelAt.IsZero() && w.State == workflow.Running,
		RemainingSeconds: w.Deadline.Sub(now).Seconds(),
		HeartbeatSeconds: workflow.HeartbeatInterval.Seconds(),
	}
}

// Start is the fence: it grants the run of an attempt to one boot of one task that was reported as
// launched, and to no other, ever. The same boot asking again gets the same answer. A task whose
// report is still on its way is let wait for it a little: on a fast machine it is here first.
func (p *Plane) Start(ctx context.Context, token string, run api.Run) (api.Control, error) {
	var out api.Control
	var refusal error
	err := p.wakes.Await(ctx, "start/"+run.Workflow, reportWait, func(bool) (bool, error) {
		if out, refusal = p.start(ctx, token, run); refusal == nil {
			p.wakes.Ring("start/" + run.Workflow) // whoever else waits for it is refused now
		}
		return !errors.Is(refusal, workflow.ErrNotReported), nil
	})
	return out, cmp.Or(err, refusal)
}

// reportWait is how long a start waits for the report of its launch.
const reportWait = 3 * time.Second

func (p *Plane) start(ctx context.Context, token string, run api.Run) (api.Control, error) {
	var out api.Control
	err := p.change(ctx, func(ctx context.Context, c *change) error {
		w, s, err := c.runnerCall(ctx, token, run)
		if err != nil {
			return err
		}
		switch s {
		case holds:
			out = control(w, c.Now)
			return nil
		case ended:
			return workflow.Refuse(workflow.ErrOver, "", "the run has ended")
		case mayStart:
		}
		if !slices.ContainsFunc(w.Tasks, func(t record.Task) bool { return t.Ref == run.Task && !t.Stopped }) {
			return &workflow.Error{Kind: workflow.ErrNotReported, Message: "task " + record.Cut(run.Task, 100) + " is not reported as launched yet; ask again", RetryAfter: time.Second}
		}
		m, err := workflow.Next(w.State, workflow.OnStart, facts(w))
		if err != nil {
			return err
		}
		if err := c.move(ctx, w, m, "", false); err != nil {
			return err
		}
		w.Starts++
		w.Started, w.Deadline = c.Now, c.Now.Add(w.MaxRuntime)
		w.Holder = record.Holder{Attempt: run.Attempt, Task: run.Task, Boot: run.Boot}
		w.Lease, w.Held = time.Time{}, record.Held{}
		c.Put(record.BeatKey(w.ID), record.Beat{At: c.Now})
		c.event(w, "started", "started; at most "+w.MaxRuntime.String(), byTask(run.Task))
		out = control(w, c.Now)
		return nil
	})
	return out, err
}

// Spec gives a started run what it is to do.
func (p *Plane) Spec(ctx context.Context, token string, run api.Run) (api.Spec, error) {
	c := p.newChange()
	w, s, err := c.runnerCall(ctx, token, run)
	if err != nil {
		return api.Spec{}, ledger.OutOfStore(err)
	}
	if err := needsHold(s); err != nil {
		return api.Spec{}, err
	}
	spec, err := p.specRead(ctx, w.ID)
	spec.Attempt = w.Attempt
	return spec, err
}

func needsHold(s standing) error {
	switch s {
	case mayStart:
		return workflow.Refuse(workflow.ErrNotStarted, "", "ask for the start first")
	case ended:
		return workflow.Refuse(workflow.ErrOver, "", "the run has ended")
	case holds:
	}
	return nil
}

// Heartbeat records a sign of life.
func (p *Plane) Heartbeat(ctx context.Context, token string, run api.Run, in api.Heartbeat) (api.Control, error) {
	var out api.Control
	err := p.change(ctx, func(ctx context.Context, c *change) error {
		w, s, err := c.runnerCall(ctx, token, run)
		if err != nil {
			return err
		}
		if err := needsHold(s); err != nil {
			return err
		}
		out = control(w, c.Now)
		// The workflow's record is not touched: its version changes only when it moves.
		delete(c.wfs, w.ID)
		c.Put(record.BeatKey(w.ID), record.Beat{At: c.Now, Step: record.Cut(in.Step, 64)})
		return nil
	})
	return out, err
}

// Steps records where the steps of a run stand.
func (p *Plane) Steps(ctx context.Context, token string, run api.Run, in api.Steps) (api.Control, error) {
	var out api.Control
	err := p.change(ctx, func(ctx context.Context, c *change) error {
		w, s, err := c.runnerCall(ctx, token, run)
		if err != nil {
			return err
		}
		if err := needsHold(s); err != nil {
			return err
		}
		out = control(w, c.Now)
		delete(c.wfs, w.ID)
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
func (p *Plane) Result(ctx context.Context, token string, run api.Run, in api.Result) (api.Control, error) {
	if err := checkResult(in); err != nil {
		return api.Control{}, err
	}
	var out api.Control
	var ran *record.Workflow
	err := p.changeHot(ctx, func(ctx context.Context, c *change) error {
		ran = nil
		k := record.ResultKey(run.Workflow, run.Attempt)
		w, s, err := c.runnerCall(ctx, token, run, k)
		if err != nil {
			return err
		}
		out = control(w, c.Now)
		if c.Version(k) != store.Absent {
			return nil // reported before
		}
		data, err := json.Marshal(in)
		if err != nil || len(data) > store.MaxValue {
			return workflow.Refuse(workflow.ErrTooLarge, "", "the result has %d bytes, the most is %d", len(data), store.MaxValue)
		}
		switch {
		case s == mayStart:
			return needsHold(s)
		case w.State == workflow.Running:
			f := facts(w)
			f.Outcome, f.Reason = in.Outcome, in.Reason
			m, err := workflow.Next(w.State, workflow.OnResult, f)
			if err != nil {
				return err
			}
			ran = w
			c.event(w, "result", resultText(in), byTask(run.Task))
			c.Create(k, in)
			return c.move(ctx, w, m, in.Detail, true)
		case c.Now.Sub(w.Ended) > workflow.ReportRetention:
			return workflow.Refuse(workflow.ErrOver, "", "the run ended more than %s ago", workflow.ReportRetention)
		}
		c.event(w, "late_result", fmt.Sprintf("LATE RESULT: this workflow was already %s (%s), but its runner has finished after all: %s", w.State, w.Reason, resultText(in)), byTask(run.Task))
		c.Create(k, in)
		if w.SlotHeld {
			return c.retire(ctx, w)
		}
		return nil
	})
	if err == nil && ran != nil {
		p.log.Info("workflow ended", "job_id", ran.ID, "attempt", ran.Attempt, "state", ran.State, "reason", ran.Reason)
	}
	return out, err
}

func checkResult(in api.Result) error {
	switch in.Outcome {
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
	default:
		return workflow.Refuse(workflow.ErrInvalid, "outcome", "an outcome is succeeded, failed or cancelled")
	}
	if !in.Reason.Known() {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "reason %q is not in the list of reasons", record.Cut(string(in.Reason), 40))
	}
	if in.Outcome == workflow.Failed && in.Reason == workflow.ReasonNone {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "a failure has a reason")
	}
	if in.Outcome == workflow.Succeeded && in.Reason != workflow.ReasonNone {
		return workflow.Refuse(workflow.ErrInvalid, "reason", "a success has no reason")
	}
	return nil
}

func resultText(in api.Result) string {
	text := string(in.Outcome)
	if in.Reason != workflow.ReasonNone && string(in.Reason) != text {
		text += " (" + string(in.Reason) + ")"
	}
	text += because(in.Detail)
	if ch := in.Changes; ch != nil {
		text += fmt.Sprintf("; %d to add, %d to change, %d to destroy", ch.Add, ch.Change, ch.Destroy)
		if ch.Drift > 0 {
			text += fmt.Sprintf(", %d drifted", ch.Drift)
		}
	}
	if in.Lock != nil {
		text += fmt.Sprintf("; STATE LOCK STILL HELD: %s by %s", in.Lock.ID, cmpText(in.Lock.Who, "unknown"))
	}
	return text
}
