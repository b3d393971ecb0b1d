package controlplane_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A change of settings names the version that its caller has seen, as a put does. Without a change nothing is written: no
// version, no entry of the audit trail, no wake-up.
func TestUpdate_GoesByVersionAndWritesChangesOnly(t *testing.T) {
	st := &counted{Store: memory.New()}
	w := newWorld(t, st)
	_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("shop")})
	w.must(err)
	_, err = w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: new("lab")})
	w.must(err)
	_, err = w.plane.CreateService(w.ctx(), w.admin, api.NewServicePrincipal{Name: "nightly", ServicePrincipalSettings: api.ServicePrincipalSettings{Role: new(api.RoleViewer)}})
	w.must(err)
	w.workspace("net")
	approval := &api.Approval{Required: true}
	project := func(name string) func(int64, string) (int64, error) {
		return func(version int64, text string) (int64, error) {
			in := api.ProjectSettings{Version: version}
			if text != "" {
				in.Description, in.Pool, in.Approval = &text, new("lab"), approval
			}
			out, err := w.plane.UpdateProject(w.ctx(), w.admin, name, in)
			return out.Version, err
		}
	}
	for name, update := range map[string]func(version int64, text string) (int64, error){
		"root": project("global"), "project": project("shop"),
		"organization": func(version int64, text string) (int64, error) {
			in := api.OrganizationSettings{Version: version}
			if text != "" {
				in.Limit, in.LogRetention, in.DefaultPool, in.Approval = new(len(text)), new(30), new("lab"), approval
			}
			out, err := w.plane.UpdateOrganization(w.ctx(), w.admin, in)
			return out.Version, err
		},
		"pool": func(version int64, text string) (int64, error) {
			in := api.PoolSettings{Version: version}
			if text != "" {
				in.Description, in.Labels, in.WakeTarget = &text, &[]string{"b", "a"}, new("")
				in.AssignedWorkspaces, in.AssignedStacks, in.EnabledTypes = &[]string{"net"}, &[]string{}, &[]workflow.Type{}
			}
			out, err := w.plane.UpdatePool(w.ctx(), w.admin, "lab", in)
			return out.Version, err
		},
		"service principal": func(version int64, text string) (int64, error) {
			in := api.ServicePrincipalSettings{Version: version}
			if text != "" {
				in.MaxLifetimeSeconds, in.Grants = new(60+len(text)), &map[string]string{"shop": api.RoleOperator}
			}
			out, err := w.plane.UpdateService(w.ctx(), w.admin, "nightly", in)
			return out.Version, err
		},
	} {
		before := st.commits
		seen, err := update(0, "")
		w.must(err)
		if st.commits != before {
			t.Errorf("%s: nothing was to change, and %d commits were made", name, st.commits-before)
		}
		at, err := update(seen, "one")
		w.must(err)
		if at != seen+1 || st.commits == before {
			t.Errorf("%s: version %d became %d with %d commits", name, seen, at, st.commits-before)
		}
		before = st.commits
		for _, text := range []string{"one", ""} {
			if again, err := update(at, text); err != nil || again != at || st.commits != before {
				t.Errorf("%s with %q again: version %d, %d commits, %v; want %d and none", name, text, again, st.commits-before, err, at)
			}
		}
		for _, text := range []string{"three", ""} {
			_, err = update(at+1, text)
			wantErr(t, err, workflow.ErrConflict)
		}
		if st.commits != before {
			t.Errorf("%s: what was refused made %d commits", name, st.commits-before)
		}
	}
}
