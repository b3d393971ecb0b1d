// Command runnerimage is the runner of a container: it runs the job that its environment names and exits.
// With the argument probe it only checks whether a task here would reach its relay. With version it prints its
// version. Exit code 0 means that the result was handed over, or that the run is not this task's. Exit code 1
// means that only the end of the task tells the control plane, 75 that this is because the relay was not reached.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/task"
)

var version = "unknown" // set by the build

func main() {
	child.CloseInherited()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Args[1:], os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
		os.Exit(runner.ExitCode(err))
	}
}

func run(ctx context.Context, args []string, getenv func(string) string) error {
	if len(args) == 1 && args[0] == "version" {
		_, err := fmt.Fprintln(os.Stdout, version)
		return err
	}
	if len(args) == 1 && args[0] == task.ProbeArg {
		return runner.Probe(ctx, getenv)
	}
	return runner.Run(ctx, getenv)
}
