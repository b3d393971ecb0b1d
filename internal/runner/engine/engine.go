// Package engine runs the engine of a job: one of those that engines lists, each in a file of its own. It finds the
// binary, configures the place of the state, runs the steps, and reads their changes. It starts no process and opens
// no connection itself: its Host does both. Of resources it returns addresses, actions and counts, never values, and
// never a sensitive output.
//
// The changes of a run that applies are those of the plan that it applied. Terragrunt applies no plan that could be kept:
// there they are what each unit's program printed as it did them.
package engine

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/hashicorp/go-version"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/toolcache"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Host are the services of the runner for an engine.
type Host interface {
	// Step runs fn as a named step, reports it as running, then as succeeded or failed with the
	// text, and returns fn's error.
	Step(ctx context.Context, name string, fn func(ctx context.Context) (text string, err error)) error
	// Exec runs a command as the engine's user and returns its exit code. Its output goes, masked,
	// to the log, unless the command says where else. The error is set only if the command could
	// not run, or was interrupted.
	Exec(ctx context.Context, c Command) (exitCode int, err error)
	// Skip reports a step as skipped, and why.
	Skip(ctx context.Context, name, text string) error
	// Logf writes a line to the log.
	Logf(format string, args ...any)
	// LogWriter returns a new stream into the log, masked like a child's output. The error stream that goes there is
	// also read by the engine.
	LogWriter() io.WriteCloser
	// ForHooks gives the hooks from here on what they need to use the engine: variables of its commands, and the plan of
	// the run as JSON; nil: there is none yet.
	ForHooks(env []string, plan []byte)
	// Mask hides these values in everything that the runner sends from now on.
	Mask(values ...string)
	// EndProcesses ends every process of the job, so that none of its code can change a file until the next Exec.
	EndProcesses(ctx context.Context) error
	// WhoseStates asks for the owners of the states that the run is about to change, to take over, or to read. It
	// returns those of other workspaces; if a run changes states and none belongs to another, all belong to its
	// workspace from then on.
	WhoseStates(ctx context.Context, states []api.StateRef) ([]api.OthersState, error)
	// Keep announces an artifact of the runner's own, below api.PlanDir, and places its bytes. It reads them twice: their
	// digest comes first.
	Keep(ctx context.Context, name, kind string, from io.ReadSeeker) (size int64, sha256 string, err error)
	// Input writes the artifact that the run is to use. Its error is set unless it was the whole of it, with the digest
	// that the spec names.
	Input(ctx context.Context, to io.Writer) error
	// Policies evaluates the policy groups of the spec over a plan or a state, in a step of its own. Their results
	// are returned also with an error, which says that the run must not go on. Without groups it does nothing.
	Policies(ctx context.Context, on PolicyInputs) ([]api.PolicyResult, error)
}

// PolicyInputs are the plans or states for the policies.
type PolicyInputs struct {
	Inputs   []PolicyInput
	Missing  string // why there is no input, or not all of it, as a sentence; empty: there is all
	Optional bool   // the run may go on without input: it changes nothing
}

// PolicyInput is a plan or a state, in the engine's own JSON.
type PolicyInput struct {
	Unit string // path of the unit that it is of; empty: of the whole root module
	JSON []byte
}

// Command is one child process.
type Command struct {
	Args   []string  // the binary's path and its arguments
	Dir    string    // where it runs
	Env    []string  // KEY=VALUE, in addition to the environment that the runner builds
	Stdin  io.Reader // in memory, so that reading it never waits; nil: /dev/null
	Stdout io.Writer // nil: the log
	Stderr io.Writer // nil: the log
	Quiet  bool      // do not write the command line to the log
}

// Owner is the user that the engine runs as, where it is not the runner's own.
type Owner struct{ UID, GID int }

// Job is everything that an engine needs. The directories exist, and the engine's user can write to them; only
// StateDir may be missing.
type Job struct {
	Spec          api.Spec
	Top           string                   // the whole source; empty: it is Root
	Root          string                   // the root module in it, or where the commands run
	TempDir       string                   // for files of this run: plans, variables; gone after it
	Fetched       string                   // the commit of a git source, else a digest
	Aside         string                   // directory of state files from beside the code; empty: none
	Work          string                   // the runner's own directory, with all of these in it
	Unsaved       string                   // where the machine keeps task.UnsavedName of Work after the task, in words; empty: nowhere
	StateDir      string                   // the workspace's own directory, for state kind directory
	StateOlds     []string                 // other such directories, named after their states, which are only read
	StateStore    string                   // id of the root that these lie below
	Bucket        api.State                // where a workspace that names no place keeps its state; empty means nowhere
	Getenv        func(name string) string // of the environment that the runner builds; nil: it is empty
	SecretsDir    string                   // where the secret files lie; empty means there are none
	EnginePath    []string                 // directories in which binaries are looked for before PATH
	Path          string                   // PATH in which they are looked for next; empty means the runner's own
	Tools         *toolcache.Cache         // source of versions that are not there; nil: none
	Providers     string                   // cache of providers, which is only read; empty: none
	Search        *Search                  // of StartSearch for this job; nil: Run searches itself
	ReadOnlyState bool                     // read the state without its lock and change nothing
	Owner         *Owner                   // user that must be able to read the files written here; nil: the runner's user

	// Mirror is the https address of a network mirror of providers; empty: none. Mirrored says whether it has a version of
	// one.
	Mirror   string
	Mirrored func(ctx context.Context, source, version string) bool

	// HandOverProviders takes, for the cache of providers, a directory of packages that the engine has installed,
	// empty if the cache has all of them, and the hashes of those that came from the cache. It is set if Providers
	// is.
	HandOverProviders func(packages string, used []string)

	// Packages is a directory for the caches of package managers, which the workspace's next run gets, unless
	// DropPackages is called; empty: there is none.
	Packages     string
	DropPackages func()
}

