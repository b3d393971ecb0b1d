package controlplane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func (w *world) madeProject(name, parent string) {
	w.t.Helper()
	_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: &name, Parent: &parent})
	w.must(err)
}

func (w *world) projects(who controlplane.Principal) (names []string) {
	w.t.Helper()
	for cursor, first := "", true; first || cursor != ""; first = false {
		page, err := w.plane.ListProjects(w.ctx(), who, cursor, 2)
		w.must(err)
		for _, p := range page.Items {
			names = append(names, p.Name)
		}
		cursor = page.Next
	}
	return names
}

func TestProjects_AreATreeThatHasNoCirclesAndAnEnd(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		parent := ""
		for i := range 7 { // and the root
			name := fmt.Sprintf("p%d", i)
			w.madeProject(name, parent)
			parent = name
		}
		_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("p7"), Parent: new("p6")})
		wantErr(t, err, workflow.ErrInvalid)
		w.madeProject("side", "")
		w.madeProject("below", "side")
		// A project moves with all below it, and they must still fit.
		for name, to := range map[string]string{"side": "p5", "p0": "p6", "p3": "p3", "global": "side"} {
			_, err := w.plane.UpdateProject(w.ctx(), w.admin, name, api.ProjectSettings{Parent: &to})
			wantErr(t, err, workflow.ErrInvalid)
		}
		_, err = w.plane.UpdateProject(w.ctx(), w.admin, "side", api.ProjectSettings{Parent: new("nobody")})
		wantErr(t, err, workflow.ErrNotFound)
		_, err = w.plane.UpdateProject(w.ctx(), w.admin, "side", api.ProjectSettings{Parent: new("p4")})
		w.must(err)
		moved, err := w.plane.UpdateProject(w.ctx(), w.admin, "below", api.ProjectSettings{Parent: new("")})
		w.must(err)
		if moved.Parent != "global" {
			t.Errorf("got the parent %q", moved.Parent)
		}
		_, err = w.plane.UpdateProject(w.ctx(), w.admin, "below", api.ProjectSettings{Name: new("other")})
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("global")})
		wantErr(t, err, workflow.ErrExists)
		if got := w.projects(w.admin); got[0] != "global" || len(got) != 10 {
			t.Errorf("got %v", got)
		}
		// The root has a record from its first change on, and is still listed once.
		_, err = w.plane.UpdateProject(w.ctx(), w.admin, "global", api.ProjectSettings{Description: new("all")})
		w.must(err)
		if got := w.projects(w.admin); got[0] != "global" || len(got) != 10 {
			t.Errorf("got %v", got)
		}
	})
}

func TestProjects_DeletionIsRefusedUnlessEmpty(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.madeProject("eu", "")
		w.madeProject("eu-prod", "eu")
		refused := func(name, why string) {
			t.Helper()
			err := w.plane.DeleteProject(w.ctx(), w.admin, name)
			wantErr(t, err, workflow.ErrInUse)
			if !strings.Contains(err.Error(), why) {
				t.Errorf("got %v, want %q", err, why)
			}
		}
		refused("eu", "project eu-prod lies below it")
		w.workspace("net", func(ws *api.Workspace) { ws.Project = "eu-prod" })
		refused("eu-prod", "workspace net belongs to it")
		_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: new("prod"), AssignedProjects: &[]string{"eu-prod"}})
		w.must(err)
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
		refused("eu-prod", "pool prod is assigned to it")
		_, err = w.plane.AssignPool(w.ctx(), w.admin, "prod", api.AssignmentChange{Remove: api.Assignments{Projects: []string{"eu-prod"}}})
		w.must(err)
		for why, gives := range w.grantsIn("eu-prod") {
			end, err := gives()
			w.must(err)
			refused("eu-prod", why)
			w.must(end())
		}
		wantErr(t, w.plane.DeleteProject(w.ctx(), w.as(api.RoleOperator), "eu-prod"), workflow.ErrForbidden)
		w.must(w.plane.DeleteProject(w.ctx(), w.admin, "eu-prod"))
		w.must(w.plane.DeleteProject(w.ctx(), w.admin, "eu"))
		wantErr(t, w.plane.DeleteProject(w.ctx(), w.admin, "eu"), workflow.ErrNotFound)
		wantErr(t, w.plane.DeleteProject(w.ctx(), w.admin, "global"), workflow.ErrInvalid)
		page, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 50})
		w.must(err)
		var seen []string
		for _, e := range page.Items {
			seen = append(seen, e.Action+" "+e.Target+" "+e.Outcome)
		}
		for _, want := range []string{"project.create eu done", "project.delete eu-prod refused", "project.delete eu-prod done", "pool.assign prod done"} {
			if !slices.Contains(seen, want) {
				t.Errorf("the audit trail lacks %q: %v", want, seen)
			}
		}
	})
}

