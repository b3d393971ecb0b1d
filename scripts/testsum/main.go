// Command testsum runs `go test` with the arguments that it is given and says what came of it:
// a line per package as it ends, the output of what failed, each test that was skipped with its
// reason, the tables that tests print (lines that begin with "| "), and last the totals. Arguments after
// "--" are those of a further run, such as one with build tags; the totals are those of all runs. It exits as
// go test does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
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
	s := newSummary(out)
	for n, args := range runs(args) {
		if n > 0 {
			s.label = " (" + strings.Join(args, " ") + ")"
		}
		ended, err := s.run(ctx, args)
		if err != nil {
			return 0, err
		}
		code = max(code, ended)
	}
	if failed := s.close(); failed {
		code = max(code, 1)
	}
	return code, nil
}

// runs splits arguments at each "--".
func runs(args []string) [][]string {
	var out [][]string
	for {
		i := slices.Index(args, "--")
		if i < 0 {
			return append(out, args)
		}
		out, args = append(out, args[:i]), args[i+1:]
	}
}

// run runs go test once and takes down what it says.
func (s *summary) run(ctx context.Context, args []string) (code int, err error) {
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
	readErr := s.read(events)
	if readErr != nil {
		_, _ = io.Copy(io.Discard, events) // let go test end by itself
	}
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return 0, readErr
	case errors.As(waitErr, &exit):
		return max(exit.ExitCode(), 1), nil
	case waitErr != nil:
		return 0, waitErr
	}
	return 0, nil
}
