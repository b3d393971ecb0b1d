package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Codes of what a workflow may wait for.
const (
	waitsSlot      = "slot"               // another run may change the workspace's state
	waitsWorkspace = "workspace_limit"    // the workspace's limit is reached
	waitsOrg       = "organization_limit" // the organization's limit is reached
	waitsPool      = "pool_limit"         // the pool's limit is reached
	waitsDisabled  = "pool_disabled"
	waitsAssigned  = "pool_not_assigned"
	waitsRole      = "pool_role_path"
	waitsClosed    = "pool_deleted"
	waitsNone      = "no_pool" // no pool has the labels
	waitsTypes     = "pool_type"
	waitsRunner    = "pool_inactive" // no instance polls for the pool
	waitsClaim     = "claim"         // for the next claim
	waitsQueue     = "launch_queue"
	waitsLaunch    = "launch" // a launch was refused and is tried again
	waitsStart     = "start"  // its task is on its way
	waitsEnd       = "end"
	waitsResult    = "result"
	waitsProof     = "task_end" // it has ended, but nothing proves the end of its task
	waitsApproval  = "approval" // it has ended, and its plan is to be approved
	waitsPlan      = "plan"     // the workspace leads to another pool than the one with its plan
)

// facts are the inputs of the answer apart from the record.
type facts struct {
	now      rules.Time
	pool     record.Pool // that has the run or would get it; none if labels leave that open
	lastSeen time.Time   // of the pool's instances, or the one that the run is pinned to; zero means never
	route    record.Route
	able     []string // names of the pools that may claim it, if labels leave that open
	queue    record.Queue
	waiting  bool            // it stands in the waiting list of its workspace
	changer  record.Workflow // the run that holds the workspace's slot, if the workflow waits for that
	ofOrg    int             // active workflows
	ofPool   int
	maxOrg   int
	beat     record.Beat
	review   record.Review  // of its plan, if it is a preview
	state    api.StateFound // of its workspace then
	engine   string         // of the workspace, if a run could not write its state
	planPool string         // name of the pool that has the plan which it applies
}

// WaitsFor says what a pending workflow waits for.
func (p *Calls) WaitsFor(ctx context.Context, c *ledger.Change, w *record.Workflow) (string, error) {
	f, err := p.facts(ctx, c, w)
	if err != nil {
		return "", err
	}
	_, text := waitsPending(w, f)
	return text, nil
}

// Stuck says what a pending or claimed workflow waits for, and in which pool; none if labels leave that open. ok is
// false if it waits for other runs: for its workspace, or for a limit.
func (p *Calls) Stuck(ctx context.Context, c *ledger.Change, w *record.Workflow) (waits, poolID string, ok bool, err error) {
	f, err := p.facts(ctx, c, w)
	if err != nil {
		return "", "", false, err
	}
	why := explain(w, f)
	return why.Waiting, f.pool.ID, !slices.Contains([]string{waitsSlot, waitsWorkspace, waitsOrg, waitsPool}, why.Code), nil
}

// Why says what a workflow waits for, since when, and what happens next.
func (p *Calls) Why(ctx context.Context, who identity.Principal, id string) (api.Why, error) {
	w, err := p.Workflow(ctx, who, id)
	if err != nil {
		return api.Why{}, err
	}
	c := p.ledger.View()
	rec, err := c.Workflow(ctx, who.Organization, id)
	if err != nil {
		return api.Why{}, err
	}
	f, err := p.facts(ctx, c, rec)
	if err != nil {
		return api.Why{}, err
	}
	rec.Detail = w.Detail // in full: the record keeps only the beginning of a long one
	out := explain(rec, f)
	out.Workflow = w
	if todo := runtext.Aftermath(w); todo != "" {
		if w.SlotHeld {
			todo = out.Next + "; then: " + todo
		}
		out.Next = todo
	}
	// Only the end of the timeline matters here; the whole timeline has its own address.
	page, err := p.ledger.Range(ctx, store.Scan{Part: record.WorkflowKey(id).Part, From: record.EventKey(id, rec.Seq).Sort, To: "ev/", Reverse: true, Limit: 200})
	if err != nil {
		return api.Why{}, err
	}
	if out.Timeline, err = record.DecodeAll[api.Event](page.Records); err != nil {
		return api.Why{}, err
	}
	slices.Reverse(out.Timeline)
	return out, nil
}

