package client

import (
	"context"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// ClaimDeliveries asks for deliveries of the pool. What was handed out to an answer that was lost is tried again when its
// lease has lapsed.
func (c *Client) ClaimDeliveries(ctx context.Context, in api.DeliveryClaim) (api.DeliveriesClaimed, error) {
	return ask[api.DeliveriesClaimed](ctx, c, brief, call{what: "claim deliveries", method: http.MethodPost, path: []string{"v1", "deliveries", "claims"}, in: in})
}

// DeliveryDone reports what came of a try. Saying it twice changes nothing.
func (c *Client) DeliveryDone(ctx context.Context, id string, in api.DeliveryResult) error {
	return repeat(ctx, brief, func(int) error {
		_, err := c.do(ctx, call{what: "report delivery " + id, method: http.MethodPost, path: []string{"v1", "deliveries", id, "result"}, in: in}, nil)
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
	return ask[api.Delivery](ctx, c, brief, call{what: "replay delivery " + id, method: http.MethodPost, path: []string{"v1", "deliveries", id, "replay"}})
}
