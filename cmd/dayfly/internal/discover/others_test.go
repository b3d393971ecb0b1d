package discover_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/discover"
	"github.com/dayfly-dev/dayfly/internal/api"
)

const includesRoot = "include \"root\" {\n  path = find_in_parent_folders(\"root.hcl\")\n}\n"

// calls is the file of a unit that includes root.hcl and calls a module.
func calls(source string) string {
	return includesRoot + "terraform {\n  source = \"" + source + "\"\n}\n"
}

// shown are the workspaces, each as its directory, the path in its source, and its notes; and the directories that
// were left out.
func shown(t *testing.T, top string, found discover.Found) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, w := range found.Workspaces {
		rel, err := filepath.Rel(top, w.Source.Directory)
		if err != nil {
			t.Fatal(err)
		}
		text := w.Engine + " " + rel
		if w.Source.Path != "" {
			text += " // " + w.Source.Path
		}
		if w.State != nil {
			text += ", stack " + w.State.Workspace
		}
		if len(w.After) > 0 {
			text += ", after " + strings.Join(w.After, " ")
		}
		got[w.Name] = text
	}
	for _, l := range found.Left {
		got["-"+l.Dir] = l.Why
	}
	return got
}

func TestTree_TerragruntUnitsAreTreesOrAlone(t *testing.T) {
	dir := tree(t, map[string]string{
		"live/root.hcl":                      "remote_state {\n  backend = \"s3\"\n}\nlocals {\n  account = read_terragrunt_config(find_in_parent_folders(\"account.hcl\"))\n}\n",
		"live/prod/account.hcl":              "",
		"live/prod/eu/net/terragrunt.hcl":    calls("../../../../modules//net"),
		"live/prod/eu/app/terragrunt.hcl":    calls("../../../../modules//app") + "dependency \"net\" {\n  config_path = \"../net\"\n}\n",
		"live/stage/account.hcl":             "",
		"live/stage/app/terragrunt.hcl":      includesRoot + "dependency \"net\" {\n  config_path = \"../../prod/eu/net\"\n}\n",
		"live/stage/app/main.tf":             "terraform {\n  backend \"s3\" {}\n}\nmodule \"x\" {\n  source = \"../../../modules/net\"\n}\n",
		"modules/net/main.tf":                "terraform {\n  backend \"s3\" {}\n}\n",
		"modules/app/main.tf":                s3,
		"old/terragrunt.hcl":                 "",
		"old/a/terragrunt.hcl":               "include {\n  path = find_in_parent_folders()\n}\n",
		"old/b/terragrunt.hcl":               "include {\n  path = find_in_parent_folders()\n}\n",
		"alone/terragrunt.hcl":               "terraform {\n  source = \"git::https://example.com/m.git\"\n}\n",
		"nothing/terragrunt.hcl":             "",
		"stacks/live/terragrunt.stack.hcl":   "unit \"made\" {\n  source = \"../../catalog/made\"\n  path = \"made\"\n}\n",
		"catalog/made/terragrunt.hcl":        "terraform {\n  source = \"${get_repo_root()}/modules//app\"\n}\n",
		"terraform/main.tf":                  s3,
		"live/prod/eu/net/.terragrunt-cache": "",
	})
	want := map[string]string{
		"live-prod":     "terragrunt . // live/prod",
		"live-stage":    "terragrunt . // live/stage, after live-prod",
		"old":           "terragrunt old",
		"alone":         "terragrunt alone",
		"stacks-live":   "terragrunt . // stacks/live",
		"terraform":     "terraform terraform",
		"-modules/net":  "it is only called as a module, by the unit live/prod/eu/net",
		"-modules/app":  "it is only called as a module, by the unit catalog/made",
		"-catalog/made": "it is only called by the stack stacks/live",
		"-nothing":      "its terragrunt.hcl names no source, and it has no code",
	}
	found := find(t, dir, discover.Options{})
	if diff := cmp.Diff(want, shown(t, dir, found)); diff != "" {
		t.Errorf("trees (-want +got):\n%s", diff)
	}
	if i := slices.IndexFunc(found.Workspaces, func(w discover.Workspace) bool { return w.Name == "live-prod" }); found.Workspaces[i].Backend != "s3" {
		t.Errorf("got the backend %q, want that of root.hcl", found.Workspaces[i].Backend)
	}

	for _, tree := range []string{"live-prod", "live-stage", "old"} {
		delete(want, tree)
	}
	want["live-prod-eu-net"] = "terragrunt . // live/prod/eu/net"
	want["live-prod-eu-app"] = "terragrunt . // live/prod/eu/app, after live-prod-eu-net"
	want["live-stage-app"] = "terragrunt . // live/stage/app, after live-prod-eu-net"
	want["old-a"], want["old-b"] = "terragrunt old // a", "terragrunt old // b"
	if diff := cmp.Diff(want, shown(t, dir, find(t, dir, discover.Options{Terragrunt: discover.TerragruntUnits}))); diff != "" {
		t.Errorf("units (-want +got):\n%s", diff)
	}

	paths := map[string][]string{}
	for _, w := range find(t, dir, discover.Options{GitURL: "https://example.com/i.git"}).Workspaces {
		if w.PullRequests != nil {
			paths[w.Name] = w.PullRequests.Paths
		}
	}
	if diff := cmp.Diff(map[string][]string{
		"live-prod":   {"live/root.hcl", "modules/app/**", "modules/net/**"},
		"live-stage":  {"live/root.hcl", "modules/net/**"},
		"stacks-live": {"catalog/made/**", "modules/app/**"},
	}, paths); diff != "" {
		t.Errorf("paths of pull requests (-want +got):\n%s", diff)
	}

	found = find(t, filepath.Join(dir, "live/stage"), discover.Options{})
	if notes := strings.Join(found.Workspaces[0].Notes, "\n"); !strings.Contains(notes, "not in this tree: root.hcl") {
		t.Errorf("without the files above: notes %q", notes)
	}
}

