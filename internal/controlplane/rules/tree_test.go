package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var treeTime = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// fates are the ends of the runs of a tree, if they are made.
type fates map[string]fate

type fate struct {
	state   string // in which its run ends
	changed bool   // it applies changes
	facts   rules.TreeFacts
}

func treeOf(op workflow.Operation, names ...string) record.RunTree {
	t := record.RunTree{ID: "tree_1", Workspace: names[0], Op: op, State: api.TreeRunning}
	for _, name := range names {
		t.Nodes = append(t.Nodes, record.TreeNode{Workspace: name, State: api.TreeWaiting})
	}
	return t
}

// play takes a tree to its end. Which run ends next is chosen at random, and so are the changes of the edges
// meanwhile.
func play(t *testing.T, r *rand.Rand, tree record.RunTree, edges map[string][]string, will fates, meanwhile func(map[string][]string)) record.RunTree {
	t.Helper()
	began := map[string]bool{}
	for range 10 * (len(tree.Nodes) + 1) {
		var due []string
		before := tree
		tree, due = rules.NextOfTree(tree, edges, treeTime)
		wantHeldBackRightly(t, tree, edges, due)
		for _, n := range before.Nodes {
			if now := tree.Node(n.Workspace); n.State != api.TreeWaiting && n.State != now.State {
				t.Fatalf("%s went from %s to %s without a look at its run", n.Workspace, n.State, now.State)
			}
		}
		if tree.Over() {
			return tree
		}
		for _, name := range due {
			n := tree.Node(name)
			if why := rules.SkippedOfTree(tree, name, will[name].facts); why != "" {
				n.State, n.Note = api.TreeSkipped, why
				continue
			}
			if began[name] {
				t.Fatalf("%s runs twice", name)
			}
			began[name] = true
			n.State = api.TreeRunning
		}
		if running := tree.In(api.TreeRunning); len(running) > 0 && (len(due) == 0 || r.IntN(2) == 0) {
			n := tree.Node(running[r.IntN(len(running))])
			n.State, n.Changed = will[n.Workspace].state, will[n.Workspace].changed
		}
		if meanwhile != nil {
			meanwhile(edges)
		}
	}
	t.Fatalf("the tree does not end: %+v", tree)
	return tree
}

// wantHeldBackRightly checks that a node is due exactly if all before it are done, by a look of its own.
func wantHeldBackRightly(t *testing.T, tree record.RunTree, edges map[string][]string, due []string) {
	t.Helper()
	for _, n := range tree.Nodes {
		ready := n.State == api.TreeWaiting
		for _, other := range tree.Nodes {
			first, then := other.Workspace, n.Workspace // other comes before n, if then depends on first
			if tree.Op == workflow.Destroy {
				first, then = then, first
			}
			done := other.State == api.TreeSucceeded || other.State == api.TreeSkipped && other.Blocked == ""
			if !done && slices.Contains(edges[then], first) {
				ready = false
			}
		}
		if ready != slices.Contains(due, n.Workspace) {
			t.Fatalf("%s: due is %t, want %t: %+v, edges %v", n.Workspace, !ready, ready, tree, edges)
		}
	}
}

// expected is a naive reference: the end of a node, from the ends of those before it.
func expected(tree record.RunTree, edges map[string][]string, will fates) map[string]string {
	out, changed := map[string]string{}, map[string]bool{}
	var of func(name string) string
	of = func(name string) string {
		if s, ok := out[name]; ok {
			return s
		}
		var blocked, after bool
		for _, n := range tree.Nodes {
			first, then := n.Workspace, name
			if tree.Op == workflow.Destroy {
				first, then = then, first
			}
			if !slices.Contains(edges[then], first) {
				continue
			}
			switch of(n.Workspace) {
			case api.TreeFailed, api.TreeCancelled, "blocked":
				blocked = true
			}
			after = after || changed[n.Workspace] && slices.Contains(will[name].facts.After, n.Workspace)
		}
		f := will[name]
		needs := tree.Op == workflow.Destroy || tree.Every || name == tree.Workspace || !f.facts.Ran || f.facts.Inputs != f.facts.Used || after
		switch {
		case blocked:
			out[name] = "blocked"
		case !needs:
			out[name] = api.TreeSkipped
		default:
			out[name], changed[name] = f.state, f.changed
		}
		return out[name]
	}
	for _, n := range tree.Nodes {
		of(n.Workspace)
	}
	return out
}

