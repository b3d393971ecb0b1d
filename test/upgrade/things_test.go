package upgrade_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var (
	one = api.Changes{
		Add: 1, Replace: 1, Import: 1, Move: 1, Forget: 1, Resources: []api.ResourceChange{{
			Address: "null_resource.a", Action: "replace", Provider: "hashicorp/null", Changed: []string{"id"}, Forces: []string{"id"}, From: "null_resource.b",
			Imported: true, Drifted: true,
		}},
		Outputs: []api.OutputChange{{Name: "address", Action: "update"}},
	}
	found = api.StateFound{Backend: "s3", Settings: sum, Workspace: "default", Place: sum, Lineage: "5e1f3c1a", Serial: 7, Taken: "local"}
)

// things makes what there is beside runs, in a pool of its own: states and their owners, outputs and trees, plans,
// pull requests, and what was left half done.
func (r *recorder) things() {
	r.callers()
	r.side = "wide"
	r.states()
	r.outputs()
	r.plans()
	r.pulls()
	r.halfDone()
	r.side = "pool"
}

// states: one has an owner, another workspace was refused it, one could not be written, and one is that of a deleted
// workspace.
func (r *recorder) states() {
	ask := api.StateRefs{States: []api.StateRef{{Place: sum, Lineage: found.Lineage, Unit: "net"}}}
	r.running("owner", workflow.Update)
	ok(r.runner("owner").WhoseStates(r.ctx, ask))
	r.done("owner", api.Result{State: &found})
	r.running("refused", workflow.Update)
	ok(r.runner("refused").WhoseStates(r.ctx, ask))
	r.done("refused", api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStateOwned, Detail: "it is that of another workspace"})
	r.running("unsaved", workflow.Update)
	r.leaves("unsaved", api.ArtifactState, api.ErroredName)
	r.done("unsaved", api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStateNotKept})
	r.running("bygone", workflow.Update)
	r.done("bygone", api.Result{State: &found})
	must(r.admin().DeleteWorkspace(r.ctx, "bygone"))
}

// outputs: a run has those of another workspace, one tree goes on, and one was cancelled.
func (r *recorder) outputs() {
	ctx, admin := r.ctx, r.admin()
	r.workspace("network")
	r.workspace("cluster", func(w *api.Workspace) {
		w.Inputs = []api.WorkspaceInput{{Workspace: "network", Output: "address", Variable: "at"}, {Workspace: "network", Output: "token", Sensitive: true}}
	})
	r.workspace("top", func(w *api.Workspace) { w.After = []string{"cluster"} })
	r.scene.Workflows["network"] = r.submit("network", workflow.Update)
	r.toRunning("network")
	r.leaves("network", api.ArtifactFile, "files/sbom.json", api.Place{Kind: api.PlaceS3, Bucket: "artifacts", Region: "eu-central-1"})
	r.leaves("network", api.ArtifactOutputs, api.OutputsName)
	waiver := api.PolicyWaiver{Name: "legacy", Rule: "main.deny", Address: "null_resource.a"}
	r.done("network", api.Result{
		Truncated: true, Inventory: &api.Inventory{Resources: 1, Types: []api.InventoryCount{{Type: "null_resource", Count: 1}}},
		Changes: &one, State: &api.StateFound{Backend: "local", Settings: sum, Workspace: "default", Store: "data", Declared: "s3"},
		Outputs:          []api.Output{{Name: "address", Value: "10.0.0.1"}, {Name: "token", Sensitive: true}, {Name: "masked", Value: "***", Masked: true}},
		SensitiveOutputs: &api.SensitiveOutputs{Artifact: api.OutputsName, Size: 10, SHA256: sum},
		Policies: []api.PolicyResult{{
			Group: "rules", Enforcement: api.PolicyWaivable, Rules: 3, Denied: 1, Waived: 1, Warned: 1, Error: "one rule took too long", Waivers: []api.PolicyWaiver{waiver},
			Findings: []api.PolicyFinding{{Rule: "main.deny", Address: "null_resource.a", Message: "no", Outcome: api.FindingWaived, Waiver: "legacy"}},
		}},
	})
	cancelled := ok(admin.SubmitTree(ctx, api.NewTree{Workspace: "top", Operation: workflow.Destroy}))
	ok(admin.CancelTree(ctx, cancelled.ID, "the wrong one"))
	tree := ok(admin.SubmitTree(ctx, api.NewTree{Workspace: "cluster", Operation: workflow.Update, Every: true, Message: "all"}))
	r.trees = []string{cancelled.ID, tree.ID}
	r.scene.Workflows["cluster"] = tree.Nodes[0].Workflow
	r.toRunning("cluster")
	r.work("cluster", 1, 0)
	ok(admin.Logs(ctx, r.scene.Workflows["cluster"], 0, 0, 0, time.Second))
}

