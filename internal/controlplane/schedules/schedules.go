// Package schedules submits runs at the times that admins set, each once in each workspace, and lists its last and
// next runs. It has no timer: package clock calls it.
package schedules

import (
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
)

// Calls answers requests about schedules.
type Calls struct {
	Schedules *identity.Settings[api.Schedule, api.Schedule]

	ledger  *ledger.Ledger
	catalog *catalog.Calls
	runs    *runs.Calls
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, c *catalog.Calls, r *runs.Calls) *Calls {
	return &Calls{Schedules: settings(l), ledger: l, catalog: c, runs: r}
}
