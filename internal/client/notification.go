package client

import (
	"context"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// PutNotification creates or changes a notification.
func (c *Client) PutNotification(ctx context.Context, in api.Notification) (api.Notification, api.Outcome, error) {
	return put(ctx, c, "apply notification "+in.Name, in, "v1", "notifications", in.Name)
}

// Notifications lists notifications.
func (c *Client) Notifications(ctx context.Context, cursor string, limit int) (api.Page[api.Notification], error) {
	return get[api.Page[api.Notification]](ctx, c, "list notifications", listing(cursor, limit), "v1", "notifications")
}

// Notification shows a notification.
func (c *Client) Notification(ctx context.Context, name string) (api.Notification, error) {
	return get[api.Notification](ctx, c, "show notification "+name, nil, "v1", "notifications", name)
}

// DeleteNotification deletes a notification.
func (c *Client) DeleteNotification(ctx context.Context, name string) error {
	return c.remove(ctx, call{what: "delete notification " + name, path: []string{"v1", "notifications", name}})
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
