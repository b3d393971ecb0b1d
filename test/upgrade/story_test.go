package upgrade_test

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// before makes what is there in the middle: an organization that has lived for some days, and a workflow
// in each state that one can be in when its version ends.
func (r *recorder) before() {
	r.people()
	r.settings()
	r.history()
	r.things()
	r.middle()
}

// people makes the organization, its first pools and its tokens.
func (r *recorder) people() {
	admin := ok(r.plane.Bootstrap(r.ctx, "default"))
	pool := ok(r.plane.EnsurePoolToken(r.ctx, "default", "default", "agent"))
	r.scene.Tokens["admin"], r.scene.Tokens["pool"] = admin, pool
	r.pass()
	for _, role := range []string{api.RoleViewer, api.RoleOperator} {
		got := ok(r.admin().CreateToken(r.ctx, api.NewToken{Name: role, Role: role}))
		r.scene.Tokens[role] = got.Value
	}
	got := ok(r.admin().CreateToken(r.ctx, api.NewToken{Name: "left", Role: api.RoleAdmin, ExpiresSeconds: 3600 * 24 * 365}))
	r.scene.Tokens["revoked"] = got.Value
	must(r.admin().RevokeToken(r.ctx, got.Token.ID))

	// A pool of one place, for two workspaces.
	r.workspace("tight")
	r.workspace("tighter")
	name, text, one, no := "narrow", "one at a time", 1, false
	made := ok(r.admin().CreatePool(r.ctx, api.PoolSettings{
		Name: &name, Description: &text, Concurrency: &one, AssignedToAll: &no, AssignedWorkspaces: &[]string{"tight", "tighter"},
		EnabledTypes: &[]workflow.Type{workflow.Deployment},
	}))
	r.scene.Tokens["narrow-old"] = made.Token
	idle, yes := "idle", true
	ok(r.admin().CreatePool(r.ctx, api.PoolSettings{Name: &idle}))
	ok(r.admin().UpdatePool(r.ctx, idle, api.PoolSettings{IsDisabled: &yes}))
}

// history is what ended before.
func (r *recorder) history() {
	r.workspace("expired", func(w *api.Workspace) { w.Pool = "idle" })
	r.scene.Workflows["expired"] = r.submit("expired", workflow.Update)
	r.running("old", workflow.Update)
	r.work("old", 1, 0)
	r.leaves("old", api.ArtifactFile, "files/old.txt")
	r.done("old", api.Result{LogEnd: 2})
	// It is reported as stuck, and then its time is over. Logs and artifacts are, too.
	r.clock.set(r.clock.last().Add(31 * time.Minute))
	r.pass()
	r.clock.set(r.clock.last().Add(8 * 24 * time.Hour))
	r.live(3 * time.Minute)

	r.fresh("never-started", workflow.Update)
	for range 5 {
		r.claimed("never-started")
		r.live(2 * time.Minute)
	}
	r.fresh("refused-for-good", workflow.Update)
	job := r.claimed("refused-for-good")
	must(r.pool().Launch(r.ctx, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchFailed, Text: "there is no such image"}))

	r.workspace("full", func(w *api.Workspace) {
		w.Engine, w.EngineVersion = api.EngineTofu, "1.9.0"
		w.Commands = nil
		w.Variables = map[string]any{"count": 3, "names": []any{"a", "b"}, "nested": map[string]any{"on": true}}
		w.Environment = map[string]string{"TF_LOG": "info"}
		w.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:token"}, {File: "key.pem", Ref: "env:KEY"}}
		w.Size, w.MaxRuntime, w.MaxActive = "large", "2h", 3
	})
	r.scene.Workflows["full"] = r.submit("full", workflow.Update)
	r.toRunning("full")
	r.work("full", 1, 0)
	exit := 0
	ok(r.runner("full").Steps(r.ctx, api.Steps{Steps: []api.Step{{Seq: 1, Name: "step1", Status: workflow.StepSucceeded, StartedAt: r.clock.last(), Seconds: 2.5, ExitCode: &exit, Text: "done", LogEnd: 2}}}))
	r.result("full", api.Result{
		Outcome: workflow.Succeeded, LogEnd: 2,
		Changes: &api.Changes{Add: 1, Change: 2, Destroy: 3, Drift: 1, Resources: []api.ResourceChange{{Address: "null_resource.a", Action: "create"}}},
		Outputs: []api.Output{{Name: "address", Value: "10.0.0.1"}, {Name: "password", Sensitive: true}, {Name: "list", Value: []any{1, "b"}}},
	})
	r.lost("full", 0, "")

	r.running("failed", workflow.Destroy)
	r.result("failed", api.Result{
		Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "apply: exit status 1",
		Lock: &api.Lock{ID: "4711", Who: "runner@task", Operation: "OperationTypeApply", Created: "2026-03-02", Path: "terraform.tfstate"},
	})
	again := ok(r.admin().Retry(r.ctx, r.scene.Workflows["failed"], ""))
	ok(r.admin().Cancel(r.ctx, again.ID, ""))

	// A deployment that fell silent: failed, its slot still held, and another waits for that.
	r.running("lost", workflow.Update)
	r.scene.Workflows["behind-lost"] = r.submit("lost", workflow.Update)
	r.running("lost-and-gone", workflow.Update)
	r.live(12 * time.Minute)
	// A scan that fell silent waits for its second start.
	r.running("scan-again", "")
	r.lost("scan-again", 137, "out of memory")
}

