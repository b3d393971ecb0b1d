package console

import (
	"fmt"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// treeHeading says which tree a run is of, and which of its nodes it is. It is a pure function.
func treeHeading(t api.Tree, workspace string) string {
	order := slices.Clone(t.Nodes)
	if t.Operation == workflow.Destroy {
		slices.Reverse(order)
	}
	place := slices.IndexFunc(order, func(n api.TreeNode) bool { return n.Workspace == workspace })
	return fmt.Sprintf("Tree · %s of %s and what depends on it · %d of %s", t.Operation, t.Workspace, place+1, text.Count(len(order), "workspace"))
}

// nodeMark is the state of a node. It is a pure function.
func nodeMark(n api.TreeNode) mark {
	switch {
	case n.Note == api.TreeAwaits:
		return mark{"warn", "◇", "to approve"}
	case n.State == api.TreeRunning:
		return mark{"run", "●", "running"}
	case n.State == api.TreeSucceeded:
		return mark{"good", "✓", "succeeded"}
	case n.State == api.TreeFailed:
		return mark{"bad", "✗", "failed"}
	case n.State == api.TreeCancelled:
		return mark{"soft", "⊘", "cancelled"}
	case n.State == api.TreeSkipped:
		return mark{"soft", "–", "skipped"}
	}
	return mark{"soft", "○", "waiting"}
}

// lastOfTree is the newest of some runs that a tree has submitted; nil if none has.
func lastOfTree(runs []api.Workflow) *api.Workflow {
	i := slices.IndexFunc(runs, func(w api.Workflow) bool { return w.Trigger != nil && w.Trigger.Kind == api.TriggerTree })
	if i < 0 {
		return nil
	}
	return &runs[i]
}
