package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// pullState keeps the state, as it is, as an artifact.
func (t *terraform) pullState(ctx context.Context) (string, error) {
	if err := t.h.EndProcesses(ctx); err != nil {
		return "", runnerError(err)
	}
	pulledName := api.PulledName(t.j.Spec.Engine)
	doc, from, name, err := t.stateFile(ctx)
	if err != nil {
		return "", err
	}
	if doc == nil {
		return "", &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrNotFound, Detail: "there is no state in " + t.place.String() + t.inWorkspace() + ", so there is nothing to pull"}
	}
	file, err := from.open(name)
	if err != nil {
		return "", runnerError(fmt.Errorf("read the state: %w", err))
	}
	defer func() { _ = file.Close() }()
	if _, _, err := t.h.Keep(ctx, pulledName, api.ArtifactState, file); err != nil {
		return "", artifactFailed(ctx, "the state was not kept", err)
	}
	return fmt.Sprintf("%s is the artifact %s", doc, pulledName), nil
}

// pushState makes a document that a person has placed, or that was approved, the state of the workspace. The engine
// itself compares lineage and serial.
func (t *terraform) pushState(ctx context.Context) (string, error) {
	if err := t.h.EndProcesses(ctx); err != nil {
		return "", runnerError(err)
	}
	name := newName("pushed-", ".tfstate")
	defer func() { _ = t.temp.root.Remove(name) }() // it is removed with the run at the latest
	if err := t.writePushed(ctx, name); err != nil {
		return "", err
	}
	doc, err := documentOf(t.temp, name)
	if err != nil || doc == nil {
		return "", notPushed()
	}
	before := t.doc
	if err := pushable(before, doc, t.j.Spec.Push.Force); err != nil {
		return "", err
	}
	if err := t.claimState(ctx, doc); err != nil {
		return "", err
	}
	if err := t.pushFile(ctx, name, t.j.Spec.Push.Force); err != nil {
		return "", err
	}
	if t.doc, err = t.document(ctx); err != nil {
		return "", err
	}
	if t.doc.lacks(doc) {
		return "", stepFailed(stepState, fmt.Errorf("the engine says that it has pushed %s, but in %s there is %s", doc, t.place, t.doc))
	}
	t.keeps = true // the next run is to expect this state
	return fmt.Sprintf("%s; before: %s", t.doc, before), nil
}

// writePushed writes the state that is to be pushed where the engine's user can read it.
func (t *terraform) writePushed(ctx context.Context, name string) error {
	if t.approved != nil {
		if err := t.temp.write(name, t.approved.entries[entryState]); err != nil {
			return runnerError(fmt.Errorf("write the state: %w", err))
		}
		return nil
	}
	out, err := t.temp.create(name)
	if err != nil {
		return runnerError(fmt.Errorf("write the state: %w", err))
	}
	err = t.h.Input(ctx, &limited{out, api.MaxArtifactSize})
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return artifactFailed(ctx, "the state to be pushed did not arrive", err)
	}
	return nil
}

// pushable says why the engine would refuse a state without force, which it does with its own words only in the log.
func pushable(there, pushed *document, force bool) error {
	why := ""
	switch {
	case there == nil || force:
		return nil
	case there.lineage != pushed.lineage:
		why = fmt.Sprintf("it has the lineage %s, and the state that is there has %s: it is another state", pushed.lineage, there.lineage)
	case pushed.serial <= there.serial:
		why = fmt.Sprintf("its serial is %d, and that of the state that is there is %d: give it a higher one", pushed.serial, there.serial)
	default:
		return nil
	}
	return &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrConflict, Detail: "the state is not pushed, because " + why + ", or push it with force"}
}

func notPushed() error {
	return &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrInvalid, Detail: "the file is not a whole state document, so nothing was pushed"}
}

func (t *terraform) storePush(ctx context.Context) (said string, err error) {
	t.out.Plan, said, err = storePush(ctx, t.h, t.mode, t.comparePushed, t.now)
	return said, err
}

// storePush compares the state to be pushed with the current one, and stores it for approval.
func storePush(ctx context.Context, h Host, m mode, compare func(context.Context, []byte) (summary, error), now func() manifest) (plan *api.PlanMade, said string, err error) {
	raw, err := input(ctx, h, maxPlanFile)
	if err != nil {
		return nil, "", err
	}
	s, err := compare(ctx, raw)
	if err != nil {
		return nil, "", err
	}
	plan, err = storeBundle(ctx, h, now(), s, map[string][]byte{entryState: raw}, s.same)
	return plan, s.text(m), err
}

