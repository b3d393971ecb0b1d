package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// in is somebody with roles in projects only.
func (w *world) in(grants map[string]string) controlplane.Principal {
	return controlplane.Principal{Organization: "default", Name: "somebody", Audience: "user", Grants: grants}
}

func inProject(name string) func(*api.Workspace) {
	return func(ws *api.Workspace) { ws.Project = name }
}

// C16: a list has only what lies in the projects of who asks, and its pages lead through all of it.
func TestLists_ShowOnlyWhatLiesInOnesProjects(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("teams", "global")
	w.madeProject("payments", "teams")
	w.madeProject("shop", "teams")
	var mine, runs, gone []string
	for i := range 40 {
		name := fmt.Sprintf("ws-%02d", i)
		if i%8 != 3 {
			w.workspace(name, inProject("shop"))
			w.submit(name, workflow.Preview)
			continue
		}
		w.workspace(name, inProject("payments"))
		if i < 16 {
			w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, name))
			gone = append(gone, name)
			continue
		}
		mine = append(mine, name)
		runs = append(runs, w.submit(name, workflow.Preview).ID)
	}
	slices.Reverse(runs)
	for where, who := range map[string]controlplane.Principal{
		"there": w.in(map[string]string{"payments": api.RoleViewer}),
		"above": w.in(map[string]string{"teams": api.RoleViewer}),
		"gone":  w.in(map[string]string{"no-such": api.RoleAdmin}),
	} {
		wantMine, wantRuns, wantGone := mine, runs, gone
		if where == "gone" {
			wantMine, wantRuns, wantGone = nil, nil, nil
		}
		for limit := range 4 {
			names, ids, deleted := w.seen(who, limit+1)
			if where == "above" { // also what lies in shop
				keep := func(all, some []string) []string {
					return slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(some, s) })
				}
				if len(names) != 38 || len(ids) != 38 {
					t.Errorf("above: %d workspaces and %d workflows, want 38 of both", len(names), len(ids))
				}
				names, ids = keep(names, mine), keep(ids, runs)
			}
			if d := cmp.Diff(wantMine, names); d != "" {
				t.Errorf("%s, workspaces by %d: %s", where, limit+1, d)
			}
			if d := cmp.Diff(wantRuns, ids); d != "" {
				t.Errorf("%s, workflows by %d: %s", where, limit+1, d)
			}
			if d := cmp.Diff(wantGone, deleted); d != "" {
				t.Errorf("%s, deleted workspaces by %d: %s", where, limit+1, d)
			}
		}
	}
}

// seen reads three lists to their ends, page by page.
func (w *world) seen(who controlplane.Principal, limit int) (names, ids, deleted []string) {
	w.t.Helper()
	read := func(page func(cursor string) (items []string, next string, err error)) (all []string) {
		for cursor, n := "", 0; n == 0 || cursor != ""; n++ {
			items, next, err := page(cursor)
			w.must(err)
			if len(items) > limit || n > 100 {
				w.t.Fatalf("page %d has %d items, want at most %d", n, len(items), limit)
			}
			all, cursor = append(all, items...), next
		}
		return all
	}
	names = read(func(cursor string) (items []string, next string, err error) {
		page, err := w.plane.Workspaces(w.ctx(), who, cursor, limit)
		for _, ws := range page.Items {
			items = append(items, ws.Name)
		}
		return items, page.Next, err
	})
	ids = read(func(cursor string) (items []string, next string, err error) {
		page, err := w.plane.Workflows(w.ctx(), who, controlplane.Filter{Cursor: cursor, Limit: limit})
		for _, wf := range page.Items {
			items = append(items, wf.ID)
		}
		return items, page.Next, err
	})
	deleted = read(func(cursor string) (items []string, next string, err error) {
		page, err := w.plane.DeletedWorkspaces(w.ctx(), who, cursor, limit)
		for _, d := range page.Items {
			items = append(items, d.Name)
		}
		return items, page.Next, err
	})
	return names, ids, deleted
}

