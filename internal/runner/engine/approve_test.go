package engine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const bundleKey = "plan plan/bundle.tar"

// previewed makes a preview of a job that leaves a plan, and returns the job that applies it and its host.
func previewed(t *testing.T, j engine.Job, op workflow.Operation, files map[string]string) (engine.Job, *host, engine.Outcome) {
	t.Helper()
	j.Fetched, j.StateStore = "commit-1", "machine"
	j.Spec.WorkspaceID, j.Spec.For = "ws_1", op
	h := newHost()
	out, err := engine.Run(t.Context(), h, j)
	if err != nil || out.Plan == nil {
		t.Fatalf("preview: %v, plan %+v\n%s", err, out.Plan, h.text())
	}
	next := again(t, j, op, files)
	next.Spec.WorkspaceID, next.Spec.TakeOver, next.Spec.BeginAnew, next.Spec.Push = j.Spec.WorkspaceID, j.Spec.TakeOver, j.Spec.BeginAnew, j.Spec.Push
	next.Fetched, next.StateStore, next.Aside = j.Fetched, j.StateStore, j.Aside
	next.Spec.Plan = &api.PlanRef{Workflow: "wf_0", Attempt: 1, PlanMade: *out.Plan}
	applying := newHost()
	applying.input = h.kept[bundleKey]
	return next, applying, out
}

// refusedStale is the refusal that an applying run must have ended with, before anything was applied.
func refusedStale(t *testing.T, h *host, err error, says string) {
	t.Helper()
	f := failure(t, err)
	if f.Reason != workflow.ReasonPlanStale || !strings.Contains(f.Detail, says) {
		t.Fatalf("got %s %q, want %s with %q in it\n%s", f.Reason, f.Detail, workflow.ReasonPlanStale, says, h.text())
	}
	if slices.Contains(h.ran(), "plan") {
		t.Errorf("it was planned anew: %v", h.ran())
	}
}

// compact writes a state without spaces: one engine does, and the other does not.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func stepNames(h *host) (names []string) {
	for _, s := range h.steps {
		names = append(names, s.Name)
	}
	return names
}

// A plan that one run left is what another applies, in other directories, without a plan of its own: for each operation,
// and in a place that begins empty.
func TestRun_AppliesThePlanThatWasApproved(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": app}
		first := job(t, name, workflow.Preview, files)
		first.Spec.Variables = map[string]any{"word": "planned"}
		next, h, out := previewed(t, first, workflow.Update, files)
		if left, _ := os.ReadDir(first.StateDir); len(left) > 0 {
			t.Fatalf("the preview has written %v", left)
		}
		if out.Plan.Empty || out.Plan.Source != "commit-1" || out.Plan.Size != int64(len(h.input)) || out.Outputs != nil {
			t.Errorf("got %+v, outputs %v", out.Plan, out.Outputs)
		}
		next.Spec.Variables = map[string]any{"word": "another one, which is not asked for"}
		done, err := engine.Run(t.Context(), h, next)
		if err != nil {
			t.Fatalf("%v\n%s", err, h.text())
		}
		if diff := cmp.Diff([]string{"init", "check", "apply", "output"}, stepNames(h)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if slices.Contains(h.ran(), "plan") || done.Changes.Add != 3 || done.Outputs[2].Value != "planned" || done.Plan != nil {
			t.Errorf("ran %v, changes %+v, outputs %v", h.ran(), done.Changes, done.Outputs)
		}
		if diff := cmp.Diff(out.Changes, done.Changes); diff != "" {
			t.Errorf("the changes applied are not those shown (-shown +applied):\n%s", diff)
		}
		if !slices.Contains(h.masked, "planted-attribute") || strings.Contains(h.text(), "planted-attribute") {
			t.Error("what is sensitive is not masked when the plan is applied")
		}

		preview := again(t, next, workflow.Preview, files)
		preview.Spec.Known = done.State
		next, h, _ = previewed(t, preview, workflow.Destroy, files)
		if done, err = engine.Run(t.Context(), h, next); err != nil || done.Changes.Destroy != 3 {
			t.Fatalf("destroy: %v, %+v\n%s", err, done.Changes, h.text())
		}

		_, _, out = previewed(t, again(t, next, workflow.Preview, map[string]string{"main.tf": ""}), workflow.Update, nil)
		if !out.Plan.Empty {
			t.Errorf("a plan that changes nothing is not said to be empty: %+v", out.Plan)
		}
	})
}

