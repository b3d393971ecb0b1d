package controlplane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// between is a store in which something happens once, between what a call reads and what it commits.
type between struct {
	store.Store
	afterRange   func(part string) func() // nil: nothing happens after this one
	afterGet     func(keys []store.Key) func()
	beforeCommit func(ops []store.Op) func()
}

func (b *between) Get(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	found, err := b.Store.Get(ctx, keys...)
	if b.afterGet != nil {
		if do := b.afterGet(keys); do != nil {
			b.afterGet = nil
			do()
		}
	}
	return found, err
}

func (b *between) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	page, err := b.Store.Range(ctx, s)
	if b.afterRange != nil {
		if do := b.afterRange(s.Part); do != nil {
			b.afterRange = nil
			do()
		}
	}
	return page, err
}

func (b *between) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if b.beforeCommit != nil {
		if do := b.beforeCommit(ops); do != nil {
			b.beforeCommit = nil
			do()
		}
	}
	return b.Store.Commit(ctx, id, ops...)
}

// writing picks the commit that writes a record, with a text in it.
func writing(k store.Key, holding string, do func()) func([]store.Op) func() {
	return func(ops []store.Op) func() {
		for _, op := range ops {
			if op.IsPut() && op.Key() == k && strings.Contains(string(op.Record().Value), holding) {
				return do
			}
		}
		return nil
	}
}

// moves picks the commit that moves a workflow to a state.
func moves(id string, to workflow.State, do func()) func([]store.Op) func() {
	return writing(record.WorkflowKey(id), `"state":"`+string(to)+`"`, do)
}

// A pass found that a run was silent for ten minutes, but the run's heartbeat came in before the pass committed that.
func TestPass_AHeartbeatThatComesBeforeTheCommitCounts(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	came := false
	st.beforeCommit = moves(job.ID, workflow.Failed, func() {
		came = true
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
		w.must(err)
	})
	for range 12 { // minutes without a sign of life, in which the pool calls
		w.live(time.Minute)
		w.polls()
	}
	if !came {
		t.Fatal("the pass did not find the run silent")
	}
	w.is(job.ID, workflow.Running, workflow.ReasonNone)
}

// A claim has read the claimable runs, and another becomes claimable before it answers: that one still needs a wake.
func TestClaim_KeepsAWakeThatComesDuringItsScan(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	st := &between{Store: w.store}
	claims := controlplane.New(st, controlplane.Config{Now: w.clock.now, Waker: wk})
	w.workspace("net")
	w.workspace("web")
	w.submit("net", workflow.Update)
	before := len(wk.all())
	st.afterRange = func(part string) func() {
		if !strings.HasPrefix(part, "claim/") {
			return nil
		}
		return func() { w.submit("web", workflow.Update) }
	}
	out, err := claims.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 1})
	w.must(err)
	if len(out.Jobs) != 1 || st.afterRange != nil {
		t.Fatalf("claimed %d jobs, submitted meanwhile: %t", len(out.Jobs), st.afterRange == nil)
	}
	if n := len(wk.all()) - before; n != 1 {
		t.Errorf("%d wakes for the run that was submitted during the scan, want 1", n)
	}
}

// A pool that is disabled, or loses a workspace, during its claim gets no work from that claim.
func TestClaim_GoesByThePoolAsItIsAtTheCommit(t *testing.T) {
	yes, none := true, []string{}
	no := false
	for name, to := range map[string]api.PoolSettings{
		"disabled":     {IsDisabled: &yes},
		"not assigned": {AssignedToAll: &no, AssignedWorkspaces: &none},
		"other types":  {EnabledTypes: &[]workflow.Type{workflow.InsightsScan}},
	} {
		t.Run(name, func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.workspace("net")
			wf := w.submit("net", workflow.Update)
			st.beforeCommit = moves(wf.ID, workflow.Claimed, func() {
				_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", to)
				w.must(err)
			})
			if jobs := w.claim(1); len(jobs) != 0 || st.beforeCommit != nil {
				t.Errorf("claimed %d jobs; the pool changed meanwhile: %t", len(jobs), st.beforeCommit == nil)
			}
			w.is(wf.ID, workflow.Pending, workflow.ReasonNone)
		})
	}
}

// More is due at once than one read of the timers returns.
func TestPass_MovesMoreThanAPage(t *testing.T) {
	w := newWorld(t, memory.New())
	const n = 201
	w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 1000 })
	for range n {
		w.submit("net", workflow.Preview)
	}
	w.clock.advance(workflow.QueueTimeout + time.Minute)
	sum, err := w.plane.Pass(w.ctx())
	w.must(err)
	if sum.Moved != n || sum.More {
		t.Errorf("one pass: %+v, want %d moved and none left", sum, n)
	}
}

// A pool has more claims than one page of them lists.
func TestHeld_ListsMoreThanAPage(t *testing.T) {
	w := newWorld(t, memory.New())
	const n = 101
	w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 1000 })
	want := map[string]bool{}
	for range n {
		want[w.submit("net", workflow.Preview).ID] = true
	}
	for claimed := 0; claimed < n; {
		jobs := w.claim(50)
		if len(jobs) == 0 {
			t.Fatalf("claimed %d, want %d", claimed, n)
		}
		claimed += len(jobs)
	}
	pages := 0
	for cursor, more := "", true; more; pages++ {
		page, err := w.plane.Held(w.ctx(), w.pool, "one", cursor)
		w.must(err)
		for _, job := range page.Items {
			if !want[job.ID] {
				t.Errorf("%s is listed twice, or is nobody's", job.ID)
			}
			delete(want, job.ID)
		}
		cursor = page.Next
		more = cursor != ""
	}
	if len(want) > 0 || pages < 2 {
		t.Errorf("%d of %d are not listed, on %d pages", len(want), n, pages)
	}
}