// A workspace is made where its maker is an operator, and moved by an admin of both projects.
func TestWorkspace_IsMadeAndMovedByWhoMayInItsProject(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("payments", "global")
	w.madeProject("shop", "global")
	put := func(who controlplane.Principal, name, project string, change ...func(*api.Workspace)) error {
		ws := api.Workspace{Name: name, Project: project, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}}}
		for _, c := range change {
			c(&ws)
		}
		_, _, err := w.plane.PutWorkspace(w.ctx(), who, ws)
		return err
	}
	operator := w.in(map[string]string{"payments": api.RoleOperator})
	w.must(put(operator, "net", "payments"))
	wantErr(t, put(operator, "other", "shop"), workflow.ErrForbidden)
	wantErr(t, put(operator, "other", ""), workflow.ErrForbidden) // in global
	wantErr(t, put(w.admin, "other", "no-such"), workflow.ErrNotFound)
	w.must(put(w.admin, "theirs", "shop"))
	wantErr(t, put(operator, "theirs", "payments"), workflow.ErrForbidden) // it would take it over
	both := w.in(map[string]string{"payments": api.RoleAdmin, "shop": api.RoleOperator})
	wantErr(t, put(both, "net", "shop"), workflow.ErrForbidden)
	both.Grants["shop"] = api.RoleAdmin
	w.must(put(both, "net", "shop"))
	wantErr(t, put(operator, "net", "shop"), workflow.ErrForbidden)

	// An admin of a project sets there what only an admin sets, but not what reaches beyond it.
	reach := func(ws *api.Workspace) { ws.Labels = []string{"gpu"} }
	w.must(put(w.admin, "more", "payments"))
	wantErr(t, put(operator, "more", "payments", reach), workflow.ErrForbidden)
	wantErr(t, put(w.in(map[string]string{"shop": api.RoleAdmin, "payments": api.RoleOperator}), "more", "payments", reach), workflow.ErrForbidden)
	admins := w.in(map[string]string{"payments": api.RoleAdmin, "shop": api.RoleAdmin, "global": api.RoleAdmin})
	w.must(put(admins, "more", "payments", reach))
	for field, beyond := range map[string]func(*api.Workspace){
		"stack":     func(ws *api.Workspace) { ws.Stack = "live" },
		"namespace": func(ws *api.Workspace) { ws.Namespace = "live" },
	} {
		for name, project := range map[string]string{"more": "payments", "net": "payments", "new": "shop"} { // changed, moved, made
			err := put(admins, name, project, beyond)
			wantErr(t, err, workflow.ErrForbidden)
			if err == nil || !strings.HasPrefix(err.Error(), field+": ") {
				t.Errorf("%s of %s: %v, want the field", field, name, err)
			}
		}
	}
	// The fields that an admin of the organization set stay when an admin of both projects moves the workspace.
	set := func(ws *api.Workspace) { ws.Stack = "live" }
	w.must(put(w.admin, "net", "shop", set))
	w.must(put(admins, "net", "payments", set))
}

// A run that registers its workspace is no way around the workspace's project, and releasing a lock needs its admin.
func TestSubmit_NeedsTheRoleInTheWorkspacesProject(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("payments", "global")
	w.madeProject("shop", "global")
	w.workspace("theirs", inProject("shop"))
	who := w.in(map[string]string{"payments": api.RoleOperator, "shop": api.RoleViewer})
	submit := func(in api.Submit) error {
		_, err := w.plane.Submit(w.ctx(), who, "", in)
		return err
	}
	register := func(name, project string) *api.Workspace {
		return &api.Workspace{Name: name, Project: project, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}}}
	}
	wantErr(t, submit(api.Submit{Workspace: "theirs", Operation: workflow.Preview}), workflow.ErrForbidden)
	wantErr(t, submit(api.Submit{Workspace: "theirs", Operation: workflow.Preview, Register: register("theirs", "payments")}), workflow.ErrForbidden)
	wantErr(t, submit(api.Submit{Workspace: "new", Operation: workflow.Preview, Register: register("new", "shop")}), workflow.ErrForbidden)
	w.must(submit(api.Submit{Workspace: "new", Operation: workflow.Preview, Register: register("new", "payments")}))
	wantErr(t, submit(api.Submit{Workspace: "new", Operation: workflow.StateUnlock, LockID: "1"}), workflow.ErrForbidden)
	if err := w.plane.DeletePool(w.ctx(), who, "default"); err == nil || !strings.HasSuffix(err.Error(), "this is a token with roles in projects only") {
		t.Errorf("an action that needs a role in the organization: %v", err)
	}
	who.Grants["payments"] = api.RoleAdmin
	if err := submit(api.Submit{Workspace: "new", Operation: workflow.StateUnlock, LockID: "1"}); err == nil || strings.Contains(err.Error(), "role") {
		t.Errorf("an admin of the project: %v", err) // a command workspace has no lock
	}
}

