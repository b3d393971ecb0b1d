package engine_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// thing is code whose plan says 1 to add on an empty state.
const thing = `
resource "terraform_data" "thing" {
  input = terraform.workspace
}
output "id" {
  value = terraform_data.thing.id
}
`

// ranBefore runs the engine itself, as its user did before Dayfly, and returns the directory.
func ranBefore(t *testing.T, name string, files map[string]string, workspaces ...string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, files)
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TF_INPUT=0", "CHECKPOINT_DISABLE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("init")
	if len(workspaces) == 0 {
		run("apply", "-auto-approve")
	}
	for _, w := range workspaces {
		run("workspace", "new", w)
		run("apply", "-auto-approve")
	}
	return dir
}

// fetched makes a run's root module of a directory: what lies beside the code is set aside.
func fetched(t *testing.T, j engine.Job, dir string) engine.Job {
	t.Helper()
	got, err := source.Fetch(t.Context(), source.Request{
		Source: api.Source{Directory: dir}, Dest: filepath.Join(t.TempDir(), "code"), Aside: filepath.Join(t.TempDir(), "aside"), Roots: []string{dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	j.Aside = got.Aside
	return j
}

// held is the lineage and serial of a state file.
func held(t *testing.T, path string) (lineage string, serial int64) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Lineage string
		Serial  int64
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Lineage, doc.Serial
}

// refusedElsewhere is the refusal that a run must have ended with, before anything was planned.
func refusedElsewhere(t *testing.T, h *host, err error, says string) {
	t.Helper()
	f := failure(t, err)
	if f.Reason != workflow.ReasonStateElsewhere || !strings.Contains(f.Detail, says) {
		t.Fatalf("got %s %q, want it refused, with %q in it\n%s", f.Reason, f.Detail, says, h.text())
	}
	if slices.Contains(h.ran(), "plan") {
		t.Errorf("it was planned all the same: %v", h.ran())
	}
}

// R16: a state file beside the code is not passed by. It is taken over once, under the user's word, and known then.
func TestRun_TakesOverTheStateBesideTheCode(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing}
		dir := ranBefore(t, name, files)
		lineage, serial := held(t, filepath.Join(dir, "terraform.tfstate"))
		first := fetched(t, job(t, name, workflow.Update, files), dir)
		first.StateStore = "machine"

		for _, op := range []workflow.Operation{workflow.Update, workflow.Preview, workflow.Destroy, ""} {
			h := newHost()
			out, err := engine.Run(t.Context(), h, fetched(t, again(t, first, op, files), dir))
			refusedElsewhere(t, h, err, "terraform.tfstate beside the code (lineage "+lineage)
			if out.State != nil {
				t.Errorf("%q: a refused run says that it has found %+v", op, out.State)
			}
		}

		// A preview with take_over shows what would be, and takes nothing.
		preview := fetched(t, again(t, first, workflow.Preview, files), dir)
		preview.Spec.TakeOver = true
		h := newHost()
		out, err := engine.Run(t.Context(), h, preview)
		if err != nil || out.Changes == nil || out.Changes.Add != 0 || out.State != nil {
			t.Fatalf("preview: %v, changes %+v, state %+v; want no changes, and nothing kept\n%s", err, out.Changes, out.State, h.text())
		}
		if left, _ := os.ReadDir(first.StateDir); len(left) > 0 {
			t.Errorf("a preview has written %v", left)
		}

		first.Spec.TakeOver = true
		h = newHost()
		out, err = engine.Run(t.Context(), h, first)
		if err != nil {
			t.Fatalf("%v\n%s", err, h.text())
		}
		if out.Changes.Add != 0 || out.State == nil || out.State.Lineage != lineage || out.State.Serial < serial || out.State.Taken == "" {
			t.Errorf("changes %+v, state %+v; want nothing added, lineage %s taken over", out.Changes, out.State, lineage)
		}
		if got, _ := held(t, filepath.Join(first.StateDir, "terraform.tfstate")); got != lineage {
			t.Errorf("the workspace's place holds lineage %s, want %s", got, lineage)
		}

		// From then on the workspace's own counts, and nobody asks again.
		next := fetched(t, again(t, first, workflow.Update, map[string]string{"main.tf": thing + `output "two" { value = 2 }`}), dir)
		next.Spec.Known, next.StateStore = out.State, first.StateStore
		h = newHost()
		if out, err = engine.Run(t.Context(), h, next); err != nil || out.State.Serial <= serial {
			t.Fatalf("%v, state %+v\n%s", err, out.State, h.text())
		}

		// The same workspace on another machine has no state there, and says so.
		other := again(t, first, workflow.Update, files)
		other.StateDir, other.StateStore, other.Spec.Known = filepath.Join(t.TempDir(), "state"), "other", out.State
		h = newHost()
		_, err = engine.Run(t.Context(), h, other)
		refusedElsewhere(t, h, err, "on another machine")
	})
}

