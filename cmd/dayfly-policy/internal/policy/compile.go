package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// compiled is a package that can be evaluated.
type compiled struct {
	compiler *ast.Compiler
	store    storage.Store
	rules    []rule
}

// rule is one that denies or warns.
type rule struct {
	name  string // as findings name it
	ref   ast.Ref
	warns bool
}

// compile checks a package and makes it ready.
func (p *loaded) compile(ctx context.Context) (*compiled, error) {
	rules, err := p.rules()
	if err != nil {
		return nil, err
	}
	c := &compiled{rules: rules, store: inmem.NewFromObjectWithOpts(p.documents, inmem.OptRoundTripOnWrite(false))}
	if err := storage.Txn(ctx, c.store, storage.TransactionParams{}, func(txn storage.Transaction) error {
		c.compiler = newCompiler().WithPathConflictsCheck(storage.NonEmpty(ctx, c.store, txn))
		if c.compiler.Compile(p.modules); c.compiler.Failed() {
			return c.compiler.Errors
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return c, p.checkData(c.compiler)
}

func newCompiler() *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(capabilities()).WithDefaultRegoVersion(ast.RegoV1)
}

// kindOf is the kind of a rule by its name.
func kindOf(name string) (decides, warns bool) {
	for _, kind := range []string{"deny", "violation", "warn"} {
		if name == kind || strings.HasPrefix(name, kind+"_") {
			return true, kind == "warn"
		}
	}
	return false, false
}

// rules finds the rules that deny or warn, by name. One that could never say anything is an error.
func (p *loaded) rules() ([]rule, error) {
	if len(p.modules) == 0 {
		return nil, errors.New("has no file of policies; want files that end in .rego, and not in " + testSuffix)
	}
	found := map[string]rule{}
	for _, file := range slices.Sorted(maps.Keys(p.modules)) {
		m := p.modules[file]
		for _, r := range m.Rules {
			own := r.Head.Ref()
			head, ok := own[0].Value.(ast.Var)
			if !ok {
				continue
			}
			decides, warns := kindOf(string(head))
			if !decides {
				continue
			}
			ref := m.Package.Path.Append(ast.StringTerm(string(head)))
			name := nameOf(ref)
			if why := unfit(r); why != "" {
				return nil, fmt.Errorf("%s:%d: the rule %s is %s; want `%s contains msg if { ... }`", file, r.Loc().Row, name, why, head)
			}
			if len(name) > maxRule {
				return nil, fmt.Errorf("%s:%d: package and name of the rule have more than %d characters", file, r.Loc().Row, maxRule)
			}
			found[name] = rule{name: name, ref: ref, warns: warns}
		}
	}
	if len(found) == 0 {
		return nil, errors.New("has no rule that denies or warns; want one whose name is deny, violation or warn, or begins with deny_, violation_ or warn_")
	}
	return slices.SortedFunc(maps.Values(found), func(a, b rule) int { return strings.Compare(a.name, b.name) }), nil
}

// unfit says why a rule cannot give findings, as far as its head shows it.
func unfit(r *ast.Rule) string {
	switch {
	case len(r.Head.Args) > 0:
		return "a function, which nothing calls"
	case len(r.Head.Ref()) > 1:
		return "an object"
	case r.Head.RuleKind() == ast.MultiValue:
		return ""
	}
	switch r.Head.Value.Value.(type) {
	case ast.Boolean, ast.String, ast.Number, ast.Null, ast.Object:
		return "a single value"
	}
	return ""
}

// nameOf is a reference without the leading data.
func nameOf(ref ast.Ref) string {
	return strings.TrimPrefix(strings.TrimPrefix(ref.String(), "data"), ".")
}

// checkData refuses references to data that nothing defines: a file that is missing, or a name with a mistake in it,
// would make rules undefined in silence. Imports are looked up whole, other references by their first name.
func (p *loaded) checkData(c *ast.Compiler) error {
	for _, file := range slices.Sorted(maps.Keys(p.modules)) {
		m := p.modules[file]
		for _, i := range m.Imports {
			if ref, ok := i.Path.Value.(ast.Ref); ok && ofData(ref) && !p.defines(c, ref) {
				return fmt.Errorf("%s:%d: imports %s, which nothing in the package defines", file, i.Loc().Row, ref)
			}
		}
		var missing error
		ast.WalkRefs(m, func(ref ast.Ref) bool {
			if missing != nil || !ofData(ref) || len(ref) < 2 {
				return false
			}
			if _, ok := ref[1].Value.(ast.String); ok && !p.defines(c, ref[:2]) {
				missing = fmt.Errorf("%s:%d: refers to %s, which nothing in the package defines", file, ref[0].Loc().Row, ref[:2])
			}
			return false
		})
		if missing != nil {
			return missing
		}
	}
	return nil
}

func ofData(ref ast.Ref) bool { return ref[0].Equal(ast.DefaultRootDocument) }

// defines reports whether a rule, a package or a document stands at a reference.
func (p *loaded) defines(c *ast.Compiler, ref ast.Ref) bool {
	if len(c.GetRules(ref)) > 0 {
		return true
	}
	for _, m := range p.modules {
		if m.Package.Path.HasPrefix(ref) {
			return true
		}
	}
	var at any = p.documents
	for _, term := range ref[1:] {
		key, ok := term.Value.(ast.String)
		object, isObject := at.(map[string]any)
		if !ok || !isObject {
			return false
		}
		if at, ok = object[string(key)]; !ok {
			return false
		}
	}
	return true
}
