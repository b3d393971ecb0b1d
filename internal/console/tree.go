package console

import (
	"fmt"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// treeHeading says which tree a run is of, and which of its nodes it is. It is a pure function.
func treeHeading(t api.Tree, workspace string) string {
	order := runtext.Nodes(t)
	place := slices.IndexFunc(order, func(n api.TreeNode) bool { return n.Workspace == workspace })
	return fmt.Sprintf("Tree · %s · %d of %s", runtext.Tree(t), place+1, text.Count(len(order), "workspace"))
}

// lastOfTree is the newest of some runs that a tree has submitted; nil if none has.
func lastOfTree(runs []api.Workflow) *api.Workflow {
	i := slices.IndexFunc(runs, func(w api.Workflow) bool { return w.Trigger != nil && w.Trigger.Kind == api.TriggerTree })
	if i < 0 {
		return nil
	}
	return &runs[i]
}
