package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Files below the root module of the source that were set aside.
const (
	asideBackend     = ".terraform/terraform.tfstate"
	asideEnvironment = ".terraform/environment"
)

// resolveState decides where the state of the run is kept, initialises the root module for that backend, and refuses
// to continue if another state exists. After it, t.doc is the current state.
func (t *terraform) resolveState(ctx context.Context) error {
	if err := t.choose(); err != nil {
		return err
	}
	t.h.Logf("the state is kept in %s%s", t.place, t.inWorkspace())
	if known := t.j.Spec.Known; t.overrides() && !t.j.Spec.TakeOver && !t.j.Spec.BeginAnew && (known == nil || known.Declared != t.code.name()) {
		return elsewhere(adviceTakeOver, "%s", overriding(t.code.name(), t.place.String())) // the engine is not needed for this
	}

	overridden, err := t.overridden(ctx)
	if err != nil {
		return err
	}
	if err := t.setUpBackend(ctx); err != nil {
		return err
	}
	if !workflow.Plans(t.j.Spec.Type, t.op) && !t.mode.evaluate {
		return nil // nothing is planned on the state
	}
	if t.doc != nil || !t.j.Spec.TakeOver { // else it is to be compared once it is taken over
		if err := t.approved.fits(t.now()); err != nil {
			return err
		}
	}

	s, err := t.findStates(ctx, overridden)
	if err != nil {
		return err
	}
	return t.useState(ctx, s)
}

// setUpBackend initialises the root module for the place of the state, and reads the state there.
func (t *terraform) setUpBackend(ctx context.Context) error {
	if err := t.placeState(ctx); err != nil {
		return err
	}
	if err := t.initialise(ctx); err != nil {
		return err
	}
	if err := t.identify(); err != nil {
		return err
	}
	var err error
	t.doc, err = t.document(ctx)
	return err
}

// useState decides between the states that were found, claims the one to use, and takes it over if necessary.
func (t *terraform) useState(ctx context.Context, s stateFindings) error {
	v, err := decide(s)
	if err != nil {
		return err
	}
	if v.note != "" {
		t.h.Logf("%s", v.note)
	}
	doc := t.doc
	if v.take != nil {
		doc = v.take.doc
	}
	if err := t.claimState(ctx, doc); err != nil {
		return err
	}
	if v.take != nil {
		if err := t.takeOver(ctx, *v.take); err != nil {
			return err
		}
	}
	// The choice between two states in a run that only reads is not recorded: it holds for that run alone.
	t.keeps = !t.readOnly || !s.takeOver && !s.beginAnew
	return nil
}

// claimState asks whether the run may change a state, or make it the workspace's own. A nil doc is a new state.
func (t *terraform) claimState(ctx context.Context, doc *document) error {
	ref := api.StateRef{Place: t.is.Place}
	if doc != nil {
		ref.Lineage = doc.lineage
	}
	return claimStates(ctx, t.h, t.j.Spec.Workflow, t.readOnly, ref)
}

// choose decides the place of the state and the engine's workspace. It does not need the engine.
func (t *terraform) choose() (err error) {
	spec := t.j.Spec
	// The name is ours: a file of that name in the source is not part of the code.
	if err := t.root.root.Remove(overrideName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runnerError(fmt.Errorf("remove %s: %w", overrideName, err))
	}
	t.code = readDeclared(t.j.Root, spec.Engine)
	if t.runVarFile, err = t.writeVariables(asDeclared(t.options().Variables, t.code.types)); err != nil {
		return runnerError(err)
	}
	if err := t.placeVariables(); err != nil {
		return err
	}
	if t.place, err = placeOf(spec, t.code, t.j.Bucket); err != nil {
		return err
	}
	selected, err := t.asideFile(asideEnvironment)
	if err != nil {
		return err
	}
	environment := ""
	if t.j.Getenv != nil {
		environment = t.j.Getenv("TF_WORKSPACE")
	}
	if t.workspace, err = engineWorkspace(spec.State.Workspace, environment, string(selected)); err != nil {
		return err
	}
	if named := t.namedInCloud(); named != "" && (t.workspace == named || spec.State.Workspace == "" && environment == "") {
		t.workspace = defaultWorkspace // the block says which: to name it once more would refuse one that is not there yet
	} else if t.code.readsWorkspace && t.workspace == defaultWorkspace && spec.State.Workspace == "" {
		t.h.Logf("the code reads terraform.workspace, and its value is %s: choose another workspace of the engine with state.workspace", defaultWorkspace)
	}
	if t.place.kind == api.StateS3 {
		return checkS3(spec.Engine, t.bin.version)
	}
	return nil
}

