package triggers

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func invalid(field, format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, field, format, args...)
}

// checkPool refuses a pool that there is not. The commit fails if it is deleted meanwhile.
func checkPool(ctx context.Context, c *ledger.Change, org, name string) error {
	pool, err := catalog.Named(ctx, c, org, name)
	if err != nil {
		return err
	}
	if pool.Closed {
		return invalid("pool", "pool %s is closed: name another one", pool.Name)
	}
	c.Check(record.PoolKey(org, pool.ID))
	return nil
}