// Whatever has moved since the preview is named, and nothing is applied.
func TestRun_PlanThatDoesNotFitIsNotApplied(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": app}
		first := job(t, name, workflow.Update, files)
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		preview := again(t, first, workflow.Preview, files)
		preview.Spec.Variables = map[string]any{"word": "next"}
		approved, h, _ := previewed(t, preview, workflow.Update, files)
		bundle := h.input
		stateFile := filepath.Join(first.StateDir, "terraform.tfstate")
		raw, err := os.ReadFile(stateFile)
		if err != nil {
			t.Fatal(err)
		}
		kept := compact(t, raw)
		put(t, first.StateDir, map[string]string{"terraform.tfstate": kept})
		lineage, serial := held(t, stateFile)
		for title, tc := range map[string]struct {
			change func(j *engine.Job, h *host)
			state  string
			says   string
		}{
			"another source":    {change: func(j *engine.Job, _ *host) { j.Fetched = "commit-2" }, says: "the source was commit-1 when the plan was made, and is commit-2 now"},
			"another workspace": {change: func(j *engine.Job, _ *host) { j.Spec.WorkspaceID = "ws_2" }, says: "the workspace's id was ws_1"},
			"another operation": {change: func(j *engine.Job, _ *host) { j.Spec.Operation = workflow.Destroy }, says: "the operation was update"},
			"another machine":   {change: func(j *engine.Job, _ *host) { j.StateStore = "other" }, says: "kept elsewhere than when the plan was made: on another machine"},
			"another place":     {change: func(j *engine.Job, _ *host) { j.Spec.State.Key = "other" }, says: "kept elsewhere"},
			"another bundle":    {change: func(_ *engine.Job, h *host) { h.input = append(slices.Clone(bundle), 0) }, says: "SHA-256"},
			"another summary":   {change: func(j *engine.Job, _ *host) { j.Spec.Plan.Summary = strings.Repeat("0", 64) }, says: "summary"},
			"a later serial":    {state: strings.Replace(kept, `"serial":`, `"serial":1`, 1), says: "the state's serial was "},
			"another lineage":   {state: strings.Replace(kept, lineage, "11111111-2222-3333-4444-555555555555", 1), says: "the state's lineage was " + lineage},
			"an empty state":    {state: "-", says: "the state's lineage was " + lineage + " when the plan was made, and is none now"},
		} {
			j, h := again(t, approved, workflow.Update, files), newHost()
			j.Fetched, j.StateStore, j.Spec.WorkspaceID = approved.Fetched, approved.StateStore, approved.Spec.WorkspaceID
			ref := *approved.Spec.Plan
			j.Spec.Plan, h.input, j.StateDir = &ref, bundle, filepath.Join(t.TempDir(), "state")
			content := kept
			if tc.state != "" {
				content = tc.state
			}
			if content != "-" {
				put(t, j.StateDir, map[string]string{"terraform.tfstate": content})
			}
			if tc.change != nil {
				tc.change(&j, h)
			}
			_, err := engine.Run(t.Context(), h, j)
			if f := failure(t, err); f.Reason != workflow.ReasonPlanStale || !strings.Contains(f.Detail, tc.says) {
				t.Errorf("%s: got %s %q, want %s with %q", title, f.Reason, f.Detail, workflow.ReasonPlanStale, tc.says)
			}
			if ran := h.ran(); slices.Contains(ran, "plan") || slices.Contains(ran, "apply") {
				t.Errorf("%s: ran %v", title, ran)
			}
		}
		if _, now := held(t, stateFile); now != serial {
			t.Errorf("the state has changed: serial %d, was %d", now, serial)
		}

		// The engine's own word, where the state changes at the last moment.
		h.onExec = func(c engine.Command) {
			if c.Args[1] == "apply" {
				put(t, approved.StateDir, map[string]string{"terraform.tfstate": strings.Replace(kept, `"serial":`, `"serial":1`, 1)})
			}
		}
		_, err = engine.Run(t.Context(), h, approved)
		refusedStale(t, h, err, "Saved plan is stale")
	})
}