func (t *terraform) inWorkspace() string {
	name := t.workspace
	if name == defaultWorkspace {
		name = t.namedInCloud()
	}
	if name == "" {
		return ""
	}
	return ", in the engine's workspace " + name
}

// asideFile reads a small file that was set aside; nil if there is none.
func (t *terraform) asideFile(name string) ([]byte, error) {
	if t.aside == nil {
		return nil, nil
	}
	raw, err := t.aside.read(name, 1<<20)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, runnerError(fmt.Errorf("read %s of the source: %w", name, err))
	}
	return raw, nil
}

// overridden reads the state in the backend that the code declares, if the workspace keeps its own elsewhere and the
// user wants to take that one over. nil means none.
func (t *terraform) overridden(ctx context.Context) (*otherState, error) {
	if !t.overrides() || !t.j.Spec.TakeOver {
		return nil, nil //nolint:nilnil // no such state
	}
	if err := t.initialise(ctx); err != nil {
		return nil, err
	}
	doc, file, err := t.pull(ctx)
	if err != nil || !doc.holds() {
		return nil, err
	}
	return &otherState{name: "backend", description: "the state in the backend " + t.code.name() + " that the code declares", doc: doc, from: t.temp, file: file}, nil
}

// overrides says whether the state is kept elsewhere than the code declares.
func (t *terraform) overrides() bool { return t.place.kind != api.StateSource && t.code.elsewhere() }

// placeState configures the backend of the engine, unless the code declares it completely.
func (t *terraform) placeState(ctx context.Context) error {
	switch t.place.kind {
	case api.StateSource:
		return t.completeBackend()
	case api.StateDirectory:
		if err := t.openState(ctx); err != nil {
			return err
		}
	}
	return t.override(t.place)
}

// completeBackend writes the settings that the workspace adds to the backend that the code declares.
func (t *terraform) completeBackend() error {
	if len(t.j.Spec.State.BackendConfig) == 0 {
		return nil
	}
	raw, err := json.Marshal(t.j.Spec.State.BackendConfig)
	if err == nil {
		name := newName("backend-", ".json")
		t.backendFile = t.temp.join(name)
		err = t.temp.write(name, raw)
	}
	if err != nil {
		return runnerError(fmt.Errorf("write backend_config: %w", err))
	}
	return nil
}

// override makes a place the backend of the root module. Behind a directory's lies t.state, at a path that is the same
// in every job.
func (t *terraform) override(p place) error {
	doc, err := overrideDocument(p.settings())
	if err == nil {
		err = t.root.write(overrideName, doc)
	}
	if err == nil && p.kind == api.StateDirectory {
		err = t.root.linkTo(localDir, t.state.path)
	}
	if err != nil {
		return runnerError(fmt.Errorf("write %s: %w", overrideName, err))
	}
	return nil
}

// openState opens the workspace's own directory, or makes a private copy for a run that only reads.
func (t *terraform) openState(ctx context.Context) error {
	if t.j.StateDir == "" {
		return &Failure{Reason: workflow.ReasonStateNotKept, Detail: "the workspace's state has kind directory, and this runner was given no directory for it"}
	}
	var err error
	if t.readOnly {
		if err = t.privateState(); err == nil {
			err = copyState(ctx, t.j.StateDir, statePath(t.workspace), t.state)
		}
	} else {
		t.state, err = openState(t.h, t.j)
	}
	if err != nil {
		return runnerError(fmt.Errorf("open state directory: %w", err))
	}
	return nil
}

// privateState makes an empty directory of states, which is removed after the run.
func (t *terraform) privateState() (err error) {
	name := newName("state-", "")
	if err = t.temp.mkdir(name); err == nil {
		t.state, err = openFolder(t.temp.join(name), t.j.Owner)
	}
	return err
}

// openState opens the state directory of a job for writing; the first run makes it.
func openState(h Host, j Job) (*folder, error) {
	if err := os.MkdirAll(j.StateDir, 0o700); err != nil {
		return nil, err
	}
	f, err := openFolder(j.StateDir, j.Owner)
	if err != nil {
		return nil, err
	}
	skipped, err := f.give()
	if err != nil {
		f.close()
		return nil, err
	}
	for _, name := range skipped {
		h.Logf("the file %s of the state directory has a second name and keeps its owner", quote(name))
	}
	return f, nil
}

