package engine

import (
	"context"
	"fmt"
	"path"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// takeOver makes another state that of the run. A run that only reads gets a private copy and changes nothing else.
func (t *terraform) takeOver(ctx context.Context, c otherState) error {
	if t.j.Spec.For != "" && t.place.kind != api.StateDirectory {
		return &Failure{
			Reason: workflow.ReasonStateElsewhere,
			Detail: fmt.Sprintf("a preview takes a state over into a private copy only, and a plan that was made on a copy cannot be applied to %s. Put the state there first, with: dayfly state push %s FILE", t.place, t.j.Spec.Workspace),
		}
	}
	t.taken = text.Cut(c.description, 250)
	if t.readOnly || t.place.kind == api.StateDirectory {
		if t.place.kind != api.StateDirectory {
			if err := t.privateState(); err != nil {
				return runnerError(err)
			}
			t.place = place{kind: api.StateDirectory}
			if err := t.override(t.place); err != nil {
				return err
			}
			t.backendFile = ""
			if err := t.initialise(ctx); err != nil {
				return err
			}
		}
		if err := copyDocument(c, t.state, statePath(t.workspace)); err != nil {
			return runnerError(fmt.Errorf("take over the state: %w", err))
		}
	} else if err := t.push(ctx, c); err != nil {
		return err
	}
	var err error
	if t.doc, err = t.document(ctx); err != nil {
		return err
	}
	if !t.doc.holds() || t.doc.lacks(c.doc) {
		return &Failure{Reason: workflow.ReasonStateElsewhere, Detail: fmt.Sprintf("the state was not taken over completely: it was %s, and in %s there is now %s", c, t.place, t.doc)}
	}
	if t.readOnly {
		t.h.Logf("this run only reads: it plans on a copy, and the state is taken over by a run that changes it")
	}
	return nil
}

// copyDocument copies a state into a place where none is.
func copyDocument(c otherState, to *folder, name string) error {
	in, err := c.from.open(c.file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := to.mkdirs(path.Dir(name)); err != nil {
		return err
	}
	return to.fill(name, in)
}

// push lets the engine write a state into a place that is not a directory, under the state's lock and only if there is
// none. Its lineage there may be a new one.
func (t *terraform) push(ctx context.Context, c otherState) error {
	file := c.file
	if c.from != t.temp { // the engine's user must be able to read it
		file = newName("taken-", ".tfstate")
		if err := copyDocument(c, t.temp, file); err != nil {
			return runnerError(fmt.Errorf("take over the state: %w", err))
		}
	}
	defer func() { _ = t.temp.root.Remove(file) }() // it is removed with the run at the latest
	return t.pushFile(ctx, file, false)
}

// pushFile lets the engine make a file its state, under the state's lock.
func (t *terraform) pushFile(ctx context.Context, file string, force bool) error {
	args := []string{t.bin.path, "state", "push"}
	if force {
		args = append(args, "-force")
	}
	t.locking = true
	_, err := t.run(ctx, "state push", append(args, t.temp.join(file)))
	t.locking = err != nil
	return err
}
