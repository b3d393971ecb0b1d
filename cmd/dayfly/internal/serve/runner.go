package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// RunnerCommand is how the process launcher starts this program again. It is not for people.
const RunnerCommand = "runner"

// Job runs the one job that the environment names. Repeated signals do not hurry it: its engine must end cleanly.
// With the argument probe, it only shows whether a task here would reach its relay: this program is also the runner
// of an image that was made from it.
func Job(args []string, getenv func(string) string, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := runner.Run
	if len(args) == 1 && args[0] == task.ProbeArg {
		run = runner.Probe
	}
	if err := run(ctx, getenv); err != nil {
		_, _ = fmt.Fprintln(stderr, "dayfly runner: "+err.Error())
		return runner.ExitCode(err)
	}
	return cli.ExitOK
}
