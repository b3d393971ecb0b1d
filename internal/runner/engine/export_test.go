package engine

import (
	"context"
	"path"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Args returns the command lines of an operation, in order.
func Args(t workflow.Type, op workflow.Operation) [][]string {
	m, _ := modeOf(t, op)
	lines := [][]string{initArgs("TF", "", false), planArgs("TF", m, "PLAN", m.apply), showArgs("TF", "PLAN")}
	if m.apply {
		lines = append(lines, applyArgs("TF", "PLAN"), outputArgs("TF"))
	}
	return lines
}

// ReadPlan returns what a plan says, and what is masked of it.
func ReadPlan(raw []byte, refreshOnly bool) (changes api.Changes, truncated bool, secrets []string, err error) {
	s, err := readPlan(raw, mode{refreshOnly: refreshOnly})
	return s.changes, s.truncated, s.secrets, err
}

// PlanDigest returns the digest of all that is said of a plan.
func PlanDigest(raw []byte) string {
	s, _ := readPlan(raw, mode{})
	return s.digest
}

// PlanValues returns the digest by which a plan is compared with another one.
func PlanValues(raw []byte, refreshOnly bool) (string, error) {
	s, err := readPlan(raw, mode{refreshOnly: refreshOnly})
	return s.values, err
}

// Bundle makes a bundle as a run does.
func Bundle(m Manifest, entries map[string][]byte) ([]byte, error) { return newBundle(m, entries) }

// ReadOutputs returns the outputs of terraform, cut to the bounds.
func ReadOutputs(raw []byte) (outputs []api.Output, truncated bool, secrets []string, err error) {
	f, err := readOutputs(raw)
	outputs, omitted := f.bound()
	return outputs, len(omitted) > 0, f.secrets, err
}

// ReadOutputFile returns the outputs of a command, cut to the bounds.
func ReadOutputFile(raw []byte) (outputs []api.Output, truncated bool, secrets []string, err error) {
	f, err := readOutputFile(raw)
	outputs, omitted := f.bound()
	return outputs, len(omitted) > 0, f.secrets, err
}

// Declared returns what one file declares.
func Declared(src, name string) (backend string, cloud, unsure bool) {
	var c Code
	parseCode([]byte(src), name, &c)
	return c.Backend, c.Cloud, c.Unsure
}

// DeclaredIn returns what a root module declares.
func DeclaredIn(dir, engine string) (backend string, cloud, unsure bool) {
	d := readDeclared(dir, engine)
	return d.backend, d.cloud, d.unsure
}

// Candidates lists the places of an engine.
func Candidates(engine string, extra []string, path, constraint string) []string {
	want, err := parseConstraint(constraint)
	if err != nil {
		return []string{err.Error()}
	}
	var paths []string
	for _, c := range candidates(engine, extra, path, want) {
		paths = append(paths, c.path)
	}
	return paths
}

// CopyState copies a state directory.
func CopyState(ctx context.Context, from, to string) error {
	f, err := openFolder(to, nil)
	if err != nil {
		return err
	}
	defer f.close()
	return copyState(ctx, from, stateName, f)
}

// ReadIn reads a file that an engine left.
func ReadIn(dir, name string, owner *Owner) ([]byte, error) {
	f, err := openFolder(dir, owner)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return f.read(name, 1<<10)
}

// CompareStates returns what a push would change.
func CompareStates(before, after []byte) (api.Changes, string, error) {
	s, err := compareStates(before, after, readContents)
	return s.changes, s.digest, err
}

// CompareStacks is the same of two exports of a stack of Pulumi.
func CompareStacks(before, after []byte) (api.Changes, string, error) {
	s, err := compareStates(before, after, stackContents)
	return s.changes, s.digest, err
}

// Manifest is that of a bundle.
type Manifest = manifest

// Names that tests use as they are.
var (
	ReadBundle       = readBundle
	Stale            = stale
	SHA256           = sha256Hex
	FirstError       = firstError
	LacksCredentials = lacksCredentials
	CredentialHint   = credentialHint
	LockFromText     = lockFromText
	ParseLockFile    = parseLockFile
	VariableEnv      = variableEnv
	LockOfPulumi     = lockOfPulumi
	PulumiError      = pulumiError
	FailedWith       = failedWith
	ParseVersion     = versionOfJSON
)

// ReadLockFile returns the providers of a dependency lock file.
func ReadLockFile(src []byte) any { return readLockFile(src) }

// LinkNames returns the names of the links that a dependency lock file leads to.
func LinkNames(src []byte) (out []string) {
	for _, p := range readLockFile(src) {
		out = append(out, path.Join(p.source, p.version))
	}
	return out
}

// SensitiveInState returns the values that a state marks as sensitive.
func SensitiveInState(raw []byte) ([]string, error) { return sensitiveInState(raw) }

// UnsafeVersion says why a version of an engine gets nothing from the cache of providers.
func UnsafeVersion(engine, v string) string {
	return unsafeVersion(engine, version.Must(version.NewVersion(v)))
}

// Programs says of each engine that can be run whether a program is asked for its version.
func Programs() map[string]bool {
	out := map[string]bool{}
	for name, e := range engines() {
		out[name] = len(e.ask) > 0 && e.version != nil
	}
	return out
}

// TerragruntVersion reads what terragrunt says of its version.
var TerragruntVersion = versionOfTerragrunt

// ReadReport returns the units of a report, how a failure of a plan tells of them and of what was printed beside it, and
// whether there was nothing wrong but that outputs are missing yet.
func ReadReport(raw []byte, printed, root string) (names []string, detail string, tooEarly bool, err error) {
	units, err := readReport(raw, root)
	for _, u := range units {
		names = append(names, u.name)
	}
	e := ended{code: 1, units: units, printed: printed, root: root}
	return names, e.failure(stepPlan).Error(), e.tooEarly(), err
}

// ReadPreview returns what a preview of pulumi says, with its update plan.
func ReadPreview(raw, plan []byte, refreshOnly bool) (changes api.Changes, said []string, err error) {
	s, said, err := readPreview(raw, plan, mode{refreshOnly: refreshOnly})
	return s.changes, said, err
}

// ReadDeployment returns how many resources a state of pulumi has, its time and the inventory.
func ReadDeployment(raw []byte) (resources int, serial int64, inventory *api.Inventory, err error) {
	d, err := readDeployment(raw)
	doc := d.document("demo/dev")
	return doc.resources, doc.serial, inventoryOf(d.managed()), err
}

// MadeByPulumi returns the changes between two states of a stack.
func MadeByPulumi(before, after []byte) *api.Changes {
	was, _ := readDeployment(before)
	is, _ := readDeployment(after)
	s := is.since(was)
	if s.finish() != nil || len(s.changes.Resources) == 0 {
		return nil
	}
	return &s.changes
}

// WithSettings returns the settings of a stack of a project, where the state has a salt.
func WithSettings(raw, project string, variables map[string]any, salt string) (string, error) {
	var secrets secretsProvider
	secrets.State.Salt = salt
	p, err := readProject([]byte(project), "Pulumi.yaml")
	if err != nil {
		return "", err
	}
	out, err := withSettings([]byte(raw), p, variables, secrets)
	return string(out), err
}

// PlacePulumi returns where a workspace's stack is kept, or why it is not.
func PlacePulumi(j Job, projectURL string) (address string, is api.StateFound, err error) {
	p := pulumi{j: j, project: pulumiProject{Name: "demo"}}
	p.project.Backend.URL = projectURL
	err = p.choose()
	return p.address, p.is, err
}

// InventoryOf counts what a plan says of the state.
func InventoryOf(raw []byte) (*api.Inventory, error) {
	s, err := readPlan(raw, mode{scan: true, refreshOnly: true})
	return inventoryOf(s.managed), err
}

// PlaceID returns what tells a place from others.
func PlaceID(backend string, settings map[string]any, getenv func(string) string) string {
	return placeID(api.StateFound{Backend: backend, Settings: digest(backend, settings), Workspace: defaultWorkspace}, settings, getenv)
}

// ReadApplied returns what a unit did without a plan, from what its program printed, by call.
func ReadApplied(printed ...string) (api.Changes, bool) {
	var a applied
	for _, one := range printed {
		a.read(one)
	}
	s := a.summary(summary{})
	return s.changes, s.truncated
}
