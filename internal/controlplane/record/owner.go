package record

import (
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Owner says which workspace a state is of. It counts as long as that workspace exists, so deleting a workspace frees
// its states in the same commit.
type Owner struct {
	ID   string `json:"id"`
	Name string `json:"name"` // of the same workspace: no workspace is renamed
	// Lineage is that of the state which was last seen in a place; empty if there is none, and in a lineage's record.
	Lineage string `json:"lineage,omitempty"`
	// Place is where a lineage is kept; empty in a place's record.
	Place string `json:"place,omitempty"`
	// Copies has the ids of other workspaces which an admin lets change a copy of the state.
	Copies []string `json:"copies,omitempty"`
}

// Has says whether a workspace may change the state.
func (o *Owner) Has(wsid string) bool {
	return o != nil && (o.ID == wsid || slices.Contains(o.Copies, wsid))
}

// PlaceKey has the Owner of the state in a place, which is a SHA-256.
func PlaceKey(org, place string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "owner/place/" + place}
}

// LineageKey has the Owner of the state of a lineage, wherever it is.
func LineageKey(org, lineage string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "owner/lineage/" + Hash(lineage)}
}

// Refused are the states that a run was not to change, because they are those of other workspaces.
type Refused struct {
	States []api.StateRef `json:"states"`
}

// RefusedKey is the key of the Refused of a run.
func RefusedKey(id string) store.Key { return store.Key{Part: RunPrefix + id, Sort: "refused"} }
