package catalog

import (
	"context"
	"regexp"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// wakeTarget is the form of a wake target: a Lambda function by its name or its ARN, which may end in an alias or a
// version. The function's name must say that it is for wakes. The control plane's role may invoke no other function,
// but a wrong setting is refused when it is set, not when it is used.
var wakeTarget = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(arn:aws[a-z-]*:lambda:[a-z0-9-]{1,32}:[0-9]{12}:function:)?dayfly-wake-[A-Za-z0-9_-]{1,52}(:[A-Za-z0-9_$-]{1,128})?$`)
})

// setTarget adds a pool's new wake target to a change; nil keeps the old one, and "" removes it.
func (p *Calls) setTarget(ctx context.Context, c *ledger.Change, poolID string, target *string) error {
	if target == nil {
		return nil
	}
	if *target != "" && p.cfg.NoWakes {
		return workflow.Refuse(workflow.ErrUnsupported, "wake_target", "this control plane does not wake pollers, so a wake target would have no effect: leave it out; agents of the pool find their work by polling")
	}
	if *target != "" && !wakeTarget().MatchString(*target) {
		return workflow.Invalid("wake_target", "a wake target is the ARN or the name of a Lambda function whose name begins with dayfly-wake-")
	}
	k := record.WakeTargetKey(poolID)
	before, _, err := ledger.Load[record.WakeTarget](ctx, c, k)
	switch {
	case err != nil:
		return err
	case *target == before.Target:
	case *target == "":
		c.Remove(k)
	default:
		c.Put(k, record.WakeTarget{Target: *target})
	}
	return nil
}