// A container is told that a state lies below another directory, and not given it: nothing is planned without it.
func TestRun_StateWithheldFromContainerIsNotIgnored(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing + "terraform {\n  backend \"local\" {\n    path = \"states/mine.tfstate\"\n  }\n}\n"}
		j := job(t, name, workflow.Update, files)
		j.Aside = t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(j.Aside, "states"), 0o700), os.WriteFile(filepath.Join(j.Aside, "states/mine.tfstate"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		j.Spec.TakeOver = true // the state is kept elsewhere than the code declares
		h := newHost()
		_, err := engine.Run(t.Context(), h, j)
		refusedElsewhere(t, h, err, "not given to a container")
	})
}

// Code that declares the backend local says where its state is: under any name inside the source, or where this run does
// not look.
func TestRun_StateFileOfLocalBackendIsNotIgnored(t *testing.T) {
	const kept = "data/prod.json" // is not set aside: it may be anything
	eachEngine(t, func(t *testing.T, name string) {
		outside := filepath.Join(ranBefore(t, name, map[string]string{"main.tf": thing}), "terraform.tfstate")
		for what, tc := range map[string]struct {
			settings   string
			workspaces []string
			ran        bool // the engine ran with it before
			want       string
		}{
			"an absolute path":            {`path = "` + outside + `"`, nil, false, "which is not below its root module"},
			"one where nothing lies":      {`path = "/nowhere/a.tfstate"`, nil, false, "which is not below its root module"},
			"a path out of the source":    {`path = "../a.tfstate"`, nil, false, "which is not below its root module"},
			"a directory of workspaces":   {`workspace_dir = "/srv/states"`, nil, false, "the workspace_dir"},
			"over a link that was cut":    {`path = ".states/a.tfstate"`, nil, false, "over a link that leads out of the source"},
			"workspaces over such a link": {`workspace_dir = ".states"`, nil, false, "over a link that leads out of the source"},
			"a path that is computed":     {`path = "${path.module}/a.tfstate"`, nil, false, "that it computes"},
			"another name":                {`path = "prod.tfstate"`, nil, true, "prod.tfstate beside the code"},
			"a name that is no state's":   {`path = "` + kept + `"`, nil, true, kept + " beside the code"},
			"workspaces in another place": {`workspace_dir = "envs"`, []string{"dev"}, true, "envs/dev/terraform.tfstate beside the code"},
		} {
			t.Run(what, func(t *testing.T) {
				files := map[string]string{"main.tf": thing + "terraform {\n  backend \"local\" {\n    " + tc.settings + "\n  }\n}\n"}
				j := job(t, name, workflow.Preview, files)
				if tc.ran {
					dir := ranBefore(t, name, files, tc.workspaces...)
					j = fetched(t, j, dir)
					if state, err := os.ReadFile(filepath.Join(dir, kept)); err == nil {
						put(t, j.Root, map[string]string{kept: string(state)})
					}
				}
				if err := os.Symlink(".states", filepath.Join(j.Root, ".states")); err != nil {
					t.Fatal(err)
				}
				h := newHost()
				_, err := engine.Run(t.Context(), h, j)
				refusedElsewhere(t, h, err, tc.want)
				j.Spec.BeginAnew = true
				if _, err := engine.Run(t.Context(), newHost(), j); err != nil {
					t.Errorf("begun anew: %v", err)
				}
			})
		}
	})
}

