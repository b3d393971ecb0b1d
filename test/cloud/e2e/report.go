package main

import (
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
)

// report prints the table, and fails if a row is not as it must be.
func report(rows []scenario.Row, m *machine, took time.Duration) error {
	heading("Outcomes")
	note("%-30s %-58s %-34s %-34s %6s  %s", "workflow", "what", "expected", "got", "time", "task")
	bad, skipped := 0, 0
	for _, r := range rows {
		if r.Skipped != "" {
			skipped++
			note("%-30s SKIPPED: %s", r.Workflow, r.Skipped)
			continue
		}
		seconds := ""
		if r.Took > 0 {
			seconds = fmt.Sprintf("%.1fs", r.Took.Seconds())
		}
		note("%-30s %-58s %-34s %-34s %6s  %s", r.Workflow, r.What, r.Expected, r.Got, seconds, r.Task)
		if len(r.Wrong) > 0 {
			bad++
			for _, wrong := range r.Wrong {
				note("    NOT as expected: %s", wrong)
			}
		}
	}
	note("permissions that no call here can use:")
	for _, l := range scenario.Unused() {
		note("  %s", l)
	}
	for _, l := range m.lacks {
		note("SKIPPED, %s", l)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d outcomes are not as they must be:\n%w", bad, len(rows), scenario.Failed(rows))
	}
	note("all %d outcomes are as they must be, %d skipped; the workflows took %s", len(rows)-skipped, skipped, took.Round(100*time.Millisecond))
	return nil
}