func wantEnd(t *testing.T, tree record.RunTree, edges map[string][]string, will fates) {
	t.Helper()
	want, got := expected(tree, edges, will), map[string]string{}
	failed, cancelled := false, false
	for _, n := range tree.Nodes {
		got[n.Workspace] = n.State
		if n.Blocked != "" {
			got[n.Workspace] = "blocked"
			if s := tree.Node(n.Blocked).State; s != api.TreeFailed && s != api.TreeCancelled || !strings.HasPrefix(n.Note, n.Blocked+" ") {
				t.Fatalf("%s is skipped with the note %q because of %s, which is %s", n.Workspace, n.Note, n.Blocked, s)
			}
		}
		failed, cancelled = failed || n.State == api.TreeFailed, cancelled || n.State == api.TreeCancelled
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s\n%+v, edges %v", diff, tree, edges)
	}
	state := api.TreeSucceeded
	if failed {
		state = api.TreeFailed
	} else if cancelled {
		state = api.TreeCancelled
	}
	if tree.State != state || tree.Ended.IsZero() {
		t.Fatalf("the tree is %s, ended %s, want %s", tree.State, tree.Ended, state)
	}
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("w%02d", i))
	}
	return out
}

// Every tree of four workspaces, every end of their runs, both operations.
func TestTree_AllOfFourWorkspaces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	list := names(4)
	ends := []string{api.TreeSucceeded, api.TreeFailed, api.TreeCancelled}
	for graph := range 1 << 6 {
		edges, bit := map[string][]string{}, 0
		for i := range list {
			for j := range i {
				if graph>>bit&1 == 1 {
					edges[list[i]] = append(edges[list[i]], list[j])
				}
				bit++
			}
		}
		for end := range 81 {
			will, rest := fates{}, end
			for _, name := range list {
				will[name], rest = fate{state: ends[rest%3]}, rest/3
			}
			for _, op := range []workflow.Operation{workflow.Update, workflow.Destroy} {
				tree := play(t, r, treeOf(op, list...), edges, will, nil)
				wantEnd(t, tree, edges, will)
			}
		}
	}
}

// randomFates need edges to be made: a workspace runs after some of those that it depends on.
func randomFates(r *rand.Rand, list []string, edges map[string][]string) fates {
	will := fates{}
	for _, name := range list {
		f := fate{state: api.TreeSucceeded, changed: r.IntN(2) == 0, facts: rules.TreeFacts{Ran: r.IntN(4) > 0, Inputs: "a", Used: []string{"a", "b"}[r.IntN(2)]}}
		for _, other := range edges[name] {
			if r.IntN(2) == 0 {
				f.facts.After = append(f.facts.After, other)
			}
		}
		if r.IntN(8) == 0 {
			f.state = []string{api.TreeFailed, api.TreeCancelled}[r.IntN(2)]
		}
		will[name] = f
	}
	return will
}

// randomEdges go from later names to earlier ones, and to workspaces of no tree.
func randomEdges(r *rand.Rand, list []string) map[string][]string {
	edges := map[string][]string{}
	for i := range list {
		for j := range i {
			if r.IntN(len(list)) < 2 {
				edges[list[i]] = append(edges[list[i]], list[j])
			}
		}
		if r.IntN(5) == 0 {
			edges[list[i]] = append(edges[list[i]], "elsewhere")
		}
	}
	return edges
}

func TestTree_OfRandomGraphsEndsAsANaiveReferenceSays(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 2))
		list := names(1 + r.IntN(12))
		edges := randomEdges(r, list)
		will := randomFates(r, list, edges)
		tree := treeOf([]workflow.Operation{workflow.Update, workflow.Destroy}[r.IntN(2)], list...)
		tree.Every = r.IntN(4) == 0
		wantEnd(t, play(t, r, tree, edges, will, nil), edges, will)
	}
}

