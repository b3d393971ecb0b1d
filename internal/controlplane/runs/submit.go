package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Submit makes a workflow of a workspace. The same key with the same request returns the same workflow.
func (p *Calls) Submit(ctx context.Context, who identity.Principal, key string, in api.Submit) (api.Workflow, error) {
	scope := p.catalog.InWorkspace(who.Organization, in.Workspace)
	if in.Register != nil {
		scope = p.catalog.InApplied(who.Organization, *in.Register)
	}
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, "workflow.submit", in.Workspace, scope); err != nil {
		return api.Workflow{}, err
	}
	return p.submit(ctx, who, key, in, origin{})
}

// Triggered is a trigger that submits in place of a person, and the people who answer for that: they may not approve
// a plan under not_by_submitter.
type Triggered struct {
	record.Trigger
	Submitters api.PrincipalRefs
	Strangers  bool // somebody who is not a principal answers for it as well
	// Also adds to the commit that makes the run; if it refuses, no run is submitted. Nil adds nothing.
	Also func(ctx context.Context, c *ledger.Change, w *record.Workflow) error
}

// SubmitFor is Submit for a trigger: who is the trigger itself, in the audit trail as well. The caller has decided
// that it may; a repeat with the same key makes no second run.
func (p *Calls) SubmitFor(ctx context.Context, who identity.Principal, key string, in api.Submit, by Triggered) (api.Workflow, error) {
	in.Commit, in.Number = by.Commit, by.Number
	return p.submit(ctx, who, key, in, origin{trigger: &by})
}

// Refusal is the message of a refusal; empty for another error.
func Refusal(err error) string {
	if e, ok := errors.AsType[*workflow.Error](err); ok && !errors.Is(err, workflow.ErrBusy) {
		return e.Message
	}
	return ""
}

// Retry makes a new workflow like one that has ended, of the workspace as it is now. The ended workflow is never
// reopened.
func (p *Calls) Retry(ctx context.Context, who identity.Principal, key, id string, why api.WithReason) (api.Workflow, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, "workflow.retry", id, p.inWorkflow(who.Organization, id)); err != nil {
		return api.Workflow{}, err
	}
	if err := why.Check(); err != nil {
		return api.Workflow{}, err
	}
	c := p.ledger.View()
	w, err := c.Workflow(ctx, who.Organization, id, record.SpecKey(id))
	if err != nil {
		return api.Workflow{}, err
	}
	if !w.State.Terminal() {
		return api.Workflow{}, workflow.Refuse(workflow.ErrConflict, "id", "workflow %s is %s; only one that has ended can be retried", id, w.State)
	}
	spec, _, err := ledger.Get[api.Spec](c.Read, record.SpecKey(id))
	if err != nil {
		return api.Workflow{}, err
	}
	in := api.Submit{
		Workspace: w.Workspace, Type: w.Type, Operation: w.Op, Priority: &w.Priority, Message: w.Message,
		TakeOver: spec.TakeOver, TakeOverFrom: spec.TakeOverFrom, BeginAnew: spec.BeginAnew, LockID: spec.LockID, Push: spec.Push,
		Options: spec.Options,
	}
	if w.OwnMax {
		in.MaxRuntime = w.MaxRuntime.String()
	}
	repeat := origin{of: id, why: why.Reason}
	if w.For != "" { // it stays a preview, whether or not approvals are required by now
		in.Operation, repeat.keeps, repeat.then = w.For, w.For, w.Then
	}
	if w.Trigger != nil && w.Trigger.Commit != "" { // it keeps its commit and its submitters
		was, _, err := ledger.Load[record.Review](ctx, c, record.ReviewKey(cmp.Or(w.PlanOf, id)))
		if err != nil {
			return api.Workflow{}, err
		}
		repeat.trigger = &Triggered{Trigger: *w.Trigger, Submitters: was.Submitters, Strangers: was.Strangers}
		in.Commit, in.Number = w.Trigger.Commit, w.Trigger.Number
	}
	return p.submit(ctx, who, key, in, repeat)
}

