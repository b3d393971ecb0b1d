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
	"github.com/dayfly-dev/dayfly/internal/kind"
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

func schedules(l *ledger.Ledger) *identity.Settings[api.Schedule, api.Schedule] {
	return identity.SettingsFor(l, kind.Schedule, identity.SettingsRules[api.Schedule, api.Schedule]{
		Settle: settleSchedule,
		View: func(rec schedule, version int64) api.Schedule {
			s := rec.V
			s.EditedBy, s.CreatedAt, s.Version = rec.By, &rec.Created, version
			if t, err := timesOf(s.Cron, s.TimeZone); err == nil && !s.IsPaused {
				if next := t.next(l.Now()); !next.IsZero() {
					s.NextAt = &next
				}
			}
			return s
		},
		Brief: func(s api.Schedule) string {
			paused := ""
			if s.IsPaused {
				paused = ", paused"
			}
			return strings.TrimSpace(fmt.Sprintf("%s %s at %s %s", s.Type, s.Operation, s.Cron, s.TimeZone)) + paused
		},
		Gone: func(_ context.Context, c *ledger.Change, org string, rec schedule) error {
			c.Create(record.GoneScheduleKey(org, rec.ID), record.Name{ID: rec.ID})
			return nil
		},
	})
}

// settleSchedule checks a schedule. What is left out stays so: see timesOf and SpreadOver for what holds then.
func settleSchedule(ctx context.Context, c *ledger.Change, org string, in api.Schedule, old *schedule) (api.Schedule, error) {
	if err := workflow.CheckText("description", in.Description, 1000); err != nil {
		return in, err
	}
	t, err := timesOf(in.Cron, in.TimeZone)
	if err != nil {
		return in, err
	}
	apart := t.apart(c.Now)
	if apart == 0 {
		return in, invalid("cron", "%q never comes: there is no such day", in.Cron)
	}
	spread, err := spreadOf(in, apart)
	if err != nil {
		return in, err
	}
	in.SpreadOver = spread.String()
	switch deployment := in.Type == workflow.Deployment; {
	case !slices.Contains(workflow.Types(), in.Type):
		return in, invalid("type", "the type is deployment, insights_scan or policy_evaluation, not %q", text.Cut(string(in.Type), 40))
	case !deployment && in.Operation != "":
		return in, invalid("operation", "only a deployment has an operation")
	case deployment && !slices.Contains(planned, in.Operation):
		return in, invalid("operation", "a deployment by a schedule needs an operation: preview, update, refresh or destroy")
	}
	var before names
	in.Since = &c.Now
	if old != nil {
		before = names{old.V.Workspaces, old.V.Projects}
		in.ResumedAt = old.V.ResumedAt
		if old.V.Cron == in.Cron && old.V.TimeZone == in.TimeZone {
			in.Since = old.V.Since
		}
		if old.V.IsPaused && !in.IsPaused {
			in.ResumedAt = &c.Now
		}
	}
	if len(in.Workspaces)+len(in.Projects) == 0 {
		return in, invalid("workspaces", "a schedule names workspaces, projects, or both")
	}
	return in, checkNames(ctx, c, org, "schedule", names{in.Workspaces, in.Projects}, before)
}

// planned are the operations of a schedule.
var planned = []workflow.Operation{workflow.Preview, workflow.Update, workflow.Refresh, workflow.Destroy}

// names are the workspaces and projects that a thing is for.
type names struct{ workspaces, projects []string }

// checkNames refuses names of workspaces and projects that do not exist. Nothing that is named anew is deleted meanwhile;
// names that a thing has already may be of what was deleted since.
func checkNames(ctx context.Context, c *ledger.Change, org, noun string, in, old names) error {
	for _, list := range []struct {
		field, what   string
		most          int
		key           func(org, name string) store.Key
		names, before []string
	}{
		{"workspaces", "workspace", mostWorkspaces, record.WorkspaceKey, in.workspaces, old.workspaces},
		{"projects", "project", mostProjects, record.ProjectKey, in.projects, old.projects},
	} {
		if len(list.names) > list.most {
			return invalid(list.field, "a %s names at most %s", noun, text.Count(list.most, list.what))
		}
		var keys []store.Key
		for _, name := range list.names {
			if workflow.CheckWorkspaceName(name) != nil {
				return invalid(list.field, "%q is not the name of a %s", text.Cut(name, 64), list.what)
			}
			if !slices.Contains(list.before, name) && (list.what == "workspace" || name != record.GlobalProject) {
				keys = append(keys, list.key(org, name))
			}
		}
		k, missing, err := c.Missing(ctx, org, keys...)
		if err != nil {
			return err
		}
		if missing {
			return invalid(list.field, "there is no %s %s: make it first, or correct the name", list.what, strings.TrimPrefix(k.Sort, list.what+"/"))
		}
	}
	return nil
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