// initialise runs the engine's init. Its workspace is selected afterwards: init refuses one that has no state yet.
// The backend of an earlier init of the run is forgotten first, or the engine would want to migrate the state.
func (t *terraform) initialise(ctx context.Context) error {
	if err := t.data.root.Remove(stateName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return runnerError(fmt.Errorf("remove the backend of an earlier init: %w", err))
	}
	shared, err := t.shareProviders(ctx)
	if err != nil {
		return runnerError(fmt.Errorf("use the cache of providers: %w", err))
	}
	args := append(initArgs(t.bin.path, t.backendFile, t.approved.plans()), t.flags(stepInit)...)
	_, err = t.runWith(ctx, stepInit, args, append(t.noWorkspace(), shared...))
	if f, ok := errors.AsType[*Failure](err); ok && f.Reason == workflow.ReasonStepFailed && t.place.kind == api.StateSource && lacksCredentials(f.Detail) {
		if hint := credentialHint(t.code.name(), t.host(), t.j.Getenv); hint != "" {
			err = saying(f, hint)
		}
	}
	return err
}

// noWorkspace takes the engine's workspace away for a command that works on all of them. With a cloud block the empty
// text would be the name of one, and init chooses one among several.
func (t *terraform) noWorkspace() []string {
	if t.inCloud() {
		return nil
	}
	return []string{"TF_WORKSPACE="}
}

// identify records the place of the state, after the engine has set it up.
func (t *terraform) identify() error {
	backend, err := recorded(t.data, stateName)
	if err != nil {
		return runnerError(err)
	}
	t.is = api.StateFound{Backend: backend.Type, Settings: digest(backend.Type, backend.Config), Workspace: t.workspace}
	switch t.place.kind {
	case api.StateSource:
		// The engine's reading of the code is final.
		if backend.Type == "" || backend.Type == "local" {
			return notKept(backend.Type)
		}
	case api.StateDirectory:
		t.is.Settings, t.is.Store = digest("directory", map[string]any{"key": t.place.key}), t.j.StateStore
	}
	if t.overrides() {
		t.is.Declared = t.code.name()
	}
	t.is.Place = placeID(t.is, backend.Config, t.j.Getenv)
	t.settings = backend
	return nil
}

// document describes the current state of the run; nil: it has none.
func (t *terraform) document(ctx context.Context) (*document, error) {
	doc, from, file, err := t.stateFile(ctx)
	if from == t.temp && file != "" {
		_ = t.temp.root.Remove(file) // it is removed with the run at the latest
	}
	return doc, err
}

// stateFile returns the same document, and the file that holds it.
func (t *terraform) stateFile(ctx context.Context) (doc *document, from *folder, file string, err error) {
	if t.place.kind == api.StateDirectory {
		file = statePath(t.workspace)
		if doc, err = documentOf(t.state, file); err != nil {
			err = runnerError(fmt.Errorf("read the state: %w", err))
		}
		return doc, t.state, file, err
	}
	if t.workspace != defaultWorkspace {
		// To ask for the state of a workspace that does not exist would create the workspace.
		if all, err := t.workspaces(ctx); err != nil || !slices.Contains(all, t.workspace) {
			return nil, t.temp, "", err
		}
	}
	doc, file, err = t.pull(ctx)
	return doc, t.temp, file, err
}

// workspaces lists the engine's workspaces of a remote place. Not every backend has them.
func (t *terraform) workspaces(ctx context.Context) ([]string, error) {
	if t.place.kind == api.StateDirectory {
		entries, err := fs.ReadDir(t.state.root.FS(), workspacesName)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, runnerError(fmt.Errorf("read the state: %w", err))
		}
		all := []string{defaultWorkspace}
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all, nil
	}
	printed, err := t.quiet(ctx, stepInit, []string{t.bin.path, "workspace", "list"}, t.noWorkspace(), 1<<20)
	if f, ok := errors.AsType[*Failure](err); ok && f.Reason == workflow.ReasonStepFailed {
		return nil, nil // the backend has none
	}
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(printed)) {
		if name := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text.WithoutEscapes(line)), "*")); name != "" {
			all = append(all, name)
		}
	}
	return all, nil
}

// maxState bounds a state that is read, in bytes.
const maxState = 512 << 20

// pull writes the state to a file that is removed after the run, and describes it.
func (t *terraform) pull(ctx context.Context) (doc *document, file string, err error) {
	file = newName("pulled-", ".tfstate")
	out, err := t.temp.create(file)
	if err != nil {
		return nil, "", runnerError(fmt.Errorf("keep the state: %w", err))
	}
	_, err = t.exec(ctx, "state pull", Command{Args: []string{t.bin.path, "state", "pull"}, Stdout: &limited{out, maxState}, Quiet: true})
	if closeErr := out.Close(); err == nil && closeErr != nil {
		err = runnerError(fmt.Errorf("keep the state: %w", closeErr))
	}
	if err != nil {
		return nil, file, err
	}
	if doc, err = documentOf(t.temp, file); err != nil {
		return nil, file, runnerError(fmt.Errorf("read the state: %w", err))
	}
	return doc, file, nil
}

