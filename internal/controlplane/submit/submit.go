// Package submit takes requests for runs: it makes a workflow of a workspace, again or anew, and takes the
// request back.
package submit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/authority"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/moves"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pools"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/views"
	"github.com/dayfly-dev/dayfly/internal/controlplane/wake"
	"github.com/dayfly-dev/dayfly/internal/controlplane/workspaces"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Calls answers who asks for runs.
type Calls struct {
	ledger       *ledger.Ledger
	board        *moves.Board
	guard        *authority.Guard
	wakes        *wake.Wakes
	views        *views.Calls
	log          *slog.Logger
	defaultState string
}

// New returns the calls.
func New(ledger *ledger.Ledger, board *moves.Board, guard *authority.Guard, wakes *wake.Wakes, views *views.Calls, log *slog.Logger, defaultState string) *Calls {
	return &Calls{ledger: ledger, board: board, guard: guard, wakes: wakes, views: views, log: log, defaultState: defaultState}
}

// Submit makes a workflow of a workspace. The same key with the same request gives the same
// workflow again.
func (p *Calls) Submit(ctx context.Context, who authority.Principal, key string, in api.Submit) (api.Workflow, error) {
	if err := p.guard.Allow(ctx, who, api.RoleOperator, "workflow.submit", in.Workspace); err != nil {
		return api.Workflow{}, err
	}
	return p.submit(ctx, who, key, in, "")
}

// Retry makes a new workflow like one that has ended, of the workspace as it is now. The ended one
// is never reopened.
func (p *Calls) Retry(ctx context.Context, who authority.Principal, key, id string) (api.Workflow, error) {
	if err := p.guard.Allow(ctx, who, api.RoleOperator, "workflow.retry", id); err != nil {
		return api.Workflow{}, err
	}
	w, err := p.board.Workflow(ctx, who.Organization, id)
	if err != nil {
		return api.Workflow{}, err
	}
	if !w.State.Terminal() {
		return api.Workflow{}, workflow.Refuse(workflow.ErrConflict, "id", "workflow %s is %s; only one that has ended can be retried", id, w.State)
	}
	return p.submit(ctx, who, key, api.Submit{Workspace: w.Workspace, Type: w.Type, Operation: w.Op, Priority: w.Priority, Message: w.Message}, id)
}

func (p *Calls) submit(ctx context.Context, who authority.Principal, key string, in api.Submit, retryOf string) (api.Workflow, error) {
	if err := checkSubmit(&in); err != nil {
		return api.Workflow{}, err
	}
	if len(key) > 128 {
		return api.Workflow{}, workflow.Refuse(workflow.ErrInvalid, "Idempotency-Key", "an idempotency key has at most 128 characters")
	}
	request := record.Hash(fmt.Sprintf("submit %q %q %q %d %q %q", in.Workspace, in.Type, in.Operation, in.Priority, in.Message, retryOf))
	now := p.ledger.Now()
	id := record.NewID("wf_", now)
	var made *record.Workflow
	err := p.board.Change(ctx, func(ctx context.Context, c *moves.Change) error {
		made = nil
		if key != "" {
			k := record.IdempotencyKey(who.Organization, who.Name, key)
			if err := c.Load(ctx, k); err != nil {
				return err
			}
			before, ok, err := ledger.Get[record.Idempotency](c.Read, k)
			switch {
			case err != nil:
				return err
			case ok && before.Request != request:
				return workflow.Refuse(workflow.ErrKeyReused, "Idempotency-Key", "this idempotency key was used for another request; use a new one")
			case ok:
				id = before.Result
				return nil
			}
			rec := record.Encode(k, record.Idempotency{Request: request, Result: id})
			rec.Expires = now.Add(record.IdempotencyKept).Unix()
			c.Add(store.Put(rec, store.Absent))
		}
		var err error
		made, err = p.add(ctx, c, who, in, id, retryOf)
		return err
	})
	if err != nil {
		return api.Workflow{}, err
	}
	if made != nil {
		p.log.Info("workflow submitted", "job_id", id, "workspace", in.Workspace, "type", in.Type, "operation", in.Operation)
	}
	return p.views.Workflow(ctx, who, id)
}

