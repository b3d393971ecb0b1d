package engine_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

const stateKey = "state plan/terraform.tfstate"

// statePlaces runs a test with a state in a directory and in a backend that the code declares.
func statePlaces(t *testing.T, test func(t *testing.T, name string, files map[string]string, place api.State)) {
	eachEngine(t, func(t *testing.T, name string) {
		t.Run("directory", func(t *testing.T) {
			test(t, name, map[string]string{"main.tf": thing}, api.State{Kind: api.StateDirectory})
		})
		t.Run("source", func(t *testing.T) {
			_, url := newHTTPState(t)
			test(t, name, withBackend(url+"/app"), api.State{Kind: api.StateSource, Key: "ws_1"})
		})
	})
}

// What is pulled is the state as it is, and what is pushed becomes the state that the next run expects.
func TestRun_PullsAndPushesStates(t *testing.T) {
	statePlaces(t, func(t *testing.T, name string, files map[string]string, place api.State) {
		first := job(t, name, workflow.StatePull, files)
		first.Spec.State = place
		h := newHost()
		_, err := engine.Run(t.Context(), h, first)
		if f := failure(t, err); f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, "nothing to pull") || h.kept != nil {
			t.Fatalf("pull of nothing: %s %q", f.Reason, f.Detail)
		}
		pull := func() []byte {
			t.Helper()
			h := newHost()
			out, err := engine.Run(t.Context(), h, again(t, first, workflow.StatePull, files))
			if err != nil || out.State != nil {
				t.Fatalf("pull: %v, %+v\n%s", err, out, h.text())
			}
			return h.kept[stateKey]
		}
		push := func(doc string, force bool) (*host, engine.Outcome, error) {
			j := again(t, first, workflow.StatePush, files)
			j.Spec.Push = &api.PushedState{Force: force}
			h := newHost()
			h.input = []byte(doc)
			out, err := engine.Run(t.Context(), h, j)
			if left, _ := filepath.Glob(filepath.Join(j.TempDir, "*.tfstate")); len(left) > 0 {
				t.Errorf("copies of the state are left: %v", left)
			}
			return h, out, err
		}
		done, err := engine.Run(t.Context(), newHost(), again(t, first, workflow.Update, files))
		if err != nil {
			t.Fatal(err)
		}
		doc := string(pull())
		if !strings.Contains(doc, done.State.Lineage) || !strings.Contains(doc, "terraform_data") {
			t.Fatalf("pulled %s", doc)
		}

		for title, bad := range map[string]string{"no state": `{}`, "half of one": doc[:len(doc)/2], "text": "hello"} {
			if h, out, err := push(bad, true); err == nil || !strings.Contains(failure(t, err).Detail, "not a whole state document") || out.State != nil || slices.ContainsFunc(h.args, func(a []string) bool { return slices.Contains(a, "push") }) {
				t.Errorf("%s: %v", title, err)
			}
		}
		other := strings.Replace(doc, done.State.Lineage, "11111111-2222-3333-4444-555555555555", 1)
		for says, doc := range map[string]string{"it is another state": other, "give it a higher one": doc} {
			if h, out, err := push(doc, false); err == nil || out.State != nil || !strings.Contains(failure(t, err).Detail, says) || !errors.Is(err, workflow.ErrConflict) {
				t.Errorf("pushed without force: %v, %+v\n%s", err, out.State, h.text())
			}
		}
		h, out, err := push(other, true)
		if err != nil || out.State == nil || !strings.HasPrefix(out.State.Lineage, "11111111") {
			t.Fatalf("push: %v, %+v\n%s", err, out.State, h.text())
		}
		if diff := cmp.Diff([]string{"init", "state"}, stepNames(h)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if said := h.steps[1].Text; !strings.HasPrefix(said, "lineage 11111111") || !strings.Contains(said, "before: lineage "+done.State.Lineage) {
			t.Errorf("the step says %q", said)
		}
		if !strings.Contains(string(pull()), "11111111-2222") {
			t.Error("the pushed state is not there")
		}
		next := again(t, first, workflow.Preview, files)
		next.Spec.Known = out.State
		if out, err = engine.Run(t.Context(), newHost(), next); err != nil || out.Changes.Add != 0 {
			t.Errorf("the next run: %v", err)
		}
	})
}

