package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// An older runner would refuse the run as its own mistake.
func TestNeeds_PlansOfOtherEngines(t *testing.T) {
	for engine, want := range map[string][]string{api.EnginePulumi: {"plan", "plan_pulumi"}, api.EngineTerragrunt: {"plan", "plan_terragrunt"}, api.EngineTofu: {"plan"}} {
		for _, spec := range []api.Spec{{For: workflow.Update}, {Plan: &api.PlanRef{}}} {
			spec.Engine = engine
			if got := slices.DeleteFunc(spec.Needs(), func(name string) bool { return !strings.HasPrefix(name, "plan") }); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", engine, got, want)
			}
		}
	}
}

// An older runner would refuse to pull or push a state of Pulumi as its own mistake.
func TestNeeds_StatesOfPulumi(t *testing.T) {
	for engine, want := range map[string]bool{api.EnginePulumi: true, api.EngineTofu: false} {
		for _, spec := range []api.Spec{{Operation: workflow.StatePull}, {Operation: workflow.StatePush}, {Operation: workflow.Preview, For: workflow.StatePush}} {
			spec.Engine = engine
			if got := slices.Contains(spec.Needs(), "state_pulumi"); got != want {
				t.Errorf("%s, %s: got %v", engine, spec.Operation, got)
			}
		}
	}
	if update := (api.Spec{RunSettings: api.RunSettings{Engine: api.EnginePulumi}, Operation: workflow.Update}); slices.Contains(update.Needs(), "state_pulumi") {
		t.Error("an update needs it")
	}
}

// An older runner would write the value into the settings of the stack as it is.
func TestNeeds_SensitiveInputsOfPulumi(t *testing.T) {
	for engine, want := range map[string][]string{api.EnginePulumi: {"inputs", "inputs_pulumi"}, api.EngineTofu: {"inputs"}} {
		for _, sensitive := range []bool{true, false} {
			spec := api.Spec{RunSettings: api.RunSettings{Engine: engine}, Inputs: []api.WorkspaceInput{{Workspace: "net", Output: "token", Sensitive: sensitive}}}
			got := slices.DeleteFunc(spec.Needs(), func(name string) bool { return !strings.HasPrefix(name, "inputs") })
			if sensitive != slices.Equal(got, want) || !sensitive && len(got) > 0 {
				t.Errorf("%s, %v: got %q", engine, sensitive, got)
			}
		}
	}
}

// A runner that does not know such paths would refuse the run as its own mistake.
func TestNeeds_FilesAboveTheRootModule(t *testing.T) {
	for file, want := range map[string]bool{"../prod.tfvars": true, "env/prod.tfvars": false} {
		spec := api.Spec{RunSettings: api.RunSettings{Engine: api.EngineTofu, VarFiles: []string{file}}}
		asked := api.Spec{Options: &api.Options{VarFiles: []string{file}}}
		for _, s := range []api.Spec{spec, asked} {
			if got := slices.Contains(s.Needs(), "var_files_above"); got != want {
				t.Errorf("%s: got %v", file, got)
			}
		}
	}
}
