package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func held(group, enforcement string, waivers ...api.PolicyWaiver) api.Policy {
	return api.Policy{Group: group, Enforcement: enforcement, Waivers: waivers}
}

func TestEvaluateGroups(t *testing.T) {
	denies := api.PackageFinding{Rule: "main.deny", Address: "a.b", Message: "no"}
	warns := api.PackageFinding{Rule: "main.warn", Message: "hm", Warns: true}
	waiver := api.PolicyWaiver{Name: "legacy", Rule: "main.deny", Reason: "OPS-1", GivenBy: "anna", Until: time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)}
	at := func(w api.PolicyWaiver, address string) api.PolicyWaiver { w.Address = address; return w }
	for name, c := range map[string]struct {
		held   api.Policy
		answer api.PackageAnswer
		text   string
		stops  string // begins so; empty: the run goes on
	}{
		"nothing is found":                 {held("g", api.PolicyMandatory), api.PackageAnswer{Rules: 2}, "g (mandatory): passed", ""},
		"mandatory denies":                 {held("g", api.PolicyMandatory), answerOf(denies, warns), "g (mandatory): 1 denied, 1 warned", "policy group g denies it: main.deny at a.b: no"},
		"mandatory warns":                  {held("g", api.PolicyMandatory), answerOf(warns), "g (mandatory): 1 warned", ""},
		"advisory denies":                  {held("g", api.PolicyAdvisory), answerOf(denies), "g (advisory): 1 denied", ""},
		"waivable denies":                  {held("g", api.PolicyWaivable), answerOf(denies, denies), "g (waivable): 2 denied", "policy group g denies it: main.deny at a.b: no, and 1 more; an admin can give a waiver for it"},
		"waived":                           {held("g", api.PolicyWaivable, waiver), answerOf(denies, warns), "g (waivable): 1 waived, 1 warned", ""},
		"waived at its address":            {held("g", api.PolicyWaivable, at(waiver, "a.b")), answerOf(denies), "g (waivable): 1 waived", ""},
		"waived at another address":        {held("g", api.PolicyWaivable, at(waiver, "a.c")), answerOf(denies), "g (waivable): 1 denied", "policy group g denies it"},
		"a waiver of another rule":         {held("g", api.PolicyWaivable, waiver), answerOf(api.PackageFinding{Rule: "main.deny2", Message: "no"}), "g (waivable): 1 denied", "policy group g denies it: main.deny2: no"},
		"mandatory has no waivers":         {held("g", api.PolicyMandatory, waiver), answerOf(denies), "g (mandatory): 1 denied", "policy group g denies it"},
		"mandatory fails":                  {held("g", api.PolicyMandatory), api.PackageAnswer{Error: "it broke."}, "g (mandatory): could not be evaluated", "policy group g could not be evaluated: it broke"},
		"waivable fails, whatever waivers": {held("g", api.PolicyWaivable, waiver), api.PackageAnswer{Error: "it broke"}, "g (waivable): could not be evaluated", "policy group g could not be evaluated"},
		"advisory fails":                   {held("g", api.PolicyAdvisory), api.PackageAnswer{Error: "it broke"}, "g (advisory): could not be evaluated", ""},
	} {
		got := runner.EvaluateGroups([]api.Policy{c.held}, []api.PackageAnswer{c.answer})
		if d := cmp.Diff(c.text, runtext.Group(got[0])); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if stops := runner.Stopped(got); !strings.HasPrefix(stops, c.stops) || (stops == "") != (c.stops == "") {
			t.Errorf("%s stops the run: %q, want %q", name, stops, c.stops)
		}
	}
	waived := runner.EvaluateGroups([]api.Policy{held("g", api.PolicyWaivable, waiver)}, []api.PackageAnswer{answerOf(denies)})[0]
	if got := runtext.Waiver(waived, waived.Findings[0]); got != "waiver legacy by anna until 2027-03-01: OPS-1" {
		t.Errorf("it passes by %q", got)
	}
}

func answerOf(found ...api.PackageFinding) api.PackageAnswer {
	return api.PackageAnswer{Rules: 3, Findings: found}
}

// Whatever a package says, a result can be kept, what is denied comes first, and the counts are those of all.
func TestEvaluateGroups_IsBounded(t *testing.T) {
	var found []api.PackageFinding
	for range 400 {
		found = append(found, api.PackageFinding{Rule: "main.warn", Message: strings.Repeat("w", 900), Warns: true})
	}
	found = append(found, api.PackageFinding{Rule: "main.deny", Message: "no"})
	groups := []api.Policy{held("a", api.PolicyAdvisory), held("b", api.PolicyMandatory)}
	got := runner.Bounded(runner.EvaluateGroups(groups, []api.PackageAnswer{answerOf(found...), answerOf(found...)}))
	for _, r := range got {
		if len(r.Findings) == 0 || r.Findings[0].Outcome != api.FindingDenied || r.Warned != 400 || r.Denied != 1 || r.Unlisted() == 0 {
			t.Errorf("group %s: %s, %d listed", r.Group, runtext.Group(r), len(r.Findings))
		}
	}
	if raw, err := json.Marshal(got); err != nil || len(raw) > 110<<10 {
		t.Errorf("the results have %d bytes, %v", len(raw), err)
	}
	slim := api.Result{Policies: got}.Slim()
	if d := cmp.Diff(got, slim.Policies, cmpopts.IgnoreFields(api.PolicyResult{}, "Findings")); d != "" || len(slim.Policies[0].Findings) > 0 {
		t.Errorf("slim (-whole +slim):\n%s", d)
	}
}

