package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
)

var moved = flag.Int("roots", 3, "how many root modules a monorepo has that moves over")

// repository is code that was run by hand until now.
type repository struct {
	*world
	t        *testing.T
	dir      string
	files    map[string]string   // by name; "->" begins the target of a link
	programs []string            // that it needs
	hand     func(r *repository) // runs them
	discover []string            // further flags
	report   []string            // further flags
	settings string              // that the owner adds to each workspace
	want     []string            // workspaces
}

// states keeps the states of the backend http, by path.
func states(t *testing.T) (url string) {
	var mu sync.Mutex
	docs := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost {
			docs[r.URL.Path] = body
		} else if docs[r.URL.Path] == nil {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(docs[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// run runs an engine as its owner did.
func (r *repository) run(dir string, env []string, args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), args[0], args[1:]...)
	cmd.Dir = filepath.Join(r.dir, dir)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.t.TempDir(), "TF_DATA_DIR=" + filepath.Join(r.t.TempDir(), "data"), "TF_IN_AUTOMATION=1"}, env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v in %s: %v\n%s", args, dir, err, out)
	}
}

// cli runs a command of the product for the first admin.
func (r *repository) cli(args ...string) (stdout string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), binary(r.t), args...)
	cmd.Env = []string{"HOME=" + r.t.TempDir(), "DAYFLY_URL=" + r.URL, "DAYFLY_API_TOKEN=" + r.Token}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		r.t.Errorf("%v: %v\n%s%s", args, err, &out, &said)
	}
	return out.String()
}

const thing = "variable \"size\" {\n  default = 0\n}\nresource \"terraform_data\" \"x\" {\n  input = var.size\n}\noutput \"size\" {\n  value = terraform_data.x.output\n}\n"

// rootModules call a module and share a file by a link; each has a state of its own.
func rootModules(states string, count int) repository {
	files := map[string]string{"modules/thing/main.tf": thing, "common/versions.tf": "terraform {\n  required_version = \">= 1.6\"\n}\n"}
	var want, dirs []string
	for i := range count {
		name := fmt.Sprintf("root-%02d", i)
		files["live/"+name+"/main.tf"] = fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}\nmodule \"thing\" {\n  source = \"../../modules/thing\"\n  size = %d\n}\n", states+"/"+name, i)
		files["live/"+name+"/versions.tf"] = "->../../common/versions.tf"
		want, dirs = append(want, "live-"+name), append(dirs, "live/"+name)
	}
	return repository{files: files, programs: []string{"tofu"}, discover: []string{"--engine", "tofu"}, want: want, hand: func(r *repository) {
		for _, dir := range dirs {
			data := []string{"TF_DATA_DIR=" + filepath.Join(r.t.TempDir(), "data")}
			r.run(dir, data, "tofu", "init", "-input=false")
			r.run(dir, data, "tofu", "apply", "-input=false", "-auto-approve")
		}
	}}
}

// environments are one root module, with files of variables and of settings for each.
func environments(states string) repository {
	files := map[string]string{"app/main.tf": "terraform {\n  backend \"http\" {} # see config\n}\n" + strings.Replace(thing, "default = 0", "", 1)}
	names := []string{"dev", "prod", "stage"}
	var want []string
	for i, name := range names {
		files["config/"+name+".tfvars"] = fmt.Sprintf("size = %d\n", i)
		files["app/backend/"+name+".hcl"] = fmt.Sprintf("address = %q\n", states+"/app/"+name)
		want = append(want, "app-"+name)
	}
	return repository{files: files, programs: []string{"tofu"}, discover: []string{"--engine", "tofu"}, want: want, hand: func(r *repository) {
		for _, name := range names {
			data := []string{"TF_DATA_DIR=" + filepath.Join(r.t.TempDir(), "data")}
			r.run("app", data, "tofu", "init", "-input=false", "-backend-config=backend/"+name+".hcl")
			r.run("app", data, "tofu", "apply", "-input=false", "-auto-approve", "-var-file=../config/"+name+".tfvars")
		}
	}}
}

