// Package catalog is what an organization has: itself, its pools, who they are for and who polls for them, and its
// workspaces with their settings. It refuses settings that could not run.
package catalog

import "github.com/dayfly-dev/dayfly/internal/controlplane/ledger"

// Config is what settings depend on beside themselves. The zero value works.
type Config struct {
	// DefaultState is where the engine's state is kept of a workspace that names no place and whose code declares none;
	// empty means nowhere.
	DefaultState string
	NoRoles      bool // no runner could assume the role of a workspace, so such are refused
	NoWakes      bool // nothing would use the wake target of a pool, so such are refused
}

// Calls answers what is asked about organizations, pools and workspaces.
type Calls struct {
	ledger *ledger.Ledger
	cfg    Config
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, cfg Config) *Calls { return &Calls{ledger: l, cfg: cfg} }
