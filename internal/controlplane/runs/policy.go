package runs

import (
	"context"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// policed says whether a run is held to policies: one that makes a plan or applies it, and one that evaluates a
// state. A preview for a state that is pushed makes no plan.
func policed(w *record.Workflow) bool {
	return workflow.Policed(w.Type, w.Op) && w.For != workflow.StatePush
}

// heldTo reads the policy groups that hold for a run at its submission. They decide the features that its runner must
// know, and the credentials that it needs. The groups and the waivers are read again at its start, so the spec has no
// waivers.
func heldTo(ctx context.Context, c *ledger.Change, w *record.Workflow, ws record.Workspace) ([]api.Policy, error) {
	if !policed(w) {
		return nil, nil
	}
	held, err := catalog.Policies(ctx, c, w.Org, ws)
	for i := range held {
		held[i].Waivers = nil
	}
	return held, err
}

// holding reads the policy groups and waivers that count for a run which asks for its start now, right before the
// commit of the start. The groups of a workspace that was deleted are those of the run's submission.
func holding(ctx context.Context, c *ledger.Change, w *record.Workflow) ([]api.Policy, error) {
	if !policed(w) {
		return nil, nil
	}
	k := record.WorkspaceKey(w.Org, w.Workspace)
	if err := c.LoadLinked(ctx, k, record.PoliciesKey(w.Org)); err != nil {
		return nil, err
	}
	ws, known, err := workspaceOf(ctx, c, w)
	if err != nil {
		return nil, err
	}
	if known {
		return catalog.Policies(ctx, c, w.Org, ws)
	}
	spec, _, err := ledger.Load[api.Spec](ctx, c, record.SpecKey(w.ID))
	return spec.Policies, err
}

// recordPolicies adds to the commit of a run's result the policy results: to its timeline, and to the audit trail
// denials and the waivers that were used.
func recordPolicies(c *ledger.Change, w *record.Workflow, in api.Result) {
	if len(in.Policies) == 0 {
		return
	}
	c.Note(w, rules.Note{Kind: "policies", Text: "policies: " + runtext.Groups(in.Policies)})
	who := identity.Of(w.Org, w.Submitter())
	if in.Reason == workflow.ReasonPolicyFailed {
		identity.Audit(c, who, "policy.deny", w.ID, "done", w.Workspace+rules.Because(in.Detail))
	}
	var used []string
	for _, group := range in.Policies {
		for _, waiver := range group.Waivers {
			used = append(used, fmt.Sprintf("%s (rule %s of group %s)", waiver.Name, waiver.Rule, group.Group))
		}
	}
	if len(used) > 0 {
		identity.Audit(c, who, "waiver.use", w.ID, "done", w.Workspace+": "+text.Some(used, 20))
	}
}
