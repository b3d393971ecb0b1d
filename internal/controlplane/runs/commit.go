package runs

import (
	"cmp"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// checkCommit refuses an invalid run of a commit, and any other run to a pipeline that is not protected. It is a pure
// function. A submission by a trigger is allowed already: it never changes the state.
func checkCommit(who identity.Principal, in api.Submit, from origin) error {
	preview := in.Type == workflow.Deployment && in.Operation == workflow.Preview
	if err := confinePipeline(who, in, preview); err != nil {
		return err
	}
	push := who.Pipeline != nil && who.Pipeline.Protected
	if from.trigger != nil {
		push = from.trigger.Kind == api.TriggerPush
	}

	switch {
	case in.Commit == "" && in.Number != 0:
		return workflow.Invalid("number", "the number of a pull request goes with a commit")
	case in.Commit == "":
		return nil
	case len(in.Commit) != 40 || !pullrequest.IsCommit(in.Commit):
		return workflow.Invalid("commit", "a commit is named by its 40 hexadecimal digits in lower case, not %q", text.Cut(in.Commit, 64))
	case in.Number < 0 || in.Number > maxNumber:
		return workflow.Invalid("number", "the number of a pull request lies between 1 and %d", maxNumber)
	case !workflow.Plans(in.Type, in.Operation) || in.Type != workflow.Deployment:
		return workflow.Invalid("operation", "a run of a commit is a deployment that plans: a preview, or an update of a protected pipeline")
	}

	if !push {
		if err := checkPullCommit(in, preview || from.trigger != nil); err != nil {
			return err
		}
	}
	if of := who.Pipeline; of != nil && from.trigger == nil && in.Commit != of.Commit {
		return workflow.Refuse(workflow.ErrForbidden, "commit", "this pipeline is of commit %q of %s/%s, and submits runs of that one only, not of %s", of.Commit, of.Host, of.Repository, in.Commit)
	}
	return nil
}

// confinePipeline refuses to a pipeline that is not protected anything but a preview of its commit.
func confinePipeline(who identity.Principal, in api.Submit, preview bool) error {
	if err := who.Confine("anything but a preview of its commit", in.Commit != "" && preview && in.Register == nil); err != nil {
		return err
	}
	// Its file is in the pull request: the order of other members' runs is up to the workspace.
	if err := who.Confine("a priority of its own", in.Priority == nil); err != nil {
		return err
	}
	return who.Confine("a max_runtime of its own", in.MaxRuntime == "")
}

// checkPullCommit refuses a run of a pull request's commit that does more than a preview. previews says that it is a
// preview, or that a trigger submits it.
func checkPullCommit(in api.Submit, previews bool) error {
	switch {
	case !previews:
		return workflow.Invalid("operation", "a pull request's commit is only previewed, not %s: approve the plan of its preview to apply it, or submit from a protected pipeline", in.Operation)
	case in.TakeOver || in.BeginAnew:
		return workflow.Invalid("take_over", "take_over and begin_anew are not for the run of a pull request: first decide where the workspace's state is, with a run of your own")
	case in.Register != nil:
		return workflow.Invalid("register", "a run of a pull request does not make or change its workspace: do that before")
	}
	return nil
}

// maxNumber is the highest number of a pull request: nine digits.
const maxNumber = 999_999_999

// triggerOf returns the trigger of the run of a commit: a push if a protected pipeline submits it, else a pull
// request. It refuses a commit of another repository than the workspace's. It is a pure function; checkCommit has
// passed. Another run has the trigger that submits it, if any.
func triggerOf(who identity.Principal, ws api.Workspace, in api.Submit, from origin) (*record.Trigger, error) {
	out := record.Trigger{Kind: api.TriggerPullRequest, Number: in.Number, Commit: in.Commit}
	if from.trigger != nil {
		out = from.trigger.Trigger
	}
	if in.Commit == "" {
		if from.trigger == nil {
			return nil, nil
		}
		return &out, nil
	}
	if ws.Source.Git == nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "commit", "the source of workspace %s is not a git repository, so it has no run of a commit", ws.Name)
	}
	host, path, ok := pullrequest.Repository(ws.Source.Git.URL)
	if !ok {
		return nil, workflow.Refuse(workflow.ErrInvalid, "commit", "the address of workspace %s's source is not that of a repository at a git host", ws.Name)
	}
	wantHost, want := host, cmp.Or(out.Repository, path)
	switch of := who.Pipeline; {
	case from.trigger != nil: // it was that of the run before, or the caller has checked it
	case of == nil:
		out.Name, out.Repository = host, path
	default:
		out.Name, out.Repository, wantHost, want = who.Issuer, of.Repository, of.Host, of.Repository
		out.Number = cmp.Or(of.Number, in.Number)
		if of.Protected {
			out.Kind = api.TriggerPush
		}
	}
	if _, want, ok = pullrequest.Repository("https://" + wantHost + "/" + want); !ok || host != wantHost || path != want {
		return nil, workflow.Refuse(workflow.ErrForbidden, "workspace", "the source of workspace %s is %s/%s, and the commit is of %s/%s: a run of a commit is for the workspaces of its repository", ws.Name, host, path, wantHost, text.Cut(cmp.Or(want, out.Repository), 100))
	}
	return &out, nil
}

// submittersOf are all principals that answer for a run; strangers says that an account of a git host does too: it is
// not a principal, so its owner may approve under another name.
func submittersOf(who identity.Principal, ws record.Workspace, from origin) (all api.PrincipalRefs, strangers bool) {
	all, strangers = api.PrincipalRefs{who.Ref(), who.Pipeline.Submitter(), ws.Editor()}, who.Pipeline != nil
	if from.trigger != nil {
		all, strangers = append(all, from.trigger.Submitters...), strangers || from.trigger.Strangers
	}
	return rules.Submitters(all...), strangers
}

// ownPull says whether a pipeline, or an earlier one of the same pull request, submitted a run: then it may cancel
// the run. It is a pure function.
func ownPull(who identity.Principal, w *record.Workflow) bool {
	of, t := who.Pipeline, w.Trigger
	if of == nil || !untrusted(w) || w.ByID != who.ID || t.Name != who.Issuer || t.Repository != of.Repository {
		return false
	}
	return of.Number != 0 && t.Number == of.Number || of.Commit != "" && t.Commit == of.Commit
}

// ofTrigger names the commit or the tree of a run, as the end of a sentence.
func ofTrigger(t *record.Trigger) string {
	switch {
	case t != nil && t.Kind == api.TriggerTree:
		return ", of tree " + t.Name
	case t == nil || t.Commit == "":
		return ""
	case t.Pull() && t.Number != 0:
		return fmt.Sprintf(", of commit %s of pull request %d of %s", t.Commit, t.Number, t.Repository)
	case t.Pull():
		return fmt.Sprintf(", of commit %s of a pull request of %s", t.Commit, t.Repository)
	}
	return fmt.Sprintf(", of commit %s of %s", t.Commit, t.Repository)
}
