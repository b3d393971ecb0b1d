package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// TreeOf are the workspaces of a tree that begins at a workspace: that one and all that depend on it, each after
// those that it depends on. on has the dependencies of each workspace of the organization. It is a pure function.
func TreeOf(root string, on map[string][]string) []string {
	dependents := map[string][]string{}
	for name, list := range on {
		for _, other := range list {
			dependents[other] = append(dependents[other], name)
		}
	}
	in := map[string]bool{root: true}
	for next := []string{root}; len(next) > 0; next = next[1:] {
		for _, name := range dependents[next[0]] {
			if !in[name] {
				in[name], next = true, append(next, name)
			}
		}
	}
	// A name is placed when none of its dependencies remains. If the remaining ones depend on one another in a
	// circle, they follow by name.
	out, remaining := []string{}, slices.Sorted(maps.Keys(in))
	for len(remaining) > 0 {
		i := max(0, slices.IndexFunc(remaining, func(name string) bool {
			return !slices.ContainsFunc(on[name], func(other string) bool { return other != name && slices.Contains(remaining, other) })
		}))
		out, remaining = append(out, remaining[i]), slices.Delete(remaining, i, i+1)
	}
	return out
}

// TreeBefore are the workspaces of a tree that are done before one of it begins, sorted: for an update those that it
// depends on, for a destroy those that depend on it. It is a pure function.
func TreeBefore(t record.RunTree, name string, on map[string][]string) (out []string) {
	add := func(other string) {
		if other != name && t.Node(other) != nil && !slices.Contains(out, other) {
			out = append(out, other)
		}
	}
	if t.Op != workflow.Destroy {
		for _, other := range on[name] {
			add(other)
		}
	} else {
		for _, n := range t.Nodes {
			if slices.Contains(on[n.Workspace], name) {
				add(n.Workspace)
			}
		}
	}
	slices.Sort(out)
	return out
}

// treeDone says that the nodes behind a node may begin.
func treeDone(n *record.TreeNode) bool {
	return n.State == api.TreeSucceeded || n.State == api.TreeSkipped && n.Blocked == ""
}

// treeBlocks is the workspace because of which the nodes behind a node are skipped; empty: it does not block them.
func treeBlocks(n *record.TreeNode) string {
	switch n.State {
	case api.TreeFailed, api.TreeCancelled:
		return n.Workspace
	case api.TreeSkipped:
		return n.Blocked
	}
	return ""
}

// NextOfTree decides how a tree goes on, by the present dependencies: which nodes are skipped or cancelled without a
// look at their workspaces, which of the others are due, and whether the tree is over. It is a pure function.
func NextOfTree(was record.RunTree, on map[string][]string, now time.Time) (t record.RunTree, due []string) {
	t = was
	t.Nodes = slices.Clone(was.Nodes)
	if t.Over() {
		return t, nil
	}
	cancelling := t.Cancelled != nil
	for moved := true; moved; {
		moved, due = false, nil
		for i := range t.Nodes {
			n := &t.Nodes[i]
			if n.State != api.TreeWaiting {
				continue
			}
			ready, blocked := !cancelling, ""
			for _, name := range TreeBefore(t, n.Workspace, on) {
				before := t.Node(name)
				ready = ready && treeDone(before)
				blocked = cmp.Or(blocked, treeBlocks(before))
			}
			switch {
			case cancelling:
				n.State, n.Note, moved = api.TreeCancelled, "the tree was cancelled by "+t.Cancelled.By+Because(t.Cancelled.Reason), true
			case blocked != "":
				how := "failed"
				if t.Node(blocked).State == api.TreeCancelled {
					how = "was cancelled"
				}
				n.State, n.Blocked, n.Note, moved = api.TreeSkipped, blocked, blocked+" "+how, true
			case ready:
				due = append(due, n.Workspace)
			}
		}
	}
	waiting := t.In(api.TreeWaiting)
	if len(due) == 0 && len(t.In(api.TreeRunning)) == 0 {
		for _, name := range waiting { // settings that make a circle are refused, so this is a mistake of ours
			n := t.Node(name)
			n.State, n.Note = api.TreeFailed, "it waits for "+strings.Join(TreeBefore(t, name, on), ", ")+" in a circle: "+strings.Join(waiting, ", ")
		}
		t.State, t.Ended = treeEnd(t), now
	}
	return t, due
}

// treeEnd is how a tree ended of which nothing runs or waits any more.
func treeEnd(t record.RunTree) string {
	failed, cancelled := false, false
	for _, n := range t.Nodes {
		failed = failed || n.State == api.TreeFailed
		cancelled = cancelled || n.State == api.TreeCancelled
	}
	switch {
	case cancelled && (t.Cancelled != nil || !failed):
		return api.TreeCancelled
	case failed:
		return api.TreeFailed
	}
	return api.TreeSucceeded
}

// TreeFacts has the facts about the workspace of a node that is due.
type TreeFacts struct {
	Inputs string   // digest of its present inputs
	Used   string   // digest of its inputs in its last success
	Ran    bool     // it has succeeded before
	After  []string // the workspaces after which its settings say that it runs, whether or not it takes outputs of them
}

// SkippedOfTree says why a node that is due needs no run; empty: it needs one. It is a pure function.
func SkippedOfTree(t record.RunTree, name string, f TreeFacts) string {
	if t.Op == workflow.Destroy || t.Every || name == t.Workspace || !f.Ran || f.Inputs != f.Used {
		return ""
	}
	for _, other := range f.After {
		if n := t.Node(other); n != nil && n.Changed {
			return ""
		}
	}
	return "its inputs did not change"
}

// NodeOfTree is a node after a look at its run: known says whether the run is still stored, r is the review of a
// preview's plan, and state is the workspace's. It is a pure function.
func NodeOfTree(t record.RunTree, n record.TreeNode, w record.Workflow, known bool, r record.Review, state api.StateFound, now time.Time) record.TreeNode {
	n.State, n.Note = api.TreeRunning, ""
	end := func(state, format string, args ...any) record.TreeNode {
		n.State, n.Note = state, text.Middle(fmt.Sprintf(format, args...), record.MaxDetail)
		return n
	}
	switch {
	case !known:
		return end(api.TreeFailed, "its run is not kept any longer")
	case w.State == workflow.Failed:
		return end(api.TreeFailed, "its run failed (%s)%s", w.Reason, Because(w.Detail))
	case w.State == workflow.Cancelled:
		return end(api.TreeCancelled, "its run was cancelled")
	case w.State != workflow.Succeeded:
		return n
	case w.For == "":
		n.Changed = w.Changes == nil || w.Changes.Any() // a run that does not count them may have made some
		return end(api.TreeSucceeded, "")
	}
	switch status, moved := Stands(r, state, now); status {
	case api.ReviewApproved:
		n.Run = r.Applies
	case api.ReviewEmpty:
		return end(api.TreeSucceeded, "its plan changes nothing")
	case api.ReviewWaiting:
		n.Note = api.TreeAwaits
	case api.ReviewExpired:
		return end(api.TreeFailed, "nobody approved its plan until %s", Day(r.Expires))
	case api.ReviewStale:
		return end(api.TreeFailed, "its plan is stale: %s", moved)
	case api.ReviewRejected:
		if t.Cancelled != nil {
			return end(api.TreeCancelled, "its plan was withdrawn")
		}
		return end(api.TreeFailed, "its plan was rejected %s", Rejection(r))
	default:
		return end(api.TreeFailed, "its preview has no plan that can be approved")
	}
	return n
}
