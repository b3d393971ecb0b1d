package api

import (
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Engines that workspaces name.
const (
	EngineTerraform  = "terraform"
	EngineTofu       = "tofu"
	EngineTerragrunt = "terragrunt"
	EnginePulumi     = "pulumi"
	EngineCommand    = "command"
)

// Engine has the facts about an engine for the command line, the control plane and the runner. How it is run is in
// internal/runner/engine.
type Engine struct {
	Name       string
	Program    bool                 // it has a program of its own name, and so a version
	Files      []string             // names of files, or with a dot how names end, of which each says that a directory has its code
	Operations []workflow.Operation // that it can do in a deployment
	Plans      bool                 // it leaves a plan that is approved, and applied as it is
	Evaluates  bool                 // policies can read its state
	OwnState   string               // why Dayfly neither places its state nor knows it again, in words; empty: it does both
	Places     []string             // kinds of place of its state that a workspace may name; nil: all
}

// Engines are those that this version runs. One whose code may lie beside that of another comes after that one.
func Engines() []Engine {
	plans := []workflow.Operation{workflow.Preview, workflow.Update, workflow.Refresh, workflow.Destroy}
	return []Engine{
		{
			Name: EngineTerraform, Program: true, Files: []string{".tf", ".tf.json"},
			Operations: workflow.Operations(), Plans: true, Evaluates: true,
		},
		{
			Name: EngineTofu, Program: true, Files: []string{".tofu", ".tofu.json"},
			Operations: workflow.Operations(), Plans: true, Evaluates: true,
		},
		{
			Name: EngineTerragrunt, Program: true, Files: []string{"terragrunt.hcl", "terragrunt.stack.hcl", "root.hcl"},
			Operations: plans, Plans: true, Places: []string{StateSource},
			OwnState: "terragrunt keeps its state where its own remote_state says",
		},
		{
			Name: EnginePulumi, Program: true, Files: []string{"Pulumi.yaml", "Pulumi.yml", "Pulumi.json"},
			Operations: workflow.Operations(), Plans: true,
		},
		{
			Name: EngineCommand, Operations: plans,
			OwnState: "its commands keep their state themselves, and Dayfly knows nothing of it",
		},
	}
}

// EngineOf returns the engine of a name; one without a name is not among those that this version runs.
func EngineOf(name string) Engine {
	all := Engines()
	if i := slices.IndexFunc(all, func(e Engine) bool { return e.Name == name }); i >= 0 {
		return all[i]
	}
	return Engine{}
}

// EngineNames lists the engines for a sentence.
func EngineNames() string {
	var names []string
	for _, e := range Engines() {
		names = append(names, e.Name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Runs reports whether the engine can do runs of this type and operation.
func (e Engine) Runs(t workflow.Type, op workflow.Operation) bool {
	return e.Name != "" && t == workflow.InsightsScan || t == workflow.PolicyEvaluation && e.Evaluates || t == workflow.Deployment && slices.Contains(e.Operations, op)
}
