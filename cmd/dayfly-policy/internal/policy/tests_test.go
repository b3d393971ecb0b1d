package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
)

func TestTest_TellsWhatCameOfEachTest(t *testing.T) {
	dir := write(t, map[string]string{
		"main.rego": "package main\n\ndeny contains \"no\" if input.bad == data.limit\n",
		"data.json": `{"limit": 3}`,
		"main_test.rego": `package main

test_a_passes if deny with input as {"bad": 3}

test_b_fails if {
	print("seen", count(deny))
	count(deny) == 1
}

test_c_breaks if to_number("x") == 1

todo_test_d_is_left_out if false

test_e_has_cases[name] if {
	some name, bad in {"three": 3, "four": 4}
	count(deny) == 1 with input as {"bad": bad}
}
`,
	})
	results, err := policy.Test(t.Context(), dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range results {
		got[r.Name] = r.Outcome
		if !strings.HasPrefix(r.Place, "main_test.rego:") || r.Passed() != (r.Outcome == policy.TestPassed || r.Outcome == policy.TestSkipped) {
			t.Errorf("got %+v", r)
		}
		switch {
		case r.Outcome == policy.TestBroke && !strings.Contains(r.Error, "main_test.rego:10: to_number"):
			t.Errorf("the error is %q", r.Error)
		case r.Name == "main.test_b_fails" && r.Output != "seen 0\n":
			t.Errorf("it printed %q", r.Output)
		case r.Name == "main.test_e_has_cases" && cmp.Diff([]string{"four"}, r.Failed) != "":
			t.Errorf("the failed cases are %q", r.Failed)
		}
	}
	want := map[string]string{
		"main.test_a_passes": policy.TestPassed, "main.test_b_fails": policy.TestFailed, "main.test_c_breaks": policy.TestBroke,
		"main.todo_test_d_is_left_out": policy.TestSkipped, "main.test_e_has_cases": policy.TestFailed,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTest_NeedsAPackageThatCanBeEvaluated(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no rules":           {map[string]string{"a_test.rego": "package a\n\ntest_a if true\n"}, "has no file of policies"},
		"a rule of one text": {map[string]string{"a.rego": "package a\n\ndeny := \"x\"\n"}, "a single value"},
		"a test of v0":       {map[string]string{"a.rego": "package a\n\ndeny contains \"x\"\n", "a_test.rego": "package a\n\ntest_a { true }\n"}, "a_test.rego: is written in Rego v0"},
		"a test in error":    {map[string]string{"a.rego": "package a\n\ndeny contains \"x\"\n", "a_test.rego": "package a\n\ntest_a if dney\n"}, "unsafe"},
	} {
		if got, err := policy.Test(t.Context(), write(t, c.files), time.Minute); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestTest_TimeIsBounded(t *testing.T) {
	dir := write(t, map[string]string{
		"a.rego":      "package a\n\ndeny contains \"x\"\n",
		"a_test.rego": "package a\n\ntest_a if { some a in numbers.range(1, 100000); some b in numbers.range(1, 100000); a + b < 0 }\n",
	})
	if got, err := policy.Test(t.Context(), dir, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "took longer than") {
		t.Errorf("got %+v, %v", got, err)
	}
}
