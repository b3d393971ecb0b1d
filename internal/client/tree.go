package client

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// SubmitTree asks for runs of a workspace and of all that depend on it. A repeat within the call cannot make two.
func (c *Client) SubmitTree(ctx context.Context, in api.NewTree) (api.Tree, error) {
	return ask[api.Tree](ctx, c, brief, call{op: "submit tree of " + in.Workspace, method: http.MethodPost, path: []string{"v1", "trees"}, in: in, key: rand.Text()})
}

// Trees lists trees, the newest first.
func (c *Client) Trees(ctx context.Context, cursor string, limit int) (api.Page[api.Tree], error) {
	return get[api.Page[api.Tree]](ctx, c, "list trees", listing(cursor, limit), "v1", "trees")
}

// Tree shows a tree.
func (c *Client) Tree(ctx context.Context, id string) (api.Tree, error) {
	return get[api.Tree](ctx, c, "show tree "+id, nil, "v1", "trees", id)
}

// CancelTree asks for a tree's end. The reason may be empty.
func (c *Client) CancelTree(ctx context.Context, id, reason string) (api.Tree, error) {
	return ask[api.Tree](ctx, c, brief, call{op: "cancel tree " + id, method: http.MethodPost, path: []string{"v1", "trees", id, "cancel"}, in: api.WithReason{Reason: reason}})
}
