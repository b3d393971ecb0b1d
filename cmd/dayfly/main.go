// Command dayfly is the command line of Dayfly, its control plane and its agent in one binary.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is everything but the exit. The first interrupt ends the context; the second one ends the
// process, as if nobody listened.
func run(args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == runnerCommand {
		return job(args[1:], getenv, stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return command(ctx, args, getenv, stdin, stdout, stderr)
}
