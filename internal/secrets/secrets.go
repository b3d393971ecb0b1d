// Package secrets resolves a reference to a secret to its value, inside the runner. It caches
// nothing and writes nothing; the control plane never calls it.
package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ErrUnavailable means that the place of the secret could not be asked now; a retry may help.
var ErrUnavailable = errors.New("secrets: unavailable")

// Resolver is implemented by each store of secrets. Methods may be called concurrently. An
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
		{"file", "file:NAME"}, {"env", "env:NAME"}, {"vault", "vault:PATH#KEY"},
		{"arn", "the ARN of a secret in Secrets Manager or of a parameter in Systems Manager"},
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

// Pick takes the value of a key out of a JSON object, which a store holds under the name of. That of a string is its
// text; a number, a boolean, an object or an array is given as JSON. The value knows the document that was read for
// it. Errors show neither values nor other keys.
func Pick(document, key, of string) (redact.String, error) {
	refuse := func(kind error, why string) (redact.String, error) {
		return redact.String{}, workflow.Refuse(kind, "secrets", "the key %s cannot be read from %s: %s", text.Quote(key, 200), of, why)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(document), &all); err != nil || all == nil {
		// Without the cause, which may quote the value.
		return refuse(workflow.ErrInvalid, "it is not a JSON object; name the whole secret, without a key")
	}
	raw, ok := all[key]
	if !ok {
		return refuse(workflow.ErrNotFound, "it has no such key")
	}
	if bytes.Equal(raw, []byte("null")) {
		return refuse(workflow.ErrNotFound, "its value is null")
	}
	if raw[0] != '"' {
		return redact.New(string(raw)).Of(document), nil
	}
	var value string
	if err := json.Unmarshal(raw, &value); err != nil {
		return refuse(workflow.ErrInvalid, "its value is not a string in UTF-8")
	}
	return redact.New(value).Of(document), nil
}
