package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ByRule is the voter of a plan that needs no approval.
const ByRule = "rule"

// Present is the present situation of a plan and its workspace.
type Present struct {
	Settings string         // digest of the workspace's settings; empty: the workspace was deleted
	State    api.StateFound // of the workspace, as it is known
	Wanted   Wanted
	Editor   api.PrincipalRef // last changed the workspace's settings
	Pull     bool             // a pull request started the preview
	Authors  bool             // it applies other commits than the last apply, and their authors are unknown
	Made     time.Time        // when the plan was made
	Kept     time.Time        // end of the retention of its bundle
}

// expires is until when a plan may be approved, by the levels and by the retention of its bundle.
func (p Present) expires() time.Time {
	at := p.Made.Add(p.Wanted.Expires)
	if p.Kept.Before(at) {
		return p.Kept
	}
	return at
}

// update makes a review follow the present requirements. Earlier requirements stay.
func (p Present) update(r *record.Review) {
	if len(p.Wanted.Why) > 0 {
		r.Why = p.Wanted.Why
	}
	r.NotBySubmitter = r.NotBySubmitter || p.Wanted.NotBySubmitter
	r.AfterMerge = r.AfterMerge || p.Pull && p.Wanted.AfterMerge
	r.Needed = max(r.Needed, 1)
	if why := stranger(*r, p); why != "" && r.NotBySubmitter {
		r.Needed, r.NeededWhy = max(r.Needed, 2), why
	}
	r.Submitters = Submitters(append(slices.Clone(r.Submitters), p.Editor)...)
	if at := p.expires(); r.Expires.IsZero() || at.Before(r.Expires) {
		r.Expires = at
	}
}

// stranger says why an author of a plan's changes is unknown here; empty if all of them are known. An unknown author
// may be known by another name, and approve their own work under it. So under not_by_submitter two others must look
// at the plan.
func stranger(r record.Review, p Present) string {
	switch {
	case r.Strangers:
		return "somebody who opened the pull request or pushed its commits is not known here"
	case p.Authors:
		return "the authors of the commits since the last apply are not known here"
	}
	return ""
}

// Submitters are principals, each once.
func Submitters(all ...api.PrincipalRef) (out api.PrincipalRefs) {
	for _, one := range all {
		if one.ID != "" && !out.Has(one.ID) {
			out = append(out, one)
		}
	}
	return out
}

// Reviewed is the review of a plan when its preview has ended. then says that the plan was made to be applied: it is
// applied if it needs no approval.
func Reviewed(planned record.Review, plan api.PlanRef, then bool, p Present) record.Review {
	out := planned
	out.Plan, out.Status = plan, api.ReviewWaiting
	p.update(&out)
	switch {
	case plan.Empty && len(p.Wanted.Why) == 0:
		out.Status = api.ReviewEmpty
	case len(p.Wanted.Why) == 0 && then && !out.AfterMerge && p.Settings == planned.Settings && Moved(out, p.State) == "":
		out.Status, out.Votes = api.ReviewApproved, []api.Vote{{By: ByRule, At: p.Made}}
	}
	return out
}

// Expired says whether a plan was not approved in time.
func Expired(r record.Review, now time.Time) bool {
	return r.Status == api.ReviewWaiting && !now.Before(r.Expires)
}

// Moved says, as a clause, how the state of a workspace has moved since a plan was made on it; empty: it has not. A
// plan that waits for the merge is made anew then. It is a pure function.
func Moved(r record.Review, now api.StateFound) string {
	switch base := r.Base; {
	case base == nil || r.AfterMerge:
	case base.Lineage != now.Lineage:
		return fmt.Sprintf("the workspace has another state than when the plan was made: its lineage was %s, and is %s", cmp.Or(base.Lineage, "none"), cmp.Or(now.Lineage, "none"))
	case base.Serial < now.Serial:
		return fmt.Sprintf("the state has moved since the plan was made: its serial was %d, and is %d", base.Serial, now.Serial)
	}
	return ""
}

