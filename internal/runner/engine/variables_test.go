package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/runtext"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// laidBeside are the files of variables that lie beside the code.
func laidBeside(t *testing.T, j engine.Job) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(j.Root, "*.auto.tfvars*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// R4: no plan keeps an ephemeral variable, so the apply of one asks for it again. Every source of variables has it.
func TestRun_AnEphemeralVariableReachesTheApply(t *testing.T) {
	files := map[string]string{
		"main.tf": `
variable "token" {
  type      = string
  ephemeral = true
}
variable "plain" { type = number }
variable "other" { default = "x" }
resource "terraform_data" "x" { input = "${var.plain}${var.other}" }
`,
		"more.tfvars": `token = "of a file"`,
	}
	eachEngine(t, func(t *testing.T, name string) {
		for title, change := range map[string]func(j *engine.Job){
			"of the workspace": func(j *engine.Job) { j.Spec.Variables["token"] = "short" },
			"of its file":      func(j *engine.Job) { j.Spec.VarFiles = []string{"more.tfvars"} },
			"of the run":       func(j *engine.Job) { j.Spec.Options = &api.Options{Variables: api.Values{"token": "short"}} },
			"of a run's file":  func(j *engine.Job) { j.Spec.Options = &api.Options{VarFiles: []string{"more.tfvars"}} },
		} {
			j := job(t, name, workflow.Update, files)
			j.Spec.Variables = api.Values{"plain": 9007199254740993}
			change(&j)
			h := newHost()
			out, err := engine.Run(t.Context(), h, j)
			if name == api.EngineTofu && err != nil && strings.Contains(err.Error(), "ephemeral") {
				t.Skip("this tofu has no ephemeral variables")
			}
			if err != nil || out.Changes.Add != 1 {
				t.Errorf("%s: %v, %+v\n%s", title, err, out.Changes, h.text())
			}
		}
	})
}

// With tofu, a backend and the source of a module may have variables, which init and all other commands need then.
func TestRun_VariablesReachInit(t *testing.T) {
	files := map[string]string{
		"mods/a/main.tf": `output "id" { value = "a" }`, "prod.tfvars.json": `{"which": "a"}`,
		"main.tf": "variable \"which\" { type = string }\nmodule \"m\" { source = \"./mods/${var.which}\" }\n" +
			"resource \"terraform_data\" \"x\" { input = module.m.id }\noutput \"id\" { value = terraform_data.x.output }\n",
	}
	eachEngine(t, func(t *testing.T, name string) {
		if name != api.EngineTofu {
			t.Skip("terraform does not evaluate early")
		}
		first := job(t, name, workflow.Update, files)
		for _, op := range []workflow.Operation{workflow.Update, workflow.StateList, workflow.StatePull, workflow.Preview, workflow.Destroy} {
			j := again(t, first, op, files)
			j.Spec.VarFiles = []string{"prod.tfvars.json"}
			h := newHost()
			if out, err := engine.Run(t.Context(), h, j); err != nil || op == workflow.Update && out.Outputs[0].Value != "a" {
				t.Errorf("%s: %v, %+v\n%s", op, err, out, h.text())
			}
		}
	})
}

// Nothing lies beside code that needs no variables but for its plan: it may read its own directory.
func TestRun_NoFileOfVariablesLiesBesideOtherCode(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Update, map[string]string{"main.tf": app})
		j.Spec.Variables = api.Values{"word": "second"}
		h := newHost()
		var laid []string
		h.onExec = func(engine.Command) { laid = append(laid, laidBeside(t, j)...) }
		if _, err := engine.Run(t.Context(), h, j); err != nil || len(laid) > 0 {
			t.Errorf("%v; beside the code lay %v", err, laid)
		}
	})
}