// facts reads the facts about a workflow.
func (p *Calls) facts(ctx context.Context, c *ledger.Change, w *record.Workflow) (f facts, err error) {
	if f.maxOrg, err = c.OrganizationLimit(ctx, w.Org, p.cfg.OrganizationLimit); err != nil {
		return f, err
	}
	ofOrg, lane := record.OrganizationLimitKey(w.Org), record.QueueKey(w.WorkspaceID)
	if err := c.Load(ctx, w.WaitKey(), lane, ofOrg); err != nil {
		return f, err
	}
	_, f.waiting = c.Read[w.WaitKey()]
	if err := errors.Join(c.Read.Into(lane, &f.queue), c.Read.Into(record.BeatKey(w.ID), &f.beat)); err != nil {
		return f, err
	}
	if f.queue.Unsaved != "" {
		ws, _, err := workspaceOf(ctx, c, w)
		if err != nil {
			return f, err
		}
		f.engine = ws.W.Engine
	}
	if w.For != "" {
		if f.review, f.state, err = reviewOf(ctx, c, w); err != nil {
			return f, err
		}
	}
	if w.PlanOf != "" {
		names, err := catalog.Names(ctx, p.ledger, w.Org, w.PoolID)
		if err != nil {
			return f, err
		}
		f.planPool = names[w.PoolID]
	}
	id := w.PoolID
	if w.State == workflow.Pending {
		if f.route, err = p.routeOf(ctx, c, w, f.queue); err != nil {
			return f, err
		}
		id = record.PoolOfRoute(f.route.Key)
		if f.ofOrg, err = c.InUse(ctx, ofOrg); err != nil {
			return f, err
		}
	}
	if f.now, err = c.Time(ctx, cmp.Or(id, w.PoolID)); err != nil {
		return f, err
	}
	if f.waiting && f.queue.Changer != "" {
		if f.changer, _, err = ledger.Load[record.Workflow](ctx, c, record.WorkflowKey(f.queue.Changer)); err != nil {
			return f, err
		}
	}
	if id == "" {
		return f, p.able(ctx, c, w, &f)
	}
	return f, p.ofPool(ctx, c, w, id, &f)
}

// routeOf is the route of a pending run: that of its queue, also if it is out of date, because the next claim uses
// the present settings. That of a deleted workspace leads to the run's pool.
func (p *Calls) routeOf(ctx context.Context, c *ledger.Change, w *record.Workflow, q record.Queue) (record.Route, error) {
	routes, _, err := ledger.Load[record.Routes](ctx, c, record.RoutesKey(w.Org))
	if err != nil || q.Route.Fresh(routes) {
		return q.Route, err
	}
	ws, ok, err := ledger.Load[record.Workspace](ctx, c, record.WorkspaceKey(w.Org, w.Workspace))
	if err != nil || !ok {
		return record.Route{Key: record.PoolRoute(w.PoolID), Scope: record.Scope{ID: w.WorkspaceID, Workspace: w.Workspace}}, err
	}
	choice, err := catalog.ChoiceOf(ctx, c, w.Org, ws)
	return record.Route{Key: choice.Key, Scope: choice.Scope}, err
}

