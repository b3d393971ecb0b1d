package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	bundleName   = api.PlanDir + "bundle.tar"
	lockFileName = ".terraform.lock.hcl"
)

// approved is the plan that the run applies, or the state that it pushes.
type approved struct {
	manifest manifest
	entries  map[string][]byte
}

// plans says whether it is a plan of an engine, not a state to be pushed.
func (a *approved) plans() bool {
	if a == nil {
		return false
	}
	_, ok := a.entries[entryPlan]
	return ok
}

// show reads a plan file.
func (t *terraform) show(ctx context.Context, step string, plan []byte) (summary, error) {
	raw, err := t.showCopy(ctx, step, plan)
	if errors.Is(err, errTooLong) {
		return summary{}, stepFailed(step, fmt.Errorf("the plan has more than %d MiB of JSON, which is too large to be approved", maxPlanJSON>>20))
	}
	if err != nil {
		return summary{}, err
	}
	return t.recordPlan(step, raw)
}

// showCopy returns a plan as JSON. The engine reads a copy of the bytes that count, in a file of a new name.
func (t *terraform) showCopy(ctx context.Context, step string, plan []byte) ([]byte, error) {
	dir := newName("show-", "")
	name := dir + "/plan.tfplan"
	if err := errors.Join(t.h.EndProcesses(ctx), t.temp.mkdir(dir), t.temp.write(name, plan)); err != nil {
		return nil, runnerError(fmt.Errorf("write the plan file: %w", err))
	}
	raw, err := t.quiet(ctx, step, showArgs(t.bin.path, t.temp.join(name)), nil, maxPlanJSON)
	if err != nil {
		return nil, err
	}
	if err := t.h.EndProcesses(ctx); err != nil {
		return nil, runnerError(err)
	}
	if left, err := t.temp.read(name, maxPlanFile); err != nil || !bytes.Equal(left, plan) {
		return nil, stepFailed(step, errors.New("the plan file was changed while the engine showed it, by a provider or a program of the code"))
	}
	return raw, nil
}

// storePlan stores the plan for the run that applies it after approval. No process of the job runs any more when the
// plan file is read, once: the bytes that are shown are those that are stored.
func (t *terraform) storePlan(ctx context.Context, empty bool) (summary, error) {
	if err := t.h.EndProcesses(ctx); err != nil {
		return summary{}, runnerError(err)
	}
	plan, err := t.temp.read(t.planName, maxPlanFile)
	if err != nil {
		return summary{}, stepFailed(stepPlan, fmt.Errorf("the plan file cannot be kept: %w", err))
	}
	entries := map[string][]byte{entryPlan: plan}
	lock, err := t.root.read(lockFileName, maxLockFile)
	switch {
	case err == nil:
		entries[entryLock] = lock
	case !errors.Is(err, fs.ErrNotExist):
		return summary{}, stepFailed(stepPlan, fmt.Errorf("the dependency lock file cannot be kept with the plan: %w", err))
	}
	s, err := t.show(ctx, stepPlan, plan)
	if err != nil {
		return s, err
	}
	t.out.Plan, err = storeBundle(ctx, t.h, t.now(), s, entries, empty)
	return s, err
}

// storeBundle stores a bundle as an artifact.
func storeBundle(ctx context.Context, h Host, m manifest, s summary, entries map[string][]byte, empty bool) (*api.PlanMade, error) {
	m.Summary = s.digest
	raw, err := newBundle(m, entries)
	if err != nil {
		return nil, runnerError(fmt.Errorf("keep the plan: %w", err))
	}
	size, sum, err := h.Keep(ctx, bundleName, api.ArtifactPlan, bytes.NewReader(raw))
	if err != nil {
		return nil, artifactFailed(ctx, "the plan was not kept", err)
	}
	return &api.PlanMade{Artifact: bundleName, Size: size, SHA256: sum, Summary: s.digest, Values: s.values, Empty: empty, Source: m.Source}, nil
}

