package main

import (
	"context"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// scheduledRuns prints what a schedule has done and will do about each workspace.
func scheduledRuns(a *app, cl *client.Client, name string) error {
	const most = 200
	runs, more, err := gather(a, most, func(ctx context.Context, cursor string, limit int) (api.Page[api.ScheduledRun], error) {
		return cl.ScheduledRuns(ctx, name, cursor, limit)
	})
	if err != nil {
		return err
	}
	if err := a.print(""); err != nil {
		return err
	}
	if more {
		a.say("there are more: these are the first %s", text.Count(most, "workspace"))
	}
	t := term.NewTable("WORKSPACE", "NEXT", "LAST", "RUN", "STATE", "NOTE")
	for _, r := range runs {
		t.Row(r.Workspace, minute(r.NextAt), minute(r.LastAt), dash(r.Workflow), dash(string(r.State)), dash(r.Otherwise()))
	}
	return t.Write(a.stdout, a.style(), "no workspaces: it names none that there is")
}
