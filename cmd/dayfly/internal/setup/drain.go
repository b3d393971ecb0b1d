package setup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	drainEvery = 2 * time.Second // between two requests for the runs of a pool
	maxShown   = 200             // workflows that a drain lists
)

// pause stops or resumes the claims of a pool.
func pause(a *cli.App, cl *client.Client, pool string, paused bool) error {
	_, err := cl.UpdatePool(a.Ctx, pool, api.PoolSettings{IsDisabled: &paused})
	return err
}

// running are the active workflows of a pool.
func running(ctx context.Context, cl *client.Client, pool string) ([]api.Workflow, error) {
	page, err := cl.Workflows(ctx, client.Filter{Pool: pool, State: "active", Limit: maxShown})
	return page.Items, err
}

// runLines are a line for each run of a pool.
func runLines(runs []api.Workflow, now time.Time) string {
	var b strings.Builder
	for _, w := range runs {
		since := w.SubmittedAt
		for _, at := range []*time.Time{w.ClaimedAt, w.StartedAt} {
			if at != nil {
				since = *at
			}
		}
		fmt.Fprintf(&b, "\n  %s  %s (%s) by %s, task %s, since %s (%s)", w.ID, runtext.Title(w), runtext.State(w),
			cli.Dash(w.Instance), cli.Dash(w.Task), term.Time(since), text.Duration(now.Sub(since)))
		if w.State.Terminal() {
			b.WriteString("; nothing proves yet that its task has ended")
		}
	}
	if len(runs) == maxShown {
		b.WriteString("\n  and perhaps more")
	}
	return b.String()
}

type poolPause struct {
	Name string `arg:"" help:"The pool."`
}

// Run pauses the pool.
func (c *poolPause) Run(a *cli.App, cl *client.Client) error {
	if err := pause(a, cl, c.Name, true); err != nil {
		return err
	}
	runs, err := running(a.Ctx, cl, c.Name)
	if err != nil {
		return err
	}
	text := "nothing runs in it"
	if len(runs) > 0 {
		text = "these runs go on:" + runLines(runs, time.Now())
	}
	return a.Done(map[string]any{"paused": c.Name, "running": runs}, "pool %s is paused and claims nothing; %s\nlet it claim again with dayfly pool resume %s", c.Name, text, c.Name)
}

type poolResume struct {
	Name string `arg:"" help:"The pool."`
}

// Run lets the pool claim again.
func (c *poolResume) Run(a *cli.App, cl *client.Client) error {
	if err := pause(a, cl, c.Name, false); err != nil {
		return err
	}
	return a.Done(map[string]string{"resumed": c.Name}, "pool %s claims again", c.Name)
}

type poolDrain struct {
	Name    string        `arg:"" help:"The pool."`
	Timeout time.Duration `help:"How long to wait, such as 30m; then the exit code is 5. Default: until nothing runs."`
}

// Run pauses the pool and waits until nothing runs in it.
func (c *poolDrain) Run(a *cli.App, cl *client.Client) error {
	if c.Timeout < 0 {
		return cli.Usage(fmt.Errorf("--timeout: want a duration above 0, not %s", c.Timeout))
	}
	if err := pause(a, cl, c.Name, true); err != nil {
		return err
	}
	runs, err := running(a.Ctx, cl, c.Name)
	if err != nil {
		return err
	}

	ctx, cancel := a.Ctx, context.CancelFunc(func() {})
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(a.Ctx, c.Timeout)
	}
	defer cancel()
	reported := -1
	err = new(cli.Poll).Until(ctx, func() (bool, error) {
		now, err := running(ctx, cl, c.Name)
		if err != nil {
			return false, err
		}
		if runs = now; len(runs) > 0 && len(runs) != reported {
			a.Say("pool %s is paused and claims nothing; waiting for these runs:%s", c.Name, runLines(runs, time.Now()))
			reported = len(runs)
		}
		return len(runs) == 0, nil
	}, drainEvery)

	stays := fmt.Sprintf("pool %s stays paused; go on with dayfly pool drain %s, or let it claim again with dayfly pool resume %s", c.Name, c.Name, c.Name)
	switch {
	case err == nil:
		return a.Done(map[string]string{"drained": c.Name}, "nothing runs in pool %s any more, and it claims nothing; let it claim again with dayfly pool resume %s", c.Name, c.Name)
	case a.Ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitInterrupted, Err: errors.New("interrupted: " + stays)}
	case ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitTimeout, Err: fmt.Errorf("these still run after %s:%s\n%s", c.Timeout, runLines(runs, time.Now()), stays)}
	}
	return fmt.Errorf("%w; %s", err, stays)
}

type poolRunners struct {
	Name string `arg:"" help:"The pool."`
}

// Run prints the pool's instances and the workflows of each.
func (c *poolRunners) Run(a *cli.App, cl *client.Client) error {
	page, err := cl.Runners(a.Ctx, c.Name)
	if err != nil {
		return err
	}
	if a.JSON() {
		return a.Encode(page.Items)
	}
	return listRunners(a, page.Items)
}

// listRunners prints a line for each instance, and one more for each further workflow that it has.
func listRunners(a *cli.App, list []api.Runner) error {
	now := time.Now()
	t := term.NewTable("RUNNER", "VERSION", "LAST SEEN", "HAS", "WORKFLOW", "WORKSPACE", "TASK", "SINCE")
	for _, r := range list {
		head := []string{term.Clean(r.Name), cli.Dash(r.Version), cli.Ago(&r.LastSeen), strconv.Itoa(len(r.Running))}
		if len(r.Running) == 0 {
			t.Row(append(head, "-", "-", "-", "-")...)
		}
		for _, w := range r.Running {
			t.Row(append(head, w.Workflow, w.Workspace, cli.Dash(w.Task), text.Duration(now.Sub(w.Since))+" "+string(w.State))...)
			head = []string{"", "", "", ""}
		}
	}
	return t.Write(a.Stdout, a.Style(), "no runners seen lately")
}