func TestProjects_ARepeatWithItsKeyMakesNothing(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		in := api.ProjectSettings{Name: new("eu"), Description: new("Europe")}
		for range 2 {
			made, err := w.plane.CreateProject(w.ctx(), w.admin, "key", in)
			w.must(err)
			if made.Name != "eu" || made.Description != "Europe" || made.Version != 1 {
				t.Errorf("got %+v", made)
			}
		}
		_, err := w.plane.CreateProject(w.ctx(), w.admin, "key", api.ProjectSettings{Name: new("us")})
		wantErr(t, err, workflow.ErrKeyReused)
		_, err = w.plane.CreateProject(w.ctx(), w.admin, "other", in)
		wantErr(t, err, workflow.ErrExists)
	})
}

func TestProjects_MembersSeeProjectsAboveAndBelow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		for _, p := range [][2]string{{"eu", ""}, {"eu-prod", "eu"}, {"eu-test", "eu"}, {"eu-prod-db", "eu-prod"}, {"us", ""}} {
			w.madeProject(p[0], p[1])
		}
		who := w.as(api.RoleViewer)
		who.Role, who.Grants = "", map[string]string{"eu-prod": api.RoleOperator}
		if got := w.projects(who); !slices.Equal(got, []string{"global", "eu", "eu-prod", "eu-prod-db"}) {
			t.Errorf("got %v", got)
		}
		_, err := w.plane.Project(w.ctx(), who, "eu")
		w.must(err)
		_, err = w.plane.Project(w.ctx(), who, "us")
		wantErr(t, err, workflow.ErrForbidden)
		_, err = w.plane.UpdateProject(w.ctx(), who, "eu-prod", api.ProjectSettings{Description: new("mine")})
		wantErr(t, err, workflow.ErrForbidden)
		w.workspace("net", func(ws *api.Workspace) { ws.Project = "eu-prod-db" })
		w.workspace("far", func(ws *api.Workspace) { ws.Project = "us" })
		page, err := w.plane.ExplainPools(w.ctx(), who, api.ExplainPools{Workspace: "net"})
		w.must(err)
		if len(page.Items) != 1 || !page.Items[0].Gets {
			t.Errorf("got %+v", page.Items)
		}
		_, err = w.plane.ExplainPools(w.ctx(), who, api.ExplainPools{Workspace: "far"})
		wantErr(t, err, workflow.ErrForbidden)
		who.Grants = nil
		_, err = w.plane.ListProjects(w.ctx(), who, "", 0)
		wantErr(t, err, workflow.ErrForbidden)
	})
}

func TestProjects_OnlyAnAdminMovesAWorkspace(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.madeProject("eu", "")
		w.workspace("net")
		operator := w.as(api.RoleOperator)
		ws, err := w.plane.Workspace(w.ctx(), operator, "net")
		w.must(err)
		if ws.Project != "global" {
			t.Errorf("got project %q, want global", ws.Project)
		}
		ws.Project = "eu"
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		wantErr(t, err, workflow.ErrForbidden)
		ws.Project = "nobody"
		_, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		wantErr(t, err, workflow.ErrNotFound)
		ws.Project = "eu"
		ws, _, err = w.plane.PutWorkspace(w.ctx(), w.admin, ws)
		w.must(err)
		ws.Description = "an operator's change"
		_, _, err = w.plane.PutWorkspace(w.ctx(), operator, ws)
		w.must(err)
	})
}

