package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Spec gives a started run its spec.
func (p *Calls) Spec(ctx context.Context, token string, run api.Run) (api.Spec, error) {
	w, _, err := p.asHolder(ctx, token, run, nil)
	if err != nil {
		return api.Spec{}, err
	}
	return p.spec(ctx, w, nil)
}

// Heartbeat records a sign of life.
func (p *Calls) Heartbeat(ctx context.Context, token string, run api.Run, in api.Heartbeat) (api.Control, error) {
	step := text.Cut(in.Step, 64)
	_, out, err := p.asHolder(ctx, token, run, &step)
	return out, err
}

// Steps records the progress of the steps of a run.
func (p *Calls) Steps(ctx context.Context, token string, run api.Run, in api.Steps) (api.Control, error) {
	_, out, err := p.asHolder(ctx, token, run, nil, putSteps(run, in.Steps))
	if err == nil {
		p.ledger.Notify(ledger.RunOf(run.Workflow))
	}
	return out, err
}

// putSteps records steps.
func putSteps(run api.Run, steps []api.Step) ledger.Decision {
	return func(ctx context.Context, c *ledger.Change) error {
		latest := map[store.Key]api.Step{}
		for _, step := range steps {
			if step.Seq < 1 || step.Seq > 9999 {
				return workflow.Refuse(workflow.ErrInvalid, "steps", "a step's seq lies between 1 and 9999")
			}
			latest[record.StepKey(run.Workflow, run.Attempt, step.Seq)] = step
		}
		if err := c.Load(ctx, slices.Collect(maps.Keys(latest))...); err != nil {
			return err
		}
		for k, step := range latest {
			before, ok, err := ledger.Get[api.Step](c.Read, k)
			if err != nil {
				return err
			}
			switch {
			case !ok:
				c.Add(store.Append(record.Encode(k, step)))
			case before.Status == workflow.StepRunning: // a late report of the beginning does not undo the end
				c.Put(k, step)
			}
		}
		return nil
	}
}

// Result records how a run ended, with the last of its steps and of its log. A result of the boot that holds the run
// is final. A late one never changes a terminal state, but it goes to the timeline, and proves the end.
func (p *Calls) Result(ctx context.Context, token string, run api.Run, in api.Handover) (out api.HandedOver, err error) {
	if err := rules.CheckResult(in.Result); err != nil {
		return out, err
	}
	if in.Tail != nil {
		if out.Next, err = p.lastLines(ctx, token, run, *in.Tail); err != nil {
			p.ledger.Log.Debug("last lines not taken with the result", "job_id", run.Workflow, "attempt", run.Attempt, "err", err)
		}
	}
	var ran *record.Workflow
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) (err error) {
		ran, err = p.result(ctx, c, token, run, in, &out.Control)
		return err
	})
	if err == nil && ran != nil {
		p.ledger.Log.Info("workflow ended", "job_id", ran.ID, "attempt", ran.Attempt, "state", ran.State, "reason", ran.Reason)
	}
	return out, err
}

// result adds a result to a change. It returns the workflow if the result ends it.
func (p *Calls) result(ctx context.Context, c *ledger.Change, token string, run api.Run, in api.Handover, control *api.Control) (ran *record.Workflow, err error) {
	k := record.ResultKey(run.Workflow, run.Attempt)
	w, s, err := admit(ctx, c, token, run, k)
	if err != nil {
		return nil, err
	}
	now, err := c.Called(ctx, w.PoolID)
	if err != nil {
		return nil, err
	}
	*control = rules.Control(w, now)
	if c.Version(k) != store.Absent {
		return nil, nil // reported before
	}

	data, err := json.Marshal(in.Result)
	if err != nil || len(data) > store.MaxValue {
		return nil, workflow.Refuse(workflow.ErrTooLarge, "", "the result has %d bytes, the limit is %d", len(data), store.MaxValue)
	}
	if err := putSteps(run, in.Steps)(ctx, c); err != nil {
		return nil, err
	}
	ended, err := rules.Result(w, s, run, in.Result, c.Now)
	if err != nil {
		return nil, err
	}
	if ended.Moves() {
		ran = w
		w.Changes = in.Slim().Changes
		if in.Checks != nil {
			w.Checks = in.Checks.Failing
		}
	}
	c.Create(k, shown(in.Result))
	recordPolicies(c, w, in.Result)
	if in.State != nil {
		if err := remember(ctx, c, w, *in.State); err != nil {
			return nil, err
		}
	}
	if err := checkReportedPlan(w, in.Plan); err != nil {
		return nil, err
	}

	if err := c.Apply(ctx, w, ended); err != nil || !ended.Moves() || w.State != workflow.Succeeded {
		return ran, err
	}
	return ran, p.succeeded(ctx, c, w, in.Result)
}

