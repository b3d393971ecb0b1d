// Package catalog keeps the settings of an organization: its projects, its pools with their assignments and
// instances, its workspaces, and the policies of its runs. It refuses settings that could not run.
package catalog

import (
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
)

// Config has the properties of the installation that settings are checked against. The zero value works.
type Config struct {
	// DefaultState is where the engine's state of a workspace is kept if the workspace names no place and its code
	// declares none; empty means nowhere.
	DefaultState string
	NoRoles      bool // runners cannot assume roles, so a workspace with a role is refused
	NoWakes      bool // wake targets are not used, so a pool with one is refused
}

// Calls answers requests about organizations, pools, workspaces and policies.
type Calls struct {
	PolicyGroups *identity.Settings[api.PolicyGroup, api.PolicyGroup]
	Waivers      *identity.Settings[api.Waiver, api.Waiver]

	ledger *ledger.Ledger
	cfg    Config
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, cfg Config) *Calls {
	return &Calls{PolicyGroups: policyGroups(l), Waivers: waivers(l), ledger: l, cfg: cfg}
}
