package engine_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const stackKey = "state plan/stack.json"

const added = "urn:pulumi:dev::demo::demo:index:Thing::two"

// pull returns what a run pulls.
func pull(t *testing.T, h *host, last engine.Job) string {
	t.Helper()
	out := mustRun(t, h, next(t, h, last, engine.Outcome{}, workflow.StatePull, outputsOnly))
	if out.State != nil || len(h.kept) != 1 {
		t.Errorf("a pull left %+v and %d artifacts", out.State, len(h.kept))
	}
	return string(h.kept[stackKey])
}

// push runs a push of a document.
func push(t *testing.T, h *host, last engine.Job, doc string, force bool) (engine.Outcome, error) {
	t.Helper()
	j := next(t, h, last, engine.Outcome{}, workflow.StatePush, outputsOnly)
	j.Spec.Push, h.input = &api.PushedState{Force: force, SHA256: engine.SHA256([]byte(doc))}, []byte(doc)
	return engine.Run(t.Context(), h, j)
}

// edited returns an export with one more resource, a component, which needs no plugin, or without it.
func edited(t *testing.T, doc string, with bool) string {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		t.Fatal(err)
	}
	all := d["deployment"].(map[string]any)
	rows := all["resources"].([]any)
	if with {
		all["resources"] = append(rows, map[string]any{"urn": added, "custom": false, "type": "demo:index:Thing", "parent": "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"})
	} else if all["resources"] = rows[:len(rows)-1]; rows[len(rows)-1].(map[string]any)["urn"] != added {
		t.Fatalf("it is not the last one of %s", doc)
	}
	raw, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// What is pulled is the export, with its secrets encrypted; what is pushed becomes the state that the next run expects.
func TestPulumi_PullsAndPushesItsState(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		first := pulumiJob(t, fresh(), workflow.StatePull, outputsOnly)
		h := fresh()
		if _, err := engine.Run(t.Context(), h, first); !errors.Is(err, workflow.ErrNotFound) || !strings.Contains(failure(t, err).Detail, "nothing to pull") || h.kept != nil {
			t.Errorf("pull of nothing: %v", err)
		}
		done := mustRun(t, fresh(), next(t, fresh(), first, engine.Outcome{}, workflow.Update, outputsOnly))
		doc := pull(t, fresh(), first)
		if strings.HasSuffix(t.Name(), "/pulumi") && (strings.Contains(doc, "planted-output") || !strings.Contains(doc, `"ciphertext"`)) {
			t.Errorf("its secret is not encrypted: %s", doc)
		}

		kept := filesBelow(t, first.StateDir)
		for says, bad := range map[string]string{
			"not a whole state document": doc[:len(doc)/2], "a whole state document": "{}", "whole state": strings.Replace(doc, `"deployment"`, `"checkpoint"`, 1),
			"is not one of the stack demo/dev": strings.ReplaceAll(doc, ":dev::demo::", ":dev::other::"), "not one of the stack": strings.ReplaceAll(doc, ":dev::", ":prod::"),
		} {
			h := fresh()
			if out, err := push(t, h, first, bad, true); err == nil || !strings.Contains(failure(t, err).Detail, says) || out.State != nil || slices.Contains(h.ran(), "import") || h.kept != nil {
				t.Errorf("%s: %v\n%s", says, err, h.text())
			}
		}
		if diff := cmp.Diff(kept, filesBelow(t, first.StateDir)); diff != "" {
			t.Errorf("refusals have changed the directory (-before +after):\n%s", diff)
		}

		h = fresh()
		out, err := push(t, h, first, edited(t, doc, true), false)
		if err != nil || out.State == nil || out.State.Lineage != "demo/dev" || out.State.Serial <= done.State.Serial {
			t.Fatalf("push: %v, %+v, before %+v\n%s", err, out.State, done.State, h.text())
		}
		if diff := cmp.Diff([]string{"init", "state"}, stepNames(h)); diff != "" || !strings.Contains(h.steps[1].Text, "artifact plan/former.json") {
			t.Errorf("steps %+v (-want +got):\n%s", h.steps, diff)
		}
		if former := string(h.kept["state plan/former.json"]); former != doc {
			t.Errorf("the former state is kept as %s, want %s", former, doc)
		}
		shows := func(want ...api.ResourceChange) {
			t.Helper()
			shown := mustRun(t, fresh(), next(t, fresh(), first, out, workflow.Preview, outputsOnly))
			for i := range shown.Changes.Resources { // the stand-in has one
				shown.Changes.Resources[i].Provider = ""
			}
			if diff := cmp.Diff(want, shown.Changes.Resources); diff != "" {
				t.Errorf("the next preview shows (-want +got):\n%s", diff)
			}
		}
		shows(api.ResourceChange{Address: added, Action: "delete"})
		if out, err = push(t, fresh(), first, edited(t, pull(t, fresh(), first), false), false); err != nil {
			t.Fatalf("push of what was pulled again: %v", err)
		}
		shows()

		// Another copy of the state that was there is older now.
		h = fresh()
		if out, err := push(t, h, first, doc, false); !errors.Is(err, workflow.ErrConflict) || out.State != nil || !strings.Contains(err.Error(), "older") {
			t.Errorf("a second push of the first state: %v", err)
		}
		if out, err = push(t, fresh(), first, doc, true); err != nil {
			t.Fatalf("with force: %v", err)
		}
		shows()
		// A stack that is lost is made anew, and whoever has a lock keeps it.
		if err := os.RemoveAll(first.StateDir); err != nil {
			t.Fatal(err)
		}
		if out, err = push(t, fresh(), first, doc, false); err != nil || out.State == nil {
			t.Fatalf("push of a stack that is gone: %v", err)
		}
		put(t, filepath.Join(first.StateDir, ".pulumi/locks/organization/demo/dev"), map[string]string{"aaaa.json": "{}"})
		kept = filesBelow(t, first.StateDir)
		if _, err = push(t, fresh(), first, doc, true); err == nil || failure(t, err).Lock == nil {
			t.Errorf("under a lock: %v", err)
		}
		if diff := cmp.Diff(kept, filesBelow(t, first.StateDir)); diff != "" {
			t.Errorf("a push under a lock has changed (-before +after):\n%s", diff)
		}
	})
}