func TestRun_BeginsAnewWhereTheUserSaysSo(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing}
		j := fetched(t, job(t, name, workflow.Update, files), ranBefore(t, name, files))
		j.Spec.BeginAnew = true
		h := newHost()
		out, err := engine.Run(t.Context(), h, j)
		if err != nil || out.Changes.Add != 1 || out.State == nil || out.State.Taken != "" {
			t.Fatalf("%v, changes %+v, state %+v; want 1 added to a state that began empty\n%s", err, out.Changes, out.State, h.text())
		}
	})
}

// Without a choice, code that reads the name plans everything for another environment than its author thinks.
func TestRun_SaysThatCodeReadsTheNameDefault(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		reads := map[string]string{"main.tf": "output \"n\" {\n  value = terraform.workspace\n}\n"}
		for chosen, says := range map[string]bool{"": true, "default": false, "prod": false} {
			j := job(t, name, workflow.Preview, reads)
			j.Spec.State.Workspace = chosen
			h := newHost()
			if _, err := engine.Run(t.Context(), h, j); err != nil || strings.Contains(h.text(), "choose another workspace") != says {
				t.Errorf("workspace %q: %v\n%s", chosen, err, h.text())
			}
		}
	})
}

// R16: the engine's own workspaces are part of the place.
func TestRun_KnowsTheEnginesWorkspaces(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing}
		dir := ranBefore(t, name, files, "prod", "dev") // dev is selected
		first := fetched(t, job(t, name, workflow.Update, files), dir)

		h := newHost()
		_, err := engine.Run(t.Context(), h, first)
		refusedElsewhere(t, h, err, "terraform.tfstate.d/dev/terraform.tfstate beside the code")
		if !strings.Contains(h.text(), "in the engine's workspace dev") {
			t.Errorf("the log does not say which workspace of the engine it is:\n%s", h.text())
		}

		first.Spec.TakeOver = true
		h = newHost()
		out, err := engine.Run(t.Context(), h, first)
		if err != nil || out.Changes.Add != 0 || out.State.Workspace != "dev" {
			t.Fatalf("%v, changes %+v, state %+v\n%s", err, out.Changes, out.State, h.text())
		}
		want, _ := held(t, filepath.Join(dir, "terraform.tfstate.d/dev/terraform.tfstate"))
		if got, _ := held(t, filepath.Join(first.StateDir, "terraform.tfstate.d/dev/terraform.tfstate")); got != want {
			t.Errorf("lineage %s lies in the workspace's place, want %s", got, want)
		}

		// Another one has no state yet where this one has: that may be a slip.
		other := again(t, first, workflow.Update, files)
		other.Spec.State.Workspace = "prod"
		h = newHost()
		_, err = engine.Run(t.Context(), h, other)
		refusedElsewhere(t, h, err, "but others have: dev")
		other = again(t, first, workflow.Update, files)
		other.Getenv = func(name string) string { return map[string]string{"TF_WORKSPACE": "prod"}[name] }
		other.Spec.Known = out.State
		h = newHost()
		_, err = engine.Run(t.Context(), h, other)
		refusedElsewhere(t, h, err, "the engine's workspace dev instead of prod")

		// One of several is taken by its name.
		named := fetched(t, job(t, name, workflow.Preview, files), dir)
		named.Spec.State.Workspace, named.Spec.TakeOver, named.Spec.TakeOverFrom = "default", true, "prod"
		h = newHost()
		if _, err = engine.Run(t.Context(), h, named); err != nil {
			t.Fatalf("%v\n%s", err, h.text())
		}
		if !strings.Contains(h.text(), "take_over: from terraform.tfstate.d/prod/terraform.tfstate") {
			t.Errorf("the log does not say what was taken:\n%s", h.text())
		}
	})
}

