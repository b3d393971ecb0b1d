package main

// These tests are in the package itself: a command cannot be imported.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly-policy/internal/policy"
	"github.com/dayfly-dev/dayfly/internal/api"
)

// call runs a command line, and returns what it printed and its exit code.
func call(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, said bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(stdin), &out, &said)
	code = report(&said, err)
	return out.String(), said.String(), code
}

func file(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEvaluate_AnswersTheQueryOnStandardInput(t *testing.T) {
	dir := t.TempDir()
	file(t, dir, "main.rego", "package main\n\ndeny contains {\"msg\": \"no\", \"address\": r} if some r in input.all\n")
	query, err := json.Marshal(api.PolicyQuery{Input: json.RawMessage(`{"all": ["b", "a"]}`), Packages: []api.PolicyPackage{
		{Name: "rules", Directory: dir}, {Name: "missing", Directory: filepath.Join(dir, "none")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	out, said, code := call(t, string(query), "evaluate")
	var got api.PolicyAnswer
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || said != "" || len(got.Packages) != 2 {
		t.Fatalf("got %q, %q, exit code %d, %v", out, said, code, err)
	}
	want := api.PackageAnswer{Name: "rules", Rules: 1, Findings: []api.PackageFinding{
		{Rule: "main.deny", Address: "a", Message: "no"}, {Rule: "main.deny", Address: "b", Message: "no"},
	}}
	if diff := cmp.Diff(want, got.Packages[0]); diff != "" {
		t.Error(diff)
	}
	if got.Packages[1].Name != "missing" || got.Packages[1].Error == "" {
		t.Errorf("got %+v", got.Packages[1])
	}
}

// A runner that gets no answer stops the run, so a query that is wrong must not end with 0.
func TestEvaluate_AWrongQueryFails(t *testing.T) {
	for _, query := range []string{"", "{}", `{"input": []}`, `{"input": {"a": 1}`, "nothing"} {
		if out, said, code := call(t, query, "evaluate"); code != exitFailed || out != "" || !strings.HasPrefix(said, "dayfly-policy: ") {
			t.Errorf("%q: got %q, %q, exit code %d", query, out, said, code)
		}
	}
	query := `{"input": {"a": 1}, "packages": []}`
	r := strings.NewReader(query)
	if err := run(t.Context(), []string{"evaluate"}, r, broken{}, io.Discard); err == nil || !strings.Contains(err.Error(), "write the answer") {
		t.Errorf("an answer that cannot be written: %v", err)
	}
}

// broken is a pipe that nobody reads.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestTest_ExitCodesSayWhatCameOfIt(t *testing.T) {
	const rules = "package main\n\ndeny contains \"no\" if input.bad\n\nwarn contains \"hm\" if input.odd\n\n"
	dir, plans := t.TempDir(), t.TempDir()
	file(t, dir, "main.rego", rules+"test_passes if count(deny) == 1 with input as {\"bad\": true}\n")
	failing := t.TempDir()
	file(t, failing, "main.rego", rules+"test_fails if count(deny) == 1\n")
	untested := t.TempDir()
	file(t, untested, "main.rego", rules)
	wrong := t.TempDir()
	file(t, wrong, "main.rego", "package main\n\ndeny if input.bad\n")
	good, odd, bad := file(t, plans, "good.json", `{"x": 1}`), file(t, plans, "odd.json", `{"odd": true}`), file(t, plans, "bad.json", `{"bad": true}`)
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"tests pass":        {[]string{dir}, 0, []string{"passed   main.test_passes  main.rego:7 (", "1 test: 1 passed\n"}},
		"a test fails":      {[]string{failing}, 1, []string{"failed   main.test_fails", "1 test: 0 passed, 1 failed"}},
		"no tests":          {[]string{untested}, 0, []string{"there are no tests"}},
		"a wrong package":   {[]string{wrong}, 1, []string{"error: main.rego:3: the rule main.deny is a single value"}},
		"one with a plan":   {[]string{wrong, "--plan", good}, 1, []string{"a mandatory group would stop this run"}},
		"a plan passes":     {[]string{dir, "--plan", good}, 0, []string{"2 rules, 0 findings", "would let this run pass"}},
		"a plan is warned":  {[]string{dir, "--plan", odd}, 0, []string{"warned   main.warn  hm", "would let this run pass"}},
		"a plan is denied":  {[]string{dir, "--plan=" + bad}, 1, []string{"denied   main.deny  no", "would stop this run"}},
		"a plan is missing": {[]string{dir, "--plan", bad + "x"}, exitUsage, []string{"--plan: open "}},
		"not a plan":        {[]string{dir, "--plan", filepath.Join(dir, "main.rego")}, exitUsage, []string{"--plan: ", "main.rego is not one document in JSON"}},
		"not a directory":   {[]string{good}, exitUsage, []string{"DIR: ", "is not a directory"}},
		"no directory":      {nil, exitUsage, []string{"<dir>", "see dayfly-policy --help"}},
		"no time":           {[]string{dir, "--timeout=0s"}, exitUsage, []string{"--timeout: want a time above zero"}},
		"an output":         {[]string{dir, "-o", "xml"}, exitUsage, []string{"--output"}},
	} {
		out, said, code := call(t, "", append([]string{"test"}, c.args...)...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s%s", name, code, c.code, out, said)
		}
		for _, want := range c.says {
			if !strings.Contains(out+said, want) {
				t.Errorf("%s: it does not say %q: %s%s", name, want, out, said)
			}
		}
	}
}

func TestTest_PrintsJSONForPrograms(t *testing.T) {
	dir := t.TempDir()
	plan := file(t, t.TempDir(), "plan.json", `{"bad": true}`)
	file(t, dir, "main.rego", "package main\n\ndeny contains \"no\" if input.bad\n\ntest_a if true\n")
	out, said, code := call(t, "", "test", dir, "--plan", plan, "-o", "json")
	var got outcome
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitFailed || said != "" {
		t.Fatalf("got %q, %q, exit code %d, %v", out, said, code, err)
	}
	if len(got.Tests) != 1 || got.Tests[0].Outcome != policy.TestPassed || got.Plan == nil || len(got.Plan.Findings) != 1 || got.Stops == nil || !*got.Stops || got.Error != "" {
		t.Errorf("got %s", out)
	}
}

// What a package says reaches a terminal as text.
func TestTest_PrintsNothingThatATerminalObeys(t *testing.T) {
	dir := t.TempDir()
	plan := file(t, t.TempDir(), "plan.json", `{"name": "\u001b[31mred\u0007\r\u009b2J"}`)
	file(t, dir, "main.rego", "package main\n\ndeny contains {\"msg\": input.name, \"address\": input.name}\n\ntest_a if print(\"\\u001b[31mx\")\n")
	out, _, _ := call(t, "", "test", dir, "--plan", plan)
	if strings.ContainsAny(out, "\x1b\a\r\u009b") || !strings.Contains(out, "red") {
		t.Errorf("got %q", out)
	}
}

func TestVersion_IsThatOfTheBuild(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if out, _, code := call(t, "", arg); code != 0 || strings.TrimSpace(out) != version {
			t.Errorf("%s: got %q, exit code %d", arg, out, code)
		}
	}
}
