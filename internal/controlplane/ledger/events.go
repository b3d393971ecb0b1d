package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
)

// newsTime bounds what is done about the news of one commit before its caller gets its answer. The pass does the rest.
const newsTime = 2 * time.Second

// Tell adds news of an organization to the commit.
func (c *Change) Tell(org string, n record.News) {
	c.Create(record.NewsKey(org, c.Now), n)
	if !slices.Contains(c.news, org) {
		c.news = append(c.news, org)
	}
}

// tells makes deliveries of the news of a commit at once, where somebody set OnNews. If that fails, the pass does it.
func (l *Ledger) tells(ctx context.Context, orgs []string) {
	if l.OnNews == nil {
		return
	}
	// It has happened, whoever reported it: if the client leaves, it is still told.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), newsTime)
	defer cancel()
	for _, org := range orgs {
		if err := l.OnNews(ctx, org); err != nil {
			l.Log.Warn("news not told yet; the pass tells it", "organization", org, "err", err)
		}
	}
}
