package controlplane_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// notified makes a notification.
func (w *world) notified(name string, change ...func(*api.Notification)) {
	w.t.Helper()
	n := api.Notification{Name: name, URL: "https://hooks.example.com/" + name, SecretRef: "file:webhook-secret"}
	for _, c := range change {
		c(&n)
	}
	_, _, err := w.plane.Notifications.Put(w.ctx(), w.admin, n)
	w.must(err)
}

// fails runs a workflow that fails, and lets a pass send the pending messages.
func (w *world) fails(workspace string) string {
	w.t.Helper()
	wf := w.submit(workspace, workflow.Preview)
	job, r := w.started()
	w.must(w.result(job, r, workflow.Failed))
	w.pass()
	return wf.ID
}

// deliveries lists all deliveries, the oldest first.
func (w *world) deliveries(f ...func(*api.DeliveryFilter)) (out []api.Delivery) {
	w.t.Helper()
	in := api.DeliveryFilter{}
	for _, change := range f {
		change(&in)
	}
	for {
		page, err := w.plane.Deliveries(w.ctx(), w.admin, in)
		w.must(err)
		out = append(out, page.Items...)
		if in.Cursor = page.Next; in.Cursor == "" {
			slices.Reverse(out)
			return out
		}
	}
}

// sent lists the sent messages with their receivers, in order.
func (w *world) sent() (out []string) {
	w.t.Helper()
	for _, d := range w.deliveries() {
		out = append(out, d.For+" "+d.Event+" "+d.Workspace)
	}
	slices.Sort(out)
	return out
}

func (w *world) tasks(who controlplane.Principal, limit int) []api.DeliveryTask {
	w.t.Helper()
	out, err := w.plane.ClaimDeliveries(w.ctx(), who, api.DeliveryClaim{Max: limit, Instance: "one"})
	w.must(err)
	return out.Tasks
}

// task claims exactly one delivery.
func (w *world) task() api.DeliveryTask {
	w.t.Helper()
	tasks := w.tasks(w.pool, 10)
	if len(tasks) != 1 {
		w.t.Fatalf("claimed %d deliveries, want 1: %+v", len(tasks), w.deliveries())
	}
	return tasks[0]
}

func (w *world) delivered(t api.DeliveryTask, in api.DeliveryResult) {
	w.t.Helper()
	in.Attempt = t.Attempt
	w.must(w.plane.DeliveryDone(w.ctx(), w.pool, t.ID, in))
}

// stands checks where the one delivery stands.
func (w *world) stands(state string, attempts int) api.Delivery {
	w.t.Helper()
	all := w.deliveries()
	if len(all) != 1 || all[0].State != state || all[0].Attempts != attempts {
		w.t.Fatalf("deliveries are %+v, want one that is %s after %d attempts", all, state, attempts)
	}
	return all[0]
}

func (w *world) offers() bool {
	w.t.Helper()
	out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 1})
	w.must(err)
	return out.Deliveries
}

func TestDelivery_IsClaimedDoneAndNotDoneAgain(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.notified("ops")
		if w.offers() {
			t.Error("deliveries are offered where there are none")
		}
		id := w.fails("net")
		if !w.offers() {
			t.Error("a claim does not say that a delivery is due")
		}
		task := w.task()
		if s := task.Send; task.Attempt != 1 || task.LeaseSeconds != 120 || s == nil || s.URL != "https://hooks.example.com/ops" || s.SecretRef != "file:webhook-secret" {
			t.Errorf("the task is %+v, %+v", task, s)
		}
		var body struct{ ID, Type, Workflow, Workspace, Command string }
		w.must(json.Unmarshal([]byte(task.Send.Body), &body))
		if body.ID != task.ID || body.Type != "run.failed" || body.Workflow != id || body.Workspace != "net" || body.Command != "dayfly why "+id {
			t.Errorf("the body is %s", task.Send.Body)
		}
		if w.offers() || len(w.tasks(w.pool, 10)) > 0 {
			t.Error("a delivery that is claimed is offered again")
		}
		w.stands(api.DeliveryClaimed, 1)
		w.delivered(task, api.DeliveryResult{IsDone: true, Detail: "200 OK"})
		w.delivered(task, api.DeliveryResult{Detail: "said twice"})
		if d := w.stands(api.DeliveryDone, 1); d.Detail != "200 OK" || d.EndedAt == nil {
			t.Errorf("it stands at %+v", d)
		}
		w.clock.advance(24 * time.Hour)
		if w.offers() || len(w.tasks(w.pool, 10)) > 0 {
			t.Error("a delivery that is done is offered again")
		}
	})
}

