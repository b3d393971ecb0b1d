package pulls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/identity"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/runs"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/pullrequest"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// # Consistency model
//
// A reading of a pull request takes effect in several commits: the runs are submitted one by one, then its record is
// written, and then the delivery that read it is done. Each of them may be done twice and changes nothing then: runs
// have idempotency keys, the record names the version that was read, and a delivery that was not reported is claimed
// again. So after a crash in between, the rest is done when the lease of the delivery has lapsed.

// maxPreviews is how many workspaces one pull request previews; its comment says how many are left out.
const maxPreviews = 50

// PullRead acts on a pull request that a delivery has read, in a try that began at a time. It returns the result of
// the try: the reading can be invalid, or too old.
func (p *Calls) PullRead(ctx context.Context, d record.Delivery, in api.DeliveryResult, began time.Time) (api.DeliveryResult, error) {
	if in.Pull == nil {
		return api.DeliveryResult{Attempt: in.Attempt, IsPermanent: true, Detail: "the pool's side has read nothing"}, nil
	}
	err := p.pullRead(ctx, d.Org, *d.Pull, *in.Pull, began)
	switch {
	case errors.Is(err, workflow.ErrInvalid):
		return api.DeliveryResult{Attempt: in.Attempt, IsPermanent: true, Detail: runs.Refusal(err)}, nil
	case errors.Is(err, errOld):
		return api.DeliveryResult{Attempt: in.Attempt, Detail: errOld.Error()}, nil
	}
	return in, err
}

// errOld says that a reading may be older than that of another delivery.
var errOld = errors.New("the pull request was read by another delivery meanwhile, which found it otherwise: it is read again")

// pullRead acts on a pull request that was read at its host, at some time since began.
func (p *Calls) pullRead(ctx context.Context, org string, about record.PullDelivery, facts api.PullFacts, began time.Time) error {
	if err := checkFacts(facts); err != nil {
		return err
	}
	for range 3 {
		again, err := p.pullReadOnce(ctx, org, about, facts, began)
		if err != nil || !again {
			return err
		}
	}
	return workflow.Refuse(workflow.ErrConflict, "", "the pull request changes too fast; the delivery is repeated")
}

// checkFacts refuses facts that no host reports.
func checkFacts(f api.PullFacts) error {
	switch {
	case !slices.Contains([]string{api.PullOpen, api.PullClosed, api.PullMerged}, f.State):
		return workflow.Invalid("pull.state", "want open, closed or merged, not %q", text.Cut(f.State, 20))
	case !pullrequest.IsCommit(f.Head):
		return workflow.Invalid("pull.head", "want a commit: 40 or 64 hexadecimal digits")
	case f.State == api.PullMerged && !pullrequest.IsCommit(f.MergeCommit):
		return workflow.Invalid("pull.merge_commit", "want the commit of the merge: 40 or 64 hexadecimal digits")
	}
	return nil
}

// pullReadOnce does it once. again says that the record of the pull request was changed meanwhile.
func (p *Calls) pullReadOnce(ctx context.Context, org string, about record.PullDelivery, facts api.PullFacts, began time.Time) (again bool, err error) {
	c := p.ledger.View()
	host, ok, err := gitHostOf(ctx, c, org, about.HostID)
	if err != nil || !ok {
		return false, err // its settings were deleted: nothing is done any more
	}
	k := record.PullKey(org, about.HostID, about.Repository, about.Number)
	pull, ok, err := ledger.Load[record.Pull](ctx, c, k)
	if err != nil || !ok {
		return false, err
	}
	if began.Before(pull.Read) && (facts.Head != pull.Head || facts.State != pull.State) {
		return false, errOld // an old answer must not undo a newer one
	}
	r := reading{pull: pull, facts: facts, said: about.Said}
	if facts.Comment != nil {
		r.member = member(host.V, facts.Comment.Author.ID)
	}
	v := judge(r)
	if v.preview || v.merged {
		if err := p.pullRuns(ctx, c, org, host, r, &v); err != nil {
			return false, err
		}
	}
	if err := p.pullEnds(ctx, org, host, r, &v); err != nil {
		return false, err
	}

	version := c.Version(k)
	err = p.ledger.Change(ctx, func(ctx context.Context, c *ledger.Change) error {
		if err := c.Load(ctx, k); err != nil {
			return err
		}
		if again = c.Version(k) != version; again {
			return nil
		}
		now := v.pull
		now.Read = c.Now
		if err := show(ctx, c, org, host, &now); err != nil {
			return err
		}
		c.PutUntil(k, now, c.Now.Add(record.PullKept))
		return nil
	})
	return again, err
}

