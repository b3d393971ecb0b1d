package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// limited is a world with a limit of the organization.
func limited(t *testing.T, st store.Store, limit int, wk *waker) *world {
	t.Helper()
	w := newWorld(t, st)
	w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, OrganizationLimit: limit, Waker: wk})
	return w
}

// counter reads a limit, with the version of its record and the number of places that are freed and still counted.
func (w *world) counter(k store.Key) (active int, version int64, freed int) {
	w.t.Helper()
	got, err := w.store.Get(w.ctx(), k)
	w.must(err)
	if len(got) > 0 {
		l, err := record.Decode[record.Limit](got[0])
		w.must(err)
		active, version = l.Active, got[0].Version
	}
	for _, part := range record.FreedParts(k) {
		page, err := w.store.Range(w.ctx(), store.Scan{Part: part, Limit: 1000})
		w.must(err)
		freed += len(page.Records)
	}
	return active, version, freed
}

// An end writes no limit. It frees a place that what is shown counts at once, and the pass after that.
func TestLimits_AnEndFreesAPlaceAndWritesNoLimit(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	for _, k := range []store.Key{record.OrganizationLimitKey("default"), record.PoolLimitKey("default", w.poolID())} {
		if active, _, freed := w.counter(k); active != 1 || freed != 0 {
			t.Errorf("%s: %d counted, %d freed while it runs", k, active, freed)
		}
	}
	_, before, _ := w.counter(record.OrganizationLimitKey("default"))
	w.must(w.result(job, r, workflow.Succeeded))
	for _, k := range []store.Key{record.OrganizationLimitKey("default"), record.PoolLimitKey("default", w.poolID())} {
		if active, version, freed := w.counter(k); active != 1 || freed != 1 || version != before {
			t.Errorf("%s: %d counted, %d freed after the end, at version %d; it was at %d", k, active, freed, version, before)
		}
	}
	if pool, err := w.plane.Pool(w.ctx(), w.admin, "default"); err != nil || pool.Active != 0 {
		t.Errorf("the pool shows %d active workflows, %v", pool.Active, err)
	}
	w.pass()
	if active, _, freed := w.counter(record.OrganizationLimitKey("default")); active != 0 || freed != 0 {
		t.Errorf("%d counted, %d freed after the pass", active, freed)
	}
}

// A workflow that is pending again after its claim frees its places too, and counts again once it is claimed again.
func TestLimits_ALapsedClaimFreesItsPlaceOnce(t *testing.T) {
	w := limited(t, memory.New(), 1, nil)
	w.workspace("net")
	w.submit("net", workflow.Update)
	for range 3 {
		w.claimOne()
		w.clock.advance(workflow.FirstLease + time.Second)
		w.pass()
	}
	w.claimOne()
	if active, _, freed := w.counter(record.OrganizationLimitKey("default")); active-freed != 1 {
		t.Errorf("%d counted, %d freed", active, freed)
	}
}

// More places are freed than one commit folds.
func TestLimits_APassFoldsMoreThanOneCommit(t *testing.T) {
	w := limited(t, memory.New(), 1000, nil)
	const n = 200
	w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 1000 })
	for range n {
		w.submit("net", workflow.Preview)
	}
	var jobs []api.Job
	for len(jobs) < n {
		jobs = append(jobs, w.claim(50)...)
	}
	for _, job := range jobs {
		w.must(w.plane.Release(w.ctx(), w.pool, job.ID, api.Release{Attempt: job.Attempt}))
	}
	w.pass()
	for _, k := range []store.Key{record.OrganizationLimitKey("default"), record.PoolLimitKey("default", w.poolID())} {
		if active, _, freed := w.counter(k); active != 0 || freed != 0 {
			t.Errorf("%s: %d counted, %d freed", k, active, freed)
		}
	}
}

