package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxBundle bounds an encoded bundle in bytes.
const maxBundle = 16 << 20

// Bundle is what a launcher hands to a runner that cannot look itself: the values of the references
// that its run names, or why they have none, and variables. It is itself a Resolver of those
// references. It travels through a pipe only: never on disk, never in an environment.
type Bundle struct {
	values map[string]bundled
	env    map[string]string
}

// bundled is a value, or the error in its place.
type bundled struct {
	Value       []byte `json:"value,omitempty"`
	Missing     string `json:"missing,omitempty"`     // there is no such secret: a sentence
	Unavailable string `json:"unavailable,omitempty"` // its place could not be asked
}

// wire is a bundle as it travels.
type wire struct {
	Values map[string]bundled `json:"values,omitempty"`
	Env    map[string]string  `json:"env,omitempty"`
}

// NewBundle resolves references. One that does not resolve is not an error here: the runner gets the
// error when it asks for it.
func NewBundle(ctx context.Context, from Resolver, refs []string, env map[string]string) Bundle {
	b := Bundle{values: map[string]bundled{}, env: env}
	for _, ref := range refs {
		value, err := from.Resolve(ctx, ref)
		switch {
		case err == nil:
			b.values[ref] = bundled{Value: []byte(value.Reveal())}
		case errors.Is(err, ErrUnavailable):
			b.values[ref] = bundled{Unavailable: err.Error()}
		default:
			b.values[ref] = bundled{Missing: err.Error()}
		}
	}
	return b
}

// Write encodes the bundle.
func (b Bundle) Write(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(wire{b.values, b.env}); err != nil {
		return fmt.Errorf("write the bundle of secrets: %w", err)
	}
	return nil
}

// ReadBundle decodes a bundle, which must be whole.
func ReadBundle(r io.Reader) (Bundle, error) {
	var in wire
	if err := json.NewDecoder(io.LimitReader(r, maxBundle)).Decode(&in); err != nil {
		return Bundle{}, errors.New("read the bundle of secrets: it is not whole") // without the cause, which may quote them
	}
	return Bundle{in.Values, in.Env}, nil
}

// Getenv looks up one of the bundle's variables.
func (b Bundle) Getenv(name string) (string, bool) {
	v, ok := b.env[name]
	return v, ok
}

// Resolve implements Resolver.
func (b Bundle) Resolve(_ context.Context, ref string) (redact.String, error) {
	v, ok := b.values[ref]
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

// String keeps the values out of whatever prints a bundle.
func (b Bundle) String() string { return fmt.Sprintf("bundle of %d secrets", len(b.values)) }

// GoString does the same for %#v.
func (b Bundle) GoString() string { return b.String() }
