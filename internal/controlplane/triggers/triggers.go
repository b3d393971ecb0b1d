// Package triggers is what starts work without a person at the keyboard, and what tells people of it: schedules, pull
// requests, and notifications. What is wanted elsewhere is a delivery, which the side of a pool performs: this package
// calls no foreign address itself.
package triggers

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
)

// Config has the settings of triggers. The zero value works.
type Config struct {
	// Address is where people reach the console, without a slash at its end; empty means that messages have no link.
	Address string
	// WebhookKey returns what the secrets of webhooks are made from. Nil means that webhooks are refused.
	WebhookKey func(ctx context.Context) ([]byte, error)
}

// Calls answers requests about triggers and deliveries.
type Calls struct {
	GitHosts      *identity.Settings[api.GitHost, api.GitHost]
	Notifications *identity.Settings[api.Notification, api.Notification]
	Schedules     *identity.Settings[api.Schedule, api.Schedule]
	PolicyGroups  *identity.Settings[api.PolicyGroup, api.PolicyGroup]
	Waivers       *identity.Settings[api.Waiver, api.Waiver]

	ledger  *ledger.Ledger
	catalog *catalog.Calls
	runs    *runs.Calls
	cfg     Config
}

// New returns the calls over a ledger, and lets it tell news at once.
func New(l *ledger.Ledger, c *catalog.Calls, r *runs.Calls, cfg Config) *Calls {
	p := &Calls{
		GitHosts: gitHosts(l), Notifications: notifications(l), Schedules: schedules(l), PolicyGroups: policyGroups(l), Waivers: waivers(l),
		ledger: l, catalog: c, runs: r, cfg: cfg,
	}
	l.OnNews = func(ctx context.Context, org string) error {
		return p.Tell(ctx, org, p.ledger.Now().Add(time.Second))
	}
	return p
}
