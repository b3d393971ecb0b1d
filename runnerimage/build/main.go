// Command build makes the image of container jobs: the runner, CA certificates, a shell and an engine, as layers on a
// base that is pinned by digest, or on nothing. scripts/image calls it, with its variables in the environment. With
// the arguments try IMAGE it runs an image in the local Docker engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dayfly-dev/dayfly/internal/child"
)

func main() {
	child.CloseInherited()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	switch {
	case len(args) == 0:
		cfg, err := configure(getenv)
		if err != nil {
			return err
		}
		return makeImage(ctx, cfg, out)
	case len(args) == 2 && args[0] == "try":
		return try(ctx, args[1], out)
	case len(args) == 1 && args[0] == inside:
		return tryTrust(ctx, out)
	}
	return errors.New("without arguments it makes an image; with try IMAGE it tries one")
}
