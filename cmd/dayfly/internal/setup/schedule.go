package setup

import (
	"context"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// scheduledRuns prints the last and the next run of each workspace of a schedule.
func scheduledRuns(a *cli.App, cl *client.Client, name string) error {
	const limit = 200
	runs, more, err := cli.Gather(a, limit, func(ctx context.Context, cursor string, n int) (api.Page[api.ScheduledRun], error) {
		return cl.ScheduledRuns(ctx, name, cursor, n)
	})
	if err != nil {
		return err
	}
	if err := a.Print(""); err != nil {
		return err
	}
	if more {
		a.Say("there are more: these are the first %s", text.Count(limit, "workspace"))
	}
	t := term.NewTable("WORKSPACE", "NEXT", "LAST", "RUN", "STATE", "NOTE")
	for _, r := range runs {
		t.Row(r.Workspace, minute(r.NextAt), minute(r.LastAt), cli.Dash(r.Workflow), cli.Dash(string(r.State)), cli.Dash(r.Otherwise()))
	}
	return t.Write(a.Stdout, a.Style(), "no workspaces: none that it names exists")
}
