package runs

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

type workflowPlan struct {
	ID string `arg:"" help:"The preview, or the workflow that applies its plan."`
}

// Run prints the plan.
func (c *workflowPlan) Run(a *cli.App, cl *client.Client) error {
	plan, err := cl.WorkflowPlan(a.Ctx, c.ID)
	if err != nil {
		return err
	}
	return a.Done(plan, "%s", strings.Join(planLines(a.Style(), plan), "\n"))
}

type workflowApprove struct {
	ID      string `arg:"" help:"The preview."`
	Comment string `help:"A note for the others; kept with the plan."`
	cli.Confirmed
}

// Run approves the plan.
func (c *workflowApprove) Run(a *cli.App, cl *client.Client) error {
	plan, err := reviewed(a, cl, c.ID)
	if err != nil {
		return err
	}
	effect := fmt.Sprintf("%s of workspace %s applies it", plan.Review.For, plan.Workspace)
	if plan.Review.AfterMerge {
		effect = runtext.CarryOver
	}
	if err := c.Confirm(a, "this approves that plan, and %s", effect); err != nil {
		return err
	}
	w, err := cl.Approve(a.Ctx, plan.Workflow, api.Decision{SHA256: plan.Review.SHA256, Comment: c.Comment})
	if err != nil {
		return err
	}
	if r := w.Review; r != nil && r.Applies != "" {
		return a.Done(w, "approved: %s applies the plan; follow it with dayfly workflow logs -f %s", r.Applies, r.Applies)
	}
	if r := w.Review; r != nil && r.Status == api.ReviewMerge {
		return a.Done(w, "approved: %s", runtext.CarryOver)
	}
	return a.Done(w, "approved; the plan needs more approvals, of others: dayfly workflow plan %s shows how many", w.ID)
}

type workflowReject struct {
	ID      string `arg:"" help:"The preview."`
	Comment string `help:"Why; kept with the plan."`
	cli.Confirmed
}

// Run rejects the plan.
func (c *workflowReject) Run(a *cli.App, cl *client.Client) error {
	plan, err := reviewed(a, cl, c.ID)
	if err != nil {
		return err
	}
	if err := c.Confirm(a, "this rejects that plan for good"); err != nil {
		return err
	}
	w, err := cl.Reject(a.Ctx, plan.Workflow, api.Decision{SHA256: plan.Review.SHA256, Comment: c.Comment})
	if err != nil {
		return err
	}
	return a.Done(w, "the plan of %s is rejected", w.ID)
}

// reviewed fetches the plan to decide on, and shows its digest: the decision names the same one.
func reviewed(a *cli.App, cl *client.Client, id string) (api.Plan, error) {
	plan, err := cl.WorkflowPlan(a.Ctx, id)
	if err == nil && plan.Review == nil {
		err = cli.Refused(fmt.Errorf("%s has no plan that can be approved", id))
	}
	if err == nil {
		a.Say("%s, sha256 %s", planned(plan), plan.Review.SHA256)
		for _, asked := range runtext.Options(plan.Options) {
			a.Say("  %s: %s", asked.Name, term.Clean(asked.Text))
		}
	}
	return plan, err
}

// planned is a plan in one line.
func planned(p api.Plan) string {
	op := workflow.Preview
	if p.Review != nil {
		op = p.Review.For
	}
	return term.Clean(fmt.Sprintf("plan of %s: %s of %s: %s", p.Workflow, op, p.Workspace, runtext.Changes(p.Changes, false)))
}

