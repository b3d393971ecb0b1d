package deliverer

import "time"

// SetCallTime makes calls end sooner than they do.
func SetCallTime(d *Deliverer, t time.Duration) { d.client.Timeout = t }