// guarded is a workspace whose plans are approved.
func guarded(w *api.Workspace) {
	w.Engine, w.Commands, w.Approval = api.EngineTerraform, nil, &api.Approval{Required: true}
	w.Source = api.Source{Git: &api.GitSource{URL: repository, Ref: "main", Path: w.Name}}
}

// plans: one was applied, one waits for its approval, and one was rejected.
func (r *recorder) plans() {
	for _, name := range []string{"applied", "awaits", "rejected"} {
		r.workspace(name, guarded)
		r.scene.Workflows[name] = r.submit(name, workflow.Update)
		r.planned(name)
	}
	r.approves("applied", "bob")
	r.applies("applied")
	ok(r.client("bob").Reject(r.ctx, r.scene.Workflows["rejected"], api.Decision{SHA256: sum, Comment: "too much"}))
}

// planned runs a preview, whose plan is placed.
func (r *recorder) planned(name string) {
	r.toRunning(name)
	r.plan(name)
}

func (r *recorder) plan(name string) {
	r.leaves(name, api.ArtifactPlan, "plan/bundle.tar")
	r.done(name, api.Result{Changes: &one, State: &found, Plan: &api.PlanMade{Artifact: "plan/bundle.tar", Size: 10, SHA256: sum, Summary: sum, Values: sum, Source: commit}})
}

func (r *recorder) approves(name string, people ...string) {
	for _, who := range people {
		ok(r.client(who).Approve(r.ctx, r.scene.Workflows[name], api.Decision{SHA256: sum, Comment: "looked at"}))
	}
}

// applies runs the next run that can be claimed, which applies the plan of a preview.
func (r *recorder) applies(name string) {
	name += "-applies"
	r.next(name)
	ok(r.runner(name).Input(r.ctx))
	r.done(name, api.Result{Changes: &one})
}

// next begins the next run that can be claimed.
func (r *recorder) next(name string) {
	r.toRunning(name)
	r.scene.Workflows[name] = r.scene.Jobs[name].ID
}

// pulls: the plan of a pull request is approved and waits for the merge, and a pipeline has applied a push.
func (r *recorder) pulls() {
	r.workspace("pipelined", guarded, func(w *api.Workspace) { w.Approval = nil })
	wf := ok(r.client("pipeline").Submit(r.ctx, api.Submit{Workspace: "pipelined", Operation: workflow.Update, Commit: commit}))
	r.scene.Workflows["pipelined"] = wf.ID
	r.toRunning("pipelined")
	r.done("pipelined", api.Result{})

	r.workspace("pulled", guarded, func(w *api.Workspace) {
		w.Project, w.Pool, w.Approval, w.PullRequests = "payments", "", nil, &api.PullRequests{OnMerge: workflow.Update}
	})
	r.gitHub("pull_request", "opened")
	r.delivers()
	r.delivers()
	r.next("pulled")
	r.plan("pulled")
	r.delivers()
	r.approves("pulled", "bob", "carol")
	r.delivers()
}

// unread is a command and another pull request that are yet to be read.
func (r *recorder) unread() {
	r.gitHub("issue_comment", "created")
	r.webhook(api.HostGitLab, http.Header{"X-Gitlab-Event": {"Merge Request Hook"}, "X-Gitlab-Token": {r.scene.Tokens[api.HostGitLab]}}, map[string]any{
		"user": map[string]any{"id": 7, "username": "anna"}, "project": map[string]any{"id": 14, "path_with_namespace": "example/infra"},
		"object_attributes": map[string]any{
			"iid": 3, "action": "open", "target_branch": "main", "source_project_id": 14, "target_project_id": 14, "author_id": 7, "last_commit": map[string]any{"id": commit},
		},
	})
}

// gitHub sends an event of the pull request.
func (r *recorder) gitHub(event, action string) {
	anna, repo := map[string]any{"id": 7, "login": "anna"}, map[string]any{"id": 74, "full_name": "example/infra"}
	body := map[string]any{
		"action": action, "repository": repo, "issue": map[string]any{"number": 17, "pull_request": map[string]any{}},
		"comment": map[string]any{"id": 5, "user": anna, "body": "dayfly preview", "created_at": "2026-03-02T09:00:00Z"},
		"pull_request": map[string]any{
			"number": 17, "merged": action == "closed", "merge_commit_sha": commit, "user": anna,
			"head": map[string]any{"sha": commit, "repo": repo}, "base": map[string]any{"ref": "main"},
		},
	}
	text, err := json.Marshal(body)
	must(err)
	r.webhook(api.HostGitHub, http.Header{"X-Github-Event": {event}, "X-Hub-Signature-256": {githosttest.Sign(r.scene.Tokens[api.HostGitHub], text)}}, body)
}

