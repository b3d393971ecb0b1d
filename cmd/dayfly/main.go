// Command dayfly is the command line of Dayfly, its control plane and its agent in one binary.
package main

import (
	"context"
	"io"
	"os"
	_ "time/tzdata" // for schedules, on machines and in containers without a database of time zones

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/serve"
	"github.com/dayfly-dev/dayfly/internal/child"
)

func main() {
	child.CloseInherited()
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is everything but the exit.
func run(args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == serve.RunnerCommand {
		return serve.Job(args[1:], getenv, stderr)
	}
	return command(context.Background(), args, getenv, stdin, stdout, stderr)
}