func (p *Calls) submit(ctx context.Context, who identity.Principal, key string, in api.Submit, from origin) (api.Workflow, error) {
	if err := p.checkRequest(ctx, who, key, &in, from); err != nil {
		return api.Workflow{}, err
	}
	asked, err := askedFor(in, from.of)
	if err != nil {
		return api.Workflow{}, err
	}
	request := record.Hash(asked)
	now := p.ledger.Now()
	id := record.NewID("wf_", now)
	var first []store.Key // keys that are read at once
	if key != "" {
		first = append(first, record.IdempotencyKey(who.Organization, who.ID, key))
	}
	if workflow.CheckWorkspaceName(in.Workspace) == nil {
		first = append(first, record.WorkspaceKey(who.Organization, in.Workspace))
	}
	var made *record.Workflow
	var pool record.Pool
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		made = nil
		if err := c.LoadLinked(ctx, first...); err != nil {
			return err
		}
		before, err := c.Once(ctx, who.Organization, who.ID, key, request, id)
		if err != nil {
			return err
		}
		if before != "" {
			id = before
			return nil
		}
		made, pool, err = p.add(ctx, c, who, in, id, from)
		return err
	})
	if err != nil {
		return api.Workflow{}, identity.Refused(ctx, p.ledger, who, "workflow.submit", in.Workspace, err)
	}
	if made == nil { // it was made before
		return p.Workflow(ctx, who, id)
	}
	p.ledger.Log.Info("workflow submitted", "job_id", id, "workspace", in.Workspace, "type", in.Type, "operation", in.Operation)
	out := view(made, pool.Name, 1) // as it was committed
	out.Revision = revisionOf(out)
	return out, nil
}

// checkRequest refuses a request to submit that is invalid, or that the caller may not make.
func (p *Calls) checkRequest(ctx context.Context, who identity.Principal, key string, in *api.Submit, from origin) error {
	if err := checkSubmit(in); err != nil {
		return err
	}
	if err := checkCommit(who, *in, from); err != nil {
		return identity.Refused(ctx, p.ledger, who, "workflow.submit", in.Workspace, err)
	}
	if in.Register != nil {
		if err := p.checkRegister(*in); err != nil {
			return err
		}
	}
	if len(key) > 128 {
		return workflow.Refuse(workflow.ErrInvalid, "Idempotency-Key", "an idempotency key has at most 128 characters")
	}
	if in.Operation == workflow.StateUnlock {
		if err := identity.AllowIn(ctx, p.ledger, who, api.RoleAdmin, "state.unlock", in.Workspace, p.catalog.InWorkspace(who.Organization, in.Workspace)); err != nil {
			return err
		}
	}
	return nil
}

// askedFor is a text of all that a request asks for, to compare it with another one of the same key.
func askedFor(in api.Submit, retryOf string) (string, error) {
	priority := 0
	if in.Priority != nil {
		priority = *in.Priority
	}
	asked := fmt.Sprintf("submit %q %q %q %d %q %q", in.Workspace, in.Type, in.Operation, priority, in.Message, retryOf)
	if in.TakeOver || in.BeginAnew || in.LockID != "" {
		asked += fmt.Sprintf(" %t %q %t %q", in.TakeOver, in.TakeOverFrom, in.BeginAnew, in.LockID)
	}
	if retryOf == "" && in.Priority != nil && priority == 0 {
		asked += " priority 0"
	}
	if in.MaxRuntime != "" {
		asked += fmt.Sprintf(" max_runtime %q", in.MaxRuntime)
	}
	if in.Push != nil {
		asked += fmt.Sprintf(" push %q %d %t", in.Push.SHA256, in.Push.Size, in.Push.Force)
	}
	if in.Commit != "" {
		asked += fmt.Sprintf(" commit %q %d", in.Commit, in.Number)
	}
	if in.Options != nil {
		options, err := json.Marshal(in.Options)
		if err != nil {
			return "", fmt.Errorf("encode the options of a run of %s: %w", in.Workspace, err)
		}
		asked += " options " + string(options)
	}
	if in.Register != nil {
		settings, err := json.Marshal(in.Register)
		if err != nil {
			return "", fmt.Errorf("encode workspace %s: %w", in.Workspace, err)
		}
		asked += " " + string(settings)
	}
	return asked, nil
}

