package controlplane_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestPool_ThatIsDeletedServesWhatCameInBetweenAndGoes(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	blue, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue")})
	w.must(err)
	in := func(ws *api.Workspace) { ws.Pool = "blue" }
	var wf api.Workflow
	st.beforeCommit = writing(record.PoolKey("default", blue.Pool.ID), "", func() {
		w.workspace("net", in)
		wf = w.submit("net", workflow.Update)
	})
	w.must(w.plane.DeletePool(w.ctx(), w.admin, "blue"))
	status := func() string {
		t.Helper()
		p, err := w.plane.Pool(w.ctx(), w.admin, "blue")
		w.must(err)
		return p.Status
	}
	if got := status(); got != "closed" {
		t.Errorf("the pool is %s while work waits for it, want closed", got)
	}
	_, err = w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: workflow.Preview})
	wantErr(t, err, workflow.ErrInUse)
	_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, api.Workspace{Name: "late", Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}, Pool: "blue"})
	wantErr(t, err, workflow.ErrInUse)

	w.pool, err = w.plane.Authenticate(w.ctx(), blue.Token)
	w.must(err)
	w.pass() // it waits
	job, r := w.started()
	if job.ID != wf.ID {
		t.Fatalf("claimed %s, want %s", job.ID, wf.ID)
	}
	w.pass() // it runs
	if got := status(); got != "closed" {
		t.Errorf("the pool is %s while its work runs, want closed", got)
	}
	w.must(w.result(job, r, workflow.Succeeded))
	w.is(wf.ID, workflow.Succeeded, "")
	w.pass()
	_, err = w.plane.Pool(w.ctx(), w.admin, "blue")
	wantErr(t, err, workflow.ErrNotFound)
	if _, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "b", Max: 1}); err == nil {
		t.Error("the token of a pool that is gone still claims")
	}
	w.pass() // nothing of it is left to do
}

func TestPool_ThatIsRenamedTakesAlongWhoNamedItMeanwhile(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	blue, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("blue")})
	w.must(err)
	st.beforeCommit = writing(record.PoolKey("default", blue.Pool.ID), "", func() {
		w.workspace("net", func(ws *api.Workspace) { ws.Pool = "blue" })
		w.submit("net", workflow.Update)
	})
	_, err = w.plane.UpdatePool(w.ctx(), w.admin, "blue", api.PoolSettings{Name: ptr("green")})
	w.must(err)
	w.submit("net", workflow.Update)
	if ws, err := w.plane.Workspace(w.ctx(), w.admin, "net"); err != nil || ws.Pool != "green" {
		t.Errorf("workspace names pool %q (%v), want green", ws.Pool, err)
	}
	w.pool, err = w.plane.Authenticate(w.ctx(), blue.Token)
	w.must(err)
	for range 2 {
		job, r := w.started()
		w.must(w.result(job, r, workflow.Succeeded))
	}
}