func TestTree_LocalStateOfUnitsIsSaid(t *testing.T) {
	dir := tree(t, map[string]string{"a/main.tf": "", "a/terragrunt.hcl": "remote_state {\n  backend = \"local\"\n  config = { path = \"/srv/a.tfstate\" }\n}\n"})
	found := find(t, dir, discover.Options{})
	if len(found.Workspaces) != 1 || found.Workspaces[0].Backend != "local" || !strings.Contains(strings.Join(found.Workspaces[0].Notes, "\n"), "declare a remote_state with a remote backend") {
		t.Errorf("got %+v", found.Workspaces)
	}
}

func TestTree_EachStackOfPulumiIsAWorkspace(t *testing.T) {
	dir := tree(t, map[string]string{
		"net/Pulumi.yaml":      "name: net\nruntime: yaml\nbackend: {url: \"s3://me:secret@states?region=x\"}\n",
		"net/Pulumi.prod.yaml": "encryptionsalt: v1:abc\nconfig: {}\n", "net/Pulumi.dev.yaml": "",
		"net/node_modules/x/Pulumi.yaml": "name: x\nruntime: yaml\n",
		"apart/Pulumi.yml":               "name: apart\nruntime: go\nstackConfigDir: stacks\n", "apart/stacks/Pulumi.eu.yml": "",
		"state/Pulumi.yaml": "name: state\nruntime: go\nbackend: {url: \"file://.\"}\n", "state/.pulumi/stacks/state/old.json": "{}",
		"new/Pulumi.yaml": "name: new\nruntime: go\n", "bad/Pulumi.yaml": "name: [",
		"web/Pulumi.yaml": "name: web\nruntime: nodejs\n", "web/Pulumi.dev.yaml": "", "web/package.json": `{"dependencies": {"lib": "file:../lib"}}`, "lib/package.json": "{}",
	})
	want := map[string]string{
		"net-prod": "pulumi net, stack prod", "net-dev": "pulumi net, stack dev", "apart-eu": "pulumi apart, stack eu",
		"state-old": "pulumi state, stack old", "new": "pulumi new, stack dev", "web-dev": "pulumi . // web, stack dev",
		"-net/node_modules": "it has the code of others", "-bad": "Pulumi.yaml is not YAML",
	}
	found := find(t, dir, discover.Options{})
	if diff := cmp.Diff(want, shown(t, dir, found)); diff != "" {
		t.Errorf("got (-want +got):\n%s", diff)
	}
	delete(want, "new")
	want["new-a"], want["new-b"] = "pulumi new, stack a", "pulumi new, stack b"
	if diff := cmp.Diff(want, shown(t, dir, find(t, dir, discover.Options{Workspaces: []string{"a", "b"}}))); diff != "" {
		t.Errorf("with chosen stacks (-want +got):\n%s", diff)
	}
	for name, part := range map[string]string{"net-prod": "PULUMI_CONFIG_PASSPHRASE", "new": "write the right one into state.workspace", "state-old": "--take-over", "apart-eu": "PULUMI_ACCESS_TOKEN", "web-dev": "it uses ../lib"} {
		i := slices.IndexFunc(found.Workspaces, func(w discover.Workspace) bool { return w.Name == name })
		if notes := strings.Join(found.Workspaces[i].Notes, "\n"); !strings.Contains(notes, part) {
			t.Errorf("%s: notes %q, want %q among them", name, notes, part)
		}
		if name == "net-prod" && found.Workspaces[i].Backend != "s3://states" {
			t.Errorf("the backend is shown as %q", found.Workspaces[i].Backend)
		}
	}
}