// able finds the pools that may claim a run with labels.
func (p *Calls) able(ctx context.Context, c *ledger.Change, w *record.Workflow, f *facts) error {
	pools, err := catalog.AllPools(ctx, c, w.Org)
	for _, pool := range pools {
		if !pool.Closed && !pool.Disabled && pool.Has(record.LabelsOfRoute(f.route.Key)) && pool.Serves(f.route.Scope) && pool.Takes(w.Type) {
			f.able = append(f.able, pool.Name)
		}
	}
	slices.Sort(f.able)
	return err
}

// ofPool reads the facts about a pool.
func (p *Calls) ofPool(ctx context.Context, c *ledger.Change, w *record.Workflow, id string, f *facts) (err error) {
	limit := record.PoolLimitKey(w.Org, id)
	if err := c.Load(ctx, record.PoolKey(w.Org, id), limit); err != nil {
		return err
	}
	if err := c.Read.Into(record.PoolKey(w.Org, id), &f.pool); err != nil {
		return err
	}
	if w.State == workflow.Pending {
		if f.ofPool, err = c.InUse(ctx, limit); err != nil {
			return err
		}
	}
	pinned := cmp.Or(record.RunnerOfRoute(f.route.Key), w.Pin)
	runners, err := catalog.Instances(ctx, c, id)
	for _, one := range runners {
		if pinned == "" || one.Name == pinned {
			f.lastSeen = rules.Latest(f.lastSeen, one.Last)
		}
	}
	return err
}

// explain makes the answer. It is a pure function.
func explain(w *record.Workflow, f facts) api.Why {
	out := api.Why{Since: w.Since}
	until := func(t time.Time) string {
		out.NextAt = &t
		return fmt.Sprintf("%s (in %s)", rules.Clock(t), t.Sub(f.now.Now).Round(time.Second))
	}
	switch w.State {
	case workflow.Pending:
		out.Summary = "pending: not claimed yet"
		out.Code, out.Waiting = waitsPending(w, f)
		if out.Code == waitsSlot {
			out.WaitingForWorkflow = f.queue.Changer
		}
		out.Next = "it is claimed as soon as that is over; it fails as expired_in_queue at " + until(w.Submitted.Add(workflow.QueueTimeout))
		if out.Code == waitsSlot && f.changer.State.Terminal() {
			out.Next += unlock(w.Workspace)
		}
	case workflow.Claimed:
		explainClaimed(&out, w, until)
	case workflow.Running:
		explainRunning(&out, w, f, until)
	case workflow.Succeeded, workflow.Failed, workflow.Cancelled:
		out.Summary = runtext.Ended(string(w.State), w.Reason) + rules.Because(w.Detail)
		out.Next = "nothing: a workflow that has ended stays as it is; retry makes a new one"
		explainReview(&out, w, f)
		if w.SlotHeld {
			out.Code, out.Waiting = waitsProof, fmt.Sprintf("the end of task %s, which may still change the workspace's state", w.Holder.Task)
			out.Next = "the workspace is free when that task is proven over, at the latest at " + until(f.now.Wall(rules.SlotEnds(w))) + unlock(w.Workspace)
		}
	}
	if out.Waiting != "" && w.State != workflow.Pending && out.Code != waitsApproval {
		out.Waiting += silentPool(f, rules.Latest(f.beat.At, w.Started))
	}
	return out
}

// explainClaimed explains a claimed workflow; until writes a time and makes it the next one.
func explainClaimed(out *api.Why, w *record.Workflow, until func(time.Time) string) {
	out.Summary = fmt.Sprintf("claimed by %s as attempt %d, not started yet", w.Instance, w.Attempt)
	switch task := w.LiveTask(); {
	case task != "":
		out.Code, out.Waiting = waitsStart, "its task "+task+" to start"
	case w.Held.Reason != "":
		out.Code, out.Waiting = waitsLaunch, fmt.Sprintf("a launch that was refused (%s)%s", w.Held.Reason, rules.Because(w.Held.Text))
	default:
		out.Code, out.Waiting = waitsQueue, "the dispatcher to launch it"
	}
	out.Next = "if nothing happens, the claim lapses at " + until(w.Lease) + " and it is claimed again"
	if out.Code == waitsLaunch {
		out.Next = "the next try is at " + until(w.Held.Until) + "; " + out.Next
	}
}