// A try whose result does not come is tried again by another; what the first one says then changes nothing.
func TestDelivery_ALapsedLeaseIsClaimedAgain(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.notified("ops")
		w.fails("net")
		first := w.task()
		w.clock.advance(119 * time.Second)
		if w.offers() {
			t.Error("offered within its lease")
		}
		w.clock.advance(2 * time.Second)
		w.stands(api.DeliveryWaiting, 1)
		if !w.offers() {
			t.Error("a lapsed lease is not offered")
		}
		second := w.task()
		if second.ID != first.ID || second.Attempt != 2 {
			t.Errorf("claimed %+v after %+v", second, first)
		}
		w.delivered(first, api.DeliveryResult{IsPermanent: true, Detail: "late"})
		w.stands(api.DeliveryClaimed, 2)
		w.delivered(second, api.DeliveryResult{IsDone: true})
		w.stands(api.DeliveryDone, 2)
	})
}

// The waits between the tries grow; after a day it is given up, and an admin lets it be tried again.
func TestDelivery_BacksOffIsGivenUpAndReplayed(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.notified("ops")
		w.fails("net")
		began := w.clock.now()
		for n, wait := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour} {
			task := w.task()
			w.delivered(task, api.DeliveryResult{Detail: "hooks.example.com answered 503"})
			d := w.stands(api.DeliveryWaiting, n+1)
			if got := d.NextAt.Sub(w.clock.now()).Round(time.Second); got != wait {
				t.Errorf("after try %d it waits %s, want %s", n+1, got, wait)
			}
			w.clock.advance(wait - time.Second)
			if w.offers() || len(w.tasks(w.pool, 10)) > 0 {
				t.Errorf("after try %d it is offered too early", n+1)
			}
			w.clock.advance(time.Second)
			if !w.offers() {
				t.Errorf("after try %d it is not offered in time", n+1)
			}
		}
		w.delivered(w.task(), api.DeliveryResult{Detail: "hooks.example.com answered 503"})
		d := w.stands(api.DeliveryFailed, 8)
		if took := d.EndedAt.Sub(began); took > 24*time.Hour || took < 20*time.Hour {
			t.Errorf("given up after %s", took)
		}
		if got := w.deliveries(func(f *api.DeliveryFilter) { f.State = api.DeliveryWaiting }); len(got) > 0 {
			t.Errorf("listed as waiting: %+v", got)
		}
		w.clock.advance(72 * time.Hour)
		if w.offers() {
			t.Error("a dead letter is offered")
		}
		_, err := w.plane.ReplayDelivery(w.ctx(), w.as(api.RoleOperator), d.ID)
		wantErr(t, err, workflow.ErrForbidden)
		out, err := w.plane.ReplayDelivery(w.ctx(), w.admin, d.ID)
		w.must(err)
		if out.State != api.DeliveryWaiting || w.audits("delivery.replay", "done") != 1 {
			t.Errorf("replayed: %+v", out)
		}
		_, err = w.plane.ReplayDelivery(w.ctx(), w.admin, d.ID)
		wantErr(t, err, workflow.ErrConflict)
		if !w.offers() {
			t.Error("a replay is not offered")
		}
		task := w.task()
		w.delivered(task, api.DeliveryResult{Detail: "again"})
		if d := w.stands(api.DeliveryWaiting, 9); d.NextAt.Sub(w.clock.now()).Round(time.Second) != 10*time.Second {
			t.Errorf("the waits do not begin again: %+v", d)
		}
	})
}