// units of Terragrunt: the second reads an output of the first.
func units(states string) repository {
	const include = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\nterraform {\n  source = \"../../modules//thing\"\n}\n"
	return repository{
		files: map[string]string{
			"modules/thing/main.tf": "terraform {\n  backend \"http\" {}\n}\n" + thing,
			"root.hcl":              "remote_state {\n  backend = \"http\"\n  config = {\n    address = \"" + states + "/units/${path_relative_to_include()}\"\n  }\n}\n",
			"live/a/terragrunt.hcl": include + "inputs = {\n  size = 1\n}\n",
			"live/b/terragrunt.hcl": include + "dependency \"a\" {\n  config_path = \"../a\"\n}\ninputs = {\n  size = dependency.a.outputs.size\n}\n",
		},
		programs: []string{"terragrunt", "tofu"}, want: []string{"live"},
		hand: func(r *repository) {
			r.run("live", []string{"TF_DATA_DIR=", "TG_TF_PATH=tofu"}, "terragrunt", "run", "--all", "--non-interactive", "--", "apply", "-auto-approve", "-input=false")
		},
	}
}

// services are projects of Pulumi with stacks whose states are beside the code.
func services(passphrase string) repository {
	files := map[string]string{}
	var want []string
	for _, name := range []string{"api", "web"} {
		files[name+"/Pulumi.yaml"] = "name: " + name + "\nruntime: yaml\nconfig: {size: {type: integer, default: 1}}\noutputs: {size: \"${size}\"}\n"
		for i, stack := range []string{"dev", "prod"} {
			files[name+"/Pulumi."+stack+".yaml"] = fmt.Sprintf("config: {%s:size: %d}\n", name, i+2)
			want = append(want, name+"-"+stack)
		}
	}
	return repository{
		files: files, programs: []string{"pulumi", "pulumi-language-yaml"}, report: []string{"--take-over"}, want: want,
		settings: "secrets: [{env: PULUMI_CONFIG_PASSPHRASE, ref: 'file:passphrase', preview: true}]\n",
		hand: func(r *repository) {
			for _, name := range []string{"api", "web"} {
				env := []string{"PULUMI_CONFIG_PASSPHRASE=" + passphrase, "PULUMI_BACKEND_URL=file://" + filepath.Join(r.dir, name), "PULUMI_SKIP_UPDATE_CHECK=true", "PULUMI_HOME=" + r.t.TempDir()}
				for _, stack := range []string{"dev", "prod"} {
					r.run(name, env, "pulumi", "stack", "init", stack, "--non-interactive")
					r.run(name, env, "pulumi", "up", "--stack", stack, "--non-interactive", "--yes", "--skip-preview")
				}
			}
		},
	}
}

// What discover writes runs as it is, and plans nothing: on the states and with the values of the runs by hand.
func TestMove_WhatRanByHandHasNoChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the product")
	}
	w := start(t, func(c *embedded.UpConfig) { c.Agent.Path, c.Agent.Settings.Concurrency = os.Getenv("PATH"), 2 })
	url, passphrase := states(t), "planted-passphrase"
	if err := local.New(filepath.Join(w.Data, embedded.SecretsDir)).Set(t.Context(), "passphrase", redact.New(passphrase)); err != nil {
		t.Fatal(err)
	}
	for title, r := range map[string]repository{
		"root modules": rootModules(url, *moved), "environments": environments(url), "units of Terragrunt": units(url), "stacks of Pulumi": services(passphrase),
	} {
		t.Run(title, func(t *testing.T) {
			for _, program := range r.programs {
				if _, err := exec.LookPath(program); err != nil {
					t.Skipf("%s is not on this machine", program)
				}
			}
			r.world, r.t, r.dir = w, t, filepath.Join(w.Source, strings.ReplaceAll(title, " ", "-"))
			r.move()
		})
	}
}

func (r *repository) move() {
	for name, content := range r.files {
		at := filepath.Join(r.dir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if target, link := strings.CutPrefix(content, "->"); link {
			err = errors.Join(err, os.Symlink(target, at))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(content), 0o644))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.hand(r)

	files := filepath.Join(r.t.TempDir(), "files")
	r.cli(append([]string{"workspace", "discover", r.dir, "--out", files}, r.discover...)...)
	written, err := filepath.Glob(filepath.Join(files, "*.yaml"))
	for _, name := range written {
		f, openErr := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err = errors.Join(err, openErr); openErr == nil {
			_, writeErr := f.WriteString(r.settings)
			err = errors.Join(err, writeErr, f.Close())
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.cli("apply", "-f", files)

	var report struct {
		Workspaces []struct{ Workspace, Verdict, Detail, Workflow string }
	}
	if err := json.Unmarshal([]byte(r.cli(append([]string{"takeover", "report", "-f", files, "-o", "json"}, r.report...)...)), &report); err != nil {
		r.t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, name := range r.want {
		missing[name] = true
	}
	for _, got := range report.Workspaces {
		if got.Verdict != "no changes" || !missing[got.Workspace] {
			r.t.Errorf("got %+v; log:\n%s", got, r.Log(got.Workflow, 1))
		}
		delete(missing, got.Workspace)
	}
	if len(missing) > 0 {
		r.t.Errorf("no report on %q", slices.Sorted(maps.Keys(missing)))
	}
}
