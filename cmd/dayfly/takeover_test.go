package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/setup"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// estate writes a tree of root modules as a team has them: backends, files of variables, the engine's own workspaces,
// modules, and an atlantis.yaml for some. It returns how many workspaces it is.
func estate(t *testing.T, dir string, roots int) (workspaces int) {
	t.Helper()
	put := func(name, content string) {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	backends := []string{
		"terraform {\n  backend \"s3\" {\n    bucket = \"b\"\n    key = \"k\"\n  }\n}\n",
		"terraform {\n  backend \"gcs\" {\n    bucket = \"b\"\n  }\n}\n",
		"terraform {\n  backend \"azurerm\" {}\n}\n", "terraform {\n  cloud {}\n}\n", "provider \"aws\" {}\n",
	}
	atlantis := "version: 3\nprojects:\n"
	for i := range roots {
		root := fmt.Sprintf("team-%02d/live/root-%03d", i%20, i)
		put(root+"/main.tf", backends[i%len(backends)]+"module \"net\" {\n  source = \"./modules/net\"\n}\n")
		put(root+"/modules/net/main.tf", "variable \"x\" {}\n")
		put(root+"/terraform.tfvars", "x = 1\n")
		workspaces++
		switch {
		case i%10 == 0:
			put(root+"/env/prod.tfvars", "x = 2\n")
			atlantis += fmt.Sprintf("- {name: root-%d-prod, dir: %s, workspace: prod, autoplan: {when_modified: [x]}}\n", i, root)
		case i%20 == 1:
			put(root+"/terraform.tfstate.d/dev/terraform.tfstate", "{}")
			put(root+"/terraform.tfstate.d/prod/terraform.tfstate", "{}")
			workspaces++
		case i%7 == 0:
			put(root+"/main.tofu", "")
		}
	}
	put("atlantis.yaml", atlantis)
	return workspaces
}

// agent claims and ends runs as a pool's agent and its runners do, until the test ends. The outcome of each is that
// of its workspace.
func (w *world) agent(outcome func(spec api.Spec) api.Result) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	token, err := w.plane.EnsurePoolToken(ctx, "default", "default", "test")
	if err != nil {
		w.t.Fatal(err)
	}
	pool, err := client.New(client.Config{URL: w.url, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		w.t.Fatal(err)
	}
	run := func(job api.Job) error {
		task := "task-" + job.ID
		if err := pool.Launch(ctx, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: task}); err != nil {
			return err
		}
		runner, err := client.NewRunner(client.RunnerConfig{
			URL: w.url, Credential: redact.New(job.Token),
			Run: api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: task, Boot: strings.Repeat("ab", 16)},
		})
		if err != nil {
			return err
		}
		if _, err := runner.Start(ctx); err != nil {
			return err
		}
		spec, err := runner.Spec(ctx)
		if err != nil {
			return err
		}
		_, err = runner.Result(ctx, outcome(spec))
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			got, err := pool.Claim(ctx, api.Claim{Instance: "test", Max: 10, WaitSeconds: 1})
			for _, job := range got.Jobs {
				err = errors.Join(err, run(job))
			}
			if err != nil && ctx.Err() == nil {
				w.t.Errorf("the agent: %v", err)
				return
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
}

// roots are more in a long hunt than in CI.
var roots = flag.Int("roots", 60, "how many root modules move over")

func TestTakeover_ManyWorkspacesMoveOver(t *testing.T) {
	w := newWorld(t)
	tree, files := t.TempDir(), filepath.Join(t.TempDir(), "files")
	count := estate(t, tree, *roots)
	begun := time.Now()
	step := func(name string) { t.Logf("%s after %s", name, time.Since(begun).Round(time.Millisecond)) }

	found := w.run("workspace", "discover", tree, "--out", files, "--project", "global")
	has(t, "discover", found.stdout+found.stderr, fmt.Sprintf("%d workspaces, %d left out", count, *roots), "root-0-prod", `"autoplan" is not carried over`, "the backend lacks storage_account_name", "it is only called as a module", fmt.Sprintf("%d files written", count))
	again := w.run("workspace", "discover", tree, "--out", files, "--project", "global")
	has(t, "discover again", again.stderr, fmt.Sprintf("0 files written, %d unchanged", count))
	if again.stdout != found.stdout {
		t.Error("the same tree gives another table")
	}
	step("discovered twice")

	dry := w.ok("apply", "-f", files, "--dry-run")
	if got := strings.Count(dry, "would be created"); got != count {
		t.Errorf("dry run: %d would be created, want %d", got, count)
	}
	if there := value[[]api.Workspace](w, "workspace", "list"); len(there) != 0 {
		t.Fatalf("a dry run has registered %d workspaces", len(there))
	}
	for _, outcome := range []api.Outcome{api.OutcomeCreated, api.OutcomeUnchanged} {
		got := value[[]setup.Change](w, "apply", "-f", files)
		if other := slices.ContainsFunc(got, func(a setup.Change) bool { return a.Outcome != outcome }); other || len(got) != count {
			t.Errorf("apply: got %d, with others than %s: %v", len(got), outcome, other)
		}
	}
	step("applied")

	for _, name := range []string{"root-0-prod.yaml", "root-10-prod.yaml"} {
		if err := os.Remove(filepath.Join(files, name)); err != nil {
			t.Fatal(err)
		}
	}
	has(t, "dry prune", w.ok("apply", "-f", files, "--dry-run", "--prune"), "workspace root-0-prod would be pruned", "workspace root-10-prod would be pruned")
	if got := strings.Count(w.ok("apply", "-f", files, "--prune", "--yes"), "is pruned"); got != 2 {
		t.Errorf("pruned %d, want 2", got)
	}
	step("pruned")

	w.agent(func(spec api.Spec) api.Result {
		changes := &api.Changes{}
		switch {
		case strings.HasSuffix(spec.Workspace, "001-dev") && !spec.TakeOver:
			return api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStateElsewhere, Detail: "there is another state"}
		case spec.Engine == api.EngineTofu:
			changes.Add = 2
		}
		return api.Result{Outcome: workflow.Succeeded, Changes: changes}
	})
	got := w.run("takeover", "report", "-f", files, "--concurrency", "100", "-o", "json")
	step("reported")
	var report struct {
		Totals     map[string]int
		Workspaces []setup.Verdict
	}
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != cli.ExitFailed {
		t.Fatalf("report: exit %d, %v\n%s", got.code, err, got.stderr)
	}
	want := map[string]int{"refused": 1, "changes": 0, "no changes": 0}
	for _, v := range report.Workspaces {
		if v.Verdict != "refused" {
			want[v.Verdict]++
		}
	}
	if first := report.Workspaces[0]; len(report.Workspaces) != count-2 || !cmp.Equal(want, report.Totals) || report.Totals["changes"] == 0 || first.Verdict != "refused" || !strings.Contains(first.Fix, "--take-over") {
		t.Errorf("got %d, totals %v, first %+v", len(report.Workspaces), report.Totals, first)
	}
	if got := w.run("takeover", "report", report.Workspaces[0].Workspace, "--take-over"); got.code != cli.ExitOK {
		t.Errorf("on a copy of the state elsewhere: got %+v", got)
	}
}

