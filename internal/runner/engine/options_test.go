package engine_test

import (
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

const things = `
variable "word" {
  type    = string
  default = "code"
}
variable "list" {
  type    = list(string)
  default = []
}
resource "terraform_data" "a" {}
resource "terraform_data" "b" {
  for_each = toset(["one two"])
}
output "word" {
  value = join(",", concat([var.word], var.list))
}
`

// done runs a job, which must succeed, and returns what came of it.
func done(t *testing.T, j engine.Job) (*host, engine.Outcome) {
	t.Helper()
	h := newHost()
	out, err := engine.Run(t.Context(), h, j)
	if err != nil {
		t.Fatalf("%v\n%s", err, h.text())
	}
	return h, out
}

// actions are the addresses that a run changed, each with its action.
func actions(out engine.Outcome) (all []string) {
	for _, r := range out.Changes.Resources {
		all = append(all, r.Action+" "+r.Address)
	}
	return all
}

func TestRun_TargetsAndReplaceDecideWhatIsPlanned(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": things}
		first := job(t, name, workflow.Update, files)
		first.Spec.Options = &api.Options{Targets: []string{`terraform_data.b["one two"]`}}
		_, out := done(t, first)
		if diff := cmp.Diff([]string{`create terraform_data.b["one two"]`}, actions(out)); diff != "" {
			t.Errorf("with a target (-want +got):\n%s", diff)
		}
		done(t, again(t, first, workflow.Update, files))

		replace := again(t, first, workflow.Preview, files)
		replace.Spec.Options = &api.Options{Replace: []string{"terraform_data.a"}}
		_, out = done(t, replace)
		if diff := cmp.Diff([]string{"replace terraform_data.a"}, actions(out)); diff != "" {
			t.Errorf("with a replacement (-want +got):\n%s", diff)
		}

		destroy := again(t, first, workflow.Destroy, files)
		destroy.Spec.Options = &api.Options{Targets: []string{"terraform_data.a"}}
		_, out = done(t, destroy)
		if diff := cmp.Diff([]string{"delete terraform_data.a"}, actions(out)); diff != "" {
			t.Errorf("destroy with a target (-want +got):\n%s", diff)
		}
	})
}

// The plan that was made with options is what is applied: the run that applies it plans nothing anew.
func TestRun_ApprovedPlanIsThatOfItsOptions(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": things}
		first := job(t, name, workflow.Preview, files)
		first.Spec.Options = &api.Options{Targets: []string{"terraform_data.a"}, Imports: []api.Import{{To: "terraform_data.a", ID: "was-there"}}}
		first.Spec.Flags = map[string][]string{"init": {"-upgrade"}, "apply": {"-parallelism=3"}}
		next, h, _ := previewed(t, first, workflow.Update, files)
		next.Spec.Options, next.Spec.Flags = first.Spec.Options, first.Spec.Flags
		out, err := engine.Run(t.Context(), h, next)
		if err != nil {
			t.Fatalf("%v\n%s", err, h.text())
		}
		if out.Changes.Import != 1 || len(out.Changes.Resources) != 1 {
			t.Errorf("got %+v, want the import alone", out.Changes)
		}
		init := h.args[slices.Index(h.ran(), "init")]
		if slices.Contains(init, "-upgrade") || !slices.Contains(init, "-lockfile=readonly") {
			t.Errorf("init ran as %q: the lock file of the plan counts", init)
		}
	})
}

func TestRun_OrderOfVariables(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{
			"main.tf": things, "terraform.tfvars": `word = "beside"`,
			"ws.tfvars": `word = "file of the workspace"`, "vars/run.tfvars.json": `{"word": "file of the run"}`,
		}
		spec := job(t, name, workflow.Update, nil).Spec
		for _, layer := range []struct {
			add  func()
			want string
		}{ // each beside those before it
			{func() {}, "beside"},
			{func() { spec.Variables = map[string]any{"word": "workspace"} }, "workspace"},
			{func() { spec.VarFiles = []string{"ws.tfvars"} }, "file of the workspace"},
			{func() { spec.Options = &api.Options{VarFiles: []string{"vars/run.tfvars.json"}} }, "file of the run"},
			{func() { spec.Options.Variables = map[string]any{"word": "of-run", "list": []any{"x", "y"}} }, "of-run,x,y"},
		} {
			layer.add()
			j := job(t, name, workflow.Update, files)
			j.Spec = spec
			h, out := done(t, j)
			if got := out.Outputs[0].Value; got != layer.want {
				t.Errorf("got %v, want %s", got, layer.want)
			}
			for _, args := range h.args {
				if strings.Contains(strings.Join(args, " "), "of-run") {
					t.Errorf("a value is on the command line: %q", args)
				}
			}
		}
	})
}

