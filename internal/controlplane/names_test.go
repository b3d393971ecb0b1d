package controlplane_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// References to a thing that is deleted and made anew under its name, moved, or renamed. Grants and actions are not
// for the new one: they end, follow the id, or must be removed first. Only restrictions and notifications go by the
// name.
func TestNames_ANewNamesakeInheritsNothing(t *testing.T) {
	const stays = ""
	edge, shop, admin := "edge", "shop", map[string]string{"shop": api.RoleAdmin}
	ofNet := func(s *api.Schedule) { s.Projects, s.Workspaces = nil, []string{"net"} }
	anew := map[string]struct {
		deletes string
		names   func(w *world)
		refused string             // the deletion, with this; stays: it is made anew
		after   func(w *world) any // the check of it then
		want    any
	}{
		"an assignment of the workspace": {"workspace", func(w *world) {
			w.newPool(edge, func(s *api.PoolSettings) { s.AssignedWorkspaces = &[]string{"net"} })
		}, stays, func(w *world) any { return must1(w.plane.Pool(w.ctx(), w.admin, edge))(w).AssignedWorkspaces }, []string(nil)},
		"a waiver":               {"workspace", func(w *world) { w.policyGroup(); w.waiver() }, "has waivers that are in force, such as legacy", nil, nil},
		"a schedule":             {"workspace", func(w *world) { w.schedule(ofNet) }, "schedule hourly names workspace net", nil, nil},
		"a schedule of projects": {"workspace", func(w *world) { w.schedule() }, stays, func(w *world) any { return len(must1(w.plane.WorkspaceSchedules(w.ctx(), w.admin, "net"))(w).Items) }, 1},
		"a workspace after it":   {"workspace", func(w *world) { w.workspace("app", func(in *api.Workspace) { in.After = []string{"net"} }) }, "1 workspace depends on workspace net", nil, nil},
		"an input of its outputs": {"workspace", func(w *world) {
			w.workspace("app", func(in *api.Workspace) {
				in.Inputs = []api.WorkspaceInput{{Workspace: "net", Output: "vpc", Variable: "vpc"}}
			})
		}, "1 workspace depends on workspace net", nil, nil},
		"a policy group": {"workspace", func(w *world) { w.policyGroup() }, stays, func(w *world) any { return must1(w.plane.PolicyGroups.Show(w.ctx(), w.admin, "rules"))(w).Workspaces }, []string{"net"}},

		"a workspace in it": {"project", func(w *world) { w.workspace("app", inProject(shop)) }, "workspace app belongs to it", nil, nil},
		"a project below":   {"project", func(w *world) { w.madeProject("cart", shop) }, "project cart lies below it", nil, nil},
		"an assignment of the project": {"project", func(w *world) {
			w.newPool(edge, func(s *api.PoolSettings) { s.AssignedProjects = &[]string{shop} })
		}, "pool edge is assigned to it", nil, nil},
		"a schedule of the project": {"project", func(w *world) { w.schedule(func(s *api.Schedule) { s.Projects = []string{shop} }) }, "schedule hourly names project shop", nil, nil},
		"a member of a git host": {"project", func(w *world) {
			w.forge(api.HostGitHub, api.Member{ID: 9, Principal: "carl", Grants: admin})
		}, "member carl of git host forge has the role admin in it", nil, nil},
		"a notification": {"project", func(w *world) { w.notified("ops", func(n *api.Notification) { n.Projects = []string{shop} }) }, stays, func(w *world) any {
			return must1(w.plane.Notifications.Show(w.ctx(), w.admin, "ops"))(w).Projects
		}, []string{shop}},

		"a workspace in the pool": {"pool", func(w *world) { w.workspace("app", func(in *api.Workspace) { in.Pool = edge }) }, "workspace app names pool edge", nil, nil},
		"a project with the pool": {"pool", func(w *world) {
			must1(w.plane.UpdateProject(w.ctx(), w.admin, shop, api.ProjectSettings{Pool: &edge}))(w)
		}, "project shop has pool edge", nil, nil},
		"a notification by the pool": {"pool", func(w *world) { w.notified("ops", func(n *api.Notification) { n.Pool = edge }) }, "notification ops names pool edge", nil, nil},
		"a git host by the pool":     {"pool", func(w *world) { w.gitHostBy(edge) }, "git host forge names pool edge", nil, nil},
		"the organization's default pool": {"pool", func(w *world) {
			must1(w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{DefaultPool: &edge}))(w)
		}, stays, func(w *world) any { return must1(w.plane.Organization(w.ctx(), w.admin))(w).DefaultPool }, "default"},
		"a trust rule of the pool": {"pool", func(w *world) { w.ruleOf(edge) }, "a trust rule of issuer idp names pool edge", nil, nil},
	}
	for why := range (&world{}).grantsIn(shop) {
		one := anew["a workspace in it"]
		one.names, one.refused = func(w *world) { must1(w.grantsIn(shop)[why]())(w) }, why
		anew["a grant: "+why] = one
	}
	for name, tc := range anew {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			var deletes func() error
			makes := func() { w.newPool(edge) }
			switch tc.deletes {
			case "workspace":
				makes, deletes = func() { w.workspace("net") }, func() error { return w.plane.DeleteWorkspace(w.ctx(), w.admin, "net") }
			case "project":
				makes, deletes = func() { w.madeProject(shop, "") }, func() error { return w.plane.DeleteProject(w.ctx(), w.admin, shop) }
			default:
				w.madeProject(shop, "")
				deletes = func() error { return w.plane.DeletePool(w.ctx(), w.admin, edge) }
			}
			makes()
			tc.names(w)
			err := deletes()
			if tc.refused != stays {
				if !errors.Is(err, workflow.ErrInUse) || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v, want a refusal that says: %s", err, tc.refused)
				}
				return
			}
			w.must(err)
			makes()
			if d := cmp.Diff(tc.want, tc.after(w)); d != "" {
				t.Errorf("after it was made anew (-want +got):\n%s", d)
			}
		})
	}
}

