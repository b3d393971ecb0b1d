package runner

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/mask"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// resolved is a secret with its value.
type resolved struct {
	api.Secret
	value redact.String
}

// goesTo reports whether a step gets the secret.
func (s resolved) goesTo(step string) bool {
	return len(s.Steps) == 0 || slices.Contains(s.Steps, step)
}

// secrets resolves the references of a spec. The values are masked before anything runs.
func (r *run) secrets(ctx context.Context, spec api.Spec) ([]resolved, error) {
	var out []resolved
	for _, s := range spec.Secrets {
		name := cmp.Or(s.Env, s.File)
		value, err := r.resolver().Resolve(ctx, s.Ref)
		if err != nil {
			return nil, fmt.Errorf("the secret for %s did not resolve: %w", name, err)
		}
		if value.Empty() {
			return nil, fmt.Errorf("the secret for %s is empty", name)
		}
		if r.hidden.Add(value.Reveal()) > 0 {
			r.logf("the secret for %s has fewer than %d characters and cannot be masked", name, mask.MinLength)
		}
		switch {
		case s.Env == "":
			if !filepath.IsLocal(s.File) || filepath.Clean(s.File) == "." {
				return nil, workflow.Refuse(workflow.ErrInvalid, "secrets", "the file %q of a secret is not below the directory of the secrets", s.File)
			}
		case strings.ContainsRune(value.Reveal(), 0):
			return nil, fmt.Errorf("the secret for %s contains a zero byte, which a variable cannot hold: use a file", name)
		default:
			if err := checkVariable(s.Env); err != nil {
				return nil, err
			}
		}
		out = append(out, resolved{s, value})
	}
	return out, nil
}
