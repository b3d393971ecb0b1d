package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dayfly-dev/dayfly/internal/api"
)

const (
	maxOutputs     = 500
	maxOutputBytes = 64 << 10 // of all names and values together
	maxOutputName  = 255
	maxOmitted     = 50       // names of outputs that do not fit
	maxOutputJSON  = 16 << 20 // that is read at all from terraform
	maxOutputFile  = 1 << 20  // that is read at all from a command
)

// found is a set of outputs before it is cut to the bounds. Sensitive ones have lost their value.
type found struct {
	outputs []api.Output
	secrets []string
	hidden  map[string]any // the values of sensitive ones
}

// readOutputs reads the output of `output -json`.
func readOutputs(raw []byte) (found, error) {
	var doc map[string]struct {
		Sensitive bool            `json:"sensitive"`
		Value     json.RawMessage `json:"value"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return found{}, errors.New("the engine's outputs are in a form that this version cannot read")
	}
	var f found
	v := values{seen: map[string]bool{}}
	for name, o := range doc {
		value, err := number(o.Value)
		if err != nil {
			return found{}, errors.New("the engine's outputs are in a form that this version cannot read")
		}
		f.add(name, value, o.Sensitive, &v)
	}
	f.secrets = v.list
	f.sort()
	return f, nil
}

func (f *found) add(name string, value any, sensitive bool, v *values) {
	if sensitive {
		v.all(value)
		if f.hidden == nil {
			f.hidden = map[string]any{}
		}
		f.hidden[name] = value
		value = nil
	}
	f.outputs = append(f.outputs, api.Output{Name: name, Sensitive: sensitive, Value: value})
}

func (f *found) sort() {
	slices.SortFunc(f.outputs, func(a, b api.Output) int { return strings.Compare(a.Name, b.Name) })
}

// bound returns the outputs that fit, and the names of the others. A large one does not push out the small ones behind
// it.
func (f found) bound() (outputs []api.Output, omitted []string) {
	remaining := maxOutputBytes
	for _, o := range f.outputs {
		raw, err := json.Marshal(o)
		if err != nil || len(raw) > remaining || len(outputs) == maxOutputs || len(o.Name) > maxOutputName {
			omitted = append(omitted, o.Name)
			continue
		}
		remaining -= len(raw)
		outputs = append(outputs, o)
	}
	return outputs, omitted
}

// number decodes JSON without making floats of its numbers.
func number(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var value any
	err := dec.Decode(&value)
	return value, err
}

// readOutputFile reads the file DAYFLY_OUTPUTS of a command: one object, in which each name has a value, or an object
// of value and sensitive. No text at all means no outputs.
func readOutputFile(raw []byte) (found, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return found{}, nil
	}
	if !utf8.Valid(raw) {
		return found{}, errors.New("it is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return found{}, errors.New("it is not a JSON object")
	}
	var f found
	v := values{seen: map[string]bool{}}
	names := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return found{}, errors.New("it is not a JSON object")
		}
		if err := checkOutputName(name); err != nil {
			return found{}, err
		}
		if names[name] {
			return found{}, fmt.Errorf("it has the output %s twice", quote(name))
		}
		names[name] = true
		var rawValue json.RawMessage
		if err := dec.Decode(&rawValue); err != nil {
			return found{}, fmt.Errorf("the value of output %s is not JSON", quote(name))
		}
		value, sensitive, err := unwrap(rawValue)
		if err != nil {
			return found{}, fmt.Errorf("the output %s %w", quote(name), err)
		}
		f.add(name, value, sensitive, &v)
	}
	if token, err := dec.Token(); err != nil || token != json.Delim('}') {
		return found{}, errors.New("it is not a whole JSON object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return found{}, errors.New("it has more text after its JSON object")
	}
	f.secrets = v.list
	f.sort()
	return f, nil
}

// unwrap distinguishes a value from an object of value and sensitive.
func unwrap(raw json.RawMessage) (value any, sensitive bool, err error) {
	if value, err = number(raw); err != nil {
		return nil, false, errors.New("is not JSON")
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return value, false, nil
	}
	inner, hasValue := fields["value"]
	mark, hasMark := fields["sensitive"]
	if !hasValue || len(fields) > 2 || (len(fields) == 2 && !hasMark) {
		return value, false, nil
	}
	if hasMark {
		if sensitive, ok = mark.(bool); !ok {
			return nil, false, errors.New("has a field sensitive that is neither true nor false")
		}
	}
	return inner, sensitive, nil
}

func checkOutputName(name string) error {
	if name == "" || len(name) > maxOutputName || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("an output's name has 1 to %d characters and no control characters; %s does not", maxOutputName, quote(name))
	}
	return nil
}

// storeSensitive stores the values of sensitive outputs for runs of other workspaces, if the spec wants that. The
// infrastructure is as planned, so a run does not fail if they cannot be stored: runs that need them report it.
func (o *Outcome) storeSensitive(ctx context.Context, h Host, s api.Spec, f found) {
	if !s.ShareOutputs || len(f.hidden) == 0 {
		return
	}
	h.Mask(f.secrets...)
	raw, err := json.Marshal(f.hidden)
	if err == nil {
		var stored api.SensitiveOutputs
		stored.Artifact = api.OutputsName
		if stored.Size, stored.SHA256, err = h.Keep(ctx, api.OutputsName, api.ArtifactOutputs, bytes.NewReader(raw)); err == nil {
			o.SensitiveOutputs = &stored
			return
		}
	}
	h.Logf("sensitive outputs are not available to other workspaces: %v", err)
}

// ReadSensitiveOutputs reads the artifact of sensitive outputs. secrets are the texts and numbers in it, to be
// masked.
func ReadSensitiveOutputs(raw []byte) (outputs map[string]any, secrets []string, err error) {
	value, err := number(raw)
	outputs, ok := value.(map[string]any)
	if err != nil || !ok {
		return nil, nil, errors.New("it is not a JSON object")
	}
	v := values{seen: map[string]bool{}}
	v.all(value)
	return outputs, v.list, nil
}
