package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// notifyTime bounds the work on the events of one commit before its caller gets its answer. The pass does the rest.
const notifyTime = 2 * time.Second

// Emit adds an event to the outbox of an organization, in the commit.
func (c *Change) Emit(org string, n record.OutboxEvent) {
	c.Create(record.OutboxKey(org, c.Now), n)
	if !slices.Contains(c.events, org) {
		c.events = append(c.events, org)
	}
}

// notify makes deliveries of the events of a commit at once, if OnEvent is set. If that fails, the pass does it.
func (l *Ledger) notify(ctx context.Context, orgs []string) {
	if l.OnEvent == nil {
		return
	}
	// The event has happened: it is delivered even if the client has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTime)
	defer cancel()
	for _, org := range orgs {
		if err := l.OnEvent(ctx, org); err != nil {
			l.Log.Warn("deliveries of events not made yet; the pass makes them", "organization", org, "err", err)
		}
	}
}