func checkSubmit(in *api.Submit) error {
	if in.Type == "" {
		in.Type = workflow.Deployment
	}
	switch in.Type {
	case workflow.PolicyEvaluation:
		return workflow.Refuse(workflow.ErrUnsupported, "type", "this version does not run policy evaluations yet")
	case workflow.Deployment:
		if !slices.Contains(workflow.Operations(), in.Operation) {
			return workflow.Refuse(workflow.ErrInvalid, "operation", "a deployment needs an operation: preview, update, refresh or destroy")
		}
	case workflow.InsightsScan:
		if in.Operation != "" {
			return workflow.Refuse(workflow.ErrInvalid, "operation", "only a deployment has an operation")
		}
	default:
		return workflow.Refuse(workflow.ErrInvalid, "type", "type %q is none of deployment, insights_scan", record.Cut(string(in.Type), 40))
	}
	if in.Priority < -100 || in.Priority > 100 {
		return workflow.Refuse(workflow.ErrInvalid, "priority", "a priority lies between -100 and 100")
	}
	if len(in.Message) > 200 {
		return workflow.Refuse(workflow.ErrInvalid, "message", "a message has at most 200 bytes")
	}
	return nil
}

// add adds a new workflow to a change.
func (p *Calls) add(ctx context.Context, c *moves.Change, who authority.Principal, in api.Submit, id, retryOf string) (*record.Workflow, error) {
	ws, err := workspaces.Load(ctx, c.Change, who.Organization, in.Workspace)
	if err != nil {
		return nil, err
	}
	pool, err := pools.For(ctx, c.Change, who.Organization, ws.W.Pool)
	if err != nil {
		return nil, err
	}
	if err := pools.Serves(pool, ws.W.Name, in.Type); err != nil {
		return nil, err
	}
	if err := pools.Lends(pool, ws.W.Role); err != nil {
		return nil, err
	}
	if err := runnable(ws.W, in); err != nil {
		return nil, err
	}
	priority := in.Priority
	if priority == 0 {
		priority = ws.W.DefaultPriority
	}
	maxRuntime, err := workspaces.MaxRuntime(ws.W)
	if err != nil {
		return nil, err
	}
	w := &record.Workflow{
		ID: id, Org: who.Organization, Workspace: ws.W.Name, WorkspaceID: ws.ID, PoolID: pool.ID,
		Type: in.Type, Op: in.Operation, Size: ws.W.Size, StateKind: p.stateOf(ws.W).Kind,
		Priority: priority, Message: in.Message, By: who.Name, RetryOf: retryOf, MaxRuntime: maxRuntime,
		State: workflow.Pending, Submitted: c.Now, Since: c.Now,
	}
	c.Keep(w)
	if err := c.Load(ctx, record.LaneKey(ws.ID)); err != nil {
		return nil, err
	}
	lane, err := c.Lane(ws.ID)
	if err != nil {
		return nil, err
	}
	lane.Max = cmp.Or(ws.W.MaxActive, moves.DefaultMaxActive)
	// The workspace must not change or vanish while this is decided.
	c.Check(record.WorkspaceKey(w.Org, ws.W.Name))
	c.Create(record.SpecKey(id), p.specOf(w, ws))
	text := fmt.Sprintf("submitted by %s for pool %s", who.Name, pool.Name)
	if retryOf != "" {
		text += ", as a retry of " + retryOf
	}
	c.Note(w, rules.Note{Kind: "submitted", Text: text, Actor: who.Name})
	authority.Audit(c.Change, who, "workflow.submit", id, "done", ws.W.Name)
	return w, c.Enqueue(ctx, w, lane)
}

// runnable refuses a run that its workspace says nothing about how to do.
func runnable(ws api.Workspace, in api.Submit) error {
	if ws.Engine != api.EngineCommand {
		return nil
	}
	name := commandName(in.Type, in.Operation)
	if ws.Commands[name] == "" {
		return workflow.Refuse(workflow.ErrInvalid, "operation", "workspace %s has no command for %s; add commands.%s to it", ws.Name, name, name)
	}
	return nil
}

func commandName(t workflow.Type, op workflow.Operation) string {
	if t == workflow.Deployment {
		return string(op)
	}
	return string(t)
}

// Cancel ends a workflow that waits, and asks a running one to end.
func (p *Calls) Cancel(ctx context.Context, who authority.Principal, id string) (api.Workflow, error) {
	if err := p.guard.Allow(ctx, who, api.RoleOperator, "workflow.cancel", id); err != nil {
		return api.Workflow{}, err
	}
	var poolID string
	err := p.board.ChangeHot(ctx, func(ctx context.Context, c *moves.Change) error {
		w, err := c.Workflow(ctx, who.Organization, id)
		if err != nil {
			return err
		}
		poolID = w.PoolID
		out, err := rules.Cancel(w, who.Name, c.Now)
		if err != nil || len(out.Notes) == 0 {
			return err
		}
		authority.Audit(c.Change, who, "workflow.cancel", id, "done", "")
		return c.Apply(ctx, w, out)
	})
	if err != nil {
		return api.Workflow{}, err
	}
	p.wakes.Ring(wake.StatesOf(poolID))
	return p.views.Workflow(ctx, who, id)
}