// explainRunning explains a running workflow, as explainClaimed.
func explainRunning(out *api.Why, w *record.Workflow, f facts, until func(time.Time) string) {
	out.Summary = fmt.Sprintf("running as task %s, attempt %d", w.Holder.Task, w.Attempt)
	switch {
	case !w.HandedOver.IsZero():
		out.Code, out.Waiting = waitsResult, "its result, which its task handed over at "+rules.Clock(w.HandedOver)
		out.Next = "without it the workflow ends as result_missing at " + until(f.now.Wall(rules.ResultDue(w)))
	case !w.CancelAt.IsZero():
		out.Code, out.Waiting = waitsEnd, "the engine to end after the cancellation at "+rules.Clock(w.CancelAt)
		out.Next = "the runner interrupts the engine, waits, kills it, and reports"
	default:
		out.Code, out.Waiting = waitsEnd, "the run to end; last sign of life at "+rules.Clock(rules.Latest(f.beat.At, w.Started))
		out.Next = "its deadline is " + until(f.now.Wall(rules.Deadline(w)))
	}
}

// explainReview adds the review of an ended preview's plan.
func explainReview(out *api.Why, w *record.Workflow, f facts) {
	r := f.review
	switch status, moved := rules.Stands(r, f.state, f.now.Now); {
	case status == api.ReviewStale:
		out.Summary += "; its plan is stale: " + moved
		out.Next = "plan again: dayfly workflow retry " + w.ID
	case status == api.ReviewExpired:
		out.Summary += "; nobody approved its plan until " + rules.Day(r.Expires)
		out.Next = "nothing: a new preview makes a new plan"
	case r.Status == api.ReviewWaiting:
		out.Code, out.Waiting = waitsApproval, wanted(r)
		out.Next = fmt.Sprintf("dayfly workflow plan %s shows the plan, and dayfly workflow approve %s lets it be applied, until %s (in %s)", w.ID, w.ID, rules.Day(r.Expires), r.Expires.Sub(f.now.Now).Round(time.Second))
		out.NextAt = &r.Expires
	case r.Status == api.ReviewApproved:
		out.Summary += "; its plan is approved by " + approvedBy(r) + ", and " + r.Applies + " applies it"
		out.Next = "dayfly why " + r.Applies + " says how far that is"
	case r.Status == api.ReviewMerge:
		out.Summary += "; its plan is approved by " + approvedBy(r) + ", and waits for the merge"
		out.Next = "the approvals carry over to the plan of the merged commit, if all planned changes are equal; dayfly workflow reject " + w.ID + " takes them away"
	case r.Status == api.ReviewCarried:
		out.Summary += "; its approvals were carried over to " + r.CarriedTo
		out.Next = "dayfly why " + r.CarriedTo + " says what becomes of that plan"
	case r.Status == api.ReviewRejected:
		out.Summary += "; its plan is rejected " + rules.Rejection(r)
		out.Next = "nothing: a new preview makes a new plan"
	case r.Status == api.ReviewEmpty:
		out.Summary += "; its plan changes nothing, so there is nothing to approve"
	}
}

// silentPool says when the pool of a claimed workflow was last seen, if neither the pool nor the run was seen
// recently.
func silentPool(f facts, sign time.Time) string {
	if f.now.Now.Sub(rules.Latest(f.lastSeen, sign)) <= catalog.Offline {
		return ""
	}
	return fmt.Sprintf("; nobody has polled for pool %s %s", f.pool.Name, sinceSeen(f))
}

// sinceSeen says since when nobody has polled for the pool.
func sinceSeen(f facts) string {
	switch {
	case !f.lastSeen.IsZero():
		return "since " + rules.Clock(f.lastSeen) // it lies within the last day
	case f.now.Now.Sub(f.pool.Created) > api.RunnerKept:
		return "for more than a day" // older records are dropped
	}
	return "yet"
}

