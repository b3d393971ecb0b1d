package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/env"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const (
	maxAddresses   = 100
	maxVarFiles    = 20
	maxOptionText  = 1000
	maxOptionsSize = 32 << 10 // of their JSON
)

// EngineOptions are the names of the options that a run of an engine may have.
func EngineOptions(engine string) []string {
	switch engine {
	case EngineTerraform, EngineTofu:
		return []string{"targets", "replace", "variables", "var_files", "ref", "refresh_only", "imports"}
	case EnginePulumi:
		return []string{"targets", "replace", "variables", "ref"}
	case EngineTerragrunt:
		return []string{"variables", "ref"}
	case EngineCommand:
		return []string{"ref"}
	}
	return nil
}

// Asked is an option that a run has, in words.
type Asked struct{ Name, Text string }

// Asked lists the options that are set, for people. One with empty text is set too: Check refuses it.
func (o *Options) Asked() (all []Asked) {
	if o == nil {
		return nil
	}
	var imports, variables, ref, refreshOnly []string
	for _, i := range o.Imports {
		imports = append(imports, i.To+"="+i.ID)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		variables = append(variables, name+"="+text.Value(o.Variables[name]))
	}
	if o.Ref != "" {
		ref = []string{o.Ref}
	}
	if o.RefreshOnly {
		refreshOnly = []string{"yes"}
	}
	for _, option := range []struct {
		name   string
		values []string
	}{
		{"targets", o.Targets}, {"replace", o.Replace}, {"variables", variables}, {"var_files", o.VarFiles}, {"ref", ref},
		{"refresh_only", refreshOnly}, {"imports", imports},
	} {
		if len(option.values) > 0 {
			all = append(all, Asked{option.name, strings.Join(option.values, ", ")})
		}
	}
	return all
}

// Summary says in a line which options are set. Of variables it has the names only, because it is kept in places from
// which nothing can be taken back.
func (o *Options) Summary() string {
	var parts []string
	for _, a := range o.Asked() {
		if a.Name == "variables" {
			a.Text = strings.Join(slices.Sorted(maps.Keys(o.Variables)), ", ")
		}
		parts = append(parts, a.Name+" "+a.Text)
	}
	return text.Cut(strings.Join(parts, "; "), 300)
}

// Check refuses options that a run cannot have: those that its engine does not know, and those that contradict its
// operation. It is a pure function, for the control plane and the runner.
func (o *Options) Check(engine string, src Source, t workflow.Type, op workflow.Operation) error {
	if o == nil {
		return nil
	}
	for _, a := range o.Asked() {
		if known := EngineOptions(engine); !slices.Contains(known, a.Name) {
			return badOption(a.Name, "a run with engine %s does not have it; it may have %s", engine, strings.Join(known, ", "))
		}
	}
	if raw, err := json.Marshal(o); err != nil || len(raw) > maxOptionsSize {
		return workflow.Refuse(workflow.ErrTooLarge, "options", "the options of a run have at most %d bytes", maxOptionsSize)
	}
	return cmp.Or(o.checkTexts(engine), CheckVarFiles("options.var_files", engine, src, o.VarFiles), o.checkRun(src, t, op))
}

func badOption(name, format string, args ...any) error {
	return workflow.Refuse(workflow.ErrInvalid, "options."+name, format, args...)
}

// checkTexts checks each option by itself.
func (o *Options) checkTexts(engine string) error {
	if max(len(o.Targets), len(o.Replace), len(o.Imports)) > maxAddresses {
		return workflow.Refuse(workflow.ErrInvalid, "options", "a run has at most %d targets, replacements and imports each", maxAddresses)
	}
	type entry struct{ field, text string }
	var all []entry
	for i, address := range o.Targets {
		all = append(all, entry{fmt.Sprintf("targets[%d]", i), address})
	}
	for i, address := range o.Replace {
		all = append(all, entry{fmt.Sprintf("replace[%d]", i), address})
	}
	for i, one := range o.Imports {
		field := fmt.Sprintf("imports[%d]", i)
		all = append(all, entry{field + ".to", one.To}, entry{field + ".id", one.ID})
	}
	for _, e := range all {
		if strings.TrimSpace(e.text) == "" || len(e.text) > maxOptionText || !printable(e.text) {
			return badOption(e.field, "want 1 to %d printable characters, not %q", maxOptionText, text.Cut(e.text, 80))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Variables)) {
		if !VariableName(engine, name) {
			return badOption("variables", "%q is not the name of a variable", text.Cut(name, 64))
		}
	}
	if !GitRef(o.Ref) {
		return badOption("ref", "%q is not the name of a branch, tag or commit", text.Cut(o.Ref, 80))
	}
	return nil
}

