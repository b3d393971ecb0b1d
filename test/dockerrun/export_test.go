package dockerrun

import "context"

// MakeNetworkOf makes a network as another process.
func (e *Engine) MakeNetworkOf(ctx context.Context, name, owner string) (remove func(context.Context) error, err error) {
	_, remove, err = e.makeNetwork(ctx, name, "", "", owner)
	return remove, err
}

// HasNetwork reports whether there is a network.
func (e *Engine) HasNetwork(ctx context.Context, name string) bool {
	return e.call(ctx, "GET", "/networks/"+name, nil, nil) == nil
}

// Self is how this process is named.
var Self = self
