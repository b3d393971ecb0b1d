package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// origin is the source of a submission: the run that a retry repeats, or the trigger that submits. The zero value is
// for a person's own.
type origin struct {
	trigger *Triggered
	of      string
	keeps   workflow.Operation // of a preview: the operation that its plan can be approved for
	then    bool               // and whether that operation was asked for
	why     string
}

// underApproval turns a run that changes the state of a workspace into a preview, if the workspace requires
// approvals: its plan is applied then. A preview of a pull request is always for its plan, and a run of one is a
// preview. It returns the operation of the plan, and whether that operation was asked for. A requirement that is made
// at the same moment is seen when the run asks for its start.
func underApproval(ctx context.Context, c *ledger.Change, org string, ws record.Workspace, in *api.Submit, from origin, pull bool) (op workflow.Operation, then bool, err error) {
	changes := workflow.ChangesState(in.Type, in.Operation)
	if !changes && (in.Type != workflow.Deployment || in.Operation != workflow.Preview) {
		return "", false, nil
	}
	levels, _, err := catalog.Requirements(ctx, c, org, ws)
	if err != nil {
		return "", false, err
	}
	plans := api.EngineOf(ws.W.Engine).Plans
	switch {
	case !rules.Required(levels) && from.keeps == "" && !pull:
		return "", false, nil
	case !plans && changes && pull:
		return "", false, workflow.Refuse(workflow.ErrInvalid, "operation", "workspace %s has engine %s, which keeps no plan: a pull request's commit can only be previewed there", ws.W.Name, ws.W.Engine)
	case !plans && changes:
		return "", false, workflow.Refuse(workflow.ErrInvalid, "operation", "workspace %s requires approvals, and engine %s keeps no plan that could be approved: use another engine, or take the requirement away", ws.W.Name, ws.W.Engine)
	case !plans:
		return "", false, nil
	case in.Operation == workflow.Preview:
		return workflow.Update, false, nil
	}
	op, then = in.Operation, !pull && (from.keeps == "" || from.then)
	in.Operation = workflow.Preview
	return op, then, nil
}

// permit reads the conditions of the start of a run that changes the state or has inputs. The start of a run that
// applies a plan is committed only if neither the plan's review nor the workspace changes meanwhile. Whether
// approvals are required at all is read right before: a start and a requirement of the same moment have no other
// order.
func permit(ctx context.Context, c *ledger.Change, w *record.Workflow, spec api.Spec) (out rules.Permit, err error) {
	out.Inputs = spec.Inputs
	if out.Fed, err = feed(ctx, c, w, spec); err != nil || !w.ChangesState() {
		return out, err
	}
	k := record.WorkspaceKey(w.Org, w.Workspace)
	if err := c.LoadLinked(ctx, k); err != nil {
		return out, err
	}
	ws, known, err := workspaceOf(ctx, c, w)
	if err != nil {
		return out, err
	}
	if known {
		levels, _, err := catalog.Requirements(ctx, c, w.Org, ws)
		if err != nil {
			return out, err
		}
		out.Required, out.Settings = rules.Required(levels), ws.Settings()
	}
	if w.PlanOf != "" {
		given, state := record.GivenKey(w.PlanOf, planAttempt(spec)), record.StateKey(w.Org, w.WorkspaceID)
		if err := c.Load(ctx, record.ReviewKey(w.PlanOf), given, state); err != nil {
			return out, err
		}
		// It is not checked: the runner looks at the state itself.
		if out.State, _, err = ledger.Get[api.StateFound](c.Read, state); err != nil {
			return out, err
		}
		if out.Planned, _, err = ledger.Get[record.Given](c.Read, given); err != nil {
			return out, err
		}
		out.Review, _, err = ledger.Get[record.Review](c.Read, record.ReviewKey(w.PlanOf))
		c.Check(record.ReviewKey(w.PlanOf))
		c.Check(k)
	}
	return out, err
}

