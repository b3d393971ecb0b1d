package policy_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/test/cases"
	"github.com/open-policy-agent/opa/v1/test/cases/testdata"
	"github.com/open-policy-agent/opa/v1/util"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
)

// Why a case of OPA's does not run here.
const (
	needsBuiltin = "needs a builtin that policies do not have"
	needsData    = "refers to data that is missing, which is refused"
	needsInput   = "has an input that is not a JSON object"
	needsSetting = "needs settings of OPA that are off here"
	longResult   = "has results that are longer than a finding"
)

// lax are cases in which a builtin fails and the rule around it is undefined. Here that is an error.
var lax = []string{
	"functionerrors/undefined builtin result",
	"jsonbuiltins/unmarshal number beyond the supported exponent is undefined",
	"jsonbuiltins/unmarshal number with too big an exponent is undefined",
	"jsonpatch/json_patch_tests",
	"jsonpatch/set-failure add-to-bad-path",
	"jsonpatch/set-failure add-with-mismatched-key-value",
	"regex.replace: bad regex pattern: Syntax error",
	"regexmatch/regex.match bad RE",
	"strings/any_prefix_match/single string type_error_nostrict after match",
	"strings/any_prefix_match/type_error_nostrict",
	"strings/any_suffix_match/single string type_error_nostrict after match",
	"strings/any_suffix_match/type_error_nostrict",
	"subset/array and set 1",
	"subset/array and set 2",
	"uuid-parse/negative",
	"withkeyword/builtin: nested, mock function calls original",
}

// apart are cases that cannot be a package, and why.
var apart = map[string]string{
	"every/example some/every":                    "has a rule by the name deny that is a single value, which is refused",
	"fix1863/is defined":                          "asks for all of data, with the query's own rule in it",
	"time/time caching":                           needsSetting, // a builtin of OPA's own tests
	"withkeyword/builtin-builtin: arity 0":        needsBuiltin,
	"withkeyword/builtin: http.send example":      needsBuiltin,
	"withkeyword/builtin: nested, multiple mocks": needsBuiltin,
}

// OPA's own cases say the same here as there: each is made a package of files with a rule that denies, and the query is
// the rule's body.
func TestEvaluate_AnswersAsOPA(t *testing.T) {
	skipped, ran := map[string]int{}, 0
	for _, c := range compliance(t) {
		dir, input, why := packageOf(t, c)
		if why == "" {
			why = judge(t, c, dir, input)
		}
		if why != "" {
			skipped[why]++
			continue
		}
		ran++
	}
	t.Logf("%d cases of OPA's ran", ran)
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		t.Logf("%d skipped: each %s", skipped[why], why)
	}
	if ran < 1000 {
		t.Errorf("only %d cases ran", ran)
	}
}

// codes are what OPA's errors have and sentences have not.
var codes = regexp.MustCompile(`(eval_[a-z]+_error|rego_parse_error): `)

func compliance(t *testing.T) []cases.TestCase {
	t.Helper()
	var all []cases.TestCase
	if err := fs.WalkDir(testdata.V1, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := testdata.V1.ReadFile(path)
		if err != nil {
			return err
		}
		var set cases.Set
		if err := util.Unmarshal(raw, &set); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, set.Cases...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// packageOf writes the files of a case, or says why it cannot be one here.
func packageOf(t *testing.T, c cases.TestCase) (dir string, input []byte, why string) {
	t.Helper()
	if c.ExperimentalKeywords || len(c.Env) > 0 {
		return "", nil, needsSetting
	}
	if why := apart[c.Note]; why != "" {
		return "", nil, why
	}
	switch {
	case c.InputTerm != nil:
		input = []byte(*c.InputTerm)
	case c.Input != nil:
		input = encoded(t, *c.Input)
	case !strings.Contains(c.Query+strings.Join(c.Modules, ""), "input"):
		input = []byte(`{"nothing": "of this case"}`)
	}
	var object map[string]any
	if json.Unmarshal(input, &object) != nil || len(object) == 0 {
		return "", nil, needsInput
	}
	head := `"{}"`
	if c.WantResult != nil && len(*c.WantResult) > 0 {
		var bindings []string
		for name := range (*c.WantResult)[0] {
			bindings = append(bindings, fmt.Sprintf("%q: %s", name, name))
		}
		head = "json.marshal({" + strings.Join(bindings, ", ") + "})"
	}
	files := map[string]string{"query.rego": fmt.Sprintf("package query\n\ndeny contains %s if {\n%s\n}\n", head, c.Query)}
	for i, m := range c.Modules {
		files[fmt.Sprintf("test-%d.rego", i)] = m
	}
	if c.Data != nil {
		files["data.json"] = string(encoded(t, *c.Data))
	}
	return write(t, files), input, ""
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// judge evaluates a case and compares. It returns why the case counts as skipped.
func judge(t *testing.T, c cases.TestCase, dir string, input []byte) string {
	t.Helper()
	got, err := policy.Evaluate(t.Context(), dir, input, time.Minute)
	if err != nil {
		t.Errorf("%s: %v", c.Note, err)
		return ""
	}
	switch {
	case strings.Contains(got.Error, "policies do not have it"):
		return needsBuiltin
	case strings.Contains(got.Error, "which nothing in the package defines"):
		return needsData
	}
	if c.WantResult == nil {
		want := ""
		if c.WantError != nil {
			want = codes.ReplaceAllString(*c.WantError, "")
		}
		if got.Error == "" || !strings.Contains(got.Error, want) {
			t.Errorf("%s: got %+v, want the error %q", c.Note, got, want)
		}
		return ""
	}
	if got.Error != "" {
		if !slices.Contains(lax, c.Note) {
			t.Errorf("%s: error %q", c.Note, got.Error)
		}
		return ""
	}
	var have, want []ast.Value
	for _, f := range got.Findings {
		if strings.HasSuffix(f.Message, "...") {
			return longResult
		}
		var bindings map[string]any
		if err := util.UnmarshalJSON([]byte(f.Message), &bindings); err != nil {
			t.Errorf("%s: %s: %v", c.Note, f.Message, err)
			return ""
		}
		have = append(have, value(t, bindings, c.SortBindings))
	}
	for _, bindings := range *c.WantResult {
		want = append(want, value(t, bindings, c.SortBindings))
	}
	if ast.NewSet(terms(want)...).Compare(ast.NewSet(terms(have)...)) != 0 {
		t.Errorf("%s: got %v, want %v", c.Note, have, want)
	}
	return ""
}

// value is bindings as OPA compares them.
func value(t *testing.T, bindings map[string]any, sorted bool) ast.Value {
	t.Helper()
	for _, v := range bindings {
		if list, ok := v.([]any); ok && sorted {
			slices.SortFunc(list, util.Compare)
		}
	}
	v, err := ast.InterfaceToValue(bindings)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func terms(values []ast.Value) []*ast.Term {
	out := make([]*ast.Term, 0, len(values))
	for _, v := range values {
		out = append(out, ast.NewTerm(v))
	}
	return out
}
