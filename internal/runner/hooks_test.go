package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// fake makes an engine of a script, which $1 asks for version, init, plan, show, apply and so on.
func fake(t *testing.T, script string) (api.Spec, runner.Config) {
	t.Helper()
	spec, cfg := job(t, "")
	cfg.StateDir = filepath.Join(filepath.Dir(cfg.WorkDir), "state")
	engines := filepath.Join(filepath.Dir(cfg.WorkDir), "engines")
	spec.Engine, spec.State, spec.Commands = api.EngineTerraform, api.State{Kind: api.StateDirectory}, nil
	cfg.EnginePath = []string{engines}
	text := "#!/bin/sh\nseen() { echo \"$1 sees ${A-no}/${B-no} $(ls \"$DAYFLY_SECRETS_DIR\" 2>/dev/null)\" >&2; }\n" + `case $1 in
version) echo '{"terraform_version": "1.12.0"}'; echo "${A-no} ${B-no} $(ls "$DAYFLY_SECRETS_DIR" 2>/dev/null)" > "` + engines + `/searched";;
init) mkdir -p "$TF_DATA_DIR"; echo '{"version": 3, "backend": {"type": "local", "config": {}}}' > "$TF_DATA_DIR/terraform.tfstate";;
show) echo '{"format_version": "1.2", "terraform_version": "1.12.0"}';;
plan) seen plan; exit 2;;
apply) seen apply; echo '{"version": 4, "serial": 1, "lineage": "one", "outputs": {}, "resources": []}' > "` + cfg.StateDir + `/terraform.tfstate"; ` + script + `;;
esac
`
	for _, dir := range []string{engines, cfg.StateDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(engines, "terraform"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return spec, cfg
}

func stepsOf(r *relay) (out []string) {
	for _, s := range r.steps {
		out = append(out, s.Name+" "+string(s.Status))
	}
	return out
}

func TestRunJob_StepsHaveTheirSecretsAndHooks(t *testing.T) {
	spec, cfg := fake(t, "true")
	spec.Files = []api.File{{Path: "more/a.txt", Content: "of the workspace"}}
	spec.Secrets = []api.Secret{
		{Env: "A", Ref: "file:a", Steps: []string{"plan"}}, {Env: "B", Ref: "file:b", Steps: []string{"apply"}},
		{File: "f", Ref: "file:f", Steps: []string{"apply"}},
	}
	cfg.Secrets = known{"file:a": "value-of-a", "file:b": "value-of-b", "file:f": "value-of-f"}
	spec.Hooks = []api.Hook{
		{Name: "lint", Before: "plan", Run: `pwd; cat more/a.txt; echo "; lint of $DAYFLY_STEP: $A ${B-no}"`},
		{After: "apply", Run: `echo "after $DAYFLY_STEP_STATUS: ${A-no} $B $(cat "$DAYFLY_SECRETS_DIR/f")"`},
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Succeeded {
		t.Fatalf("got %+v; log: %s", got, r.text())
	}
	want := []string{"source succeeded", "init succeeded", "before plan: lint succeeded", "plan succeeded", "apply succeeded", "after apply succeeded", "output succeeded"}
	if diff := cmp.Diff(want, stepsOf(r)); diff != "" {
		t.Error(diff)
	}
	text := r.text()
	for _, want := range []string{
		filepath.Join(cfg.WorkDir, "source") + "\nof the workspace; lint of plan: *** no\n", "plan sees ***/no \n", "apply sees no/*** f\n", "after succeeded: no *** ***\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the log %s", want, text)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(cfg.EnginePath[0], "searched")); string(got) != "no no \n" {
		t.Errorf("the search for the engine sees %q", got)
	}
	if line := r.lines[slices.IndexFunc(r.lines, func(l api.LogLine) bool { return strings.Contains(l.Text, "lint of") })]; line.Step != "before plan: lint" {
		t.Errorf("got the line %+v", line)
	}
}

func TestRunJob_HooksThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		apply  string
		hook   api.Hook
		reason workflow.Reason
		says   string
		steps  []string // after init
	}{
		"before a step it does not run": {"true", api.Hook{Name: "lint", Before: "plan", Run: "exit 3"}, workflow.ReasonHookFailed,
			`the hook "before plan: lint" failed: exit code 3`, []string{"before plan: lint failed", "plan skipped"}},
		"after plan nothing is applied": {"true", api.Hook{After: "plan", Run: "false"}, workflow.ReasonHookFailed,
			`the hook "after plan" failed`, []string{"plan succeeded", "after plan failed"}},
		"after apply the run says what it did": {"true", api.Hook{After: "apply", Run: "false"}, workflow.ReasonHookFailed,
			"The step apply itself succeeded, and its changes remain", []string{"plan succeeded", "apply succeeded", "after apply failed", "output succeeded"}},
		"a failed step stays so": {"exit 1", api.Hook{After: "apply", Run: `test "$DAYFLY_STEP_STATUS" = failed`}, workflow.ReasonStepFailed,
			"apply failed with exit code 1", []string{"plan succeeded", "apply failed", "after apply succeeded"}},
		"and so if both fail": {"exit 1", api.Hook{After: "apply", Run: "exit 9"}, workflow.ReasonStepFailed,
			"apply failed with exit code 1", []string{"plan succeeded", "apply failed", "after apply failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := fake(t, c.apply)
			spec.Hooks = []api.Hook{c.hook}
			r := newRelay(t, spec)
			runJob(t, r, cfg)
			got := r.result()
			if got.Outcome != workflow.Failed || got.Reason != c.reason || !strings.Contains(got.Detail, c.says) {
				t.Errorf("got %+v; log: %s", got, r.text())
			}
			if diff := cmp.Diff(c.steps, stepsOf(r)[2:]); diff != "" {
				t.Error(diff)
			}
			if applied := slices.Contains(c.steps, "apply succeeded"); applied != (got.Changes != nil) {
				t.Errorf("got the changes %+v", got.Changes)
			}
		})
	}
}