// Outcome is the result of a run; if the run failed, as far as it is known.
type Outcome struct {
	Changes          *api.Changes     // if the run failed: those made before
	Units            []api.UnitResult // of terragrunt
	Outputs          []api.Output
	OmittedOutputs   []string              // names of outputs that do not fit, the first ones
	SensitiveOutputs *api.SensitiveOutputs // with the values of sensitive outputs, if the spec wants them
	Lock             *api.Lock             // a state lock that is still held
	State            *api.StateFound       // where the state is, and which; also of a run that failed
	Plan             *api.PlanMade         // that a preview stored for approval
	Inventory        *api.Inventory        // of a scan
	Policies         []api.PolicyResult    // also of a run that failed
	Checks           *api.Checks           // check blocks that fail; nil: none, or it is not known
	Truncated        bool                  // outputs or resources were left out
}

// Failure is why an engine's run did not succeed, in the closed list of reasons and in a sentence.
type Failure struct {
	Reason workflow.Reason
	Detail string
	Lock   *api.Lock // a state lock that was found held
	Err    error     // the cause, where there is one
}

// Error returns the sentence.
func (f *Failure) Error() string { return f.Detail }

// Unwrap lets errors.Is find the cause; an interrupted run holds its context's.
func (f *Failure) Unwrap() error { return f.Err }

// engine is how an engine is found and run. Its other properties are in api.Engine.
type engine struct {
	pkg     string   // Go package that its program is built from
	ask     []string // arguments with which its program prints its version
	version func(answer []byte) (*version.Version, error)
	run     func(ctx context.Context, h Host, j Job) (Outcome, error)
}

// engines has an engine for each of api.Engines.
func engines() map[string]engine {
	return map[string]engine{
		api.EngineTerraform:  {"github.com/hashicorp/terraform", askJSON(), versionOfJSON, runTerraform},
		api.EngineTofu:       {"github.com/opentofu/opentofu/cmd/tofu", askJSON(), versionOfJSON, runTerraform},
		api.EngineTerragrunt: {"github.com/gruntwork-io/terragrunt", askTerragrunt(), versionOfTerragrunt, runTerragrunt},
		api.EnginePulumi:     {"github.com/pulumi/pulumi/pkg/v3/cmd/pulumi", askPulumi(), versionOfPulumi, runPulumi},
		api.EngineCommand:    {run: runCommand},
	}
}

// Run runs the operation that the spec asks for. Its error is a *Failure.
func Run(ctx context.Context, h Host, j Job) (Outcome, error) {
	if err := checkAsked(j.Spec); err != nil {
		return Outcome{}, err
	}
	e, known := engines()[j.Spec.Engine]
	if !known {
		return Outcome{}, &Failure{
			Reason: workflow.ReasonEngineNotFound,
			Detail: fmt.Sprintf("this version runs the engines %s, not %s", api.EngineNames(), quote(j.Spec.Engine)),
			Err:    workflow.ErrUnsupported,
		}
	}
	is := api.EngineOf(j.Spec.Engine)
	if !is.Runs(j.Spec.Type, j.Spec.Operation) || !is.Plans && (j.Spec.For != "" || j.Spec.Plan != nil) {
		return Outcome{}, unsupported(j.Spec)
	}
	if len(j.Spec.Policies) == 0 || slices.Contains(reads(), j.Spec.Engine) || !workflow.Policed(j.Spec.Type, j.Spec.Operation) {
		return e.run(ctx, h, j)
	}
	found, err := h.Policies(ctx, noPlan(j.Spec))
	var out Outcome
	if err == nil {
		out, err = e.run(ctx, h, j)
	}
	out.Policies = found
	return out, err
}

// reads are the engines whose plans policies can read.
func reads() []string { return []string{api.EngineTerraform, api.EngineTofu, api.EngineTerragrunt} }

// noPlan is the empty input for policies with the other engines. A preview reports that and goes on.
func noPlan(s api.Spec) PolicyInputs {
	return PolicyInputs{
		Missing:  fmt.Sprintf("engine %s has no plan that policies can read", s.Engine),
		Optional: !workflow.ChangesState(s.Type, s.Operation),
	}
}

func unsupported(s api.Spec) error {
	name := string(s.Type)
	if s.Operation != "" {
		name += " " + string(s.Operation)
	}
	return &Failure{
		Reason: workflow.ReasonRunnerError, Err: workflow.ErrUnsupported,
		Detail: fmt.Sprintf("this version cannot run %s with the engine %s", name, s.Engine),
	}
}
