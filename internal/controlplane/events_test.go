package controlplane_test

import (
	"context"
	"errors"
	"fmt"
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

func (w *world) wantSent(want ...string) {
	w.t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, w.sent()); diff != "" {
		w.t.Errorf("sent (-want +got):\n%s", diff)
	}
	page, err := w.store.Range(w.ctx(), store.Scan{Part: record.OutboxPart("default"), Limit: 10})
	w.must(err)
	if len(page.Records) > 0 {
		w.t.Errorf("events remain: %v", page.Records)
	}
}

// Each event is sent once to each subscriber, whatever the store loses.
func TestEvents_EachIsSentOnce(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.notified("all")
		w.notified("drift", func(n *api.Notification) { n.Events = []string{api.EventDrift} })
		w.notified("off", func(n *api.Notification) { n.IsDisabled = true })
		w.workspace("a")
		w.workspace("b")
		w.guarded(required())
		w.fails("a")

		w.asks(w.person("ada"), workflow.Update)
		w.plans(one) // waits for an approval

		for _, drift := range []int{0, 2} {
			w.submit("b", "")
			job, r := w.started()
			_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Drift: drift}}})
			w.must(err)
		}

		lost := w.submit("b", workflow.Preview)
		w.clock.advance(workflow.QueueTimeout + time.Minute)
		w.pass() // it ends by time
		w.is(lost.ID, workflow.Failed, workflow.ReasonExpiredInQueue)
		w.pass()
		w.wantSent("all failed a", "all approval net", "all drift b", "drift drift b", "all failed b")
	})
}

// untold is a store that takes no deliveries for a while.
type untold struct {
	store.Store

	down bool
}

func (s *untold) Commit(ctx context.Context, id string, ops ...store.Op) error {
	if s.down && slices.ContainsFunc(ops, func(op store.Op) bool { return strings.HasPrefix(op.Key().Part, record.DeliveryPart("")) }) {
		return errors.New("down")
	}
	return s.Store.Commit(ctx, id, ops...)
}

// A run ends even if its events cannot be sent; a pass sends them later, once.
func TestEvents_UnsentOnesAreSentByThePass(t *testing.T) {
	st := &untold{Store: memory.New()}
	w := newWorld(t, st)
	w.notified("a")
	w.notified("b", func(n *api.Notification) { n.Events = []string{api.EventFailed} })
	w.workspace("net")
	w.submit("net", workflow.Preview)
	job, r := w.started()
	st.down = true
	w.must(w.result(job, r, workflow.Failed))
	w.is(job.ID, workflow.Failed, workflow.ReasonStepFailed)
	if _, err := w.plane.Pass(w.ctx()); err == nil || len(w.sent()) > 0 {
		t.Errorf("the pass says %v, sent: %v", err, w.sent())
	}
	st.down = false
	w.pass()
	w.pass()
	w.wantSent("a failed net", "b failed net")
}

// A plan that nobody but its submitter wants to be looked at is reported to nobody.
func TestEvents_NoneWithoutASubscriber(t *testing.T) {
	w := newWorld(t, memory.New())
	w.notified("all")
	w.guarded(&api.Approval{Required: true, Rules: []string{"destroys"}})
	w.asks(w.admin, workflow.Preview)
	w.plans(one)
	w.workspace("a")
	wf := w.submit("a", workflow.Preview)
	_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{})
	w.must(err)
	w.pass()
	w.wantSent()
}

// A notification of some projects sends the events in them and below them.
func TestEvents_OfProjects(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("shop", "")
	w.madeProject("cart", "shop")
	w.madeProject("mail", "")
	for _, p := range []string{"shop", "cart", "mail"} {
		w.workspace("in-"+p, func(ws *api.Workspace) { ws.Project = p })
	}
	w.workspace("in-none")
	w.notified("shop", func(n *api.Notification) { n.Projects = []string{"shop"} })
	w.notified("cart", func(n *api.Notification) { n.Projects = []string{"cart", "cart"} })
	w.notified("root", func(n *api.Notification) { n.Projects = []string{"global"} })
	for _, ws := range []string{"in-shop", "in-cart", "in-mail", "in-none"} {
		w.fails(ws)
	}
	w.wantSent("shop failed in-shop", "shop failed in-cart", "cart failed in-cart",
		"root failed in-shop", "root failed in-cart", "root failed in-mail", "root failed in-none")
}