const diggerFile = `
pr_locks: true
generate_projects: {include: "x"}
projects:
- name: net
  dir: net
  workspace: prod
  opentofu: true
  include_patterns: ["../modules/**", "shared/**", "a[b]"]
  exclude_patterns: ["**/*.md"]
  apply_requirements: [approved, mergeable]
  drift_detection: false
- {name: live, dir: live, terragrunt: true, depends_on: [net, gone]}
- {name: app, dir: app, pulumi: true, pulumi_stack: dev, workflow: own}
workflows:
  own: {plan: {steps: [{run: "echo s3cr3t-value"}]}}
`

func TestTree_ImportsDiggerProjectsOrReportsThem(t *testing.T) {
	dir := tree(t, map[string]string{
		"digger.yml": diggerFile, "net/main.tf": s3, "net/env/prod.tfvars": "", "live/root.hcl": "",
		"live/prod/terragrunt.hcl": includesRoot, "live/prod/main.tf": "", "app/Pulumi.yaml": "name: app\nruntime: go\n", "app/Pulumi.dev.yaml": "", "app/Pulumi.eu.yaml": "",
	})
	found := find(t, dir, discover.Options{GitURL: "https://example.com/i.git"})
	git := func(path string) api.Source {
		return api.Source{Git: &api.GitSource{URL: "https://example.com/i.git", Path: path}}
	}
	want := map[string]api.Workspace{
		"net": {
			Name: "net", RunSettings: api.RunSettings{Engine: "tofu", Source: git("net")}, State: &api.State{Workspace: "prod"},
			Approval: &api.Approval{Required: true, NotBySubmitter: true}, PullRequests: &api.PullRequests{Paths: []string{"modules/**", "shared/**", "!**/*.md"}},
		},
		"live": {Name: "live", RunSettings: api.RunSettings{Engine: "terragrunt", Source: git("live")}, After: []string{"net"}},
		"app":  {Name: "app", RunSettings: api.RunSettings{Engine: "pulumi", Source: git("app")}, State: &api.State{Workspace: "dev"}},
	}
	got, notes := map[string]api.Workspace{}, strings.Join(found.Notes, "\n")
	for _, w := range found.Workspaces {
		got[w.Name] = w.Workspace
		notes += "\n" + strings.Join(w.Notes, "\n")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workspaces (-want +got):\n%s", diff)
	}
	for _, part := range []string{
		`digger.yml: "pr_locks" is not carried over`, `"generate_projects" is not carried over`, `"drift_detection" is not carried over`,
		`"mergeable" of "apply_requirements" is not carried over`, `pattern "a[b]" is not carried over`, `"depends_on" names "gone"`, `steps of workflow "own"`,
	} {
		if !strings.Contains(notes, part) {
			t.Errorf("notes: got\n%s\nwant %q among them", notes, part)
		}
	}
	if strings.Contains(notes, "s3cr3t") {
		t.Errorf("a note repeats a secret:\n%s", notes)
	}
	if _, err := discover.Tree(tree(t, map[string]string{"digger.yml": "projects: 5"}), discover.Options{}); err == nil || !strings.Contains(err.Error(), "digger.yml: cannot be read") {
		t.Errorf("a broken file: got %v", err)
	}
}