// unlock names the command for a person who knows that the task is gone.
func unlock(workspace string) string {
	return "; if you are certain that the task is gone, dayfly repair unlock " + workspace + " frees the workspace now"
}

// waitsPending says what a pending workflow waits for, the nearest cause first.
func waitsPending(w *record.Workflow, f facts) (code, waits string) {
	switch {
	case f.waiting:
		return waitsInQueue(w, f)
	case f.ofOrg >= f.maxOrg && f.pool.ID == "":
		return waitsOrg, fmt.Sprintf("a place in the organization: %d of %d are in use", f.ofOrg, f.maxOrg)
	case w.PlanOf != "" && f.planPool == "":
		return waitsPlan, "a deleted pool, the only one with the plan that it applies: cancel it and make a new preview"
	case w.PlanOf != "" && !leadsTo(f.route.Key, w):
		return waitsPlan, fmt.Sprintf("%s, which has the plan that it applies, to serve workspace %s again; or cancel it and make a new preview", hasPlan(w, f), w.Workspace)
	case f.pool.ID == "":
		return waitsNoPool(w, f)
	}

	if code, waits = waitsPoolChange(w, f); code != "" {
		return code, waits
	}
	if f.ofOrg >= f.maxOrg {
		return waitsOrg, fmt.Sprintf("a place in the organization: %d of %d are in use", f.ofOrg, f.maxOrg)
	}
	return waitsNextClaim(w, f)
}

// waitsInQueue says what a run in the waiting list of its workspace waits for.
func waitsInQueue(w *record.Workflow, f facts) (code, waits string) {
	switch {
	case w.ChangesState() && f.queue.Changer != "":
		return waitsSlot, waitsChanger(w, f)
	case w.ChangesState() && f.queue.Unsaved != "":
		get, push := api.PushErrored(f.queue.Unsaved, w.Workspace, f.engine)
		return waitsSlot, fmt.Sprintf("the state that workflow %s could not write: push it (%s, then %s), or have an admin give it up (dayfly repair unlock %s)", f.queue.Unsaved, get, push, w.Workspace)
	case f.queue.Used() < f.queue.Max:
		return waitsWorkspace, fmt.Sprintf("the workflows before it in the queue of workspace %s, which has room", w.Workspace)
	}
	return waitsWorkspace, fmt.Sprintf("a place in workspace %s, which allows %s at once", w.Workspace, text.Count(f.queue.Max, "active workflow"))
}

// waitsNoPool says what a run waits for whose route leads to no existing pool.
func waitsNoPool(w *record.Workflow, f facts) (code, waits string) {
	switch {
	case w.PlanOf != "":
		return waitsClaim, "the next claim of " + hasPlan(w, f)
	case record.PoolOfRoute(f.route.Key) != "":
		return waitsClosed, fmt.Sprintf("a pool that was deleted: give workspace %s another pool, or cancel the run", w.Workspace)
	}
	return waitsLabels(f)
}

// waitsPoolChange says which change of its pool a run waits for; an empty code means none.
func waitsPoolChange(w *record.Workflow, f facts) (code, waits string) {
	switch {
	case f.pool.Closed:
		return waitsClosed, fmt.Sprintf("the next claim of pool %s, which is being deleted and serves only its earlier runs: keep its agent running until then, or cancel the run and give workspace %s another pool", f.pool.Name, w.Workspace)
	case f.pool.Disabled:
		return waitsDisabled, fmt.Sprintf("pool %s, which is disabled", f.pool.Name)
	case !f.pool.AssignedTo(f.route.Scope):
		return waitsAssigned, fmt.Sprintf("pool %s to be assigned to workspace %s", f.pool.Name, w.Workspace)
	case !f.pool.MayAssume(f.route.Scope):
		return waitsRole, fmt.Sprintf("pool %s, which assumes roles under the path %s only, and the role of workspace %s lies under %s", f.pool.Name, f.pool.RolePath, w.Workspace, f.route.Scope.Role)
	case !f.pool.Takes(w.Type):
		return waitsTypes, fmt.Sprintf("pool %s to take workflows of type %s", f.pool.Name, w.Type)
	case f.pool.Concurrency > 0 && f.ofPool >= f.pool.Concurrency:
		return waitsPool, fmt.Sprintf("a place in pool %s: %d of %d are in use", f.pool.Name, f.ofPool, f.pool.Concurrency)
	}
	return "", ""
}