// Edges that change meanwhile count for what has not begun: play looks after each step that what is due is due by the
// edges of that moment, and that the tree ends.
func TestTree_FollowsEdgesThatChange(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		list := names(1 + r.IntN(10))
		will := randomFates(r, list, nil)
		order := r.Perm(len(list)) // new edges go down in this order, so that they never make a circle
		edges := map[string][]string{}
		change := func(edges map[string][]string) {
			i, j := r.IntN(len(list)), r.IntN(len(list))
			if order[i] <= order[j] {
				edges[list[i]] = nil
				return
			}
			edges[list[i]] = append(slices.Clone(edges[list[i]]), list[j])
		}
		for range 20 {
			change(edges)
		}
		tree := play(t, r, treeOf([]workflow.Operation{workflow.Update, workflow.Destroy}[r.IntN(2)], list...), edges, will, change)
		for _, n := range tree.Nodes {
			if n.State == api.TreeWaiting || n.State == api.TreeRunning {
				t.Fatalf("the tree is over and %s is %s", n.Workspace, n.State)
			}
		}
	}
}

// A circle cannot come from settings; if there is one all the same, the tree ends and says so.
func TestTree_ACircleEndsItAndIsNamed(t *testing.T) {
	edges := map[string][]string{"b": {"a", "c"}, "c": {"b"}}
	tree, due := rules.NextOfTree(treeOf(workflow.Update, "a", "b", "c"), edges, treeTime)
	if !slices.Equal(due, []string{"a"}) || tree.Over() {
		t.Fatalf("due: %v of %+v", due, tree)
	}
	tree.Node("a").State = api.TreeSucceeded
	tree, due = rules.NextOfTree(tree, edges, treeTime)
	if len(due) > 0 || tree.State != api.TreeFailed || tree.Node("b").State != api.TreeFailed || !strings.Contains(tree.Node("c").Note, "circle: b, c") {
		t.Errorf("due: %v of %+v", due, tree)
	}
}

func TestTree_CancelEndsOnlyTheWaitingNodes(t *testing.T) {
	edges := map[string][]string{"b": {"a"}, "c": {"b"}}
	was := treeOf(workflow.Update, "a", "b", "c")
	was.Node("a").State = api.TreeRunning
	was.Cancelled = &record.TreeCancel{By: "bob", Reason: "wrong day"}
	tree, due := rules.NextOfTree(was, edges, treeTime)
	if len(due) > 0 || tree.Over() || tree.Node("c").State != api.TreeCancelled || tree.Node("b").Note != "the tree was cancelled by bob: wrong day" {
		t.Fatalf("due: %v of %+v", due, tree)
	}
	if was.Node("b").State != api.TreeWaiting {
		t.Error("the tree that was given was changed")
	}
	tree.Node("a").State = api.TreeSucceeded
	if tree, _ = rules.NextOfTree(tree, edges, treeTime); tree.State != api.TreeCancelled {
		t.Errorf("the tree is %s", tree.State)
	}
}

func TestTreeOf_HasAllThatDependOnItInOrder(t *testing.T) {
	edges := map[string][]string{"app": {"db", "net"}, "db": {"net"}, "other": {"elsewhere"}, "net": {"account"}, "aaa": {"app"}}
	for root, want := range map[string][]string{
		"net": {"net", "db", "app", "aaa"}, "app": {"app", "aaa"}, "account": {"account", "net", "db", "app", "aaa"}, "alone": {"alone"},
	} {
		if diff := cmp.Diff(want, rules.TreeOf(root, edges)); diff != "" {
			t.Errorf("tree of %s (-want +got):\n%s", root, diff)
		}
	}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 4))
		list := names(1 + r.IntN(12))
		edges := randomEdges(r, list)
		got := rules.TreeOf(list[0], edges)
		for _, name := range list {
			depends := name == list[0] || slices.ContainsFunc(edges[name], func(on string) bool { return slices.Contains(got, on) })
			if depends != slices.Contains(got, name) {
				t.Fatalf("seed %d: %s is in the tree: %t, want %t", seed, name, !depends, depends)
			}
		}
		for i, name := range got {
			for _, on := range edges[name] {
				if slices.Index(got, on) > i {
					t.Fatalf("seed %d: %s comes before %s, on which it depends: %v", seed, name, on, got)
				}
			}
		}
	}
}

