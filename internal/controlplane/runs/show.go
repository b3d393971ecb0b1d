package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
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

// Filter narrows a list of workflows.
type Filter struct {
	Workspace string
	Pool      string    // only runs that this pool has claimed last
	State     string    // a state, "active" or Awaiting; empty means any
	Operation string    // of a deployment, or Scan; empty means any
	Since     time.Time // only those submitted at this time or later; the zero time means all
	Cursor    string
	Limit     int // 0 means 50, at most 200
}

// Awaiting is the filter for previews whose plan waits for an approval.
const Awaiting = "awaiting_approval"

// Scan is the filter for scans, which are a type and have no operation.
const Scan = "scan"

// check refuses a filter by an unknown state or operation.
func (f Filter) check() error {
	if f.State != "" && f.State != "active" && f.State != Awaiting && !slices.Contains(workflow.States(), workflow.State(f.State)) {
		return workflow.Refuse(workflow.ErrInvalid, "state", "the state is pending, claimed, running, succeeded, failed, cancelled, active or awaiting_approval, not %q", text.Cut(f.State, 40))
	}
	if f.Operation != "" && f.Operation != Scan && !slices.Contains(workflow.Operations(), workflow.Operation(f.Operation)) {
		return workflow.Refuse(workflow.ErrInvalid, "operation", "the operation is preview, update, refresh, destroy, scan, state_list, state_unlock, state_pull or state_push, not %q", text.Cut(f.Operation, 40))
	}
	return nil
}

// wants says whether a workflow passes the conditions on the workflow itself.
func (f Filter) wants(w *record.Workflow) bool {
	is := w.Op == workflow.Operation(f.Operation)
	if f.Operation == Scan {
		is = w.Type == workflow.InsightsScan
	}
	return (f.Operation == "" || is) && !w.Submitted.Before(f.Since) &&
		(f.State == "" || f.State == Awaiting || f.State == "active" && w.Active || string(w.State) == f.State)
}

const (
	maxPages    = 10  // that are read for one answer
	skippedPage = 200 // workflows of each page but the first, if the filter has dropped some
)

// view returns a record as people see it.
func view(w *record.Workflow, pool string, version int64) api.Workflow {
	out := api.Workflow{
		ID: w.ID, Organization: w.Org, Workspace: w.Workspace, Pool: pool, Type: w.Type, Operation: w.Op,
		State: w.State, Reason: w.Reason, Detail: w.Detail, Priority: w.Priority, Message: w.Message,
		Attempt: w.Attempt, Instance: w.Instance, Task: w.TaskRef(), CancelRequested: !w.CancelAt.IsZero(), SlotHeld: w.SlotHeld,
		RetryOf: w.RetryOf, For: w.For, Applies: w.PlanOf, Trigger: w.Trigger.View(), SubmittedBy: w.By, SubmittedByID: w.ByID, SubmittedAt: w.Submitted, MaxRuntime: w.MaxRuntime.String(), Changes: w.Changes, Version: version,
	}
	for _, t := range []struct {
		at time.Time
		to **time.Time
	}{{w.Claimed, &out.ClaimedAt}, {w.Started, &out.StartedAt}, {w.Ended, &out.EndedAt}} {
		if !t.at.IsZero() {
			*t.to = &t.at
		}
	}
	return out
}

// reviewed adds to a run the review of its plan; nothing before the plan was made.
func reviewed(w *api.Workflow, r record.Review, state api.StateFound, now time.Time) {
	if r.Status == "" {
		return
	}
	status, moved := rules.Stands(r, state, now)
	w.ToApprove = w.State == workflow.Succeeded && status == api.ReviewWaiting
	w.Review = &api.Review{
		Status: status, Stale: moved, For: r.For, SHA256: r.Plan.SHA256, Summary: r.Plan.Summary, Why: r.Why, NotBySubmitter: r.NotBySubmitter, AfterMerge: r.AfterMerge,
		Submitters: r.Submitters, Needed: r.Needed, NeededWhy: r.NeededWhy, CarriedFrom: r.CarriedFrom, CarriedTo: r.CarriedTo, Votes: r.Votes, ExpiresAt: r.Expires, Applies: r.Applies,
	}
	if r.Plan.Loose {
		w.Review.Unfixed = runtext.Unfixed
	}
}

// reviewOf reads the review of a preview's plan, and the state of the workspace by which it may be stale.
func reviewOf(ctx context.Context, c *ledger.Change, w *record.Workflow) (r record.Review, state api.StateFound, err error) {
	review, found := record.ReviewKey(w.ID), record.StateKey(w.Org, w.WorkspaceID)
	if err := c.Load(ctx, review, found); err != nil {
		return r, state, err
	}
	err = errors.Join(c.Read.Into(review, &r), c.Read.Into(found, &state))
	return r, state, err
}