func TestRunJob_OnlyAllowedHooksRun(t *testing.T) {
	hook := api.Hook{Name: "lint", Before: "run", Run: "echo of the hook\r\n"}
	for _, c := range []struct {
		allowed []string
		runs    bool
	}{{nil, true}, {[]string{"none"}, false}, {[]string{api.Hook{Run: "echo of the hook"}.Digest()}, true}, {[]string{api.Hook{Run: "echo of it"}.Digest()}, false}} {
		spec, cfg := job(t, "echo of the step")
		spec.Hooks, cfg.Hooks = []api.Hook{hook}, c.allowed
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		got := r.result()
		if ran := got.Outcome == workflow.Succeeded && strings.Contains(r.text(), "of the hook\n"); ran != c.runs {
			t.Errorf("%q: got %+v; log: %s", c.allowed, got, r.text())
		}
		if !c.runs && (got.Reason != workflow.ReasonHookRefused || !strings.Contains(got.Detail, hook.Digest()) || len(r.steps) > 0) {
			t.Errorf("%q: got %+v", c.allowed, got)
		}
	}
}

func TestRunJob_FilesStayInTheSourceAndReplaceNothing(t *testing.T) {
	for p, says := range map[string]string{
		"file": "the source has \"file\" already", "../out": "cannot be written", "link/out": "cannot be written", ".git/config": "cannot be written",
		"new/file": "",
	} {
		spec, cfg := job(t, "cat new/file")
		spec.Source.Path = "module"
		module := filepath.Join(spec.Source.Directory, spec.Source.Path)
		if err := errors.Join(os.Mkdir(module, 0o755), os.Rename(filepath.Join(spec.Source.Directory, "file"), filepath.Join(module, "file")), os.Symlink("..", filepath.Join(module, "link"))); err != nil {
			t.Fatal(err)
		}
		spec.Files = []api.File{{Path: p, Content: "text\n"}}
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		got := r.result()
		if says == "" && got.Outcome != workflow.Succeeded || says != "" && (got.Reason != workflow.ReasonSourceFailed || !strings.Contains(got.Detail, says)) {
			t.Errorf("%s: got %+v", p, got)
		}
	}
}

