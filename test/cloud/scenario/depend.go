package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// policiesAndTree is two workspaces of which one takes an output of the other. A policy of the private git stops the
// first apply, and with a waiver a tree applies both.
func policiesAndTree(ctx context.Context, s *scene) {
	const name, feeds, rule = "held", "fed", "main.deny_greeting"
	s.workspace(ctx, name, name)
	s.workspace(ctx, feeds, feeds, func(w *api.Workspace) {
		w.Inputs = []api.WorkspaceInput{{Workspace: name, Output: "greeting"}}
	})
	group := api.PolicyGroup{
		Name: "rules", Enforcement: api.PolicyWaivable, Workspaces: []string{name},
		Source: api.Source{Git: &api.GitSource{URL: s.Git.URL, Path: "rules", TokenRef: s.secrets[0].arn}},
	}
	_, _, err := s.c.Client.PutSetting(ctx, group)
	s.must(err)
	stopped := s.submit(ctx, name, "update", "a policy of the private git stops it")
	stopped = s.ends(ctx, stopped.ID, workflow.Failed, workflow.ReasonPolicyFailed, 1)
	s.check(strings.Contains(stopped.Detail, rule+" at terraform_data.first: do not say hello"), "the reason is %q", stopped.Detail)
	s.check(s.object(ctx, name, "") == "", "there is a state, and so it was applied")

	s.begin(name, "tree", "with a waiver it is applied, and then what depends on it")
	waiver := api.Waiver{Name: "greeting", Group: group.Name, Rule: rule, Workspace: name, Reason: "it is polite", Until: time.Now().Add(time.Hour)}
	_, _, err = s.c.Client.PutSetting(ctx, waiver)
	s.must(err)
	tree, err := s.c.Client.SubmitTree(ctx, api.NewTree{Workspace: name, Operation: workflow.Update})
	s.must(err)
	s.await(ctx, func() (bool, string) {
		if tree, err = s.c.Client.Tree(ctx, tree.ID); err != nil {
			return false, err.Error()
		}
		return tree.EndedAt != nil, fmt.Sprintf("the tree is %+v", tree)
	})
	s.check(tree.State == api.TreeSucceeded && len(tree.Nodes) == 2, "the tree ended as %+v", tree)
	first := s.ends(ctx, tree.Nodes[0].Workflow, workflow.Succeeded, "", 1)
	s.check(first.Result != nil && len(first.Result.Policies) == 1 && first.Result.Policies[0].Waived == 1, "it reports %+v", first.Result)
	s.begin(feeds, "update", "of the tree, with the output of the other one")
	then := s.ends(ctx, tree.Nodes[1].Workflow, workflow.Succeeded, "", 1)
	s.check(output(then, "said") == "they said hello", "its outputs are %+v", then.Result)
	s.check(then.SubmittedAt.After(*first.EndedAt), "it was submitted before the other one had ended")
}
