package main

import (
	"fmt"
	"time"
)

// rate is how many a second.
func rate(n int, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 1e-9) }

// ms prints a duration in milliseconds.
func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

// mb is bytes in megabytes.
func mb(bytes int64) float64 { return float64(bytes) / 1e6 }