// fetchBundle fetches the approved plan and compares it with all that is known of the run, now, before the engine is
// set up.
func fetchBundle(ctx context.Context, h Host, ref *api.PlanRef, now manifest) (*approved, error) {
	raw, err := input(ctx, h, maxBundle)
	if err != nil {
		return nil, err
	}
	if got := sha256Hex(raw); got != ref.SHA256 {
		return nil, planStale(fmt.Sprintf("its bundle has the SHA-256 %s, and %s was approved", got, ref.SHA256))
	}
	m, entries, err := readBundle(raw)
	if err != nil {
		return nil, planStale("its bundle cannot be used: " + err.Error())
	}
	now.State, now.Settings, now.Summary = m.State, m.Settings, ref.Summary // the state and the settings are not known yet
	if change := stale(m, now); change != "" {
		return nil, planStale(change)
	}
	if _, ok := entries[entryState]; ok != (now.For == workflow.StatePush) {
		return nil, planStale("its bundle is not one for the operation " + string(now.For))
	}
	return &approved{m, entries}, nil
}

// fetchApproved fetches the approved plan. Then it writes the dependency lock file.
func (t *terraform) fetchApproved(ctx context.Context) (err error) {
	if t.approved, err = fetchBundle(ctx, t.h, t.j.Spec.Plan, t.now()); err != nil {
		return err
	}
	t.pinned = t.approved.entries[entryPlan]
	if lock, ok := t.approved.entries[entryLock]; ok {
		if err := t.root.write(lockFileName, lock); err != nil {
			return runnerError(fmt.Errorf("write the dependency lock file: %w", err))
		}
	}
	return nil
}

// fits compares the run, now, with the one that the approved plan was made for; but for the summary of its changes.
func (a *approved) fits(now manifest) error {
	if a == nil {
		return nil
	}
	now.Summary = a.manifest.Summary
	return a.equals(now)
}

// equals compares the run, now, with the one that the approved plan was made for.
func (a *approved) equals(now manifest) error {
	if change := stale(a.manifest, now); change != "" {
		return planStale(change)
	}
	return nil
}

// check is the last check of an approved plan before it is applied: of its inputs and of its changes.
func (t *terraform) check(ctx context.Context) (string, error) {
	if err := t.approved.fits(t.now()); err != nil {
		return "", err
	}
	var s summary
	var err error
	if t.op == workflow.StatePush {
		s, err = t.comparePushed(ctx, t.approved.entries[entryState])
	} else {
		s, err = t.show(ctx, stepCheck, t.approved.entries[entryPlan])
	}
	if err != nil {
		return "", err
	}
	now := t.now()
	now.Summary = s.digest
	return s.text(t.mode), t.approved.equals(now)
}

// placePlan writes the plan that was approved, or that policies have seen, right before it is applied, under a new
// name that no process of the job can know.
func placePlan(ctx context.Context, h Host, temp *folder, plan []byte, end string) (file string, err error) {
	if err := h.EndProcesses(ctx); err != nil {
		return "", runnerError(err)
	}
	name := newName("plan-", end)
	if err := temp.write(name, plan); err != nil {
		return "", runnerError(fmt.Errorf("write the plan file: %w", err))
	}
	return temp.join(name), nil
}

// input reads the artifact that the run is to use.
func input(ctx context.Context, h Host, limit int) ([]byte, error) {
	in := &buffer{limit: limit}
	if err := h.Input(ctx, in); err != nil {
		return nil, artifactFailed(ctx, "the artifact that the run uses cannot be fetched", err)
	}
	if in.over {
		return nil, artifactFailed(ctx, "the artifact that the run uses cannot be fetched", fmt.Errorf("it has more than %d MiB", limit>>20))
	}
	return in.Bytes(), nil
}

// artifactFailed says that an artifact could not be placed or fetched.
func artifactFailed(ctx context.Context, problem string, err error) error {
	if _, ok := errors.AsType[*Failure](err); ok {
		return err
	}
	if context.Cause(ctx) != nil {
		return interrupted(ctx, "")
	}
	return &Failure{Reason: workflow.ReasonArtifactFailed, Err: err, Detail: text.Middle(problem+": "+err.Error(), maxDetail)}
}