func TestRun_RefreshOnlyChangesNoResource(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		first := job(t, name, workflow.Update, map[string]string{"main.tf": things})
		done(t, first)
		more := map[string]string{"main.tf": things + `resource "terraform_data" "c" {}`}
		for _, op := range []workflow.Operation{workflow.Preview, workflow.Update} {
			j := again(t, first, op, more)
			j.Spec.Options = &api.Options{RefreshOnly: true}
			j.Spec.Flags = map[string][]string{"plan": {"-refresh=false"}} // which the engine would refuse
			h, out := done(t, j)
			if diff := cmp.Diff(&api.Changes{}, out.Changes); diff != "" || h.steps[1].Text != "no drift" {
				t.Errorf("%s: %q, changes (-want +got):\n%s", op, h.steps[1].Text, diff)
			}
		}
		_, out := done(t, again(t, first, workflow.Preview, more))
		if out.Changes.Add != 1 {
			t.Errorf("got %+v: the resource was made by a run that only refreshes", out.Changes)
		}
	})
}

func TestRun_ImportsTakeResources(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{"main.tf": things}
		j := job(t, name, workflow.Update, files)
		j.Spec.Options = &api.Options{Imports: []api.Import{
			{To: `terraform_data.b["one two"]`, ID: "id-${var.word}%{x}"}, {To: "terraform_data.a", ID: "plain"},
		}}
		_, out := done(t, j)
		if out.Changes.Import != 2 || out.Changes.Add != 0 {
			t.Errorf("got %+v, want two imports and nothing made", out.Changes)
		}
		state, err := os.ReadFile(filepath.Join(j.StateDir, "terraform.tfstate"))
		if err != nil || !strings.Contains(string(state), `"id-${var.word}%{x}"`) {
			t.Errorf("the id is not in the state as it was given: %v\n%s", err, state)
		}
		left, err := filepath.Glob(filepath.Join(j.Root, "dayfly_import_*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left beside the code: %v, %v", left, err)
		}
		_, out = done(t, again(t, j, workflow.Preview, files))
		if diff := cmp.Diff(&api.Changes{}, out.Changes); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
	})
}

func TestRun_ImportsNeedAnEngineThatKnowsThem(t *testing.T) {
	dir := t.TempDir()
	fakeEngine(t, filepath.Join(dir, "terraform"), "1.4.7", `plan) echo planned ;;`)
	j := job(t, api.EngineTerraform, workflow.Update, nil)
	j.EnginePath = []string{dir}
	j.Spec.Options = &api.Options{Imports: []api.Import{{To: "terraform_data.a", ID: "x"}}}
	h := newHost()
	_, err := engine.Run(t.Context(), h, j)
	if f := failure(t, err); !strings.Contains(f.Detail, "1.5.0") || !strings.Contains(f.Detail, "1.4.7") || slices.Contains(h.ran(), "plan") {
		t.Errorf("got %q, ran %v", f.Detail, h.ran())
	}
}

func TestRun_FlagsReachTheirSteps(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Update, map[string]string{"main.tf": things})
		j.Spec.Flags = map[string][]string{
			"init": {"-upgrade", "-lock-timeout=3s"}, "plan": {"-parallelism=7", "-refresh=false"}, "apply": {"-parallelism=5", "-compact-warnings"},
		}
		if name == api.EngineTofu {
			j.Spec.Flags["plan"] = append(j.Spec.Flags["plan"], "-exclude=terraform_data.b", "-concise")
		}
		h, out := done(t, j)
		for step, flags := range j.Spec.Flags {
			args := h.args[slices.Index(h.ran(), step)]
			for _, flag := range flags {
				if !slices.Contains(args, flag) {
					t.Errorf("%s ran as %q, without %s", step, args, flag)
				}
			}
		}
		if got := slices.Contains(actions(out), "create terraform_data.a"); !got || name == api.EngineTofu && len(actions(out)) != 1 {
			t.Errorf("it did %v", actions(out))
		}
	})
}