// Stands is the present status of a review, as people see it, and how the state has moved if it is stale. It is a
// pure function.
func Stands(r record.Review, state api.StateFound, now time.Time) (status, moved string) {
	if r.Status == api.ReviewWaiting {
		if moved = Moved(r, state); moved != "" {
			return api.ReviewStale, moved
		}
	}
	if Expired(r, now) {
		return api.ReviewExpired, ""
	}
	return r.Status, ""
}

// Decision is a decision about a plan.
type Decision struct {
	api.Decision
	By      api.PrincipalRef
	Account api.PrincipalRef // of a pipeline: the account that caused it, as Submitters name it; else zero
	Reject  bool
}

// Decide makes a decision about the plan of a preview: it returns the review after it. made is false if the same
// decision was made before. It is a pure function. A plan is approved only as it was seen, in a workspace with the
// settings that it was made with, and by as many people as are required now.
func Decide(was record.Review, d Decision, p Present, now time.Time) (out record.Review, made bool, err error) {
	conflict := func(format string, args ...any) error {
		return workflow.Refuse(workflow.ErrConflict, "", format, args...)
	}
	id, out := was.Plan.Workflow, was
	if was.Plan.SHA256 != d.SHA256 {
		return was, false, conflict("the plan of %s has the sha256 %s, not %s: look at it again (dayfly workflow plan %s)", id, was.Plan.SHA256, text.Cut(d.SHA256, 64), id)
	}
	if slices.ContainsFunc(was.Votes, func(v api.Vote) bool { return v.ByID == d.By.ID && v.Reject == d.Reject }) {
		return was, false, nil
	}
	if err := isOpen(was, d.Reject); err != nil {
		return was, false, err
	}
	if !d.Reject {
		if p.Settings == "" {
			return was, false, conflict("plan_stale: the workspace of %s was deleted", id)
		}
		p.update(&out)
	}
	if moved := Moved(out, p.State); moved != "" && !d.Reject {
		return was, false, conflict("plan_stale: %s; plan again: dayfly workflow retry %s", moved, id)
	}
	if Expired(out, now) {
		return was, false, conflict("nobody approved the plan of %s until %s; make a new preview", id, Day(out.Expires))
	}
	out.Votes = append(slices.Clone(was.Votes), api.Vote{By: d.By.Name, ByID: d.By.ID, At: now, Reject: d.Reject, Comment: d.Comment})
	if d.Reject {
		out.Status = api.ReviewRejected
		return out, true, nil
	}
	if err := approve(&out, d, p); err != nil {
		return was, false, err
	}
	return out, true, nil
}

// approve refuses a vote that may not approve the plan, and sets the status of a review with enough approvals.
func approve(review *record.Review, d Decision, p Present) error {
	switch {
	case p.Settings != review.Settings:
		return workflow.Refuse(workflow.ErrConflict, "", "plan_stale: the settings of the workspace were changed after preview %s was submitted; make a new preview", review.Plan.Workflow)
	case review.NotBySubmitter && (review.Submitters.Has(d.By.ID) || review.Submitters.Has(d.Account.ID)):
		return workflow.Refuse(workflow.ErrForbidden, "", "the plan of %s must be approved by somebody else than %s, who submitted it or changed its workspace last", review.Plan.Workflow, strings.Join(review.Submitters.Names(), " and "))
	}
	switch {
	case review.AfterMerge && review.Values == "":
		return workflow.Refuse(workflow.ErrConflict, "", "the plan of %s is not applied before the merge, and its approval could not be carried over: it cannot be compared with another plan, because its engine is pulumi or terragrunt, its code has provisioners, or its runner is older; approve the plan of the merged commit", review.Plan.Workflow)
	case approvals(*review) < review.Needed:
	case review.AfterMerge:
		review.Status = api.ReviewMerge
	default:
		review.Status = api.ReviewApproved
	}
	return nil
}