// waitsNextClaim names the pool or instance whose next claim a run waits for, and since when it has not polled.
func waitsNextClaim(w *record.Workflow, f facts) (code, waits string) {
	if w.PlanOf != "" && f.now.Now.Sub(f.lastSeen) > catalog.Offline {
		return waitsRunner, fmt.Sprintf("%s, which has the plan that it applies and has not polled %s", hasPlan(w, f), sinceSeen(f))
	}
	if w.PlanOf != "" {
		return waitsClaim, fmt.Sprintf("the next claim of %s, which has the plan that it applies", hasPlan(w, f))
	}
	if name := record.RunnerOfRoute(f.route.Key); name != "" {
		if f.now.Now.Sub(f.lastSeen) > catalog.Offline {
			return waitsRunner, fmt.Sprintf("runner %s of pool %s, which has not polled %s; is it running under this name?", name, f.pool.Name, sinceSeen(f))
		}
		return waitsClaim, fmt.Sprintf("the next claim of runner %s of pool %s", name, f.pool.Name)
	}
	if f.now.Now.Sub(f.lastSeen) > catalog.Offline {
		return waitsRunner, fmt.Sprintf("pool %s, for which nobody has polled %s; is its agent running?", f.pool.Name, sinceSeen(f))
	}
	return waitsClaim, fmt.Sprintf("the next claim of pool %s", f.pool.Name)
}

// hasPlan names the pool or instance with the plan that a run applies.
func hasPlan(w *record.Workflow, f facts) string {
	if w.Pin != "" {
		return fmt.Sprintf("instance %s of pool %s", w.Pin, f.planPool)
	}
	return "pool " + f.planPool
}

// leadsTo says whether a route leads to a pool or instance that may have the plan which a run applies.
func leadsTo(route string, w *record.Workflow) bool {
	to, runner := record.PoolOfRoute(route), record.RunnerOfRoute(route)
	return (to == "" || to == w.PoolID) && (runner == "" || w.Pin == "" || runner == w.Pin)
}

// waitsLabels says what a run with labels waits for.
func waitsLabels(f facts) (code, waits string) {
	waits = "any pool with labels " + strings.Join(record.LabelsOfRoute(f.route.Key), ", ")
	if len(f.able) == 0 {
		return waitsNone, waits + ": none that has them is enabled, assigned to the workspace and takes such workflows; dayfly pool explain says why"
	}
	return waitsClaim, waits + ": the next claim of " + strings.Join(f.able, ", ")
}

// waitsChanger names the run that holds the workspace's slot, and the task whose end is awaited.
func waitsChanger(w *record.Workflow, f facts) string {
	switch r := f.changer; {
	case r.State.Terminal():
		return fmt.Sprintf("the end of task %s of workflow %s, which is %s but may still change the state of workspace %s", r.Holder.Task, f.queue.Changer, r.State, w.Workspace)
	case r.State == workflow.Running:
		return fmt.Sprintf("workflow %s, which runs as task %s and may change the state of workspace %s before it", f.queue.Changer, r.Holder.Task, w.Workspace)
	}
	return fmt.Sprintf("workflow %s, which may change the state of workspace %s before it", f.queue.Changer, w.Workspace)
}