// What the control plane refuses is refused here too, before anything runs.
func TestRun_RefusesFlagsAndOptionsThatItMustNotHave(t *testing.T) {
	for title, tc := range map[string]struct {
		engine string
		change func(s *api.Spec)
		says   string
	}{
		"no lock":              {api.EngineTofu, func(s *api.Spec) { s.Flags = map[string][]string{"plan": {"-lock=false"}} }, "flags.plan[0]"},
		"targets of a command": {api.EngineCommand, func(s *api.Spec) { s.Options = &api.Options{Targets: []string{"a.b"}} }, "options.targets"},
		"file outside":         {api.EngineTofu, func(s *api.Spec) { s.VarFiles = []string{"../x.tfvars"} }, "var_files[0]"},
	} {
		j := job(t, tc.engine, workflow.Update, nil)
		tc.change(&j.Spec)
		h := newHost()
		_, err := engine.Run(t.Context(), h, j)
		if f := failure(t, err); !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(f.Detail, tc.says) || len(h.args) > 0 {
			t.Errorf("%s: got %v, ran %q", title, err, h.args)
		}
	}
}

// A link of the source leads nowhere else.
func TestRun_FileOfVariablesLiesInTheSource(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		outside := filepath.Join(t.TempDir(), "x.tfvars")
		if err := os.WriteFile(outside, []byte(`word = "outside"`), 0o600); err != nil {
			t.Fatal(err)
		}
		for file, says := range map[string]string{"link.tfvars": "path escapes", "missing.tfvars": "no such file", "dir.tfvars": "not a plain file"} {
			j := job(t, name, workflow.Preview, map[string]string{"main.tf": things, "dir.tfvars/x": ""})
			if err := os.Symlink(outside, filepath.Join(j.Root, "link.tfvars")); err != nil {
				t.Fatal(err)
			}
			j.Spec.VarFiles = []string{file}
			h := newHost()
			_, err := engine.Run(t.Context(), h, j)
			if f := failure(t, err); !strings.Contains(f.Detail, says) || slices.Contains(h.ran(), "plan") {
				t.Errorf("%s: got %q, ran %v", file, f.Detail, h.ran())
			}
		}
	})
}

// The engine reads a path as the system does, and so does the check: after the links on the way.
func TestRun_FilesOfVariablesAboveTheRootModule(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		outside := filepath.Join(t.TempDir(), "x.tfvars")
		if err := os.WriteFile(outside, []byte(`word = "outside"`), 0o600); err != nil {
			t.Fatal(err)
		}
		for file, says := range map[string]string{
			"../../config/prod.tfvars": "", "../../config/link.tfvars": "path escapes", "../../config/none.tfvars": "no such file",
			"../../../prod.tfvars": "var_files[0]", "../x/../../config/prod.tfvars": "var_files[0]",
		} {
			j := job(t, name, workflow.Preview, map[string]string{"real/live/net/main.tf": things, "real/config/prod.tfvars": `word = "above"`})
			if err := errors.Join(os.Symlink("real/live", filepath.Join(j.Root, "live")), os.Symlink(outside, filepath.Join(j.Root, "real/config/link.tfvars"))); err != nil {
				t.Fatal(err)
			}
			j.Top, j.Root = j.Root, filepath.Join(j.Root, "live/net")
			j.Spec.Source, j.Spec.VarFiles = api.Source{Directory: "/x", Path: "live/net"}, []string{file}
			_, err := engine.Run(t.Context(), newHost(), j)
			if says == "" {
				if err != nil {
					t.Errorf("%s: %v", file, err)
				}
			} else if f := failure(t, err); !strings.Contains(f.Detail, says) {
				t.Errorf("%s: got %q", file, f.Detail)
			}
		}
	})
}