// isOpen refuses a decision about a plan whose review is closed.
func isOpen(was record.Review, reject bool) error {
	conflict := func(format string, args ...any) error {
		return workflow.Refuse(workflow.ErrConflict, "", format, args...)
	}
	id := was.Plan.Workflow
	switch was.Status {
	case api.ReviewWaiting:
	case api.ReviewMerge:
		if !reject {
			return conflict("the plan of %s is approved already, and waits for the merge", id)
		}
	case api.ReviewCarried:
		return conflict("the approvals of the plan of %s were carried over to %s: decide on that one", id, was.CarriedTo)
	case api.ReviewEmpty:
		return conflict("the plan of %s changes nothing: there is nothing to approve", id)
	case api.ReviewApproved:
		return conflict("the plan of %s was approved, and run %s applies it; to stop that: dayfly workflow cancel %s", id, was.Applies, was.Applies)
	default:
		return conflict("the plan of %s was %s; make a new preview", id, strings.TrimSpace(was.Status+" "+Rejection(was)))
	}
	return nil
}

// approvals counts the valid approvals: a voter who has changed the workspace since is one of the submitters.
func approvals(r record.Review) (n int) {
	for _, v := range r.Votes {
		if !v.Reject && !(r.NotBySubmitter && r.Submitters.Has(v.ByID)) {
			n++
		}
	}
	return n
}

// Missing is how many more approvals a plan needs.
func Missing(r record.Review) int { return r.Needed - approvals(r) }

// Rejection says who rejected a plan, and why; empty if nobody did.
func Rejection(r record.Review) string {
	for _, v := range r.Votes {
		if v.Reject {
			return "by " + v.By + Because(v.Comment)
		}
	}
	return ""
}

// Permit has the conditions that a run is checked by when it starts. The first three are about runs that change a
// workspace's state.
type Permit struct {
	Required bool          // approvals, by now
	Settings string        // digest of the workspace's settings; empty: the workspace was deleted
	Review   record.Review // of the plan that the run applies
	State    api.StateFound
	Policies bool // policy groups hold for the run, by now
	// Of a run with inputs, whether or not it changes the state:
	Inputs  []api.WorkspaceInput
	Fed     Fed          // their present values
	Planned record.Given // the values that the preview had whose plan the run applies
}

// needs are the features that the runner of a run must know. The present groups decide whether policies are one of
// them.
func (p Permit) needs(w *record.Workflow) []string {
	out := slices.DeleteFunc(slices.Clone(w.Needs), func(one string) bool {
		return one == api.KnowsPolicies && w.Type != workflow.PolicyEvaluation
	})
	if p.Policies && !slices.Contains(out, api.KnowsPolicies) {
		out = append(out, api.KnowsPolicies)
	}
	return out
}

// refusal is why a run may not start; the event is empty if it may.
func (p Permit) refusal(w *record.Workflow) (workflow.Event, string) {
	switch {
	case !w.ChangesState(), w.PlanOf == "" && !p.Required:
	case w.PlanOf == "":
		return workflow.OnNotApproved, fmt.Sprintf("workspace %s requires approvals by now, and this run was submitted without; submit it again: it makes a plan first", w.Workspace)
	case p.Review.Status != api.ReviewApproved || p.Review.Applies != w.ID:
		return workflow.OnNotApproved, fmt.Sprintf("the plan of %s is not approved for this run", w.PlanOf)
	case p.Settings != p.Review.Settings:
		return workflow.OnPlanStale, fmt.Sprintf("the settings of workspace %s were changed after the plan of %s was made; make a new preview", w.Workspace, w.PlanOf)
	}
	if moved := Moved(p.Review, p.State); moved != "" {
		return workflow.OnPlanStale, fmt.Sprintf("%s; plan again: dayfly workflow retry %s", moved, w.PlanOf)
	}
	if p.Fed.Missing != "" {
		return workflow.OnInputMissing, p.Fed.Missing
	}
	if w.PlanOf != "" {
		if why := Stale(p.Inputs, p.Planned, p.Review.Used, p.Fed); why != "" {
			return workflow.OnPlanStale, why
		}
	}
	return "", ""
}