func (r *recorder) webhook(host string, header http.Header, body any) {
	text, err := json.Marshal(body)
	must(err)
	in, err := http.NewRequestWithContext(r.ctx, http.MethodPost, "http://control.test/v1/webhooks/default/"+host, bytes.NewReader(text))
	must(err)
	in.Header = header
	in.Header.Set("Content-Type", "application/json")
	answer, err := r.RoundTrip(in)
	must(err)
	must(answer.Body.Close())
	if answer.StatusCode/100 != 2 {
		must(fmt.Errorf("the event was refused: %d", answer.StatusCode))
	}
}

// delivers does what the pool's side has to do now.
func (r *recorder) delivers() {
	got := ok(r.pool().ClaimDeliveries(r.ctx, api.DeliveryClaim{Max: 10, Instance: "one"}))
	for _, t := range got.Tasks {
		out := api.DeliveryResult{Attempt: t.Attempt, IsDone: true, Detail: "done"}
		switch {
		case t.Host != nil && t.Host.Read != nil:
			state := api.PullOpen
			if r.merged {
				state = api.PullMerged
			}
			out.Pull = &api.PullFacts{
				State: state, Head: commit, MergeCommit: strings.Repeat("2", 40), HeadRepository: "example/infra", BaseRef: "main",
				Author: api.Person{ID: 7, Login: "anna", CanWrite: true}, Files: []string{"pulled/main.tf"},
			}
		case t.Host != nil:
			out.Comment = &api.CommentShown{ID: 99, At: r.clock.last()}
		}
		must(r.pool().DeliveryDone(r.ctx, t.ID, out))
	}
}

// halfDone: what was not finished, by a call or a pass that ended too early, or because it cannot be yet.
func (r *recorder) halfDone() {
	ctx, admin := r.ctx, r.admin()
	r.workspace("wide-one", func(w *api.Workspace) { w.Source.Path = "net" })
	r.scene.Workflows["wide-one"] = r.submit("wide-one", workflow.Update)
	r.toRunning("wide-one")
	r.leaves("wide-one", api.ArtifactOutputs, api.OutputsName)
	r.done("wide-one", api.Result{
		Outputs: []api.Output{{Name: "id", Sensitive: true}}, SensitiveOutputs: &api.SensitiveOutputs{Artifact: api.OutputsName, Size: 10, SHA256: sum},
	})
	at := r.clock.last().Truncate(time.Minute).Add(2 * time.Minute)
	for _, name := range []string{"a-first", "b-second", "c-deleted"} {
		r.put(api.Schedule{
			Name: name, Cron: fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour()), Spread: "1s", Workspaces: []string{"wide-one"}, Type: workflow.Deployment, Operation: workflow.Preview,
		})
	}
	// The pass has time for one of the schedules only.
	r.clock.set(at.Add(time.Second))
	r.store.before = func(ops []store.Op) error {
		if slices.ContainsFunc(ops, func(op store.Op) bool { return strings.HasPrefix(op.Key().Part, "planned/") }) {
			r.clock.set(r.clock.last().Add(time.Minute))
		}
		return nil
	}
	r.pass()
	r.store.before = nil
	r.next("a-first")
	r.done("a-first", api.Result{})
	must(admin.DeleteSetting(ctx, kindOf(kind.Schedule), "c-deleted"))

	for _, name := range []string{"failed-once", "failed-twice", "untold"} {
		r.running(name, workflow.Update)
		end := func() {
			r.done(name, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "exit status 1"})
		}
		if name == "untold" {
			r.dies("outbox/", end)
		} else {
			end()
		}
	}
	// Of the deliveries that wait one fails, and one is on its way.
	for _, in := range []api.DeliveryResult{{Attempt: 1, IsPermanent: true, Detail: "hooks.example.com answered 404"}, {}} {
		got := ok(r.pool().ClaimDeliveries(ctx, api.DeliveryClaim{Max: 1, Instance: "one"}))
		r.delivery = got.Tasks[0].ID
		if in.IsPermanent {
			r.replayed = r.delivery
			must(r.pool().DeliveryDone(ctx, r.delivery, in))
		}
	}
	r.unread()
	ok(admin.CreatePool(ctx, api.PoolSettings{Name: new("closing")}))
	r.dies("closed/", func() { refused(admin.DeletePool(ctx, "closing")) })
	r.dies("limit/default|rerouting", func() {
		ok(admin.UpdateProject(ctx, "shop", api.ProjectSettings{Pool: new("wide")}))
	})

	r.fresh("held-back", workflow.Update)
	job := r.claimed("held-back")
	r.queued("held-back")
	must(r.pool().Launch(ctx, job.ID, api.Launch{
		Attempt: 1, Kind: api.LaunchRefused, Reason: workflow.ReasonCapacity, Text: "there is no capacity", RetrySeconds: 1, Placement: "zone-a",
	}))
	r.asked()
	r.submit("every", "")
	r.submit("pinned", workflow.Preview)
	r.submit("pinned", workflow.Preview) // it waits for the other
}

