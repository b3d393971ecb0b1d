// Command invoke deploys Dayfly to the AWS of fakes of test/cloud, gives one function one event, and prints what
// the function wrote and answered. FUNCTION is its name, such as poller or dead-letters; EVENT is the event's file, by
// default the first sample in events/ of that function.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "invoke: "+err.Error())
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

// run invokes. The repository is the current directory.
func run(ctx context.Context, getenv func(string) string) (err error) {
	function, err := cloud.Sampled(getenv("FUNCTION"))
	if err != nil {
		return fmt.Errorf("FUNCTION: %w", err)
	}
	file := cmp.Or(getenv("EVENT"), filepath.Join("events", cloud.Samples[function][0]))
	event, err := os.ReadFile(file) //nolint:gosec // the caller's own choice
	if err != nil {
		return fmt.Errorf("EVENT: %w", err)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	functions, err := os.MkdirTemp("", "dayfly-invoke-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(functions)) }()
	packages, err := bootstrap.Functions(root)
	if err != nil {
		return err
	}
	if _, err := bootstrap.Build(ctx, bootstrap.Config{Root: root, Out: functions, NoZip: true}, packages...); err != nil {
		return err
	}
	c, err := cloud.Start(ctx, cloud.Config{
		Root: root, Functions: functions, Image: "none", Runner: &procrun.Runner{},
		Log: func(function, line string) { fmt.Fprintf(os.Stderr, "%s: %s\n", function, line) },
	})
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := c.Invoke(ctx, function, event)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%s answered %s with %s\n", function, file, cmp.Or(string(out.Payload), "nothing"))
	if out.FunctionError != "" {
		return fmt.Errorf("%s failed: %s", function, out.FunctionError)
	}
	return nil
}
