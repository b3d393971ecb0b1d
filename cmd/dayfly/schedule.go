package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type scheduleCommands struct {
	Apply  scheduleApply  `cmd:"" help:"Create or change the schedules that files describe."`
	List   scheduleList   `cmd:"" help:"List schedules, each with its next time."`
	Show   scheduleShow   `cmd:"" aliases:"get" help:"Show a schedule, and what it has done and will do about each workspace."`
	Delete scheduleDelete `cmd:"" help:"Delete a schedule; the runs that it has submitted stay."`
}

type scheduleApply struct {
	applyFlags
}

// Run applies the schedules. A document that names no kind is one.
func (c *scheduleApply) Run(a *app, cl *client.Client) error {
	return detailed(c.DetailedExitcode, c.apply(a, cl, workspacefile.Schedule, nil))
}

type scheduleList struct{}

// Run prints the list.
func (c *scheduleList) Run(a *app, cl *client.Client) error {
	return list(a, cl.Schedules, "no schedules: make one with dayfly schedule apply -f FILE",
		[]string{"SCHEDULE", "CRON", "RUNS", "NEXT", "OF"}, func(s api.Schedule) []string {
			return []string{s.Name, atZone(s), submits(s), nextOf(s), strings.Join(slices.Concat(s.Workspaces, s.Projects), ",")}
		})
}

// atZone is when a schedule has its times.
func atZone(s api.Schedule) string { return strings.TrimSpace(s.Cron + " " + s.TimeZone) }

// submits is what a schedule submits.
func submits(s api.Schedule) string {
	switch s.Type {
	case workflow.InsightsScan:
		return "scan"
	case workflow.PolicyEvaluation:
		return "evaluate"
	case workflow.Deployment:
	}
	return string(s.Operation)
}

// nextOf is when a schedule has its next time.
func nextOf(s api.Schedule) string {
	if s.IsPaused {
		return "paused"
	}
	return minute(s.NextAt)
}

// minute is a time as a schedule has it; "-" for none.
func minute(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.Local().Format("2006-01-02 15:04")
}

type scheduleShow struct {
	Name string `arg:"" help:"The schedule."`
}

// Run prints the schedule.
func (c *scheduleShow) Run(a *app, cl *client.Client) error {
	s, err := cl.Schedule(a.ctx, c.Name)
	if err != nil {
		return err
	}
	if a.json() {
		return a.shown(workspacefile.Schedule, asSchedule(s), s, "")
	}
	const most = 200
	runs, more, err := gather(a, most, func(ctx context.Context, cursor string, limit int) (api.Page[api.ScheduledRun], error) {
		return cl.ScheduledRuns(ctx, c.Name, cursor, limit)
	})
	if err != nil {
		return err
	}
	var b strings.Builder
	line := lines(&b, term.Style{}, "", 16)
	line("schedule", s.Name)
	line("description", s.Description)
	line("runs", submits(s))
	line("cron", atZone(s))
	line("spread over", s.SpreadOver)
	line("next", nextOf(s))
	line("workspaces", strings.Join(s.Workspaces, ", "))
	line("projects", strings.Join(s.Projects, ", "))
	line("changed by", s.EditedBy)
	if err := a.print("%s", b.String()); err != nil {
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

type scheduleDelete struct {
	Name string `arg:"" help:"The schedule."`
	confirmed
}

// Run deletes the schedule.
func (c *scheduleDelete) Run(a *app, cl *client.Client) error {
	return c.delete(a, "schedule", c.Name, ", and leaves the runs that it has submitted", cl.DeleteSchedule)
}
