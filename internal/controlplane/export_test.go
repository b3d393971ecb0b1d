package controlplane

import "context"

// WakeForTest is what a commit for a client does that leaves while it is answered.
func (p *Plane) WakeForTest(ctx context.Context, leave context.CancelFunc, pool string) {
	leave()
	p.owe(ctx, []string{pool})
}

// Changed is what the audit trail says of a change of a pool.
var Changed = changed
