package policy

import (
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// removed reports whether policies do not have this builtin. The builtins that OPA calls nondeterministic read the
// network, files that a schema names, the environment, the clock, or a source of random numbers. The time of day
// stays, for rules that begin or end with a date.
func removed(b *ast.Builtin) bool {
	return b.Nondeterministic && b.Name != ast.NowNanos.Name
}

// capabilities is the part of Rego that policies may use.
var capabilities = sync.OnceValue(func() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(ast.RegoV1))
	c.Builtins = slices.DeleteFunc(c.Builtins, removed)
	c.AllowNet = []string{} // nil would mean every host
	return c
})

// whyRemoved completes the error of OPA for a function that policies do not have.
func whyRemoved(message string) string {
	name, ok := strings.CutPrefix(message, "undefined function ")
	if !ok {
		return ""
	}
	for _, b := range ast.Builtins {
		if b.Name == name && removed(b) {
			return ": policies do not have it, because they see the plan and their own package only"
		}
	}
	return ""
}
