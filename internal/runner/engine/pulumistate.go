package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// resolveState opens the place of the state and decides by the rules of terraform whether the run may use it.
func (p *pulumi) resolveState(ctx context.Context) error {
	if p.place.kind == api.StateDirectory {
		if err := p.openState(ctx); err != nil {
			return err
		}
	}
	if err := p.readStack(ctx); err != nil || !workflow.Plans(p.j.Spec.Type, p.op) {
		return err
	}
	s, err := p.findStates()
	if err != nil {
		return err
	}
	return p.useState(ctx, s)
}

// findStates collects the findings for decide.
func (p *pulumi) findStates() (stateFindings, error) {
	spec := p.j.Spec
	s := stateFindings{
		place: p.place.String(), is: p.is, doc: p.doc, known: spec.Known, withheld: spec.Withheld,
		takeOver: spec.TakeOver, beginAnew: spec.BeginAnew, from: spec.TakeOverFrom,
	}
	if p.doc != nil || spec.BeginAnew {
		return s, nil
	}
	var err error
	if s.found, err = p.elsewhere(); err != nil {
		return s, err
	}
	if spec.TakeOver && p.is.Declared != "" {
		return s, elsewhere("Move the stack there with pulumi stack export and pulumi stack import, or run it again with --begin-anew to go on without it",
			"%s, and a stack is not taken over from there", overriding(p.is.Declared, p.place.String()))
	}
	return s, nil
}

// useState decides between the states that were found, claims the place, and takes a state over if necessary.
func (p *pulumi) useState(ctx context.Context, s stateFindings) error {
	v, err := decide(s)
	if err != nil {
		return err
	}
	if v.note != "" {
		p.h.Logf("%s", v.note)
	}
	if err := p.claimPlace(ctx); err != nil {
		return err
	}
	if v.take != nil {
		if err := p.takeOver(ctx, *v.take); err != nil {
			return err
		}
	}
	p.keeps = !p.readOnly || !s.takeOver && !s.beginAnew
	if p.readOnly && !p.exists && !p.private {
		return p.usePrivate() // to create the stack would change the backend
	}
	return nil
}

// openState opens the workspace's own directory, or a copy of its state of the stack for a run that only reads.
func (p *pulumi) openState(ctx context.Context) (err error) {
	if p.j.StateDir == "" {
		return &Failure{Reason: workflow.ReasonStateNotKept, Detail: "the workspace's state has kind directory, and this runner was given no directory for it"}
	}
	if p.readOnly {
		if err = p.usePrivate(); err == nil {
			err = copyState(ctx, p.j.StateDir, p.project.stateFile(p.short), p.state)
		}
	} else if p.state, err = openState(p.h, p.j); err == nil {
		p.address = "file://" + p.state.path
		err = p.prune()
	}
	if err != nil {
		return runnerError(fmt.Errorf("open state directory: %w", err))
	}
	return nil
}

// usePrivate makes an empty directory of states the backend, which ends with the run.
func (p *pulumi) usePrivate() (err error) {
	if p.state, err = p.privateFolder("state-"); err != nil {
		return err
	}
	p.private, p.stack, p.address = true, p.short, "file://"+p.state.path
	return p.markFormat()
}

// markFormat writes the file that names the format of a directory's states. Without it, pulumi would expect the
// format of its first versions.
func (p *pulumi) markFormat() error {
	err := p.state.mkdirs(path.Dir(directoryForms))
	if _, missing := p.state.root.Lstat(directoryForms); err == nil && missing != nil {
		err = p.state.write(directoryForms, []byte(directoryForm))
	}
	return err
}