// A run that waits for half an hour for something other than another run is reported once, and each pool at most once
// an hour.
func TestEvents_Stuck(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.notified("ops", func(n *api.Notification) { n.Events = []string{api.EventStuck} })
		w.newPool("edge")
		w.workspace("a")
		w.workspace("b")
		w.workspace("far", func(ws *api.Workspace) { ws.Pool = "edge" })
		w.submit("a", workflow.Preview)
		w.submit("far", workflow.Preview)
		for range 29 {
			w.clock.advance(time.Minute)
			w.pass()
		}
		w.wantSent()
		w.clock.advance(2 * time.Minute)
		w.submit("b", workflow.Preview)
		w.pass()
		w.wantSent("ops stuck a", "ops stuck far")
		for range 2 * 60 {
			w.clock.advance(time.Minute)
			w.pass()
		}
		w.wantSent("ops stuck a", "ops stuck far") // b is of a pool that was reported within the hour
		w.submit("b", workflow.Preview)
		w.clock.advance(31 * time.Minute)
		w.pass()
		w.wantSent("ops stuck a", "ops stuck far", "ops stuck b")
	})
}

// A run that waits for other runs is not stuck; when these have ended, it may be.
func TestEvents_NotStuckBehindAnother(t *testing.T) {
	w := newWorld(t, memory.New())
	w.notified("ops", func(n *api.Notification) { n.Events = []string{api.EventStuck} })
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	w.submit("net", workflow.Update)
	for range 50 {
		w.clock.advance(time.Minute)
		_, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{Step: "run"})
		w.must(err)
		w.pass()
	}
	w.wantSent()
	w.must(w.result(job, r, workflow.Succeeded))
	w.live(40 * time.Minute)
	w.wantSent("ops stuck net")
}

// A claimed run whose launches are refused for half an hour is stuck, with the reason.
func TestEvents_StuckAtItsLaunch(t *testing.T) {
	w := newWorld(t, memory.New())
	w.notified("ops", func(n *api.Notification) { n.Events = []string{api.EventStuck} })
	w.workspace("net")
	w.submit("net", workflow.Update)
	job := w.claimOne()
	for range 31 {
		w.refusedLaunch(job, workflow.ReasonQuota, time.Minute, "")
		w.clock.advance(time.Minute)
		w.pass()
	}
	w.wantSent("ops stuck net")
	if task := w.task(); !strings.Contains(task.Send.Body, `"reason":"quota"`) || !strings.Contains(task.Send.Body, "refused") {
		t.Errorf("the body is %s", task.Send.Body)
	}
}

// tally counts what is written.
type tally struct {
	store.Store

	ops int
}

func (s *tally) Commit(ctx context.Context, id string, ops ...store.Op) error {
	s.ops += len(ops)
	return s.Store.Commit(ctx, id, ops...)
}

// That it may become stuck costs a run nothing that starts before.
func TestEvents_ARunThatStartsSoonWritesNoMore(t *testing.T) {
	st := &tally{Store: memory.New()}
	w := newWorld(t, st)
	w.workspace("net")
	costs := func(wait time.Duration) int {
		before := st.ops
		w.submit("net", workflow.Preview)
		made := st.ops - before
		w.clock.advance(wait)
		w.pass()
		before = st.ops
		job, r := w.started()
		w.must(w.result(job, r, workflow.Succeeded))
		return made + st.ops - before
	}
	w.clock.advance(time.Hour)
	soon := costs(0)
	if late := costs(29 * time.Minute); late != soon {
		t.Errorf("a run that waits for 29 minutes writes %d records, one that starts at once %d", late, soon)
	}
}

