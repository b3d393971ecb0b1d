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
// every end of a workspace, writes it: of two changes at once the second is decided on what the first left. So no two of
// them make a cycle, and none depends on a workspace that is gone.
type Graph struct {
	On        map[string][]string `json:"on,omitempty"`        // what a workspace depends on, sorted
	Sensitive map[string][]string `json:"sensitive,omitempty"` // of which of them it takes sensitive outputs
}

// MaxDependencies is how many an organization may have: they lie in one record.
const MaxDependencies = 2_000

// ProducedKey has what the last run that changed the state of a workspace left for others.
func ProducedKey(org, wsid string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "produced/" + wsid}
}

// Produced is what the last successful run of a workspace that may have changed its state left for others.
type Produced struct {
	Workflow  string             `json:"wf"`
	Attempt   int                `json:"attempt"`
	Op        workflow.Operation `json:"op"`
	Submitted time.Time          `json:"submitted"` // when that run was: its artifacts are kept by that
	At        time.Time          `json:"at"`
	Outputs   []api.Output       `json:"outputs,omitempty"` // of sensitive ones the names alone
	Truncated bool               `json:"truncated,omitempty"`
	Used      string             `json:"used,omitempty"` // digest of the inputs that the run was given; see Attempt
	// Revision rises when a run changed something. It stands for the values of sensitive outputs, of which nothing is
	// known here: a digest of a short secret could be guessed.
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

// GivenKey has what an attempt was given by other workspaces.
func GivenKey(id string, attempt int) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("given/%04d", attempt)}
}

// Given is what an attempt was given at its start by the outputs of other workspaces.
type Given struct {
	Variables api.Values   `json:"variables,omitempty"`
	Sensitive []GivenInput `json:"sensitive,omitempty"`
}

// GivenInput is an input whose value lies in an artifact of another workspace.
type GivenInput struct {
	Input    api.WorkspaceInput `json:"input"`
	Workflow string             `json:"wf"`
	Attempt  int                `json:"attempt"`
	Artifact SensitiveOutputs   `json:"artifact"`
	Expires  time.Time          `json:"expires"`
}