// A plan that forgets or imports and does nothing else has changes, and says which.
func TestRun_CountsWhatIsForgottenAndImported(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		first := job(t, name, workflow.Update, map[string]string{"main.tf": `resource "terraform_data" "a" { input = "v" }`})
		if _, err := engine.Run(t.Context(), newHost(), first); err != nil {
			t.Fatal(err)
		}
		block := "removed {\n  from = terraform_data.a\n  lifecycle {\n    destroy = false\n  }\n}\n"
		if name == api.EngineTofu {
			block = "removed {\n  from = terraform_data.a\n}\n" // tofu forgets unless it is told to destroy
		}
		h := newHost()
		out, err := engine.Run(t.Context(), h, again(t, first, workflow.Preview, map[string]string{"main.tf": block}))
		if err != nil || !out.Changes.Any() || out.Changes.Forget != 1 || runtext.Changes(*out.Changes, true) != "1 forgotten" {
			t.Errorf("%v, %+v\n%s", err, out.Changes, h.text())
		}
		j := job(t, name, workflow.Preview, map[string]string{"main.tf": "import {\n  to = terraform_data.a\n  id = \"x\"\n}\nresource \"terraform_data\" \"a\" {}\n"})
		h = newHost()
		out, err = engine.Run(t.Context(), h, j)
		if err != nil || out.Changes.Import != 1 || !strings.HasSuffix(runtext.Changes(*out.Changes, false), "1 to import") {
			t.Errorf("%v, %+v\n%s", err, out.Changes, h.text())
		}
	})
}

// The text that the engine prints before the errors of the code is none of them.
func TestRun_NamesTheErrorOfTheCode(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		h := newHost()
		_, err := engine.Run(t.Context(), h, job(t, name, workflow.Preview, map[string]string{"main.tf": "resource \"terraform_data\" \"a\" {\n  input = \n}\n"}))
		if f := failure(t, err); !strings.HasPrefix(f.Detail, "init failed with exit code 1: Error: Invalid expression (on main.tf line 2") {
			t.Errorf("got %s\n%s", f.Detail, h.text())
		}
	})
}

// The version that the code asks for is the fix, not credentials for a backend that was not asked.
func TestRun_NamesTheVersionOfTheEngineToSet(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Preview, map[string]string{"main.tf": `
terraform {
  required_version = "~> 0.13, < 0.15"
  backend "s3" {
    bucket = "b"
    key    = "k"
    region = "us-east-1"
  }
}
`})
		j.Spec.State, j.Getenv = api.State{Kind: api.StateSource}, func(string) string { return "" }
		_, err := engine.Run(t.Context(), newHost(), j)
		f := failure(t, err)
		if !strings.HasSuffix(f.Detail, "; set engine_version of the workspace to ~> 0.13, < 0.15") || strings.Contains(f.Detail, "credentials") {
			t.Errorf("got %s", f.Detail)
		}
	})
}

// A cloud block that names its workspace is asked for at its host: an empty TF_WORKSPACE would be another name to init.
func TestRun_ACloudBlockMayNameItsWorkspace(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Preview, map[string]string{"main.tf": `
terraform {
  cloud {
    hostname     = "localhost:9"
    organization = "acme"
    workspaces { name = "prod" }
  }
}
`})
		j.Getenv = func(string) string { return "" }
		j.Aside = t.TempDir()
		put(t, j.Aside, map[string]string{".terraform/environment": "dev"})
		for _, said := range []string{"", "prod"} {
			h := newHost()
			h.onExec = func(c engine.Command) {
				if c.Args[1] == "init" && slices.ContainsFunc(c.Env, func(v string) bool { return strings.HasPrefix(v, "TF_WORKSPACE") }) {
					t.Errorf("%q: init got %q", said, c.Env)
				}
			}
			j.Spec.State = api.State{Kind: api.StateSource, Workspace: said}
			_, err := engine.Run(t.Context(), h, j)
			if f := failure(t, err); !strings.Contains(f.Detail, "localhost:9") || strings.Contains(f.Detail, "TF_") {
				t.Errorf("got %s", f.Detail)
			}
			if want := "the state is kept in the backend that the code declares, in the engine's workspace prod\n"; !strings.Contains(h.text(), want) {
				t.Errorf("got %s", h.text())
			}
		}
	})
}