// Neither the file that is shown nor the one that is applied is one that the code has put there.
func TestRun_PlanFileThatIsSwappedIsFound(t *testing.T) {
	dir := t.TempDir()
	plan := func(address string) string {
		return `{"format_version":"1.2","resource_changes":[{"address":"` + address + `","change":{"actions":["create"]}}]}`
	}
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`plan) for a in "$@"; do case "$a" in -out=*) printf '%s' '`+plan("a.good")+`' >"${a#-out=}" ;; esac; done; exit 2 ;;`,
		`show) cat "$4" ;;`,
		`apply) cat "$3" >"$STATE/applied"; echo '{"lineage":"l","serial":1,"resources":[{}]}' >"$STATE/terraform.tfstate" ;;`,
		`output) echo '{}' ;;`))
	first := job(t, api.EngineTerraform, workflow.Preview, nil)
	first.EnginePath = []string{dir}
	next, h, out := previewed(t, first, workflow.Update, nil)
	if out.Changes.Resources[0].Address != "a.good" {
		t.Fatalf("got %+v", out.Changes)
	}
	evilPlan := plan("a.evil")
	swap := func(c engine.Command) {
		if c.Args[1] == "apply" || c.Args[1] == "show" {
			plan := c.Args[len(c.Args)-1]
			shown, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(plan)), "show-*", "*"))
			for _, name := range append(shown, filepath.Join(filepath.Dir(plan), "plan.tfplan")) {
				if c.Args[1] == "show" || name != plan {
					_ = os.WriteFile(name, []byte(evilPlan), 0o600)
				}
			}
		}
	}
	// While it is shown, in the preview and in the run that applies.
	evil := again(t, first, workflow.Preview, nil)
	evil.Fetched, evil.Spec.For = "c", workflow.Update
	bad := newHost()
	bad.onExec = swap
	if _, err := engine.Run(t.Context(), bad, evil); !strings.Contains(failure(t, err).Detail, "was changed while the engine showed it") || bad.kept != nil {
		t.Errorf("got %v, kept %d", err, len(bad.kept))
	}
	bad = newHost()
	bad.onExec, bad.input = swap, h.input
	evil = next
	evil.TempDir = t.TempDir()
	if _, err := engine.Run(t.Context(), bad, evil); !strings.Contains(failure(t, err).Detail, "was changed while the engine showed it") || slices.Contains(bad.ran(), "apply") {
		t.Errorf("got %v, ran %v", err, bad.ran())
	}
	// After it was shown: what is applied is written anew.
	h.env = []string{"STATE=" + next.StateDir}
	h.onExec = func(c engine.Command) {
		if c.Args[1] == "apply" {
			swap(c)
		}
	}
	if _, err := engine.Run(t.Context(), h, next); err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	if got, err := os.ReadFile(filepath.Join(next.StateDir, "applied")); err != nil || string(got) != plan("a.good") {
		t.Errorf("applied %s, %v", got, err)
	}
}

