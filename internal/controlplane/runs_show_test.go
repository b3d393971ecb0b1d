package controlplane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A cursor was a raw key of the store: it contained a NUL, and was accepted for any list.
func TestLists_ACursorIsOpaqueAndGoodForItsListAlone(t *testing.T) {
	w := newWorld(t, memory.New())
	var id string
	for i := range 3 {
		name := fmt.Sprintf("ws-%d", i)
		w.workspace("gone")
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "gone"))
		w.workspace(name)
		for range 3 {
			id = w.submit(name, workflow.Preview).ID
		}
		pool := fmt.Sprintf("pool-%d", i)
		_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &pool})
		w.must(err)
		_, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: pool, Role: api.RoleViewer})
		w.must(err)
	}
	_, err := w.plane.Cancel(w.ctx(), w.admin, id, api.WithReason{}) // a second line of its timeline
	w.must(err)
	type page struct {
		next string
		n    int
	}
	lists := map[string]func(cursor string) (page, error){
		"workflows": func(c string) (page, error) {
			p, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Cursor: c, Limit: 1})
			return page{p.Next, len(p.Items)}, err
		},
		"workflows of a workspace": func(c string) (page, error) {
			p, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Workspace: "ws-1", Cursor: c, Limit: 1})
			return page{p.Next, len(p.Items)}, err
		},
		"timeline": func(c string) (page, error) {
			p, err := w.plane.Timeline(w.ctx(), w.admin, id, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"workspaces": func(c string) (page, error) {
			p, err := w.plane.Workspaces(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"deleted workspaces": func(c string) (page, error) {
			p, err := w.plane.DeletedWorkspaces(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"pools": func(c string) (page, error) {
			p, err := w.plane.Pools(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"tokens": func(c string) (page, error) {
			p, err := w.plane.Tokens(w.ctx(), w.admin, c, 1)
			return page{p.Next, len(p.Items)}, err
		},
		"audit": func(c string) (page, error) {
			p, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Cursor: c, Limit: 1})
			return page{p.Next, len(p.Items)}, err
		},
		"held": func(c string) (page, error) {
			p, err := w.plane.Held(w.ctx(), w.pool, "one", c)
			return page{p.Next, len(p.Items)}, err
		},
	}
	cursors := map[string]string{}
	for name, list := range lists {
		seen := 0
		for cursor, pages := "", 0; ; pages++ {
			p, err := list(cursor)
			w.must(err)
			if strings.ContainsFunc(p.next, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.Contains(p.next, "/") {
				t.Errorf("%s: the cursor is %q", name, p.next)
			}
			seen += p.n
			if cursor = p.next; cursor == "" {
				break
			}
			cursors[name] = cursor
			if pages > 1000 {
				t.Fatalf("%s: it has no end", name)
			}
		}
		if minimum := map[string]int{"held": 0, "timeline": 2, "workflows": 9}[name]; seen < minimum || name != "held" && seen < 2 {
			t.Errorf("%s: %d items were listed", name, seen)
		}
	}
	for name, list := range lists {
		wrong := map[string]string{"a raw key": "wf\x00" + id, "nothing": "AAAA", "no form": "%%", "damaged": "x" + cursors[name]}
		for other, cursor := range cursors {
			if other != name {
				wrong["of "+other] = cursor
			}
		}
		for what, cursor := range wrong {
			_, err := list(cursor)
			if e, ok := errors.AsType[*workflow.Error](err); !ok || !errors.Is(err, workflow.ErrInvalid) || e.Field != "cursor" {
				t.Errorf("%s with a cursor that is %s: got %v, want a refusal that names cursor", name, what, err)
			}
		}
	}
}

// The end of a long detail says what to do about it: the view of a single workflow shows it in full.
func TestWorkflow_ShowsTheWholeDetailOfItsResult(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		want := strings.Repeat("the state is locked; ", 20) + "release it with: force-unlock"
		_, err := w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: want}})
		w.must(err)
		if got := w.show(wf.ID).Detail; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		why, err := w.plane.Why(w.ctx(), w.admin, wf.ID)
		w.must(err)
		if !strings.HasSuffix(why.Summary, want) {
			t.Errorf("why says %q, want all of %q", why.Summary, want)
		}
		page, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{})
		w.must(err)
		for _, listed := range page.Items { // a list may lag
			if len(listed.Detail) > 200 {
				t.Errorf("in the list: got %q, want its beginning", listed.Detail)
			}
		}
	})
}

