package policy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// write makes a package of files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const plan = `{"format_version": "1.2", "resource_changes": [
	{"address": "aws_s3_bucket.logs", "type": "aws_s3_bucket", "change": {"after": {"acl": "public-read", "size": 3}}},
	{"address": "aws_s3_bucket.site", "type": "aws_s3_bucket", "change": {"after": {"acl": "private", "size": 5}}}]}`

func evaluate(t *testing.T, dir string) api.PackageAnswer {
	t.Helper()
	a, err := policy.Evaluate(t.Context(), dir, []byte(plan), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// one evaluates a package of one file.
func one(t *testing.T, source string) api.PackageAnswer {
	t.Helper()
	return evaluate(t, write(t, map[string]string{"main.rego": source}))
}

func denied(rule, address, message string) api.PackageFinding {
	return api.PackageFinding{Rule: rule, Address: address, Message: message}
}

func warned(rule, address, message string) api.PackageFinding {
	return api.PackageFinding{Rule: rule, Address: address, Message: message, Warns: true}
}

func TestEvaluate_GathersTheRulesOfAllPackages(t *testing.T) {
	dir := write(t, map[string]string{
		"main.rego": `package main
import rego.v1
import data.lib.net

deny contains msg if { some r in input.resource_changes; r.change.after.acl == data.limits.forbidden; msg := "public" }
deny contains "public" if input.format_version == data.lists.versions[0]
violation_size contains {"message": "too large", "resource": r.address} if { some r in input.resource_changes; net.large(r) }
warn_b contains {"msg": "b", "address": "x", "severity": 3}
warning contains "not a rule by its name"
warn := ["z", "a"]
`,
		"deep/er/other.rego": "package teams[\"a-b\"].rules\n\nviolation contains \"v\"\n\ndeny_never contains \"n\" if false\n",
		"lib/net.rego":       "package lib.net\n\nlarge(r) if r.change.after.size > data.limits.size\n",
		"main_test.rego":     "package main\n\ndeny contains \"of a test\"\n",
		"limits/data.yaml":   "size: 4\n",
		"limits.json":        `{"limits": {"forbidden": "public-read"}}`,
		"lists/x.yml":        "versions: ['1.2']\n",
		".git/x.rego":        "not rego",
		".hidden.json":       "not JSON",
		"README.md":          "# Rules\n",
	})
	want := api.PackageAnswer{Rules: 6, Findings: []api.PackageFinding{
		denied("main.deny", "", "public"),
		denied("main.violation_size", "aws_s3_bucket.site", "too large"),
		warned("main.warn", "", "a"),
		warned("main.warn", "", "z"),
		warned("main.warn_b", "x", "b"),
		denied(`teams["a-b"].rules.violation`, "", "v"),
	}}
	for range 3 {
		if diff := cmp.Diff(want, evaluate(t, dir)); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestEvaluate_AnswersOnePackageForEach(t *testing.T) {
	good := write(t, map[string]string{"a.rego": "package a\n\ndeny contains \"no\"\n"})
	query, err := json.Marshal(api.PolicyQuery{Input: json.RawMessage(plan), Packages: []api.PolicyPackage{
		{Name: "missing", Directory: filepath.Join(good, "nowhere")}, {Name: "good", Directory: good},
	}})
	if err != nil {
		t.Fatal(err)
	}
	q, err := policy.ReadQuery(strings.NewReader(string(query)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := policy.Answer(t.Context(), q, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Packages) != 2 || got.Packages[0].Name != "missing" || !strings.Contains(got.Packages[0].Error, "open the package") {
		t.Errorf("got %+v", got)
	}
	want := api.PackageAnswer{Name: "good", Rules: 1, Findings: []api.PackageFinding{denied("a.deny", "", "no")}}
	if diff := cmp.Diff(want, got.Packages[1]); diff != "" {
		t.Error(diff)
	}
}

// What gives no findings, although it may be meant to, is an error and never a pass.
func TestEvaluate_WhatCannotBeEvaluatedIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   []string
	}{
		"no rule that decides":    {"package main\n\ndney contains \"x\"\n", []string{"has no rule that denies or warns", "deny_"}},
		"Rego v0":                 {"package main\n\ndeny[msg] { msg := \"x\" }\n", []string{"main.rego: is written in Rego v0", "deny contains msg if", "opa fmt --write --v0-v1"}},
		"not Rego":                {"package main\n\ndeny contains x if {\n", []string{"main.rego:4: "}},
		"empty":                   {"", []string{"main.rego: empty module"}},
		"text":                    {"package main\n\ndeny contains \"\"\n", []string{"main.deny", "without text"}},
		"a number":                {"package main\n\ndeny contains 1\n", []string{"main.deny", "a result that is a number"}},
		"a list in a set":         {"package main\n\ndeny contains [\"a\"]\n", []string{"a result that is a list"}},
		"no msg":                  {"package main\n\ndeny contains {\"mgs\": \"x\"}\n", []string{"without text", "an object with msg"}},
		"msg is a number":         {"package main\n\ndeny contains {\"msg\": 1}\n", []string{"whose msg is a number"}},
		"address is a number":     {"package main\n\ndeny contains {\"msg\": \"x\", \"address\": 1}\n", []string{"whose address is a number"}},
		"a long address":          {"package main\n\ndeny contains {\"msg\": \"x\", \"address\": sprintf(\"%1001d\", [1])}\n", []string{"more than 1000 characters"}},
		"true":                    {"package main\n\ndeny if input.format_version == \"9\"\n", []string{"main.rego:3", "main.deny is a single value", "deny contains msg if"}},
		"false by default":        {"package main\n\ndefault deny := false\n", []string{"is a single value"}},
		"one text":                {"package main\n\ndeny := \"x\" if false\n", []string{"is a single value"}},
		"a value that turns up":   {"package main\n\ndeny := input.format_version\n", []string{"main.deny", "is one text; want a set"}},
		"an object by its head":   {"package main\n\ndeny[x] if x := \"a\"\n", []string{"is an object"}},
		"an object as value":      {"package main\n\ndeny := object.union({}, {\"msg\": \"x\"})\n", []string{"is an object"}},
		"a function":              {"package main\n\ndeny(x) if x == 1\n", []string{"a function, which nothing calls"}},
		"a name below":            {"package main\n\ndeny.s3 contains \"x\"\n", []string{"is an object"}},
		"a builtin that fails":    {"package main\n\ndeny contains \"x\" if to_number(\"a\") == 1\n", []string{"main.deny", "to_number"}},
		"a division by zero":      {"package main\n\ndeny contains \"x\" if 1 / count(input.none_such) > 0\n\ndeny contains \"y\" if 1 / (count(input.resource_changes) - 2) > 0\n", []string{"divide by zero"}},
		"two values":              {"package main\n\ndeny contains f(1)\nf(x) := y if some y in [1, 2]\n", []string{"main.deny", "conflicting values"}},
		"an unsafe variable":      {"package main\n\ndeny contains msg if x > 1\n", []string{"main.rego:3", "unsafe"}},
		"recursion":               {"package main\n\ndeny contains x if some x in deny\n", []string{"recursive"}},
		"an import of nothing":    {"package main\nimport data.lib.s3\n\ndeny contains \"x\" if s3.public\n", []string{"main.rego:2: imports data.lib.s3, which nothing in the package defines"}},
		"data that is missing":    {"package main\n\ndeny contains \"x\" if data.limits.size > 1\n", []string{"main.rego:3: refers to data.limits, which nothing in the package defines"}},
		"a function that is not":  {"package main\n\ndeny contains \"x\" if none_such(1)\n", []string{"undefined function none_such"}},
		"a name that is too long": {"package main\n\ndeny_" + strings.Repeat("x", 255) + " contains \"x\"\n", []string{"more than 255 characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := one(t, c.source)
			for _, want := range c.want {
				if !strings.Contains(got.Error, want) {
					t.Errorf("the error %q does not say %q", got.Error, want)
				}
			}
			if got.Error == "" || len(got.Error) > 1000 || strings.Contains(got.Error, "\n") {
				t.Errorf("got %+v, want an error of one line", got)
			}
		})
	}
}

func TestEvaluate_AFailureDoesNotHideOtherRules(t *testing.T) {
	got := one(t, "package main\n\ndeny_a contains \"x\" if to_number(\"a\") == 1\n\ndeny_b contains \"b\"\n\nwarn contains 1\n")
	if diff := cmp.Diff([]api.PackageFinding{denied("main.deny_b", "", "b")}, got.Findings); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"main.deny_a", "main.warn", "; "} {
		if !strings.Contains(got.Error, want) {
			t.Errorf("the error %q does not say %q", got.Error, want)
		}
	}
}

func TestEvaluate_FindingsAreBounded(t *testing.T) {
	const many = "package main\n\n%s contains {\"msg\": sprintf(\"m%%04d\", [i]), \"address\": \"a\"} if some i in numbers.range(1, %d)\n\n"
	for name, c := range map[string]struct {
		source       string
		findings     int
		denied       int
		failed, more string
	}{
		"as many as may be":     {fmt.Sprintf(many, "deny", 500), 500, 500, "", ""},
		"one denial more":       {fmt.Sprintf(many, "deny", 501), 500, 500, "501 things are denied, of which 500 are shown", ""},
		"denials hide warnings": {fmt.Sprintf(many, "warn", 600) + "deny contains \"no\"\n", 500, 1, "", "102 more warnings, which are not shown"},
		"both":                  {fmt.Sprintf(many, "deny", 500) + "warn contains \"w\"\n", 500, 500, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := one(t, c.source)
			var n int
			var more bool
			for _, f := range got.Findings {
				if !f.Warns {
					n++
				}
				more = more || c.more != "" && f.Message == c.more
			}
			if len(got.Findings) != c.findings || n != c.denied || more != (c.more != "") || !strings.Contains(got.Error, c.failed) || c.failed == "" && got.Error != "" {
				t.Errorf("got %d findings, %d denials, more told: %v, error %q", len(got.Findings), n, more, got.Error)
			}
		})
	}
}

func TestEvaluate_MessagesAreBoundedAndText(t *testing.T) {
	got := one(t, "package main\n\ndeny contains sprintf(\"%9000d\", [1])\n\nwarn contains \"\\ud800 x\"\n")
	if len(got.Findings) != 2 || !strings.HasPrefix(got.Findings[0].Message, "its message is too long to be shown") {
		t.Errorf("got %+v", got)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

func TestEvaluate_TimeIsBounded(t *testing.T) {
	dir := write(t, map[string]string{"main.rego": `package main