// Workflow answers about one workflow, with its steps and its result.
func (p *Calls) Workflow(ctx context.Context, who identity.Principal, id string) (api.Workflow, error) {
	return p.WorkflowAfter(ctx, who, id, "", 0)
}

// WorkflowAfter is Workflow. It waits up to wait until the answer has another revision than the one that the caller
// has seen.
func (p *Calls) WorkflowAfter(ctx context.Context, who identity.Principal, id, seen string, wait time.Duration) (api.Workflow, error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workflow.show", id, p.inWorkflow(who.Organization, id)); err != nil {
		return api.Workflow{}, err
	}
	var out api.Workflow
	err := p.ledger.Await(ctx, ledger.RunOf(id), wait, func(bool) (bool, error) {
		var err error
		if out, err = p.workflow(ctx, who, id); err != nil {
			return false, err
		}
		out.Revision = revisionOf(out)
		return out.Revision != seen, nil
	})
	return out, err
}

// revisionOf is a digest of the answer about a workflow.
func revisionOf(w api.Workflow) string {
	sum := fnv.New64a()
	_ = json.NewEncoder(sum).Encode(w) // neither can fail
	return strconv.FormatUint(sum.Sum64(), 36)
}

func (p *Calls) workflow(ctx context.Context, who identity.Principal, id string) (api.Workflow, error) {
	w, version, err := p.ledger.Workflow(ctx, who.Organization, id)
	if err != nil {
		return api.Workflow{}, err
	}
	pools, err := p.poolsOf(ctx, w.Org, []picked{{Workflow: w}})
	if err != nil {
		return api.Workflow{}, err
	}
	out := view(&w, pools[0], version)
	c := p.ledger.View()
	if w.Options {
		spec, _, err := ledger.Load[api.Spec](ctx, c, record.SpecKey(id))
		if err != nil {
			return api.Workflow{}, err
		}
		out.Options = spec.Options
	}
	if w.Attempt == 0 {
		return out, nil
	}
	if w.For != "" {
		r, state, err := reviewOf(ctx, c, &w)
		if err != nil {
			return api.Workflow{}, err
		}
		reviewed(&out, r, state, c.Now)
	}
	if result, ok, err := ledger.Load[api.Result](ctx, c, record.ResultKey(id, w.Attempt)); err != nil {
		return api.Workflow{}, err
	} else if ok {
		out.Result = &result
		// The record keeps only the beginning of a long detail. The result's detail begins the same, wherever the
		// record's was cut.
		if n := min(len(w.Detail), record.MaxDetail/2); n > 0 && strings.HasPrefix(result.Detail, w.Detail[:n]) {
			out.Detail = result.Detail
		}
	}
	page, err := c.Range(ctx, store.Scan{
		Part: record.WorkflowKey(id).Part, From: record.StepKey(id, w.Attempt, 0).Sort, To: record.StepKey(id, w.Attempt+1, 0).Sort, Limit: 200,
	})
	if err != nil {
		return api.Workflow{}, err
	}
	if len(page.Records) > 0 {
		out.Steps, err = record.DecodeAll[api.Step](page.Records)
	}
	return out, err
}

// Workflows lists workflows, the newest first. The list is read from an index and may lag.
func (p *Calls) Workflows(ctx context.Context, who identity.Principal, f Filter) (api.Page[api.Workflow], error) {
	out := api.Page[api.Workflow]{Items: []api.Workflow{}}
	if err := p.mayList(ctx, who, f.Workspace); err != nil {
		return out, err
	}
	if err := f.check(); err != nil {
		return out, err
	}
	from, err := p.source(ctx, who.Organization, f)
	if err != nil {
		return out, err
	}
	limit := ledger.PageSize(cmp.Or(max(f.Limit, 0), 50), 200)
	var wfs []picked
	list := string(from.index) + " " + from.part
	next, err := ledger.OpenCursor(list, f.Cursor)
	if err != nil {
		return out, err
	}
	days, err := p.ledger.Retention(ctx, who.Organization)
	if err != nil {
		return out, err
	}
	pick := p.picks(ctx, who, from.workspace != "", func(w *record.Workflow) bool {
		return from.has(w) && f.wants(w)
	})
	oldest := f.oldest(p.ledger.Now(), days)
	// A filter may skip many workflows; the reading is bounded, and the cursor continues from there.
	for size, pages := limit, 0; pages < maxPages; pages++ {
		page, err := from.query(ctx, from.index, store.Scan{Part: from.part, To: oldest, Limit: size, After: next, Reverse: true})
		if err != nil {
			return out, err
		}
		records, err := p.recordsOf(ctx, who.Organization, f, from, page.Records)
		if err != nil {
			return out, err
		}
		more, err := pick(records)
		if err != nil {
			return out, err
		}
		wfs = append(wfs, more...)
		if next = page.Next; next == "" || len(wfs) >= limit {
			break
		}
		if size = limit - len(wfs); !from.active {
			size = skippedPage
		}
	}
	if len(wfs) > limit { // only of an index of workflows
		wfs = wfs[:limit]
		last := record.EncodeWorkflow(&wfs[limit-1].Workflow)
		next = store.Place(last.Indexes[from.index], last.Key)
	}
	if out.Items, err = p.views(ctx, who.Organization, wfs); err != nil {
		return out, err
	}
	out.Next = ledger.SealCursor(list, next)
	return out, nil
}

