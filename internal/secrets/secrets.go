// Package secrets turns a reference to a secret into its value, inside the runner. It caches
// nothing and writes nothing; the control plane never calls it.
package secrets

import (
	"context"
	"errors"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ErrUnavailable means that the place of the secret could not be asked now; a retry may help.
var ErrUnavailable = errors.New("secrets: unavailable")

// Resolver is what every implementation provides. Methods may be called concurrently. An
// unknown reference is a workflow.ErrNotFound, one that may not be read a workflow.ErrForbidden, a
// malformed one a workflow.ErrInvalid. No error ever holds a value.
type Resolver interface {
	// Resolve returns the value of a reference.
	Resolve(ctx context.Context, ref string) (redact.String, error)
}

// Mux sends a reference to the resolver of its scheme, the part before the first colon.
type Mux map[string]Resolver

// Resolve implements Resolver.
func (m Mux) Resolve(ctx context.Context, ref string) (redact.String, error) {
	scheme, _, ok := strings.Cut(ref, ":")
	if r := m[scheme]; ok && r != nil {
		return r.Resolve(ctx, ref)
	}
	return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "this runner has no secrets of the kind %q; it has %s", scheme, m.schemes())
}

func (m Mux) schemes() string {
	var names []string
	for _, kind := range []struct{ scheme, form string }{
		{"file", "file:NAME"}, {"env", "env:NAME"}, {"arn", "the ARN of a secret in Secrets Manager"},
	} {
		if m[kind.scheme] != nil {
			names = append(names, kind.form)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " and ")
}
