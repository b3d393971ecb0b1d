package console_test

import (
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestRun_OfATreeSaysWhereTheOthersStand(t *testing.T) {
	s := newSite(t)
	s.workspace("net")
	for _, names := range [][2]string{{"db", "net"}, {"app", "db"}} {
		_, _, err := s.plane.PutWorkspace(t.Context(), s.admin, api.Workspace{
			Name: names[0], RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Directory: "/src"}, Commands: map[string]string{"update": "true", "destroy": "true"}}, After: []string{names[1]},
		})
		s.must(err)
	}
	tree, err := s.plane.SubmitTree(t.Context(), s.admin, "", api.NewTree{Workspace: "net", Operation: workflow.Update})
	s.must(err)
	net := "/runs/" + tree.Nodes[0].Workflow
	shows(t, s.get(net), "Tree · update of net and all that depend on it · 1 of 3 workspaces", "● running net", "○ waiting db waits for net", "dayfly tree cancel "+tree.ID)
	shows(t, s.get("/workspaces/net"), "Last tree update")
	shows(t, s.get("/workspaces/db"), "!Last tree")
	job, run := s.start()
	s.end(job, run, api.Result{Outcome: workflow.Succeeded})
	tree, err = s.plane.Tree(t.Context(), s.admin, tree.ID)
	s.must(err)
	page := s.get("/runs/" + tree.Nodes[1].Workflow)
	shows(t, page, "2 of 3 workspaces", "✓ succeeded net run", "● running db", "waits for db")
	job, run = s.start()
	s.end(job, run, api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed})
	shows(t, s.get(net), "✗ failed db run its run failed (step_failed)", "– skipped app db failed", ", failed", "!dayfly tree cancel")

	other := s.submit("net", workflow.Update)
	shows(t, s.get("/runs/"+other.ID), "!Tree ·")

	destroy, err := s.plane.SubmitTree(t.Context(), s.admin, "", api.NewTree{Workspace: "net", Operation: workflow.Destroy})
	s.must(err)
	shows(t, s.get("/runs/"+destroy.Nodes[2].Workflow), "Tree · destroy of net and all that depend on it · 1 of 3 workspaces")
}