// mayList refuses a list to a caller without the right to it; an empty workspace means all.
func (p *Calls) mayList(ctx context.Context, who identity.Principal, workspace string) error {
	scope := identity.Scope(who.AnyProject)
	if workspace != "" {
		scope = p.catalog.InWorkspace(who.Organization, workspace)
	}
	return identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workflow.list", workspace, scope)
}

// oldest is the sort key of the earliest submission that a filter wants and that is not past its retention.
func (f Filter) oldest(now time.Time, days record.Retention) string {
	since := f.Since
	if since.After(now) {
		since = now // a key cannot have every time that a caller can write
	}
	return record.At(rules.Latest(record.Before(now, days.Workflows), since.Add(-1)))
}

// recordsOf returns the workflows of the records of a list, which may be entries of active ones or of those with a plan
// that waits.
func (p *Calls) recordsOf(ctx context.Context, org string, f Filter, from source, records []store.Record) (out []store.Record, err error) {
	if f.State == Awaiting {
		if records, err = p.awaiting(ctx, org, records); err != nil {
			return nil, err
		}
	}
	if !from.active {
		return records, nil
	}
	return p.workflowsOf(ctx, records)
}

// views are the workflows of a list as people see them: running ones with their step, and previews with the review of
// their plan.
func (p *Calls) views(ctx context.Context, org string, wfs []picked) ([]api.Workflow, error) {
	pools, err := p.poolsOf(ctx, org, wfs)
	if err != nil {
		return nil, err
	}
	var keys []store.Key
	for _, w := range wfs {
		if w.State == workflow.Running {
			keys = append(keys, record.BeatKey(w.ID))
		}
		if w.For != "" && w.State == workflow.Succeeded {
			keys = append(keys, record.ReviewKey(w.ID), record.StateKey(org, w.WorkspaceID))
		}
	}
	r, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	out := make([]api.Workflow, len(wfs))
	for i, w := range wfs {
		out[i] = view(&w.Workflow, pools[i], w.version)
		beat, _, err := ledger.Get[record.Beat](r, record.BeatKey(w.ID))
		if err != nil {
			return nil, err
		}
		out[i].Step = beat.Step
		review, _, err := ledger.Get[record.Review](r, record.ReviewKey(w.ID))
		if err != nil {
			return nil, err
		}
		state, _, err := ledger.Get[api.StateFound](r, record.StateKey(org, w.WorkspaceID))
		if err != nil {
			return nil, err
		}
		reviewed(&out[i], review, state, p.ledger.Now())
	}
	return out, nil
}

// source is where a list of workflows is read.
type source struct {
	query           func(context.Context, store.Index, store.Scan) (store.Page, error)
	index           store.Index
	part            string
	active          bool   // it has entries of active workflows in place of the workflows
	workspace, pool string // ids of those that the list is of; "" means any
}

// has says whether a workflow is in the workspace and the pool of the list.
func (s source) has(w *record.Workflow) bool {
	return (s.workspace == "" || w.WorkspaceID == s.workspace) && (s.pool == "" || claimedLast(w, s.pool))
}

// source finds the shortest list that has all that a filter wants.
func (p *Calls) source(ctx context.Context, org string, f Filter) (out source, err error) {
	out = source{query: p.ledger.Query, index: store.Index1, part: record.OrganizationRuns(org)}
	if f.Workspace != "" {
		ws, err := catalog.Workspace(ctx, p.ledger.View(), org, f.Workspace)
		if err != nil {
			return out, err
		}
		out.index, out.part, out.workspace = store.Index2, "ws/"+ws.ID, ws.ID
	}
	if f.State == Awaiting {
		out.active, out.index, out.part = true, "", record.ReviewPart(org)
		out.query = func(ctx context.Context, _ store.Index, s store.Scan) (store.Page, error) {
			s.To = ""
			return p.ledger.Range(ctx, s)
		}
		if f.Pool != "" {
			out.pool, err = catalog.PoolID(ctx, p.ledger.View(), org, f.Pool)
		}
		return out, err
	}
	if out.active = isActive(f.State); out.active {
		out.index, out.part = store.Index1, record.ActiveIndex(org)
	}
	if f.Pool == "" {
		return out, nil
	}
	if out.pool, err = catalog.PoolID(ctx, p.ledger.View(), org, f.Pool); err != nil {
		return out, err
	}
	if out.active {
		out.index, out.part = "", record.ActivePart(out.pool)
		out.query = func(ctx context.Context, _ store.Index, s store.Scan) (store.Page, error) {
			s.To = ""
			return p.ledger.Range(ctx, s)
		}
	}
	return out, nil
}

