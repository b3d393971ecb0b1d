package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
)

type workflowWait struct {
	ID      []string      `arg:"" help:"The workflows."`
	For     string        `enum:"ended,started,approval" default:"ended" help:"Event to wait for: ended, started, or approval, which means that the plan is approved or rejected."`
	Timeout time.Duration `help:"Longest wait, such as 10m; default none."`
}

// Run waits, and prints nothing: the result is the exit code.
func (c *workflowWait) Run(a *cli.App, cl *client.Client) error {
	if c.Timeout < 0 {
		return cli.Usage(fmt.Errorf("--timeout: want a duration above 0, not %s", c.Timeout))
	}
	ctx, late := a.Ctx, errors.New("the time is over")
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(a.Ctx, c.Timeout, late)
		defer cancel()
	}

	list := make([]api.Workflow, len(c.ID))
	err := cli.Each(ctx, len(c.ID), cli.CallsAtOnce, func(ctx context.Context, i int) error {
		return new(cli.Poll).Until(ctx, func() (done bool, err error) {
			w, err := cl.WorkflowAfter(ctx, c.ID[i], list[i].Revision, changeWait)
			if err == nil {
				list[i] = w
			}
			return err == nil && c.reached(w), err
		}, askEvery)
	})
	switch {
	case a.Ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitInterrupted}
	case ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitTimeout, Err: fmt.Errorf("not all have reached --for %s after %s; they go on", c.For, c.Timeout)}
	case err != nil:
		return err
	}
	if a.JSON() {
		if err := a.Encode(list); err != nil {
			return err
		}
	}
	return c.exit(list)
}

// exit is the exit of the command, by the outcomes of the workflows and the decisions on their plans.
func (c *workflowWait) exit(list []api.Workflow) error {
	decided := []string{api.ReviewApproved, api.ReviewEmpty, api.ReviewMerge, api.ReviewCarried}
	for _, w := range list {
		if err := outcome(w.State); err != nil {
			return err
		}
		if c.For != "approval" || w.State.Terminal() && w.Review != nil && slices.Contains(decided, w.Review.Status) {
			continue
		}
		status := "no plan that can be approved"
		if w.Review != nil {
			status = "a plan that is " + runtext.Review(*w.Review)
		}
		return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("%s has %s", w.ID, status)}
	}
	return nil
}

// reached reports whether the wait for a workflow is over.
func (c *workflowWait) reached(w api.Workflow) bool {
	undecided := c.For == "approval" && w.Review != nil && w.Review.Status == api.ReviewWaiting
	return w.State.Terminal() && !undecided || c.For == "started" && w.StartedAt != nil
}
