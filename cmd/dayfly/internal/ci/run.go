package ci

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/pipeline"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/githost"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Intervals and limits for a pipeline's job.
const (
	pollCI   = time.Second            // between two requests for a run,
	pollMore = 100 * time.Millisecond // and more for each: with 100 runs, each is polled every 11 s
	lastTime = 5 * time.Second        // to cancel runs after an interrupt: hosts kill a job soon after it
)

// ciRun is one call of dayfly ci, with its workspaces.
type ciRun struct {
	a       *cli.App
	cl      *client.Client
	of      *Command
	job     pipeline.Job
	host    githost.Host // nil: there is none to report to
	pages   string       // address of the control plane's pages; empty: it serves none
	comment pullrequest.Comment
}

// run submits, waits and reports.
func (r *ciRun) run() error {
	if len(r.comment.Previews) == 0 {
		r.a.Say("nothing is affected: no workspace has code that changed")
		r.report(r.a.Ctx)
		return nil
	}
	err := r.submit()
	if err == nil {
		r.status(r.a.Ctx)
		err = r.await()
	}
	if err != nil || r.a.Ctx.Err() != nil {
		r.undo()
		if r.a.Ctx.Err() != nil {
			return &cli.ExitError{Code: cli.ExitInterrupted, Err: errors.New("interrupted: the submitted runs are cancelled")}
		}
		return err
	}
	r.report(r.a.Ctx)
	return r.exit()
}

// submit asks for a run of each workspace, under a key that is the same for one try of the pipeline's job. A refusal
// that is about one workspace does not stop the others.
func (r *ciRun) submit() error {
	operation := workflow.Preview
	if r.of.Apply {
		operation = workflow.Update
	}
	list := r.comment.Previews
	return cli.Each(r.a.Ctx, len(list), cli.CallsAtOnce, func(ctx context.Context, i int) error {
		name := list[i].Run.Workspace
		in := api.Submit{
			Workspace: name, Type: workflow.Deployment, Operation: operation, Commit: r.job.Commit, Number: r.job.Number, Message: r.message(),
		}
		// A submission that has begun is not cut off: nobody would know the id of the run, to cancel it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cli.SubmitTimeout)
		defer cancel()
		w, err := r.cl.SubmitOnce(ctx, r.key(name, operation), in)
		if refusal, ok := errors.AsType[*workflow.Error](err); ok && !general(err) {
			list[i].Refused = refusal.Error()
			r.a.Say("%s: refused: %s", name, refusal.Message)
			return nil
		}
		if err != nil {
			return err
		}
		list[i].Run, list[i].URL = w, r.page(w.ID)
		r.a.Say("%s", cli.JobLine(w, "submitted"))
		return nil
	})
}

// page is the address of a run's page.
func (r *ciRun) page(id string) string {
	if r.pages == "" {
		return ""
	}
	return r.pages + "/runs/" + id
}

// general reports whether a refusal is about the caller or the moment, not about a workspace.
func general(err error) bool {
	for _, kind := range []error{workflow.ErrBusy, workflow.ErrTooMany, workflow.ErrUnauthenticated, workflow.ErrRevoked} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// key names a submission. Without a pipeline there is nothing that says whether a command is a repeat.
func (r *ciRun) key(workspace string, operation workflow.Operation) string {
	try := r.job.Try
	if try == "" {
		try = rand.Text()
	}
	return fmt.Sprintf("ci-%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q", r.job.Repository, r.job.Commit, workspace, operation, r.of.Name, try)))
}

func (r *ciRun) message() string {
	if r.job.PullRequest() {
		return text.Cut(fmt.Sprintf("pull request %d of %s", r.job.Number, r.job.Path), 200)
	}
	return text.Cut("commit "+r.job.Commit, 200)
}

