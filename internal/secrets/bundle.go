package secrets

import (
	"context"
	"errors"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// NewBundle resolves references for a runner that cannot do so itself. One that does not resolve is not an error
// here: the runner gets the error when it asks for it.
func NewBundle(ctx context.Context, from Resolver, refs []string, env map[string]string) task.Bundle {
	b := task.Bundle{Values: map[string]task.Value{}, Env: env}
	for _, ref := range refs {
		value, err := from.Resolve(ctx, ref)
		switch {
		case err == nil:
			b.Values[ref] = task.Value{Value: []byte(value.Reveal())}
		case errors.Is(err, ErrUnavailable):
			b.Values[ref] = task.Value{Unavailable: err.Error()}
		default:
			b.Values[ref] = task.Value{Missing: err.Error()}
		}
	}
	return b
}

// Bundle is a Resolver of the references whose values a launcher handed over.
type Bundle struct{ task.Bundle }

// Resolve implements Resolver.
func (b Bundle) Resolve(_ context.Context, ref string) (redact.String, error) {
	v, ok := b.Values[ref]
	switch {
	case !ok:
		return redact.String{}, workflow.Refuse(workflow.ErrForbidden, "secrets", "this secret was not given to the runner: the run's settings did not name it when it was launched")
	case v.Unavailable != "":
		return redact.String{}, fmt.Errorf("%s: %w", v.Unavailable, ErrUnavailable)
	case v.Missing != "":
		return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "%s", v.Missing)
	}
	return redact.New(string(v.Value)), nil
}