// middle is what is on its way. From here on less time passes than a first lease has.
func (r *recorder) middle() {
	r.claimed("scan-again")
	r.running("running", workflow.Update)
	r.work("running", 1, 0)
	r.scene.Workflows["behind-running"] = r.submit("running", workflow.Destroy)
	r.running("preview", workflow.Preview)
	r.running("scan", "")
	r.running("silent", workflow.Update)
	r.running("handed-over", workflow.Update)
	r.lost("handed-over", 0, "")
	r.running("task-stopped", workflow.Update)
	r.running("cancel-asked", workflow.Update)
	ok(r.admin().Cancel(r.ctx, r.scene.Workflows["cancel-asked"], ""))

	r.fresh("claimed", workflow.Update)
	r.claimed("claimed")
	r.fresh("queued", workflow.Update)
	r.claimed("queued")
	r.queued("queued")
	r.fresh("launch-refused", workflow.Preview)
	job := r.claimed("launch-refused")
	r.queued("launch-refused")
	must(r.pool().Launch(r.ctx, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchRefused, Reason: workflow.ReasonUnavailable, Text: "the service did not answer", RetrySeconds: 30}))
	r.fresh("launched", workflow.Update)
	r.claimed("launched")
	r.queued("launched")
	r.launched("launched")
	r.fresh("launched-twice", workflow.Update)
	r.claimed("launched-twice")
	r.launched("launched-twice")
	r.launched("launched-twice")
	r.fresh("cancelled-claimed", workflow.Update)
	r.claimed("cancelled-claimed")
	ok(r.admin().Cancel(r.ctx, r.scene.Workflows["cancelled-claimed"], ""))

	// The narrow pool: one runs, one waits for its place. Its former token is good for a while.
	made := ok(r.admin().RotatePoolToken(r.ctx, "narrow", api.RotateToken{OverlapSeconds: 604800}))
	r.scene.Tokens["narrow"] = made.Token
	for _, name := range []string{"tight", "tighter"} {
		r.workspace(name, func(w *api.Workspace) { w.Pool = "narrow" })
		r.scene.Workflows[name] = r.submit(name, workflow.Update)
	}
	got := ok(r.client("narrow").Claim(r.ctx, api.Claim{Instance: "n", Max: 5}))
	r.scene.Jobs["tight"] = got.Jobs[0]
	r.fresh("pending", workflow.Update)
	r.fresh("pending-preview", workflow.Preview)
	r.fresh("pending-scan", "")
	r.order = []string{
		"claimed", "queued", "launch-refused", "launched", "launched-twice", "running", "preview", "scan", "scan-again", "silent",
		"handed-over", "task-stopped", "cancel-asked", "lost",
	}
}

// after goes on from the middle to the end of all that was on its way.
func (r *recorder) after() {
	r.look()
	r.goOn()
	r.thingsGoOn()
	r.end()
	r.look()
}