// checkRun compares the options with the run's type and operation.
func (o *Options) checkRun(src Source, t workflow.Type, op workflow.Operation) error {
	updates := op == workflow.Preview || op == workflow.Update
	switch {
	case len(o.Asked()) == 0:
		return nil
	case t != workflow.Deployment:
		return workflow.Refuse(workflow.ErrInvalid, "options", "a scan looks at the whole workspace: it has no options")
	case !workflow.Plans(t, op):
		return workflow.Refuse(workflow.ErrInvalid, "options", "operation %s has no options", op)
	case o.Ref != "" && src.Git == nil:
		return badOption("ref", "it goes with a git source, and this workspace has another one")
	case o.RefreshOnly && !updates:
		return badOption("refresh_only", "it goes with operations preview and update, not with %s", op)
	case len(o.Replace) > 0 && (!updates || o.RefreshOnly):
		return badOption("replace", "it goes with operations preview and update, without refresh_only")
	case len(o.Imports) > 0 && (!updates || o.RefreshOnly):
		return badOption("imports", "it goes with operations preview and update, without refresh_only")
	}
	return nil
}

// CheckVarFiles refuses files of variables that an engine does not read, or that could lie outside the source.
func CheckVarFiles(field, engine string, src Source, files []string) error {
	switch {
	case len(files) == 0:
		return nil
	case !slices.Contains(EngineOptions(engine), "var_files"):
		return workflow.Refuse(workflow.ErrInvalid, field, "engine %s has no files of variables", engine)
	case len(files) > maxVarFiles:
		return workflow.Refuse(workflow.ErrInvalid, field, "there are at most %d files of variables", maxVarFiles)
	}
	for i, name := range files {
		at := fmt.Sprintf("%s[%d]", field, i)
		if path.Clean(name) != name || !printable(name) || !strings.HasSuffix(name, ".tfvars") && !strings.HasSuffix(name, ".tfvars.json") {
			return workflow.Refuse(workflow.ErrInvalid, at, "%q must be the path of a .tfvars or .tfvars.json file, from the root module, with .. at most at its beginning", text.Cut(name, 80))
		}
		if path.IsAbs(name) || !Inside(path.Join(src.inner(), name)) {
			return workflow.Refuse(workflow.ErrInvalid, at, "%q does not lie in the source: name a directory above it as the source, and the root module as its path", text.Cut(name, 80))
		}
	}
	return nil
}

// VariableName says whether an engine can have a variable of that name.
func VariableName(engine, name string) bool {
	if namespace, key, ok := strings.Cut(name, ":"); ok && engine == EnginePulumi {
		return VariableName("", namespace) && VariableName("", key)
	}
	return env.Valid(strings.ReplaceAll(name, "-", "_"))
}

// GitRef says whether a text can name a branch, tag or commit; empty stands for the remote's HEAD.
func GitRef(ref string) bool {
	return len(ref) <= 255 && !strings.ContainsAny(ref, " \t\r\n\x00~^:?*[\\") && !strings.HasPrefix(ref, "-") && !strings.Contains(ref, "..")
}

// Inside says whether a path is a relative one that stays in its directory.
func Inside(p string) bool {
	return p != "" && len(p) <= 1000 && !strings.ContainsAny(p, "\\\x00") && !path.IsAbs(p) && path.Clean(p) == strings.TrimSuffix(p, "/") &&
		p != "." && p != ".." && !strings.HasPrefix(p, "../")
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
