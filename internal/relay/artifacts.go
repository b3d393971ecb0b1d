package relay

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// Places is where the bytes of a pool's artifacts lie.
type Places interface {
	// Place says where that is. The control plane adds the pool and the instance.
	Place() api.Place
	// Upload returns the request that places an artifact under a key, and Download the one that gets it.
	Upload(ctx context.Context, key string, a api.NewArtifact) (api.Transfer, error)
	Download(ctx context.Context, key string, a api.Artifact) (api.Transfer, error)
}
