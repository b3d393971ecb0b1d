package client

import (
	"context"
	"iter"
	"net/url"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Audit lists the audit events that pass a filter.
func (c *Client) Audit(ctx context.Context, f api.AuditFilter) (api.Page[api.AuditEvent], error) {
	q := listing(f.Cursor, f.Limit)
	for name, value := range map[string]string{"actor": f.Actor, "action": f.Action, "target": f.Target, "outcome": f.Outcome, "after": f.After, "order": f.Order} {
		set(q, name, value)
	}
	setTime(q, "since", f.Since)
	setTime(q, "until", f.Until)
	return get[api.Page[api.AuditEvent]](ctx, c, "list audit events", q, "v1", "audit")
}

func setTime(q url.Values, name string, at time.Time) {
	if !at.IsZero() {
		q.Set(name, at.UTC().Format(time.RFC3339Nano))
	}
}

// Entries goes through all that passes a filter, from its cursor on. It ends with the first error.
func (c *Client) Entries(ctx context.Context, f api.AuditFilter) iter.Seq2[api.AuditEvent, error] {
	return pages(f.Cursor, func(cursor string) ([]api.AuditEvent, string, error) {
		f.Cursor = cursor
		p, err := c.Audit(ctx, f)
		return p.Items, p.Next, err
	})
}

// SealPage lists the seals of the audit trail, the oldest first.
func (c *Client) SealPage(ctx context.Context, cursor string, limit int) (api.SealPage, error) {
	return get[api.SealPage](ctx, c, "list seals of the audit trail", listing(cursor, limit), "v1", "audit", "seals")
}

// Seals goes through all seals. It ends with the first error.
func (c *Client) Seals(ctx context.Context) iter.Seq2[api.Seal, error] {
	return pages("", func(cursor string) ([]api.Seal, string, error) {
		p, err := c.SealPage(ctx, cursor, 200)
		return p.Items, p.Next, err
	})
}

// pages goes through the items of all pages.
func pages[T any](cursor string, page func(cursor string) (items []T, next string, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			items, next, err := page(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range items {
				if !yield(one, nil) {
					return
				}
			}
			if cursor = next; cursor == "" {
				return
			}
		}
	}
}