// await waits until all runs have ended, and those that apply their plans. After the timeout, the others go on.
func (r *ciRun) await() error {
	ctx, cancel := context.WithTimeout(r.a.Ctx, r.of.Timeout)
	defer cancel()
	list := r.comment.Previews
	every := pollCI + time.Duration(len(list))*pollMore
	err := cli.Each(ctx, len(list), len(list), func(ctx context.Context, i int) error {
		p := &list[i]
		if p.Refused != "" {
			return nil
		}
		if err := r.ended(ctx, &p.Run, every); err != nil || !r.of.Apply {
			return err
		}
		switch review := p.Run.Review; {
		case p.Run.For == "": // nothing was to be approved: it has applied itself
			p.Apply = new(p.Run)
		case review != nil && review.Applies != "":
			p.Apply = &api.Workflow{ID: review.Applies, Workspace: p.Run.Workspace, State: workflow.Pending}
			p.URL = r.page(review.Applies)
			return r.ended(ctx, p.Apply, every)
		}
		return nil
	})
	if ctx.Err() != nil && r.a.Ctx.Err() == nil {
		return nil // the time is over; exit says so
	}
	return err
}

// ended waits for the end of a run.
func (r *ciRun) ended(ctx context.Context, w *api.Workflow, every time.Duration) error {
	err := new(cli.Poll).Until(ctx, func() (bool, error) {
		now, err := r.cl.Workflow(ctx, w.ID)
		if err == nil {
			*w = now
		}
		return err == nil && now.State.Terminal(), err
	}, every)
	if err == nil {
		r.a.Say("%s: %s", cli.JobLine(*w, cli.Dash(runtext.Took(*w, time.Now()))), runtext.Ended(string(w.State), w.Reason)) // not its detail: readers of a pipeline's log may not have the right to see it
	}
	return err
}

// undo cancels the submitted runs that have not ended: nobody waits for them any more.
func (r *ciRun) undo() {
	// The command's context may have ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.a.Ctx), lastTime)
	defer cancel()
	list := r.comment.Previews
	_ = cli.Each(ctx, len(list), cli.CallsAtOnce, func(ctx context.Context, i int) error {
		w := &list[i].Run
		if list[i].Apply != nil {
			w = list[i].Apply
		}
		if w.ID == "" || w.State.Terminal() {
			return nil
		}
		if _, err := r.cl.Cancel(ctx, w.ID, "the pipeline's job ended"); err != nil {
			r.a.Say("%s goes on, because it could not be cancelled: %s", w.ID, cli.Sentence(err))
			return nil
		}
		w.State = workflow.Cancelled
		return nil
	})
	r.status(ctx)
}

// exit is the exit of the command, by the outcomes of all workspaces. It is a pure function of the previews.
func (r *ciRun) exit() error {
	var failed, cancelled, waiting, unfinished, changed []string
	for _, p := range r.comment.Previews {
		name, last := p.Run.Workspace, p.Run
		if p.Apply != nil {
			last = *p.Apply
		}
		review := p.Run.Review
		switch {
		case p.Refused != "", last.State == workflow.Failed:
			failed = append(failed, name)
		case last.State == workflow.Cancelled:
			cancelled = append(cancelled, name)
		case !last.State.Terminal():
			unfinished = append(unfinished, last.ID)
		case r.of.Apply && p.Apply == nil && (review == nil || review.Status != api.ReviewEmpty):
			waiting = append(waiting, last.ID)
		case cli.Differs(last):
			changed = append(changed, name)
		}
	}

	say := func(code int, format string, names []string) error {
		return &cli.ExitError{Code: code, Err: fmt.Errorf(format, text.Some(names, 10))}
	}
	switch {
	case len(failed) > 0:
		return say(cli.ExitFailed, "failed: %s", failed)
	case len(cancelled) > 0:
		return say(cli.ExitCancelled, "cancelled: %s", cancelled)
	case len(unfinished) > 0:
		return say(cli.ExitTimeout, "the time of --timeout is over, and these go on: %s", unfinished)
	case len(waiting) > 0:
		return say(cli.ExitAwaiting, "a plan waits for an approval: dayfly workflow approve %s", waiting)
	case len(changed) > 0 && r.of.DetailedExitcode:
		return &cli.ExitError{Code: cli.ExitDiffers}
	}
	return nil
}

// context is the name of the status.
func (r *ciRun) context() string {
	return strings.TrimSuffix("dayfly/"+r.of.Name, "/")
}