// planLines describes a plan: destroyed and replaced resources first, then the others, its outputs and its review.
func planLines(style term.Style, p api.Plan) []string {
	out := []string{style.Bold(planned(p))}
	for _, asked := range runtext.Options(p.Options) {
		out = append(out, "  "+asked.Name+": "+term.Clean(asked.Text))
	}
	for _, r := range runtext.Ordered(p.Changes.Resources) {
		out = append(out, fmt.Sprintf("  %s %-8s %s", sign(r.Action), term.Clean(runtext.Action(r.Action)), term.Clean(r.Address)))
		for _, about := range runtext.About(r) {
			out = append(out, style.Dim("             "+term.Clean(about)))
		}
	}
	for i, o := range p.Changes.Outputs {
		if i == 0 {
			out = append(out, "outputs")
		}
		out = append(out, fmt.Sprintf("  %s %-8s %s", sign(o.Action), term.Clean(runtext.Action(o.Action)), term.Clean(o.Name)))
	}
	if p.Truncated {
		out = append(out, "the list is cut; the log has all of it: dayfly workflow logs "+p.Workflow)
	}
	if p.Review != nil {
		out = append(out, reviewLines(style, p.Workflow, *p.Review)...)
	}
	return out
}

func sign(action string) string {
	return cmp.Or(map[string]string{"create": "+", "delete": "-", "replace": "±", "update": "~"}[action], " ")
}

// reviewLines describe the review of a plan, with the commands that decide on it.
func reviewLines(style term.Style, id string, r api.Review) []string {
	var b strings.Builder
	line := cli.Lines(&b, style, "  ", 12)
	line("status", runtext.Review(r))
	line("because", r.Stale)
	for _, why := range r.Why {
		line("because", why)
	}
	line("leaves open", r.Unfixed)
	if r.Status == api.ReviewWaiting {
		line("needs", runtext.Needed(r))
		if r.AfterMerge {
			line("applied", runtext.CarryOver)
		}
		if r.NotBySubmitter {
			line("not by", strings.Join(r.Submitters.Names(), ", "))
		}
		line("until", term.Time(r.ExpiresAt))
	}
	for _, v := range r.Votes {
		verb, by, _ := strings.Cut(runtext.Vote(v), " ")
		line(verb, by+" ("+term.Time(v.At)+")")
	}
	line("applied by", r.Applies)
	line("votes from", r.CarriedFrom)
	line("votes to", r.CarriedTo)
	if r.Status == api.ReviewWaiting {
		line("approve", "dayfly workflow approve "+id)
		line("reject", "dayfly workflow reject "+id)
	}
	if r.Status == api.ReviewStale {
		line("plan again", "dayfly workflow retry "+id)
	}
	return append([]string{"review"}, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")...)
}

// applied follows a preview that was made because approvals are required, shows its plan, and follows the run that
// applies it, if there is one already.
func applied(a *cli.App, cl *client.Client, w api.Workflow) error {
	a.Say("approvals are required: %s makes the plan first", w.ID)
	last, live, err := watch(a, cl, w.ID, logView{})
	if err != nil {
		return err
	}
	switch {
	case last.State != workflow.Succeeded:
		return ended(a, live, last)
	case last.Review == nil:
		return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("%s has no plan that can be approved: dayfly why %s says why", w.ID, w.ID)}
	}
	plan, err := cl.WorkflowPlan(a.Ctx, w.ID)
	approved := last.Review.Status == api.ReviewApproved
	if err == nil && !(approved && a.JSON()) { // one result is printed as JSON
		err = a.Done(plan, "%s", strings.Join(planLines(a.Style(), plan), "\n"))
	}
	switch {
	case err != nil:
		return err
	case approved:
		return followRun(a, cl, last.Review.Applies, logView{})
	case last.Review.Status == api.ReviewEmpty:
		return nil
	case last.Review.Status == api.ReviewWaiting:
		return &cli.ExitError{Code: cli.ExitAwaiting, Err: fmt.Errorf("the plan waits for an approval: dayfly workflow approve %s", w.ID)}
	case last.Review.Status == api.ReviewStale:
		return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("the plan cannot be approved: %s; plan again: dayfly workflow retry %s", last.Review.Stale, w.ID)}
	}
	return &cli.ExitError{Code: cli.ExitFailed, Err: fmt.Errorf("the plan of %s is %s", w.ID, runtext.Review(*last.Review))}
}