// R16: a state that a deleted workspace of the same name has left is nobody's by accident.
func TestRun_StateOfADeletedNamesakeIsNotAdopted(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": thing}
		old := filepath.Join(t.TempDir(), "app")
		dir := ranBefore(t, name, files)
		raw, err := os.ReadFile(filepath.Join(dir, "terraform.tfstate"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, old, map[string]string{"terraform.tfstate": string(raw)})
		j := job(t, name, workflow.Update, files)
		j.Spec.State = api.State{Kind: api.StateDirectory, Key: "ws_2"}
		j.StateOlds = []string{old}
		h := newHost()
		_, err = engine.Run(t.Context(), h, j)
		refusedElsewhere(t, h, err, "state/default/app in the runner's data directory, of an earlier workspace of this name")
		j = again(t, j, workflow.Update, files)
		j.StateOlds, j.Spec.TakeOver = []string{old}, true
		h = newHost()
		if out, err := engine.Run(t.Context(), h, j); err != nil || out.Changes.Add != 0 {
			t.Fatalf("%v, changes %+v\n%s", err, out.Changes, h.text())
		}
	})
}

// httpState is a server for the backend http, with its locks.
type httpState struct {
	mu    sync.Mutex
	docs  map[string][]byte
	locks map[string][]byte
}

func newHTTPState(t *testing.T) (*httpState, string) {
	t.Helper()
	s := &httpState{docs: map[string][]byte{}, locks: map[string][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func (s *httpState) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	at := r.URL.Path
	switch r.Method {
	case http.MethodGet:
		if s.docs[at] == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(s.docs[at])
	case http.MethodPost:
		s.docs[at] = body
	case "LOCK":
		if s.locks[at] != nil {
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(s.locks[at])
			return
		}
		s.locks[at] = body
	case "UNLOCK":
		delete(s.locks, at)
	}
}

func (s *httpState) get(t *testing.T, at string) (lineage string, serial int64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	file := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(file, s.docs[at], 0o600); err != nil {
		t.Fatal(err)
	}
	return held(t, file)
}

func withBackend(address string) map[string]string {
	settings := ""
	if address != "" {
		settings = `address = "` + address + `"`
	}
	return map[string]string{"main.tf": thing, "backend.tf": lines(`terraform {`, `  backend "http" {`, settings, `  }`, `}`)}
}

// R15: the backend that the code declares is the place of a workspace that names none; what it lacks the workspace
// adds.
func TestRun_UsesTheBackendThatTheCodeDeclares(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		server, url := newHTTPState(t)
		dir := ranBefore(t, name, withBackend(url+"/app"))
		lineage, serial := server.get(t, "/app")

		j := fetched(t, job(t, name, workflow.Update, withBackend("")), dir)
		j.Spec.State = api.State{Kind: api.StateSource, Default: api.StateDirectory, Key: "ws_1", BackendConfig: map[string]any{"address": url + "/app"}}
		h := newHost()
		out, err := engine.Run(t.Context(), h, j)
		if err != nil || out.Changes.Add != 0 {
			t.Fatalf("%v, changes %+v; want none\n%s", err, out.Changes, h.text())
		}
		if out.State == nil || out.State.Backend != "http" || out.State.Lineage != lineage || out.State.Serial != serial {
			t.Errorf("found %+v, want the backend http with lineage %s, serial %d", out.State, lineage, serial)
		}
		if !strings.Contains(h.text(), "the state is kept in the backend that the code declares") {
			t.Errorf("the log does not say where the state is:\n%s", h.text())
		}
		for _, args := range h.args {
			if strings.Contains(strings.Join(args, " "), url) {
				t.Errorf("backend_config stands on the command line: %v", args)
			}
		}

		// With another address it is another place: by what is known, and by what was set up in the source itself.
		moved := again(t, j, workflow.Update, withBackend(""))
		moved.Spec.State.BackendConfig, moved.Spec.Known = map[string]any{"address": url + "/other"}, out.State
		h = newHost()
		_, err = engine.Run(t.Context(), h, moved)
		refusedElsewhere(t, h, err, "other settings of the backend http")
		moved = fetched(t, again(t, moved, workflow.Update, withBackend("")), dir)
		h = newHost()
		_, err = engine.Run(t.Context(), h, moved)
		refusedElsewhere(t, h, err, "in address")

		// Somebody put an older one back.
		older := again(t, j, workflow.Update, withBackend(""))
		known := *out.State
		known.Serial += 3
		older.Spec.Known = &known
		h = newHost()
		_, err = engine.Run(t.Context(), h, older)
		refusedElsewhere(t, h, err, "an older state")
	})
}

