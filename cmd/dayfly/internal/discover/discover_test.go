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
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/workspacefile"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// tree writes files; a name that ends in a slash is a directory, and content that begins with -> a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(at, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if target, linked := strings.CutPrefix(content, "->"); linked {
			err = errors.Join(err, os.Symlink(target, at))
		} else {
			err = errors.Join(err, os.WriteFile(at, []byte(content), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func find(t *testing.T, dir string, o discover.Options) discover.Found {
	t.Helper()
	found, err := discover.Tree(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range found.Workspaces { // each can be applied
		doc, err := w.Document(dir)
		if err != nil {
			t.Fatal(err)
		}
		list, err := workspacefile.Parse("x.yaml", dir, doc)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if diff := cmp.Diff([]api.Workspace{w.Workspace}, list); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	}
	return found
}

func names(found discover.Found) (names []string) {
	for _, w := range found.Workspaces {
		names = append(names, w.Name)
	}
	return names
}

const s3 = "terraform {\n  backend \"s3\" {\n    bucket = \"states\"\n    key = \"k\"\n  }\n}\n"

const resource = "resource \"terraform_data\" \"x\" {}\n"

func TestTree_SaysWhyADirectoryIsARootModuleOrNot(t *testing.T) {
	dir := tree(t, map[string]string{
		"backend/main.tf":              s3,
		"cloud/main.tf":                "terraform {\n  cloud {\n    organization = \"o\"\n  }\n}\n",
		"provider/main.tf":             "provider \"aws\" {}\nmodule \"a\" {\n  source = \"../modules/legacy\"\n}\n",
		"json/main.tf.json":            `{"provider": {"aws": {}}, "module": {"m": {"source": "../modules/json"}}}`,
		"vars/main.tf":                 "variable \"x\" {}\n" + resource,
		"vars/terraform.tfvars":        "x = 1\n",
		"ran/main.tf":                  "",
		"ran/terraform.tfstate":        "{}",
		"env/main.tf":                  "variable \"x\" {}\n" + resource,
		"env/envs/prod.tfvars":         "x = 1\n",
		"modules/legacy/main.tf":       "provider \"aws\" {}\n",
		"modules/json/main.tf":         "provider \"aws\" {}\n",
		"modules/both/main.tf":         s3,
		"modules/plain/main.tf":        "variable \"x\" {}\n",
		"calls/main.tf":                s3 + "module \"b\" {\n  source = \"./../modules/both\"\n}\n",
		"vendor/x/main.tf":             s3,
		"backend/.terraform/m/main.tf": s3,
		"terragrunt/terragrunt.hcl":    "",
		"data/.dayfly-data":            "",
		"data/main.tf":                 s3,
		".git/main.tf":                 s3,
		"text/readme.md":               "provider",
	})
	found := find(t, dir, discover.Options{})
	got := map[string]string{}
	for _, w := range found.Workspaces {
		got["+"+w.Dir] = w.Why
	}
	for _, l := range found.Left {
		got["-"+l.Dir] = l.Why
	}
	want := map[string]string{
		"+backend": "it has a backend s3", "+cloud": "it has a cloud block", "+provider": "it has a provider block",
		"+json": "it has a provider block", "+vars": "it has files of variables", "+env": "it has files of variables",
		"+ran":          "an engine has run here: it has terraform.tfstate",
		"+modules/both": "it has a backend s3", "+calls": "it has a backend s3",
		"-modules/legacy": "it is only called as a module, by provider",
		"-modules/json":   "it is only called as a module, by json",
		"-modules/plain":  "it has declarations only: no resources and no modules",
		"-vendor":         "it has the code of others",
		"-terragrunt":     "its terragrunt.hcl names no source, and it has no code",
		"-data":           "it is a data directory of Dayfly",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}

func TestTree_EngineWorkspacesAndEnginesAreSeen(t *testing.T) {
	dir := tree(t, map[string]string{
		"many/main.tf": s3, "many/terraform.tfstate.d/dev/": "", "many/terraform.tfstate.d/prod/": "", "many/terraform.tfstate": "{}",
		"one/main.tf": s3, "one/.terraform/environment": "stage\n",
		"tofu/main.tofu": "terraform {\n  backend \"gcs\" {}\n}\n",
		"lock/main.tf":   s3, "lock/.terraform.lock.hcl": `provider "registry.opentofu.org/hashicorp/aws" {}`,
		"locked/main.tf": s3, "locked/.terraform.lock.hcl": `provider "registry.terraform.io/hashicorp/aws" {}`,
	})
	found := find(t, dir, discover.Options{Engine: "tofu"})
	got := map[string][2]string{}
	for _, w := range found.Workspaces {
		state := ""
		if w.State != nil {
			state = w.State.Workspace
		}
		got[w.Name] = [2]string{w.Engine, state}
	}
	want := map[string][2]string{
		"many": {"tofu", "default"}, "many-dev": {"tofu", "dev"}, "many-prod": {"tofu", "prod"}, "one-stage": {"tofu", "stage"},
		"tofu": {"tofu", ""}, "lock": {"tofu", ""}, "locked": {"terraform", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workspaces (-want +got):\n%s", diff)
	}
	for _, w := range found.Workspaces {
		if w.Name == "tofu" && !cmp.Equal(w.Notes, []string{"the backend lacks bucket: write it into state.backend_config"}) {
			t.Errorf("notes: got %q", w.Notes)
		}
	}
}

func TestTree_NamesAreUniqueAndDoNotDependOnTheOrder(t *testing.T) {
	long := strings.Repeat("long-", 20)
	dir := tree(t, map[string]string{
		"a/b-c/main.tf": s3, "a-b/c/main.tf": s3, "Net/x/main.tf": s3, "net-x/main.tf": s3, "d e/ö/main.tf": s3,
		long + "1/main.tf": s3, long + "2/main.tf": s3, "simple/main.tf": s3,
	})
	got := names(find(t, dir, discover.Options{}))
	if again := names(find(t, dir, discover.Options{})); !cmp.Equal(got, again) {
		t.Errorf("got %q and then %q", got, again)
	}
	seen := map[string]bool{}
	for _, name := range got {
		if err := workflow.CheckWorkspaceName(name); err != nil || seen[strings.ToLower(name)] {
			t.Errorf("%s: %v, seen before: %v", name, err, seen[strings.ToLower(name)])
		}
		seen[strings.ToLower(name)] = true
	}
	if len(got) != 8 || !seen["simple"] {
		t.Errorf("got %q", got)
	}
}

func TestTree_StaysInItsTree(t *testing.T) {
	outside := tree(t, map[string]string{"main.tf": s3})
	dir := tree(t, map[string]string{"in/main.tf": s3, "shared.tf.txt": s3})
	for link, target := range map[string]string{"out": outside, "again": filepath.Join(dir, "in"), "linked.tf": filepath.Join(outside, "main.tf")} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	found := find(t, dir, discover.Options{})
	if got := names(found); !cmp.Equal(got, []string{"in"}) {
		t.Errorf("got %q, and left %v", got, found.Left)
	}
}

// In the engine's workspace default such code is refused, or plans everything anew.
func TestTree_AsksForWorkspacesToChoose(t *testing.T) {
	backend := func(body string) string { return "terraform {\n" + body + "}\n" }
	dir := tree(t, map[string]string{
		"tags/main.tf":   backend("cloud {\n workspaces {\n tags = [\"net\"]\n }\n }\n"),
		"prefix/main.tf": backend("backend \"remote\" {\n workspaces {\n prefix = \"net-\"\n }\n }\n"),
		"reads/main.tf":  s3 + "locals {\n n = \"a-${terraform.workspace}\"\n}\n",
		"calls/main.tf":  s3 + "module \"m\" {\n  source = \"../mod\"\n}\n", "mod/main.tf": "module \"n\" {\n  source = \"./sub\"\n}\n",
		"mod/sub/main.tf": "locals {\n n = terraform.workspace\n}\n",
		"seen/main.tf":    s3 + "locals {\n n = terraform.workspace\n}\n", "seen/.terraform/environment": "dev",
		"named/main.tf":  backend("cloud {\n workspaces {\n name = \"net\"\n }\n }\n"),
		"remote/main.tf": backend("backend \"remote\" {\n workspaces {\n name = \"net\"\n }\n }\n"),
		"local/main.tf":  backend("backend \"local\" {}\n") + "locals {\n n = terraform.workspace\n}\n",
		"plain/main.tf":  s3,
	})
	list := func(o discover.Options) map[string]string {
		got := map[string]string{}
		for _, w := range find(t, dir, o).Workspaces {
			name := w.Name
			if w.State != nil {
				name += " in " + w.State.Workspace
			}
			i := slices.IndexFunc(w.Notes, func(note string) bool { return strings.Contains(note, "choose one with state.workspace") })
			if got[name] = ""; i >= 0 {
				got[name], _, _ = strings.Cut(w.Notes[i], ":")
			}
		}
		return got
	}
	const reads = "its code reads terraform.workspace, which is default without one"
	want := map[string]string{
		"tags": "its cloud block names no workspace", "prefix": "its backend remote names no workspace", "reads": reads, "calls": reads,
		"seen-dev in dev": "", "named in net": "", "remote": "", "local": "", "plain": "",
	}
	if diff := cmp.Diff(want, list(discover.Options{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = map[string]string{"seen-dev in dev": "", "named in net": "", "remote": "", "local": "", "plain": ""}
	for _, name := range []string{"tags", "prefix", "reads", "calls"} {
		want[name+"-a in a"], want[name+"-b in b"] = "", ""
	}
	if diff := cmp.Diff(want, list(discover.Options{Workspaces: []string{"a", "b"}})); diff != "" {
		t.Errorf("with names (-want +got):\n%s", diff)
	}
}

// A change of what a root module uses concerns it, wherever in the repository that lies.
func TestTree_GitSourcesNameWhatTheCodeUses(t *testing.T) {
	call := func(source string) string { return "module \"m\" {\n  source = \"" + source + "\"\n}\n" }
	dir := tree(t, map[string]string{
		"infra/.git/HEAD": "", "infra/.gitmodules": "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n",
		"infra/own/main.tf": s3 + call("./m"), "infra/own/m/main.tf": "",
		"infra/above/main.tf": s3 + call("../modules/a"), "infra/modules/a/main.tf": call("../b"), "infra/modules/b/main.tf": "",
		"infra/linked/main.tf": s3, "infra/linked/names.tf": "->../common/names.tf", "infra/common/names.tf": "",
		"infra/sub/main.tf": s3 + call("../lib/vpc"), "infra/lib/": "",
		"infra/climbs/main.tf": s3 + call("../../infra/modules/b"),
		"infra/odd/main.tf":    s3 + call("../common/{a}/b"), "infra/common/{a}/b/main.tf": "",
	})
	type uses struct {
		Paths      []string
		Submodules bool
		Notes      string
	}
	got := map[string]uses{}
	for _, w := range find(t, filepath.Join(dir, "infra"), discover.Options{GitURL: "https://example.com/i.git"}).Workspaces {
		u := uses{Submodules: w.Source.Git.Submodules, Notes: strings.Join(w.Notes, "; ")}
		if w.PullRequests != nil {
			u.Paths = w.PullRequests.Paths
		}
		got[w.Name] = u
	}
	want := map[string]uses{
		"own": {}, "above": {Paths: []string{"modules/a/**", "modules/b/**"}}, "linked": {Paths: []string{"common/names.tf"}},
		"sub": {Submodules: true}, "climbs": {Paths: []string{"modules/b/**"}, Notes: `the path "../../infra/modules/b" climbs above the repository, where a run finds nothing: shorten it`}, "odd": {Paths: []string{"common/**"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTree_GitSourcesHaveThePathInTheRepository(t *testing.T) {
	dir := tree(t, map[string]string{".git/HEAD": "", "live/net/main.tf": s3 + "module \"m\" {\n  source = \"../../m\"\n}\n", "m/main.tf": ""})
	found := find(t, filepath.Join(dir, "live"), discover.Options{GitURL: "https://example.com/i.git", GitRef: "main", Project: "global"})
	want := []api.Workspace{{Name: "net", Project: "global", RunSettings: api.RunSettings{Engine: "terraform", Source: api.Source{Git: &api.GitSource{URL: "https://example.com/i.git", Ref: "main", Path: "live/net"}}}, PullRequests: &api.PullRequests{Paths: []string{"m/**"}}}}
	if len(found.Workspaces) != 1 || !cmp.Equal(want[0], found.Workspaces[0].Workspace) || len(found.Workspaces[0].Notes) != 0 {
		t.Errorf("got %+v", found.Workspaces)
	}
	found = find(t, dir, discover.Options{})
	if n := found.Workspaces[0].Notes; len(n) != 1 || !strings.Contains(n[0], "uses ../../m") {
		t.Errorf("a directory source: notes %q", n)
	}
	if got, want := found.Workspaces[0].Source, (api.Source{Directory: dir, Path: "live/net"}); !cmp.Equal(got, want) {
		t.Errorf("a directory source: got %+v, want %+v", got, want)
	}
}

const atlantisFile = `
version: 3
automerge: true
projects:
- &base
  name: net-prod
  dir: net
  workspace: prod
  terraform_version: v1.9.5
  workflow: custom
  apply_requirements: [approved]
  autoplan: {when_modified: ["*.tf"]}
- dir: ./dns
  terraform_distribution: opentofu
  workspace: stage
- name: gone
  dir: gone
- dir: lone
workflows:
  custom:
    plan:
      steps:
      - env: {name: MY_TOKEN, value: s3cr3t-value}
      - run: curl -u me/s3cr3t-value example.com
`

func TestTree_ImportsAtlantisProjectsOrReportsThem(t *testing.T) {
	dir := tree(t, map[string]string{
		"atlantis.yaml": atlantisFile, "net/main.tf": "terraform {\n  backend \"s3\" {}\n}\n", "net/env/prod.tfvars": "", "net/env/dev.tfvars": "",
		"net/terraform.tfstate.d/old/": "", "dns/main.tf": "", "dns/env/stage.tfvars": "", "lone/main.tf": "", "lone/env/prod.tfvars": "",
	})
	found := find(t, dir, discover.Options{})
	got := map[string]api.Workspace{}
	notes := strings.Join(found.Notes, "\n")
	for _, w := range found.Workspaces {
		got[w.Name] = w.Workspace
		notes += "\n" + strings.Join(w.Notes, "\n")
	}
	want := map[string]api.Workspace{
		"net-prod": {
			Name: "net-prod", RunSettings: api.RunSettings{Engine: "terraform", EngineVersion: "1.9.5", Source: api.Source{Directory: filepath.Join(dir, "net")}},
			State: &api.State{Workspace: "prod"}, Approval: &api.Approval{Required: true, NotBySubmitter: true},
		},
		"dns-stage": {
			Name: "dns-stage", RunSettings: api.RunSettings{
				Engine: "tofu", Source: api.Source{Directory: filepath.Join(dir, "dns")},
				VarFiles: []string{"env/stage.tfvars"},
			},
			State: &api.State{Workspace: "stage"},
		},
		"lone": {Name: "lone", RunSettings: api.RunSettings{Engine: "terraform", Source: api.Source{Directory: filepath.Join(dir, "lone")}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workspaces (-want +got):\n%s", diff)
	}
	for _, part := range []string{
		`"automerge" is not carried over`, `"autoplan" is not carried over: pull requests need --git-url`, `project "gone" has no code`,
		`steps of workflow "custom" are not carried over`, "none, with var_files: env/dev.tfvars, env/prod.tfvars",
		"with var_files: env/prod.tfvars", "the backend lacks bucket, key", "workspace old has a state here",
	} {
		if !strings.Contains(notes, part) {
			t.Errorf("notes: got\n%s\nwant %q among them", notes, part)
		}
	}
	if strings.Contains(notes, "s3cr3t") {
		t.Errorf("a note repeats a secret:\n%s", notes)
	}
}

func TestTree_AMistakeInAtlantisIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"projects: 5":                     "atlantis.yaml: cannot be read",
		"projects:\n- dir: ../out":        `projects[0]: dir "../out" is not a directory of the tree`,
		"projects:\n- name: x":            "is not a directory of the tree",
		"projects:\n- {dir: a, name: []}": "cannot unmarshal !!seq into string",
		"a: [":                            "atlantis.yaml: cannot be read",
	} {
		if _, err := discover.Tree(tree(t, map[string]string{"atlantis.yaml": text, "a/main.tf": s3}), discover.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
	}
}

func FuzzAtlantis(f *testing.F) {
	f.Add([]byte(atlantisFile))
	f.Add([]byte("projects:\n- &a {dir: net, workflow: w, x: *a}\nworkflows: []"))
	f.Add([]byte("a: &x [*x]"))
	dir := f.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "net"), 0o700), os.WriteFile(filepath.Join(dir, "net/main.tf"), []byte(s3), 0o600)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "atlantis.yaml"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := discover.Tree(dir, discover.Options{})
		if err != nil {
			return
		}
		for _, w := range found.Workspaces {
			doc, err := w.Document(dir)
			if err != nil {
				t.Fatal(err)
			}
			if list, err := workspacefile.Parse("x.yaml", dir, doc); err != nil || len(list) != 1 || list[0].Name != w.Name {
				t.Errorf("got %v, %v of\n%s", list, err, doc)
			}
		}
	})
}