func TestNodeOfTree_FollowsItsRunAndTheReviewOfItsPlan(t *testing.T) {
	preview := record.Workflow{State: workflow.Succeeded, For: workflow.Update}
	for name, c := range map[string]struct {
		w         record.Workflow
		gone      bool
		review    record.Review
		cancelled bool
		want      record.TreeNode
	}{
		"waits":                {w: record.Workflow{State: workflow.Pending}, want: record.TreeNode{State: api.TreeRunning}},
		"runs":                 {w: record.Workflow{State: workflow.Running}, want: record.TreeNode{State: api.TreeRunning}},
		"failed":               {w: record.Workflow{State: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "exit 1"}, want: record.TreeNode{State: api.TreeFailed, Note: "its run failed (step_failed): exit 1"}},
		"cancelled":            {w: record.Workflow{State: workflow.Cancelled}, want: record.TreeNode{State: api.TreeCancelled, Note: "its run was cancelled"}},
		"is gone":              {gone: true, want: record.TreeNode{State: api.TreeFailed, Note: "its run is not kept any longer"}},
		"changed nothing":      {w: record.Workflow{State: workflow.Succeeded, Changes: &api.Changes{}}, want: record.TreeNode{State: api.TreeSucceeded}},
		"changed something":    {w: record.Workflow{State: workflow.Succeeded, Changes: &api.Changes{Move: 1}}, want: record.TreeNode{State: api.TreeSucceeded, Changed: true}},
		"counts no changes":    {w: record.Workflow{State: workflow.Succeeded}, want: record.TreeNode{State: api.TreeSucceeded, Changed: true}},
		"has no plan":          {w: preview, want: record.TreeNode{State: api.TreeFailed, Note: "its preview has no plan that can be approved"}},
		"plan is empty":        {w: preview, review: record.Review{Status: api.ReviewEmpty}, want: record.TreeNode{State: api.TreeSucceeded, Note: "its plan changes nothing"}},
		"plan waits":           {w: preview, review: record.Review{Status: api.ReviewWaiting, Expires: treeTime.Add(1)}, want: record.TreeNode{State: api.TreeRunning, Note: "its plan waits for an approval"}},
		"plan has expired":     {w: preview, review: record.Review{Status: api.ReviewWaiting, Expires: treeTime}, want: record.TreeNode{State: api.TreeFailed, Note: "nobody approved its plan until 2026-05-04 12:00:00 UTC"}},
		"plan is stale":        {w: preview, review: record.Review{Status: api.ReviewWaiting, Expires: treeTime.Add(1), Base: &record.Base{Serial: 1}}, want: record.TreeNode{State: api.TreeFailed, Note: "its plan is stale: the state has moved since the plan was made: its serial was 1, and is 2"}},
		"plan is approved":     {w: preview, review: record.Review{Status: api.ReviewApproved, Applies: "wf_2"}, want: record.TreeNode{State: api.TreeRunning, Run: "wf_2"}},
		"plan is rejected":     {w: preview, review: record.Review{Status: api.ReviewRejected, Votes: []api.Vote{{By: "bob", Reject: true, Comment: "no"}}}, want: record.TreeNode{State: api.TreeFailed, Note: "its plan was rejected by bob: no"}},
		"plan is withdrawn":    {w: preview, cancelled: true, review: record.Review{Status: api.ReviewRejected}, want: record.TreeNode{State: api.TreeCancelled, Note: "its plan was withdrawn"}},
		"plan is carried over": {w: preview, review: record.Review{Status: api.ReviewCarried}, want: record.TreeNode{State: api.TreeFailed, Note: "its preview has no plan that can be approved"}},
	} {
		tree, n := record.RunTree{}, record.TreeNode{Workspace: "a", State: api.TreeRunning, Run: "wf_1", Note: "before"}
		if c.cancelled {
			tree.Cancelled = &record.TreeCancel{By: "bob"}
		}
		c.want.Workspace = "a"
		if c.want.Run == "" {
			c.want.Run = "wf_1"
		}
		if diff := cmp.Diff(c.want, rules.NodeOfTree(tree, n, c.w, !c.gone, c.review, api.StateFound{Serial: 2}, treeTime)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
