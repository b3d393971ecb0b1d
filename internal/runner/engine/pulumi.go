package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	oldestPulumi   = "3.100.0" // before it, states lie elsewhere, and not every command has a preview
	maxDeployment  = 128 << 20 // of the state of a stack
	keptUpdates    = 200       // files of the history of a directory, and as many of its backups
	noStack        = "no stack named"
	directoryForm  = "version: 1\n" // of .pulumi/meta.yaml: states lie below their projects
	directoryForms = ".pulumi/meta.yaml"
)

// pulumi is one run of pulumi.
type pulumi struct {
	h        Host
	j        Job
	op       workflow.Operation
	mode     mode
	readOnly bool
	bin      binary

	approved *approved // nil: none was asked for
	settings string    // SHA-256 of those of the stack, with the workspace's variables

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
	keeps  bool           // found is recorded for the next run

	locking bool // a call that takes the stack's lock was started and did not succeed

	out  Outcome
	done Outcome // of a failed run: the changes that it made before
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
	op, m, readOnly, err := modeOfJob(j)
	if err != nil {
		return Outcome{}, err
	}
	p := &pulumi{h: h, j: j, op: op, mode: m, readOnly: readOnly}
	defer p.close()
	err = p.steps(ctx)
	p.out.State = p.found()
	if err == nil {
		return p.out, nil
	}
	f := asFailure(ctx, err)
	if f.Lock == nil {
		f.Lock = p.remainingLock()
	}
	p.done.State = p.out.State
	return p.done, f
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
	switch p.op { //nolint:exhaustive // all others plan
	case workflow.StateList:
		return p.h.Step(ctx, stepState, p.list)
	case workflow.StateUnlock:
		return p.h.Step(ctx, stepState, p.unlock)
	case workflow.StatePull:
		return p.h.Step(ctx, stepState, p.pullState)
	}
	var err error
	switch {
	case p.approved != nil:
		err = p.h.Step(ctx, stepCheck, p.check)
	case !p.mode.push:
		err = p.h.Step(ctx, stepPlan, p.plan)
	case !p.mode.apply:
		err = p.h.Step(ctx, stepPlan, p.storePush)
	}
	if err != nil {
		return err
	}
	if p.j.Spec.Type == workflow.InsightsScan {
		p.out.Inventory = keepInventory(ctx, p.h, p.was.managed())
	}
	switch {
	case !p.mode.apply:
		return nil
	case p.mode.push:
		return p.h.Step(ctx, stepState, p.pushState)
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
	if !minAt(p.bin.version, oldestPulumi) {
		return "", &Failure{
			Reason: workflow.ReasonEngineNotFound,
			Detail: fmt.Sprintf("this version needs pulumi %s or newer; this runner has %s", oldestPulumi, p.bin.version),
		}
	}
	p.h.Logf("%s %s at %s", p.j.Spec.Engine, p.bin.version, p.bin.path)
	if p.j.Spec.Plan != nil {
		if p.approved, err = fetchBundle(ctx, p.h, p.j.Spec.Plan, p.now()); err != nil {
			return "", err
		}
	}
	if err := p.prepare(); err != nil {
		return "", err
	}
	if err := p.choose(); err != nil {
		return "", err
	}
	p.h.Logf("the state is kept in %s, as the stack %s", p.place, p.stack)
	if err := p.resolveState(ctx); err != nil {
		return "", err
	}
	said = fmt.Sprintf("%s %s, backend %s, stack %s", p.j.Spec.Engine, p.bin.version, p.is.Backend, p.stack)
	lock := p.lockInState()
	if !workflow.Plans(p.j.Spec.Type, p.op) {
		return said, p.notLocked(lock)
	}
	if err := p.writeSettings(); err != nil {
		return "", stepFailed(stepInit, err)
	}
	if err := p.fitsApproved(); err != nil {
		f := asFailure(ctx, err)
		f.Lock = lock // a run that was killed leaves both
		return "", f
	}
	if err := p.notLocked(lock); err != nil {
		return "", err
	}
	if !p.exists {
		if err := p.createStack(ctx); err != nil {
			return "", err
		}
	}
	if err := p.writeSecrets(ctx); err != nil {
		return "", err
	}
	runs := !p.mode.refreshOnly && !p.mode.destroy || p.was.dynamic() // the others do not run the program
	if wanted := p.j.Spec.Install; runs && (wanted == nil || *wanted) {
		if err := p.install(ctx); err != nil {
			if p.j.Packages != "" {
				p.h.Logf("the workspace's cache of packages is dropped: it may be why")
				p.j.DropPackages()
			}
			return "", err
		}
	}
	if p.taken != "" && !p.readOnly {
		said += fmt.Sprintf("; took over %s as %s", p.taken, p.doc)
	}
	return said, nil
}

// install fetches the dependencies of the program. Pulumi lists the directories above it until it finds the file of a
// policy pack, and fails at one that the engine's user cannot list, such as those above the source. So it gets a path
// to the source with such a file above it. It takes the pack for another project, because that is not below the
// program.
func (p *pulumi) install(ctx context.Context) error {
	dir := newName("install-", "")
	below, err := filepath.Rel(cmp.Or(p.j.Top, p.j.Root), p.j.Root)
	if err == nil {
		err = p.temp.mkdir(dir)
	}
	if err == nil {
		err = p.temp.write(path.Join(dir, "PulumiPolicy.yaml"), nil)
	}
	if err == nil {
		err = p.temp.linkTo(path.Join(dir, "source"), cmp.Or(p.j.Top, p.j.Root))
	}
	if err != nil {
		return err
	}
	return p.runIn(ctx, filepath.Join(p.temp.join(dir), "source", below), stepInit, []string{"install"})
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
	if at := p.getenv("PULUMI_HOME"); at != "" { // plugins that are installed there are not fetched again
		plugins := filepath.Join(at, "plugins")
		if _, err := os.Stat(plugins); err == nil {
			err = p.home.linkTo("plugins", plugins)
			if err != nil {
				return err
			}
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

// choose decides the stack and the place of its state. It does not call pulumi.
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

// writeSettings puts the workspace's variables into the settings of the stack, in the run's own copy of the source: on a
// command line everybody on the machine could read them.
func (p *pulumi) writeSettings() error {
	file := p.project.settings(p.short)
	raw, err := p.root.read(file, 1<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", file, err)
	}
	variables := variablesOf(p.j.Spec)
	for _, in := range p.j.Spec.Inputs {
		if in.Sensitive {
			delete(variables, cmp.Or(in.Variable, in.Output)) // it is encrypted when there is a stack
		}
	}
	settings, err := withSettings(raw, p.project, variables, p.was.Secrets)
	if err == nil && settings != nil {
		if err = p.root.mkdirs(path.Dir(file)); err == nil {
			raw, err = settings, p.root.write(file, settings)
		}
	}
	p.settings = sha256Hex(raw)
	if err != nil {
		return fmt.Errorf("settings of the stack in %s: %w", file, err)
	}
	return nil
}

// writeSecrets lets pulumi encrypt the sensitive outputs of other workspaces into the settings of the stack. It reads them
// from its input: arguments can be read by everybody on the machine. Pulumi removes the end of the line.
func (p *pulumi) writeSecrets(ctx context.Context) error {
	for _, in := range p.j.Spec.Inputs {
		name := cmp.Or(in.Variable, in.Output)
		value, isText := p.j.Spec.Variables[name].(string)
		if !in.Sensitive {
			continue
		}
		if !isText {
			raw, err := json.Marshal(p.j.Spec.Variables[name])
			if err != nil {
				return runnerError(fmt.Errorf("variable %s: %w", quote(name), err))
			}
			value = string(raw)
		}
		if err := p.exec(ctx, stepInit, p.on("config", "set", "--secret", name), call{stdin: strings.NewReader(value + "\n")}); err != nil {
			return err
		}
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
