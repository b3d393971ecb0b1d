package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// An update plan of Pulumi has the operations and inputs of each resource. `up --plan` ends with an error where the
// program wants more than that, but neither sees that the state has moved, nor undoes what it did before. So the runner
// compares both first: the state's version, and the changes of a second preview. Destroy and refresh know no plan, and
// are bound by that comparison alone.

// now lists the inputs of this run, as far as they are known yet.
func (p *pulumi) now() manifest {
	m := manifestOf(p.j, p.op, p.bin, p.is, p.doc)
	m.Settings = p.settings
	return m
}

// readPlan reads an update plan when no process of the job runs any more.
func (p *pulumi) readPlan(ctx context.Context, step, file string) ([]byte, error) {
	if err := p.h.EndProcesses(ctx); err != nil {
		return nil, runnerError(err)
	}
	plan, err := p.temp.read(file, maxPlanFile)
	if err == nil && len(plan) == 0 {
		err = errors.New("it is empty") // as that of an operation that has none
	}
	if err != nil {
		err = stepFailed(step, fmt.Errorf("the plan file cannot be read: %w", err))
	}
	return plan, err
}

// storePlan stores a plan for the run that applies it after approval, with the settings of a stack that is yet to be made.
func (p *pulumi) storePlan(ctx context.Context, s summary, plan []byte) (err error) {
	entries := map[string][]byte{entryPlan: plan}
	if !p.exists {
		if entries[entrySettings], err = p.root.read(p.project.settings(p.short), maxSettings); err != nil {
			return stepFailed(stepPlan, fmt.Errorf("the settings of the new stack cannot be kept with the plan: %w", err))
		}
	}
	empty := p.exists && !s.changes.Any() && s.changes.Drift+len(s.changes.Outputs) == 0
	if p.out.Plan, err = storeBundle(ctx, p.h, p.now(), s, entries, empty); err == nil {
		p.out.Plan.Loose = plan != nil
	}
	return err
}

// updatePlan is the part of an update plan that is read: of each URN the operations, and of the stack its outputs.
type updatePlan struct {
	ResourcePlans map[string]struct {
		Goal struct {
			OutputDiff struct {
				Adds, Updates map[string]json.RawMessage
				Deletes       []string
			}
		}
		Steps []string
	}
}

// readUpdatePlan reads an update plan; an empty file is one of an operation that has none.
func readUpdatePlan(raw []byte) (u updatePlan, err error) {
	if len(raw) > 0 && json.Unmarshal(raw, &u) != nil { // the error of a decoder may quote values
		err = errors.New("the update plan is in a form that this version cannot read")
	}
	return u, err
}

// outputs lists the outputs of the stack that change. The preview does not have them.
func (u updatePlan) outputs() (list []api.OutputChange) {
	for urn, of := range u.ResourcePlans {
		if typeOfURN(urn) != stackResource {
			continue
		}
		diff := of.Goal.OutputDiff
		for action, names := range map[string][]string{"create": slices.Collect(maps.Keys(diff.Adds)), "update": slices.Collect(maps.Keys(diff.Updates)), "delete": diff.Deletes} {
			for _, name := range names {
				list = append(list, api.OutputChange{Name: name, Action: action})
			}
		}
	}
	return list
}

// beyond names a resource of which the plan allows more than the preview shows; empty: there is none. Who approves has
// seen the preview alone, and the program could have changed the file. Of default providers the preview has no step.
func (u updatePlan) beyond(shown []api.ResourceChange) string {
	actions := map[string]string{}
	for _, r := range shown {
		actions[r.Address] = r.Action
	}
	changesNothing := []string{"same", "read", "read-replacement", "discard", "discard-replaced", "refresh", "diff", "remove-pending-replace", "extend-parameterize"}
	for _, urn := range slices.Sorted(maps.Keys(u.ResourcePlans)) {
		action := actions[urn]
		if action == "replace" || typeOfURN(urn) == stackResource || isDefaultProvider(urn) {
			continue
		}
		for _, op := range u.ResourcePlans[urn].Steps {
			if op != action && !slices.Contains(changesNothing, op) {
				return urn
			}
		}
	}
	return ""
}

// isDefaultProvider says whether a resource is a provider that Pulumi makes itself, by its type and name.
func isDefaultProvider(urn string) bool {
	parts := strings.SplitN(urn, "::", 4)
	return strings.HasPrefix(typeOfURN(urn), "pulumi:providers:") && strings.HasPrefix(parts[len(parts)-1], "default")
}

// fitsApproved compares the stack and its settings with those that the approved plan was made for. A stack that is to be
// created gets the encryption of the plan. Where the code says where it is, only the one there can encrypt a plan.
func (p *pulumi) fitsApproved() error {
	if !p.exists && p.place.kind == api.StateSource && (p.j.Spec.For != "" || p.approved != nil) {
		return &Failure{
			Reason: workflow.ReasonStateNotKept, Err: workflow.ErrInvalid,
			Detail: fmt.Sprintf("the backend has no stack %s, which alone can encrypt the secrets of its plan: create it there with pulumi stack init before its first run that needs an approval", p.stack),
		}
	}
	if err := p.approved.fits(p.now()); err != nil || p.approved == nil || p.exists {
		return err
	}
	if settings, ok := p.approved.entries[entrySettings]; ok {
		return p.root.write(p.project.settings(p.short), settings)
	}
	return nil
}

// check is the last check of an approved plan before it is applied: of its changes, and of the state once more.
func (p *pulumi) check(ctx context.Context) (string, error) {
	var s summary
	var err error
	if !p.mode.push {
		s, _, err = p.preview(ctx, stepCheck)
	} else if err = p.approved.fits(p.now()); err == nil {
		s, err = p.comparePushed(ctx, p.approved.entries[entryState])
	}
	if err == nil && p.doc != nil {
		var state deployment
		if state, _, err = p.export(ctx); err == nil {
			p.doc = state.document(p.lineage())
		}
	}
	if err != nil {
		return "", err
	}
	now := p.now()
	now.Summary = s.digest
	return s.text(p.mode), p.approved.equals(now)
}

// beyondPlan says of a failed update what it means that it left its plan, without the values that pulumi names.
func beyondPlan(failed error) error {
	f, ok := errors.AsType[*Failure](failed)
	if !ok {
		return failed
	}
	for says, plainly := range map[string]string{" violates plan": " violates the approved plan", " is not allowed by the plan": " is not allowed by the approved plan"} {
		if before, _, found := strings.Cut(f.Detail, says); found {
			beyond := *f
			beyond.Detail = before + plainly + ", so the update ended there; what it did before stays done. Make a new preview"
			return &beyond
		}
	}
	return failed
}
