package runner

import (
	"context"
	"io"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Still implements engine.Host.
func (h *host) Still(ctx context.Context) error {
	h.r.endRest(ctx)
	return nil
}

// Keep implements engine.Host.
func (h *host) Keep(context.Context, string, string, io.ReadSeeker) (int64, string, error) {
	return 0, "", workflow.ErrUnsupported
}

// Input implements engine.Host.
func (h *host) Input(context.Context, io.Writer) error { return workflow.ErrUnsupported }
