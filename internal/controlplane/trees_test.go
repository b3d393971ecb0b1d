package controlplane_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// forest is a world whose workspaces depend on one another, and what runs in it.
type forest struct {
	*world
	jobs map[string]api.Job // that have started, by workspace
	runs map[string]api.Run
}

// newForest makes workspaces that run after others: "app db,dns" depends on two.
func newForest(w *world, lines ...string) *forest {
	w.t.Helper()
	f := &forest{world: w, jobs: map[string]api.Job{}, runs: map[string]api.Run{}}
	for _, line := range lines {
		name, on, _ := strings.Cut(line, " ")
		f.plant(name, on)
	}
	return f
}

// plant makes or changes a workspace that runs after others.
func (f *forest) plant(name, on string, change ...func(*api.Workspace)) {
	f.t.Helper()
	f.workspace(name, append([]func(*api.Workspace){func(ws *api.Workspace) {
		if on != "" {
			ws.After = strings.Split(on, ",")
		}
	}}, change...)...)
}

// grow asks for a tree.
func (f *forest) grow(root string, change ...func(*api.NewTree)) api.Tree {
	f.t.Helper()
	in := api.NewTree{Workspace: root, Operation: workflow.Update}
	for _, c := range change {
		c(&in)
	}
	t, err := f.plane.SubmitTree(f.ctx(), f.admin, "", in)
	f.must(err)
	return t
}

// take starts all that can be claimed, and returns the names of their workspaces.
func (f *forest) take() (names []string) {
	f.t.Helper()
	for _, job := range f.claim(50) {
		f.launch(job, "task-"+job.ID)
		r := run(job, "task-"+job.ID, 'a')
		_, err := f.plane.Start(f.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		f.must(err)
		f.jobs[job.Workspace], f.runs[job.Workspace] = job, r
		names = append(names, job.Workspace)
	}
	slices.Sort(names)
	return names
}

// wantTaken checks which workspaces have runs that can be claimed.
func (f *forest) wantTaken(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.take()); diff != "" {
		f.t.Fatalf("claimable (-want +got):\n%s", diff)
	}
}

// done ends the run of a workspace that was taken; it has changed something.
func (f *forest) done(name string, change ...func(*api.Result)) {
	f.t.Helper()
	in := api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 1}}
	for _, c := range change {
		c(&in)
	}
	_, err := f.plane.Result(f.ctx(), f.jobs[name].Token, f.runs[name], api.Handover{Result: in})
	f.must(err)
}

func fails(r *api.Result) { r.Outcome, r.Reason = workflow.Failed, workflow.ReasonStepFailed }

func nothingChanged(r *api.Result) { r.Changes = &api.Changes{} }

func destroys(in *api.NewTree) { in.Operation = workflow.Destroy }

func (f *forest) tree(id string) api.Tree {
	f.t.Helper()
	t, err := f.plane.Tree(f.ctx(), f.admin, id)
	f.must(err)
	return t
}

// wantTree checks where a tree and its nodes stand: "app skipped: db failed".
func (f *forest) wantTree(id, state string, want ...string) api.Tree {
	f.t.Helper()
	t := f.tree(id)
	var got []string
	for _, n := range t.Nodes {
		one := n.Workspace + " " + n.State
		if n.Note != "" {
			one += ": " + n.Note
		}
		if len(n.WaitsFor) > 0 {
			one += " for " + strings.Join(n.WaitsFor, ",")
		}
		got = append(got, one)
	}
	if diff := cmp.Diff(want, got); diff != "" || t.State != state || (t.EndedAt != nil) != (state != api.TreeRunning) {
		f.t.Fatalf("the tree is %s, ended %v, want %s (-want +got):\n%s", t.State, t.EndedAt, state, diff)
	}
	open, err := f.store.Range(f.ctx(), store.Scan{Part: record.OpenTreePart("default"), Limit: 10})
	f.must(err)
	if listed := slices.ContainsFunc(open.Records, func(r store.Record) bool { return r.Key.Sort == id }); listed != (state == api.TreeRunning) {
		f.t.Errorf("it is listed as one that has not ended: %t", listed)
	}
	return t
}

