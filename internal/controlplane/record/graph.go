package record

import (
	"fmt"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// GraphKey has the Graph of an organization.
func GraphKey(org string) store.Key { return store.Key{Part: OrganizationPart(org), Sort: "graph"} }

// Graph says which workspaces of an organization depend on which, by their names. Every change of a dependency, and
// every deletion of a workspace, writes it: of two changes at once the second is decided on the result of the first.
// So no two of them make a cycle, and none depends on a deleted workspace.
type Graph struct {
	On        map[string][]string `json:"on,omitempty"`        // by workspace: its dependencies, sorted
	Sensitive map[string][]string `json:"sensitive,omitempty"` // those of them whose sensitive outputs it takes
}

// MaxDependencies is how many an organization may have: they are stored in one record.
const MaxDependencies = 2_000

// ProducedKey is the key of the Produced of a workspace.
func ProducedKey(org, wsid string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "produced/" + wsid}
}

// Produced has the outputs, for other workspaces, of a workspace's last successful run that may have changed its
// state.
type Produced struct {
	Workflow  string             `json:"wf"`
	Attempt   int                `json:"attempt"`
	Op        workflow.Operation `json:"op"`
	Submitted time.Time          `json:"submitted"` // when that run was submitted: the retention of its artifacts counts from then
	At        time.Time          `json:"at"`
	Outputs   []api.Output       `json:"outputs,omitempty"` // of sensitive ones the names alone
	Truncated bool               `json:"truncated,omitempty"`
	Used      string             `json:"used,omitempty"` // digest of the inputs that the run was given; see Attempt
	// Revision rises when a run changed something. It stands for the values of sensitive outputs, which are unknown
	// here: a digest of a short secret could be guessed.
	Revision  int64             `json:"revision"`
	Sensitive *SensitiveOutputs `json:"sensitive,omitempty"` // none: it has no sensitive outputs, or nobody takes them
}

// SensitiveOutputs names the artifact that holds the values of sensitive outputs.
type SensitiveOutputs struct {
	Name   string    `json:"name"`
	Size   int64     `json:"size"`
	SHA256 string    `json:"sha256"`
	Place  api.Place `json:"place"` // names the pool by its id
}

// GivenKey is the key of the Given of an attempt.
func GivenKey(id string, attempt int) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("given/%04d", attempt)}
}

// Given has the outputs of other workspaces that an attempt got at its start.
type Given struct {
	Variables api.Values   `json:"variables,omitempty"`
	Sensitive []GivenInput `json:"sensitive,omitempty"`
}

// GivenInput is an input whose value is in an artifact of another workspace.
type GivenInput struct {
	Input    api.WorkspaceInput `json:"input"`
	Workflow string             `json:"wf"`
	Attempt  int                `json:"attempt"`
	Artifact SensitiveOutputs   `json:"artifact"`
	Expires  time.Time          `json:"expires"`
}
