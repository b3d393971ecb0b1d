package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
)

// maxInputs is how many bytes the sensitive outputs of one workspace may have.
const maxInputs = 16 << 20

// inputs returns the variables of a run with the sensitive outputs that it gets from other workspaces. They are only
// in memory here, and all values that came with them are masked, also those that the run does not get.
func (r *run) inputs(ctx context.Context, spec api.Spec) (map[string]any, error) {
	if len(spec.Inputs) == 0 {
		return spec.Variables, nil
	}
	variables, from := maps.Clone(spec.Variables), map[string]map[string]any{}
	if variables == nil {
		variables = map[string]any{}
	}
	for n, in := range spec.Inputs {
		outputs, fetched := from[in.Workspace]
		if !fetched {
			var err error
			if outputs, err = r.outputsOf(ctx, n); err != nil {
				return nil, fmt.Errorf("the sensitive output %s of workspace %s cannot be fetched: %w", in.Output, in.Workspace, err)
			}
			from[in.Workspace] = outputs
		}
		value, ok := outputs[in.Output]
		if !ok {
			return nil, fmt.Errorf("the sensitive outputs of workspace %s lack %s: run an update of it once", in.Workspace, in.Output)
		}
		variables[cmp.Or(in.Variable, in.Output)] = value
	}
	return variables, nil
}

// outputsOf fetches the sensitive outputs of the workspace of an input. None is used before all are here, have the
// digest that the control plane knows, and are masked.
func (r *run) outputsOf(ctx context.Context, n int) (map[string]any, error) {
	var raw bytes.Buffer
	var a api.Artifact
	err := r.transfer(ctx, "input", func(ctx context.Context) (api.Control, error) {
		in, err := r.cfg.Relay.InputOf(ctx, n)
		if err != nil {
			return api.Control{}, err
		}
		switch a = in.Artifact; {
		case in.Download == nil || a.Kind != api.ArtifactOutputs:
			return in.Control, errors.New("the relay serves no outputs of other workspaces")
		case a.Size > maxInputs:
			return in.Control, fmt.Errorf("the outputs have %d bytes; at most %d are taken", a.Size, maxInputs)
		}
		raw.Reset()
		return in.Control, r.cfg.Relay.Download(ctx, *in.Download, &raw, a.Size)
	})
	if err != nil {
		return nil, err
	}
	if size, sum, err := digest(bytes.NewReader(raw.Bytes())); err != nil || size != a.Size || sum != a.SHA256 {
		return nil, fmt.Errorf("%d bytes with the SHA-256 %s arrived, and not %d bytes with %s: they were replaced; nothing of them was used", size, sum, a.Size, a.SHA256)
	}
	outputs, secrets, err := engine.ReadSensitiveOutputs(raw.Bytes())
	if err != nil {
		return nil, err
	}
	r.mask(secrets...)
	return outputs, nil
}
