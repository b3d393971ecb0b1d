package trees

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// edgesOf reads the dependencies of each workspace of an organization. A commit that goes by them checks
// record.GraphKey.
func edgesOf(ctx context.Context, c *ledger.Change, org string) (map[string][]string, error) {
	graph, _, err := ledger.Load[record.Graph](ctx, c, record.GraphKey(org))
	return graph.On, err
}

// factsOf reads the facts that decide whether a due node needs a run. Only the success of an update has applied its
// inputs.
func factsOf(ctx context.Context, c *ledger.Change, t *record.RunTree, n *record.TreeNode) (out rules.TreeFacts, err error) {
	if t.Op == workflow.Destroy || t.Every || n.Workspace == t.Workspace {
		return out, nil // it runs in any case
	}
	ws, ok, err := ledger.Load[record.Workspace](ctx, c, record.WorkspaceKey(t.Org, n.Workspace))
	if err != nil || !ok || ws.ID != n.WorkspaceID {
		return out, err // its submission is refused
	}
	last, ran, err := ledger.Load[record.Produced](ctx, c, record.ProducedKey(t.Org, ws.ID))
	if err != nil || !ran {
		return out, err
	}
	inputs, err := runs.Inputs(ctx, c, t.Org, ws)
	return rules.TreeFacts{Inputs: inputs.Digest, Used: last.Used, Ran: last.Op == workflow.Update, After: ws.W.After}, err
}
