package httpapi_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// A team lays out its projects, pools and workspaces, and asks where a run would go and what runs in a pool.
func TestAPI_ATeamFitsIn(t *testing.T) {
	w := newWorld(t)
	ctx, admin := t.Context(), w.client(t, w.admin)
	_, err := admin.CreateProject(ctx, api.ProjectSettings{Name: new("payments")})
	must(t, err)
	eu, err := admin.CreateProject(ctx, api.ProjectSettings{Name: new("payments-eu"), Parent: new("payments"), Description: new("Europe")})
	must(t, err)
	equal(t, "parent", eu.Parent, "payments")
	made, err := admin.CreatePool(ctx, api.PoolSettings{Name: new("prod"), AssignedProjects: &[]string{"payments"}, Labels: &[]string{"vpc", "big"}})
	must(t, err)
	equal(t, "assigned to all", made.Pool.AssignedToAll, false)
	_, err = admin.UpdateProject(ctx, "payments", api.ProjectSettings{Pool: new("prod")})
	must(t, err)
	_, _, err = admin.PutWorkspace(ctx, api.Workspace{
		Name: "ledger", Project: "payments-eu", RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"preview": "true"}},
	})
	must(t, err)
	verdicts, err := admin.ExplainPools(ctx, api.ExplainPools{Workspace: "ledger", Type: workflow.Deployment, Limit: 10})
	must(t, err)
	for _, v := range verdicts.Items {
		want := api.PoolVerdict{Pool: "prod", Gets: true, Why: "project payments has it"}
		if v.Pool == "default" {
			want = api.PoolVerdict{Pool: "default", Why: "pool prod is nearer: project payments has it"}
		}
		equal(t, "verdict", v, want)
	}

	pool, err := admin.AssignPool(ctx, "prod", api.AssignmentChange{
		Add: api.Assignments{Workspaces: []string{"ledger"}, Stacks: []string{"core"}}, Remove: api.Assignments{Projects: []string{"payments"}},
	})
	must(t, err)
	equal(t, "assignments", len(pool.AssignedWorkspaces)+len(pool.AssignedStacks)+len(pool.AssignedProjects), 2)
	_, err = admin.AssignPool(ctx, "prod", api.AssignmentChange{Add: api.Assignments{Projects: []string{"payment"}}})
	is(t, "assignment to a project that does not exist", err, workflow.ErrInvalid)
	o, err := admin.UpdateOrganization(ctx, api.OrganizationSettings{DefaultPool: new("prod"), Limit: new(20)})
	must(t, err)
	equal(t, "default pool", o.DefaultPool, "prod")
	o, err = admin.UpdateOrganization(ctx, api.OrganizationSettings{DefaultPool: new("")})
	must(t, err)
	equal(t, "default pool", o.DefaultPool, "default")
	equal(t, "limit", o.Limit, 20)
	active, err := admin.Workflows(ctx, client.Filter{Pool: "prod", State: "active"})
	must(t, err)
	equal(t, "active in the pool", len(active.Items), 0)

	token, err := admin.CreateToken(ctx, api.NewToken{Name: "dev", Role: api.RoleOperator})
	must(t, err)
	operator := w.client(t, token.Value)
	projects, err := operator.Projects(ctx, "", 0)
	must(t, err)
	equal(t, "projects", len(projects.Items), 3)
	_, err = operator.Project(ctx, "payments")
	must(t, err)
	for what, err := range map[string]error{
		"project.create": second(operator.CreateProject(ctx, api.ProjectSettings{Name: new("mine")})),
		"project.update": second(operator.UpdateProject(ctx, "payments", api.ProjectSettings{Pool: new("")})),
		"project.delete": operator.DeleteProject(ctx, "payments-eu"),
		"pool.assign":    second(operator.AssignPool(ctx, "prod", api.AssignmentChange{Add: api.Assignments{All: true}})),
	} {
		is(t, what, err, workflow.ErrForbidden)
		refused := false
		page, err := admin.Audit(ctx, api.AuditFilter{Limit: 50})
		must(t, err)
		for _, e := range page.Items {
			refused = refused || e.Action == what && e.Actor == "dev" && e.Outcome == "refused"
		}
		equal(t, "refusal of "+what+" in the audit trail", refused, true)
	}
	is(t, "deletion of a project in use", admin.DeleteProject(ctx, "payments-eu"), workflow.ErrInUse)
	must(t, admin.DeleteWorkspace(ctx, "ledger"))
	must(t, admin.DeleteProject(ctx, "payments-eu"))
}

func second[T any](_ T, err error) error { return err }
