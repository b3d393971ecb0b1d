package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// waker counts wakes. It may fail, and may hang until its caller gives up.
type waker struct {
	mu      sync.Mutex
	targets []string
	fail    error
	hang    bool
}

func (w *waker) Wake(ctx context.Context, target string) error {
	w.mu.Lock()
	w.targets = append(w.targets, target)
	fail, hang := w.fail, w.hang
	w.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return fail
}

func (w *waker) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.targets))
}

// target sets what is woken for the default pool.
func (w *world) target(name string) {
	w.t.Helper()
	_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{WakeTarget: &name})
	w.must(err)
}

// waking is a world whose pool has a wake target, and no mark.
func waking(t *testing.T, wk *waker) *world {
	t.Helper()
	w := &world{t: t, store: memory.New(), clock: &clock{t: time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)}}
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, Waker: wk})
	w.signIn()
	w.target("dayfly-wake-default")
	w.claim(1)
	wk.targets = nil
	return w
}

func TestWake_OfABurstIsOne(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	var all sync.WaitGroup
	for i := range 20 {
		w.workspace(fmt.Sprintf("net%d", i))
	}
	for i := range 20 {
		all.Go(func() { w.submit(fmt.Sprintf("net%d", i), workflow.Update) })
	}
	all.Wait()
	if d := cmp.Diff([]string{"dayfly-wake-default"}, wk.all()); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
}

func TestWake_IsOwedAgainOnceAClaimHasBegun(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	w.workspace("net")
	w.workspace("web")
	w.submit("net", workflow.Update)
	w.claim(10)
	w.submit("web", workflow.Update)
	if n := len(wk.all()); n != 2 {
		t.Errorf("%d wakes, want one for each: a claim came between", n)
	}
}

func TestWake_ThatWasLostIsRepeatedByTheNextCommit(t *testing.T) {
	wk := &waker{fail: errors.New("throttled")}
	w := waking(t, wk)
	w.workspace("net")
	w.workspace("web")
	first := w.submit("net", workflow.Update)
	w.clock.advance(3 * time.Second)
	w.submit("web", workflow.Update)
	if n := len(wk.all()); n != 2 {
		t.Errorf("%d wakes, want 2: the mark was old", n)
	}
	if jobs := w.claim(10); len(jobs) != 2 {
		t.Errorf("claimed %d jobs; a lost wake loses no work", len(jobs))
	}
	w.is(first.ID, workflow.Claimed, workflow.ReasonNone)
}

func TestWake_OfAFreedSlot(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	w.workspace("net")
	w.submit("net", workflow.Update)
	w.submit("net", workflow.Update)
	job, r := w.started()
	before := len(wk.all())
	w.must(w.result(job, r, workflow.Succeeded))
	if n := len(wk.all()) - before; n != 1 {
		t.Errorf("%d wakes by the end that let the next run start, want 1", n)
	}
	job, r = w.started()
	before = len(wk.all())
	w.must(w.result(job, r, workflow.Succeeded))
	if n := len(wk.all()) - before; n != 0 {
		t.Errorf("%d wakes by an end that nobody waited for", n)
	}
}

// Runs that wait for their pool are claimed at once when the pool may claim again.
func TestWake_OfAPoolThatMayClaimAgain(t *testing.T) {
	yes, no := true, false
	for name, tc := range map[string]struct {
		stop, again func(w *world, jobs []api.Job)
	}{
		"its hold ends": {
			func(w *world, jobs []api.Job) { w.refusedLaunch(jobs[0], workflow.ReasonCapacity, time.Minute, "") },
			func(w *world, jobs []api.Job) { w.launch(jobs[1], "task-1") },
		},
		"it is enabled": {
			func(w *world, _ []api.Job) {
				_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{IsDisabled: &yes})
				w.must(err)
			},
			func(w *world, _ []api.Job) {
				_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{IsDisabled: &no})
				w.must(err)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wk := &waker{}
			w := waking(t, wk)
			w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 10 })
			for range 3 {
				w.submit("net", workflow.Preview)
			}
			jobs := w.claim(2)
			tc.stop(w, jobs)
			if got := w.claim(10); len(got) > 0 {
				t.Fatalf("claimed %d jobs of a pool that may not", len(got))
			}
			before := len(wk.all())
			tc.again(w, jobs)
			if n := len(wk.all()) - before; n != 1 {
				t.Errorf("%d wakes, want 1", n)
			}
			w.claimOne()
		})
	}
}

// A wake must never slow down the request that caused it: a hanging wake is abandoned after a second.
func TestWake_ThatHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wk := &waker{}
		w := waking(t, wk)
		w.workspace("net")
		wk.mu.Lock()
		wk.hang = true
		wk.mu.Unlock()
		began := time.Now()
		w.submit("net", workflow.Update)
		if took := time.Since(began); took != time.Second || len(wk.all()) != 1 {
			t.Errorf("the submission took %s, with %d wakes", took, len(wk.all()))
		}
	})
}

// An end wakes the pools whose claims its limits had cut short: at most ten of them, those that were cut last. The next
// end wakes the others.
func TestWake_AtMostTenPoolsByOneCommit(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, Waker: wk, OrganizationLimit: 1})
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	var want []string
	for i := range 12 {
		name, target := fmt.Sprintf("pool%d", i), fmt.Sprintf("dayfly-wake-%02d", i)
		want = append(want, target)
		made, err := w.plane.CreatePool(t.Context(), w.admin, "", api.PoolSettings{Name: &name, WakeTarget: &target})
		w.must(err)
		w.workspace("ws-"+name, func(ws *api.Workspace) { ws.Pool = name })
		w.submit("ws-"+name, workflow.Update)
		who, err := w.plane.Authenticate(t.Context(), made.Token)
		w.must(err)
		out, err := w.plane.Claim(t.Context(), who, api.Claim{Instance: name, Max: 1})
		w.must(err)
		if len(out.Jobs) != 0 {
			t.Fatalf("the organization's limit let %s claim", name)
		}
	}
	wk.targets = nil
	w.must(w.result(job, r, workflow.Succeeded))
	if d := cmp.Diff(want[2:], wk.all()); d != "" {
		t.Errorf("woken (-want +got):\n%s", d)
	}
	w.submit("net", workflow.Update)
	job, r = w.started()
	wk.targets = nil
	w.must(w.result(job, r, workflow.Succeeded))
	if d := cmp.Diff(append(want[:2:2], "dayfly-wake-default"), wk.all()); d != "" { // which asked for ten, and was given one
		t.Errorf("woken by the next end (-want +got):\n%s", d)
	}
}
