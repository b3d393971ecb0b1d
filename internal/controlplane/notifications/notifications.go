// Package notifications turns events of runs into deliveries of notifications, and passes them on to pull requests
// and trees. It hands deliveries out to the sides of pools and records their results. It sends nothing itself.
package notifications

import (
	"context"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/pulls"
	"github.com/dayfly-dev/dayfly/internal/controlplane/trees"
)

// Config has the settings of notifications. The zero value works.
type Config struct {
	// Address is where people reach the console, without a slash at its end; empty means that messages have no link.
	Address string
}

// Calls answers requests about notifications and deliveries.
type Calls struct {
	Notifications *identity.Settings[api.Notification, api.Notification]

	ledger *ledger.Ledger
	trees  *trees.Calls
	pulls  *pulls.Calls
	cfg    Config
}

// New returns the calls over a ledger, and has the ledger call Notify right after it has committed events.
func New(l *ledger.Ledger, t *trees.Calls, g *pulls.Calls, cfg Config) *Calls {
	p := &Calls{Notifications: settings(l), ledger: l, trees: t, pulls: g, cfg: cfg}
	l.OnEvent = func(ctx context.Context, org string) error {
		return p.Notify(ctx, org, p.ledger.Now().Add(time.Second))
	}
	return p
}
