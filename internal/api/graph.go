package api

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// WorkspaceInput takes an output of another workspace as a variable.
type WorkspaceInput struct {
	Workspace string `json:"workspace" minLength:"1" maxLength:"64" doc:"Name of the workspace whose output it is" example:"network"`
	Output    string `json:"output" minLength:"1" maxLength:"255" doc:"Name of the output" example:"subnet_id"`
	Variable  string `json:"variable,omitempty" maxLength:"255" doc:"Name of the variable that gets it; default that of the output" example:"subnet_id"`
	Sensitive bool   `json:"sensitive,omitempty" doc:"Whether the output is marked as sensitive. Its value then goes from run to run on the side of the pool, and the control plane never has it; only an admin of both workspaces may set it"`
	Preview   bool   `json:"preview,omitempty" doc:"With sensitive: whether runs of pull requests get it too, whose code the author of the pull request may have written; default false"`
}

// Graph says which workspaces of an organization depend on which.
type Graph struct {
	Workspaces   []string     `json:"workspaces" doc:"Names of the workspaces that depend on others, or that others depend on, sorted" example:"[\"cluster\",\"network\"]"`
	Dependencies []Dependency `json:"dependencies" doc:"By workspace, then by its dependency"`
}

// Dependency says that a workspace runs after another one.
type Dependency struct {
	Workspace string   `json:"workspace" doc:"Name of the workspace" example:"cluster"`
	On        string   `json:"on" doc:"Name of the workspace that it depends on" example:"network"`
	Outputs   []string `json:"outputs,omitempty" doc:"Names of the outputs that it takes; none: it only runs after it" example:"[\"subnet_id\"]"`
}

// States of a tree and of its nodes. A tree is running, succeeded, failed or cancelled.
const (
	TreeWaiting   = "waiting" // for the nodes before it
	TreeRunning   = "running"
	TreeSucceeded = "succeeded"
	TreeFailed    = "failed"
	TreeSkipped   = "skipped" // its inputs did not change, or a node before it failed: its note says which
	TreeCancelled = "cancelled"
)

// TreeAwaits is the note of a node that runs while its plan waits for an approval.
const TreeAwaits = "its plan waits for an approval"

// NewTree asks for runs of a workspace and of all that depend on it, in order.
type NewTree struct {
	Workspace string             `json:"workspace" minLength:"1" maxLength:"64" doc:"Name of the workspace at which it begins" example:"network"`
	Operation workflow.Operation `json:"operation" enum:"update,destroy" doc:"update runs a workspace before those that depend on it, destroy after them" example:"update"`
	Every     bool               `json:"every,omitempty" doc:"Whether a workspace also runs whose inputs did not change"`
	Message   string             `json:"message,omitempty" maxLength:"200" doc:"Its purpose"`
}

// Tree is a set of runs of a workspace and of all that depend on it.
type Tree struct {
	ID              string             `json:"id" doc:"Id of the tree" example:"tree_01k1xz4m2p7q9r3s5t8v"`
	Workspace       string             `json:"workspace" doc:"Name of the workspace at which it begins" example:"network"`
	Operation       workflow.Operation `json:"operation" doc:"Operation of its runs" example:"update"`
	Every           bool               `json:"every,omitempty" doc:"Whether a workspace also runs whose inputs did not change"`
	Message         string             `json:"message,omitempty" doc:"Its purpose"`
	State           string             `json:"state" enum:"running,succeeded,failed,cancelled" doc:"Where it stands" example:"running"`
	CancelRequested bool               `json:"cancel_requested,omitempty" doc:"Whether it was cancelled"`
	SubmittedBy     string             `json:"submitted_by" doc:"Name of the principal that asked for it" example:"anna"`
	SubmittedByID   string             `json:"submitted_by_id,omitempty" doc:"Its id" example:"prn_01k1xz4m2p7q9r3s5t8v"`
	SubmittedAt     time.Time          `json:"submitted_at" doc:"When"`
	EndedAt         *time.Time         `json:"ended_at,omitempty" doc:"When its last run had ended"`
	Size            int                `json:"size" doc:"How many workspaces it has" example:"3"`
	Nodes           []TreeNode         `json:"nodes" doc:"Its workspaces that the caller may see, each after those that it depends on"`
}

// TreeNode is one workspace of a tree.
type TreeNode struct {
	Workspace string   `json:"workspace" doc:"Name of the workspace" example:"cluster"`
	State     string   `json:"state" enum:"waiting,running,succeeded,failed,skipped,cancelled" doc:"Where it stands" example:"waiting"`
	Workflow  string   `json:"workflow,omitempty" doc:"Id of its run: of the preview until its plan is approved, where approvals are required" example:"wf_01k1xz4m2p7q9r3s5t8v"`
	WaitsFor  []string `json:"waits_for,omitempty" doc:"Names of the workspaces whose runs it waits for" example:"[\"network\"]"`
	Note      string   `json:"note,omitempty" doc:"Why it was skipped or failed, or what it waits for" example:"its inputs did not change"`
}
