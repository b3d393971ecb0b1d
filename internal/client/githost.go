package client

import (
	"context"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// PutGitHost creates or changes a git host.
func (c *Client) PutGitHost(ctx context.Context, in api.GitHost) (api.GitHost, api.Outcome, error) {
	return put(ctx, c, "apply git host "+in.Name, in, "v1", "git-hosts", in.Name)
}

// GitHosts lists git hosts.
func (c *Client) GitHosts(ctx context.Context, cursor string, limit int) (api.Page[api.GitHost], error) {
	return get[api.Page[api.GitHost]](ctx, c, "list git hosts", listing(cursor, limit), "v1", "git-hosts")
}

// GitHost shows a git host.
func (c *Client) GitHost(ctx context.Context, name string) (api.GitHost, error) {
	return get[api.GitHost](ctx, c, "show git host "+name, nil, "v1", "git-hosts", name)
}

// RotateWebhookSecret makes the secret of a git host's webhook anew and returns it. The one before stops at once.
func (c *Client) RotateWebhookSecret(ctx context.Context, name string) (api.WebhookSecret, error) {
	return ask[api.WebhookSecret](ctx, c, once, call{what: "rotate the secret of git host " + name, method: http.MethodPost, path: []string{"v1", "git-hosts", name, "secret"}})
}

// DeleteGitHost deletes a git host.
func (c *Client) DeleteGitHost(ctx context.Context, name string) error {
	return c.remove(ctx, call{what: "delete git host " + name, path: []string{"v1", "git-hosts", name}})
}
