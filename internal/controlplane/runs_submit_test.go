package controlplane_test

import (
	"errors"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A run that registers its workspace does both or neither.
func TestSubmit_RegistersWorkspaceAndRunAtomically(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		operator := w.as(api.RoleOperator)
		in := func(change ...func(*api.Submit)) api.Submit {
			out := api.Submit{Workspace: "net", Operation: workflow.Update, Register: &api.Workspace{
				Name: "net", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src/net"}, Commands: map[string]string{"update": "true"}}, Pool: "default",
			}}
			for _, c := range change {
				c(&out)
			}
			return out
		}
		for name, tc := range map[string]struct {
			change func(*api.Submit)
			want   error
		}{
			"no command":       {func(s *api.Submit) { s.Operation = workflow.Refresh }, workflow.ErrInvalid},
			"no priority":      {func(s *api.Submit) { s.Priority = new(500) }, workflow.ErrInvalid},
			"no engine":        {func(s *api.Submit) { s.Register.Engine = "ftp" }, workflow.ErrInvalid},
			"another name":     {func(s *api.Submit) { s.Register.Name = "web" }, workflow.ErrInvalid},
			"no pool":          {func(s *api.Submit) { s.Register.Pool = "none" }, workflow.ErrNotFound},
			"an admin's field": {func(s *api.Submit) { s.Register.Secrets = []api.Secret{{Env: "A", Ref: "file:a"}} }, workflow.ErrForbidden},
		} {
			_, err := w.plane.Submit(w.ctx(), operator, "", in(tc.change))
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", name, err, tc.want)
			}
			for _, workspace := range []string{"net", "web"} {
				if _, err := w.plane.Workspace(w.ctx(), w.admin, workspace); !errors.Is(err, workflow.ErrNotFound) {
					t.Errorf("%s: workspace %s: %v, want none", name, workspace, err)
				}
			}
		}
		_, err := w.plane.Submit(w.ctx(), w.as(api.RoleViewer), "", in())
		wantErr(t, err, workflow.ErrForbidden)

		first, err := w.plane.Submit(w.ctx(), operator, "key", in())
		w.must(err)
		again, err := w.plane.Submit(w.ctx(), operator, "key", in())
		w.must(err)
		if again.ID != first.ID {
			t.Errorf("a repeat made %s beside %s", again.ID, first.ID)
		}
		_, err = w.plane.Submit(w.ctx(), operator, "key", in(func(s *api.Submit) { s.Register.Description = "else" }))
		wantErr(t, err, workflow.ErrKeyReused)

		// The same request again changes nothing. Other settings already apply to this run. Another directory is
		// refused.
		_, err = w.plane.Submit(w.ctx(), operator, "", in())
		w.must(err)
		changed, err := w.plane.Submit(w.ctx(), operator, "", in(func(s *api.Submit) { s.Register.Size, s.Priority = "large", new(50) }))
		w.must(err)
		_, err = w.plane.Submit(w.ctx(), operator, "", in(func(s *api.Submit) { s.Register.Source.Directory = "/src/other" }))
		wantErr(t, err, workflow.ErrExists)
		_, err = w.plane.Submit(w.ctx(), operator, "", in(func(s *api.Submit) { s.Register.Source.Path = "other" }))
		wantErr(t, err, workflow.ErrExists)
		ws, err := w.plane.Workspace(w.ctx(), w.admin, "net")
		w.must(err)
		if ws.Version != 2 || ws.Size != "large" || ws.Source.Directory != "/src/net" {
			t.Errorf("got %+v, want what the third run registered", ws)
		}
		// The same root module may be copied with more around it.
		_, err = w.plane.Submit(w.ctx(), operator, "", in(func(s *api.Submit) { s.Register.Source = api.Source{Directory: "/src", Path: "net"} }))
		w.must(err)
		job, r := w.started()
		if job.ID != changed.ID || job.Size != "large" {
			t.Errorf("got %s of size %s, want the third run, which has priority", job.ID, job.Size)
		}
		w.must(w.result(job, r, workflow.Succeeded))
		if job, _ = w.started(); job.ID != first.ID || job.Size != "small" {
			t.Errorf("got %s of size %s, want the first run with what was registered for it", job.ID, job.Size)
		}
	})
}

func TestSubmit_SameKeySameWorkflow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		in := api.Submit{Workspace: "net", Operation: workflow.Update}
		one, err := w.plane.Submit(w.ctx(), w.admin, "key-1", in)
		w.must(err)
		two, err := w.plane.Submit(w.ctx(), w.admin, "key-1", in)
		w.must(err)
		if one.ID != two.ID {
			t.Errorf("two workflows, %s and %s, of one key", one.ID, two.ID)
		}
		in.Operation = workflow.Destroy
		_, err = w.plane.Submit(w.ctx(), w.admin, "key-1", in)
		wantErr(t, err, workflow.ErrKeyReused)
	})
}

func TestSubmit_ARunHasAPriorityAndATimeOutOfItsOwn(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("low", func(ws *api.Workspace) { ws.DefaultPriority, ws.MaxRuntime = -20, "30m" })
		w.workspace("net")
		for _, c := range []struct {
			in       api.Submit
			priority int
			runtime  string
		}{
			{api.Submit{Workspace: "low"}, -20, "30m0s"},
			{api.Submit{Workspace: "low", Priority: new(0), MaxRuntime: "5m"}, 0, "5m0s"},
			{api.Submit{Workspace: "net"}, 0, "1h0m0s"},
			{api.Submit{Workspace: "net", Priority: new(4), MaxRuntime: "3h"}, 4, "3h0m0s"},
		} {
			c.in.Operation = workflow.Preview
			made, err := w.plane.Submit(w.ctx(), w.admin, "", c.in)
			w.must(err)
			if made.Priority != c.priority || made.MaxRuntime != c.runtime {
				t.Errorf("%+v: got priority %d and %s, want %d and %s", c.in, made.Priority, made.MaxRuntime, c.priority, c.runtime)
			}
			_, err = w.plane.Cancel(w.ctx(), w.admin, made.ID, api.WithReason{})
			w.must(err)
			again, err := w.plane.Retry(w.ctx(), w.admin, "", made.ID, api.WithReason{})
			w.must(err)
			if again.Priority != c.priority || again.MaxRuntime != c.runtime {
				t.Errorf("retry of %+v: got priority %d and %s", c.in, again.Priority, again.MaxRuntime)
			}
			_, err = w.plane.Cancel(w.ctx(), w.admin, again.ID, api.WithReason{})
			w.must(err)
			if c.in.Priority == nil || c.in.Workspace != "low" {
				continue
			}
			// The workspace allows less by now: a retry gets that. A workspace that allows more changes nothing.
			for limit, want := range map[string]string{"2m": "2m0s", "4h": "5m0s"} {
				w.workspace("low", func(ws *api.Workspace) { ws.MaxRuntime = limit })
				again, err := w.plane.Retry(w.ctx(), w.admin, "", made.ID, api.WithReason{})
				w.must(err)
				if again.MaxRuntime != want {
					t.Errorf("retry where the workspace allows %s: got %s, want %s", limit, again.MaxRuntime, want)
				}
			}
		}
		for max, field := range map[string]string{"5h": "max_runtime", "1ms": "max_runtime", "long": "max_runtime"} {
			_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "low", Operation: workflow.Preview, MaxRuntime: max})
			if refusal, ok := errors.AsType[*workflow.Error](err); !ok || refusal.Field != field || !errors.Is(err, workflow.ErrInvalid) {
				t.Errorf("%s: got %v, want a refusal of %s", max, err, field)
			}
		}
	})
}