func TestTree_RunsInDependencyOrderBranchesInParallel(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net", "db net", "dns net", "app db,dns", "other")
		made := f.grow("net", func(in *api.NewTree) { in.Message = "peering" })
		if made.SubmittedBy != f.admin.Name || made.Message != "peering" || made.Size != 4 {
			t.Errorf("made: %+v", made)
		}
		f.wantTree(made.ID, api.TreeRunning, "net running", "db waiting for net", "dns waiting for net", "app waiting for db,dns")
		f.wantTaken("net")
		f.done("net")
		f.wantTaken("db", "dns")
		f.done("dns")
		f.wantTaken()
		f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db running", "dns succeeded", "app waiting for db")
		f.done("db")
		f.wantTaken("app")
		f.done("app")
		ended := f.wantTree(made.ID, api.TreeSucceeded, "net succeeded", "db succeeded", "dns succeeded", "app succeeded")
		run := f.show(ended.Nodes[3].Workflow)
		if run.Workspace != "app" || run.Operation != workflow.Update || run.SubmittedBy != f.admin.Name || run.Message != "peering" {
			t.Errorf("the run of a node is %+v", run)
		}
		if tr := run.Trigger; tr == nil || *tr != (api.Trigger{Kind: api.TriggerTree, Name: made.ID}) {
			t.Errorf("its trigger is %+v", tr)
		}
		if story := f.story(run.ID); !strings.Contains(story, "of tree "+made.ID) {
			t.Errorf("its timeline does not name the tree:\n%s", story)
		}
		if n := len(f.all()); n != 4 {
			t.Errorf("%d runs, want 4", n)
		}
	})
}

func TestTree_DestroysAfterThoseThatDependOnIt(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net", "db net", "dns net", "app db")
		made := f.grow("net", destroys)
		f.wantTree(made.ID, api.TreeRunning, "net waiting for db,dns", "db waiting for app", "app running", "dns running")
		f.wantTaken("app", "dns")
		f.done("app", nothingChanged)
		f.wantTaken("db")
		f.done("dns")
		f.done("db", fails)
		f.wantTree(made.ID, api.TreeFailed, "net skipped: db failed", "db failed: its run failed (step_failed)", "app succeeded", "dns succeeded")
		f.wantTaken()
	})
}

func TestTree_FailureStopsOnlyItsDependents(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net", "db net", "dns net", "app db", "web app,dns", "mail dns")
		made := f.grow("net")
		f.take()
		f.done("net")
		f.wantTaken("db", "dns")
		f.done("db", fails)
		f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db failed: its run failed (step_failed)", "app skipped: db failed",
			"dns running", "mail waiting for dns", "web skipped: db failed")
		f.done("dns")
		f.wantTaken("mail")
		f.done("mail")
		f.wantTree(made.ID, api.TreeFailed, "net succeeded", "db failed: its run failed (step_failed)", "app skipped: db failed",
			"dns succeeded", "mail succeeded", "web skipped: db failed")
	})
}

func TestTree_CancelEndsItsRunsAndWhatWaits(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net", "db net", "dns net", "app db")
		made := f.grow("net")
		f.take()
		f.done("net")
		db := f.tree(made.ID).Nodes[1].Workflow
		if jobs := f.claim(1); len(jobs) != 1 || jobs[0].ID != db {
			t.Fatalf("claimed %+v, want %s", jobs, db)
		} else {
			f.launch(jobs[0], "task")
			f.jobs["db"], f.runs["db"] = jobs[0], run(jobs[0], "task", 'a')
			_, err := f.plane.Start(f.ctx(), jobs[0].Token, f.runs["db"], api.Start{Knows: api.RunnerKnows()})
			f.must(err)
		}
		got, err := f.plane.CancelTree(f.ctx(), f.person("bob"), made.ID, api.WithReason{Reason: "wrong day"})
		f.must(err)
		if !got.CancelRequested || got.State != api.TreeRunning {
			t.Errorf("cancelled: %+v", got)
		}
		// The run of dns waited, and ends at once. That of db runs, and is asked to end.
		f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db running", "app cancelled: the tree was cancelled by bob: wrong day", "dns cancelled: its run was cancelled")
		if wf := f.show(db); !wf.CancelRequested {
			t.Errorf("the run that runs is not asked to end: %+v", wf)
		}
		f.wantTaken()
		f.done("db", func(r *api.Result) { r.Outcome = workflow.Cancelled })
		f.wantTree(made.ID, api.TreeCancelled, "net succeeded", "db cancelled: its run was cancelled", "app cancelled: the tree was cancelled by bob: wrong day", "dns cancelled: its run was cancelled")
		_, err = f.plane.CancelTree(f.ctx(), f.admin, made.ID, api.WithReason{})
		wantErr(t, err, workflow.ErrConflict)
		if n := f.audits("tree.cancel", "done"); n != 1 {
			t.Errorf("%d cancels in the audit trail", n)
		}
	})
}

func TestTree_CancelledRunSkipsItsDependents(t *testing.T) {
	f := newForest(newWorld(t, memory.New()), "net", "db net", "dns net", "app db")
	made := f.grow("net")
	f.take()
	f.done("net")
	_, err := f.plane.Cancel(f.ctx(), f.admin, f.tree(made.ID).Nodes[1].Workflow, api.WithReason{})
	f.must(err)
	f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db cancelled: its run was cancelled", "app skipped: db was cancelled", "dns running")
	f.take()
	f.done("dns")
	f.wantTree(made.ID, api.TreeCancelled, "net succeeded", "db cancelled: its run was cancelled", "app skipped: db was cancelled", "dns succeeded")
}