// gitHostOf is the git host with an id.
func gitHostOf(ctx context.Context, c *ledger.Change, org, id string) (out record.Settings[api.GitHost], ok bool, err error) {
	for g, err := range ledger.AllOf[record.Settings[api.GitHost]](ctx, c, record.SettingsOf(org, kind.GitHost, 100)) {
		if err != nil {
			return out, false, err
		}
		if g.ID == id {
			return g, !g.V.IsDisabled, nil
		}
	}
	return out, false, nil
}

// pullRuns submits the runs that are wanted: previews of the head, or runs of the merge.
func (p *Calls) pullRuns(ctx context.Context, c *ledger.Change, org string, host record.Settings[api.GitHost], r reading, v *verdict) error {
	affected, err := concerned(ctx, c, org, host.V, v.pull.Repository, r.facts)
	if err != nil {
		return err
	}
	asker, needed := answers(host.V, r, v)
	by := triggered(org, host.V, r, v, asker)
	before := v.pull.Previews
	if len(v.only) == 0 && !v.merged {
		v.pull.Previews = nil
	}
	v.pull.More = 0
	for _, ws := range affected {
		one := record.PullPreview{Workspace: ws.Name, Commit: by.Commit, Merged: v.merged}
		was := slices.IndexFunc(before, func(b record.PullPreview) bool { return isSame(b, one) })
		switch {
		case v.merged && onMerge(ws) == "":
			continue
		case len(v.only) > 0 && !slices.Contains(v.only, ws.Name):
			continue // it stays as it is
		case len(v.pull.Previews) >= maxPreviews:
			v.pull.More++
			continue
		case was >= 0 && v.anew == "":
			v.pull.Previews = append(v.pull.Previews, before[was])
			continue
		}
		err := p.mayPreview(ctx, org, asker, needed, ws.Name)
		if err == nil {
			one.Run, err = p.pullRun(ctx, itself(org, host, api.RoleOperator), by, v, ws)
		}
		if err != nil {
			if one.Refused = runs.Refusal(err); one.Refused == "" {
				return err
			}
		}
		v.pull.Previews = slices.DeleteFunc(v.pull.Previews, func(b record.PullPreview) bool { return b.Workspace == ws.Name })
		v.pull.Previews = append(v.pull.Previews, one)
	}
	noteUnaffected(v, affected)
	return nil
}

// isSame says whether two previews are for the same workspace and commit.
func isSame(a, b record.PullPreview) bool {
	return a.Workspace == b.Workspace && a.Commit == b.Commit && a.Merged == b.Merged
}

// noteUnaffected notes the workspaces that a command names and that the pull request does not change.
func noteUnaffected(v *verdict, affected []api.Workspace) {
	for _, name := range v.only {
		if !slices.ContainsFunc(affected, func(ws api.Workspace) bool { return ws.Name == name }) {
			v.pull.Note += " The pull request does not concern workspace " + name + "."
		}
	}
}

// triggered is the trigger of the runs of a pull request, with their submitters: its author, and the member who
// asked.
func triggered(org string, host api.GitHost, r reading, v *verdict, asker *api.Member) runs.Triggered {
	by := runs.Triggered{Trigger: record.Trigger{Kind: api.TriggerPullRequest, Name: host.Name, Repository: v.pull.Repository, Number: v.pull.Number, Commit: r.facts.Head}}
	if v.merged {
		by.Trigger.Kind, by.Trigger.Commit = api.TriggerPush, r.facts.MergeCommit
	}
	if author := member(host, r.facts.Author.ID); author != nil {
		by.Submitters = append(by.Submitters, principal(org, author).Ref())
	} else {
		by.Strangers = true
	}
	if asker != nil {
		by.Submitters = append(by.Submitters, principal(org, asker).Ref())
	}
	return by
}

// answers is the member who asked for the runs, or released their commit; needed says that they run only with the
// rights of that member. Runs that a colleague's pull request starts by itself have the rights of the git host.
func answers(host api.GitHost, r reading, v *verdict) (by *api.Member, needed bool) {
	switch {
	case v.merged:
		return nil, false
	case v.anew != "":
		return r.member, true
	case held(r.facts) != "":
		return member(host, v.pull.ReleasedBy), true
	}
	return nil, false
}

// mayPreview refuses a preview that needs a member who may submit it.
func (p *Calls) mayPreview(ctx context.Context, org string, by *api.Member, needed bool, workspace string) error {
	switch {
	case !needed:
		return nil
	case by == nil:
		return workflow.Refuse(workflow.ErrForbidden, "", "the person who released the commit is no longer a member")
	}
	return identity.AllowIn(ctx, p.ledger, principal(org, by), api.RoleOperator, "workflow.submit", workspace, p.catalog.InWorkspace(org, workspace))
}