// The lock file that init has made for the preview is the one of the run that applies its plan.
func TestRun_LockFileIsKeptWithThePlan(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`init) case "$*" in *-lockfile=readonly*) cat .terraform.lock.hcl ;; *) echo selected-by-preview >.terraform.lock.hcl ;; esac ;;`,
		`plan) for a in "$@"; do case "$a" in -out=*) echo p >"${a#-out=}" ;; esac; done; exit 2 ;;`,
		`show) echo '{"format_version":"1.2"}' ;;`,
		`apply) echo '{"lineage":"l","serial":1,"resources":[{}]}' >"$STATE/terraform.tfstate" ;;`,
		`output) echo '{}' ;;`))
	files := map[string]string{".terraform.lock.hcl": "of the source"}
	first := job(t, api.EngineTerraform, workflow.Preview, files)
	first.EnginePath = []string{dir}
	next, h, _ := previewed(t, first, workflow.Update, files)
	h.env = []string{"STATE=" + next.StateDir}
	if _, err := engine.Run(t.Context(), h, next); err != nil || !strings.Contains(h.text(), "selected-by-preview") {
		t.Errorf("%v\n%s", err, h.text())
	}
	// A link could lead to what the runner may read and the code may not.
	if err := errors.Join(os.Remove(filepath.Join(first.Root, ".terraform.lock.hcl")), os.Symlink("main.tf", filepath.Join(first.Root, ".terraform.lock.hcl"))); err != nil {
		t.Fatal(err)
	}
	first.Spec.For, first.TempDir, first.Fetched = workflow.Update, t.TempDir(), "c"
	if _, err := engine.Run(t.Context(), newHost(), first); !strings.Contains(failure(t, err).Detail, "lock file") {
		t.Errorf("a lock file that is a link: %v", err)
	}
}

// A plan for a state that is taken over is applied to that state, once it lies in the workspace's place.
func TestRun_ApprovedPlanTakesTheStateOverFirst(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing + `output "two" { value = 2 }`}
		dir := ranBefore(t, name, map[string]string{"main.tf": thing})
		lineage, _ := held(t, filepath.Join(dir, "terraform.tfstate"))
		first := fetched(t, job(t, name, workflow.Preview, files), dir)
		first.Spec.TakeOver = true
		next, h, out := previewed(t, first, workflow.Update, files)
		if out.Changes.Add != 0 || len(out.Changes.Outputs) != 1 {
			t.Errorf("changes: %+v", out.Changes)
		}
		out, err := engine.Run(t.Context(), h, next)
		if err != nil || out.State == nil || out.State.Lineage != lineage || out.State.Taken == "" {
			t.Fatalf("%v, state %+v\n%s", err, out.State, h.text())
		}

		// Where the copy would not be the place, there is no such plan.
		_, url := newHTTPState(t)
		remote := fetched(t, job(t, name, workflow.Preview, withBackend(url+"/app")), dir)
		remote.Spec.State, remote.Spec.TakeOver = api.State{Kind: api.StateSource, Key: "ws_1"}, true
		remote.Spec.For, remote.Fetched = workflow.Update, "c"
		h = newHost()
		_, err = engine.Run(t.Context(), h, remote)
		refusedElsewhere(t, h, err, "dayfly state push app FILE")
	})
}

// In a backend that the code declares as in a directory.
func TestRun_ApprovedPlanOfADeclaredBackend(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		server, url := newHTTPState(t)
		files := withBackend(url + "/app")
		first := job(t, name, workflow.Preview, files)
		first.Spec.State = api.State{Kind: api.StateSource, Key: "ws_1"}
		next, h, _ := previewed(t, first, workflow.Update, files)
		bundle := h.input
		if server.docs["/app"] != nil {
			t.Error("the preview has written into the backend")
		}
		if out, err := engine.Run(t.Context(), h, next); err != nil || out.Changes.Add != 1 || out.State.Lineage == "" {
			t.Fatalf("%v, %+v\n%s", err, out, h.text())
		}
		// It is applied once.
		next.TempDir, h = t.TempDir(), newHost()
		h.input = bundle
		_, err := engine.Run(t.Context(), h, next)
		refusedStale(t, h, err, "the state's lineage was none when the plan was made")
	})
}