// prune removes the oldest history and backup files, which pulumi adds at each update and never removes.
func (p *pulumi) prune() error {
	for _, kind := range []string{"history", "backups"} {
		dir := path.Join(".pulumi", kind, p.project.Name, p.short)
		all, err := fs.ReadDir(p.state.root.FS(), dir) // in the order of their names, which have the time
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range all[:max(0, len(all)-keptUpdates)] {
			if err := p.state.root.Remove(path.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// readStack reads the state of the stack. A state without resources counts only if the last run recorded it: else
// there may have been another one.
func (p *pulumi) readStack(ctx context.Context) (err error) {
	if p.was, p.exists, err = p.export(ctx); err != nil || !p.exists {
		return err
	}
	if said := p.was.pending(); said != "" {
		p.h.Logf("WARNING: %s. A refresh corrects the state; resources that were created have to be imported", said)
	}
	doc := p.was.document(p.lineage())
	known := p.j.Spec.Known
	if doc.resources > 0 || known != nil && samePlace(*known, p.is) && known.Lineage == doc.lineage && known.Serial == doc.serial {
		p.doc = doc
	}
	return nil
}

// lineage is the name of the stack, which serves as its lineage.
func (p *pulumi) lineage() string { return p.project.Name + "/" + p.short }

// export reads the state; exists is false if there is no such stack.
func (p *pulumi) export(ctx context.Context) (d deployment, exists bool, err error) {
	raw, exists, err := p.exported(ctx)
	if err == nil && exists {
		d, err = readDeployment(raw)
	}
	if _, ok := errors.AsType[*Failure](err); err != nil && !ok {
		err = stepFailed(stepInit, err)
	}
	return d, err == nil && exists, err
}

// exported is the state as pulumi exports it. Secrets in it are encrypted.
func (p *pulumi) exported(ctx context.Context) (raw []byte, exists bool, err error) {
	out := &buffer{limit: maxDeployment}
	err = p.exec(ctx, "stack export", p.on("stack", "export"), call{stdout: out, silent: true})
	if f, ok := errors.AsType[*Failure](err); ok && strings.Contains(f.Detail, noStack) {
		return nil, false, nil
	}
	if err == nil && out.over {
		err = stepFailed(stepInit, errTooLong)
	}
	return out.Bytes(), err == nil, err
}

// elsewhere lists the states of the stack that lie beside the code, and in directories that the workspace's name had.
func (p *pulumi) elsewhere() ([]otherState, error) {
	var out []otherState
	beside := "."
	if at, local := strings.CutPrefix(p.declared, "file://"); local {
		at, _, _ = strings.Cut(at, "?")
		if beside = path.Clean(at); !filepath.IsLocal(beside) || strings.HasPrefix(beside, "~") {
			return nil, elsewhere("Move the stack, or run it again with --begin-anew to go on without it",
				"the code declares the backend %s, which is not part of the source", quote(p.declared))
		}
	}
	add := func(f *folder, dir, name, description string) error {
		file := path.Join(dir, p.project.stateFile(p.short))
		raw, err := f.read(file, maxDeployment)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var d deployment
		if err == nil {
			d, err = readDeployment(raw)
		}
		if err != nil {
			return runnerError(fmt.Errorf("state in %s: %w", description, err))
		}
		if doc := d.document(p.lineage()); doc.holds() {
			out = append(out, otherState{name: name, description: description, doc: doc, from: f, file: file})
		}
		return nil
	}
	if err := add(p.root, beside, "source", "the directory .pulumi beside the code"); err != nil {
		return nil, err
	}
	for _, dir := range p.j.StateOlds {
		f, err := openFolder(dir, nil)
		if err != nil {
			return nil, err
		}
		p.opened = append(p.opened, f)
		name := filepath.Base(dir)
		if err := add(f, ".", name, place{kind: api.StateDirectory, key: p.j.Spec.Organization + "/" + name}.String()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// takeOver copies a state into the workspace's directory, or for a run that only reads into a copy.
func (p *pulumi) takeOver(ctx context.Context, c otherState) (err error) {
	switch {
	case p.private:
	case p.readOnly:
		err = p.usePrivate()
	case p.place.kind != api.StateDirectory:
		return elsewhere("Move the stack there with pulumi stack export and pulumi stack import",
			"a stack is taken over into a directory only, and not into %s", p.place)
	default:
		err = p.markFormat()
	}
	if err == nil {
		p.taken = text.Cut(c.description, 250)
		err = copyDocument(c, p.state, p.project.stateFile(p.short))
	}
	if err == nil {
		err = p.readStack(ctx)
	}
	if err == nil && (!p.doc.holds() || p.doc.lacks(c.doc)) {
		err = &Failure{Reason: workflow.ReasonStateElsewhere, Detail: fmt.Sprintf("the state was not taken over completely: it was %s, and there is now %s", c, p.doc)}
	}
	return err
}

// list shows the resources in the state.
func (p *pulumi) list(context.Context) (string, error) {
	log := p.h.LogWriter()
	for _, r := range p.was.Resources {
		_, _ = fmt.Fprintln(log, r.URN)
	}
	_ = log.Close()
	if !p.exists {
		return "there is no stack " + p.stack + " in " + p.place.String(), nil
	}
	return text.Count(len(p.was.Resources), "resource"), nil
}

// unlock releases the lock that the run names. In a directory it is a file; elsewhere pulumi releases all locks.
func (p *pulumi) unlock(ctx context.Context) (string, error) {
	id := p.j.Spec.LockID
	if p.place.kind != api.StateDirectory {
		return "the locks of the stack are released", p.run(ctx, stepState, p.on("cancel", "--yes"))
	}
	state, err := openFolder(p.j.StateDir, nil)
	if err != nil {
		return "", err
	}
	defer state.close()
	file := path.Join(p.locks(), path.Base(id)+".json")
	if err := state.root.Remove(file); err != nil {
		return "", fmt.Errorf("release lock %s: %w", id, err)
	}
	_ = state.root.Remove(file + ".attrs")
	return "lock " + id + " is released", nil
}

// remainingLock is the lock in the directory of a run that was killed.
func (p *pulumi) remainingLock() *api.Lock {
	if !p.locking {
		return nil
	}
	lock := p.lockInState()
	if lock != nil {
		lock.Operation = "pulumi " + p.operation()
	}
	return lock
}

// notLocked refuses to change a stack under a lock. Pulumi itself would say so after a preview only.
func (p *pulumi) notLocked(lock *api.Lock) error {
	if lock == nil || !p.mode.apply {
		return nil
	}
	return &Failure{Reason: workflow.ReasonStepFailed, Detail: lockSentence(lock, p.j.Spec.Workspace), Lock: lock}
}

// lockInState is a lock of the stack in a directory of states; nil if there is none.
func (p *pulumi) lockInState() *api.Lock {
	if p.state == nil {
		return nil
	}
	all, _ := fs.Glob(p.state.root.FS(), p.locks()+"/*.json")
	if len(all) == 0 {
		return nil
	}
	fields := map[string]string{"ID": strings.TrimSuffix(path.Base(all[0]), ".json"), "Path": all[0], "Operation": "pulumi"}
	var by struct {
		PID                           int
		Username, Hostname, Timestamp string
	}
	if raw, err := p.state.read(all[0], 64<<10); err == nil && json.Unmarshal(raw, &by) == nil && by.Username != "" {
		fields["Who"], fields["Created"] = fmt.Sprintf("%s@%s (pid %d)", by.Username, by.Hostname, by.PID), by.Timestamp
	}
	return lockOf(fields)
}

// locks is where a backend that is a directory has the locks of the stack.
func (p *pulumi) locks() string {
	return path.Join(".pulumi/locks/organization", p.project.Name, p.short)
}
