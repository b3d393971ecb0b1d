package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/text"
)

// evaluate asks all rules at once, so that shared parts are computed once. If one fails, it asks each by itself: a
// rule that fails does not hide the results of the others.
func (c *compiled) evaluate(ctx context.Context, input ast.Value) api.PackageAnswer {
	a := api.PackageAnswer{Rules: len(c.rules)}
	values, err := c.ask(ctx, input, c.rules...)
	var failed []error
	for _, r := range c.rules {
		if ctx.Err() != nil {
			break // the caller says so
		}
		of, why := values, error(nil)
		if err != nil {
			of, why = c.ask(ctx, input, r)
		}
		var found []api.PackageFinding
		if value, isDefined := of[r.name]; isDefined {
			found, why = findings(r, value)
		}
		if why != nil {
			failed = append(failed, fmt.Errorf("the rule %s: %w", r.name, why))
		}
		a.Findings = append(a.Findings, found...)
	}
	if a.Findings, err = bound(a.Findings); err != nil {
		failed = append(failed, err)
	}
	if len(failed) > 0 {
		a.Error = sentence(errors.Join(failed...))
	}
	return a
}

// ask evaluates rules in one query, and returns the values of those that are defined. A builtin that fails is an error:
// OPA would otherwise take the rule around it as undefined.
func (c *compiled) ask(ctx context.Context, input ast.Value, rules ...rule) (map[string]any, error) {
	// Each rule stands in a comprehension, or one that is undefined would make all of it undefined.
	body, x := ast.Body{}, ast.VarTerm("x")
	for i, r := range rules {
		value := ast.ArrayComprehensionTerm(x, ast.NewBody(ast.Equality.Expr(x, ast.NewTerm(r.ref))))
		body.Append(ast.Equality.Expr(ast.VarTerm(variable(i)), value))
	}
	q, err := rego.New(
		rego.Compiler(c.compiler), rego.Store(c.store), rego.ParsedQuery(body),
		rego.Capabilities(capabilities()), rego.StrictBuiltinErrors(true),
	).PrepareForEval(ctx)
	if err != nil {
		return nil, err
	}
	results, err := q.Eval(ctx, rego.EvalParsedInput(input))
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("has %d answers", len(results))
	}
	values := map[string]any{}
	for i, r := range rules {
		list, ok := results[0].Bindings[variable(i)].([]any)
		if !ok {
			return nil, errors.New("has no answer")
		}
		if len(list) > 0 {
			values[r.name] = list[0]
		}
	}
	return values, nil
}

func variable(i int) string { return "rule" + strconv.Itoa(i) }

// bound sorts findings, removes duplicates, and keeps as many as an answer may have. Where denials are left out, the
// package has an error: it must not look as if those that are left were all.
func bound(all []api.PackageFinding) ([]api.PackageFinding, error) {
	slices.SortFunc(all, order)
	all = slices.Compact(all)
	if len(all) <= MaxFindings {
		return all, nil
	}
	var denied, warned []api.PackageFinding
	for _, f := range all {
		if f.Warns {
			warned = append(warned, f)
		} else {
			denied = append(denied, f)
		}
	}
	var err error
	if len(denied) > MaxFindings {
		err = fmt.Errorf("%d things are denied, of which %d are shown", len(denied), MaxFindings)
		return denied[:MaxFindings], err
	}
	room := MaxFindings - len(denied)
	kept := slices.Concat(denied, warned[:room])
	if room > 0 {
		kept[len(kept)-1].Address = ""
		kept[len(kept)-1].Message = text.Count(len(warned)-room+1, "more warning") + ", which are not shown"
	}
	slices.SortFunc(kept, order)
	return kept, nil
}

func order(a, b api.PackageFinding) int {
	for _, c := range []int{strings.Compare(a.Rule, b.Rule), strings.Compare(a.Address, b.Address)} {
		if c != 0 {
			return c
		}
	}
	return strings.Compare(a.Message, b.Message)
}
