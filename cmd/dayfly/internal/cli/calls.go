package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// CallsAtOnce is how many calls a command about many workspaces makes at once.
const CallsAtOnce = 8

// Each calls do for every number below n, some at once, and stops at the first error of ctx. All errors are returned,
// in their order.
func Each(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			if errs[i] = context.Cause(ctx); errs[i] == nil {
				errs[i] = do(ctx, i)
			}
			return nil
		})
	}
	_ = group.Wait() // it has none of its own
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// FirstLines are the different lines of an error, up to a number.
func FirstLines(err error) string {
	const maxLines = 20
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}