// The pool with the verdicts of a page is found also when it is on another page.
func TestExplainPools_IsTheSamePageByPage(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for i := range 5 {
			_, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: new(fmt.Sprintf("pool%d", i))})
			w.must(err)
		}
		_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{DefaultPool: new("pool4")})
		w.must(err)
		got := map[string]api.PoolVerdict{}
		for cursor, first := "", true; first || cursor != ""; first = false {
			page, err := w.plane.ExplainPools(w.ctx(), w.admin, api.ExplainPools{Workspace: "net", Cursor: cursor, Limit: 2})
			w.must(err)
			for _, v := range page.Items {
				got[v.Pool] = v
			}
			cursor = page.Next
		}
		if len(got) != 6 || !got["pool4"].Gets || got["default"].Why != "pool pool4 is nearer: it is the default pool of the organization" {
			t.Errorf("got %+v", got)
		}
		_, err = w.plane.ExplainPools(w.ctx(), w.admin, api.ExplainPools{Workspace: "net", Type: "other"})
		wantErr(t, err, workflow.ErrInvalid)
	})
}

// grantsIn are the ways to give roles in a project, by what the refusal of its deletion says. Each gives one, and returns
// what takes it away.
func (w *world) grantsIn(project string) map[string]func() (func() error, error) {
	admin := map[string]string{project: api.RoleAdmin}
	rules := func(rules ...api.TrustRule) func() (func() error, error) {
		return func() (func() error, error) {
			_, _, err := w.plane.Issuers.Put(w.ctx(), w.admin, api.Issuer{Name: "idp", URL: "https://id.example.com", Rules: rules})
			return func() error { return w.plane.Issuers.Delete(w.ctx(), w.admin, "idp") }, err
		}
	}
	bob := api.TrustRule{Claims: map[string]string{"sub": "bob"}, Becomes: api.KindService}
	granted, other := bob, bob
	granted.Grants, other.Role = admin, api.RoleViewer
	ops := api.TrustRule{GroupsClaim: "groups", Groups: map[string]api.GroupRole{"ops": {Grants: admin}}, Becomes: api.KindUser}
	return map[string]func() (func() error, error){
		"(ci) has the role admin in it": func() (func() error, error) {
			made, err := w.plane.CreateToken(w.ctx(), w.admin, api.NewToken{Name: "ci", Grants: admin})
			return func() error { return w.plane.RevokeToken(w.ctx(), w.admin, made.Token.ID) }, err
		},
		"rule 0 of issuer idp gives a role in it": rules(granted),
		"rule 1 of issuer idp gives a role in it": rules(other, ops),
		"service principal nightly has the role admin in it": func() (func() error, error) {
			_, err := w.plane.CreateService(w.ctx(), w.admin, api.NewServicePrincipal{Name: "nightly", ServicePrincipalSettings: api.ServicePrincipalSettings{Grants: &admin}})
			return func() error { return w.plane.DeleteService(w.ctx(), w.admin, "nightly") }, err
		},
	}
}

// deletes picks the commit that deletes a project.
func deletes(project string, do func()) func([]store.Op) func() {
	return func(ops []store.Op) func() {
		for _, op := range ops {
			if op.Key() == record.ProjectKey("default", project) && !op.IsPut() {
				return do
			}
		}
		return nil
	}
}

