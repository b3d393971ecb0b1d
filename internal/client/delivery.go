package client

import (
	"context"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// ClaimDeliveries asks for deliveries of the pool. Deliveries of a lost answer are tried again when their lease has
// lapsed.
func (c *Client) ClaimDeliveries(ctx context.Context, in api.DeliveryClaim) (api.DeliveriesClaimed, error) {
	return ask[api.DeliveriesClaimed](ctx, c, brief, call{op: "claim deliveries", method: http.MethodPost, path: []string{"v1", "deliveries", "claims"}, in: in})
}

// DeliveryDone reports the outcome of a try. It is idempotent.
func (c *Client) DeliveryDone(ctx context.Context, id string, in api.DeliveryResult) error {
	return c.repeat(ctx, brief, 0, func(ctx context.Context, _ int) error {
		_, err := c.do(ctx, call{op: "report delivery " + id, method: http.MethodPost, path: []string{"v1", "deliveries", id, "result"}, in: in}, nil)
		return err
	})
}

// Deliveries lists deliveries, the newest first.
func (c *Client) Deliveries(ctx context.Context, f api.DeliveryFilter) (api.Page[api.Delivery], error) {
	q := listing(f.Cursor, f.Limit)
	set(q, "state", f.State)
	set(q, "for", f.For)
	return get[api.Page[api.Delivery]](ctx, c, "list deliveries", q, "v1", "deliveries")
}

// ReplayDelivery lets a delivery that has failed be tried again.
func (c *Client) ReplayDelivery(ctx context.Context, id string) (api.Delivery, error) {
	return ask[api.Delivery](ctx, c, brief, call{op: "replay delivery " + id, method: http.MethodPost, path: []string{"v1", "deliveries", id, "replay"}})
}