// A refusal names the field, and no secret.
func TestNotification_IsRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	for name, tt := range map[string]struct {
		change func(*api.Notification)
		field  string
		kind   error
	}{
		"no address":            {func(n *api.Notification) { n.URL = "" }, "url", workflow.ErrInvalid},
		"two addresses":         {func(n *api.Notification) { n.URLRef = "file:url" }, "url", workflow.ErrInvalid},
		"in the clear":          {func(n *api.Notification) { n.URL = "http://hooks.example.com" }, "url", workflow.ErrInvalid},
		"with a password":       {func(n *api.Notification) { n.URL = "https://a:hunter2@hooks.example.com" }, "url", workflow.ErrInvalid},
		"no host":               {func(n *api.Notification) { n.URL = "https:///hunter2" }, "url", workflow.ErrInvalid},
		"unsigned":              {func(n *api.Notification) { n.SecretRef = "" }, "secret_ref", workflow.ErrInvalid},
		"a secret in its place": {func(n *api.Notification) { n.SecretRef = "whsec_hunter2" }, "secret_ref", workflow.ErrInvalid},
		"slack, signed":         {func(n *api.Notification) { n.Format = api.FormatSlack }, "secret_ref", workflow.ErrInvalid},
		"another format":        {func(n *api.Notification) { n.Format = "teams" }, "format", workflow.ErrInvalid},
		"another event":         {func(n *api.Notification) { n.Events = []string{"started"} }, "events", workflow.ErrInvalid},
		"no such project":       {func(n *api.Notification) { n.Projects = []string{"none"} }, "project", workflow.ErrNotFound},
		"no such pool":          {func(n *api.Notification) { n.Pool = "none" }, "pool", workflow.ErrNotFound},
		"a name with a slash":   {func(n *api.Notification) { n.Name = "a/b" }, "name", workflow.ErrInvalid},
	} {
		n := api.Notification{Name: "ops", URL: "https://hooks.example.com/a", SecretRef: "file:webhook-secret"}
		tt.change(&n)
		_, _, err := w.plane.Notifications.Put(w.ctx(), w.admin, n)
		wantErr(t, err, tt.kind)
		if e := refusalOf(err); e == nil || e.Field != tt.field || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: refused with %v", name, err)
		}
	}
	for _, url := range []string{"http://127.0.0.1:9000/x", "http://localhost:9000", "http://[::1]/x"} {
		w.notified("near", func(n *api.Notification) { n.URL = url })
	}
	w.notified("slack", func(n *api.Notification) {
		n.URL, n.URLRef, n.Format, n.SecretRef = "", "file:slack", api.FormatSlack, ""
	})
	_, _, err := w.plane.Notifications.Put(w.ctx(), w.as(api.RoleOperator), api.Notification{Name: "ops"})
	wantErr(t, err, workflow.ErrForbidden)
	_, err = w.plane.Notifications.List(w.ctx(), w.as(api.RoleOperator), "", 0)
	wantErr(t, err, workflow.ErrForbidden)
	for i := range 48 {
		w.notified(fmt.Sprintf("n%02d", i))
	}
	_, _, err = w.plane.Notifications.Put(w.ctx(), w.admin, api.Notification{Name: "much", URL: "https://hooks.example.com", SecretRef: "file:a"})
	wantErr(t, err, workflow.ErrInvalid)
	w.notified("n00", func(n *api.Notification) { n.Events = []string{api.EventDrift, api.EventFailed} })
	n, err := w.plane.Notifications.Show(w.ctx(), w.admin, "n00")
	w.must(err)
	if !slices.Equal(n.Events, []string{"drift", "failed"}) || n.Format != api.FormatDayfly || n.Version != 2 {
		t.Errorf("kept %+v", n)
	}
}

func refusalOf(err error) *workflow.Error {
	e, _ := errors.AsType[*workflow.Error](err)
	return e
}
