package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// notifyTime bounds what is done about the news of one commit before its caller gets its answer. The pass does the rest.
const notifyTime = 2 * time.Second

// Emit adds news of an organization to the commit.
func (c *Change) Emit(org string, n record.OutboxEvent) {
	c.Create(record.OutboxKey(org, c.Now), n)
	if !slices.Contains(c.events, org) {
		c.events = append(c.events, org)
	}
}

// notify makes deliveries of the news of a commit at once, where somebody set OnNews. If that fails, the pass does it.
func (l *Ledger) notify(ctx context.Context, orgs []string) {
	if l.OnEvent == nil {
		return
	}
	// It has happened, whoever reported it: if the client leaves, it is still told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTime)
	defer cancel()
	for _, org := range orgs {
		if err := l.OnEvent(ctx, org); err != nil {
			l.Log.Warn("outbox not emptied yet; the pass does it", "organization", org, "err", err)
		}
	}
}
