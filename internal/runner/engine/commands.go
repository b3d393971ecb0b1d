package engine

import (
	"cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The steps of terraform and tofu, and the one of commands.
const (
	stepInit   = api.StepInit
	stepPlan   = api.StepPlan
	stepApply  = api.StepApply
	stepOutput = api.StepOutput
	stepRun    = api.StepRun
	stepState  = api.StepState
	stepCheck  = api.StepCheck
)

// mode is how the engine is called for an operation.
type mode struct {
	destroy     bool // plan the end of everything
	refreshOnly bool // plan no change, only update the state
	apply       bool // then apply the plan
	push        bool // plan nothing, but give the workspace another state
	scan        bool // count the resources in the state
	evaluate    bool // plan nothing, but let policies read the state
}

func modeOf(t workflow.Type, op workflow.Operation) (mode, bool) {
	switch t {
	case workflow.InsightsScan:
		return mode{refreshOnly: true, scan: true}, true
	case workflow.Deployment:
		switch op {
		case workflow.Preview:
			return mode{}, true
		case workflow.Update:
			return mode{apply: true}, true
		case workflow.Refresh:
			return mode{refreshOnly: true, apply: true}, true
		case workflow.Destroy:
			return mode{destroy: true, apply: true}, true
		case workflow.StateList, workflow.StateUnlock, workflow.StatePull:
			return mode{}, true
		case workflow.StatePush:
			return mode{push: true, apply: true}, true
		}
	case workflow.PolicyEvaluation:
		return mode{evaluate: true}, true
	}
	return mode{}, false
}

// modeOfJob is what a job does, for which operation, and whether it only reads the state. A preview of a plan that is to
// be approved is in the mode of the run that applies it.
func modeOfJob(j Job) (op workflow.Operation, m mode, readOnly bool, err error) {
	op = cmp.Or(j.Spec.For, j.Spec.Operation)
	m, ok := modeOf(j.Spec.Type, op)
	readOnly = j.ReadOnlyState || !m.apply
	if j.Spec.For != "" {
		ok, readOnly = ok && m.apply && j.Spec.Operation == workflow.Preview, true
	}
	if !ok || readOnly && j.Spec.Plan != nil || m.push && j.Spec.Push == nil {
		return op, m, readOnly, unsupported(j.Spec)
	}
	m.apply = m.apply && !readOnly
	return op, m, readOnly, nil
}

// secretsEnv is the variable with the directory of the secret files, if there are any.
func secretsEnv(dir string) []string {
	if dir == "" {
		return nil
	}
	return []string{"DAYFLY_SECRETS_DIR=" + dir}
}

// withoutFlags takes away the flags that an environment adds to every command: not every command knows them.
const withoutFlags = "TF_CLI_ARGS="

// baseEnv are the variables that every call of the engine gets in addition to the environment that the runner builds.
func baseEnv(dataDir string) []string {
	env := []string{"TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1"}
	if dataDir != "" {
		env = append(env, "TF_DATA_DIR="+dataDir)
	}
	return env
}

// The output of init, plan and apply goes to the log, with its colours. The output of show and output is read here.

// initArgs sets up the root module. The lock file that was kept with a plan says which providers made it: it stays.
func initArgs(bin, backendFile string, locked bool) []string {
	args := []string{bin, "init", "-input=false"}
	if locked {
		args = append(args, "-lockfile=readonly")
	}
	if backendFile != "" {
		args = append(args, "-backend-config="+backendFile)
	}
	return args
}

// planArgs plans into a file. A run that only reads takes no lock: a preview may overlap anything.
func planArgs(bin string, m mode, planFile string, lock bool) []string {
	args := []string{bin, "plan", "-input=false", "-detailed-exitcode", "-out=" + planFile}
	if !lock {
		args = append(args, "-lock=false")
	}
	if m.destroy {
		args = append(args, "-destroy")
	}
	if m.refreshOnly {
		args = append(args, "-refresh-only")
	}
	return args
}

func showArgs(bin, planFile string) []string {
	return []string{bin, "show", "-json", "-no-color", planFile}
}

func applyArgs(bin, planFile string, flags ...string) []string {
	return append(append([]string{bin, "apply", "-input=false"}, flags...), planFile)
}

func outputArgs(bin string) []string { return []string{bin, "output", "-json", "-no-color"} }
