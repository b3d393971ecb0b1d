// Command demo runs real workflows end to end on this machine, as people who type dayfly would: `dayfly up` with agents
// of two more pools, the workflows of examples/, code that an engine ran before, a person who logs in and may run what
// belongs to one project, two workspaces of which one depends on the other, a policy that stops an apply and a waiver, a
// pull request from its preview to the approved apply, and a schedule that finds drift. It prints how each run ended,
// fails if one did not end as expected, and removes what it made.
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
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1) //nolint:forbidigo // main decides the exit code
	}
}

const plan = `This runs Dayfly on this machine for some minutes and removes what it made. It starts a control plane with three
agents, on free ports of this machine only, and then, in this order:

  1. projects, pools with labels, and the workspaces of examples/
  2. previews, updates, a destroy, a plan that fails, an artifact, a cancel, the console
  3. drift, and a schedule that scans for it each minute
  4. a state that exists already: refused, then taken over
  5. plans that must be approved, one of them stale by then; also of Pulumi and of Terragrunt
  6. two workspaces that depend on one another, a policy, a waiver
  7. a person who logs in and may run what belongs to one project
  8. a pull request: preview, approval, apply, merge

ENGINE=terraform, tofu or none chooses the engine; DEPLOY_TARGET=process or docker where jobs run.
`

// run is all of it. The repository is the current directory.
func run(ctx context.Context) (err error) {
	fmt.Fprint(os.Stdout, plan)
	began := time.Now()
	temp, err := os.MkdirTemp("", "dayfly-demo-")
	if err != nil {
		return err
	}
	if temp, err = filepath.EvalSymlinks(temp); err != nil {
		return err
	}
	d := &demo{ctx: ctx, temp: temp}
	defer func() { err = errors.Join(err, d.clean()) }()
	if err := d.told(d.prepare, d.projects, d.lives, d.drift, d.takeOver, d.approvals, d.dependencies, d.policies, d.person, d.pullRequest, d.found); err != nil {
		return err
	}
	return d.outcomes(time.Since(began))
}

// told tells the parts of the story, one after the other. The first part that cannot go on is the last.
func (d *demo) told(parts ...func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			stop, ok := r.(giveUp)
			if !ok {
				panic(r)
			}
			err = errors.New(string(stop))
		}
	}()
	for _, part := range parts {
		part()
	}
	return nil
}

// giveUp ends the demo.
type giveUp string

func die(format string, args ...any) { panic(giveUp(fmt.Sprintf(format, args...))) }

func must(err error) {
	if err != nil {
		die("%v", err)
	}
}