// isActive says whether only active workflows are in a state.
func isActive(state string) bool {
	return state == "active" || state == string(workflow.Claimed) || state == string(workflow.Running)
}

// claimedLast says whether a pool has claimed a workflow last. One that is pending may be claimed by another.
func claimedLast(w *record.Workflow, poolID string) bool {
	return w.PoolID == poolID && w.Attempt > 0 && w.State != workflow.Pending
}

// awaiting drops the entries of stale or expired plans: a store may keep them for a while.
func (p *Calls) awaiting(ctx context.Context, org string, entries []store.Record) ([]store.Record, error) {
	keys := make([]store.Key, 0, 2*len(entries))
	states := make(map[string]store.Key, len(entries)) // by preview
	for _, e := range entries {
		one, err := record.Decode[record.Awaited](e)
		if err != nil {
			return nil, err
		}
		states[e.Key.Sort] = record.StateKey(org, one.WorkspaceID)
		keys = append(keys, record.ReviewKey(e.Key.Sort), states[e.Key.Sort])
	}
	read, err := p.ledger.Read(ctx, keys...)
	if err != nil {
		return nil, err
	}
	now := p.ledger.Now()
	entries = slices.DeleteFunc(entries, func(e store.Record) bool {
		var r record.Review
		var state api.StateFound
		one := errors.Join(read.Into(record.ReviewKey(e.Key.Sort), &r), read.Into(states[e.Key.Sort], &state))
		err = errors.Join(err, one)
		status, _ := rules.Stands(r, state, now)
		return one != nil || status != api.ReviewWaiting
	})
	return entries, err
}

// workflowsOf reads the workflows of entries of the index of active workflows, in their order.
func (p *Calls) workflowsOf(ctx context.Context, active []store.Record) (out []store.Record, err error) {
	var keys []store.Key
	for _, r := range active {
		keys = append(keys, record.WorkflowKey(r.Key.Sort))
	}
	r, err := p.ledger.Read(ctx, keys...)
	for _, k := range keys {
		if rec, ok := r[k]; ok {
			out = append(out, rec)
		}
	}
	return out, err
}

// poolsOf returns the names of the pools of workflows of an organization. That of a pending one is the pool to which
// its workspace leads now, and "" where labels leave that open.
func (p *Calls) poolsOf(ctx context.Context, org string, wfs []picked) ([]string, error) {
	var lanes []store.Key
	for _, w := range wfs {
		if k := record.QueueKey(w.WorkspaceID); w.State == workflow.Pending && !slices.Contains(lanes, k) {
			lanes = append(lanes, k)
		}
	}
	r, err := p.ledger.Read(ctx, lanes...)
	if err != nil {
		return nil, err
	}
	leads := map[string]string{} // by workspace: the pool to which it leads
	for _, k := range lanes {
		q, _, err := ledger.Get[record.Queue](r, k)
		if err != nil {
			return nil, err
		}
		if q.Route.Key != "" {
			leads[k.Part] = record.PoolOfRoute(q.Route.Key)
		}
	}
	ids := make([]string, len(wfs))
	for i, w := range wfs {
		if ids[i] = w.PoolID; w.State != workflow.Pending {
			continue
		}
		if to, known := leads[record.QueueKey(w.WorkspaceID).Part]; known {
			ids[i] = to
		}
	}
	names, err := catalog.Names(ctx, p.ledger, org, slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })...)
	for i := range ids {
		ids[i] = names[ids[i]]
	}
	return ids, err
}

// Timeline lists the events of a workflow, in order.
func (p *Calls) Timeline(ctx context.Context, who identity.Principal, id, cursor string, limit int) (out api.Page[api.Event], err error) {
	if err := identity.AllowIn(ctx, p.ledger, who, api.RoleViewer, "workflow.timeline", id, p.inWorkflow(who.Organization, id)); err != nil {
		return out, err
	}
	if _, _, err := p.ledger.Workflow(ctx, who.Organization, id); err != nil {
		return out, err
	}
	events := record.Under(record.WorkflowKey(id).Part, "ev/", ledger.PageSize(limit, 500))
	return ledger.ListOf(ctx, p.ledger, events, cursor, ledger.AsStored[api.Event])
}