// A claim finds a limit full. Before it says that it waits, a run ends. Nobody would wake the pool: the end finds no
// note of the claim. So the claim looks again, also if a pass has folded the place meanwhile.
func TestClaim_SeesASlotFreedBeforeItReportsWaiting(t *testing.T) {
	for name, folded := range map[string]bool{"freed": false, "freed and folded": true} {
		for _, of := range []string{"organization", "pool"} {
			t.Run(name+", "+of, func(t *testing.T) {
				st := &between{Store: memory.New()}
				limit, one := 1, 1
				if of == "pool" {
					limit = 150
				}
				w := limited(t, st, limit, nil)
				if of == "pool" {
					_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{Concurrency: &one})
					w.must(err)
				}
				w.workspace("net")
				w.workspace("web")
				w.submit("net", workflow.Update)
				job, r := w.started()
				second := w.submit("web", workflow.Update)
				st.beforeCommit = writing(record.CutKey("default", w.poolID()), `"at":`, func() {
					w.must(w.result(job, r, workflow.Succeeded))
					if folded {
						w.pass()
					}
				})
				if jobs := w.claim(1); len(jobs) != 1 || jobs[0].ID != second.ID {
					t.Errorf("claimed %v, want %s", jobs, second.ID)
				}
				if st.beforeCommit != nil {
					t.Error("the claim did not say that it waits")
				}
			})
		}
	}
}

// The other way round: the claim says that it waits, and a run of another pool ends after that. The end wakes the pool
// that waits. The next end finds nobody who waits.
func TestWake_OfAPoolWhoseClaimWasCutShort(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, Waker: wk, OrganizationLimit: 2})
	name, target := "other", "dayfly-wake-other"
	made, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &name, WakeTarget: &target})
	w.must(err)
	other := *w
	other.pool, err = w.plane.Authenticate(w.ctx(), made.Token)
	w.must(err)
	type running struct {
		job api.Job
		r   api.Run
	}
	var all []running
	for _, ws := range []string{"a", "b"} {
		w.workspace(ws, func(ws *api.Workspace) { ws.Pool = name })
		w.submit(ws, workflow.Update)
		job, r := other.started()
		all = append(all, running{job, r})
	}
	w.workspace("net")
	w.submit("net", workflow.Update)
	if jobs := w.claim(1); len(jobs) != 0 {
		t.Fatalf("claimed %d beyond the limit", len(jobs))
	}
	wk.targets = nil
	for _, one := range all {
		w.must(w.result(one.job, one.r, workflow.Succeeded))
		w.clock.advance(3 * time.Second) // a wake mark as old as this is set again
	}
	// The other pool asked for more than it was given, so it waits too.
	if d := cmp.Diff([]string{"dayfly-wake-default", "dayfly-wake-other"}, wk.all()); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	if jobs := w.claim(10); len(jobs) != 1 {
		t.Errorf("claimed %d, want 1", len(jobs))
	}
}

// unreadable is a store that cannot read a partition for once.
type unreadable struct {
	store.Store
	part string
}

func (u *unreadable) Range(ctx context.Context, s store.Scan) (store.Page, error) {
	if u.part != "" && s.Part == u.part {
		u.part = ""
		return store.Page{}, store.ErrBusy
	}
	return u.Store.Range(ctx, s)
}

// An end dies before it wakes those who wait for its place: the pass folds the place, and wakes them.
func TestPass_WakesWhomAnEndDidNot(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	st := &unreadable{Store: w.store}
	w.store, w.plane = st, controlplane.New(st, controlplane.Config{Now: w.clock.now, Waker: wk, OrganizationLimit: 1})
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	w.workspace("web")
	w.submit("web", workflow.Update)
	if jobs := w.claim(1); len(jobs) != 0 {
		t.Fatalf("claimed %d beyond the limit", len(jobs))
	}
	wk.targets, st.part = nil, record.CutPart("default")
	w.must(w.result(job, r, workflow.Succeeded))
	if got := wk.all(); len(got) != 0 || st.part != "" {
		t.Fatalf("woken %v by an end that could not read who waits", got)
	}
	w.pass()
	w.pass() // nobody waits any more
	if d := cmp.Diff([]string{"dayfly-wake-default"}, wk.all()); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	if active, _, freed := w.counter(record.OrganizationLimitKey("default")); active != 0 || freed != 0 {
		t.Errorf("%d counted, %d freed", active, freed)
	}
}