// comparePushed summarises the changes of a push to the state: which resources it would remove, add or change.
func (t *terraform) comparePushed(ctx context.Context, raw []byte) (summary, error) {
	pushed, err := readDocument(bytes.NewReader(raw))
	if err != nil || pushed == nil {
		return summary{}, notPushed()
	}
	var before []byte
	doc, from, name, err := t.stateFile(ctx)
	if err == nil {
		err = pushable(doc, pushed, t.j.Spec.Push.Force)
	}
	if err == nil {
		err = t.claimState(ctx, pushed)
	}
	if err != nil {
		return summary{}, err
	}
	if doc != nil {
		if before, err = from.read(name, maxPlanFile); err != nil {
			return summary{}, runnerError(fmt.Errorf("read the state: %w", err))
		}
	}
	s, err := compareStates(before, raw, readContents)
	if err != nil {
		return s, stepFailed("state push", err)
	}
	if pushed.sealed || doc != nil && doc.sealed {
		s.sealed, s.truncated = true, true
	}
	t.out.Changes, t.out.Truncated = &s.changes, s.truncated
	return s, nil
}

// contents are the parts of a state document that are compared.
type contents struct {
	Resources []struct {
		Module, Mode, Type, Name, Provider string
		Instances                          []struct {
			Key        any            `json:"index_key"`
			Deposed    string         `json:"deposed"`
			Attributes map[string]any `json:"attributes"`
		}
	}
	Outputs map[string]any
}

// compareStates summarises the difference between two states. A resource only in the new one counts as created, one
// only in the old one as destroyed (forgotten).
func compareStates(before, after []byte, read func(raw []byte) (stateContents, error)) (summary, error) {
	was, err := read(before)
	if err != nil {
		return summary{}, err
	}
	is, err := read(after)
	if err != nil {
		return summary{}, err
	}
	s := summary{same: bytes.Equal(before, after)}
	for address, old := range was.resources {
		r := api.ResourceChange{Address: address, Action: "forget", Provider: old.provider}
		if now, ok := is.resources[address]; ok {
			r.Action, r.Changed = "update", changedNames(&tfjson.Change{Before: old.attributes, After: now.attributes})
			if len(r.Changed) == 0 {
				continue
			}
		} else {
			s.changes.Destroy++
		}
		s.add(r)
	}
	s.changes.Forget = 0 // these count as destroyed
	for address, now := range is.resources {
		if _, ok := was.resources[address]; !ok {
			s.add(api.ResourceChange{Address: address, Action: "create", Provider: now.provider})
		}
	}
	outputs := changedNames(&tfjson.Change{Before: was.outputs, After: is.outputs})
	for _, name := range outputs {
		action := "update"
		if _, ok := was.outputs[name]; !ok {
			action = "create"
		} else if _, ok := is.outputs[name]; !ok {
			action = "delete"
		}
		s.changes.Outputs = append(s.changes.Outputs, api.OutputChange{Name: name, Action: action})
	}
	return s, s.finish()
}

var errNotCompared = errors.New("the two states cannot be compared: one of them is in a form that this version cannot read")

// stateResource is a resource, or an instance of one, in a state document.
type stateResource struct {
	provider   string
	attributes map[string]any
}

// stateContents are a state's resources by their addresses, and its outputs.
type stateContents struct {
	resources map[string]stateResource
	outputs   map[string]any
}

// readContents reads a state document. One that is encrypted has no resources that could be read.
func readContents(raw []byte) (stateContents, error) {
	all := stateContents{resources: map[string]stateResource{}}
	var doc contents
	if len(raw) > 0 {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&doc); err != nil { // the error of a decoder may quote values
			return all, errNotCompared
		}
	}
	for _, r := range doc.Resources {
		address := r.Type + "." + r.Name
		if r.Mode == string(tfjson.DataResourceMode) {
			address = "data." + address
		}
		if r.Module != "" {
			address = r.Module + "." + address
		}
		provider := strings.TrimSuffix(strings.TrimPrefix(r.Provider, `provider["`), `"]`)
		for _, i := range r.Instances {
			one := address
			switch key := i.Key.(type) {
			case string:
				one += "[" + strconv.Quote(key) + "]"
			case json.Number:
				one += "[" + key.String() + "]"
			}
			if i.Deposed != "" {
				one += " (deposed " + i.Deposed + ")"
			}
			all.resources[one] = stateResource{provider, i.Attributes}
		}
	}
	all.outputs = doc.Outputs
	return all, nil
}
