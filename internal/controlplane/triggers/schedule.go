package triggers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// schedule is a schedule as it is stored.
type schedule = record.Settings[api.Schedule]

const (
	defaultSpread = 10 * time.Minute
	// How much a schedule may name.
	mostWorkspaces = 1000
	mostProjects   = 100
)

// schedules is the kind of schedules.
func (p *Calls) schedules() kind[api.Schedule] {
	return kind[api.Schedule]{
		noun: "schedule", prefix: record.SchedulesPrefix, ids: "sch_",
		name: func(s api.Schedule) string { return s.Name },
		asked: func(s api.Schedule) (api.Schedule, int64) {
			version := s.Version
			s.SpreadOver, s.EditedBy, s.NextAt, s.Since, s.ResumedAt, s.CreatedAt, s.Version = "", "", nil, nil, nil, nil, 0
			return s, version
		},
		settle: settleSchedule,
		view: func(rec schedule, version int64) api.Schedule {
			s := rec.V
			s.EditedBy, s.CreatedAt, s.Version = rec.By, &rec.Created, version
			if t, err := timesOf(s.Cron, s.TimeZone); err == nil && !s.IsPaused {
				if next := t.next(p.ledger.Now()); !next.IsZero() {
					s.NextAt = &next
				}
			}
			return s
		},
		brief: func(s api.Schedule) string {
			paused := ""
			if s.IsPaused {
				paused = ", paused"
			}
			return strings.TrimSpace(fmt.Sprintf("%s %s at %s %s", s.Type, s.Operation, s.Cron, s.TimeZone)) + paused
		},
		gone: func(_ context.Context, c *ledger.Change, org string, rec schedule) error {
			c.Create(record.GoneScheduleKey(org, rec.ID), record.Name{ID: rec.ID})
			return nil
		},
	}
}

// PutSchedule creates or changes a schedule.
func (p *Calls) PutSchedule(ctx context.Context, who identity.Principal, in api.Schedule) (api.Schedule, api.Outcome, error) {
	return put(ctx, p, p.schedules(), who, in)
}

// Schedules lists the schedules by name.
func (p *Calls) Schedules(ctx context.Context, who identity.Principal, cursor string, limit int) (api.Page[api.Schedule], error) {
	return list(ctx, p, p.schedules(), who, api.RoleViewer, cursor, limit)
}

// Schedule answers about one schedule.
func (p *Calls) Schedule(ctx context.Context, who identity.Principal, name string) (api.Schedule, error) {
	return show(ctx, p, p.schedules(), who, api.RoleViewer, name)
}

// DeleteSchedule deletes a schedule, and not the runs that it has submitted.
func (p *Calls) DeleteSchedule(ctx context.Context, who identity.Principal, name string) error {
	return remove(ctx, p, p.schedules(), who, name)
}

// settleSchedule checks a schedule. What is left out stays so: see timesOf and SpreadOver for what holds then.
func settleSchedule(ctx context.Context, c *ledger.Change, org string, in api.Schedule) (api.Schedule, error) {
	if err := workflow.CheckText("description", in.Description, 1000); err != nil {
		return in, err
	}
	t, err := timesOf(in.Cron, in.TimeZone)
	if err != nil {
		return in, err
	}
	in.Cron = strings.Join(strings.Fields(in.Cron), " ")
	apart := t.apart(c.Now)
	if apart == 0 {
		return in, invalid("cron", "%q never comes: there is no such day", in.Cron)
	}
	spread, err := spreadOf(in, apart)
	if err != nil {
		return in, err
	}
	in.SpreadOver = spread.String()
	if in.Type == "" {
		in.Type = workflow.InsightsScan
	}
	switch deployment := in.Type == workflow.Deployment; {
	case !slices.Contains(workflow.Types(), in.Type):
		return in, invalid("type", "the type is deployment, insights_scan or policy_evaluation, not %q", text.Cut(string(in.Type), 40))
	case !deployment && in.Operation != "":
		return in, invalid("operation", "only a deployment has an operation")
	case deployment && !slices.Contains(planned, in.Operation):
		return in, invalid("operation", "a deployment by a schedule needs an operation: preview, update, refresh or destroy")
	}
	old, exists, err := ledger.Load[schedule](ctx, c, record.SettingsKey(org, record.SchedulesPrefix, in.Name))
	if err != nil {
		return in, err
	}
	in.Since, in.ResumedAt = &c.Now, old.V.ResumedAt
	if exists && old.V.Cron == in.Cron && old.V.TimeZone == in.TimeZone {
		in.Since = old.V.Since
	}
	if exists && old.V.IsPaused && !in.IsPaused {
		in.ResumedAt = &c.Now
	}
	if len(in.Workspaces)+len(in.Projects) == 0 {
		return in, invalid("workspaces", "a schedule names workspaces, projects, or both")
	}
	in.Workspaces, in.Projects, err = named(ctx, c, org, "schedule", names{in.Workspaces, in.Projects}, names{old.V.Workspaces, old.V.Projects})
	return in, err
}

// planned are the operations of a schedule.
var planned = []workflow.Operation{workflow.Preview, workflow.Update, workflow.Refresh, workflow.Destroy}

// names are the workspaces and projects that a thing is for.
type names struct{ workspaces, projects []string }

// named checks names of workspaces and projects, and puts them in order. Nothing that is named anew is deleted meanwhile;
// names that a thing has already may be of what was deleted since.
func named(ctx context.Context, c *ledger.Change, org, noun string, in, old names) (workspaces, projects []string, err error) {
	for _, list := range []struct {
		field, what string
		most        int
		key         func(org, name string) store.Key
		names       *[]string
		before      []string
	}{
		{"workspaces", "workspace", mostWorkspaces, record.WorkspaceKey, &in.workspaces, old.workspaces},
		{"projects", "project", mostProjects, record.ProjectKey, &in.projects, old.projects},
	} {
		*list.names = sorted(*list.names)
		if len(*list.names) > list.most {
			return nil, nil, invalid(list.field, "a %s names at most %s", noun, text.Count(list.most, list.what))
		}
		var keys []store.Key
		for _, name := range *list.names {
			if workflow.CheckWorkspaceName(name) != nil {
				return nil, nil, invalid(list.field, "%q is not the name of a %s", text.Cut(name, 64), list.what)
			}
			if !slices.Contains(list.before, name) && (list.what == "workspace" || name != record.GlobalProject) {
				keys = append(keys, list.key(org, name))
			}
		}
		k, missing, err := c.Missing(ctx, org, keys...)
		if err != nil {
			return nil, nil, err
		}
		if missing {
			return nil, nil, invalid(list.field, "there is no %s %s: make it first, or correct the name", list.what, strings.TrimPrefix(k.Sort, list.what+"/"))
		}
	}
	return in.workspaces, in.projects, nil
}

// spreadOf is over how long the runs of a schedule are spread whose times are some time apart.
func spreadOf(s api.Schedule, apart time.Duration) (time.Duration, error) {
	if s.Spread == "" {
		return min(defaultSpread, apart/2), nil
	}
	d, err := time.ParseDuration(s.Spread)
	switch {
	case err != nil || d < 0:
		return 0, invalid("spread", "%q is not a duration such as 10m; 0s means that all begin together", text.Cut(s.Spread, 40))
	case d > apart/2:
		return 0, invalid("spread", "%s is too long: at most half of the time between two times of the schedule, %s", d, apart/2)
	}
	return d, nil
}

// submitOf is what a schedule submits for a workspace.
func submitOf(s api.Schedule, workspace string) api.Submit {
	return api.Submit{Workspace: workspace, Type: s.Type, Operation: s.Operation}
}