// terraformed makes a workspace one whose plans can be approved.
func terraformed(ws *api.Workspace) {
	ws.Engine, ws.Commands, ws.Approval = api.EngineTerraform, nil, &api.Approval{Required: true}
}

// planned ends the preview of a workspace that was taken.
func (f *forest) planned(name string, changes api.Changes) (id string) {
	f.t.Helper()
	f.placed(f.jobs[name], time.Now())
	f.done(name, func(r *api.Result) {
		r.Changes = &changes
		r.Plan = &api.PlanMade{Artifact: "plan/bundle.tar", Size: 10, SHA256: bundleSum, Summary: summarySum, Source: "c1", Empty: changes.Add == 0}
	})
	return f.jobs[name].ID
}

func TestTree_FollowsThePlanUpToTheRunThatAppliesIt(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net")
		f.plant("db", "net", terraformed)
		f.plant("dns", "net", terraformed)
		f.plant("mail", "net", terraformed)
		f.plant("app", "db")
		f.plant("web", "dns,mail")
		made := f.grow("net")
		f.take()
		f.done("net")
		f.wantTaken("db", "dns", "mail")
		db := f.planned("db", one)
		f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db running: its plan waits for an approval", "app waiting for db",
			"dns running", "mail running", "web waiting for dns,mail")
		_, err := f.plane.Approve(f.ctx(), f.person("ada"), db, seen)
		f.must(err)
		applies := f.tree(made.ID).Nodes[1].Workflow
		if applies != f.reviewOf(db, api.ReviewApproved).Applies {
			t.Errorf("the node follows %s", applies)
		}
		f.wantTaken("db")
		f.done("db")
		f.wantTaken("app")
		f.done("app")
		f.planned("dns", api.Changes{})
		mail := f.planned("mail", one)
		f.wantTree(made.ID, api.TreeRunning, "net succeeded", "db succeeded", "app succeeded",
			"dns succeeded: its plan changes nothing", "mail running: its plan waits for an approval", "web waiting for mail")
		_, err = f.plane.Reject(f.ctx(), f.person("bob"), mail, api.Decision{SHA256: bundleSum, Comment: "no"})
		f.must(err)
		f.wantTree(made.ID, api.TreeFailed, "net succeeded", "db succeeded", "app succeeded",
			"dns succeeded: its plan changes nothing", "mail failed: its plan was rejected by bob: no", "web skipped: mail failed")
	})
}

func TestTree_APlanThatNobodyApprovesEndsIt(t *testing.T) {
	f := newForest(newWorld(t, memory.New()))
	f.plant("net", "", terraformed)
	f.plant("db", "net")
	made := f.grow("net")
	f.take()
	f.planned("net", one)
	f.clock.advance(4 * 24 * time.Hour)
	f.polls()
	f.pass()
	if got := f.tree(made.ID); got.State != api.TreeFailed || !strings.HasPrefix(got.Nodes[0].Note, "nobody approved its plan until ") || got.Nodes[1].Note != "net failed" {
		t.Errorf("got %+v", got)
	}
}

func TestTree_ItsAskerMayNotApproveUnderNotBySubmitter(t *testing.T) {
	f := newForest(newWorld(t, memory.New()))
	f.plant("net", "")
	f.plant("db", "net", terraformed, func(ws *api.Workspace) { ws.Approval.NotBySubmitter = true })
	ada := f.person("ada")
	made, err := f.plane.SubmitTree(f.ctx(), ada, "", api.NewTree{Workspace: "net", Operation: workflow.Update})
	f.must(err)
	f.take()
	f.done("net")
	f.take()
	db := f.planned("db", one)
	_, err = f.plane.Approve(f.ctx(), ada, db, seen)
	wantErr(t, err, workflow.ErrForbidden)
	_, err = f.plane.Approve(f.ctx(), f.person("bob"), db, seen)
	f.must(err)
	_, err = f.plane.CancelTree(f.ctx(), ada, made.ID, api.WithReason{}) // which runs by now
	f.must(err)
	f.wantTree(made.ID, api.TreeCancelled, "net succeeded", "db cancelled: its run was cancelled")
}

func TestTree_CancelWithdrawsAPlanThatWaits(t *testing.T) {
	f := newForest(newWorld(t, memory.New()))
	f.plant("net", "", terraformed)
	f.plant("db", "net")
	made := f.grow("net")
	f.take()
	net := f.planned("net", one)
	_, err := f.plane.CancelTree(f.ctx(), f.admin, made.ID, api.WithReason{})
	f.must(err)
	f.wantTree(made.ID, api.TreeCancelled, "net cancelled: its plan was withdrawn", "db cancelled: the tree was cancelled by "+f.admin.Name)
	f.reviewOf(net, api.ReviewRejected)
}