// A receiver says when it wants to be asked again, and a pool that never asks is seen as a failure.
func TestDelivery_RetryAfterAndAPoolThatIsAway(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.notified("ops")
	w.fails("net")
	w.delivered(w.task(), api.DeliveryResult{RetryAfterSeconds: 120}) // until the end of the lease that it had
	if d := w.stands(api.DeliveryWaiting, 1); d.NextAt.Sub(w.clock.now()).Round(time.Second) != 2*time.Minute {
		t.Errorf("it waits until %s", d.NextAt)
	}
	w.clock.advance(2 * time.Minute)
	w.delivered(w.task(), api.DeliveryResult{RetryAfterSeconds: 5})
	if d := w.stands(api.DeliveryWaiting, 2); d.NextAt.Sub(w.clock.now()).Round(time.Second) != time.Minute {
		t.Errorf("it waits until %s", d.NextAt)
	}
	w.clock.advance(25 * time.Hour)
	if d := w.stands(api.DeliveryFailed, 2); !strings.Contains(d.Detail, "within a day") || d.EndedAt == nil {
		t.Errorf("nobody asked for a day: %+v", d)
	}
	if tasks := w.tasks(w.pool, 10); len(tasks) > 0 {
		t.Errorf("handed out after a day: %+v", tasks)
	}
	w.stands(api.DeliveryFailed, 2)
	_, err := w.plane.ReplayDelivery(w.ctx(), w.admin, w.deliveries()[0].ID)
	w.must(err)
	w.clock.advance(25 * time.Hour)
	other := w.newPool("other")
	w.notified("ops", func(n *api.Notification) { n.Pool = "other" })
	_, err = w.plane.ReplayDelivery(w.ctx(), w.admin, w.deliveries()[0].ID) // while its entry is still there
	w.must(err)
	if ids := w.dueFirst(); len(ids) > 0 {
		t.Errorf("due in the pool that it was of before: %v", ids)
	}
	tasks := w.tasks(other, 10)
	if len(tasks) != 1 {
		t.Fatalf("the pool that it is of now claims %+v", tasks)
	}
	w.must(w.plane.DeliveryDone(w.ctx(), other, tasks[0].ID, api.DeliveryResult{Attempt: tasks[0].Attempt, IsDone: true}))
	w.stands(api.DeliveryDone, 3)
}

func TestDelivery_IsOfOnePool(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	other := w.newPool("other")
	w.notified("ops")
	w.fails("net")
	if tasks := w.tasks(other, 10); len(tasks) > 0 {
		t.Errorf("another pool got %+v", tasks)
	}
	task := w.task()
	wantErr(t, w.plane.DeliveryDone(w.ctx(), other, task.ID, api.DeliveryResult{Attempt: 1, IsDone: true}), workflow.ErrNotFound)
	wantErr(t, w.plane.DeliveryDone(w.ctx(), w.admin, task.ID, api.DeliveryResult{Attempt: 1, IsDone: true}), workflow.ErrForbidden)
	_, err := w.plane.ClaimDeliveries(w.ctx(), w.admin, api.DeliveryClaim{Max: 1, Instance: "one"})
	wantErr(t, err, workflow.ErrForbidden)
	_, err = w.plane.Deliveries(w.ctx(), w.as(api.RoleOperator), api.DeliveryFilter{})
	wantErr(t, err, workflow.ErrForbidden)
	w.stands(api.DeliveryClaimed, 1)
}

