package ledger

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/store"
)

// ranger is a store that reads several ranges at once, because each of them takes a while.
type ranger interface {
	Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error)
}

// Ranges is Range for several scans; together they are no snapshot.
func (l *Ledger) Ranges(ctx context.Context, scans ...store.Scan) ([]store.Page, error) {
	if several, ok := l.store.(ranger); ok {
		return several.Ranges(ctx, scans...)
	}
	pages := make([]store.Page, len(scans))
	for i, s := range scans {
		var err error
		if pages[i], err = l.store.Range(ctx, s); err != nil {
			return nil, err
		}
	}
	return pages, nil
}
