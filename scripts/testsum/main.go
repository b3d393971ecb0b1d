// Command testsum runs `go test` with the arguments that it is given and says what came of it:
// a line per package as it ends, the output of what failed, each test that was skipped with its
// reason, and last the totals. It exits as go test does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		code = 2
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // the arguments are the caller's own
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	s := newSummary(out)
	readErr := s.read(events)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, events) // let go test end by itself
	}
	waitErr := cmd.Wait()
	failed := s.close()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return 0, readErr
	case errors.As(waitErr, &exit):
		return max(exit.ExitCode(), 1), nil
	case waitErr != nil:
		return 0, waitErr
	case failed:
		return 1, nil
	}
	return 0, nil
}
