package runner_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/runner"
)

// asRunner is this test's binary as the runner of a task.
func asRunner() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runner.Run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
