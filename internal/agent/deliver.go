package agent

import (
	"context"
	"math"
	"time"

	"github.com/dayfly-dev/dayfly/internal/deliverer"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// newDeliverer returns nil if the agent performs no deliveries.
func (a *Agent) newDeliverer() (*deliverer.Deliverer, error) {
	if a.cfg.Secrets == nil {
		return nil, nil
	}
	return deliverer.New(a.cfg.Upstream, deliverer.Config{
		Instance: a.cfg.Instance, Secrets: a.cfg.Secrets, Private: a.cfg.PrivateDeliveries,
		Setting: "private_deliveries of the agent", Now: a.cfg.Now, Log: a.log.With("stage", "deliverer"),
	})
}

// deliveriesWait notes that deliveries wait. It does not block.
func (a *Agent) deliveriesWait() {
	select {
	case a.deliveries <- struct{}{}:
	default: // it is noted already
	}
}

// deliver performs deliveries when some wait, and after a polling interval where the last pass did not finish. When
// ctx ends it finishes the deliveries under way, within the bounds of a pass.
func (a *Agent) deliver(ctx context.Context, d *deliverer.Deliverer) {
	for pause := time.Duration(math.MaxInt64); d != nil && wait.Until(ctx, pause, a.deliveries) == nil; {
		s, err := d.Pass(ctx)
		pause = math.MaxInt64
		if err != nil || s.More || s.Unreported > 0 {
			pause = a.cfg.PollingInterval
		}
		if err != nil {
			a.log.Warn("deliveries not claimed; trying again", "err", err, "pause", pause)
		}
	}
}