func TestTree_EdgesThatChangeCountForWhatHasNotBegun(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		f := newForest(w, "net", "db net", "dns net", "app db", "late", "slow late")
		made := f.grow("net")
		f.take()
		f.plant("db", "dns")       // it waits for another one now
		f.plant("late", "net")     // it is not of this tree
		f.plant("app", "slow,dns") // of which one is not of this tree either
		f.plant("dns", "late")     // which has begun to wait only
		f.wantTree(made.ID, api.TreeRunning, "net running", "db waiting for dns", "app waiting for dns", "dns waiting")
		f.pass() // nothing of the tree is before dns by now
		f.wantTaken("dns")
		f.done("net")
		f.wantTaken()
		f.done("dns")
		f.wantTaken("app", "db")
		f.done("db")
		f.done("app")
		f.wantTree(made.ID, api.TreeSucceeded, "net succeeded", "db succeeded", "app succeeded", "dns succeeded")
	})
}

func TestTree_DeletedOrRecreatedWorkspaceHasNoRun(t *testing.T) {
	f := newForest(newWorld(t, memory.New()), "net", "db net", "dns net", "app net")
	made := f.grow("net")
	f.take()
	f.must(f.plane.DeleteWorkspace(f.ctx(), f.admin, "db"))
	f.must(f.plane.DeleteWorkspace(f.ctx(), f.admin, "dns"))
	f.plant("dns", "net")
	f.done("net")
	f.wantTaken("app")
	f.done("app")
	got := f.tree(made.ID)
	for i, want := range map[int]string{2: "db", 3: "dns"} {
		if n := got.Nodes[i]; n.Workspace != want || n.State != api.TreeFailed || n.Workflow != "" || !strings.Contains(n.Note, want) {
			t.Errorf("%+v", n)
		}
	}
	if got.State != api.TreeFailed {
		t.Errorf("the tree is %s", got.State)
	}
}

// outputs are what a run of a workspace leaves.
func outputs(name string, value any) func(*api.Result) {
	return func(r *api.Result) { r.Outputs = []api.Output{{Name: name, Value: value}} }
}

func TestTree_SkipsWhatGetsTheInputsOfItsLastUpdate(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		takes := func(from, output string) func(*api.Workspace) {
			return func(ws *api.Workspace) { ws.Inputs = []api.WorkspaceInput{{Workspace: from, Output: output}} }
		}
		f := newForest(w, "net")
		f.plant("db", "", takes("net", "subnet"))
		f.plant("app", "db")
		f.plant("web", "", takes("db", "address"))
		tree := func(subnet string, dbRuns func(*api.Result), change ...func(*api.NewTree)) []string {
			t.Helper()
			made := f.grow("net", change...)
			f.take()
			f.done("net", outputs("subnet", subnet))
			for names := f.take(); len(names) > 0; names = f.take() {
				for _, name := range names {
					f.done(name, map[string][]func(*api.Result){"db": {outputs("address", "10.0.0.1"), dbRuns}}[name]...)
				}
			}
			var ran []string
			for _, n := range f.tree(made.ID).Nodes[1:] {
				if n.State == api.TreeSkipped && n.Note == "its inputs did not change" && n.Workflow == "" {
					continue
				}
				if n.State != api.TreeSucceeded {
					t.Fatalf("%+v", n)
				}
				ran = append(ran, n.Workspace)
			}
			return ran
		}
		changed := func(*api.Result) {}
		every := func(in *api.NewTree) { in.Every = true }
		for i, c := range []struct {
			ran  []string
			want []string
		}{
			{tree("a", changed), []string{"db", "app", "web"}},        // none has ever succeeded
			{tree("a", changed), nil},                                 // net leaves what it left before
			{tree("b", nothingChanged), []string{"db"}},               // and db changes nothing
			{tree("c", changed), []string{"db", "app"}},               // app runs after db, whose output stays the same
			{tree("c", changed, every), []string{"db", "app", "web"}}, // whatever changed
		} {
			if diff := cmp.Diff(c.want, c.ran); diff != "" {
				t.Errorf("tree %d (-want +got):\n%s", i, diff)
			}
		}
		f.submit("db", workflow.Refresh) // it has not applied the inputs that it was given
		f.take()
		f.done("db", outputs("address", "10.0.0.1"))
		if diff := cmp.Diff([]string{"db"}, tree("c", nothingChanged)); diff != "" {
			t.Errorf("after a refresh (-want +got):\n%s", diff)
		}
	})
}
