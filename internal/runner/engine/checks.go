package engine

import (
	"encoding/json"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/dayfly-dev/dayfly/internal/api"
)

const maxChecks = 10 // named ones

// checks are the addresses of the check blocks that fail. They are read from the JSON of the plan and, after an apply,
// from `check_results` of the state, which is read then anyway: a check that needs values known only after the apply
// has its result there alone. An encrypted state of tofu in a directory is not readable, so nothing is known then.
// Conditions of other kinds (outputs, resources, variables) fail the run by themselves.
type checks []string

// add keeps a check block that fails, or that could not be evaluated. An unknown result is none. Messages are left
// out, because they may have values.
func (c *checks) add(kind, address, status string) {
	fails := status == string(tfjson.CheckStatusFail) || status == string(tfjson.CheckStatusError)
	if fails && kind == string(tfjson.CheckKindCheckBlock) {
		*c = append(*c, address)
	}
}

// result counts them, and names the first; nil if none fails.
func (c checks) result() *api.Checks {
	if len(c) == 0 {
		return nil
	}
	slices.Sort(c) // the engines write them in any order
	return &api.Checks{Failing: len(c), Names: c[:min(len(c), maxChecks)]}
}

// read reads `check_results` of a state. One of another form has none: the state itself may be used.
func (c *checks) read(dec *json.Decoder) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return err
	}
	var all []struct {
		Kind    string `json:"object_kind"`
		Address string `json:"config_addr"`
		Status  string `json:"status"`
	}
	_ = json.Unmarshal(raw, &all) // none of another form
	for _, one := range all {
		c.add(one.Kind, one.Address, one.Status)
	}
	return nil
}