// A state that OpenTofu encrypts is not one without resources.
func TestRun_PushesAStateThatTheEngineEncrypts(t *testing.T) {
	const encryption = `terraform {
  encryption {
    key_provider "pbkdf2" "k" {
      passphrase = "correct horse battery staple"
    }
    method "aes_gcm" "m" {
      keys = key_provider.pbkdf2.k
    }
    state {
      method = method.aes_gcm.m
    }
  }
}
`
	files := map[string]string{"main.tf": thing, "encryption.tf": encryption}
	if _, err := exec.LookPath(api.EngineTofu); err != nil {
		t.Skip("tofu is not on this machine")
	}
	updated := func(files map[string]string) engine.Job {
		t.Helper()
		j := job(t, api.EngineTofu, workflow.Update, files)
		j.Spec.State = api.State{Kind: api.StateDirectory}
		if out, err := engine.Run(t.Context(), newHost(), j); err != nil {
			t.Fatalf("update: %+v, %v", out, err)
		}
		return j
	}
	pulled := newHost()
	if _, err := engine.Run(t.Context(), pulled, again(t, updated(map[string]string{"main.tf": thing}), workflow.StatePull, nil)); err != nil {
		t.Fatalf("pull: %v\n%s", err, pulled.text())
	}
	first, plain := updated(files), pulled.kept[stateKey]
	push := func(op workflow.Operation) (*host, error) {
		j := again(t, first, op, files)
		j.Spec.Push = &api.PushedState{Force: true}
		if op == workflow.Preview {
			j.Spec.For = workflow.StatePush
		}
		h := newHost()
		h.input = plain
		_, err := engine.Run(t.Context(), h, j)
		return h, err
	}
	h, err := push(workflow.Preview)
	if err != nil || !strings.Contains(h.steps[1].Text, "its changes are not known") {
		t.Errorf("preview of a push: %v, %+v", err, h.steps)
	}
	if h, err := push(workflow.StatePush); err != nil || !strings.Contains(h.steps[1].Text, "how many resources it holds is not known") {
		t.Errorf("push: %v, %+v", err, h.steps)
	}
}