// Pulumi itself takes a file that was pulled, and Dayfly one that Pulumi exported.
func TestPulumi_PulledFileIsOneOfPulumiItself(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		if !strings.HasSuffix(t.Name(), "/pulumi") {
			t.Skip("only the real program can show this")
		}
		first := pulumiJob(t, fresh(), workflow.Update, outputsOnly)
		mustRun(t, fresh(), first)
		dir, backend := t.TempDir(), t.TempDir()
		put(t, dir, map[string]string{"Pulumi.yaml": outputsOnly, "pulled.json": pull(t, fresh(), first)})
		pulumi := func(args ...string) string {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "pulumi", append(args, "--non-interactive")...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PULUMI_HOME="+filepath.Join(dir, "home"), "PULUMI_BACKEND_URL=file://"+backend, "PULUMI_CONFIG_PASSPHRASE="+passphrase)
			raw, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, raw)
			}
			return string(raw)
		}
		pulumi("stack", "init", "dev")
		pulumi("stack", "import", "--file", "pulled.json")
		if shown := pulumi("stack", "output", "hidden", "--show-secrets"); strings.TrimSpace(shown) != "planted-output" {
			t.Errorf("the secret of the imported stack is %q", shown)
		}
		pulumi("up", "--yes", "--skip-preview")
		raw := pulumi("stack", "export")
		if out, err := push(t, fresh(), first, raw, false); err != nil || out.State == nil {
			t.Errorf("push of an export: %v", err)
		}
	})
}

// Under an approval, a push is looked at first, then made to the state that was looked at, or not at all.
func TestPulumi_PushThatWasApproved(t *testing.T) {
	eachPulumi(t, func(t *testing.T, fresh func() *host) {
		first := pulumiJob(t, fresh(), workflow.Update, outputsOnly)
		first.StateStore = "machine"
		mustRun(t, fresh(), first)
		doc := edited(t, pull(t, fresh(), first), true)
		ready := func(h *host, op workflow.Operation, given []byte) engine.Job {
			j := next(t, h, first, engine.Outcome{}, op, outputsOnly)
			j.Fetched, j.StateStore, j.Spec.Push, h.input = "c", "machine", &api.PushedState{SHA256: engine.SHA256([]byte(doc))}, given
			return j
		}
		h := fresh()
		preview := ready(h, workflow.Preview, []byte(doc))
		preview.Spec.For = workflow.StatePush
		kept := filesBelow(t, first.StateDir)
		out := mustRun(t, h, preview)
		want := []api.ResourceChange{{Address: added, Action: "create"}}
		if diff := cmp.Diff(want, out.Changes.Resources); diff != "" || out.Plan == nil || out.Plan.Empty || out.State != nil {
			t.Errorf("plan %+v, state %+v, changes (-want +got):\n%s", out.Plan, out.State, diff)
		}
		if diff := cmp.Diff(kept, filesBelow(t, first.StateDir)); diff != "" {
			t.Errorf("the preview has changed (-before +after):\n%s", diff)
		}
		apply := func(change func(j *engine.Job)) (*host, engine.Outcome, error) {
			applying := fresh()
			j := ready(applying, workflow.StatePush, h.kept[bundleKey])
			j.Spec.Plan = &api.PlanRef{PlanMade: *out.Plan}
			change(&j)
			done, err := engine.Run(t.Context(), applying, j)
			return applying, done, err
		}
		stale := func(h *host, err error, says string) {
			t.Helper()
			if f := failure(t, err); f.Reason != workflow.ReasonPlanStale || !strings.Contains(f.Detail, says) || slices.Contains(h.ran(), "import") {
				t.Errorf("got %s: %s", f.Reason, f.Detail)
			}
		}
		was, _, err := apply(func(j *engine.Job) { j.Spec.Push.Force = true })
		stale(was, err, "force was false")
		done, got, err := apply(func(*engine.Job) {})
		if diff := cmp.Diff([]string{"init", "check", "state"}, stepNames(done)); err != nil || got.State == nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s\n%s", err, diff, done.text())
		}
		was, _, err = apply(func(*engine.Job) {})
		stale(was, err, "the state's serial was")
	})
}