deny contains "x" if { some a in numbers.range(1, 100000); some b in numbers.range(1, 100000); some c in numbers.range(1, 100000); a + b + c < 0 }
`})
	began := time.Now()
	got, err := policy.Evaluate(t.Context(), dir, []byte(plan), 50*time.Millisecond)
	if err != nil || !strings.Contains(got.Error, "took longer than") || len(got.Findings) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := policy.Evaluate(ctx, dir, []byte(plan), time.Minute); err != nil || got.Error != "was interrupted" {
		t.Errorf("interrupted: got %+v, %v", got, err)
	}
}

// The rule of docs/policies.md, over the form that terraform show -json gives to plans and states.
func TestEvaluate_RulesSeeFailingChecks(t *testing.T) {
	dir := write(t, map[string]string{"main.rego": `package main

deny_check contains {"msg": "fails", "address": check.address.to_display} if {
	some check in input.checks
	check.address.kind == "check"
	check.status in {"fail", "error"}
}
`})
	got, err := policy.Evaluate(t.Context(), dir, []byte(`{"format_version": "1.2", "checks": [
		{"address": {"kind": "check", "name": "dns", "to_display": "check.dns"}, "status": "fail", "instances": [{"status": "fail", "problems": [{"message": "no"}]}]},
		{"address": {"kind": "check", "name": "later", "to_display": "check.later"}, "status": "unknown"},
		{"address": {"kind": "var", "name": "n", "to_display": "var.n"}, "status": "fail"}]}`), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]api.PackageFinding{denied("main.deny_check", "check.dns", "fails")}, got.Findings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Over anything but a plan or a state, rules would be undefined, which looks as if they passed.
func TestEvaluate_InputMustBeAPlan(t *testing.T) {
	dir := write(t, map[string]string{"a.rego": "package a\n\ndeny contains \"no\" if input.x\n"})
	for _, input := range []string{"", "null", "[]", `"x"`, "{}", "{", "PK\x03\x04", `{"a": 1}{"b": 2}`, "{\"@level\":\"info\"}\n{\"@level\":\"info\"}\n"} {
		if got, err := policy.Evaluate(t.Context(), dir, []byte(input), time.Minute); err == nil {
			t.Errorf("%q: got %+v", input, got)
		}
		q := api.PolicyQuery{Input: json.RawMessage(input), Packages: []api.PolicyPackage{{Name: "a", Directory: dir}}}
		if got, err := policy.Answer(t.Context(), q, time.Minute); err == nil || !strings.HasPrefix(err.Error(), "input: ") {
			t.Errorf("%q: got %+v, %v", input, got, err)
		}
	}
}

func TestReadQuery_IsBounded(t *testing.T) {
	for name, c := range map[string]struct{ query, want string }{
		"not JSON":          {"x", "not a query of a runner"},
		"another type":      {`{"packages": 1}`, "not a query of a runner"},
		"too much":          {`{"input": "` + strings.Repeat("x", 70<<20), "more than 68 MiB"},
		"an input too much": {`{"input": "` + strings.Repeat("x", 65<<20) + `"}`, "input: has more than 64 MiB"},
		"packages":          {`{"packages": [` + strings.Repeat(`{},`, 1000) + `{}]}`, "packages: there are more than 1000"},
	} {
		if _, err := policy.ReadQuery(strings.NewReader(c.query)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Large numbers and deep documents reach rules as they are.
func TestEvaluate_NumbersKeepTheirDigits(t *testing.T) {
	dir := write(t, map[string]string{"a.rego": "package a\n\ndeny contains sprintf(\"%v\", [input.id])\n"})
	got, err := policy.Evaluate(t.Context(), dir, []byte(`{"id": 12345678901234567890}`), time.Minute)
	if err != nil || len(got.Findings) != 1 || got.Findings[0].Message != "12345678901234567890" {
		t.Errorf("got %+v, %v", got, err)
	}
}