// A deletion has found that nothing belongs to the project, and something joins it before the deletion is committed.
func TestProjects_DeletionRacingAJoinLeavesNoOrphan(t *testing.T) {
	joins := map[string]func(w *world){
		"a workspace": func(w *world) { w.workspace("net", func(ws *api.Workspace) { ws.Project = "eu" }) },
		"a project":   func(w *world) { w.madeProject("eu-prod", "eu") },
		"a pool": func(w *world) {
			_, err := w.plane.AssignPool(w.ctx(), w.admin, "default", api.AssignmentChange{Add: api.Assignments{Projects: []string{"eu"}}})
			w.must(err)
		},
		"a service principal's new grant": func(w *world) {
			_, err := w.plane.CreateService(w.ctx(), w.admin, api.NewServicePrincipal{Name: "old", ServicePrincipalSettings: api.ServicePrincipalSettings{Role: new(api.RoleViewer)}})
			w.must(err)
			_, err = w.plane.UpdateService(w.ctx(), w.admin, "old", api.ServicePrincipalSettings{Grants: &map[string]string{"eu": api.RoleAdmin}})
			w.must(err)
		},
	}
	for why := range (&world{}).grantsIn("eu") {
		joins[why] = func(w *world) {
			_, err := w.grantsIn("eu")[why]()
			w.must(err)
		}
	}
	for name, join := range joins {
		t.Run(name, func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.madeProject("eu", "")
			st.beforeCommit = deletes("eu", func() { join(w) })
			wantErr(t, w.plane.DeleteProject(w.ctx(), w.admin, "eu"), workflow.ErrInUse)
			_, err := w.plane.Project(w.ctx(), w.admin, "eu")
			w.must(err)
		})
	}
}

// A grant has found its project, which is deleted before the grant is committed.
func TestProjects_AGrantIsNotForALaterProjectOfThatName(t *testing.T) {
	for why := range (&world{}).grantsIn("eu") {
		t.Run(why, func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			w.madeProject("eu", "")
			gone := false
			st.beforeCommit = writing(record.TreeKey("default"), "", func() {
				w.must(w.plane.DeleteProject(w.ctx(), w.admin, "eu"))
				gone = true
			})
			if _, err := w.grantsIn("eu")[why](); !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), "there is no project") {
				t.Errorf("got %v, want a refusal", err)
			}
			if !gone {
				t.Error("nothing was deleted meanwhile")
			}
		})
	}
}

// Two moves, each of which is right alone, together would make a circle.
func TestProjects_TwoMovesMakeNoCircle(t *testing.T) {
	st := &between{Store: memory.New()}
	w := newWorld(t, st)
	w.madeProject("a", "")
	w.madeProject("a2", "a")
	w.madeProject("b", "")
	w.madeProject("b2", "b")
	move := func(name, to string) error {
		_, err := w.plane.UpdateProject(w.ctx(), w.admin, name, api.ProjectSettings{Parent: &to})
		return err
	}
	st.beforeCommit = writing(record.ProjectKey("default", "a"), `"parent":"b2"`, func() { w.must(move("b", "a2")) })
	wantErr(t, move("a", "b2"), workflow.ErrInvalid)
}

// Two changes, each of which is right alone, together would make a tree that is too deep.
func TestProjects_TwoChangesMakeNoTreeThatIsTooDeep(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world) error{
		"a move": func(w *world) error {
			_, err := w.plane.UpdateProject(w.ctx(), w.admin, "more", api.ProjectSettings{Parent: new("leaf")})
			return err
		},
		"a new project": func(w *world) error {
			_, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("new"), Parent: new("leaf")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := &between{Store: memory.New()}
			w := newWorld(t, st)
			parent := ""
			for i := range 5 { // with the root six levels, and two are left
				w.madeProject(fmt.Sprintf("p%d", i), parent)
				parent = fmt.Sprintf("p%d", i)
			}
			w.madeProject("moved", "")
			w.madeProject("leaf", "moved")
			w.madeProject("more", "")
			st.beforeCommit = writing(record.ProjectKey("default", "moved"), `"parent":"p4"`, func() { w.must(meanwhile(w)) })
			_, err := w.plane.UpdateProject(w.ctx(), w.admin, "moved", api.ProjectSettings{Parent: new("p4")})
			wantErr(t, err, workflow.ErrInvalid)
			if st.beforeCommit != nil {
				t.Error("nothing happened meanwhile")
			}
		})
	}
}