// R16: a workspace that keeps its state elsewhere than its code declares takes that over, or begins anew.
func TestRun_TakesOverTheStateOfTheDeclaredBackend(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		server, url := newHTTPState(t)
		files := withBackend(url + "/app")
		ranBefore(t, name, files)
		lineage, _ := server.get(t, "/app")
		j := job(t, name, workflow.Update, files)
		h := newHost()
		_, err := engine.Run(t.Context(), h, j)
		refusedElsewhere(t, h, err, "the code declares the backend http")

		preview := again(t, j, workflow.Preview, files)
		preview.Spec.TakeOver = true
		h = newHost()
		out, err := engine.Run(t.Context(), h, preview)
		if err != nil || out.Changes.Add != 0 {
			t.Fatalf("preview: %v, changes %+v\n%s", err, out.Changes, h.text())
		}

		j = again(t, j, workflow.Update, files)
		j.Spec.TakeOver = true
		h = newHost()
		if out, err = engine.Run(t.Context(), h, j); err != nil || out.Changes.Add != 0 || out.State.Lineage != lineage || out.State.Declared != "http" {
			t.Fatalf("%v, changes %+v, state %+v\n%s", err, out.Changes, out.State, h.text())
		}
		// That is known then.
		known := out.State
		j = again(t, j, workflow.Preview, files)
		j.Spec.Known = known
		h = newHost()
		if out, err = engine.Run(t.Context(), h, j); err != nil || out.Changes.Add != 0 {
			t.Fatalf("%v, changes %+v\n%s", err, out.Changes, h.text())
		}
	})
}

// R16: the state beside code goes into a backend that the code declares since, by the engine itself.
func TestRun_TakesOverIntoARemotePlace(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		server, url := newHTTPState(t)
		dir := ranBefore(t, name, map[string]string{"main.tf": thing})
		j := fetched(t, job(t, name, workflow.Update, withBackend(url+"/app")), dir)
		j.Spec.State = api.State{Kind: api.StateSource, Key: "ws_1"}
		h := newHost()
		_, err := engine.Run(t.Context(), h, j)
		refusedElsewhere(t, h, err, "beside the code")
		if server.docs["/app"] != nil {
			t.Error("a refused run has written into the backend")
		}
		for _, op := range []workflow.Operation{workflow.Preview, workflow.Update} {
			j = fetched(t, again(t, j, op, withBackend(url+"/app")), dir)
			j.Spec.TakeOver = true
			h = newHost()
			out, err := engine.Run(t.Context(), h, j)
			if err != nil || out.Changes.Add != 0 {
				t.Fatalf("%s: %v, changes %+v\n%s", op, err, out.Changes, h.text())
			}
			if wrote := server.docs["/app"] != nil; wrote != (op == workflow.Update) {
				t.Errorf("%s: the backend has a state: %v", op, wrote)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(j.TempDir, "*.tfstate")); len(left) > 0 {
			t.Errorf("copies of the state are left: %v", left)
		}
	})
}

// An apply whose state was written elsewhere must not pass for done.
func TestRun_ApplyThatDoesNotReachItsPlaceFails(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
		`plan) exit 2 ;;`,
		`show) echo '{"format_version":"1.2","resource_changes":[{"address":"a.b","change":{"actions":["create"]}}]}' ;;`,
		`apply) echo 'Apply complete!' ;;`))
	j := job(t, api.EngineTerraform, workflow.Update, nil)
	j.EnginePath = []string{dir}
	_, err := engine.Run(t.Context(), newHost(), j)
	if f := failure(t, err); f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, "state/default/app in the runner's data directory") || !strings.Contains(f.Detail, "is as before") {
		t.Errorf("got %s %q, want a failure that names the place", f.Reason, f.Detail)
	}
}

