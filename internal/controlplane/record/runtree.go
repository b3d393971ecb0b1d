package record

import (
	"slices"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// RunTree is the runs of a workspace and of all its dependents. Its nodes are fixed when it is made; the dependencies
// are read anew at each step. The commit that submits a node's run writes it too, so that a node has one run.
type RunTree struct {
	ID        string             `json:"id"`
	Org       string             `json:"org"`
	Workspace string             `json:"ws"` // name of the one at which it begins
	Op        workflow.Operation `json:"op"`
	Every     bool               `json:"every,omitempty"`
	Message   string             `json:"msg,omitempty"`
	By        string             `json:"by"` // requested the tree, and submits its runs
	ByID      string             `json:"by_id"`
	// The other submitters of its runs: see runs.Triggered.
	Submitters api.PrincipalRefs `json:"submitters,omitempty"`
	Strangers  bool              `json:"strangers,omitempty"`
	State      string            `json:"state"` // api.TreeRunning, or how it ended
	Cancelled  *TreeCancel       `json:"cancelled,omitempty"`
	Submitted  time.Time         `json:"submitted"`
	Ended      time.Time         `json:"ended,omitzero"`
	Nodes      []TreeNode        `json:"nodes"` // each after those that it depended on when the tree was made
}

// TreeCancel is the cancellation of a tree.
type TreeCancel struct {
	By     string `json:"by"`
	ByID   string `json:"by_id"`
	Reason string `json:"reason,omitempty"`
}

// TreeNode is one workspace of a tree.
type TreeNode struct {
	Workspace   string `json:"ws"`
	WorkspaceID string `json:"wsid"` // one that was made again under the same name is another
	State       string `json:"state"`
	Run         string `json:"run,omitempty"`
	Note        string `json:"note,omitempty"`
	Blocked     string `json:"blocked,omitempty"` // the workspace that failed or was cancelled, because of which it is skipped
	Changed     bool   `json:"changed,omitempty"` // its run applied changes
}

// MaxTree is the maximum of workspaces of a tree.
const MaxTree = 200

// RunTreeIDs is the prefix of the ids of trees.
const RunTreeIDs = "tree_"

// Over says that nothing of the tree runs or waits any more.
func (t *RunTree) Over() bool { return t.State != api.TreeRunning }

// Node is the node of a workspace; nil where the tree has none.
func (t *RunTree) Node(workspace string) *TreeNode {
	i := slices.IndexFunc(t.Nodes, func(n TreeNode) bool { return n.Workspace == workspace })
	if i < 0 {
		return nil
	}
	return &t.Nodes[i]
}

// In are the workspaces of the nodes in a state.
func (t *RunTree) In(state string) (out []string) {
	for _, n := range t.Nodes {
		if n.State == state {
			out = append(out, n.Workspace)
		}
	}
	return out
}

// RunTreePart has the trees of an organization, the oldest first.
func RunTreePart(org string) string { return "tree/" + org }

// RunTreeKey is the key of a tree.
func RunTreeKey(org, id string) store.Key { return store.Key{Part: RunTreePart(org), Sort: id} }

// OpenTreePart lists the trees of an organization that have not ended, by their ids.
func OpenTreePart(org string) string { return "tree-open/" + org }

// OpenTreeKey is an entry of that list.
func OpenTreeKey(org, id string) store.Key { return store.Key{Part: OpenTreePart(org), Sort: id} }
