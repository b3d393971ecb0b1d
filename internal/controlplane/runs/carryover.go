package runs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Approvals of a pull request's plan carry over to the plan of the merged commit. The commit differs, so the plan is
// made anew, and the two are compared by the digest of all planned changes that their runners report. Each decision
// about a pull request's plan writes a record by which the preview of the merged commit finds it; approvals are
// carried over once, in the commit that ends that preview.

// shown is a result as people see it: without the digest, which only serves comparison.
func shown(in api.Result) api.Result {
	if in.Plan != nil && in.Plan.Values != "" {
		plan := *in.Plan
		plan.Values, in.Plan = "", &plan
	}
	return in
}

// offer writes or removes the record by which the approvals of a pull request's plan are found.
func offer(ctx context.Context, c *ledger.Change, w *record.Workflow, r record.Review) error {
	if !w.Trigger.Pull() || r.Values == "" {
		return nil
	}
	k := record.CarriedKey(w.Org, w.WorkspaceID, r.Values)
	was, ok, err := ledger.Load[record.Name](ctx, c, k)
	switch {
	case err != nil:
		return err
	case r.Status == api.ReviewWaiting, r.Status == api.ReviewMerge:
		c.PutUntil(k, record.Name{ID: w.ID}, rules.Latest(r.Expires, c.Now.Add(rules.CarryOverTime)))
	case ok && was.ID == w.ID:
		c.Remove(k)
	}
	return nil
}

// approvals are those of a pull request's plan.
type approvals struct {
	of *record.Workflow
	r  record.Review
}

// carried gives the review of a merged commit's plan the approvals of the pull request's plan with the same changes,
// and returns their source; nil if there are none. The rules decide on each approval again. The role and the
// existence of the approvers are not checked again. As with a plan that needs two approvals, an approval stays one if
// its voter loses the role afterwards; reject the pull request's plan to take it away.
func carried(ctx context.Context, c *ledger.Change, w *record.Workflow, review *record.Review, now rules.Present) (*approvals, error) {
	if w.Trigger == nil || w.Trigger.Kind != api.TriggerPush || review.Status != api.ReviewWaiting {
		return nil, nil
	}
	from, err := approvalsFor(ctx, c, w, review.Values)
	if err != nil {
		return nil, err
	}
	if from == nil {
		// No decision depends on other approvals, so this read may be out of date.
		prefix := record.CarriedPrefix(w.WorkspaceID)
		page, err := c.Range(ctx, store.Scan{Part: record.OrganizationPart(w.Org), From: prefix, To: record.After(prefix), Limit: 1})
		if err == nil && len(page.Records) > 0 {
			c.Note(w, rules.Note{Kind: "not_carried", Text: "no approval carries over: of the approved plans of pull requests, none has the same planned changes"})
		}
		return nil, err
	}
	next, why := rules.CarryOver(*review, from.r, now, c.Now)
	if why != "" {
		c.Drop(from.of)
		c.Note(w, rules.Note{Kind: "not_carried", Text: fmt.Sprintf("the approvals of %s do not carry over: %s", from.of.ID, why)})
		return nil, nil
	}
	*review = next
	return from, nil
}

// approvalsFor finds the approvals of a pull request's plan of the same repository and with the same values; nil if
// there are none. The host is that of the workspace's source, as a run of a commit has no other, and a path there has
// one meaning in upper and lower case.
func approvalsFor(ctx context.Context, c *ledger.Change, w *record.Workflow, values string) (*approvals, error) {
	if values == "" {
		return nil, nil
	}
	offered, ok, err := ledger.Load[record.Name](ctx, c, record.CarriedKey(w.Org, w.WorkspaceID, values))
	if err != nil || !ok {
		return nil, err
	}
	k := record.ReviewKey(offered.ID)
	of, err := c.Workflow(ctx, w.Org, offered.ID, k, record.AwaitedKey(w.Org, offered.ID))
	if errors.Is(err, workflow.ErrNotFound) { // it is past its retention
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, ok, err := ledger.Get[record.Review](c.Read, k)
	if err != nil || !ok || !of.Trigger.Pull() || !strings.EqualFold(of.Trigger.Repository, w.Trigger.Repository) {
		c.Drop(of)
		return nil, err
	}
	return &approvals{of, r}, nil
}

// used removes approvals from the plan from which they were carried over.
func used(c *ledger.Change, w *record.Workflow, from approvals, review record.Review) {
	said := fmt.Sprintf("carried over from %s, approved by %s, because all planned changes are equal", from.of.ID, votersOf(review))
	c.Note(w, rules.Note{Kind: "carried", Text: said})
	c.Note(from.of, rules.Note{Kind: "carried", Text: fmt.Sprintf("its approvals are carried over to %s, because all planned changes are equal", w.ID)})
	from.r.Status, from.r.CarriedTo = api.ReviewCarried, w.ID
	c.Put(record.ReviewKey(from.of.ID), from.r)
	c.Remove(record.CarriedKey(w.Org, w.WorkspaceID, review.Values))
	c.Remove(record.AwaitedKey(w.Org, from.of.ID))
	identity.Audit(c, identity.Of(w.Org, w.Submitter()), "workflow.approve", w.ID, "done", said)
}
