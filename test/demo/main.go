// Command demo runs real workflows end to end on this machine: it starts `dayfly up` with a
// temporary data directory and an agent of a second pool, submits the workflows of examples/, shows
// their logs live, and checks that each ended as it must. It stops and removes all that it made. It is a user
// of the command line like any other and imports nothing of ours.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo: "+err.Error())
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

// longest is how long the workflows may take together; building an engine is not counted.
const longest = 40 * time.Minute

// run is the demo. The repository is the current directory; DAYFLY names the binary.
func run(ctx context.Context, getenv func(string) string) (err error) {
	repository, err := os.Getwd()
	if err != nil {
		return err
	}
	cache := filepath.Join(repository, ".cache")
	temp, err := tempDir()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removed(temp)) }()

	engine, err := findEngine(ctx, getenv, repository, cache, temp)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done after %s", longest))
	defer cancel()

	target := getenv("DEPLOY_TARGET")
	switch target {
	case "", "process":
		target = "process"
	case "docker":
		if err := engine.image(ctx, repository, temp); err != nil {
			return err
		}
	default:
		return fmt.Errorf("DEPLOY_TARGET is %q; it can be process or docker", target)
	}
	d := &demo{target: target, dayfly: filepath.Join(cache, "bin", "dayfly"), examples: filepath.Join(repository, "examples"), temp: temp, engine: engine}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx, getenv); err != nil {
		return err
	}
	if err := d.workspaces(ctx); err != nil {
		return err
	}
	if err := d.workflows(ctx); err != nil {
		return err
	}
	return d.report(ctx)
}

// heading begins a part of the demo.
func heading(format string, args ...any) {
	fmt.Fprintf(os.Stdout, "\n=== "+format+"\n", args...)
}

// note is a remark of the demo.
func note(format string, args ...any) { fmt.Fprintf(os.Stdout, "    "+format+"\n", args...) }
