package record

import (
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Policies has the policies of an organization in one record, so that a submission and a start read one key: the
// policy groups that are not disabled, and the waivers that were in force when it was written, both by name. Each
// change of a group or of a waiver writes it in the same commit.
type Policies struct {
	Groups  []api.PolicyGroup `json:"groups,omitempty"`
	Waivers []api.Waiver      `json:"waivers,omitempty"`
}

// PoliciesKey is the key of the Policies of an organization.
func PoliciesKey(org string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "policies"}
}

// HeldTo has the policy groups that a run was held to from its start on, and the waivers that it may use. It is
// written with the start, and never again.
type HeldTo struct {
	Policies []api.Policy `json:"policies"`
}

// HeldToKey is the key of the HeldTo of an attempt; there is none if no group held.
func HeldToKey(id string, attempt int) store.Key {
	return store.Key{Part: RunPrefix + id, Sort: fmt.Sprintf("policies/%04d", attempt)}
}
