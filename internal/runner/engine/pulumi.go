package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxDeployment  = 128 << 20 // of the state of a stack
	keptUpdates    = 200       // files of the history of a directory, and as many of its backups
	noStack        = "no stack named"
	passphrase     = "PULUMI_CONFIG_PASSPHRASE"
	directoryForm  = "version: 1\n" // of .pulumi/meta.yaml: states lie below their projects
	directoryForms = ".pulumi/meta.yaml"
)

// pulumi is one run of pulumi.
type pulumi struct {
	h        Host
	j        Job
	mode     mode
	readOnly bool
	bin      binary

	temp   *folder // of this run
	home   *folder // PULUMI_HOME
	root   *folder // the program
	state  *folder // with a directory of states, that or a copy
	opened []*folder

	project  pulumiProject
	stack    string // as it is named to pulumi
	short    string // without organization and project
	declares declared
	declared string // address of the backend that the code or the environment declares
	place    place
	address  string // of the backend; empty: pulumi finds it as on any machine
	private  bool   // the backend is a copy that ends with the run

	is     api.StateFound // the place, as it is known again
	exists bool           // the stack does
	was    deployment     // its state before the run
	doc    *document      // the state as it was last seen; nil: none
	taken  string         // the place that it was taken over from
	keeps  bool           // what was found is reported for the next run

	locking bool // a call that takes the stack's lock has begun and did not end well

	out Outcome
}

// askPulumi asks for the version, and versionOfPulumi reads the answer.
func askPulumi() []string { return []string{"version"} }

func versionOfPulumi(out []byte) (*version.Version, error) {
	v, err := version.NewVersion(strings.TrimSpace(string(out)))
	if err != nil {
		return nil, errors.New("its answer is not that of pulumi")
	}
	return v, nil
}

func runPulumi(ctx context.Context, h Host, j Job) (Outcome, error) {
	m, _ := modeOf(j.Spec.Type, j.Spec.Operation)
	p := &pulumi{h: h, j: j, mode: m, readOnly: j.ReadOnlyState || !m.apply}
	p.mode.apply = m.apply && !p.readOnly
	defer p.close()
	err := p.steps(ctx)
	p.out.State = p.found()
	if err == nil {
		return p.out, nil
	}
	f := asFailure(ctx, err)
	if f.Lock == nil {
		f.Lock = p.lockLeft()
	}
	return Outcome{State: p.out.State}, f
}

func (p *pulumi) close() {
	for _, f := range append(p.opened, p.temp, p.home, p.root, p.state) {
		if f != nil {
			f.close()
		}
	}
}

func (p *pulumi) steps(ctx context.Context) error {
	if err := p.h.Step(ctx, stepInit, p.init); err != nil {
		return err
	}
	switch p.j.Spec.Operation { //nolint:exhaustive // all others plan
	case workflow.StateList:
		return p.h.Step(ctx, stepState, p.list)
	case workflow.StateUnlock:
		return p.h.Step(ctx, stepState, p.unlock)
	}
	if err := p.h.Step(ctx, stepPlan, p.plan); err != nil {
		return err
	}
	if p.j.Spec.Type == workflow.InsightsScan {
		p.out.Inventory = keepInventory(ctx, p.h, p.was.managed())
	}
	if !p.mode.apply {
		return nil
	}
	if err := p.h.Step(ctx, stepApply, p.apply); err != nil {
		return err
	}
	return p.h.Step(ctx, stepOutput, p.output)
}

// init finds pulumi and the stack, says where its state lies, and refuses to go on where another state is meant.
func (p *pulumi) init(ctx context.Context) (said string, err error) {
	if p.bin, err = located(ctx, p.h, p.j); err != nil {
		return "", err
	}
	p.h.Logf("%s %s at %s", p.j.Spec.Engine, p.bin.version, p.bin.path)
	if err := p.prepare(); err != nil {
		return "", err
	}
	if err := p.choose(); err != nil {
		return "", err
	}
	p.h.Logf("the state is kept in %s, as the stack %s", p.place, p.stack)
	if err := p.settle(ctx); err != nil {
		return "", err
	}
	if !workflow.Plans(p.j.Spec.Type, p.j.Spec.Operation) {
		return p.doc.String(), nil
	}
	if err := p.writeSettings(); err != nil {
		return "", stepFailed(stepInit, err)
	}
	if !p.exists {
		if err := p.createStack(ctx); err != nil {
			return "", err
		}
	}
	if !p.mode.refreshOnly && !p.mode.destroy { // these do not run the program
		if err := p.run(ctx, stepInit, []string{"install"}); err != nil {
			return "", err
		}
	}
	said = fmt.Sprintf("%s %s, backend %s, stack %s", p.j.Spec.Engine, p.bin.version, p.is.Backend, p.stack)
	if p.taken != "" && !p.readOnly {
		said += fmt.Sprintf("; took over %s as %s", p.taken, p.doc)
	}
	return said, nil
}