// onMerge is the operation of the run that a merge starts in a workspace.
func onMerge(ws api.Workspace) workflow.Operation {
	if ws.PullRequests == nil {
		return ""
	}
	return ws.PullRequests.OnMerge
}

// pullRun submits one run. A repeat finds the same run.
func (p *Calls) pullRun(ctx context.Context, who identity.Principal, by runs.Triggered, v *verdict, ws api.Workspace) (string, error) {
	in := api.Submit{Workspace: ws.Name, Type: workflow.Deployment, Operation: workflow.Preview, Commit: by.Commit, Number: by.Number}
	if by.Kind == api.TriggerPush {
		in.Operation = onMerge(ws)
	}
	in.Message = text.Cut(fmt.Sprintf("%s#%d", by.Repository, by.Number), 200)
	key := record.Hash(fmt.Sprintf("%s %s#%d %s %s %s %s", v.pull.HostID, by.Repository, by.Number, by.Kind, by.Commit, ws.ID, v.anew))[:40]
	made, err := p.runs.SubmitFor(ctx, who, key, in, by)
	return made.ID, err
}

// concerned are the workspaces that a pull request concerns. All of its repository are, where the host does not list
// every file that it changes.
func concerned(ctx context.Context, c *ledger.Change, org string, host api.GitHost, repository string, facts api.PullFacts) ([]api.Workspace, error) {
	var all []api.Workspace
	for ws, err := range ledger.AllOf[record.Workspace](ctx, c, record.Under(record.OrganizationPart(org), "workspace/", 500)) {
		if err != nil {
			return nil, err
		}
		w := ws.W
		w.ID = ws.ID
		all = append(all, w)
	}
	at, path, ok := pullrequest.Repository(host.URL + "/" + repository)
	if !ok {
		return nil, workflow.Invalid("repository", "%q is not the path of a repository", text.Cut(repository, 100))
	}
	if facts.IsTruncated {
		return pullrequest.Of(all, at, path, facts.BaseRef), nil
	}
	var out []api.Workspace
	for _, w := range pullrequest.Affected(all, at, path, facts.BaseRef, facts.Files) {
		out = append(out, w.Workspace)
	}
	return out, nil
}

// pullEnds cancels previews that are of no use any more, and applies the plans that a member wants applied. Refusals
// go into the answer.
func (p *Calls) pullEnds(ctx context.Context, org string, host record.Settings[api.GitHost], r reading, v *verdict) error {
	who := itself(org, host, api.RoleOperator)
	if r.member != nil && r.said != nil && r.pull.Head == r.facts.Head && r.facts.State == api.PullOpen {
		who = principal(org, r.member)
	}
	var refused []string
	for _, one := range v.cancel {
		if one.Run == "" {
			continue
		}
		_, err := p.runs.Cancel(ctx, who, one.Run, api.WithReason{Reason: "of pull request " + strconv.Itoa(v.pull.Number)})
		switch {
		case err == nil, errors.Is(err, workflow.ErrConflict), errors.Is(err, workflow.ErrNotFound):
		case runs.Refusal(err) != "":
			refused = append(refused, one.Workspace+": "+runs.Refusal(err)+".")
		default:
			return err
		}
	}
	if len(refused) > 0 {
		v.pull.Note = "Not cancelled: " + strings.Join(refused, " ")
	}
	for _, one := range v.apply {
		answer, err := p.pullApply(ctx, who, one)
		if err != nil {
			return err
		}
		v.pull.Note += " " + answer
	}
	v.pull.Note = text.Cut(strings.TrimSpace(v.pull.Note), 2000)
	return nil
}

// pullApply approves the plan of a preview. The last approval that the plan needs applies it.
func (p *Calls) pullApply(ctx context.Context, who identity.Principal, one record.PullPreview) (string, error) {
	w, err := p.runs.Workflow(ctx, who, one.Run)
	if err == nil && w.Review == nil {
		return fmt.Sprintf("%s: its preview has no plan that can be applied.", one.Workspace), nil
	}
	if err == nil {
		w, err = p.runs.Approve(ctx, who, one.Run, api.Decision{SHA256: w.Review.SHA256, Comment: "by a comment on the pull request"})
	}
	switch {
	case err != nil && runs.Refusal(err) == "":
		return "", err
	case err != nil:
		return fmt.Sprintf("%s: %s.", one.Workspace, runs.Refusal(err)), nil
	case w.Review != nil && w.Review.Applies != "":
		return fmt.Sprintf("%s: approved by %s, and run %s applies it.", one.Workspace, who.Name, w.Review.Applies), nil
	}
	return fmt.Sprintf("%s: approved by %s.", one.Workspace, who.Name), nil
}