// policies makes a job that is held to policies, with a program that answers as a script says, and the packages of two
// groups in one directory.
func policed(t *testing.T, engine, evaluate string, policies ...api.Policy) (api.Spec, runner.Config) {
	t.Helper()
	spec, cfg := job(t, "echo changed >>\"$DAYFLY_WORK\"; echo the engine ran")
	dir := filepath.Dir(spec.Source.Directory)
	pack := filepath.Join(dir, "pack")
	put(t, filepath.Join(pack, "main.rego"), "package main\n")
	program := filepath.Join(dir, "dayfly-policy")
	put(t, program, "#!/bin/sh\n"+evaluate)
	if err := os.Chmod(program, 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for i := range policies {
		if policies[i].Source.Directory == "" {
			policies[i].Source.Directory = pack
		}
	}
	spec.Policies, spec.Engine, cfg.PolicyProgram = policies, engine, program
	return spec, cfg
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fakeTofu is an engine whose plan has a value that is sensitive.
const fakeTofu = `#!/bin/sh
case "$1" in
version) echo '{"terraform_version":"1.11.4"}' ;;
plan) for a; do case "$a" in -out=*) echo the plan >"${a#-out=}" ;; esac; done; exit 2 ;;
apply) echo APPLIED; for a; do :; done; cat "$a"; mkdir -p .dayfly/state; echo '{"version":4,"serial":1,"lineage":"l","outputs":{},"resources":[]}' >.dayfly/state/terraform.tfstate ;;
show) echo '{"format_version":"1.2","output_changes":{"key":{"actions":["create"],"after":"planted-value","after_sensitive":true}},"resource_changes":[]}' ;;
output) echo '{}' ;;
esac
`

func fakeEngine(t *testing.T, spec api.Spec, cfg *runner.Config) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(spec.Source.Directory), "bin")
	put(t, filepath.Join(dir, "tofu"), fakeTofu)
	if err := os.Chmod(filepath.Join(dir, "tofu"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cfg.EnginePath, cfg.StateDir = []string{dir}, filepath.Join(filepath.Dir(spec.Source.Directory), "state")
}

func answers(json string) string { return "cat >/dev/null; echo '" + json + "'\n" }

func TestRunJob_PoliciesDecideBeforeAnythingIsApplied(t *testing.T) {
	const denies = `{"packages":[{"name":"0","rules":1,"findings":[{"rule":"main.deny","address":"x.planted-value","message":"key is planted-value"}]}]}`
	for name, c := range map[string]struct {
		evaluate string
		policy   api.Policy
		outcome  workflow.State
		detail   string
	}{
		"mandatory, denied":    {answers(denies), held("g", api.PolicyMandatory), workflow.Failed, "policy group g denies it: main.deny at x."},
		"advisory, denied":     {answers(denies), held("g", api.PolicyAdvisory), workflow.Succeeded, ""},
		"waived":               {answers(denies), held("g", api.PolicyWaivable, api.PolicyWaiver{Name: "w", Rule: "main.deny", Address: "x.planted-value"}), workflow.Succeeded, ""},
		"nothing is found":     {answers(`{"packages":[{"name":"0","rules":1,"findings":[]}]}`), held("g", api.PolicyMandatory), workflow.Succeeded, ""},
		"a package that fails": {answers(`{"packages":[{"name":"0","rules":0,"findings":[],"error":"main.rego:1: it broke"}]}`), held("g", api.PolicyMandatory), workflow.Failed, "could not be evaluated: main.rego:1: it broke"},
		"a program that fails": {"echo no memory >&2; exit 3", held("g", api.PolicyMandatory), workflow.Failed, "ended with exit code 3: no memory"},
		"a program that lies":  {answers(`{"packages":[]}`), held("g", api.PolicyMandatory), workflow.Failed, "did not answer for each package"},
		"no answer":            {"cat >/dev/null", held("g", api.PolicyMandatory), workflow.Failed, "cannot read"},
		"no package":           {answers(denies), api.Policy{Group: "g", Enforcement: api.PolicyWaivable, Source: api.Source{Directory: "/nowhere"}}, workflow.Failed, "its package could not be fetched"},
		"advisory, no package": {answers(denies), api.Policy{Group: "g", Enforcement: api.PolicyAdvisory, Source: api.Source{Directory: "/nowhere"}}, workflow.Succeeded, ""},
		"its environment and its directory": {
			`test -z "$(env | grep -v -e '^PWD=' -e '^_=' -e '^SHLVL=' -e '^OLDPWD=')" || { env >&2; exit 9; }
query=$(tr -d '\n')
dir=$(printf %s "$query" | sed 's/.*"directory":"\([^"]*\)".*/\1/')
grep -q 'package main' "$dir/main.rego" && printf %s "$query" | grep -q '"output_changes"' && echo '{"packages":[{"name":"0","rules":1,"findings":[]}]}'`,
			held("g", api.PolicyMandatory), workflow.Succeeded, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := policed(t, api.EngineTofu, c.evaluate, c.policy)
			spec.State = api.State{Kind: api.StateDirectory}
			fakeEngine(t, spec, &cfg)
			r := newRelay(t, spec)
			runJob(t, r, cfg)
			got := r.result()
			if got.Outcome != c.outcome || !strings.Contains(got.Detail, c.detail) || (c.outcome == workflow.Failed) != (got.Reason == workflow.ReasonPolicyFailed) {
				t.Fatalf("got %s (%s): %s\n%s", got.Outcome, got.Reason, got.Detail, r.log())
			}
			if applied := strings.Contains(r.log(), "APPLIED\nthe plan") || strings.Contains(r.text(), "APPLIED"); applied != (c.outcome == workflow.Succeeded) {
				t.Errorf("applied: %t\n%s", applied, r.log())
			}
			if len(got.Policies) != 1 || got.Policies[0].Group != "g" {
				t.Errorf("policies: %+v", got.Policies)
			}
			if all := r.log() + got.Detail + runtext.Group(got.Policies[0]); strings.Contains(all, "planted-value") || strings.Contains(strings.Join(runtext.GroupLines(got.Policies[0]), "\n"), "planted-value") {
				t.Errorf("a sensitive value is shown:\n%s\n%v", all, got.Policies)
			}
			if left, _ := filepath.Glob(filepath.Join(cfg.WorkDir, "policies-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// An engine whose plan no policy can read changes nothing under a group that must hold. Its previews say so.
func TestRunJob_EnginesWithoutAPlanAreNotPassedSilently(t *testing.T) {
	for name, c := range map[string]struct {
		enforcement string
		op          workflow.Operation
		outcome     workflow.State
	}{
		"mandatory, update":  {api.PolicyMandatory, workflow.Update, workflow.Failed},
		"waivable, destroy":  {api.PolicyWaivable, workflow.Destroy, workflow.Failed},
		"advisory, update":   {api.PolicyAdvisory, workflow.Update, workflow.Succeeded},
		"mandatory, preview": {api.PolicyMandatory, workflow.Preview, workflow.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := policed(t, api.EngineCommand, "exit 1", held("g", c.enforcement))
			spec.Operation, spec.Commands = c.op, map[string]string{string(c.op): "echo the engine ran"}
			r := newRelay(t, spec)
			runJob(t, r, cfg)
			got := r.result()
			if got.Outcome != c.outcome || strings.Contains(r.log(), "the engine ran") != (c.outcome == workflow.Succeeded) {
				t.Errorf("got %s (%s): %s\n%s", got.Outcome, got.Reason, got.Detail, r.log())
			}
			if len(got.Policies) != 1 || got.Policies[0].Error != "engine command has no plan that policies can read" {
				t.Errorf("policies: %+v", got.Policies)
			}
		})
	}
}

// Groups of one source are evaluated in one directory, and each by its own enforcement.
func TestRunJob_FetchesAPackageOnce(t *testing.T) {
	spec, cfg := policed(t, api.EngineTofu, `query=$(cat)
n=$(printf %s "$query" | grep -o '"directory"' | wc -l)
test "$n" -eq 1 || { echo "$n packages" >&2; exit 1; }
echo '{"packages":[{"name":"0","rules":1,"findings":[{"rule":"main.deny","message":"no"}]}]}'`,
		held("a", api.PolicyAdvisory), held("b", api.PolicyWaivable, api.PolicyWaiver{Name: "w", Rule: "main.deny"}))
	spec.State = api.State{Kind: api.StateDirectory}
	fakeEngine(t, spec, &cfg)
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	got := r.result()
	if d := cmp.Diff("a (advisory): 1 denied; b (waivable): 1 waived", runtext.Groups(got.Policies)); d != "" || got.Outcome != workflow.Succeeded {
		t.Errorf("%s (%s) %s\n%s", got.Outcome, got.Detail, d, r.log())
	}
}

func TestRunJob_CancelEndsTheEvaluation(t *testing.T) {
	spec, cfg := policed(t, api.EngineTofu, "echo $$ >\"${0%/*}/began\"; exec sleep 600", held("g", api.PolicyAdvisory))
	spec.State = api.State{Kind: api.StateDirectory}
	fakeEngine(t, spec, &cfg)
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	r.wait("the evaluation", func() bool {
		return slices.ContainsFunc(r.steps, func(s api.Step) bool { return s.Name == api.StepPolicy })
	})
	r.set(func() { r.control.Cancel = true })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.result(); got.Outcome != workflow.Cancelled || strings.Contains(r.log(), "APPLIED") {
		t.Errorf("got %s: %s\n%s", got.Outcome, got.Detail, r.log())
	}
}
