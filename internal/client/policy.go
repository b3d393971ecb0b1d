package client

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// PutPolicyGroup creates or changes a policy group.
func (c *Client) PutPolicyGroup(ctx context.Context, in api.PolicyGroup) (api.PolicyGroup, api.Outcome, error) {
	return put(ctx, c, "apply policy group "+in.Name, in, "v1", "policy-groups", in.Name)
}

// PolicyGroups lists policy groups.
func (c *Client) PolicyGroups(ctx context.Context, cursor string, limit int) (api.Page[api.PolicyGroup], error) {
	return get[api.Page[api.PolicyGroup]](ctx, c, "list policy groups", listing(cursor, limit), "v1", "policy-groups")
}

// PolicyGroup shows a policy group.
func (c *Client) PolicyGroup(ctx context.Context, name string) (api.PolicyGroup, error) {
	return get[api.PolicyGroup](ctx, c, "show policy group "+name, nil, "v1", "policy-groups", name)
}

// DeletePolicyGroup deletes a policy group.
func (c *Client) DeletePolicyGroup(ctx context.Context, name string) error {
	return c.remove(ctx, call{what: "delete policy group " + name, path: []string{"v1", "policy-groups", name}})
}

// PutWaiver gives or changes a waiver.
func (c *Client) PutWaiver(ctx context.Context, in api.Waiver) (api.Waiver, api.Outcome, error) {
	return put(ctx, c, "apply waiver "+in.Name, in, "v1", "waivers", in.Name)
}

// Waivers lists waivers.
func (c *Client) Waivers(ctx context.Context, cursor string, limit int) (api.Page[api.Waiver], error) {
	return get[api.Page[api.Waiver]](ctx, c, "list waivers", listing(cursor, limit), "v1", "waivers")
}

// Waiver shows a waiver.
func (c *Client) Waiver(ctx context.Context, name string) (api.Waiver, error) {
	return get[api.Waiver](ctx, c, "show waiver "+name, nil, "v1", "waivers", name)
}

// DeleteWaiver takes a waiver back.
func (c *Client) DeleteWaiver(ctx context.Context, name string) error {
	return c.remove(ctx, call{what: "delete waiver " + name, path: []string{"v1", "waivers", name}})
}
