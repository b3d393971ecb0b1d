package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
)

// invokeTime bounds the call that invokes the deliverer.
const invokeTime = 3 * time.Second

// deliveries has the deliverer perform waiting deliveries, in a function of its own: the calls may be slow, and the
// poller has no permission for them. A call that fails is only logged: the next poll reports deliveries again.
type deliveries struct {
	caller    boot.Caller
	deliverer string // name or ARN of the function; empty: this stack has none
	log       *slog.Logger
	group     sync.WaitGroup
}

// wait notes that deliveries wait; the poller calls it. It does not block.
func (d *deliveries) wait() {
	if d.deliverer == "" {
		return
	}
	d.group.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), invokeTime)
		defer cancel()
		call, err := d.caller.Invocation(ctx, d.deliverer)
		if err == nil {
			_, err = d.caller.Do(ctx, call)
		}
		if err != nil {
			d.log.WarnContext(ctx, "deliverer not invoked; the next poll tries again", "err", err)
		}
	})
}

// invoked returns when no call is under way: none may be open when the invocation ends.
func (d *deliveries) invoked() { d.group.Wait() }
