package deliverer

import "time"

// SetCallTime makes calls end sooner than they do, and returns when they do.
func SetCallTime(d *Deliverer, t time.Duration) (was time.Duration) {
	was, d.client.Timeout = d.client.Timeout, t
	return was
}
