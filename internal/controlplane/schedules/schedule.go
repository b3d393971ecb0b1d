package schedules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// schedule is a schedule as it is stored.
type schedule = record.Settings[api.Schedule]

const defaultSpread = 10 * time.Minute

func settings(l *ledger.Ledger) *identity.Settings[api.Schedule, api.Schedule] {
	return identity.SettingsFor(l, kind.Schedule, identity.SettingsRules[api.Schedule, api.Schedule]{
		Prepare: prepareSchedule,
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
		OnDelete: func(_ context.Context, c *ledger.Change, org string, rec schedule) error {
			c.Create(record.GoneScheduleKey(org, rec.ID), record.Name{ID: rec.ID})
			return nil
		},
	})
}

// prepareSchedule checks a schedule. Empty fields stay empty: see timesOf and SpreadOver for their defaults.
func prepareSchedule(ctx context.Context, c *ledger.Change, org string, in api.Schedule, old *schedule) (api.Schedule, error) {
	if err := workflow.CheckText("description", in.Description, 1000); err != nil {
		return in, err
	}
	t, err := timesOf(in.Cron, in.TimeZone)
	if err != nil {
		return in, err
	}
	apart := t.apart(c.Now)
	if apart == 0 {
		return in, workflow.Invalid("cron", "%q never comes: there is no such day", in.Cron)
	}
	spread, err := spreadOf(in, apart)
	if err != nil {
		return in, err
	}
	in.SpreadOver = spread.String()
	switch deployment := in.Type == workflow.Deployment; {
	case !slices.Contains(workflow.Types(), in.Type):
		return in, workflow.Invalid("type", "the type is deployment, insights_scan or policy_evaluation, not %q", text.Cut(string(in.Type), 40))
	case !deployment && in.Operation != "":
		return in, workflow.Invalid("operation", "only a deployment has an operation")
	case deployment && !slices.Contains(planned, in.Operation):
		return in, workflow.Invalid("operation", "a deployment by a schedule needs an operation: preview, update, refresh or destroy")
	}
	var before catalog.Targets
	in.Since = &c.Now
	if old != nil {
		before = catalog.Targets{Workspaces: old.V.Workspaces, Projects: old.V.Projects}
		in.ResumedAt = old.V.ResumedAt
		if old.V.Cron == in.Cron && old.V.TimeZone == in.TimeZone {
			in.Since = old.V.Since
		}
		if old.V.IsPaused && !in.IsPaused {
			in.ResumedAt = &c.Now
		}
	}
	if len(in.Workspaces)+len(in.Projects) == 0 {
		return in, workflow.Invalid("workspaces", "a schedule names workspaces, projects, or both")
	}
	return in, catalog.CheckTargets(ctx, c, org, "schedule", catalog.Targets{Workspaces: in.Workspaces, Projects: in.Projects}, before)
}

// planned are the operations of a schedule.
var planned = []workflow.Operation{workflow.Preview, workflow.Update, workflow.Refresh, workflow.Destroy}

// spreadOf is the time over which the runs of a schedule are spread, if its times are some time apart.
func spreadOf(s api.Schedule, apart time.Duration) (time.Duration, error) {
	if s.Spread == "" {
		return min(defaultSpread, apart/2), nil
	}
	d, err := time.ParseDuration(s.Spread)
	switch {
	case err != nil || d < 0:
		return 0, workflow.Invalid("spread", "%q is not a duration such as 10m; 0s means that all begin together", text.Cut(s.Spread, 40))
	case d > apart/2:
		return 0, workflow.Invalid("spread", "%s is too long: at most half of the time between two times of the schedule, %s", d, apart/2)
	}
	return d, nil
}

// submitOf is the submission of a schedule for a workspace.
func submitOf(s api.Schedule, workspace string) api.Submit {
	return api.Submit{Workspace: workspace, Type: s.Type, Operation: s.Operation}
}
