package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// runData is the content of the page of a run.
type runData struct {
	w         api.Workflow
	log       logData
	say       saying
	picture   picture
	events    []api.Event
	plan      *planTree // nil where there is none
	tree      *api.Tree // that it is of; nil where it is of none
	artifacts []api.Artifact
	gone      string // why there are no artifacts any more
	kept      api.Organization
	acts      []act
	tried     string // the refused action, and its typed input
	typed     string
}

// act is something that can be done about a run.
type act struct {
	name, label, key, class string
	does                    string // its effect
	field                   string // of the typed input
	hidden                  [2]string
}

// withoutScript is after how long the page of a run that goes on is fetched again by a browser without script. Others
// follow it.
const withoutScript = 10 * time.Second

// run shows one run.
func (c *Console) run(r *http.Request, v *view) (templ.Component, error) {
	d, err := c.readRun(r, v)
	if err != nil {
		return nil, err
	}
	if d.log, err = c.readLog(r, v, d.w); err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet && r.URL.RawQuery == "" && d.log.live.again != "" {
		v.every = withoutScript
	}
	v.title, v.tab = d.title(), "runs"
	return runPage(v, d), nil
}

// title is the operation of the run, and its state.
func (d runData) title() string {
	return runtext.Title(d.w) + " · " + d.say.mark.word
}

// readRun reads all of a run but its log.
func (c *Console) readRun(r *http.Request, v *view) (d runData, err error) {
	ctx, id := r.Context(), r.PathValue("id")
	why, err := c.plane.Why(ctx, v.who, id)
	if err != nil {
		return d, err
	}
	d = runDataOf(why, v)
	// The changes of a run are known before it has applied them.
	if d.w.Applies != "" && d.plan.empty() {
		switch plan, err := c.plane.Plan(ctx, v.who, id); {
		case err == nil:
			d.plan = treeOf(plan.Workflow, plan.Changes, plan.Truncated)
		case !errors.Is(err, workflow.ErrNotFound) && !errors.Is(err, workflow.ErrConflict):
			return d, err
		}
	}
	if t := d.w.Trigger; t != nil && t.Kind == api.TriggerTree {
		switch tree, err := c.plane.Tree(ctx, v.who, t.Name); {
		case err == nil:
			d.tree = &tree
		case !errors.Is(err, workflow.ErrNotFound):
			return d, err
		}
	}
	if d.w.Attempt > 0 {
		page, err := c.plane.Artifacts(ctx, v.who, id, "", api.MaxArtifacts)
		if d.artifacts = page.Items; errors.Is(err, workflow.ErrExpired) {
			d.gone = err.Error()
		} else if err != nil {
			return d, err
		}
	}
	if d.kept, err = c.plane.Organization(ctx, v.who); err != nil {
		return d, err
	}
	if r.Method == http.MethodPost {
		d.tried, d.typed = path.Base(r.URL.Path), cmp.Or(r.PostForm.Get("comment"), r.PostForm.Get("reason"))
	}
	return d, nil
}

// runDataOf is the content that follows from the answer of why alone.
func runDataOf(why api.Why, v *view) runData {
	d := runData{w: why.Workflow, events: why.Timeline, say: say(why, v.who.ID), acts: actsOf(why.Workflow, v.who.ID)}
	d.picture = draw(phasesOf(d.w, d.events, v.now))
	if result := d.w.Result; result != nil && result.Changes != nil {
		d.plan = treeOf(d.w.ID, *result.Changes, result.Truncated)
	}
	return d
}

// actsOf are the actions on a run in its state, for the principal with the id me. It is a pure function.
func actsOf(w api.Workflow, me string) (out []act) {
	if r := w.Review; r != nil && (r.Status == api.ReviewWaiting || r.Status == api.ReviewMerge) {
		out = reviewActs(w, *r, me)
	}
	switch {
	case w.State.Terminal() && len(out) == 0:
		out = append(out, retryAct(w))
	case !w.State.Terminal() && !w.CancelRequested:
		does := "It has not started, so it is over at once. Nothing is changed."
		if w.State == workflow.Running {
			does = "Its engine is interrupted, gets time to stop in good order, and is killed if it does not. Changes that it has made stay."
		}
		out = append(out, act{"cancel", "Cancel", "c", "danger", does, "reason", [2]string{}})
	}
	return out
}

// reviewActs are the actions on a plan that waits.
func reviewActs(w api.Workflow, r api.Review, me string) (out []act) {
	voted := slices.ContainsFunc(r.Votes, func(v api.Vote) bool { return v.ByID == me })
	plan := [2]string{"sha256", r.SHA256}
	if r.Status == api.ReviewWaiting && !voted && !(r.NotBySubmitter && r.Submitters.Has(me)) {
		does := fmt.Sprintf("This approves exactly this plan, sha256 %s. A new run (%s) applies it in pool %s at once.", short(r.SHA256), r.For, w.Pool)
		switch {
		case r.AfterMerge:
			does = fmt.Sprintf("This approves exactly this plan, sha256 %s. %s.", short(r.SHA256), capital(runtext.CarryOver))
		case len(r.Votes)+1 < r.Needed:
			does = fmt.Sprintf("This approves exactly this plan, sha256 %s. It is applied once %d people have approved it.", short(r.SHA256), r.Needed)
		}
		out = append(out, act{"approve", "Approve this plan", "a", "first", does, "comment", plan})
	}
	return append(out, act{"reject", "Reject", "", "danger", "This rejects the plan for good. It is never applied; a new preview makes a new one.", "comment", plan})
}

