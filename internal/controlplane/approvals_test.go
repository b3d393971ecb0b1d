package controlplane_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// requiring is what a level requires.
func requiring(rules ...string) *api.Approval { return &api.Approval{Required: true, Rules: rules} }

// levels are those that require something of a workspace, each with its rules.
func (w *world) levels(name string) (out []string) {
	w.t.Helper()
	c := ledger.New(w.store, ledger.Config{Now: w.clock.now}).View()
	ws, err := catalog.Workspace(w.ctx(), c, "default", name)
	w.must(err)
	found, _, err := catalog.Requirements(w.ctx(), c, "default", ws)
	w.must(err)
	for _, r := range found {
		out = append(out, r.Of+": "+strings.Join(r.Rules, ", "))
	}
	return out
}

func TestRequirements_IncludeEveryLevelAbove(t *testing.T) {
	w := newWorld(t, memory.New())
	project := func(name string, in *api.Approval) {
		t.Helper()
		got, err := w.plane.UpdateProject(w.ctx(), w.admin, name, api.ProjectSettings{Approval: in})
		w.must(err)
		if in.Required != (got.Approval != nil) {
			t.Errorf("project %s: %+v is shown as %+v", name, in, got.Approval)
		}
	}
	w.madeProject("teams", "global")
	w.madeProject("payments", "teams")
	w.madeProject("shop", "global")
	w.workspace("net", inProject("payments"))
	w.workspace("free", inProject("shop"))
	if got := w.levels("net"); got != nil {
		t.Errorf("at first: %q", got)
	}
	o, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{Approval: requiring("changes>5")})
	if w.must(err); !cmp.Equal(o.Approval, requiring("changes > 5")) {
		t.Errorf("the organization is shown as %+v", o.Approval)
	}
	project("global", requiring("replaces"))
	project("teams", requiring())
	project("payments", requiring("destroys"))
	w.workspace("net", inProject("payments"), func(ws *api.Workspace) { ws.Approval = requiring("changes > 1") })
	want := []string{"the organization: changes > 5", "project global: replaces", "project teams: ", "project payments: destroys", "the workspace: changes > 1"}
	if d := cmp.Diff(want, w.levels("net")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want[:2], w.levels("free")); d != "" {
		t.Error(d)
	}

	project("teams", &api.Approval{}) // taken away
	_, err = w.plane.UpdateProject(w.ctx(), w.admin, "payments", api.ProjectSettings{Parent: new("shop")})
	w.must(err)
	o, err = w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{Approval: &api.Approval{}})
	if w.must(err); o.Approval != nil {
		t.Errorf("the organization is shown as %+v", o.Approval)
	}
	if d := cmp.Diff([]string{"project global: replaces", "project payments: destroys", "the workspace: changes > 1"}, w.levels("net")); d != "" {
		t.Error(d)
	}

	// A project that is made again under a name requires nothing of the one before.
	w.workspace("net", inProject("shop"))
	w.must(w.plane.DeleteProject(w.ctx(), w.admin, "payments"))
	if p, err := w.plane.CreateProject(w.ctx(), w.admin, "", api.ProjectSettings{Name: new("payments")}); err != nil || p.Approval != nil {
		t.Errorf("made again: %+v, %v", p, err)
	}
}

// Changes of a level, or of the list of levels, between a decision and its commit.
func TestRequirements_AreRecheckedAfterARacingChange(t *testing.T) {
	update := func(w *world, name string, in api.ProjectSettings) {
		_, err := w.plane.UpdateProject(w.ctx(), w.admin, name, in)
		w.must(err)
	}
	for name, c := range map[string]struct {
		change func(w *world)
		again  bool
	}{
		"nothing": {func(*world) {}, false},
		"another project": {func(w *world) {
			update(w, "shop", api.ProjectSettings{Approval: requiring()})
		}, false},
		"the organization": {func(w *world) {
			_, err := w.plane.UpdateOrganization(w.ctx(), w.admin, api.OrganizationSettings{Approval: requiring()})
			w.must(err)
		}, true},
		"the project":            {func(w *world) { update(w, "payments", api.ProjectSettings{Approval: requiring()}) }, true},
		"the root":               {func(w *world) { update(w, "global", api.ProjectSettings{Approval: requiring()}) }, true},
		"one that is taken away": {func(w *world) { update(w, "teams", api.ProjectSettings{Approval: &api.Approval{}}) }, true},
		"the place of one above": {func(w *world) { update(w, "teams", api.ProjectSettings{Parent: new("shop")}) }, true},
		"the workspace": {func(w *world) {
			w.workspace("net", inProject("payments"), func(ws *api.Workspace) { ws.Approval = requiring() })
		}, true},
		"the workspace's project": {func(w *world) { w.workspace("net", inProject("shop")) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New())
			w.madeProject("teams", "global")
			w.madeProject("payments", "teams")
			w.madeProject("shop", "global")
			w.workspace("net", inProject("payments"))
			update(w, "teams", api.ProjectSettings{Approval: requiring()})
			tries := 0
			l := ledger.New(w.store, ledger.Config{Now: w.clock.now})
			w.must(l.Change(w.ctx(), func(ctx context.Context, change *ledger.Change) error {
				ws, err := catalog.Workspace(ctx, change, "default", "net")
				if err != nil {
					return err
				}
				_, from, err := catalog.Requirements(ctx, change, "default", ws)
				if err != nil {
					return err
				}
				for _, k := range from {
					change.Check(k)
				}
				if tries++; tries == 1 {
					c.change(w)
				}
				change.Create(store.Key{Part: "test", Sort: "decided"}, "x")
				return nil
			}))
			if again := tries > 1; again != c.again {
				t.Errorf("it was decided %d times", tries)
			}
		})
	}
}

