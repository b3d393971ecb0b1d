package client

import (
	"context"

	"github.com/dayfly-dev/dayfly/internal/api"
)

// PutSchedule creates or changes a schedule.
func (c *Client) PutSchedule(ctx context.Context, in api.Schedule) (api.Schedule, api.Outcome, error) {
	return put(ctx, c, "apply schedule "+in.Name, in, "v1", "schedules", in.Name)
}

// Schedules lists schedules.
func (c *Client) Schedules(ctx context.Context, cursor string, limit int) (api.Page[api.Schedule], error) {
	return get[api.Page[api.Schedule]](ctx, c, "list schedules", listing(cursor, limit), "v1", "schedules")
}

// Schedule shows a schedule.
func (c *Client) Schedule(ctx context.Context, name string) (api.Schedule, error) {
	return get[api.Schedule](ctx, c, "show schedule "+name, nil, "v1", "schedules", name)
}

// ScheduledRuns lists what a schedule does about its workspaces.
func (c *Client) ScheduledRuns(ctx context.Context, name, cursor string, limit int) (api.Page[api.ScheduledRun], error) {
	return get[api.Page[api.ScheduledRun]](ctx, c, "list runs of schedule "+name, listing(cursor, limit), "v1", "schedules", name, "runs")
}

// WorkspaceSchedules lists the schedules of a workspace.
func (c *Client) WorkspaceSchedules(ctx context.Context, name string) (api.Page[api.ScheduledRun], error) {
	return get[api.Page[api.ScheduledRun]](ctx, c, "list schedules of workspace "+name, nil, "v1", "workspaces", name, "schedules")
}

// DeleteSchedule deletes a schedule.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	return c.remove(ctx, call{what: "delete schedule " + name, path: []string{"v1", "schedules", name}})
}