// prepare opens the directories of the run and reads the project.
func (p *pulumi) prepare() (err error) {
	if p.temp, err = openFolder(p.j.TempDir, p.j.Owner); err != nil {
		return err
	}
	if p.root, err = openFolder(p.j.Root, p.j.Owner); err != nil {
		return err
	}
	if p.home, err = p.privateFolder("pulumi-home-"); err != nil {
		return err
	}
	if at := p.getenv("PULUMI_HOME"); at != "" { // what is installed there is not fetched again
		if err := p.home.linkTo("plugins", filepath.Join(at, "plugins")); err != nil {
			return err
		}
	}
	for _, file := range projectFiles() {
		raw, err := p.root.read(file, 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			p.project, err = readProject(raw, file)
		}
		if err != nil {
			return stepFailed(stepInit, err)
		}
		return nil
	}
	return &Failure{Reason: workflow.ReasonStepFailed, Err: workflow.ErrNotFound, Detail: "the directory of the source has no Pulumi.yaml: name the directory of the program in the path of the source"}
}

// privateFolder makes an empty directory that ends with the run.
func (p *pulumi) privateFolder(prefix string) (*folder, error) {
	name := newName(prefix, "")
	if err := p.temp.mkdir(name); err != nil {
		return nil, err
	}
	return openFolder(p.temp.join(name), p.j.Owner)
}

func (p *pulumi) getenv(name string) string {
	if p.j.Getenv == nil {
		return ""
	}
	return p.j.Getenv(name)
}

// choose decides what needs no call of pulumi: the stack, and where its state is kept.
func (p *pulumi) choose() (err error) {
	s := p.j.Spec.State
	invalid := func(err error) error {
		return &Failure{Reason: workflow.ReasonStateNotKept, Err: workflow.ErrInvalid, Detail: err.Error()}
	}
	if len(s.BackendConfig) > 0 {
		return invalid(errors.New("backend_config goes with terraform and tofu; of pulumi, set PULUMI_BACKEND_URL in the environment"))
	}
	if p.short, err = p.project.shortStack(s.Workspace); err != nil {
		return invalid(err)
	}
	p.declared, p.declares = declaredBackend(p.project, p.getenv)
	if p.place, err = placeOf(p.j.Spec, p.declares, p.j.Bucket); err != nil {
		return err
	}
	p.stack = p.short
	p.is = api.StateFound{Backend: p.declares.backend, Workspace: s.Workspace}
	where := withoutQuery(p.declared)
	switch p.place.kind {
	case api.StateSource:
		p.stack = s.Workspace
	case api.StateS3:
		p.place.key = path.Dir(p.place.key)
		p.address, where = bucketURL(p.place.bucket, p.place.key), p.place.String()
		p.is.Backend = "s3"
	case api.StateDirectory:
		where = p.place.key
		p.is.Backend, p.is.Store = "local", p.j.StateStore
	}
	p.is.Settings = digest("pulumi", map[string]any{"at": where, "project": p.project.Name})
	if p.place.kind != api.StateSource {
		p.is.Declared = p.declares.name()
	}
	return nil
}

