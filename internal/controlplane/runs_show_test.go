package controlplane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
		_, err = w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "t", Role: api.RoleViewer})
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
		if least := map[string]int{"held": 0, "timeline": 2, "workflows": 9}[name]; seen < least || name != "held" && seen < 2 {
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
	_, err = w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{State: "asleep"})
	wantErr(t, err, workflow.ErrInvalid)
}
