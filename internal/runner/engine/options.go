package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// checkAsked refuses flags and options with hidden effects. The control plane has refused them before.
func checkAsked(s api.Spec) error {
	err := cmp.Or(
		api.CheckFlags(s.Engine, s.Flags), api.CheckVarFiles("var_files", s.Engine, s.Source, s.VarFiles),
		s.Options.Check(s.Engine, s.Source, s.Type, cmp.Or(s.For, s.Operation)),
	)
	if err == nil {
		return nil
	}
	return &Failure{Reason: workflow.ReasonRunnerError, Err: err, Detail: text.Middle("this run is refused: "+err.Error(), maxDetail)}
}

// optionsOf are those of the run; never nil.
func optionsOf(s api.Spec) *api.Options { return cmp.Or(s.Options, &api.Options{}) }

// options are those of the run; never nil.
func (t *terraform) options() *api.Options { return optionsOf(t.j.Spec) }

// variablesOf are the variables for an engine without files of them: those of the run win.
func variablesOf(s api.Spec) map[string]any {
	all := maps.Clone(s.Variables)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, optionsOf(s).Variables)
	return all
}

// flags are the workspace's flags for the engine's command of a step, without those that contradict the run.
func (t *terraform) flags(step string) []string {
	return slices.DeleteFunc(slices.Clone(t.j.Spec.Flags[step]), func(flag string) bool {
		locks := flag == "-upgrade" || strings.HasPrefix(flag, "-lockfile=") // the lock file that was kept with the plan counts
		return locks && t.approved.plans() || flag == "-refresh=false" && t.mode.refreshOnly
	})
}

// varFiles are the files of variables. Of a variable that has several values the last one wins: the workspace's variables
// come first, then its files, then those of the run, then the run's variables.
func (t *terraform) varFiles() []string {
	all := slices.Concat([]string{t.varFile}, t.j.Spec.VarFiles, t.options().VarFiles, []string{t.runVarFile})
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// asked are the arguments that the workspace and the run add to the engine's plan.
func (t *terraform) asked() ([]string, error) {
	var args []string
	for _, name := range t.varFiles() {
		if err := t.readable(name); err != nil {
			return nil, err
		}
		args = append(args, "-var-file="+name)
	}
	for _, address := range t.options().Targets {
		args = append(args, "-target="+address)
	}
	for _, address := range t.options().Replace {
		args = append(args, "-replace="+address)
	}
	return append(args, t.flags(stepPlan)...), nil
}

// readable refuses a file of variables that is not the run's own, or a plain file in the source, where links may lead.
func (t *terraform) readable(name string) error {
	const limit = 64 << 20
	if strings.HasPrefix(name, t.temp.path+"/") {
		return nil
	}
	info, err := t.top.root.Stat(t.fromTop(name))
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a plain file")
	}
	if err == nil && info.Size() > limit {
		err = fmt.Errorf("it has more than %d MiB", limit>>20)
	}
	if err != nil {
		return stepFailed(stepPlan, fmt.Errorf("a file of variables, which var_files name relative to the root module, cannot be used: %s: %w", quote(name), err))
	}
	return nil
}

// fromTop is the path of a file from the top of the source. It is not cleaned: the engine follows links in it too.
func (t *terraform) fromTop(name string) string { return t.inner + "/" + name }

// asDeclared returns the variables of a run in the form for a file. A text may be meant as a list or an object: then
// it is an expression, as with the engine's own flag -var. Terraform decides by the declared type; with the type any,
// the text has to look like an expression, because it may be meant as text. Anything that is not an expression stays
// text, and the engine reports the mistake.
func asDeclared(given map[string]any, types map[string]string) map[string]any {
	all := maps.Clone(given)
	for name, value := range given {
		written, ok := value.(string)
		if !ok || !isExpression(written, types[name]) {
			continue
		}
		if raw, err := constant(written); err == nil {
			all[name] = raw
		}
	}
	return all
}

// isExpression reports whether a text for a variable is meant as an expression. word is the first of its declared type.
func isExpression(written, word string) bool {
	switch word {
	case "", "string", "number", "bool":
		return false
	case "any":
		written = strings.TrimSpace(written)
		return strings.HasPrefix(written, "[") || strings.HasPrefix(written, "{")
	}
	return true
}

// constant returns the JSON of an expression of the engine's language that needs no variables. Options are bounded, and
// so is the depth to which the parser follows one.
func constant(written string) (json.RawMessage, error) {
	parsed, diags := hclsyntax.ParseExpression([]byte(written), "", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	return constantOf(parsed)
}

// constantOf returns the JSON of an expression that needs no variables.
func constantOf(parsed hclsyntax.Expression) (json.RawMessage, error) {
	value, diags := parsed.Value(nil)
	if diags.HasErrors() {
		return nil, diags
	}
	return ctyjson.SimpleJSONValue{Value: value}.MarshalJSON()
}

// importVersions are the first versions that know import blocks.
var importVersions = map[string]string{api.EngineTerraform: "1.5.0", api.EngineTofu: "1.6.0"}

// writeImports writes the imports of the run beside the code, as import blocks, and returns the name of the file;
// empty if there are none. So the plan shows the imports, and applying it makes them.
func (t *terraform) writeImports() (string, error) {
	imports := t.options().Imports
	if len(imports) == 0 {
		return "", nil
	}
	if first := importVersions[t.j.Spec.Engine]; !minAt(t.bin.version, first) {
		return "", stepFailed(stepPlan, fmt.Errorf("imports need %s %s or later, and this is %s: change engine_version", t.j.Spec.Engine, first, t.bin.version))
	}
	name := newName("dayfly_import_", ".tf.json")
	raw, err := importDocument(imports)
	if err == nil {
		err = t.root.write(name, raw)
	}
	if err != nil {
		return "", runnerError(fmt.Errorf("write imports: %w", err))
	}
	return name, nil
}

// importDocument writes import blocks. In an id, which is a template, nothing is replaced; an address is not one.
func importDocument(imports []api.Import) ([]byte, error) {
	plain := strings.NewReplacer("${", "$${", "%{", "%%{")
	blocks := make([]map[string]string, 0, len(imports))
	for _, i := range imports {
		blocks = append(blocks, map[string]string{"to": i.To, "id": plain.Replace(i.ID)})
	}
	return json.Marshal(map[string]any{"import": blocks})
}