// Under an approval, a push is looked at first, then made to the state that was looked at, or not at all.
func TestRun_PushThatWasApproved(t *testing.T) {
	statePlaces(t, func(t *testing.T, name string, files map[string]string, place api.State) {
		first := job(t, name, workflow.Update, files)
		first.Spec.State = place
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		h := newHost()
		if _, err := engine.Run(t.Context(), h, again(t, first, workflow.StatePull, files)); err != nil {
			t.Fatal(err)
		}
		doc := strings.NewReplacer(`"name":"thing"`, `"name":"other"`, `"serial":`, `"serial":5`).Replace(compact(t, h.kept[stateKey]))
		preview := again(t, first, workflow.Preview, files)
		preview.Fetched, preview.Spec.For, preview.StateStore = "c", workflow.StatePush, "machine"
		preview.Spec.Push = &api.PushedState{SHA256: engine.SHA256([]byte(doc))}
		h = newHost()
		h.input = []byte(doc)
		out, err := engine.Run(t.Context(), h, preview)
		if err != nil || out.Plan == nil || out.Plan.Empty {
			t.Fatalf("%v, %+v\n%s", err, out.Plan, h.text())
		}
		const builtin = "terraform.io/builtin/terraform"
		want := &api.Changes{Add: 1, Destroy: 1, Resources: []api.ResourceChange{
			{Address: "terraform_data.other", Action: "create", Provider: builtin}, {Address: "terraform_data.thing", Action: "forget", Provider: builtin},
		}}
		if diff := cmp.Diff(want, out.Changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"init", "plan"}, stepNames(h)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		bundle := h.kept[bundleKey]
		apply := func(change func(p *api.PushedState)) (*host, engine.Outcome, error) {
			j := again(t, first, workflow.StatePush, files)
			pushed := *preview.Spec.Push
			change(&pushed)
			j.Fetched, j.StateStore, j.Spec.Push, j.Spec.Plan = "c", "machine", &pushed, &api.PlanRef{PlanMade: *out.Plan}
			h := newHost()
			h.input = bundle
			out, err := engine.Run(t.Context(), h, j)
			return h, out, err
		}
		h, _, err = apply(func(p *api.PushedState) { p.Force = true })
		refusedStale(t, h, err, "force was false")
		h, _, err = apply(func(p *api.PushedState) { p.SHA256 = "other" })
		refusedStale(t, h, err, "the SHA-256 of the state to be pushed was")
		h, done, err := apply(func(*api.PushedState) {})
		if err != nil || done.State == nil || done.State.Serial < 50 {
			t.Fatalf("%v, %+v\n%s", err, done.State, h.text())
		}
		if diff := cmp.Diff([]string{"init", "check", "state"}, stepNames(h)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		h, _, err = apply(func(*api.PushedState) {})
		refusedStale(t, h, err, "the state's serial was")
	})
}

// Two states are compared by what is in them, and only names are told.
func TestCompareStates(t *testing.T) {
	before := `{"version":4,"serial":1,"lineage":"l","outputs":{"same":{"value":"CANARY"},"gone":{"value":"CANARY"},"other":{"value":"CANARY1"}},"resources":[
		{"module":"module.m[\"a\"]","mode":"managed","type":"a","name":"b","provider":"provider[\"registry.terraform.io/hashicorp/a\"]","instances":[
			{"index_key":"k","attributes":{"same":"CANARY","p":"CANARY1"}},{"index_key":"kept","attributes":{"p":9007199254740993}},{"index_key":"gone","attributes":{"p":"CANARY"}}]},
		{"mode":"data","type":"d","name":"e","instances":[{"index_key":0,"attributes":{"p":"CANARY"}},{"deposed":"1a2b3c4d","attributes":null}]}]}`
	after := strings.NewReplacer("CANARY1", "CANARY2", `"gone"`, `"new"`).Replace(before)
	changes, digest, err := engine.CompareStates([]byte(before), []byte(after))
	const provider = "registry.terraform.io/hashicorp/a"
	want := api.Changes{
		Add: 1, Change: 1, Destroy: 1,
		Resources: []api.ResourceChange{
			{Address: `module.m["a"].a.b["gone"]`, Action: "forget", Provider: provider},
			{Address: `module.m["a"].a.b["k"]`, Action: "update", Provider: provider, Changed: []string{"p"}},
			{Address: `module.m["a"].a.b["new"]`, Action: "create", Provider: provider},
		},
		Outputs: []api.OutputChange{{Name: "gone", Action: "delete"}, {Name: "new", Action: "create"}, {Name: "other", Action: "update"}},
	}
	if diff := cmp.Diff(want, changes); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, again, _ := engine.CompareStates([]byte(before), []byte(after)); again != digest {
		t.Error("the digest is not stable")
	}
	changes, _, err = engine.CompareStates(nil, []byte(after))
	if err != nil || changes.Add != 5 || len(changes.Outputs) != 3 {
		t.Errorf("beside no state: %v, %+v", err, changes)
	}
	if _, _, err := engine.CompareStates([]byte(`{"resources":"CANARY"}`), []byte(after)); err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("got %v, want an error without the value", err)
	}
}

func FuzzCompareStates(f *testing.F) {
	f.Add([]byte(`{"resources":[{"mode":"managed","type":"a","name":"b","instances":[{"index_key":1,"attributes":{"p":1}}]}]}`), []byte(`{"outputs":{"o":{}}}`))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		changes, digest, err := engine.CompareStates(before, after)
		if err == nil && (len(digest) != 64 || len(changes.Resources) > 1000) {
			t.Errorf("digest %q, %d resources", digest, len(changes.Resources))
		}
	})
}

func TestRun_StateThatCannotBeFetchedIsNotPushed(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", "")
	for _, forPush := range []bool{false, true} {
		j := job(t, api.EngineTerraform, workflow.StatePush, nil)
		j.EnginePath, j.Spec.Push = []string{dir}, &api.PushedState{}
		if forPush {
			j.Spec.Operation, j.Spec.For = workflow.Preview, workflow.StatePush
		}
		_, err := engine.Run(t.Context(), newHost(), j)
		if f := failure(t, err); f.Reason != workflow.ReasonArtifactFailed || !strings.Contains(f.Detail, "there is no input") {
			t.Errorf("got %s %q", f.Reason, f.Detail)
		}
	}
	j := job(t, api.EngineTerraform, workflow.StatePush, nil)
	j.EnginePath = []string{dir}
	if _, err := engine.Run(t.Context(), newHost(), j); !errors.Is(err, workflow.ErrUnsupported) {
		t.Errorf("a push of nothing: got %v", err)
	}
}