// The engine writes no state that says what the one before says. So an apply that only makes again what somebody has
// removed leaves it as it was.
func TestRun_ApplyThatMendsDriftMayLeaveTheStateAsItWas(t *testing.T) {
	const create = `{"address":"a.b","change":{"actions":["create"]}}`
	for name, tc := range map[string]struct {
		plan string
		fine bool
	}{
		"drift alone":            {`"resource_drift":[{"address":"a.b","change":{"actions":["delete"]}}],"resource_changes":[` + create + `]`, true},
		"something new":          {`"resource_changes":[` + create + `]`, false},
		"drift and what is new":  {`"resource_drift":[{"address":"a.c","change":{"actions":["delete"]}}],"resource_changes":[` + create + `]`, false},
		"drift and a new output": {`"resource_drift":[{"address":"a.b","change":{"actions":["delete"]}}],"resource_changes":[` + create + `],"output_changes":{"o":{"actions":["create"]}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", lines(
				`plan) exit 2 ;;`,
				`show) echo '{"format_version":"1.2",`+tc.plan+`}' ;;`,
				`output) echo '{}' ;;`,
				`apply) echo 'Apply complete!' ;;`))
			j := job(t, api.EngineTerraform, workflow.Update, nil)
			j.EnginePath = []string{dir}
			put(t, j.StateDir, map[string]string{"terraform.tfstate": `{"version":4,"serial":3,"lineage":"l","outputs":{},"resources":[{}]}`})
			_, err := engine.Run(t.Context(), newHost(), j)
			if tc.fine {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if f := failure(t, err); f.Reason != workflow.ReasonStepFailed || !strings.Contains(f.Detail, "is as before") {
				t.Errorf("got %s %q, want a failure that says that the state is as before", f.Reason, f.Detail)
			}
		})
	}
}

func TestRun_LooksAtAndUnlocksStates(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		server, url := newHTTPState(t)
		files := withBackend(url + "/app")
		files["backend.tf"] = strings.Replace(files["backend.tf"], "  }", "lock_address = \""+url+"/app\"\nunlock_address = \""+url+"/app\"\n}", 1)
		ranBefore(t, name, files)
		server.locks["/app"] = []byte(`{"ID":"0a1b","Who":"somebody"}`)
		j := job(t, name, workflow.StateList, files)
		j.Spec.State = api.State{Kind: api.StateSource, Key: "ws_1"}
		h := newHost()
		if _, err := engine.Run(t.Context(), h, j); err != nil || !strings.Contains(h.text(), "terraform_data.thing") {
			t.Fatalf("list: %v\n%s", err, h.text())
		}
		j = again(t, j, workflow.StateUnlock, files)
		j.Spec.LockID = "0a1b"
		h = newHost()
		if _, err := engine.Run(t.Context(), h, j); err != nil || len(server.locks) > 0 {
			t.Fatalf("unlock: %v, locks %q\n%s", err, server.locks, h.text())
		}
		if slices.Contains(h.ran(), "plan") {
			t.Errorf("an unlock has planned: %v", h.ran())
		}
	})
}

// Where a backend has no credentials, the refusal says which and how to pass them.
func TestRun_SaysWhichCredentialsAreMissing(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.11.4", `init) echo 'Error: No valid credential sources found' >&2; exit 1 ;;`)
	j := job(t, api.EngineTerraform, workflow.Preview, map[string]string{"main.tf": lines(`terraform {`, `  backend "s3" {}`, `}`)})
	j.Spec.State = api.State{Kind: api.StateSource, Key: "ws_1"}
	j.EnginePath = []string{dir}
	j.Getenv = func(string) string { return "" }
	_, err := engine.Run(t.Context(), newHost(), j)
	if f := failure(t, err); !strings.Contains(f.Detail, "AWS_ACCESS_KEY_ID") || !strings.Contains(f.Detail, "secrets of the workspace") {
		t.Errorf("got %q, want the variables and the way", f.Detail)
	}
	j.Getenv = func(name string) string { return map[string]string{"AWS_PROFILE": "p"}[name] }
	_, err = engine.Run(t.Context(), newHost(), again(t, j, workflow.Preview, nil))
	if f := failure(t, err); strings.Contains(f.Detail, "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %q of a run that has some", f.Detail)
	}
}
