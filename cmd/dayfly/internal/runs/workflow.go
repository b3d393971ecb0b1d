package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// WorkflowCommands are the commands of dayfly workflow.
type WorkflowCommands struct {
	List   workflowList   `cmd:"" help:"List workflows, the newest first."`
	Show   workflowShow   `cmd:"" help:"Show a workflow with its steps, result and outputs."`
	Logs   workflowLogs   `cmd:"" help:"Print a workflow's log."`
	Wait   workflowWait   `cmd:"" help:"Wait until workflows have ended or started, or their plans are decided on; the exit code reports how they ended."`
	Cancel workflowCancel `cmd:"" help:"Cancel a workflow."`
	Retry  workflowRetry  `cmd:"" help:"Submit a workflow that has ended again, as a new one."`

	Plan    workflowPlan    `cmd:"" help:"Show what a preview would change, and where its review stands."`
	Approve workflowApprove `cmd:"" help:"Approve the plan of a preview: exactly this plan is applied then."`
	Reject  workflowReject  `cmd:"" help:"Reject the plan of a preview."`
}

type workflowList struct {
	Workspace string `short:"w" help:"Only those of this workspace."`
	Pool      string `help:"Only those that this pool has claimed last."`
	State     string `help:"Only those in this state: pending, claimed, running, succeeded, failed, cancelled, active, or awaiting_approval."`
	Op        string `help:"Only this operation: preview, update, refresh, destroy, scan, or state_list and the like."`
	Since     string `placeholder:"TIME" help:"Only those submitted from this time on: 2026-11-01, 2026-11-01T00:00:00Z, or how long ago, such as 2h or 7d."`
	Limit     int    `short:"n" default:"20" help:"How many at most."`
	cli.Watching
}

// Run prints the list.
func (c *workflowList) Run(a *cli.App, cl *client.Client) error {
	if err := cli.CheckLimit(c.Limit); err != nil {
		return err
	}
	since, err := cli.ParseTime("--since", c.Since, time.Now())
	if err := cmp.Or(err, cli.CheckWord("state", c.State, cli.States), cli.CheckWord("op", c.Op, cli.Operations)); err != nil {
		return err
	}
	page := func(ctx context.Context, cursor string, limit int) (api.Page[api.Workflow], error) {
		return cl.Workflows(ctx, client.Filter{Workspace: c.Workspace, Pool: c.Pool, State: c.State, Operation: c.Op, Since: since, Cursor: cursor, Limit: limit})
	}
	none := "no workflows: submit one with dayfly run"
	if c.Workspace+c.Pool+c.State+c.Op+c.Since != "" {
		none = "no such workflows"
	}
	style, now := a.Style(), time.Now()
	more, err := cli.ListUpTo(a, c.Limit, page, none,
		[]string{"WORKFLOW", "WORKSPACE", "TYPE", "OPERATION", "STATE", "CHANGES", "DURATION", "AGE", "REASON"}, func(w api.Workflow) []string {
			return listed(style, w, now)
		})
	if more {
		a.SayMore(c.Limit, "")
	}
	return err
}

// listed is a workflow in a list.
func listed(style term.Style, w api.Workflow, now time.Time) []string {
	return []string{
		w.ID, w.Workspace, string(w.Type), cli.Dash(string(w.Operation)), style.State(runtext.State(w)), cli.Dash(runtext.Column(w.Changes)), cli.Dash(runtext.Took(w, now)),
		text.Duration(now.Sub(w.SubmittedAt)), cli.Dash(string(w.Reason)),
	}
}

type workflowShow struct {
	ID string `arg:"" help:"The workflow."`
	cli.Watching
}