// A state of another workspace is not replaced, and what pulumi says it did is looked at.
func TestPulumi_PushThatCannotBe(t *testing.T) {
	h := withStandIn(t)
	fresh := func() *host { return &host{path: h.path, env: slices.Clone(h.env)} }
	first := pulumiJob(t, fresh(), workflow.Update, outputsOnly)
	mustRun(t, fresh(), first)
	doc := pull(t, fresh(), first)
	owned := fresh()
	owned.others = []api.OthersState{{Workspace: "live"}}
	if _, err := push(t, owned, first, doc, true); failure(t, err).Reason != workflow.ReasonStateOwned {
		t.Errorf("got %v", err)
	}
	unkept := fresh()
	unkept.keepErr = errors.New("no bucket")
	if _, err := push(t, unkept, first, doc, true); failure(t, err).Reason != workflow.ReasonArtifactFailed || slices.Contains(unkept.ran(), "import") {
		t.Errorf("got %v", err)
	}
	deaf := fresh()
	deaf.env = append(deaf.env, "DEAF=1")
	if out, err := push(t, deaf, first, doc, true); err == nil || out.State != nil || !strings.Contains(err.Error(), "says that it has imported") {
		t.Errorf("got %v, %+v", err, out.State)
	}
}

// Two exports are compared by what is in them, and only names are told.
func TestCompareStacks(t *testing.T) {
	row := func(name, rest string) string {
		return `{"urn":"urn:pulumi:dev::demo::aws:s3/bucket:Bucket::` + name + `","type":"aws:s3/bucket:Bucket","provider":"urn:pulumi:dev::demo::pulumi:providers:aws::default::1","id":"CANARY",` + rest + `}`
	}
	doc := func(rows ...string) []byte {
		return []byte(`{"version":3,"deployment":{"manifest":{"time":"` + time.Unix(1, 0).UTC().Format(time.RFC3339) + `"},"resources":[` + strings.Join(rows, ",") + `]}}`)
	}
	stack := func(outputs string) string {
		return `{"urn":"s","type":"pulumi:pulumi:Stack","outputs":{` + outputs + `}}`
	}
	before := doc(stack(`"gone":"CANARY","same":1`), row("same", `"inputs":{"a":1}`), row("gone", `"inputs":{}`), row("in", `"inputs":{"a":"CANARY"},"outputs":{"b":1}`), row("field", `"protect":true`))
	after := doc(stack(`"same":1,"new":"CANARY"`), row("same", `"inputs": {"a": 1}`), row("new", `"delete":true`), row("in", `"inputs":{"a":"CANARY2"},"outputs":{"b":2}`), row("field", `"protect":false`))
	changes, _, err := engine.CompareStacks(before, after)
	at := func(name, action string, changed ...string) api.ResourceChange {
		return api.ResourceChange{Address: "urn:pulumi:dev::demo::aws:s3/bucket:Bucket::" + name, Action: action, Provider: "aws", Changed: changed}
	}
	want := api.Changes{
		Add: 1, Change: 2, Destroy: 1, Outputs: []api.OutputChange{{Name: "gone", Action: "delete"}, {Name: "new", Action: "create"}},
		Resources: []api.ResourceChange{at("field", "update", "protect"), at("gone", "forget"), at("in", "update", "a", "b"), at("new (waits for its end)", "create")},
	}
	if diff := cmp.Diff(want, changes); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, _, err := engine.CompareStacks(before, []byte(`{"deployment":{"resources":"CANARY"}}`)); err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("got %v, want an error without the value", err)
	}
}