// put registers workspaces of engine command, in the project global.
func (w *world) put(text ...string) (file string) {
	w.t.Helper()
	file = filepath.Join(w.t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(text, "\n---\n")), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

const plainText = "name: %s\nproject: global\nengine: command\ncommands: {preview: 'true', update: 'true'}\nsource: {directory: /src}"

func described(name string) string { return fmt.Sprintf(plainText, name) }

func TestApply_OneRefusedWorkspaceStopsAllChanges(t *testing.T) {
	w := newWorld(t)
	file := w.put(described("one"), described("two")+"\npool: nowhere", described("three")+"\nsize: huge")
	for _, args := range [][]string{{"--dry-run"}, nil} {
		got := w.run(append([]string{"apply", "-f", file}, args...)...)
		if got.code != cli.ExitRefused {
			t.Errorf("%v: exit %d", args, got.code)
		}
		has(t, "refusal", got.stderr, "workspace two: ", "workspace three: ", "nothing was changed")
	}
	if there := value[[]api.Workspace](w, "workspace", "list"); len(there) != 0 {
		t.Errorf("%d workspaces were registered", len(there))
	}
}

func TestApply_ADryRunHidesTheValuesOfVariables(t *testing.T) {
	w := newWorld(t)
	w.ok("apply", "-f", w.put(described("one")+"\nenvironment: {A: old-value, B: same, C: gone-value}\nmax_runtime: 5m", described("two")))
	file := w.put(described("one")+"\nenvironment: {A: new-value, B: same}\nvariables: {x: {deep: new-value}}\nmax_runtime: 9m", described("two"), described("new"))
	got := w.ok("apply", "-f", file, "--dry-run")
	want := `workspace one would be changed
  ~ environment.A (changed, not shown)
  - environment.C (not shown)
  - max_runtime: "5m"
  + max_runtime: "9m"
  + variables.x (not shown)
workspace two would be unchanged
workspace new would be created
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the difference (-want +got):\n%s", diff)
	}
	if now := value[api.Workspace](w, "workspace", "show", "one"); now.MaxRuntime != "5m" {
		t.Errorf("a dry run has changed it: %+v", now)
	}
}

func TestApply_PrunesOnlyInItsScopeAndLeavesWhatHasRuns(t *testing.T) {
	w := newWorld(t)
	w.ok("apply", "-f", w.put(described("keep"), described("gone"), described("busy"), described("alone")))
	run := strings.TrimSpace(w.ok("run", "busy"))
	file := w.put(described("keep"))
	if got := w.run("apply", "-f", w.put(strings.Replace(described("keep"), "project: global\n", "", 1)), "--prune", "--yes"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--project") {
		t.Errorf("a file without a project: got %+v", got)
	}
	has(t, "another project", w.ok("apply", "-f", file, "--prune", "--project", "other", "--yes"), "workspace keep is unchanged")
	if got := w.run("apply", "-f", file, "--prune"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--yes") {
		t.Errorf("without --yes: got %+v", got)
	}
	if there := value[[]api.Workspace](w, "workspace", "list"); len(there) != 4 {
		t.Fatalf("%d workspaces remain, want all 4", len(there))
	}
	got := w.run("apply", "-f", file, "--prune", "--yes")
	has(t, "prune", got.stdout, "workspace keep is unchanged", "workspace gone is pruned", "workspace alone is pruned")
	has(t, "prune", got.stderr, "workspace busy: ", "waiting or active")
	if got.code != cli.ExitRefused || strings.Contains(got.stdout, "busy") {
		t.Errorf("got %+v", got)
	}
	w.ok("workflow", "cancel", run)
	has(t, "prune again", w.ok("apply", "-f", file, "--prune", "--yes"), "workspace busy is pruned")
}

func TestApply_OneBadFileStopsEverything(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": described("one"), "b.yml": "name: [", "c.txt": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.run("apply", "-f", dir); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "b.yml") {
		t.Errorf("got %+v", got)
	}
	if there := value[[]api.Workspace](w, "workspace", "list"); len(there) != 0 {
		t.Errorf("%d workspaces were registered", len(there))
	}
}

func TestDiscover_NeverReplacesAFileThatDiffers(t *testing.T) {
	w := newWorld(t)
	tree, files := t.TempDir(), t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := errors.Join(os.Mkdir(filepath.Join(tree, name), 0o700), os.WriteFile(filepath.Join(tree, name, "main.tf"), []byte("provider \"aws\" {}\nresource \"a\" \"b\" {}\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(files, "b.yaml")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := w.run("workspace", "discover", tree, "--out", files)
	if _, err := os.Stat(filepath.Join(files, "a.yaml")); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "b.yaml") || err == nil {
		t.Errorf("got %+v, a.yaml: %v", got, err)
	}
	w.ok("workspace", "discover", tree, "--out", files, "--force")
	w.ok("apply", "-f", files)
	stdout := w.ok("workspace", "discover", tree, "--out", "-")
	if got := w.in(t.Context(), stdout, "apply", "-f", "-"); got.code != cli.ExitOK || strings.Count(got.stdout, "is unchanged") != 2 {
		t.Errorf("from standard output: got %+v", got)
	}
}

func TestReport_ResumesAndRepeatsFailedPreviews(t *testing.T) {
	w := newWorld(t)
	w.ok("apply", "-f", w.put(described("one"), described("two")))
	ctx, interrupt := context.WithCancel(t.Context())
	first := make(chan answer)
	go func() { first <- w.in(ctx, "", "takeover", "report", "--project", "global") }()
	for len(value[[]api.Workflow](w, "workflow", "list")) < 2 {
	}
	interrupt()
	got := <-first
	if got.code != cli.ExitInterrupted {
		t.Errorf("exit %d", got.code)
	}
	has(t, "interrupted", got.stderr, "of one goes on; dayfly workflow cancel wf_", "of two goes on", "--name takeover")

	var failing atomic.Bool
	w.agent(func(spec api.Spec) api.Result {
		if spec.Workspace == "two" && failing.Load() {
			return api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonSecretUnavailable, Detail: "there is no secret x"}
		}
		return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}}
	})
	if got = w.run("takeover", "report", "one", "two"); got.code != cli.ExitOK {
		t.Errorf("exit %d", got.code)
	}
	all := value[[]api.Workflow](w, "workflow", "list")
	if len(all) != 2 {
		t.Errorf("%d workflows: the report began anew", len(all))
	}
	for _, run := range all {
		if run.Operation != workflow.Preview || run.Priority >= 0 {
			t.Errorf("it submitted %+v", run)
		}
	}

	failing.Store(true)
	again := func() []string {
		got := w.run("takeover", "report", "one", "two", "--name", "second")
		if got.code != cli.ExitFailed {
			t.Errorf("exit %d", got.code)
		}
		has(t, "report", got.stdout, "secret_unavailable", "two: there is no secret x", "fix: store the secret", "2 workspaces: 1 no changes, 0 changes, 1 refused, 0 failed")
		return regexp.MustCompile("wf_[a-z0-9]+").FindAllString(got.stdout, -1)
	}
	before := again()
	if n := len(value[[]api.Workflow](w, "workflow", "list")); n != 4 {
		t.Errorf("after a second report: %d workflows, want 4", n)
	}
	after := again()
	same := slices.DeleteFunc(after, func(id string) bool { return !slices.Contains(before, id) })
	if n := len(value[[]api.Workflow](w, "workflow", "list")); n != 5 || len(same) == 0 {
		t.Errorf("repeated: %d workflows, want one more for the failed one, and %v with the successful one", n, before)
	}
}

func TestReport_ItsExitCodeAndFileSayWhatWasFound(t *testing.T) {
	w := newWorld(t)
	w.ok("apply", "-f", w.put(described("one"), described("two")))
	w.agent(func(spec api.Spec) api.Result {
		if spec.Workspace == "two" {
			return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 3}}
		}
		return api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{}}
	})
	if got := w.run("takeover", "report", "one"); got.code != cli.ExitOK {
		t.Errorf("no changes: exit %d\n%s", got.code, got.stderr)
	}
	file := filepath.Join(t.TempDir(), "report.txt")
	if got := w.run("takeover", "report", "one", "two", "--out", file); got.code != cli.ExitChanges || got.stdout != "" {
		t.Errorf("changes: %+v", got)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	has(t, "the file", string(text), "3 to add", "2 workspaces: 1 no changes, 1 changes")
	for _, args := range [][]string{nil, {"nowhere"}, {"--project", "nowhere"}} {
		if got := w.run(append([]string{"takeover", "report"}, args...)...); got.code != cli.ExitUsage && got.code != cli.ExitRefused {
			t.Errorf("%v: got %+v", args, got)
		}
	}
}

func TestReport_TakesWhatApplyTakesAndSaysTheFix(t *testing.T) {
	w := newWorld(t)
	file := w.put("kind: project\nname: team", described("key"), described("tree"), described("other"), described("lock"))
	w.ok("apply", "-f", file)
	details := map[string]api.Result{
		"key":   {Reason: workflow.ReasonStepFailed, Detail: "plan: Error: No valid credential sources found"},
		"tree":  {Reason: workflow.ReasonHookFailed, Detail: "hook lint failed"},
		"other": {Reason: workflow.ReasonStepFailed, Detail: "plan: Error: Unsupported argument"},
		"lock":  {Reason: workflow.ReasonStepFailed, Detail: "the state is locked by ann: dayfly state unlock lock 1"},
	}
	w.agent(func(spec api.Spec) api.Result {
		r := details[spec.Workspace]
		r.Outcome = workflow.Failed
		return r
	})
	got := w.run("takeover", "report", "-f", file)
	has(t, "report", got.stdout, "4 workspaces", "fix: store the credentials with dayfly secret set", "fix: correct the hook", "fix: correct what the error names", "fix: ask the holder of the lock")
	if strings.Contains(got.stdout, "log") {
		t.Errorf("a fix leads to the log:\n%s", got.stdout)
	}
	if got := w.run("takeover", "report", "-f", w.put("kind: project\nname: team")); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "describes no workspace") {
		t.Errorf("a file without workspaces: got %+v", got)
	}
}

func TestDiscover_EqualReasonsAreOneLine(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	put := func(name, content string) {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		put(fmt.Sprintf("lib/m%d/main.tf", i), fmt.Sprintf("variable \"v%d\" {}\nresource \"a\" \"b\" {}\n", i))
		put(fmt.Sprintf("examples/e%d/main.tf", i), "resource \"a\" \"b\" {}\n")
	}
	none := w.run("workspace", "discover", dir)
	has(t, "without a root module", none.stdout+none.stderr, "8: lib/m0, ", "8: examples/e0, examples/e1, examples/e2, examples/e3, examples/e4 and 3 more", "it may be a module: nothing calls it\n", "has no root module, but 8 doubtful: --include takes them")
	some := w.run("workspace", "discover", dir, "--include", "lib/m1", "--include", "examples/*")
	has(t, "included", some.stdout, "--include takes it, though it lies below examples", "nothing gives a value to v1: write it into variables", "9 workspaces, 0 left out, 7 doubtful")
	if got := w.run("workspace", "discover", dir, "-o", "json").stdout; strings.Count(got, "nothing gives a value to v") != 8 {
		t.Errorf("JSON: got %s", got)
	}
}