func TestRun_PlanThatCannotBeKeptFailsThePreview(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`plan) for a in "$@"; do case "$a" in -out=*) echo p >"${a#-out=}" ;; esac; done; exit 2 ;;`,
		`show) echo '{"format_version":"1.2"}' ;;`))
	j := job(t, api.EngineTerraform, workflow.Preview, nil)
	j.EnginePath, j.Fetched, j.Spec.For = []string{dir}, "c", workflow.Update
	h := newHost()
	h.keepErr = errors.New("no place for it")
	_, err := engine.Run(t.Context(), h, j)
	if f := failure(t, err); f.Reason != workflow.ReasonArtifactFailed || !strings.Contains(f.Detail, "no place for it") {
		t.Errorf("got %s %q", f.Reason, f.Detail)
	}
	for _, change := range []func(s *api.Spec){
		func(s *api.Spec) { s.For = workflow.StateList },
		func(s *api.Spec) { s.Operation = workflow.Update },
		func(s *api.Spec) { s.For, s.Plan = "", &api.PlanRef{} },
		func(s *api.Spec) { s.Engine = api.EngineCommand },
	} {
		bad := j
		change(&bad.Spec)
		if _, err := engine.Run(t.Context(), newHost(), bad); !errors.Is(err, workflow.ErrUnsupported) {
			t.Errorf("%+v: got %v, want it refused", bad.Spec, err)
		}
	}
}

// What the engines themselves say of replaced and moved resources is understood, and applied.
func TestRun_StructureOfARealPlan(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		before := map[string]string{"main.tf": lines(
			`resource "terraform_data" "a" {`, `  triggers_replace = "CANARY1"`, `}`,
			`resource "terraform_data" "b" {`, `  input = { CANARYkey = "CANARY1" }`, `}`,
			`resource "terraform_data" "c" {}`,
			`resource "terraform_data" "d" {}`)}
		after := map[string]string{"main.tf": lines(
			`resource "terraform_data" "a" {`, `  triggers_replace = "CANARY2"`, `}`,
			`resource "terraform_data" "b" {`, `  input = { CANARYkey = "CANARY2" }`, `}`,
			`resource "terraform_data" "c2" {}`,
			`moved {`, `  from = terraform_data.c`, `  to   = terraform_data.c2`, `}`)}
		first := job(t, name, workflow.Update, before)
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		next, h, out := previewed(t, again(t, first, workflow.Preview, after), workflow.Update, after)
		const builtin = "terraform.io/builtin/terraform"
		want := &api.Changes{Add: 1, Change: 1, Destroy: 2, Replace: 1, Move: 1, Resources: []api.ResourceChange{
			{Address: "terraform_data.d", Action: "delete", Provider: builtin},
			{Address: "terraform_data.a", Action: "replace", Provider: builtin, Changed: []string{"id", "triggers_replace"}, Forces: []string{"triggers_replace"}},
			{Address: "terraform_data.b", Action: "update", Provider: builtin, Changed: []string{"input", "output"}},
			{Address: "terraform_data.c2", Action: "move", Provider: builtin, From: "terraform_data.c"},
		}}
		if diff := cmp.Diff(want, out.Changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if done, err := engine.Run(t.Context(), h, next); err != nil || done.Changes.Replace != 1 {
			t.Fatalf("%v\n%s", err, h.text())
		}
	})
}

// Two previews of different commits have the same values exactly where they plan the same, on a real engine.
func TestRun_PlansOfTheSameChangesHaveEqualValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		plan := func(commit, word string) string {
			j := job(t, name, workflow.Preview, map[string]string{"main.tf": app, "README.md": commit})
			j.Spec.Variables = map[string]any{"word": word}
			j.Fetched, j.StateStore, j.Spec.WorkspaceID, j.Spec.For = commit, "machine", "ws_1", workflow.Update
			h := newHost()
			out, err := engine.Run(t.Context(), h, j)
			if err != nil || out.Plan == nil || len(out.Plan.Values) != 64 {
				t.Fatalf("preview: %v, plan %+v\n%s", err, out.Plan, h.text())
			}
			if strings.Contains(h.text(), out.Plan.Values) {
				t.Error("the values are in the log")
			}
			return out.Plan.Values
		}
		first := plan("commit-1", "planned")
		if plan("commit-2", "planned") != first {
			t.Error("another commit that plans the same has other values")
		}
		if plan("commit-1", "plannee") == first {
			t.Error("another value has the same values")
		}
	})
}