// checkReportedPlan refuses a plan of a run that has none to be applied.
func checkReportedPlan(w *record.Workflow, plan *api.PlanMade) error {
	if plan != nil && (w.Op != workflow.Preview || w.For == "") {
		return workflow.Refuse(workflow.ErrInvalid, "plan", "only a preview whose plan is to be applied reports a plan")
	}
	return nil
}

// succeeded adds to the commit of a run's success its drift, its outputs, and its effects on plans.
func (p *Calls) succeeded(ctx context.Context, c *ledger.Change, w *record.Workflow, in api.Result) error {
	if w.Type == workflow.InsightsScan && w.Changes != nil && w.Changes.Drift > 0 {
		c.Emit(w.Org, record.OutboxEventOf(api.EventDrift, w, c.Now))
	}
	if err := produce(ctx, c, w, in); err != nil {
		return err
	}
	return p.ended(ctx, c, w, in)
}

// lastLines adds the lines that come with a result. The result counts even if they fail: the runner sends the missing
// lines again from next on.
func (p *Calls) lastLines(ctx context.Context, token string, run api.Run, tail api.LogTail) (next int64, err error) {
	lines, err := tail.Unpack()
	for first := tail.First; err == nil && len(lines) > 0; {
		n := api.LogBatch(lines)
		var taken api.LogsTaken
		taken, err = p.AppendLogs(ctx, token, run, api.Logs{First: first, Lines: lines[:n]})
		next, first, lines = max(next, taken.Next), first+int64(n), lines[n:]
	}
	if gap, ok := errors.AsType[*api.LogGapError](err); ok {
		next = gap.Next
	}
	return next, err
}

// remember stores the state of its workspace that a run reported.
func remember(ctx context.Context, c *ledger.Change, w *record.Workflow, found api.StateFound) error {
	k := record.StateKey(w.Org, w.WorkspaceID)
	known, _, err := ledger.Load[api.StateFound](ctx, c, k)
	if err != nil {
		return err
	}
	c.Put(k, rules.Remember(known, found))
	if !w.ChangesState() || found.Place == "" || found.Place == known.Place && found.Lineage == known.Lineage {
		return nil
	}
	return keepState(ctx, c, w, found)
}

// spec reads a frozen spec, and adds the run's inputs from other workspaces, the policies that held at the start of
// the attempt, and the latest known state. frozen, if it is not nil, was read already.
func (p *Calls) spec(ctx context.Context, w *record.Workflow, frozen *api.Spec) (api.Spec, error) {
	k, state, given, graph := record.SpecKey(w.ID), record.StateKey(w.Org, w.WorkspaceID), record.GivenKey(w.ID, w.Attempt), record.GraphKey(w.Org)
	keys := []store.Key{state}
	if frozen == nil {
		keys = append(keys, k)
	}
	if frozen == nil || len(frozen.Inputs) > 0 {
		keys = append(keys, given)
	}
	if w.ChangesState() {
		keys = append(keys, graph)
	}
	held := record.HeldToKey(w.ID, w.Attempt)
	if policed(w) {
		keys = append(keys, held)
	}
	r, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return api.Spec{}, err
	}
	if frozen == nil {
		if frozen, err = frozenSpec(r, w.ID); err != nil {
			return api.Spec{}, err
		}
	}
	spec := *frozen
	was, _, err := ledger.Get[record.Given](r, given)
	if err != nil {
		return api.Spec{}, err
	}
	fed(&spec, was)
	if spec.ShareOutputs, err = takesSensitive(r, w.Org, w.Workspace); err != nil {
		return api.Spec{}, err
	}
	spec.Attempt, spec.LogQuota = w.Attempt, p.cfg.LogQuota
	to, _, err := ledger.Get[record.HeldTo](r, held)
	if err != nil {
		return api.Spec{}, err
	}
	spec.Policies = to.Policies
	if known, ok, err := ledger.Get[api.StateFound](r, state); err != nil {
		return api.Spec{}, err
	} else if ok {
		spec.Known, spec.Namesakes, spec.Withheld = &known, nil, false
	}
	return spec, nil
}

// frozenSpec decodes the spec of a workflow, which was read.
func frozenSpec(r ledger.Read, id string) (*api.Spec, error) {
	spec, ok, err := ledger.Get[api.Spec](r, record.SpecKey(id))
	if err == nil && !ok {
		err = fmt.Errorf("workflow %s has no spec", id)
	}
	return &spec, err
}
