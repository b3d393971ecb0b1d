package setup

import (
	"context"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// scheduledRuns prints what a schedule has done and will do about each workspace.
func scheduledRuns(a *cli.App, cl *client.Client, name string) error {
	const most = 200
	runs, more, err := cli.Gather(a, most, func(ctx context.Context, cursor string, limit int) (api.Page[api.ScheduledRun], error) {
		return cl.ScheduledRuns(ctx, name, cursor, limit)
	})
	if err != nil {
		return err
	}
	if err := a.Print(""); err != nil {
		return err
	}
	if more {
		a.Say("there are more: these are the first %s", text.Count(most, "workspace"))
	}
	t := term.NewTable("WORKSPACE", "NEXT", "LAST", "RUN", "STATE", "NOTE")
	for _, r := range runs {
		t.Row(r.Workspace, minute(r.NextAt), minute(r.LastAt), cli.Dash(r.Workflow), cli.Dash(string(r.State)), cli.Dash(r.Otherwise()))
	}
	return t.Write(a.Stdout, a.Style(), "no workspaces: it names none that there is")
}