// add adds a new workflow to a change.
func (p *Calls) add(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Submit, id string, from origin) (_ *record.Workflow, pool record.Pool, err error) {
	ws, err := p.workspace(ctx, c, who, in)
	if err != nil {
		return nil, pool, err
	}
	if err := loadSubmission(ctx, c, who.Organization, ws, in); err != nil {
		return nil, pool, err
	}

	if pool, err = catalog.PoolFor(ctx, c, who.Organization, ws, in.Type); err != nil {
		return nil, pool, err
	}
	trigger, err := triggerOf(who, ws.W, in, from)
	if err != nil {
		return nil, pool, err
	}
	if err := checkOptions(who, ws.W, in, trigger); err != nil {
		return nil, pool, err
	}
	forOp, then, err := underApproval(ctx, c, who.Organization, ws, &in, from, trigger.Pull())
	if err != nil {
		return nil, pool, err
	}
	if err := runnable(ws.W, in); err != nil {
		return nil, pool, err
	}
	maxRuntime, err := maxRuntimeOf(ws.W, in.MaxRuntime, from.of != "")
	if err != nil {
		return nil, pool, err
	}
	// The workspace must not change or be deleted during this decision.
	c.Check(record.WorkspaceKey(who.Organization, ws.W.Name))

	w := &record.Workflow{
		ID: id, Org: who.Organization, Workspace: ws.W.Name, WorkspaceID: ws.ID, PoolID: pool.ID,
		Type: in.Type, Op: in.Operation, Size: ws.W.Size, Priority: *cmp.Or(in.Priority, &ws.W.DefaultPriority), Message: in.Message, By: who.Name, ByID: who.ID, RetryOf: from.of, For: forOp, Then: then, MaxRuntime: maxRuntime, OwnMax: in.MaxRuntime != "",
		State: workflow.Pending, Submitted: c.Now, Since: c.Now, Trigger: trigger, Options: in.Options != nil,
	}
	spec, err := p.newSpec(ctx, c, who, w, ws, pool, in)
	if err != nil {
		return nil, pool, err
	}
	w.Needs = spec.Needs()
	c.Keep(w)
	queue, err := c.Queue(ctx, ws.ID)
	if err != nil {
		return nil, pool, err
	}
	queue.Max = catalog.MaxActive(ws.W)
	if err := checkStateUnlock(ctx, c, in.Operation, queue); err != nil {
		return nil, pool, err
	}
	c.Create(record.SpecKey(id), spec)
	noteSubmission(c, who, ws, w, in, from, claimants(queue.Route.Key, pool.Name))
	if from.trigger != nil && from.trigger.Also != nil {
		if err := from.trigger.Also(ctx, c, w); err != nil {
			return nil, pool, err
		}
	}
	return w, pool, c.Enqueue(ctx, w)
}

// newSpec makes the spec of a new workflow.
func (p *Calls) newSpec(ctx context.Context, c *ledger.Change, who identity.Principal, w *record.Workflow, ws record.Workspace, pool record.Pool, in api.Submit) (spec api.Spec, err error) {
	spec = specOf(w, ws, in)
	if err := mayTake(w, spec.Inputs); err != nil {
		return spec, err
	}
	if spec.Policies, err = heldTo(ctx, c, w, ws); err != nil {
		return spec, err
	}
	err = p.addFound(ctx, c, who, &spec, ws, pool, w.Trigger == nil)
	return spec, err
}

// noteSubmission adds the timeline, the audit trail and the empty review of a new workflow that by may claim.
func noteSubmission(c *ledger.Change, who identity.Principal, ws record.Workspace, w *record.Workflow, in api.Submit, from origin, by string) {
	text := fmt.Sprintf("submitted by %s for %s%s", who.Name, by, ofTrigger(w.Trigger))
	if from.of != "" {
		text += ", as a retry of " + from.of + rules.Because(from.why)
	}
	if w.For != "" {
		submitters, strangers := submittersOf(who, ws, from)
		c.Create(record.ReviewKey(w.ID), record.Review{For: w.For, Settings: ws.Settings(), Submitters: submitters, Strangers: strangers})
	}
	if w.Then {
		text += fmt.Sprintf("; approvals are required, so it makes the plan of operation %s first", w.For)
	}
	asked := ""
	if in.Options != nil {
		asked = ", with " + in.Options.Summary()
	}
	c.Note(w, rules.Note{Kind: "submitted", Text: text + asked, Actor: who.Name})
	identity.Audit(c, who, "workflow.submit", w.ID, "done", ws.W.Name+asked+rules.Because(from.why))
}