// planAttempt is the attempt of the preview whose plan a run applies.
func planAttempt(spec api.Spec) int {
	if spec.Plan == nil {
		return 0
	}
	return spec.Plan.Attempt
}

// ended adds to the commit of a run's success its effects on plans and commits: a preview's plan gets its review, and
// the commit of a run that applied something is stored.
func (p *Calls) ended(ctx context.Context, c *ledger.Change, w *record.Workflow, in api.Result) error {
	if w.For == "" && w.PlanOf == "" && !pushes(w, in) {
		return nil
	}
	spec, _, err := ledger.Load[api.Spec](ctx, c, record.SpecKey(w.ID))
	if err == nil {
		err = applied(ctx, c, w, spec, pushes(w, in))
	}
	if err != nil || w.For == "" {
		return err
	}
	return p.review(ctx, c, w, spec, in)
}

// pushes says whether a workspace is at the commit of a push after a run's success: the run applied it, or its plan,
// made to be applied, changes nothing. Where approvals are required, an empty plan has no run that applies it.
func pushes(w *record.Workflow, in api.Result) bool {
	empty := w.Then && w.For == workflow.Update && in.Plan != nil && in.Plan.Empty
	return w.Trigger != nil && w.Trigger.Kind == api.TriggerPush && w.Trigger.Commit != "" && (w.Op == workflow.Update || empty)
}

// applied stores the commit of an approved plan that was applied, and that of a push.
func applied(ctx context.Context, c *ledger.Change, w *record.Workflow, spec api.Spec, push bool) error {
	if !push && spec.Plan == nil || spec.Source.Git == nil || spec.Options != nil { // with options it may be a part of the commit
		return nil
	}
	k := record.AppliedKey(w.Org, w.WorkspaceID)
	was, _, err := ledger.Load[record.Applied](ctx, c, k)
	if err != nil {
		return err
	}
	now := was
	if spec.Plan != nil {
		now.Commit = spec.Plan.Source
	}
	if host, path, ok := pullrequest.Repository(spec.Source.Git.URL); ok && push {
		now.Push = &api.AppliedCommit{Commit: w.Trigger.Commit, Repository: host + "/" + path, Workflow: w.ID, At: c.Now}
	}
	if now != was {
		c.Put(k, now)
	}
	return nil
}

// review makes the review of a preview's plan. A plan that needs no approval is applied, if that was asked for.
func (p *Calls) review(ctx context.Context, c *ledger.Change, w *record.Workflow, spec api.Spec, in api.Result) error {
	k := record.ReviewKey(w.ID)
	planned, ok, err := ledger.Load[record.Review](ctx, c, k)
	if err != nil {
		return err
	}
	ws, known, err := workspaceOf(ctx, c, w)
	switch {
	case err != nil:
		return err
	case in.Plan == nil || !ok:
		c.Note(w, rules.Note{Kind: "no_plan", Text: "the run reported no plan that can be approved: its log says why, or its runner is older"})
		return nil
	case !known:
		c.Note(w, rules.Note{Kind: "no_plan", Text: "its plan cannot be approved: the workspace was deleted"})
		return nil
	}

	plan := api.PlanRef{Workflow: w.ID, Attempt: w.Attempt, PlanMade: *in.Plan}
	planned.Values, plan.Values = plan.Values, "" // so that no run is given it
	a, _, err := ledger.Load[record.Attempt](ctx, c, record.AttemptKey(w.ID, w.Attempt))
	if err != nil {
		return err
	}
	planned.Used = a.Used
	now, err := p.present(ctx, c, w, ws, spec, plan, in)
	if err != nil {
		return err
	}
	if in.State != nil {
		planned.Base = &record.Base{Lineage: in.State.Lineage, Serial: in.State.Serial}
		now.State = rules.Remember(now.State, *in.State) // as this commit leaves it
	}

	review := rules.Reviewed(planned, plan, w.Then, now)
	from, err := carried(ctx, c, w, &review, now)
	if err != nil {
		return err
	}
	if review.Status == api.ReviewApproved {
		_, err := p.apply(ctx, c, w, ws, spec, &review, w.Submitter())
		if refusal, refused := errors.AsType[*workflow.Error](err); refused {
			review.Status, review.Votes, review.CarriedFrom, from = api.ReviewWaiting, nil, "", nil
			c.Note(w, rules.Note{Kind: "not_applied", Text: "its plan needs no further approval, but cannot be applied yet: " + refusal.Message + "; it waits for an approval instead"})
		} else if err != nil {
			return err
		}
	}
	c.Put(k, review)
	if from != nil {
		used(c, w, *from, review)
	}
	return noteReview(ctx, c, w, review, now)
}