func TestApproval_AnOperatorAddsAndAnAdminTakesAway(t *testing.T) {
	w := newWorld(t, memory.New())
	w.madeProject("payments", "global")
	operator, admin := w.in(map[string]string{"payments": api.RoleOperator}), w.in(map[string]string{"payments": api.RoleAdmin})
	put := func(who controlplane.Principal, a *api.Approval) error {
		_, _, err := w.plane.PutWorkspace(w.ctx(), who, api.Workspace{
			Name: "net", Project: "payments", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/src"}}, Approval: a,
		})
		return err
	}
	refused := func(err error, field string) {
		t.Helper()
		e, ok := errors.AsType[*workflow.Error](err)
		if !ok || !errors.Is(err, workflow.ErrForbidden) || e.Field != field {
			t.Errorf("got %v, want %q to be forbidden", err, field)
		}
	}
	w.must(put(operator, nil))
	w.must(put(operator, requiring("destroys")))
	w.must(put(operator, requiring()))
	refused(put(operator, requiring("destroys")), "approval")
	refused(put(operator, nil), "approval")
	refused(put(operator, &api.Approval{Required: true, Expires: "100h"}), "approval")
	w.must(put(admin, requiring("destroys")))
	w.must(put(admin, nil))

	_, err := w.plane.UpdateProject(w.ctx(), admin, "payments", api.ProjectSettings{Approval: requiring()})
	refused(err, "")
	_, err = w.plane.UpdateOrganization(w.ctx(), admin, api.OrganizationSettings{Approval: requiring()})
	refused(err, "")

	wantErr(t, put(admin, requiring("never")), workflow.ErrInvalid)
	audit, err := w.plane.Audit(w.ctx(), w.admin, api.AuditFilter{Limit: 50})
	w.must(err)
	var said []string
	for _, e := range audit.Items {
		if e.Action == "workspace.apply" && e.Detail != "" && e.Outcome == "done" {
			said = append(said, e.Detail)
		}
	}
	if d := cmp.Diff([]string{"approval none", "approval required for destroys", "approval required", "approval required for destroys"}, said); d != "" {
		t.Errorf("the audit trail says:\n%s", d)
	}
}

func TestWorkspace_KnowsWhoChangedWhatItsRunsDo(t *testing.T) {
	w := newWorld(t, memory.New())
	by := func() string {
		ws, err := catalog.Workspace(w.ctx(), ledger.New(w.store, ledger.Config{Now: w.clock.now}).View(), "default", "net")
		w.must(err)
		return ws.By
	}
	other := w.admin
	other.Name = "ada"
	w.workspace("net")
	if got := by(); got != "admin" {
		t.Errorf("made by %q", got)
	}
	w.admin, other = other, w.admin
	w.workspace("net", func(ws *api.Workspace) { ws.Description = "a net" })
	if got := by(); got != "admin" {
		t.Errorf("described by %q", got)
	}
	w.workspace("net", func(ws *api.Workspace) { ws.Commands["update"] = "false" })
	if got := by(); got != "ada" {
		t.Errorf("changed by %q", got)
	}
	w.admin = other
	_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "own", Operation: workflow.Update, Register: &api.Workspace{Name: "own", RunSettings: api.RunSettings{Engine: api.EngineTofu, Source: api.Source{Directory: "/own"}}}})
	w.must(err)
	rec, ok, err := ledger.Load[record.Workspace](w.ctx(), ledger.New(w.store, ledger.Config{Now: w.clock.now}).View(), record.WorkspaceKey("default", "own"))
	if w.must(err); !ok || rec.By != "admin" {
		t.Errorf("registered by %q", rec.By)
	}
}
