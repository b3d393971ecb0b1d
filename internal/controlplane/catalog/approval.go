package catalog

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
)

// Requirements are those of the organization, the projects and the workspace that require approvals, in that order. The
// change is committed only if none of them changes meanwhile.
func Requirements(ctx context.Context, c *ledger.Change, org string, ws record.Workspace) ([]rules.Requirement, error) {
	return nil, nil
}