// settle opens the place and decides by the rules of terraform whether the run may go on with what is in it.
func (p *pulumi) settle(ctx context.Context) error {
	if p.place.kind == api.StateDirectory {
		if err := p.openState(ctx); err != nil {
			return err
		}
	}
	if err := p.look(ctx); err != nil || !workflow.Plans(p.j.Spec.Type, p.j.Spec.Operation) {
		return err
	}
	spec := p.j.Spec
	s := sight{
		place: p.place.String(), is: p.is, doc: p.doc, known: spec.Known, ranBefore: spec.RanBefore,
		takeOver: spec.TakeOver, beginAnew: spec.BeginAnew, from: spec.TakeOverFrom,
	}
	if p.doc == nil && !spec.BeginAnew {
		var err error
		if s.found, err = p.elsewhere(); err != nil {
			return err
		}
		if spec.TakeOver && p.is.Declared != "" {
			return elsewhere("Move the stack there with pulumi stack export and pulumi stack import, or run it again with --begin-anew to go on without it",
				"%s, and a stack is not taken over from there", overriding(p.is.Declared, p.place.String()))
		}
	}
	v, err := judge(s)
	if err != nil {
		return err
	}
	if v.say != "" {
		p.h.Logf("%s", v.say)
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

// openState opens the workspace's own directory, or a copy of what it has of the stack for a run that only reads.
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
	return p.form()
}

// form says of a directory what form its states have. Without it, pulumi would look for those of its first versions.
func (p *pulumi) form() error {
	err := p.state.mkdirs(path.Dir(directoryForms))
	if _, missing := p.state.root.Lstat(directoryForms); err == nil && missing != nil {
		err = p.state.write(directoryForms, []byte(directoryForm))
	}
	return err
}

// prune removes the oldest files of what pulumi keeps beside a state of each update. Nobody else does.
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

// look reads the state of the stack. One without resources counts as a state only if the last run left it so: else there
// may have been another one.
func (p *pulumi) look(ctx context.Context) (err error) {
	if p.was, p.exists, err = p.export(ctx); err != nil || !p.exists {
		return err
	}
	doc := p.was.document(p.lineage())
	known := p.j.Spec.Known
	if doc.resources > 0 || known != nil && samePlace(*known, p.is) && known.Lineage == doc.lineage && known.Serial == doc.serial {
		p.doc = doc
	}
	return nil
}

// lineage is what a stack has of the kind: its own name.
func (p *pulumi) lineage() string { return p.project.Name + "/" + p.short }

// export asks for the state; exists is false where there is no such stack.
func (p *pulumi) export(ctx context.Context) (d deployment, exists bool, err error) {
	out := &buffer{most: maxDeployment}
	err = p.exec(ctx, "stack export", p.on("stack", "export"), call{stdout: out, silent: true})
	if f, ok := errors.AsType[*Failure](err); ok && strings.Contains(f.Detail, noStack) {
		return d, false, nil
	}
	if err == nil {
		d, err = readDeployment(out.Bytes())
	}
	if _, ok := errors.AsType[*Failure](err); err != nil && !ok {
		err = stepFailed(stepInit, err)
	}
	return d, err == nil, err
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
	add := func(f *folder, dir, name, what string) error {
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
			return runnerError(fmt.Errorf("state in %s: %w", what, err))
		}
		if doc := d.document(p.lineage()); doc.holds() {
			out = append(out, otherState{name: name, what: what, doc: doc, from: f, file: file})
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
		err = p.form()
	}
	if err == nil {
		p.taken = text.Cut(c.what, 250)
		err = copyDocument(c, p.state, p.project.stateFile(p.short))
	}
	if err == nil {
		err = p.look(ctx)
	}
	if err == nil && (!p.doc.holds() || p.doc.resources < c.doc.resources) {
		err = &Failure{Reason: workflow.ReasonStateElsewhere, Detail: fmt.Sprintf("the state was not taken over completely: it was %s, and there is now %s", c, p.doc)}
	}
	return err
}

// writeSettings puts the workspace's variables into the settings of the stack, in the run's own copy of the source: on a
// command line everybody on the machine could read them.
func (p *pulumi) writeSettings() error {
	file := p.project.settings(p.short)
	raw, err := p.root.read(file, 1<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", file, err)
	}
	settings, err := withSettings(raw, p.project.Name, p.j.Spec.Variables, p.was.Secrets)
	if err == nil && settings != nil {
		if err = p.root.mkdirs(path.Dir(file)); err == nil {
			err = p.root.write(file, settings)
		}
	}
	if err != nil {
		return fmt.Errorf("settings of the stack in %s: %w", file, err)
	}
	return nil
}

// createStack makes the stack of a first run.
func (p *pulumi) createStack(ctx context.Context) error {
	args := p.on("stack", "init")
	if provider := p.j.Spec.State.SecretsProvider; provider != "" {
		args = append(args, "--secrets-provider", provider)
	}
	return p.run(ctx, stepInit, args)
}

// list shows what is in the state.
func (p *pulumi) list(context.Context) (string, error) {
	for _, r := range p.was.Resources {
		p.h.Logf("%s", r.URN)
	}
	if !p.exists {
		return "there is no stack " + p.stack + " in " + p.place.String(), nil
	}
	return text.Count(len(p.was.Resources), "resource"), nil
}

// unlock releases the lock that the run names. In a directory it is a file; elsewhere pulumi releases all that there are.
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