// The pass says it if a limit does not match its active workflows, and changes nothing.
func TestPass_SaysThatALimitDoesNotAddUp(t *testing.T) {
	for name, of := range map[string]struct {
		limit  string // as it is stored
		during bool   // a claim comes while the pass reads
		want   bool
	}{
		"adds up":              {"", false, false},
		"too high":             {`{"active":2}`, false, true},
		"moves while it reads": {"", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, Log: slog.New(slog.NewTextHandler(&said, nil))})
			w.workspace("net")
			w.workspace("web")
			w.submit("net", workflow.Update)
			w.claimOne()
			if of.limit != "" {
				w.overwrite(record.PoolLimitKey("default", w.poolID()), of.limit)
			}
			w.submit("web", workflow.Update)
			claimed, other := 0, *w // another process
			other.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now})
			if of.during {
				looks := 0
				st.afterRange = func(part string) func() {
					if part == record.LimitPart("default") {
						looks++
					}
					if looks < 2 { // the first one is for the counts to be folded
						return nil
					}
					return func() { claimed = len(other.claim(1)) }
				}
			}
			w.pass()
			w.pass()
			if got := strings.Contains(said.String(), "does not match its active workflows"); got != of.want {
				t.Errorf("said %t, want %t: %s", got, of.want, said.String())
			}
			if of.during != (claimed == 1) {
				t.Errorf("claimed %d during the pass", claimed)
			}
			if active, _, _ := w.counter(record.PoolLimitKey("default", w.poolID())); of.limit != "" && active != 2 {
				t.Errorf("the pass made a limit of 2 one of %d", active)
			}
		})
	}
}

// queries counts the queries of an index.
type queries struct {
	store.Store
	n int
}

func (q *queries) Query(ctx context.Context, index store.Index, s store.Scan) (store.Page, error) {
	q.n++
	return q.Store.Query(ctx, index, s)
}

// The few workflows that run are found by one query, however many wait.
func TestWorkflows_RunningOnesAreOneQuery(t *testing.T) {
	st := &queries{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 1000 })
	w.workspace("web")
	var want []string
	for range 5 {
		w.submit("net", workflow.Preview)
		job, _ := w.started()
		want = append([]string{job.ID}, want...)
	}
	for range 300 {
		w.submit("net", workflow.Preview)
	}
	w.submit("web", workflow.Update)
	w.pass()
	st.n = 0
	for _, f := range []controlplane.Filter{{State: "running"}, {State: "active"}, {State: "running", Workspace: "net"}} {
		got, err := w.plane.Workflows(w.ctx(), w.admin, f)
		w.must(err)
		var ids []string
		for _, wf := range got.Items {
			ids = append(ids, wf.ID)
		}
		if d := cmp.Diff(want, ids); d != "" {
			t.Errorf("%+v (-want +got):\n%s", f, d)
		}
	}
	if st.n != 3 {
		t.Errorf("%d queries for three lists", st.n)
	}
	for _, f := range []controlplane.Filter{{State: "claimed"}, {State: "running", Workspace: "web"}} {
		if got, err := w.plane.Workflows(w.ctx(), w.admin, f); err != nil || len(got.Items) != 0 {
			t.Errorf("%+v: %d workflows, %v", f, len(got.Items), err)
		}
	}
}

// The list by state has pages.
func TestWorkflows_RunningOnesHavePages(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 1000 })
	var want []string
	for i := range 7 {
		w.submit("net", workflow.Preview)
		if i%2 == 0 {
			job, _ := w.started()
			want = append(want, job.ID)
		} else {
			w.claimOne()
		}
	}
	w.pass()
	var got []string
	for cursor, more := "", true; more; {
		page, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{State: "running", Limit: 1, Cursor: cursor})
		w.must(err)
		for _, wf := range page.Items {
			got = append(got, wf.ID)
		}
		cursor = page.Next
		more = cursor != ""
	}
	slices.Reverse(got)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}