// noteReview adds the status of a new review to the timeline, and a waiting one to the list of those.
func noteReview(ctx context.Context, c *ledger.Change, w *record.Workflow, review record.Review, now rules.Present) error {
	switch status, moved := rules.Stands(review, now.State, c.Now); status {
	case api.ReviewStale:
		c.Note(w, rules.Note{Kind: "plan_stale", Text: "its plan cannot be approved: " + moved})
	case api.ReviewWaiting:
		list := record.AwaitedKey(w.Org, w.ID)
		if err := c.Load(ctx, list); err != nil {
			return err
		}
		c.PutUntil(list, record.Awaited{ID: w.ID, WorkspaceID: w.WorkspaceID}, review.Expires)
		c.Note(w, rules.Note{Kind: "awaiting_approval", Text: "its plan waits for " + wanted(review)})
		if len(review.Why) > 0 { // else it waits for its submitter only
			n := record.OutboxEventOf(api.EventApproval, w, c.Now)
			n.Detail = text.Middle(wanted(review), record.MaxDetail)
			c.Emit(w.Org, n)
		}
	case api.ReviewEmpty:
		c.Note(w, rules.Note{Kind: "unchanged", Text: "its plan changes nothing: there is nothing to approve"})
	}
	return nil
}

// wanted says what a waiting plan waits for.
func wanted(r record.Review) string {
	if len(r.Why) == 0 {
		return "any member who may submit runs of the workspace: no approval is required"
	}
	what := "an approval"
	if n := rules.Missing(r); n > 1 {
		what = fmt.Sprintf("%d approvals of different people", n)
	}
	if r.NotBySubmitter {
		what += ", not by " + strings.Join(r.Submitters.Names(), " or ")
	}
	what += ", because of " + strings.Join(r.Why, "; ")
	if r.NeededWhy != "" {
		what += fmt.Sprintf("; it needs %d, because %s", r.Needed, r.NeededWhy)
	}
	return what
}

// present reads the present situation of a plan and its workspace. The change is committed only if none of it changes
// meanwhile.
func (p *Calls) present(ctx context.Context, c *ledger.Change, w *record.Workflow, ws record.Workspace, spec api.Spec, plan api.PlanRef, in api.Result) (out rules.Present, err error) {
	levels, from, err := catalog.Requirements(ctx, c, w.Org, ws)
	if err != nil {
		return out, err
	}
	for _, k := range from {
		c.Check(k)
	}
	days, err := p.ledger.Retention(ctx, w.Org)
	if err != nil {
		return out, err
	}
	state := record.StateKey(w.Org, w.WorkspaceID)
	known, _, err := ledger.Load[api.StateFound](ctx, c, state)
	if err != nil {
		return out, err
	}
	c.Check(state)
	out = rules.Present{
		Settings: ws.Settings(), State: known, Wanted: rules.Wants(levels, w.For, in), Editor: ws.Editor(), Pull: w.Trigger.Pull(),
		Made: w.Ended, Kept: days.ArtifactsUntil(w),
	}
	if !out.Wanted.NotBySubmitter || spec.Source.Git == nil {
		return out, nil
	}
	k := record.AppliedKey(w.Org, w.WorkspaceID)
	applied, _, err := ledger.Load[record.Applied](ctx, c, k)
	c.Check(k)
	out.Authors = applied.Commit != plan.Source || plan.Source == ""
	return out, err
}

