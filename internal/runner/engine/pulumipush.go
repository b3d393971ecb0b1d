package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// pullState keeps the state as an artifact, as pulumi exports it: with its secrets encrypted.
func (p *pulumi) pullState(ctx context.Context) (string, error) {
	name := api.PulledName(p.j.Spec.Engine)
	raw, exists, err := p.exported(ctx)
	if err == nil && !exists {
		err = &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrNotFound, Detail: fmt.Sprintf("there is no stack %s in %s, so there is nothing to pull", p.stack, p.place)}
	}
	if err != nil {
		return "", err
	}
	if _, _, err := p.h.Keep(ctx, name, api.ArtifactState, bytes.NewReader(raw)); err != nil {
		return "", artifactFailed(ctx, "the state was not kept", err)
	}
	return fmt.Sprintf("%s is the artifact %s", p.was.document(p.lineage()), name), nil
}

func (p *pulumi) storePush(ctx context.Context) (said string, err error) {
	p.out.Plan, said, err = storePush(ctx, p.h, p.mode, p.comparePushed, p.now)
	return said, err
}

// comparePushed summarises the changes of a push to the state.
func (p *pulumi) comparePushed(ctx context.Context, raw []byte) (s summary, err error) {
	var before []byte
	if _, err = p.pushable(raw); err == nil {
		before, _, err = p.exported(ctx)
	}
	if err == nil {
		err = p.claimPlace(ctx)
	}
	if err != nil {
		return s, err
	}
	if s, err = compareStates(before, raw, stackContents); err != nil {
		return s, stepFailed("state push", err)
	}
	p.out.Changes, p.out.Truncated = &s.changes, s.truncated
	return s, nil
}

// pushState lets pulumi make a document that a person has placed, or that was approved, the state of the stack. The former
// state is kept first: a backend of files has one copy of it only until the next write.
func (p *pulumi) pushState(ctx context.Context) (string, error) {
	var raw []byte
	var err error
	if p.approved != nil {
		raw = p.approved.entries[entryState]
	} else if raw, err = input(ctx, p.h, maxDeployment); err != nil {
		return "", err
	}
	at, err := p.pushable(raw)
	if err != nil {
		return "", err
	}
	if err := p.claimPlace(ctx); err != nil {
		return "", err
	}
	former, exists, err := p.exported(ctx)
	switch {
	case err != nil:
		return "", err
	case !exists:
		err = p.createStack(ctx)
	default:
		if _, _, err = p.h.Keep(ctx, api.FormerName, api.ArtifactState, bytes.NewReader(former)); err != nil {
			err = artifactFailed(ctx, "the former state was not kept, so nothing was pushed", err)
		}
	}
	if err != nil {
		return "", err
	}
	stamped, err := stampDeployment(raw, at)
	if err != nil {
		return "", err
	}
	file, err := placePlan(ctx, p.h, p.temp, stamped, ".json")
	if err != nil {
		return "", err
	}
	p.locking = true
	if err := p.run(ctx, "state push", p.on("stack", "import", "--file", file)); err != nil {
		return "", err
	}
	p.locking = false
	now, _, err := p.export(ctx)
	if err != nil {
		return "", err
	}
	before := p.was.document(p.lineage())
	if p.doc = now.document(p.lineage()); !now.Manifest.Time.Equal(at) {
		return "", stepFailed(stepState, fmt.Errorf("pulumi says that it has imported the state, but in %s there is %s", p.place, p.doc))
	}
	p.keeps = true // the next run is to expect this state
	if !exists {
		return fmt.Sprintf("%s; before: no stack", p.doc), nil
	}
	return fmt.Sprintf("%s; before: %s, which is the artifact %s", p.doc, before, api.FormerName), nil
}

// claimPlace asks whether the run may change the stack.
func (p *pulumi) claimPlace(ctx context.Context) error {
	return claimStates(ctx, p.h, p.j.Spec.Workflow, p.readOnly, api.StateRef{Place: placeID(p.is, nil, nil)})
}

// pushable checks a state before it is pushed, because Pulumi itself does not. It refuses a file that is no export, or
// that has resources of another stack, also with force: the next update would create everything again. Without force it
// refuses an older state than the current one; editing an export keeps its time, so an edited copy of the current state
// is not older. at is the time that the pushed state gets, which is later than both.
func (p *pulumi) pushable(raw []byte) (at time.Time, err error) {
	var doc struct {
		Version    int
		Deployment *deployment
	}
	if json.Unmarshal(raw, &doc) != nil || doc.Version < 1 || doc.Deployment == nil || doc.Deployment.Manifest.Time.IsZero() {
		return at, notPushed()
	}
	why, own := "", "urn:pulumi:"+p.short+"::"+p.project.Name+"::"
	for _, r := range doc.Deployment.Resources {
		if !strings.HasPrefix(r.URN, own) {
			why = fmt.Sprintf("its resource %s is not one of the stack %s: it is another state", quote(r.URN), p.lineage())
			break
		}
	}
	there, pushed := p.was.document(p.lineage()), doc.Deployment.document(p.lineage())
	if why == "" && !p.j.Spec.Push.Force && p.exists && pushed.serial < there.serial {
		why = fmt.Sprintf("it is older (%s) than the state that is there (%s): pull that one and change it, or push with force", pushed, there)
	}
	if why != "" {
		return at, &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrConflict, Detail: "the state is not pushed, because " + why}
	}
	return time.UnixMilli(max(pushed.serial, there.serial) + 1).UTC(), nil
}

// stampDeployment gives an export the time of its push, and leaves the rest as it is: pulumi would keep the time of the
// state that was edited, and a plan for that one, or another copy of it, would still fit.
func stampDeployment(raw []byte, at time.Time) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var doc map[string]any
	err := dec.Decode(&doc)
	d, _ := doc["deployment"].(map[string]any)
	manifest, ok := d["manifest"].(map[string]any)
	if err != nil || !ok {
		return nil, notPushed()
	}
	manifest["time"] = at
	return json.Marshal(doc)
}

// stackContents reads an export of a stack: of each resource all that is known of it, and the outputs.
func stackContents(raw []byte) (stateContents, error) {
	all := stateContents{resources: map[string]stateResource{}}
	if len(raw) == 0 {
		return all, nil
	}
	var doc struct {
		Deployment struct{ Resources []map[string]any }
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil { // it may quote values
		return all, errNotCompared
	}
	for _, r := range doc.Deployment.Resources {
		inputs, _ := r["inputs"].(map[string]any)
		outputs, _ := r["outputs"].(map[string]any)
		if r["type"] == stackResource {
			all.outputs = outputs
			continue
		}
		attributes := map[string]any{}
		for _, part := range []map[string]any{r, inputs, outputs} {
			for name := range part {
				if name != "inputs" && name != "outputs" {
					attributes[name] = []any{r[name], inputs[name], outputs[name]}
				}
			}
		}
		address, _ := r["urn"].(string)
		if r["delete"] == true {
			address += " (waits for its end)"
		}
		provider, _ := r["provider"].(string)
		all.resources[address] = stateResource{providerOf(provider), attributes}
	}
	return all, nil
}