// The name of a deleted workspace may belong to another project by now: its workflows are for the organization's roles.
func TestWorkflow_OfADeletedWorkspaceNeedsAnOrgRole(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("payments", "global")
	w.madeProject("shop", "global")
	w.workspace("net", inProject("shop"))
	old := w.submit("net", workflow.Preview).ID
	_, err := w.plane.Cancel(w.ctx(), w.admin, old, api.WithReason{})
	w.must(err)
	w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
	w.workspace("net", inProject("payments"))
	young := w.submit("net", workflow.Preview).ID
	for project, want := range map[string][]string{"payments": {young}, "shop": nil} {
		who := w.in(map[string]string{project: api.RoleAdmin})
		_, err := w.plane.Workflow(w.ctx(), who, old)
		wantErr(t, err, workflow.ErrForbidden)
		if _, ids, _ := w.seen(who, 50); !slices.Equal(ids, want) {
			t.Errorf("an admin of %s sees %v, want %v", project, ids, want)
		}
	}
	if _, err := w.plane.Workflow(w.ctx(), w.as(api.RoleViewer), old); err != nil {
		t.Errorf("a viewer of the organization: %v", err)
	}
}

// Members with roles in projects only do not see which workspaces of others a pool serves.
func TestPools_ShowLessToWhoHasRolesInProjectsOnly(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("secret-plan")
	name, path, assigned := "trusted", "/dayfly/trusted/", []string{"secret-plan"}
	_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: &name, RolePath: &path, AssignedWorkspaces: &assigned})
	w.must(err)
	who := w.in(map[string]string{"payments": api.RoleAdmin})
	one, err := w.plane.Pool(w.ctx(), who, name)
	w.must(err)
	all, err := w.plane.Pools(w.ctx(), who, "", 0)
	w.must(err)
	for _, pool := range append(all.Items, one) {
		if pool.Name == "" || pool.Status == "" || pool.RolePath != "" || pool.AssignedWorkspaces != nil {
			t.Errorf("got %+v", pool)
		}
	}
	_, err = w.plane.Runners(w.ctx(), who, name)
	wantErr(t, err, workflow.ErrForbidden)
}

// C16: a token's roles in projects are of projects that exist, and the audit trail has them.
func TestToken_HasRolesInProjects(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("payments", "global")
	create := func(who controlplane.Principal, role string, grants map[string]string) (api.TokenValue, error) {
		return w.plane.CreateToken(w.ctx(), who, api.NewToken{Name: "ci", Role: role, Grants: grants})
	}
	for _, tt := range []struct {
		role   string
		grants map[string]string
		field  string
	}{
		{"", nil, "role"},
		{"owner", map[string]string{"payments": api.RoleViewer}, "role"},
		{"", map[string]string{"payments": "owner"}, "grants.payments"},
		{"", map[string]string{"payments": ""}, "grants.payments"},
		{"", map[string]string{"no-such": api.RoleViewer}, "grants.no-such"},
		{"viewer", map[string]string{"a/b": api.RoleViewer}, "grants.a/b"},
	} {
		_, err := create(w.admin, tt.role, tt.grants)
		wantErr(t, err, workflow.ErrInvalid)
		if err == nil || !strings.HasPrefix(err.Error(), tt.field+":") {
			t.Errorf("role %q, grants %v: %v, want the field %s", tt.role, tt.grants, err, tt.field)
		}
	}
	_, err := create(w.in(map[string]string{"payments": api.RoleAdmin, "global": api.RoleAdmin}), "", map[string]string{"payments": api.RoleViewer})
	wantErr(t, err, workflow.ErrForbidden)
	grants := map[string]string{"payments": api.RoleOperator, "global": api.RoleViewer}
	made, err := create(w.admin, "", grants)
	w.must(err)
	who, err := w.plane.Authenticate(w.ctx(), made.Value)
	w.must(err)
	if d := cmp.Diff(grants, who.Grants); d != "" || who.Role != "" || who.TokenID != made.Token.ID {
		t.Errorf("it is of %+v: %s", who, d)
	}
	trail, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Action: "token.create"})
	w.must(err)
	if got := trail.Items[0]; got.Action != "token.create" || got.Detail != "ci of ci as global=viewer, payments=operator" {
		t.Errorf("the audit trail says %+v", got)
	}
}
