// Package pulls previews pull requests, does what their members' comments ask for, and shows there what came of it. It
// calls no git host itself: what is to be read or shown there is a delivery, which the side of a pool performs.
package pulls

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
)

// Config has the settings of pull requests. The zero value works.
type Config struct {
	// Address is where people reach the console, without a slash at its end; empty means that comments have no link.
	Address string
	// WebhookKey returns what the secrets of webhooks are made from. Nil means that webhooks are refused.
	WebhookKey func(ctx context.Context) ([]byte, error)
}

// Calls answers requests about git hosts and what comes from them.
type Calls struct {
	GitHosts *identity.Settings[api.GitHost, api.GitHost]

	ledger  *ledger.Ledger
	catalog *catalog.Calls
	runs    *runs.Calls
	cfg     Config
}

// New returns the calls over a ledger.
func New(l *ledger.Ledger, c *catalog.Calls, r *runs.Calls, cfg Config) *Calls {
	return &Calls{GitHosts: gitHosts(l), ledger: l, catalog: c, runs: r, cfg: cfg}
}