// loadSubmission reads the records that the submission of a run needs, in as few requests as possible.
func loadSubmission(ctx context.Context, c *ledger.Change, org string, ws record.Workspace, in api.Submit) error {
	k, lane := record.WorkspaceKey(org, ws.W.Name), record.QueueKey(ws.ID)
	next := []store.Key{lane, record.RoutesKey(org), record.ApprovalKey(org, ""), record.ApprovalKey(org, ws.W.Project)}
	if workflow.Policed(in.Type, in.Operation) {
		next = append(next, record.PoliciesKey(org))
	}
	if api.EngineOf(ws.W.Engine).OwnState == "" {
		next = append(next, record.StateKey(org, ws.ID))
	}
	c.Link(k, next...)
	ahead := []store.Key{k}
	if c.Version(lane) == store.Absent { // it is probably not routed yet
		ahead = append(ahead, catalog.RouteKeys(org, ws.W)...)
	}
	return c.LoadLinked(ctx, ahead...)
}

// claimants names the pools or the instance that may claim a run under a route key.
func claimants(key, pool string) string {
	if name := record.RunnerOfRoute(key); name != "" {
		return fmt.Sprintf("instance %s of pool %s", name, pool)
	}
	if labels := record.LabelsOfRoute(key); labels != nil {
		return "any pool with labels " + strings.Join(labels, ", ")
	}
	return "pool " + pool
}

// addFound adds to a spec what is found at its submission beside the workspace's settings: the files of its source,
// and the existing states that the run must not ignore.
func (p *Calls) addFound(ctx context.Context, c *ledger.Change, who identity.Principal, spec *api.Spec, ws record.Workspace, pool record.Pool, inPerson bool) (err error) {
	// The sources of other pools are on their own machines.
	if src := ws.W.Source; src.Directory != "" && p.cfg.Digest != nil && pool.BuiltIn {
		if spec.SourceDigest, err = p.cfg.Digest(ctx, src.Directory, src.Path); err != nil {
			return err
		}
	}
	if api.EngineOf(spec.Engine).OwnState != "" {
		return nil // that state is unknown here
	}
	// The known state is read when the run has started: until then it may change.
	spec.Namesakes, spec.Withheld, err = catalog.Namesakes(ctx, c, who, ws, inPerson)
	return err
}

// checkStateUnlock refuses to release the lock of a run that has not ended. For a lost run that still holds its slot
// the release is allowed, because the run itself may be gone.
func checkStateUnlock(ctx context.Context, c *ledger.Change, op workflow.Operation, queue *record.Queue) error {
	if op != workflow.StateUnlock || queue.Changer == "" {
		return nil
	}
	holder, ok, err := ledger.Load[record.Workflow](ctx, c, record.WorkflowKey(queue.Changer))
	if err == nil && ok && (holder.State == workflow.Claimed || holder.State == workflow.Running) {
		err = workflow.Refuse(workflow.ErrInUse, "workspace", "workflow %s of the workspace is %s, and the lock may be its own; cancel it or let it end", holder.ID, holder.State)
	}
	return err
}

// checkRegister refuses a workspace that could not be registered. Everyone with the right to submit may also
// register.
func (p *Calls) checkRegister(in api.Submit) error {
	if in.Register.Name != in.Workspace {
		return workflow.Refuse(workflow.ErrInvalid, "register.name", "the registered workspace must have the name of the workspace to run, %q, not %q", text.Cut(in.Workspace, 64), text.Cut(in.Register.Name, 64))
	}
	return p.catalog.Check(in.Register)
}

// workspace is the workspace of a run. If the request asks for it, the same change registers the workspace. The
// root module of an existing workspace is not changed: that would run new code over an old state.
func (p *Calls) workspace(ctx context.Context, c *ledger.Change, who identity.Principal, in api.Submit) (record.Workspace, error) {
	if in.Register == nil {
		return catalog.Workspace(ctx, c, who.Organization, in.Workspace)
	}
	put, err := p.catalog.Apply(ctx, c, who, *in.Register)
	if err != nil {
		return record.Workspace{}, err
	}
	before, known, err := ledger.Get[record.Workspace](c.Read, record.WorkspaceKey(who.Organization, in.Workspace))
	if err == nil && known && before.W.Source.RootModule() != in.Register.Source.RootModule() {
		err = workflow.Refuse(workflow.ErrExists, "register", "workspace %s already exists with another source; choose another name", in.Workspace)
	}
	return put.Record, err
}