func TestWorkflows_ListIsNewestFirstPagedAndFiltered(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.workspace("web")
	var ids []string
	for i := range 7 {
		ids = append(ids, w.submit([]string{"net", "web"}[i%2], workflow.Preview).ID)
	}
	_, err := w.plane.Cancel(w.ctx(), w.admin, ids[0], api.WithReason{})
	w.must(err)
	list := func(f controlplane.Filter) (got []string) {
		t.Helper()
		for {
			page, err := w.plane.Workflows(w.ctx(), w.admin, f)
			w.must(err)
			for _, wf := range page.Items {
				got = append(got, wf.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return got
			}
		}
	}
	for name, c := range map[string]struct {
		f    controlplane.Filter
		want []int
	}{
		"all":       {controlplane.Filter{Limit: 3}, []int{6, 5, 4, 3, 2, 1, 0}},
		"workspace": {controlplane.Filter{Workspace: "net", Limit: 2}, []int{6, 4, 2, 0}},
		"state":     {controlplane.Filter{State: "cancelled"}, []int{0}},
		"both":      {controlplane.Filter{Workspace: "net", State: "pending", Limit: 1}, []int{6, 4, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, i := range c.want {
				want = append(want, ids[i])
			}
			if diff := cmp.Diff(want, list(c.f)); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
	for _, f := range []controlplane.Filter{{State: "asleep"}, {Operation: "plan"}, {Operation: "insights_scan"}} {
		_, err = w.plane.Workflows(w.ctx(), w.admin, f)
		wantErr(t, err, workflow.ErrInvalid)
	}
}

func TestWorkflows_AreFilteredByOperationAndTime(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	var ids []string
	var at []time.Time
	for _, op := range []workflow.Operation{workflow.Preview, workflow.Update, "", workflow.Preview} {
		at = append(at, w.clock.now())
		ids = append(ids, w.submit("net", op).ID)
		w.clock.advance(time.Minute)
	}
	for name, c := range map[string]struct {
		f    controlplane.Filter
		want []int
	}{
		"operation":                 {controlplane.Filter{Operation: "preview"}, []int{3, 0}},
		"scan":                      {controlplane.Filter{Operation: "scan"}, []int{2}},
		"since a submission":        {controlplane.Filter{Since: at[2]}, []int{3, 2}},
		"since after one":           {controlplane.Filter{Since: at[2].Add(30 * time.Second)}, []int{3}},
		"of a workspace since then": {controlplane.Filter{Workspace: "net", Operation: "preview", Since: at[1]}, []int{3}},
		"since ever":                {controlplane.Filter{Since: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)}, []int{3, 2, 1, 0}},
		"since the future":          {controlplane.Filter{Since: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, nil},
	} {
		page, err := w.plane.Workflows(w.ctx(), w.admin, c.f)
		w.must(err)
		var want, got []string
		for _, i := range c.want {
			want = append(want, ids[i])
		}
		for _, wf := range page.Items {
			got = append(got, wf.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// One answer read ten pages of the size that was asked for, so a rare state was not found behind a few others.
func TestWorkflows_ARareStateIsFoundBehindManyOthers(t *testing.T) {
	for name, open := range stores() {
		if name != "memory" && name != "sqlite" {
			continue // 300 runs take long over DynamoDB
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, open(t))
			w.workspace("net")
			var want []string
			for i := range 300 {
				id := w.submit("net", workflow.Preview).ID
				if i%40 == 0 {
					_, err := w.plane.Cancel(w.ctx(), w.admin, id, api.WithReason{})
					w.must(err)
					want = append([]string{id}, want...)
				}
			}
			f := controlplane.Filter{State: "cancelled", Limit: 3}
			var got []string
			for pages := 1; ; pages++ {
				page, err := w.plane.Workflows(w.ctx(), w.admin, f)
				w.must(err)
				if len(page.Items) > f.Limit || len(page.Items) < f.Limit && page.Next != "" {
					t.Errorf("page %d has %d workflows", pages, len(page.Items))
				}
				for _, wf := range page.Items {
					got = append(got, wf.ID)
				}
				if f.Cursor = page.Next; f.Cursor == "" {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorkflows_ListSaysWhatRunsDoAndDid(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Preview)
	job, r := w.started()
	_, err := w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{{Seq: 1, Name: "plan", Status: workflow.StepRunning, StartedAt: w.clock.now()}}})
	w.must(err)
	_, err = w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{Step: "plan"})
	w.must(err)
	page, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{})
	w.must(err)
	if got := page.Items[0].Step; got != "plan" {
		t.Errorf("it is in step %q", got)
	}
	changes := api.Changes{Add: 2, Destroy: 1, Resources: []api.ResourceChange{{Address: "a", Action: "create"}}}
	_, err = w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, Changes: &changes}})
	w.must(err)
	page, err = w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{})
	w.must(err)
	if diff := cmp.Diff(&api.Changes{Add: 2, Destroy: 1}, page.Items[0].Changes); diff != "" || page.Items[0].Step != "" {
		t.Errorf("step %q, changes (-want +got):\n%s", page.Items[0].Step, diff)
	}
}
