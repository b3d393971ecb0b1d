package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// IssueToken asks for a token that ends by itself. It sends no token of its own. It is not repeated: a repeat would get
// a second one.
func (c *Client) IssueToken(ctx context.Context, in api.TokenRequest) (api.IssuedToken, error) {
	return ask[api.IssuedToken](ctx, c, once, call{op: "get a token", method: http.MethodPost, path: []string{"v1", "token"}, form: in.Form()})
}

// LoginOptions says with which issuers people log in to an organization.
func (c *Client) LoginOptions(ctx context.Context, organization string) (api.LoginOptions, error) {
	q := url.Values{}
	set(q, "organization", organization)
	return get[api.LoginOptions](ctx, c, "ask how people log in", q, "v1", "login")
}

// CreateService makes a service principal and returns its secret.
func (c *Client) CreateService(ctx context.Context, in api.NewServicePrincipal) (api.ServicePrincipalSecret, error) {
	return ask[api.ServicePrincipalSecret](ctx, c, once, call{op: "create service principal " + in.Name, method: http.MethodPost, path: []string{"v1", "service-principals"}, in: in})
}

// Services lists service principals.
func (c *Client) Services(ctx context.Context, cursor string, limit int) (api.Page[api.ServicePrincipal], error) {
	return get[api.Page[api.ServicePrincipal]](ctx, c, "list service principals", listing(cursor, limit), "v1", "service-principals")
}

// Service shows a service principal.
func (c *Client) Service(ctx context.Context, name string) (api.ServicePrincipal, error) {
	return get[api.ServicePrincipal](ctx, c, "show service principal "+name, nil, "v1", "service-principals", name)
}

// UpdateService changes the settings that are not nil.
func (c *Client) UpdateService(ctx context.Context, name string, in api.ServicePrincipalSettings) (api.ServicePrincipal, error) {
	return ask[api.ServicePrincipal](ctx, c, brief, call{op: "update service principal " + name, method: http.MethodPatch, path: []string{"v1", "service-principals", name}, in: in})
}

// RotateSecret makes a new secret of a service principal.
func (c *Client) RotateSecret(ctx context.Context, name string, in api.RotateSecret) (api.ServicePrincipalSecret, error) {
	return ask[api.ServicePrincipalSecret](ctx, c, once, call{op: "rotate secret of service principal " + name, method: http.MethodPost, path: []string{"v1", "service-principals", name, "secret"}, in: in})
}

// DeleteService deletes a service principal.
func (c *Client) DeleteService(ctx context.Context, name string) error {
	return c.remove(ctx, call{op: "delete service principal " + name, path: []string{"v1", "service-principals", name}})
}
