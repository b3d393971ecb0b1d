package docs_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/test/arch"
	"github.com/dayfly-dev/dayfly/test/docs"
)

// publicModule is the repository that examples/git-module names.
const publicModule = "https://github.com/cloudposse/terraform-null-label.git"

// moduleRepository serves a repository with a module of the same inputs and output as the public one, and returns the
// settings of git that lead there.
func moduleRepository(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	code := "variable \"namespace\" {}\nvariable \"name\" {}\noutput \"id\" {\n  value = \"${var.namespace}-${var.name}\"\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"init -q", "add .", "-c user.name=test -c user.email=test@example.com commit -qm module", "tag 0.25.0", "update-server-info"} {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, strings.Fields(args)...)...) //nolint:gosec // these
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(dir, ".git"))))
	t.Cleanup(server.Close)
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + server.URL + "/.insteadOf", "GIT_CONFIG_VALUE_0=" + publicModule}
}

// stateServer is a server of backend http that has one resource of examples/backend in its state.
func stateServer(t *testing.T) string {
	t.Helper()
	state := `{"version": 4, "terraform_version": "1.4.0", "serial": 1, "lineage": "13cf6645-c45a-779a-e9e8-09ecb59cc740", "outputs": {},
"resources": [{"mode": "managed", "type": "terraform_data", "name": "network", "provider": "provider[\"terraform.io/builtin/terraform\"]",
"instances": [{"schema_version": 0, "attributes": {"id": "1", "input": {"value": "10.20.0.0/16", "type": "string"},
"output": {"value": "10.20.0.0/16", "type": "string"}, "triggers_replace": null}}]}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/network" {
			t.Errorf("a preview sent %s %s", r.Method, r.URL.Path)
		}
		_, _ = w.Write([]byte(state))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Each shape of code in examples/ reaches its first plan with one command, and the plan is true.
func TestExamples_ReachTheirFirstPlan(t *testing.T) {
	if installed("terraform") == "" || installed("git") == "" {
		t.Skip("terraform or git is not on PATH")
	}
	term := newTerminal(t, true)
	examples := filepath.Join(term.home, "examples")
	if err := os.CopyFS(examples, os.DirFS(filepath.Join(root, "examples"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(examples, "backend", "workspace.yaml")
	text := read(t, "examples/backend/workspace.yaml")
	moved := strings.Replace(text, "http://127.0.0.1:8330", stateServer(t), 1)
	if moved == text {
		t.Fatal("the workspace file of the backend names another address")
	}
	if err := os.WriteFile(file, []byte(moved), 0o644); err != nil { //nolint:gosec // engines are other users
		t.Fatal(err)
	}
	forwarded := moduleRepository(t)
	term.environ = append(append(term.environ, "DAYFLY_LISTEN="+term.address), forwarded...)
	var names []string
	for _, v := range forwarded {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	term.dir = examples
	shapes := []struct {
		run  string
		says []string
	}{
		{"./basic", []string{"3 to add"}},
		{"./local-module", []string{"2 to add", `module.subnet["a"].terraform_data.subnet`}},
		{"./shared-module/envs/prod", []string{
			"./shared-module/envs/prod uses ../../modules/network: " + filepath.Join(examples, "shared-module") + " is copied, and it runs in envs/prod",
			"2 to add", `module.network.terraform_data.subnet["b"]`,
		}},
		{"./git-module", []string{"1 to add", "acme-network"}},
		{"./tfvars", []string{"3 to add", "server 2 in eu-central-1"}},
		{"./backend", []string{"1 to add", "terraform_data.gateway"}},
		{"./existing-state", []string{"there is terraform.tfstate beside the code", "nothing was planned", "--take-over"}},
		{"./existing-state --take-over", []string{"it plans on a copy", "1 to add", "terraform_data.replica"}},
	}
	blocks := []docs.Block{{Line: 1, Text: "dayfly up --env-forward-allowlist " + strings.Join(names, ",") + "\n"}}
	for i, shape := range shapes {
		command := "dayfly run " + shape.run + " --op preview --follow"
		if shape.run == "./existing-state" {
			command = "! " + command
		}
		blocks = append(blocks, docs.Block{Line: i + 2, Text: command + " 2>&1\n"})
	}
	said := term.run(t, blocks)
	for i, shape := range shapes {
		for _, word := range shape.says {
			if !strings.Contains(said[i+2], word) {
				t.Errorf("dayfly run %s --op preview did not say %q:\n%s", shape.run, word, said[i+2])
			}
		}
	}
	firstPlans(t, func(directory, plan string) {
		for i, shape := range shapes {
			if strings.HasSuffix(plan, " to add") && strings.HasPrefix(shape.run+"/", "./"+directory+"/") && !strings.Contains(shape.run, "existing-state") && !strings.Contains(said[i+2], plan) {
				t.Errorf("examples/README.md says %q of %s, and the plan was:\n%s", plan, directory, said[i+2])
			}
		}
	})
}

// firstPlans calls look with each directory of the table of examples, which has them all, and its first plan.
func firstPlans(t *testing.T, look func(directory, plan string)) {
	t.Helper()
	var listed []string
	for _, row := range arch.Table(read(t, "examples/README.md"), "Examples") {
		name, _, _ := strings.Cut(strings.TrimPrefix(row[0], "["), "]")
		listed = append(listed, name)
		look(name, row[2])
	}
	entries, err := os.ReadDir(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, e := range entries {
		if e.IsDir() {
			there = append(there, e.Name())
		}
	}
	same(t, "the examples of examples/README.md", there, listed)
}