// asked submits runs that have all that one can be asked for, in a pool that claims nothing.
func (r *recorder) asked() {
	r.workspace("asked", guarded, func(w *api.Workspace) { w.Pool, w.Approval = "idle", nil })
	options := api.Options{
		Targets: []string{"null_resource.a"}, Replace: []string{"null_resource.b"}, Variables: map[string]any{"count": 2}, VarFiles: []string{"more.tfvars"},
		Ref: "next", Imports: []api.Import{{To: "null_resource.c", ID: "4711"}},
	}
	for _, in := range []api.Submit{
		{Operation: workflow.Update, Priority: new(-5), MaxRuntime: "20m", TakeOver: true, TakeOverFrom: "blue", Options: &options},
		{Operation: workflow.Preview, BeginAnew: true, Options: &api.Options{RefreshOnly: true}},
		{Operation: workflow.StateUnlock, LockID: "4711"},
		{Operation: workflow.StatePush, Push: &api.PushedState{SHA256: sum, Size: 10, Force: true}},
	} {
		in.Workspace = "asked"
		wf := ok(r.admin().Submit(r.ctx, in))
		r.scene.Workflows["asked-"+string(in.Operation)] = wf.ID
	}
}

func kindOf(name string) kind.Kind {
	k, _ := kind.Of(name)
	return k
}

// thingsGoOn makes the next step of each of them.
func (r *recorder) thingsGoOn() {
	ctx, admin := r.ctx, r.admin()
	r.side = "wide"
	ok(admin.SealPage(ctx, "", 100))
	r.clock.set(r.clock.last().Add(2 * time.Second))
	r.pass() // it does the rest of all that was half done
	ok(admin.ReplayDelivery(ctx, r.replayed))
	must(r.pool().DeliveryDone(ctx, r.delivery, api.DeliveryResult{Attempt: 1, IsDone: true}))
	for _, name := range []string{"every", "pinned", "b-second", "pinned-again"} {
		r.next(name)
		r.done(name, api.Result{})
	}
	r.delivers()
	r.next("merge-request")
	r.plan("merge-request")
	r.launched("held-back")
	r.start("held-back")
	r.done("held-back", api.Result{})

	ok(r.runner("cluster").Spec(ctx))
	ok(r.runner("cluster").InputOf(ctx, 0))
	r.done("cluster", api.Result{Changes: &one, Outputs: []api.Output{{Name: "id", Value: "c"}}})
	r.next("top")
	r.done("top", api.Result{})
	ok(admin.Own(ctx, r.scene.Workflows["refused"], api.Own{IsCopy: true}))
	ok(admin.Unlock(ctx, "unsaved", api.Unlock{Workflow: r.scene.Workflows["unsaved"]}))

	r.approves("awaits", "bob")
	r.applies("awaits")
	r.gitHub("pull_request", "opened") // which was taken before
	r.merged = true
	r.gitHub("pull_request", "closed")
	r.delivers()
	r.next("merged")
	r.plan("merged") // the approvals of the pull request's plan carry over
	r.applies("merged")
	r.delivers()
	r.logIn("service")
	r.side = "pool"
}

// lookAtThings reads all of them.
func (r *recorder) lookAtThings() {
	ctx, admin := r.ctx, r.admin()
	for _, name := range []string{"network", "cluster", "pulled", "applied", "awaits"} {
		ok(admin.Artifacts(ctx, r.scene.Workflows[name], "", 0))
	}
	for _, name := range []string{"pulled", "applied", "awaits"} {
		ok(admin.WorkflowPlan(ctx, r.scene.Workflows[name]))
	}
	ok(admin.Trees(ctx, "", 0))
	for _, id := range r.trees {
		ok(admin.Tree(ctx, id))
	}
	for _, name := range []string{"cluster", "lost"} {
		ok(admin.Slot(ctx, name))
	}
	ok(admin.DeletedWorkspaces(ctx, "", 0))
	ok(admin.Deliveries(ctx, api.DeliveryFilter{Limit: 100}))
	ok(admin.ScheduledRuns(ctx, "b-second", "", 0))
	ok(admin.WorkspaceSchedules(ctx, "wide-one"))
}