// Where it is sent to is what the notification says when it is claimed. One that is gone or disabled sends nothing.
func TestDelivery_GoesByTheSettingsOfNow(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.notified("ops")
	w.notified("gone")
	w.notified("off")
	w.fails("net")
	w.notified("ops", func(n *api.Notification) { n.URL = "https://new.example.com" })
	w.notified("off", func(n *api.Notification) { n.IsDisabled = true })
	w.must(w.plane.Notifications.Delete(w.ctx(), w.admin, "gone"))
	w.notified("gone") // another under the same name
	if task := w.task(); task.Send.URL != "https://new.example.com" {
		t.Errorf("sent to %+v", task.Send)
	}
	var got []string
	for _, d := range w.deliveries(func(f *api.DeliveryFilter) { f.State = api.DeliveryFailed }) {
		got = append(got, d.Detail)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"notification gone was deleted", "notification off is disabled"}, got); diff != "" {
		t.Error(diff)
	}
	if got := w.deliveries(func(f *api.DeliveryFilter) { f.For = "ops" }); len(got) != 1 {
		t.Errorf("of ops: %+v", got)
	}
}

// More deliveries than one claim takes are all handed out once.
func TestDelivery_ManyAreHandedOutOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for i := range 5 {
			w.notified(fmt.Sprintf("n%d", i))
		}
		w.fails("net")
		w.fails("net")
		seen := map[string]bool{}
		for _, want := range []int{3, 3, 3, 1, 0} {
			if offered := w.offers(); offered != (want > 0) {
				t.Errorf("offered: %v, with %d left", offered, 10-len(seen))
			}
			tasks := w.tasks(w.pool, 3)
			for _, task := range tasks {
				seen[task.ID] = true
			}
			if len(tasks) != want {
				t.Errorf("claimed %d, want %d", len(tasks), want)
			}
		}
		if len(seen) != 10 {
			t.Errorf("%d deliveries were handed out", len(seen))
		}
	})
}

// dueFirst lists what is due, the earliest first.
func (w *world) dueFirst() (ids []string) {
	w.t.Helper()
	page, err := w.store.Range(w.ctx(), store.Scan{Part: record.DuePart(w.poolID()), Limit: 10})
	w.must(err)
	for _, r := range page.Records {
		n, err := record.Decode[record.Name](r)
		w.must(err)
		ids = append(ids, n.ID)
	}
	return ids
}

// The store has deleted a delivery and not yet its entry, which is the last that a claim reads: more is due behind it.
func TestDelivery_AnEntryLeftBehindHidesNoOther(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	for i := range 3 {
		w.notified(fmt.Sprintf("n%d", i))
	}
	w.fails("net")
	ids := w.dueFirst()
	w.commit("gone", store.Delete(record.DeliveryKey("default", ids[1]), 1))
	for _, want := range []string{ids[0], ids[2]} {
		if !w.offers() {
			t.Errorf("%s is not offered", want)
		}
		if tasks := w.tasks(w.pool, 1); len(tasks) != 1 || tasks[0].ID != want {
			t.Errorf("claimed %+v, want %s", tasks, want)
		}
	}
}

// The end of a delivery does not put off what else is due, whether that comes before or after it.
func TestDelivery_AnEndLeavesTheOthersDue(t *testing.T) {
	for i := range 2 {
		w := newWorld(t, memory.New())
		w.workspace("net")
		w.notified("a")
		w.notified("b")
		w.fails("net")
		tasks := map[string]api.DeliveryTask{}
		for _, task := range w.tasks(w.pool, 2) {
			tasks[task.ID] = task
		}
		ids := w.dueFirst()
		w.delivered(tasks[ids[i]], api.DeliveryResult{IsDone: true})
		w.clock.advance(2 * time.Minute)
		if !w.offers() {
			t.Errorf("%d: a lapsed lease is not offered", i)
		}
		if task := w.task(); task.ID != ids[1-i] {
			t.Errorf("%d: claimed %s, want %s", i, task.ID, ids[1-i])
		}
	}
}

// A claim of deliveries has found none, and one is made before it commits: the pool is still told of that.
func TestDelivery_MadeDuringAClaimIsOffered(t *testing.T) {
	for name, next := range map[string]time.Duration{"nothing was due": 0, "something was": time.Minute} {
		t.Run(name, func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.workspace("net")
			w.notified("ops")
			pool := w.poolID()
			stored(w, record.DeliveriesKey(pool), func(d *record.Deliveries) {
				if next > 0 {
					d.Next = w.clock.now().Add(-next)
				}
			})
			st.afterRange = func(part string) func() {
				if part != record.DuePart(pool) {
					return nil
				}
				return func() { w.fails("net") }
			}
			if tasks := w.tasks(w.pool, 1); len(tasks) == 0 && !w.offers() {
				t.Error("nobody is notified")
			}
			if st.afterRange != nil || len(w.deliveries()) != 1 {
				t.Error("none was made meanwhile")
			}
		})
	}
}

