package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Bounds of a workspace's dependencies.
const (
	maxInputs = 50
	maxAfter  = 50
)

// checkDependencies refuses inputs that no run could get, and invalid names of workspaces.
func checkDependencies(w *api.Workspace) error {
	if len(w.Inputs) > maxInputs {
		return workflow.Invalid("inputs", "a workspace has at most %d inputs", maxInputs)
	}
	if len(w.After) > maxAfter {
		return workflow.Invalid("after", "a workspace runs after at most %d others", maxAfter)
	}
	taken := map[string]bool{}
	for i, in := range w.Inputs {
		if err := checkInput(fmt.Sprintf("inputs[%d]", i), w, in, taken); err != nil {
			return err
		}
	}
	for i, name := range w.After {
		if workflow.CheckWorkspaceName(name) != nil {
			return workflow.Invalid(fmt.Sprintf("after[%d]", i), "%s is not the name of a workspace", text.Quote(name, 64))
		}
		if slices.Contains(w.After[:i], name) {
			return workflow.Invalid(fmt.Sprintf("after[%d]", i), "workspace %s is named twice", name)
		}
	}
	return nil
}

// checkInput refuses an input that no run could get. taken has the variables of the inputs before it, and gets its
// own.
func checkInput(field string, w *api.Workspace, in api.WorkspaceInput, taken map[string]bool) error {
	name := cmp.Or(in.Variable, in.Output)
	switch {
	case workflow.CheckWorkspaceName(in.Workspace) != nil:
		return workflow.Invalid(field+".workspace", "%s is not the name of a workspace", text.Quote(in.Workspace, 64))
	case in.Output == "" || len(in.Output) > 255 || strings.ContainsFunc(in.Output, unicode.IsControl):
		return workflow.Invalid(field+".output", "name an output of workspace %s, in at most 255 characters", in.Workspace)
	case len(name) > 255 || !api.VariableName(w.Engine, name):
		return workflow.Invalid(field+".variable", "%s is not the name of a variable: say in %s.variable which one gets the output", text.Quote(name, 64), field)
	case taken[name]:
		return workflow.Invalid(field+".variable", "variable %s gets two outputs: give each output a variable of its own", name)
	case in.Preview && !in.Sensitive:
		return workflow.Invalid(field+".preview", "preview goes with sensitive: every run gets an output that is not sensitive")
	}
	if _, set := w.Variables[name]; set {
		return workflow.Invalid(field+".variable", "variable %s is also set in variables: leave one of the two out", name)
	}
	taken[name] = true
	return nil
}