// presentOf is present for a plan whose result is stored.
func (p *Calls) presentOf(ctx context.Context, c *ledger.Change, w *record.Workflow, ws record.Workspace, spec api.Spec, plan api.PlanRef) (rules.Present, error) {
	result, _, err := ledger.Load[api.Result](ctx, c, record.ResultKey(w.ID, plan.Attempt))
	if err != nil {
		return rules.Present{}, err
	}
	return p.present(ctx, c, w, ws, spec, plan, result)
}

// apply adds the run that applies an approved plan. It has the spec, the priority, the message and the maximum
// runtime of the preview. A refusal leaves the change as it was.
func (p *Calls) apply(ctx context.Context, c *ledger.Change, w *record.Workflow, ws record.Workspace, spec api.Spec, review *record.Review, by api.PrincipalRef) (*record.Workflow, error) {
	instance, err := pinOf(ctx, c, w, review.Plan)
	if err != nil {
		return nil, err
	}
	pool, err := catalog.PoolFor(ctx, c, w.Org, ws, w.Type)
	if err != nil {
		return nil, err
	}
	if pool.ID != "" && pool.ID != w.PoolID {
		return nil, workflow.Refuse(workflow.ErrConflict, "", "plan_stale: the plan lies on the side of another pool than %s, which now serves workspace %s; make a new preview", pool.Name, ws.W.Name)
	}
	next := &record.Workflow{
		ID: record.NewID("wf_", c.Now), Org: w.Org, Workspace: w.Workspace, WorkspaceID: w.WorkspaceID, PoolID: w.PoolID,
		Type: w.Type, Op: review.For, Size: w.Size, Priority: w.Priority, Message: w.Message, By: by.Name, ByID: by.ID,
		Trigger: w.Trigger, PlanOf: w.ID, Pin: instance, MaxRuntime: w.MaxRuntime, OwnMax: w.OwnMax, Options: w.Options, State: workflow.Pending, Submitted: c.Now, Since: c.Now,
	}
	spec.Workflow, spec.Operation, spec.For, spec.Plan = next.ID, review.For, "", &review.Plan
	spec.Role, spec.Secrets, spec.Modules, spec.PullRequest = roleOf(next, ws), secretsOf(next, ws.W), modulesOf(next, ws.W), untrusted(next)
	if spec.Policies, err = heldTo(ctx, c, next, ws); err != nil {
		return nil, err
	}
	next.Needs = spec.Needs()
	c.Keep(next)
	queue, err := c.Queue(ctx, ws.ID)
	if err != nil {
		return nil, err
	}
	queue.Max = catalog.MaxActive(ws.W)
	c.Create(record.SpecKey(next.ID), spec)
	review.Applies = next.ID
	c.Note(w, rules.Note{Kind: "approved", Text: fmt.Sprintf("its plan is approved by %s, and run %s applies it", approvedBy(*review), next.ID), Actor: by.Name})
	c.Note(next, rules.Note{Kind: "submitted", Text: fmt.Sprintf("applies the plan of %s, approved by %s", w.ID, approvedBy(*review)), Actor: by.Name})
	return next, c.Enqueue(ctx, next)
}

func votersOf(r record.Review) string {
	var names []string
	for _, v := range r.Votes {
		names = append(names, v.By)
	}
	return strings.Join(names, " and ")
}

// approvedBy names the approvers of a plan, and the plan that they approved if it was another one.
func approvedBy(r record.Review) string {
	if r.CarriedFrom != "" {
		return votersOf(r) + " on " + r.CarriedFrom
	}
	return votersOf(r)
}