// Flags that the environment adds to all commands go to those that they are meant for.
func TestRun_FlagsOfTheEnvironmentBreakNoOtherCommand(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		h := newHost()
		h.env = []string{"TF_CLI_ARGS=-input=false"}
		flagged := map[string]bool{}
		h.onExec = func(c engine.Command) {
			last := ""
			for _, v := range slices.Concat(h.env, c.Env) {
				if value, ok := strings.CutPrefix(v, "TF_CLI_ARGS="); ok {
					last = value
				}
			}
			flagged[c.Args[1]] = last != ""
		}
		if _, err := engine.Run(t.Context(), h, job(t, name, workflow.Update, map[string]string{"main.tf": app})); err != nil {
			t.Fatalf("%v\n%s", err, h.text())
		}
		if want := map[string]bool{"version": false, "init": true, "plan": true, "show": false, "apply": true}; fmt.Sprint(flagged) != fmt.Sprint(want) {
			t.Errorf("with flags: %v, want %v", flagged, want)
		}
	})
}

// A text of a run is what the variable's declared type makes of it, as with the engine's own -var.
func TestRun_TextsGoByTheDeclaredType(t *testing.T) {
	files := map[string]string{
		"main.tf": `
variable "text" { type = string }
variable "untyped" {}
variable "count_of" { type = number }
variable "zones" {
  description = "where"
  type        = list(string)
}
variable "sizes" { type = object({ a = number, b = optional(string) }) }
variable "large" { type = list(number) }
variable "any_list" { type = any }
variable "any_text" { type = any }
output "all" {
  value = jsonencode([var.text, var.untyped, var.count_of, var.zones, var.sizes.a, var.large, var.any_list, var.any_text, var.pairs])
}
`,
		"more.tf.json": `{"variable": {"pairs": {"type": "map(string)"}}}`,
	}
	given := api.Values{
		"text": `["a"]`, "untyped": `{"a": 1}`, "count_of": "7", "zones": `["a", "b"]`, "sizes": `{ a = 1 }`, "large": `[9007199254740993]`,
		"any_list": ` ["x"]`, "any_text": "5", "pairs": `{k = "v"}`,
	}
	const want = `["[\"a\"]","{\"a\": 1}",7,["a","b"],1,[9007199254740993],["x"],"5",{"k":"v"}]`
	eachEngine(t, func(t *testing.T, name string) {
		j := job(t, name, workflow.Update, files)
		j.Spec.Options = &api.Options{Variables: given}
		h := newHost()
		if out, err := engine.Run(t.Context(), h, j); err != nil || out.Outputs[0].Value != want {
			t.Errorf("%v: got %v\n%s", err, out.Outputs, h.text())
		}
		j = job(t, name, workflow.Preview, files)
		j.Spec.Options = &api.Options{Variables: maps.Clone(given)}
		j.Spec.Options.Variables["zones"] = `["a", upper("b")]`
		_, err := engine.Run(t.Context(), newHost(), j)
		if f := failure(t, err); !strings.Contains(f.Detail, "zones") && !strings.Contains(f.Detail, "Invalid value for input variable") {
			t.Errorf("no constant: got %s", f.Detail)
		}
	})
}

// With these variables a hook finds the modules, the providers and the program of the run.
func TestRun_HooksCanUseWhatInitPrepared(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		files := map[string]string{
			"main.tf":   "module \"m\" { source = \"./m\" }\nresource \"terraform_data\" \"a\" { input = module.m.o }\n",
			"m/main.tf": "output \"o\" { value = 1 }\n",
		}
		j := job(t, name, workflow.Preview, files)
		j.Getenv = func(name string) string { return map[string]string{"PATH": os.Getenv("PATH")}[name] }
		next, h, _ := previewed(t, j, workflow.Update, files)
		next.Getenv = j.Getenv
		out, err := engine.Run(t.Context(), h, next)
		if err != nil || !slices.Contains(stepNames(h), "check") {
			t.Fatalf("%v, %+v\n%s", err, out, h.text())
		}
		var plan struct {
			Changes []struct{ Address string } `json:"resource_changes"`
		}
		if err := json.Unmarshal(h.hookPlan, &plan); err != nil || len(plan.Changes) != 1 || plan.Changes[0].Address != "terraform_data.a" {
			t.Errorf("%v: got the plan %s", err, h.hookPlan)
		}
		hook := exec.CommandContext(t.Context(), "/bin/sh", "-c", name+" validate")
		hook.Dir, hook.Env = next.Root, h.hookEnv
		if said, err := hook.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
	})
}