// retryAct is the action on a run that has ended.
func retryAct(w api.Workflow) act {
	does := "This makes a new run like this one, of the workspace as it is now."
	switch {
	case w.Operation == workflow.Destroy:
		does += fmt.Sprintf(" It destroys everything that workspace %s manages.", w.Workspace)
	case workflow.ChangesState(w.Type, w.Operation):
		does += fmt.Sprintf(" It changes the resources of workspace %s.", w.Workspace)
	}
	label := "Retry"
	if w.Review != nil && w.Review.Status == api.ReviewStale {
		label, does = "Plan again", "This makes a new preview, on the state as it is now."
	}
	return act{"retry", label, "", "", does, "reason", [2]string{"key", rand.Text()}}
}

// decide approves or rejects the plan that the form's page showed.
func decide(do func(context.Context, controlplane.Principal, string, api.Decision) (api.Workflow, error), done string) action {
	return func(r *http.Request, v *view) (to, notice string, err error) {
		id := r.PathValue("id")
		_, err = do(r.Context(), v.who, id, api.Decision{SHA256: r.PostForm.Get("sha256"), Comment: r.PostForm.Get("comment")})
		return runPath(id), done, err
	}
}

func (c *Console) cancel(r *http.Request, v *view) (to, notice string, err error) {
	id := r.PathValue("id")
	_, err = c.plane.Cancel(r.Context(), v.who, id, api.WithReason{Reason: r.PostForm.Get("reason")})
	return runPath(id), "cancelled", err
}

// retry goes on to the new run. The key of the form makes a second click answer with the same one.
func (c *Console) retry(r *http.Request, v *view) (to, notice string, err error) {
	w, err := c.plane.Retry(r.Context(), v.who, r.PostForm.Get("key"), r.PathValue("id"), api.WithReason{Reason: r.PostForm.Get("reason")})
	return runPath(w.ID), "retried", err
}

// fact is a line beside the page.
type fact struct {
	name, text, link, title, command string
	at                               stamp
}

// facts are the properties of a run, apart from its events.
func (d runData) facts() []fact {
	w := d.w
	all := []fact{
		{name: "Submitted", at: stamp{w.SubmittedAt}, text: "by " + w.SubmittedBy}, {name: "Message", text: w.Message},
		{name: "Operation", text: runtext.What(w)},
		{name: "Workspace", text: w.Workspace, link: workspacePath(w.Workspace)},
		{name: "Pool", text: w.Pool, link: "/pools#pool-" + url.PathEscape(w.Pool)},
		{name: "Applies plan of", text: w.Applies, link: runPath(w.Applies)}, {name: "Retry of", text: w.RetryOf, link: runPath(w.RetryOf)},
	}
	for _, a := range runtext.Options(w.Options) {
		all = append(all, fact{name: capital(a.Name), text: a.Text})
	}
	if w.Attempt > 0 {
		all = append(all, fact{name: "Attempt", text: fmt.Sprintf("%d, by %s", w.Attempt, cmp.Or(w.Instance, "nobody now")), title: w.Task})
	}
	if r := w.Result; r != nil {
		if p := r.Plan; p != nil {
			all = append(all, fact{name: "Source", text: short(p.Source), title: p.Source}, fact{name: "Plan", text: "sha256 " + short(p.SHA256), title: p.SHA256})
		}
		if s := r.State; s != nil {
			all = append(all, stateFact(*s))
		}
		all = append(all, fact{name: "Checks", text: runtext.Checks(r.Checks)})
		if l := r.Lock; l != nil {
			all = append(all, fact{
				name: "State lock", text: "still " + runtext.Lock(*l) + ". If no engine uses it: ", title: l.Created,
				command: runtext.Unlock(w.Workspace, *l),
			})
		}
	}
	kept := []string{"log for " + text.Count(d.kept.LogRetention, "day"), "files for " + text.Count(d.kept.ArtifactRetention, "day"), "all else for " + text.Count(d.kept.WorkflowRetention, "day")}
	all = append(all, fact{name: "Kept", text: strings.Join(kept, ", ")})
	return slices.DeleteFunc(all, func(f fact) bool { return f.text == "" })
}

// stateFact says where the state of a run's engine is, and which.
func stateFact(s api.StateFound) fact {
	out := s.Backend
	if s.Workspace != "" && s.Workspace != "default" {
		out += ", workspace " + s.Workspace
	}
	if s.Lineage == "" {
		return fact{name: "State", text: out + ", new"}
	}
	which := runtext.WhichState(s.Lineage, s.Serial)
	_, since, _ := strings.Cut(which, ", ")
	return fact{name: "State", text: out + ", " + since, title: which}
}