const orderedFile = `
version: 3
projects:
- {name: net, dir: net, apply_requirements: [approved, undiverged], execution_order_group: 1, autoplan: {enabled: false, x: 1}}
- {name: dns, dir: dns, execution_order_group: 5, autoplan: {when_modified: ["*.tf", "../modules/**/*.tf", "!*.md", "../../out"]}}
- {name: app, dir: app, depends_on: [dns, app]}
`

func TestTree_AtlantisApprovalsPullRequestsAndOrder(t *testing.T) {
	dir := tree(t, map[string]string{".git/HEAD": "", "infra/atlantis.yaml": orderedFile, "infra/net/main.tf": s3, "infra/dns/main.tf": s3 + "module \"m\" {\n  source = \"../m\"\n}\n", "infra/m/main.tf": "", "infra/app/main.tf": s3})
	found := find(t, filepath.Join(dir, "infra"), discover.Options{GitURL: "https://example.com/i.git"})
	type part struct {
		Approval     *api.Approval
		PullRequests *api.PullRequests
		After        []string
	}
	got, notes := map[string]part{}, ""
	for _, w := range found.Workspaces {
		got[w.Name] = part{w.Approval, w.PullRequests, w.After}
		notes += strings.Join(w.Notes, "\n") + "\n"
	}
	want := map[string]part{
		"net": {&api.Approval{Required: true, NotBySubmitter: true}, &api.PullRequests{IsDisabled: true}, nil},
		"dns": {nil, &api.PullRequests{Paths: []string{"infra/m/**", "infra/dns/*.tf", "infra/modules/**/*.tf", "!infra/dns/*.md", "out"}}, []string{"net"}},
		"app": {After: []string{"dns"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("got (-want +got):\n%s", diff)
	}
	for _, part := range []string{`"undiverged" of "apply_requirements"`, `"x" is not carried over, of "autoplan"`, "it does not run after app"} {
		if !strings.Contains(notes, part) {
			t.Errorf("notes: got\n%s\nwant %q among them", notes, part)
		}
	}
}

func TestTree_FilesOfOtherProgramsAreNamed(t *testing.T) {
	dir := tree(t, map[string]string{
		"env0.yml": "", "a/stack.tm.hcl": "", "terramate.tm.hcl": "", ".spacelift/config.yml": "", "atmos.yaml": "", "sub/digger.yml": "", "sub/atlantis.yaml": "", "main.tf": s3,
	})
	got := strings.Join(find(t, dir, discover.Options{}).Notes, "\n")
	for _, part := range []string{"env0 are not read (env0.yml)", "Terramate are not read (a/stack.tm.hcl, terramate.tm.hcl)", "Spacelift are not read (.spacelift/config.yml)", "atmos are not read", "not sub/digger.yml", "not sub/atlantis.yaml"} {
		if !strings.Contains(got, part) {
			t.Errorf("notes: got\n%s\nwant %q among them", got, part)
		}
	}
}

// FuzzOthers reads files that tools of others have.
func FuzzOthers(f *testing.F) {
	files := []string{"digger.yml", "a/Pulumi.yaml", "a/Pulumi.x.yaml", "b/terragrunt.hcl", "b/terragrunt.stack.hcl"}
	for i, text := range []string{diggerFile, "name: a\nbackend: {url: \"s3://x\"}", "encryptionsalt: x", calls("../a//b"), "stack \"x\" {\n  source = \"../b\"\n}\n"} {
		f.Add(i, []byte(text))
	}
	dir := f.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o700), os.Mkdir(filepath.Join(dir, "b"), 0o700), os.WriteFile(filepath.Join(dir, "a/Pulumi.yaml"), []byte("name: a"), 0o600)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		if which < 0 || which >= len(files) {
			return
		}
		if err := os.WriteFile(filepath.Join(dir, files[which]), data, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := discover.Tree(dir, discover.Options{})
		if err != nil {
			return
		}
		for _, w := range found.Workspaces {
			if _, err := w.Document(dir); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
}
