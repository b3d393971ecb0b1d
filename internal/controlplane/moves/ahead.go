package moves

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Ahead is what was read for several decisions at once. The zero value is nothing.
type Ahead struct {
	Read ledger.Read
	keys []store.Key
}

// ReadAhead reads keys for the decisions that follow. Where that fails they read for themselves, and say what is wrong.
func (b *Board) ReadAhead(ctx context.Context, keys ...store.Key) Ahead {
	r, err := b.ledger.Read(ctx, keys...)
	if err != nil {
		return Ahead{}
	}
	return Ahead{r, keys}
}

// ChangeAfter is Change for a decision that some of what it needs was read for.
func (b *Board) ChangeAfter(ctx context.Context, before Ahead, decision func(ctx context.Context, c *Change) error) error {
	return b.Change(ctx, func(ctx context.Context, c *Change) error {
		c.Take(before.Read, before.keys...)
		before = Ahead{} // after a lost race it reads anew
		return decision(ctx, c)
	})
}

// ChangeHotAfter is ChangeHot for such a decision.
func (b *Board) ChangeHotAfter(ctx context.Context, before Ahead, decision func(ctx context.Context, c *Change) error) error {
	select {
	case b.hot <- struct{}{}:
	default:
		return b.ChangeHot(ctx, decision) // those who are before it change the limits
	}
	defer func() { <-b.hot }()
	return b.ChangeAfter(ctx, before, decision)
}
