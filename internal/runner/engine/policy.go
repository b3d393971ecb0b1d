package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// enforced says whether a policy group may stop the run.
func enforced(s api.Spec) bool {
	return slices.ContainsFunc(s.Policies, func(p api.Policy) bool { return p.Enforcement != api.PolicyAdvisory })
}

// denied is the outcome of a failed run: the results of its policies, and the changes and failing checks of a preview
// that they denied, so that people see them.
func denied(s api.Spec, out Outcome, err error) Outcome {
	kept := Outcome{Policies: out.Policies}
	f, ok := errors.AsType[*Failure](err)
	if ok && f.Reason == workflow.ReasonPolicyFailed && !workflow.ChangesState(s.Type, s.Operation) {
		kept.Changes, kept.Units, kept.Truncated, kept.Checks = out.Changes, out.Units, out.Truncated, out.Checks
	}
	return kept
}

// showPlan returns the run's own plan as JSON. If a policy may stop the run, no process of the job runs any more when
// the plan file is read, once: the bytes that policies see are those that are applied.
func (t *terraform) showPlan(ctx context.Context) ([]byte, error) {
	if !t.mode.apply || !enforced(t.j.Spec) {
		return t.quiet(ctx, stepPlan, showArgs(t.bin.path, t.planFile), nil, maxPlanJSON)
	}
	if err := t.h.EndProcesses(ctx); err != nil {
		return nil, runnerError(err)
	}
	plan, err := t.temp.read(t.planName, maxPlanFile)
	if err != nil {
		return nil, stepFailed(stepPlan, fmt.Errorf("policies cannot read the plan file: %w", err))
	}
	t.pinned = plan
	return t.showCopy(ctx, stepPlan, plan)
}

// checkPolicies evaluates the policies of the run over its plan, or over the state if the run is a policy evaluation.
func (t *terraform) checkPolicies(ctx context.Context) (err error) {
	switch {
	case t.mode.evaluate:
		if t.shown, err = t.readState(ctx); err != nil {
			return err
		}
	case len(t.shown.Inputs) == 0 && t.shown.Missing == "":
		return nil // it makes no plan, or has no policies
	}
	t.out.Policies, err = t.h.Policies(ctx, t.shown)
	t.shown = PolicyInputs{} // it may be large
	return err
}

// readState returns the state as the engine shows it in JSON. Without a state it shows an empty one.
func (t *terraform) readState(ctx context.Context) (PolicyInputs, error) {
	if len(t.j.Spec.Policies) == 0 {
		return PolicyInputs{}, nil
	}
	raw, err := t.quiet(ctx, stepState, []string{t.bin.path, "show", "-json"}, nil, maxPlanJSON)
	if errors.Is(err, errTooLong) {
		return PolicyInputs{Missing: fmt.Sprintf("the state has more than %d MiB of JSON, which is too large for policies", maxPlanJSON>>20)}, nil
	}
	if err != nil {
		return PolicyInputs{}, err
	}
	secrets, err := sensitiveInState(raw)
	if err != nil {
		return PolicyInputs{}, stepFailed(stepState, err)
	}
	t.h.Mask(secrets...)
	return PolicyInputs{Inputs: []PolicyInput{{JSON: raw}}}, nil
}

// sensitiveInState collects the values that a state marks as sensitive.
func sensitiveInState(raw []byte) ([]string, error) {
	var state tfjson.State
	state.UseJSONNumber(true)
	if err := json.Unmarshal(raw, &state); err != nil {
		// The error of a decoder may quote values.
		return nil, errors.New("the engine's state is in a form that this version cannot read")
	}
	v := values{seen: map[string]bool{}}
	if state.Values == nil {
		return nil, nil
	}
	for _, o := range state.Values.Outputs {
		if o != nil && o.Sensitive {
			v.all(o.Value)
		}
	}
	modules := []*tfjson.StateModule{state.Values.RootModule}
	for i := 0; i < len(modules); i++ {
		if modules[i] == nil {
			continue
		}
		for _, r := range modules[i].Resources {
			if r == nil {
				continue
			}
			var marks any
			if len(r.SensitiveValues) > 0 && json.Unmarshal(r.SensitiveValues, &marks) == nil {
				v.marked(r.AttributeValues, marks)
			}
		}
		modules = append(modules, modules[i].ChildModules...)
	}
	return v.list, nil
}

// checkPolicies holds the plans of all units to the policies of the run, before any of them is applied.
func (g *terragrunt) checkPolicies(ctx context.Context) (err error) {
	if len(g.j.Spec.Policies) == 0 || g.mode.scan {
		return nil
	}
	g.out.Policies, err = g.h.Policies(ctx, g.shown)
	g.shown = PolicyInputs{}
	return err
}

// addPolicyInput keeps the plan of a unit for the policies of the run.
func (g *terragrunt) addPolicyInput(unit string, raw []byte) {
	if len(g.j.Spec.Policies) == 0 || g.shown.Missing != "" {
		return
	}
	all := len(raw)
	for _, in := range g.shown.Inputs {
		all += len(in.JSON)
	}
	if all > maxPlanJSON {
		g.shown = PolicyInputs{Missing: fmt.Sprintf("the plans of the units have more than %d MiB of JSON, which is too large for policies", maxPlanJSON>>20)}
		return
	}
	g.shown.Inputs = append(g.shown.Inputs, PolicyInput{Unit: unit, JSON: raw})
}

// unplanned says for the policies of the run which units have no plan, because they need outputs of units that were never
// applied, or because terragrunt ignored an error.
func (g *terragrunt) unplanned(e ended) {
	var early, said []string
	for _, u := range e.units {
		if _, ok := g.plans[u.name]; !ok && u.result != unitExcluded && u.result != unitIgnored {
			early = append(early, u.name)
		}
	}
	if len(early) > 0 {
		said = append(said, "these units have no plan yet that policies can read, because they need outputs of units that were never applied: "+text.Some(early, maxListed))
	}
	if ignored := e.named(unitIgnored); len(ignored) > 0 {
		said = append(said, "these units have no plan that policies can read, because terragrunt ignored an error: "+text.Some(ignored, maxListed))
	}
	g.shown.Missing = cmp.Or(g.shown.Missing, text.Middle(strings.Join(said, "; "), maxDetail))
}

// InUnit returns an address with the path of the unit that it is in.
func InUnit(unit, address string) string {
	if unit == "" || address == "" {
		return address
	}
	return inUnit(unit, address)
}