// pinOf is the only instance of the preview's pool with the bundle of its plan; empty if all of them have it.
func pinOf(ctx context.Context, c *ledger.Change, w *record.Workflow, plan api.PlanRef) (string, error) {
	k := record.ArtifactKey(w.ID, plan.Attempt, plan.Artifact)
	a, ok, err := ledger.Load[record.Artifact](ctx, c, k)
	switch {
	case err != nil:
		return "", err
	case !ok || a.Placed.IsZero():
		return "", workflow.Refuse(workflow.ErrConflict, "", "plan_stale: the bundle of the plan of %s is not there; make a new preview", w.ID)
	case a.Kind != api.ArtifactPlan || a.SHA256 != plan.SHA256 || a.Size != plan.Size:
		return "", workflow.Refuse(workflow.ErrConflict, "", "plan_stale: the bundle that was placed is not the plan that %s reported; make a new preview", w.ID)
	}
	c.Check(k)
	if a.Place.Kind == api.PlaceDirectory {
		return w.Instance, nil
	}
	return "", nil
}

// Approve lets the plan of a preview be applied, once enough people have approved it.
func (p *Calls) Approve(ctx context.Context, who identity.Principal, id string, in api.Decision) (api.Workflow, error) {
	return p.decide(ctx, who, "workflow.approve", id, in, false)
}

// Reject refuses the plan of a preview for good.
func (p *Calls) Reject(ctx context.Context, who identity.Principal, id string, in api.Decision) (api.Workflow, error) {
	return p.decide(ctx, who, "workflow.reject", id, in, true)
}

func (p *Calls) decide(ctx context.Context, who identity.Principal, action, id string, in api.Decision, reject bool) (api.Workflow, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleOperator, action, id, p.inWorkflow(who.Organization, id)); err != nil {
		return api.Workflow{}, err
	}
	if err := workflow.CheckText("comment", in.Comment, 500); err != nil {
		return api.Workflow{}, err
	}
	if !rules.IsSHA256(in.SHA256) {
		return api.Workflow{}, workflow.Refuse(workflow.ErrInvalid, "sha256", "name the plan that you looked at by its sha256: 64 hexadecimal digits in lower case")
	}
	err := p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		return p.decideOn(ctx, c, who, action, id, rules.Decision{Decision: in, By: who.Ref(), Account: who.Pipeline.Submitter(), Reject: reject})
	})
	if err != nil {
		return api.Workflow{}, identity.Refused(ctx, p.ledger, who, action, id, err)
	}
	p.ledger.Log.Info("plan decided on", "job_id", id, "action", action, "by", who.Name)
	return p.Workflow(ctx, who, id)
}

// withdraw rejects the plan of a preview that is cancelled. It reports whether the plan waits for an approval; else
// it does nothing.
func (p *Calls) withdraw(ctx context.Context, c *ledger.Change, who identity.Principal, w *record.Workflow, reason string) (waits bool, err error) {
	r, _, err := ledger.Load[record.Review](ctx, c, record.ReviewKey(w.ID))
	if err != nil || r.Status != api.ReviewWaiting && r.Status != api.ReviewMerge || rules.Expired(r, c.Now) {
		return false, err
	}
	d := rules.Decision{Decision: api.Decision{SHA256: r.Plan.SHA256, Comment: "cancelled" + rules.Because(reason)}, By: who.Ref(), Reject: true}
	return true, p.decideOn(ctx, c, who, "workflow.cancel", w.ID, d)
}

