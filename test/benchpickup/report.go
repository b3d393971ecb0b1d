package main

import (
	"fmt"
	"time"
)

// seconds prints a duration in seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