// limited is a file that takes a limited number of bytes.
type limited struct {
	f         *os.File
	remaining int64
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.remaining -= int64(len(p)); l.remaining < 0 {
		return 0, errTooLong
	}
	return l.f.Write(p)
}

// checkStateChanged checks that an apply has changed the state in the workspace's place. After one that only undoes
// drift the state may be the same: the engine does not write an unchanged state.
func (t *terraform) checkStateChanged(ctx context.Context) error {
	before := t.doc
	var err error
	if t.doc, err = t.document(ctx); err != nil {
		return err
	}
	same := before != nil && t.doc != nil && t.doc.lineage == before.lineage
	if same && t.doc.serial == before.serial && onlyUndoesDrift(t.out) {
		return nil
	}
	if t.doc == nil || same && t.doc.serial <= before.serial {
		return &Failure{
			Reason: workflow.ReasonStepFailed,
			Detail: fmt.Sprintf("the engine says that it has applied the plan, but the state in %s is as before (%s): find out where it was written before you run anything else", t.place, before),
		}
	}
	return nil
}

// onlyUndoesDrift says whether a plan only undoes changes that were made outside the code. It is a pure function.
func onlyUndoesDrift(r Outcome) bool {
	return r.Changes != nil && !r.Truncated && len(r.Changes.Resources) > 0 && len(r.Changes.Outputs) == 0 &&
		!slices.ContainsFunc(r.Changes.Resources, func(c api.ResourceChange) bool { return !c.Drifted })
}

// found is the state to record after the run; nil if the run only reads another state than the workspace's own.
func (t *terraform) found() *api.StateFound {
	if !t.keeps {
		return nil
	}
	f := t.is
	f.Taken = t.taken
	if t.doc != nil {
		f.Lineage, f.Serial = t.doc.lineage, t.doc.serial
	}
	return &f
}

// credentials are the variables from which a backend takes its credentials; one of a row is enough.
var credentials = map[string][]string{
	"s3":      {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"},
	"gcs":     {"GOOGLE_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_BACKEND_CREDENTIALS"},
	"azurerm": {"ARM_ACCESS_KEY", "ARM_SAS_TOKEN", "ARM_CLIENT_SECRET", "ARM_CLIENT_CERTIFICATE", "ARM_OIDC_TOKEN", "ARM_USE_MSI"},
	"http":    {"TF_HTTP_PASSWORD"},
	"pg":      {"PG_CONN_STR", "PGPASSWORD"},
	"consul":  {"CONSUL_HTTP_TOKEN"},
}

// lacksCredentials reports whether the error of a failed init is that of a backend that got none, or others than it
// takes: not one of the code, a module or a provider. It is a pure function.
func lacksCredentials(detail string) bool {
	return refusal().MatchString(detail) && !ofAnother().MatchString(detail)
}

var (
	refusal = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)credential|(?:required|access|api|sas) token|\bunauth|\bauth(?:\b|enti|ori[sz])|access ?denied|forbidden|\b40[13]\b|password|\blog ?in\b|subscription|:5432\b`)
	})
	ofAnother = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)Error: [^:]*\b(?:module|provider|registry)|\(on [^)]*, in (?:module|provider|resource|data)\b`)
	})
)

// host is the host of a remote backend or a cloud block.
func (t *terraform) host() string {
	host, _ := t.j.Spec.State.BackendConfig["hostname"].(string)
	if host = cmp.Or(host, t.code.host); host == "" && t.j.Getenv != nil {
		host = t.j.Getenv("TF_CLOUD_HOSTNAME")
	}
	return cmp.Or(host, "app.terraform.io")
}

// TokenVariable is the name of the variable in which terraform and tofu look for the token of a host.
func TokenVariable(host string) string {
	return "TF_TOKEN_" + strings.NewReplacer(".", "_", "-", "__").Replace(strings.TrimSuffix(strings.ToLower(host), ":443"))
}

// credentialHint says, after a failed init, which credentials the run lacks and how to pass them. It is a hint only:
// on some machines a backend needs none.
func credentialHint(backend, host string, getenv func(string) string) string {
	names := credentials[backend]
	if backend == "remote" || backend == "cloud" {
		names = []string{TokenVariable(host)}
	}
	if getenv == nil || len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return getenv(n) != "" }) {
		return ""
	}
	return fmt.Sprintf("; the backend %s reads its credentials from %s, and this run has none of these: pass them as secrets of the workspace (env and ref), as its role, or by env_forward_allowlist of the runner",
		backend, strings.Join(names, ", "))
}