// decideOn adds a decision about a plan to a change.
func (p *Calls) decideOn(ctx context.Context, c *ledger.Change, who identity.Principal, action, id string, d rules.Decision) error {
	k, list := record.ReviewKey(id), record.AwaitedKey(who.Organization, id)
	w, err := c.Workflow(ctx, who.Organization, id, k, list, record.SpecKey(id))
	if err != nil {
		return err
	}
	was, _, err := ledger.Get[record.Review](c.Read, k)
	if err != nil {
		return err
	}
	if was.Status == "" {
		return workflow.Refuse(workflow.ErrConflict, "id", "workflow %s has no plan that can be approved; it is %s", id, w.State)
	}
	ws, known, err := workspaceOf(ctx, c, w)
	if err != nil {
		return err
	}
	spec, _, err := ledger.Get[api.Spec](c.Read, record.SpecKey(id))
	if err != nil {
		return err
	}
	now := rules.Present{Made: w.Ended}
	if known && !d.Reject {
		if now, err = p.presentOf(ctx, c, w, ws, spec, was.Plan); err != nil {
			return err
		}
	}
	review, made, err := rules.Decide(was, d, now, c.Now)
	if err != nil || !made {
		return err
	}

	detail := d.Comment
	if review.Status == api.ReviewApproved {
		next, err := p.apply(ctx, c, w, ws, spec, &review, who.Ref())
		if err != nil {
			return err
		}
		detail = "run " + next.ID + " applies it" + rules.Because(d.Comment)
	}
	noteDecision(c, w, who, d, review)
	c.Put(k, review)
	if err := offer(ctx, c, w, review); err != nil {
		return err
	}
	if review.Status != api.ReviewWaiting {
		c.Remove(list)
	} else if c.Version(list) != 0 {
		c.PutUntil(list, record.Awaited{ID: id, WorkspaceID: w.WorkspaceID}, review.Expires)
	}
	if w.Trigger.Followed() {
		c.Emit(w.Org, record.OutboxEventOf(record.EventMoved, w, c.Now))
	}
	identity.Audit(c, who, action, id, "done", detail)
	return nil
}

// noteDecision adds a decision to the timeline; apply has noted the one that starts a run.
func noteDecision(c *ledger.Change, w *record.Workflow, who identity.Principal, d rules.Decision, review record.Review) {
	switch review.Status {
	case api.ReviewApproved:
	case api.ReviewRejected:
		c.Note(w, rules.Note{Kind: "rejected", Text: "its plan is rejected " + rules.Rejection(review), Actor: who.Name})
	case api.ReviewMerge:
		c.Note(w, rules.Note{Kind: "approval", Text: fmt.Sprintf("%s approves its plan%s; it waits for the merge: its approvals carry over to the plan of the merged commit, if all planned changes are equal", who.Name, rules.Because(d.Comment)), Actor: who.Name})
	default:
		c.Note(w, rules.Note{Kind: "approval", Text: fmt.Sprintf("%s approves its plan%s; it waits for %s", who.Name, rules.Because(d.Comment), wanted(review)), Actor: who.Name})
	}
}

// Plan returns the plan of a preview. Of a run that applies a plan it is that of its preview.
func (p *Calls) Plan(ctx context.Context, who identity.Principal, id string) (api.Plan, error) {
	w, err := p.Workflow(ctx, who, id)
	if err == nil && w.Applies != "" {
		w, err = p.Workflow(ctx, who, w.Applies)
	}
	switch {
	case err != nil:
		return api.Plan{}, err
	case w.Operation != workflow.Preview:
		return api.Plan{}, workflow.Refuse(workflow.ErrNotFound, "id", "workflow %s is not a preview, and applies no plan of one", id)
	case !w.State.Terminal():
		return api.Plan{}, workflow.Refuse(workflow.ErrConflict, "id", "workflow %s is %s: it has no plan yet", id, w.State)
	case w.Result == nil || w.Result.Changes == nil:
		return api.Plan{}, workflow.Refuse(workflow.ErrNotFound, "id", "workflow %s has no plan; dayfly why %s says why", id, id)
	}
	return api.Plan{Workflow: w.ID, Workspace: w.Workspace, Changes: *w.Result.Changes, Truncated: w.Result.Truncated, Options: w.Options, Made: w.Result.Plan, Review: w.Review}, nil
}
