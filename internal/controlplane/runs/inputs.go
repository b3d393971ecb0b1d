package runs

import (
	"context"
	"fmt"
	"slices"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane/ledger"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/controlplane/rules"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// inputsOf are the inputs that a run will get at its start. A run without a plan does not read variables.
func inputsOf(w *record.Workflow, ws api.Workspace) []api.WorkspaceInput {
	if !workflow.Plans(w.Type, w.Op) {
		return nil
	}
	return ws.Inputs
}

// mayTake refuses a run that executes the code of a pull request and would be given a sensitive output that no admin
// has marked for that. Without it the code would run on another value of the variable, or on none.
func mayTake(w *record.Workflow, inputs []api.WorkspaceInput) error {
	for i, in := range inputs {
		if untrusted(w) && in.Sensitive && !in.Preview {
			return workflow.Refuse(workflow.ErrForbidden, fmt.Sprintf("inputs[%d].preview", i), "workspace %s takes the sensitive output %s of workspace %s, and runs of pull requests do not get it: an admin of both sets preview: true at this input, or pull_requests.is_disabled", w.Workspace, in.Output, in.Workspace)
		}
	}
	return nil
}

// Inputs are the inputs of a workspace as they are now.
func Inputs(ctx context.Context, c *ledger.Change, org string, ws record.Workspace) (rules.Fed, error) {
	from, _, err := sources(ctx, c, org, ws.W.Inputs)
	return rules.Feed(ws.W.Inputs, from, nil, c.Now), err
}

// sources reads the workspaces that inputs name, and their outputs. keys are those of the records of outputs.
func sources(ctx context.Context, c *ledger.Change, org string, inputs []api.WorkspaceInput) (from map[string]rules.Source, keys []store.Key, err error) {
	var named []store.Key
	for _, in := range inputs {
		if k := record.WorkspaceKey(org, in.Workspace); !slices.Contains(named, k) {
			named = append(named, k)
		}
	}
	if len(named) == 0 {
		return nil, nil, nil
	}
	if err := c.LoadLinked(ctx, named...); err != nil {
		return nil, nil, err
	}
	from = map[string]rules.Source{}
	for _, k := range named {
		ws, ok, err := ledger.Get[record.Workspace](c.Read, k)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			from[ws.W.Name] = rules.Source{ID: ws.ID}
			keys = append(keys, record.ProducedKey(org, ws.ID))
		}
	}
	if err := c.Load(ctx, keys...); err != nil {
		return nil, nil, err
	}
	days, err := c.Retention(ctx, org)
	if err != nil {
		return nil, nil, err
	}
	for name, src := range from {
		if src.Produced, src.Ran, err = ledger.Get[record.Produced](c.Read, record.ProducedKey(org, src.ID)); err != nil {
			return nil, nil, err
		}
		src.Expires = days.ArtifactsUntil(&record.Workflow{Submitted: src.Produced.Submitted})
		from[name] = src
	}
	return from, keys, nil
}

// feed reads the inputs of a run that asks for its start. The start is committed only if none of the workspaces that
// they are from has a new success meanwhile.
func feed(ctx context.Context, c *ledger.Change, w *record.Workflow, spec api.Spec) (rules.Fed, error) {
	if len(spec.Inputs) == 0 {
		return rules.Fed{}, nil
	}
	from, keys, err := sources(ctx, c, w.Org, spec.Inputs)
	if err != nil {
		return rules.Fed{}, err
	}
	for _, k := range keys {
		c.Check(k)
	}
	var own map[string]any
	if spec.Options != nil {
		own = spec.Options.Variables
	}
	return rules.Reached(w, rules.Feed(spec.Inputs, from, own, c.Now)), nil
}

// produce adds to the commit of a run's success its outputs for other workspaces.
func produce(ctx context.Context, c *ledger.Change, w *record.Workflow, in api.Result) error {
	if !w.ChangesState() {
		return nil
	}
	k := record.ProducedKey(w.Org, w.WorkspaceID)
	before, _, err := ledger.Load[record.Produced](ctx, c, k)
	if err != nil {
		return err
	}
	a, _, err := ledger.Load[record.Attempt](ctx, c, record.AttemptKey(w.ID, w.Attempt))
	if err != nil {
		return err
	}
	sensitive, err := sensitiveOutputs(ctx, c, w, in.SensitiveOutputs)
	if err != nil {
		return err
	}
	c.Put(k, rules.Produce(before, w, a.Used, in, sensitive))
	return nil
}

// sensitiveOutputs is the artifact with the values of a run's sensitive outputs; nil if there is none, or if the
// reported one did not arrive.
func sensitiveOutputs(ctx context.Context, c *ledger.Change, w *record.Workflow, in *api.SensitiveOutputs) (*record.SensitiveOutputs, error) {
	if in == nil {
		return nil, nil
	}
	k := record.ArtifactKey(w.ID, w.Attempt, in.Artifact)
	a, ok, err := ledger.Load[record.Artifact](ctx, c, k)
	if err != nil || !ok || a.Placed.IsZero() || a.Kind != api.ArtifactOutputs || a.SHA256 != in.SHA256 || a.Size != in.Size {
		return nil, err
	}
	return &record.SensitiveOutputs{Name: in.Artifact, Size: a.Size, SHA256: a.SHA256, Place: a.Place}, nil
}

// fed adds to a spec the inputs that the run got at its start. The runner asks for the values of sensitive inputs by
// their places in the remaining list.
func fed(spec *api.Spec, given record.Given) {
	spec.Variables = rules.Merged(spec.Variables, given.Variables)
	spec.Inputs = nil
	for _, one := range given.Sensitive {
		spec.Inputs = append(spec.Inputs, one.Input)
	}
}

// takesSensitive says whether any workspace takes sensitive outputs of a workspace.
func takesSensitive(r ledger.Read, org, workspace string) (bool, error) {
	graph, _, err := ledger.Get[record.Graph](r, record.GraphKey(org))
	for _, from := range graph.Sensitive {
		if slices.Contains(from, workspace) {
			return true, err
		}
	}
	return false, err
}
