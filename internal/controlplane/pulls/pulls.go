// Package pulls previews pull requests, carries out the commands in comments of members, and shows the results in a
// comment of its own. It calls no git host itself: each call is a delivery, which the side of a pool performs.
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
	// WebhookKey returns the key that the secrets of webhooks are derived from. Nil means that webhooks are refused.
	WebhookKey func(ctx context.Context) ([]byte, error)
}

// Calls answers requests about git hosts, and their webhooks.
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