// goOn makes the next calls of every pool and runner that was at work.
func (r *recorder) goOn() {
	ctx := r.ctx
	// A boot that asks again for a granted start gets it again; another boot of the same task does not.
	ok(r.runner("running").Start(ctx))
	other := r.scene.Runs["running"]
	other.Boot = "ffffffffffffffffffffffffffffffff"
	_, err := r.runnerAs("running", other).Start(ctx)
	refused(err)
	ok(r.runner("running").Heartbeat(ctx, api.Heartbeat{Step: "apply"}))
	r.work("running", 2, 2)
	_, err = r.runner("running").Logs(ctx, api.Logs{First: 9, Lines: []api.LogLine{{Text: "behind a gap"}}})
	refused(err)
	r.result("running", api.Result{Outcome: workflow.Succeeded, LogEnd: 4})
	r.lost("running", 0, "")

	r.work("preview", 1, 0)
	r.result("preview", api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 2}, LogEnd: 2})
	r.result("handed-over", api.Result{Outcome: workflow.Succeeded})
	r.lost("task-stopped", 137, "stopped by the host")
	control := ok(r.runner("cancel-asked").Heartbeat(ctx, api.Heartbeat{Step: "apply"}))
	if !control.Cancel {
		refused(nil)
	}
	r.result("cancel-asked", api.Result{Outcome: workflow.Cancelled, Reason: workflow.ReasonCancelled})
	r.lost("scan", 1, "")

	// The runner that was taken for dead comes back and frees the slot; of the other the end is seen.
	ok(r.runner("lost").Heartbeat(ctx, api.Heartbeat{Step: "apply"}))
	r.result("lost", api.Result{Outcome: workflow.Succeeded})
	r.lost("lost-and-gone", 137, "stopped")

	r.queued("claimed")
	r.launched("claimed")
	r.start("claimed")
	must(r.pool().Release(ctx, r.scene.Jobs["queued"].ID, api.Release{Attempt: 1, Text: "the queue is closed"}))
	r.launched("launch-refused")
	r.start("launch-refused")
	r.start("launched")
	r.start("launched-twice")
	must(r.pool().Lost(ctx, r.scene.Jobs["launched-twice"].ID, api.Lost{Attempt: 1, Task: "task-launched-twice-1", Text: "a second report of one task"}))
	r.queued("scan-again")
	r.launched("scan-again")
	r.start("scan-again")
	must(r.pool().Queued(ctx, r.scene.Jobs["cancelled-claimed"].ID, api.Attempt{Attempt: 1}))
	ok(r.admin().Cancel(ctx, r.scene.Workflows["pending-preview"], ""))
}

// end claims what is left, with and without the old pool token, and sees everything to its end.
func (r *recorder) end() {
	ctx := r.ctx
	ok(r.client("narrow-old").Claim(ctx, api.Claim{Instance: "n", Max: 5}))
	must(r.client("narrow").Release(ctx, r.scene.Jobs["tight"].ID, api.Release{Attempt: 1}))
	ok(r.client("narrow").Claim(ctx, api.Claim{Instance: "n", Max: 5}))

	got := ok(r.pool().Claim(ctx, api.Claim{Instance: "one", Max: 20}))
	if len(got.Jobs) < 5 {
		refused(nil)
	}
	for _, job := range got.Jobs {
		for name, id := range r.scene.Workflows {
			if id == job.ID {
				r.scene.Jobs[name] = job
			}
		}
	}
	for _, name := range []string{"pending", "pending-scan", "queued", "scan", "behind-running", "behind-lost"} {
		r.queued(name)
		r.launched(name)
		r.start(name)
		r.work(name, 1, 0)
		r.result(name, api.Result{Outcome: workflow.Succeeded, LogEnd: 2})
		r.lost(name, 0, "")
	}
	for _, name := range []string{"claimed", "launch-refused", "launched", "launched-twice", "scan-again"} {
		r.result(name, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "exit status 1"})
		r.lost(name, 0, "")
	}
	// The one that said nothing since the middle.
	r.live(12 * time.Minute)
	r.lost("silent", 1, "gone")
}

// look reads everything that people and pools can read.
func (r *recorder) look() {
	ctx, admin := r.ctx, r.admin()
	ok(admin.Whoami(ctx))
	_, err := r.client("revoked").Whoami(ctx)
	refused(err)
	for _, who := range []string{"viewer", "operator", "pool", "narrow", "narrow-old"} {
		ok(r.client(who).Whoami(ctx))
	}
	_, err = r.client("viewer").Submit(ctx, api.Submit{Workspace: "full", Operation: workflow.Preview})
	refused(err)
	var ids []string
	for _, name := range names(r.scene.Workflows) {
		id := r.scene.Workflows[name]
		ids = append(ids, id)
		ok(admin.Workflow(ctx, id))
		ok(admin.Why(ctx, id))
		ok(admin.Timeline(ctx, id, "", 0))
		if _, err = admin.Logs(ctx, id, 0, 0, 0, 0); name == "old" {
			refused(err) // it is past its retention
		} else {
			must(err)
		}
	}
	ok(r.pool().States(ctx, api.StatesQuery{IDs: ids}))
	ok(r.pool().Held(ctx, "one", ""))
	ok(admin.Workflows(ctx, client.Filter{Limit: 100}))
	ok(admin.Workspaces(ctx, "", 100))
	ok(admin.Workspace(ctx, "full"))
	ok(admin.Pools(ctx, "", 0))
	ok(admin.Runners(ctx, "default"))
	ok(admin.Tokens(ctx, "", 0))
	ok(admin.Audit(ctx, api.AuditFilter{Limit: 100}))
	r.lookAtSettings()
	r.lookAtThings()
}