// A claim that waits answers at once when a delivery is made, and only then: one that nobody asks for does not make
// claims go round.
func TestClaim_AnswersAtOnceForADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.New())
		w.plane = controlplane.New(w.store, controlplane.Config{Now: time.Now, Alone: true})
		w.workspace("net")
		w.notified("ops")
		wf := w.submit("net", workflow.Preview)
		job, r := w.started()
		go func() {
			<-time.After(3 * time.Second)
			w.must(w.result(job, r, workflow.Failed))
		}()
		for i, want := range []struct {
			after time.Duration
			due   bool
		}{{3 * time.Second, true}, {0, true}, {20 * time.Second, true}, {20 * time.Second, true}} {
			began := time.Now()
			if i == 2 {
				<-time.After(3 * time.Second) // the event is too old by then
				began = time.Now()
			}
			out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 1, WaitSeconds: 20})
			w.must(err)
			if took := time.Since(began); out.Deliveries != want.due || took != want.after {
				t.Errorf("claim %d answered %v after %s, want %v after %s", i, out.Deliveries, took, want.due, want.after)
			}
		}
		w.delivered(w.task(), api.DeliveryResult{}) // it waits for 10 s
		began := time.Now()
		out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 1, WaitSeconds: 20})
		w.must(err)
		if took := time.Since(began); !out.Deliveries || took < 10*time.Second || took > 11*time.Second {
			t.Errorf("the next try of %s was offered: %v, after %s", wf.ID, out.Deliveries, took)
		}
	})
}

// A wake is owed to the pool for a delivery as for a run.
func TestDelivery_WakesItsPool(t *testing.T) {
	wk := &waker{}
	w := waking(t, wk)
	w.target("dayfly-wake-default")
	w.workspace("net")
	w.notified("ops")
	w.submit("net", workflow.Preview)
	job, r := w.started()
	before := len(wk.all())
	w.clock.advance(time.Minute)
	w.must(w.result(job, r, workflow.Failed))
	if got := len(wk.all()) - before; got != 1 {
		t.Errorf("woken %d times", got)
	}
}

// Deliveries that are over are deleted in time, also where the store deletes nothing itself.
func TestDelivery_IsDeletedWhenItIsKeptNoLonger(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.notified("done")
	w.notified("failed")
	w.notified("never")
	w.fails("net")
	for _, task := range w.tasks(w.pool, 20) {
		if strings.HasSuffix(task.Send.URL, "/never") {
			continue
		}
		w.delivered(task, api.DeliveryResult{IsDone: strings.HasSuffix(task.Send.URL, "/done"), IsPermanent: strings.HasSuffix(task.Send.URL, "/failed")})
	}
	for _, tt := range []struct {
		after time.Duration
		left  []string
	}{
		{72*time.Hour - time.Minute, []string{"done", "failed", "never"}},
		{2 * time.Minute, []string{"failed", "never"}},
		{11*24*time.Hour - 3*time.Minute, []string{"failed", "never"}},
		{4 * time.Minute, []string{"never"}},
		{24 * time.Hour, nil},
	} {
		w.clock.advance(tt.after)
		w.pass()
		var left []string
		for _, d := range w.deliveries() {
			left = append(left, d.For)
		}
		slices.Sort(left)
		if diff := cmp.Diff(tt.left, left); diff != "" {
			t.Errorf("after another %s: %s", tt.after, diff)
		}
	}
	page, err := w.store.Range(w.ctx(), store.Scan{Part: record.DuePart(w.poolID()), Limit: 10})
	w.must(err)
	if len(page.Records) > 0 {
		t.Errorf("entries are left: %v", page.Records)
	}
}
