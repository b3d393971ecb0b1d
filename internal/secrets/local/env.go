package local

import (
	"context"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const envScheme = "env:"

// Environment resolves references of the form env:NAME from the runner's own environment, for
// the names that its configuration allows.
type Environment struct {
	getenv func(string) string
	allow  []string
}

// Env makes an Environment. allow holds the exact names that may be read; none allows nothing. A
// variable that is empty counts as not set.
func Env(getenv func(string) string, allow []string) *Environment {
	return &Environment{getenv: getenv, allow: slices.Clone(allow)}
}

// Resolve implements secrets.Resolver.
func (e *Environment) Resolve(ctx context.Context, ref string) (redact.String, error) {
	if err := ctx.Err(); err != nil {
		return redact.String{}, err
	}
	name, ok := strings.CutPrefix(ref, envScheme)
	if !ok || !env.Valid(name) {
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "a reference to a variable of the runner's environment is written env:NAME, with A-Z, a-z, 0-9 and _ in its name; %s is not", quote(ref))
	}
	if !slices.Contains(e.allow, name) {
		return redact.String{}, workflow.Refuse(workflow.ErrForbidden, "secrets", "%s may not be read: env_forward_allowlist of this runner does not name %s", quote(ref), name)
	}
	value := e.getenv(name)
	if value == "" {
		return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "%s is not set in the environment of this runner", quote(ref))
	}
	return redact.New(value), nil
}