// Run prints the workflow.
func (c *workflowShow) Run(a *cli.App, cl *client.Client) error {
	w, err := cl.Workflow(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	a.Over = w.State.Terminal()
	return a.Done(w, "%s", shown(a.Style(), w, time.Now()))
}

// shown is all of a workflow, line by line.
func shown(style term.Style, w api.Workflow, now time.Time) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s%s\n", style.Dim(name), strings.Repeat(" ", 14-len(name)), value)
		}
	}
	line("workflow", style.Bold(w.ID))
	line("workspace", w.Workspace)
	line("operation", runtext.What(w))
	line("state", style.State(runtext.State(w)))
	line("reason", string(w.Reason))
	line("detail", term.Clean(runtext.Cause(w)))
	line("to do", term.Clean(runtext.ToDo(w)))
	line("pool", w.Pool)
	line("submitted", term.Time(w.SubmittedAt)+" by "+term.Clean(w.SubmittedBy))
	line("message", term.Clean(w.Message))
	line("retry of", w.RetryOf)
	line("applies", w.Applies)

	for _, asked := range runtext.Options(w.Options) {
		line(asked.Name, term.Clean(asked.Text))
	}
	if w.Attempt > 0 {
		line("attempt", fmt.Sprint(w.Attempt))
	}
	line("instance", term.Clean(w.Instance))
	line("task", term.Clean(w.Task))
	line("max runtime", w.MaxRuntime)
	line("duration", runtext.Took(w, now))
	if held := runtext.Slot(w); held != "" {
		line("slot", held+"; see dayfly repair unlock "+w.Workspace)
	}
	if r := w.Result; r != nil {
		line("changes", runtext.Changed(w))
		line("in the state", term.Clean(runtext.Inventory(r.Inventory)))
		line("checks", term.Clean(runtext.Checks(r.Checks)))
		line("state lock", stateLock(w))
	}

	for _, s := range w.Steps {
		fmt.Fprintf(&b, "  %s %s\n", style.Step(s.Status), term.Clean(runtext.Step(s)))
	}
	if r := w.Result; r != nil {
		for _, u := range r.Units {
			fmt.Fprintf(&b, "  unit %s: %s\n", term.Clean(u.Unit), term.Clean(runtext.Unit(u, workflow.ChangesState(w.Type, w.Operation))))
		}
		if r.Changes != nil {
			for _, c := range r.Changes.Resources {
				fmt.Fprintf(&b, "  %-8s %s\n", term.Clean(runtext.Action(c.Action)), term.Clean(c.Address))
			}
		}
		for _, line := range resultLines(*r) {
			b.WriteString("  " + line + "\n")
		}
	}
	if w.Review != nil {
		b.WriteString(strings.Join(reviewLines(style, w.ID, *w.Review), "\n"))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// resultLines are the findings of policies about a run, and its outputs.
func resultLines(r api.Result) (out []string) {
	for _, group := range r.Policies {
		out = append(out, cli.Words(runtext.GroupLines(group), term.Clean)...)
	}
	for _, o := range r.Outputs {
		out = append(out, term.Clean(o.Name)+" = "+term.Clean(runtext.Output(o)))
	}
	return out
}

// stateLock names the holder of the lock of a run's state, and the command that releases it.
func stateLock(w api.Workflow) string {
	l := w.Result.Lock
	if l == nil {
		return ""
	}
	return term.Clean("still " + runtext.Lock(*l) + "; if no engine uses it: " + runtext.Unlock(w.Workspace, *l))
}

type workflowLogs struct {
	ID         string   `arg:"" help:"The workflow."`
	Follow     bool     `short:"f" help:"Follow the log until the workflow ends; the exit code reports how it ended."`
	Attempt    *int     `help:"Print the log of this attempt; default the latest."`
	Tail       *int     `placeholder:"N" help:"Print only the last N lines; with --follow, begin with them."`
	Timestamps bool     `help:"Begin each line with the time at which it was written."`
	Step       []string `help:"Print only the lines of this step. May be repeated."`
}

// maxTail is the largest number of lines of --tail.
const maxTail = 100_000

// check refuses flags that contradict each other or are out of range.
func (c *workflowLogs) check() error {
	if c.Attempt != nil && (*c.Attempt < 1 || c.Follow) {
		return errors.New("--attempt: want a number above 0, and not together with --follow")
	}
	if c.Tail != nil && (*c.Tail < 0 || *c.Tail > maxTail) {
		return fmt.Errorf("--tail: want a number from 0 to %d, not %d", maxTail, *c.Tail)
	}
	return nil
}

// Run prints the log.
func (c *workflowLogs) Run(a *cli.App, cl *client.Client) error {
	if err := c.check(); err != nil {
		return cli.Usage(err)
	}
	v := logView{steps: c.Step, timestamps: c.Timestamps}
	attempt := 0
	if c.Attempt != nil {
		attempt = *c.Attempt
	}
	if c.Tail != nil {
		var err error
		if v.attempt, v.from, err = tailOf(a, cl, c.ID, attempt, *c.Tail, v); err != nil {
			return err
		}
		attempt = v.attempt
	}
	if c.Follow {
		return followRun(a, cl, c.ID, v)
	}

	if lines, err := logs(a, cl, c.ID, attempt, v); err != nil || lines > 0 || v.from > 0 {
		return err
	}
	w, err := cl.Workflow(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	if len(c.Step) > 0 && w.StartedAt != nil {
		a.Say("the log of %s has no line of step %s", c.ID, strings.Join(c.Step, ", "))
		return nil
	}
	a.Say("%s", noLog(w, attempt))
	return nil
}

// noLog says why there is no log: a run that prints nothing looks like a command that does nothing.
func noLog(w api.Workflow, attempt int) string {
	switch {
	case attempt != 0 && attempt < w.Attempt:
		return fmt.Sprintf("attempt %d of %s has no log; dayfly why %s shows what happened", attempt, w.ID, w.ID)
	case w.State == workflow.Pending || w.State == workflow.Claimed:
		return fmt.Sprintf("%s has no log yet: it is %s; dayfly why %s says what it waits for", w.ID, runtext.State(w), w.ID)
	case !w.State.Terminal():
		return fmt.Sprintf("%s has no log yet: it is %s; -f waits for it", w.ID, runtext.State(w))
	case w.StartedAt == nil:
		return term.Clean(fmt.Sprintf("%s has no log: it never started (%s)", w.ID, runtext.Cause(w)))
	}
	return fmt.Sprintf("the log of %s is empty", w.ID)
}

type workflowCancel struct {
	ID     string `arg:"" help:"The workflow."`
	Reason string `help:"Why; kept in the timeline and in the audit trail."`
}

// Run cancels the workflow.
func (c *workflowCancel) Run(a *cli.App, cl *client.Client) error {
	w, err := cl.Cancel(a.Ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	if w.State == workflow.Cancelled {
		return a.Done(w, "%s is cancelled", w.ID)
	}
	if w.Review != nil && w.Review.Status == api.ReviewRejected {
		return a.Done(w, "the plan of %s is rejected", w.ID)
	}
	if w.State.Terminal() {
		return a.Done(w, "%s had already ended: %s", w.ID, w.State)
	}
	return a.Done(w, "%s is being cancelled: its engine is interrupted and gets time to stop; dayfly why %s shows how far it is", w.ID, w.ID)
}

type workflowRetry struct {
	ID     string `arg:"" help:"The workflow."`
	Reason string `help:"Why; kept in the timeline and in the audit trail."`
	Follow bool   `short:"f" help:"Follow the new workflow until it ends; the exit code reports how it ended."`
	cli.Confirmed
}

// Run submits the workflow again.
func (c *workflowRetry) Run(a *cli.App, cl *client.Client) error {
	was, err := cl.Workflow(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	if err := c.ConfirmRun(a, was.Operation, was.Workspace); err != nil {
		return err
	}
	w, err := cl.Retry(a.Ctx, c.ID, c.Reason)
	if err != nil {
		return err
	}
	return submitted(a, cl, w, was.Operation, c.Follow)
}