func TestNames_OfAPoolThatIsRenamed(t *testing.T) {
	edge, far := "edge", "far"
	for name, tc := range map[string]struct {
		names   func(w *world)
		refused string
		after   func(w *world) any
		want    any
	}{
		"a workspace":    {func(w *world) { w.workspace("app", func(in *api.Workspace) { in.Pool = edge }) }, "workspace app names pool edge", nil, nil},
		"a notification": {func(w *world) { w.notified("ops", func(n *api.Notification) { n.Pool = edge }) }, "notification ops names pool edge", nil, nil},
		"a trust rule":   {func(w *world) { w.ruleOf(edge) }, "a trust rule of issuer idp names pool edge", nil, nil},
		"a git host":     {func(w *world) { w.gitHostBy(edge) }, "git host forge names pool edge", nil, nil},
		"a project": {func(w *world) {
			w.madeProject("shop", "")
			must1(w.plane.UpdateProject(w.ctx(), w.admin, "shop", api.ProjectSettings{Pool: &edge}))(w)
		}, "", func(w *world) any { return must1(w.plane.Project(w.ctx(), w.admin, "shop"))(w).Pool }, far},
		"the default pool": {func(w *world) {
			must1(w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{DefaultPool: &edge}))(w)
		}, "", func(w *world) any { return must1(w.plane.Organization(w.ctx(), w.admin))(w).DefaultPool }, far},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.newPool(edge)
			tc.names(w)
			_, err := w.plane.UpdatePool(w.ctx(), w.admin, edge, api.PoolSettings{Name: &far})
			if tc.refused != "" {
				if !errors.Is(err, workflow.ErrInUse) || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("got %v, want a refusal that says: %s", err, tc.refused)
				}
				return
			}
			w.must(err)
			w.newPool(edge) // another one
			if d := cmp.Diff(tc.want, tc.after(w)); d != "" {
				t.Errorf("after it was renamed (-want +got):\n%s", d)
			}
		})
	}
}

// Grants of an admin to a workspace go with it into another project, and grants by its project do not.
func TestNames_OfAWorkspaceThatIsMoved(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("shop", "")
	w.madeProject("web", "")
	w.workspace("net", inProject("shop"))
	no := false
	w.newPool("own", func(s *api.PoolSettings) { s.AssignedToAll, s.AssignedWorkspaces = &no, &[]string{"net"} })
	w.newPool("theirs", func(s *api.PoolSettings) { s.AssignedToAll, s.AssignedProjects = &no, &[]string{"shop"} })
	w.schedule(func(s *api.Schedule) { s.Name, s.Projects = "of-shop", []string{"shop"} })
	w.schedule(func(s *api.Schedule) { s.Name, s.Projects, s.Workspaces = "of-net", nil, []string{"net"} })
	serve := func() (names []string) {
		page := must1(w.plane.ExplainPools(w.ctx(), w.admin, api.ExplainPools{Workspace: "net"}))(w)
		for _, v := range page.Items {
			if strings.Contains(v.Why, "is not assigned") {
				names = append(names, v.Pool)
			}
		}
		return names
	}
	scheduled := func() (names []string) {
		for _, s := range must1(w.plane.WorkspaceSchedules(w.ctx(), w.admin, "net"))(w).Items {
			names = append(names, s.Schedule)
		}
		return names
	}
	for _, c := range []struct {
		project            string
		scheduled, refused []string
	}{
		{"shop", []string{"of-net", "of-shop"}, nil}, {"web", []string{"of-net"}, []string{"theirs"}},
	} {
		for _, pool := range []string{"own", "theirs"} {
			w.workspace("net", inProject(c.project), func(in *api.Workspace) { in.Pool = pool })
			want := []string(nil)
			for _, r := range c.refused {
				if r == pool {
					want = []string{r}
				}
			}
			if d := cmp.Diff(want, serve()); d != "" {
				t.Errorf("in %s and pool %s, not assigned (-want +got):\n%s", c.project, pool, d)
			}
		}
		if d := cmp.Diff(c.scheduled, scheduled()); d != "" {
			t.Errorf("in %s (-want +got):\n%s", c.project, d)
		}
	}
}

// must1 is a value that must be there.
func must1[T any](v T, err error) func(w *world) T {
	return func(w *world) T {
		w.t.Helper()
		w.must(err)
		return v
	}
}

func (w *world) gitHostBy(pool string) {
	w.t.Helper()
	in := settings(api.HostGitHub, operator(annaID, w.principal("anna").Name))
	in.Pool = pool
	_, _, err := w.plane.GitHosts.Put(w.ctx(), w.admin, in)
	w.must(err)
}

// ruleOf makes an issuer of which a rule gives the pool of that name, now.
func (w *world) ruleOf(pool string) {
	w.t.Helper()
	w.trust(w.issuer(), api.TrustRule{Claims: map[string]string{"sub": "agent"}, Becomes: api.KindPool, Pool: pool})
}
