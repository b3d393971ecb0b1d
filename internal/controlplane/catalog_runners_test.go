package controlplane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestRunners_ShowWhatEachHas(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		w.submit("net", workflow.Update)
		job, r := w.started()
		list := func() []api.Runner {
			page, err := w.plane.Runners(w.ctx(), w.admin, "default")
			w.must(err)
			return page.Items
		}
		got := list()
		if len(got) != 1 || len(got[0].Running) != 1 {
			t.Fatalf("got %+v, want one instance with one workflow", got)
		}
		name := got[0].Name
		if has := got[0].Running[0]; has.Workflow != job.ID || has.Workspace != "net" || has.Task != r.Task || has.State != workflow.Running || has.Since.IsZero() {
			t.Errorf("got %+v, want workflow %s with its task", has, job.ID)
		}
		if shown := w.show(job.ID); shown.Instance != name || shown.Task != r.Task {
			t.Errorf("the workflow was run by %q as %q, want %q as %q", shown.Instance, shown.Task, name, r.Task)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		if got := list(); len(got) != 1 || len(got[0].Running) != 0 {
			t.Errorf("got %+v, want one instance with nothing: its workflow has ended", got)
		}
		w.clock.advance(2 * time.Hour)
		if got := list(); len(got) != 0 {
			t.Errorf("got %+v, want none: it was not seen for two hours", got)
		}
		if shown := w.show(job.ID); shown.Instance != name || shown.Task != r.Task {
			t.Errorf("after its end, got %q and %q", shown.Instance, shown.Task)
		}
	})
}

func TestWorkflows_OfAPoolAreThoseThatItClaimedLast(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		other := "other"
		_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &other})
		w.must(err)
		w.workspace("net")
		w.workspace("app")
		w.submit("net", workflow.Update)
		ended, r := w.started()
		w.must(w.result(ended, r, workflow.Succeeded))
		w.submit("net", workflow.Preview)
		active, _ := w.started()
		w.submit("app", workflow.Update) // pending
		for _, c := range []struct {
			pool, state string
			want        []string
		}{
			{"default", "active", []string{active.ID}}, {"default", "running", []string{active.ID}}, {"default", "claimed", nil},
			{"default", "", []string{active.ID, ended.ID}}, {"default", "succeeded", []string{ended.ID}}, {"default", "pending", nil},
			{"other", "active", nil}, {"other", "", nil},
		} {
			var got []string
			for range 200 { // the list of all is read from an index, which may lag
				page, err := w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Pool: c.pool, State: c.state})
				w.must(err)
				got = nil
				for _, one := range page.Items {
					got = append(got, one.ID)
				}
				if slices.Equal(got, c.want) || c.state == "active" || c.state == "running" {
					break
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("pool %s, state %q: got %v, want %v", c.pool, c.state, got, c.want)
			}
		}
		_, err = w.plane.Workflows(w.ctx(), w.admin, controlplane.Filter{Pool: "none"})
		wantErr(t, err, workflow.ErrNotFound)
	})
}
