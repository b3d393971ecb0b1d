package engine

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"
)

// comparison makes the digest by which two plans of one workspace are known to change the same in the same way: of
// all planned changes with their values, also the sensitive ones, of the values that are known only later, and of the
// providers' settings. Values that are not in the plan are not compared: those that a provider is given and never
// shows, and variables that appear in no change.
//
// The digest is of values that may be few and easy to guess, and has no key that its readers do not have. So it goes to
// the control plane alone, which shows it to nobody.
type comparison struct {
	sums [][]byte // one of each change, so that their order does not matter
	none bool     // the plan cannot be compared
}

// add adds one change, or one provider, of the plan.
func (c *comparison) add(kind string, said ...any) {
	raw, err := json.Marshal(append([]any{kind}, said...)) // which sorts the keys of maps, and keeps numbers as they were
	if err != nil {
		c.none = true
		return
	}
	sum := sha256.Sum256(raw)
	c.sums = append(c.sums, sum[:])
}

// rest adds the parts of the plan other than resources and outputs.
func (c *comparison) rest(plan *tfjson.Plan) {
	for _, d := range plan.DeferredChanges {
		c.add("deferred", d)
	}
	for _, a := range plan.ActionInvocations {
		c.add("action", a)
	}
	if plan.Config == nil {
		return
	}
	for name, p := range plan.Config.ProviderConfigs {
		c.add("provider", name, p)
	}
	c.none = c.none || provisions(plan.Config.RootModule)
}

// provisions says whether the code has provisioners. Their commands are part of no change, and a plan has them only
// in part, so such plans are never equal.
func provisions(m *tfjson.ConfigModule) bool {
	if m == nil {
		return false
	}
	for _, call := range m.ModuleCalls {
		if call != nil && provisions(call.Module) {
			return true
		}
	}
	return slices.ContainsFunc(m.Resources, func(r *tfjson.ConfigResource) bool { return r != nil && len(r.Provisioners) > 0 })
}

// digest is the SHA-256 of all that was added; empty if the plan cannot be compared.
func (c *comparison) digest() string {
	if c.none {
		return ""
	}
	slices.SortFunc(c.sums, slices.Compare[[]byte])
	return sha256Hex(slices.Concat(append([][]byte{[]byte("dayfly planned values 1\n")}, c.sums...)...))
}
