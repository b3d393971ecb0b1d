// Package trees runs a workspace and all that depend on it in their order, each once. Decisions about the nodes of a
// tree are in package rules. It does not watch runs: package notifications calls it when one has ended.
package trees

import (
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
)

// Calls answers requests about trees.
type Calls struct {
	ledger  *ledger.Ledger
	catalog *catalog.Calls
	runs    *runs.Calls
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, c *catalog.Calls, r *runs.Calls) *Calls {
	return &Calls{ledger: l, catalog: c, runs: r}
}