// The plan is there for a hook alone, also if the hook is killed or gives the file another name.
func TestRunJob_HooksAfterThePlanCanReadIt(t *testing.T) {
	spec, cfg := fake(t, "true")
	const read = `echo "$DAYFLY_STEP: $(cut -c 1-24 "$DAYFLY_PLAN_JSON") $(ls -l "$DAYFLY_PLAN_JSON" | cut -c 1-10)"; `
	spec.Hooks = []api.Hook{
		{Before: "init", Run: `echo "before init: ${TF_DATA_DIR-none} $(basename "$(command -v terraform)")"`},
		{Before: "plan", Run: `echo "before plan: ${DAYFLY_PLAN_JSON-none}"; ls "$TF_DATA_DIR"; terraform version; command -v terraform > found`},
		{After: "plan", Run: read + `echo "$DAYFLY_PLAN_JSON" > path; ln "$DAYFLY_PLAN_JSON" kept; test "$(readlink "$(cat found)")"`},
		{Before: "apply", Run: read + `test -e "$(cat path)" || echo "gone, with $(wc -c < kept | tr -d ' ') bytes left"; echo "$DAYFLY_PLAN_JSON" > path; kill -9 $$`},
		{After: "output", Run: "true"},
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Reason != workflow.ReasonHookFailed || !strings.Contains(got.Detail, `"before apply"`) {
		t.Errorf("got %+v", got)
	}
	for _, want := range []string{
		"before init: none terraform\n", "before plan: none\nterraform.tfstate\n{\"terraform_version",
		"plan: {\"format_version\": \"1.2\" -r--------\n", "apply: {\"format_version\": \"1.2\" -r--------\ngone, with 0 bytes left\n",
	} {
		if !strings.Contains(r.text(), want) {
			t.Errorf("no %q in the log %s", want, r.text())
		}
	}
}

// A program such as cdktf makes the root module from the source.
func TestRunJob_HooksMayMakeTheRootModule(t *testing.T) {
	const path = "cdktf.out/stacks/prod"
	for name, c := range map[string]struct {
		before, run string
		reason      workflow.Reason
		says        string
	}{
		"made":           {"init", `cat file && mkdir -p ` + path + ` && ln -s ../../../file ` + path, "", ""},
		"not made":       {"init", "true", workflow.ReasonSourceFailed, `source.path: the source has no directory "cdktf.out/stacks/prod"`},
		"a file":         {"init", "mkdir -p cdktf.out/stacks && touch " + path, workflow.ReasonSourceFailed, "source.path: the source has no directory"},
		"leads out":      {"init", "mkdir -p cdktf.out/stacks && ln -s /etc " + path, workflow.ReasonSourceFailed, "source.path: the source has no directory"},
		"a link in it":   {"init", "mkdir -p " + path + "/m && ln -s /etc/passwd " + path + "/m/x.tf", workflow.ReasonSourceFailed, `"/etc/passwd", outside the source`},
		"it failed":      {"init", "exit 3", workflow.ReasonHookFailed, "exit code 3"},
		"before another": {"plan", "mkdir -p " + path, workflow.ReasonSourceFailed, "source.path: the source has no directory"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := fake(t, "true")
			spec.Source.Path = path
			spec.Files = []api.File{{Path: "more.txt", Content: "of the workspace"}}
			spec.Hooks = []api.Hook{{Before: c.before, Run: c.run}, {After: "init", Run: "pwd -P; cat more.txt"}}
			r := newRelay(t, spec)
			runJob(t, r, cfg)
			got := r.result()
			if got.Reason != c.reason || !strings.Contains(got.Detail, c.says) {
				t.Errorf("got %+v; log: %s", got, r.text())
			}
			want := []string{"source succeeded", "before init succeeded", "init succeeded", "after init succeeded", "plan succeeded", "apply succeeded", "output succeeded"}
			switch {
			case c.before != "init":
				want = []string{"source failed"}
			case c.reason == workflow.ReasonHookFailed:
				want = []string{"source succeeded", "before init failed", "init skipped"}
			case c.reason != "":
				want = []string{"source succeeded", "before init succeeded", "init skipped"}
			case !strings.Contains(r.text(), "/"+path+"\nof the workspace"):
				t.Errorf("log: %s", r.text())
			}
			if diff := cmp.Diff(want, stepsOf(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
