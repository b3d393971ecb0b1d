// Command runnerimage is the runner of a container: it runs the one job that its environment names
// and exits. Exit code 0 says that the result was handed over, or that the run is not this task's;
// 1 that the end of the task must speak for it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/runner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error { return runner.Run(ctx, getenv) }
