package discover_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/discover"
)

const (
	partial = "terraform {\n  backend \"s3\" {}\n}\n"
	needs   = "variable \"size\" {}\n" + resource
)

// standings says of each directory whether it is taken (+), doubtful (?) or left out (-), and why.
func standings(found discover.Found) map[string]string {
	got := map[string]string{}
	for _, w := range found.Workspaces {
		got[w.Dir] = "+ " + w.Why
	}
	for _, l := range found.Doubtful {
		got[l.Dir] += "? " + l.Why
	}
	for _, l := range found.Left {
		got[l.Dir] += "- " + l.Why
	}
	return got
}

func TestTree_CodeWithoutABackend(t *testing.T) {
	call := func(source string) string { return "module \"m\" {\n  source = \"" + source + "\"\n}\n" }
	const provider = "provider \"aws\" {}\n"
	dir := tree(t, map[string]string{
		"live/dev/main.tf": call("../../lib/x"), "lib/x/main.tf": resource, "boot/main.tf": resource,
		"vpc/main.tf": needs, "asks/main.tf": provider + needs, "locked/main.tf": provider + needs, "locked/.terraform.lock.hcl": "",
		"shown/main.tf": provider + needs, "shown/terraform.tfvars.example": "size = 1",
		"examples/complete/main.tf": resource, "examples/ran/main.tf": s3, "modules/own/main.tf": provider + resource, "modules/plain/main.tf": needs,
		"names/variables.tf": "variable \"x\" {}\n", "lib/top/main.tf": resource, "lib/top/examples/a/main.tf": resource,
		"base/main.tf": resource, "user/main.tf": "->../base/main.tf", "odd/{{ name }}/main.tf": resource, "broken/main.tf": "{{", "lone/main.tf": provider, "__template__/main.tf": s3,
		"part/main.tf": "resource \"terraform_data\" \"a\" {\n  input = \"x-${var.region}\"\n}\n",
	})
	want := map[string]string{
		"live/dev": "+ nothing calls it, and it needs no more values", "boot": "+ nothing calls it, and it needs no more values",
		"user": "+ nothing calls it, and it needs no more values", "base": "- its files are linked from other code, in user",
		"lib/x":             "- it is only called as a module, by live/dev",
		"vpc":               "? it may be a module: nothing calls it, but nothing gives a value to size",
		"asks":              "? it may be a module: nothing calls it, but nothing gives a value to size",
		"locked":            "+ it has a provider block, and a lock file",
		"shown":             "+ it has a provider block, and an example of its variables",
		"lib/top":           "? it has examples, as a module for others",
		"lone":              "? it has a provider block, but no resources and no modules",
		"broken":            "? some of its files could not be read",
		"names":             "- it has declarations only: no resources and no modules",
		"examples/complete": "- it lies below examples, as code to copy or to try", "lib/top/examples/a": "- it lies below examples, as code to copy or to try",
		"odd/{{ name }}": "- it lies below {{ name }}, as code to copy or to try",
		"__template__":   "? it has a backend s3, but it lies below __template__",
		"examples/ran":   "? it has a backend s3, but it lies below examples",
		"part":           "? it is no complete root module: it reads var.region, and declares no such variable",
		"modules/own":    "? it has a provider block, but it lies below modules",
		"modules/plain":  "- it lies below modules, as a module for others",
	}
	if diff := cmp.Diff(want, standings(find(t, dir, discover.Options{}))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"vpc", "examples/complete"} {
		_, why, _ := strings.Cut(want[name], " ")
		want[name] = "+ --include takes it, though " + why
	}
	if diff := cmp.Diff(want, standings(find(t, dir, discover.Options{Include: []string{"vpc/", "examples/c*"}}))); diff != "" {
		t.Errorf("included (-want +got):\n%s", diff)
	}
	if _, err := discover.Tree(dir, discover.Options{Include: []string{"none"}}); err == nil || !strings.Contains(err.Error(), `--include: "none" is no directory with code`) {
		t.Errorf("got %v", err)
	}
}

// shape is what a workspace has of the files with values.
func shape(w discover.Workspace) string {
	text := strings.Join(w.VarFiles, " ")
	if w.State != nil {
		text += " in " + w.State.Workspace
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range w.State.BackendConfig {
				if !yield(name) {
					return
				}
			}
		}) {
			text += fmt.Sprintf(" %s=%v", name, w.State.BackendConfig[name])
		}
	}
	return strings.TrimSpace(text)
}

func TestTree_FilesWithValues(t *testing.T) {
	const bucket = "bucket = \"b\" # of all\n"
	for title, tc := range map[string]struct {
		files map[string]string
		want  map[string]string // shapes of workspaces
		other map[string]string // files, and why they are not read
	}{
		"environments of a root module": {
			map[string]string{"tf/main.tf": partial + needs, "tf/env/dev.tfvars": "size = 1", "tf/env/prod.tfvars": "size = 2", "tf/backend/dev.hcl": bucket + "key = \"dev\"", "tf/backend/prod.hcl": bucket + "key = \"prod\""},
			map[string]string{"tf-dev": "env/dev.tfvars in  bucket=b key=dev", "tf-prod": "env/prod.tfvars in  bucket=b key=prod"}, nil,
		},
		"beside the root modules": {
			map[string]string{"stacks/net/main.tf": s3 + needs, "stacks/dns/main.tf": partial + needs, "config/prod.tfvars": "size = 1", "config/net/extra.tfvars": "size = 2", "config/prod.tfvars.example": "size = 3", "other.conf": "key = \"k\"\n" + bucket},
			map[string]string{"stacks-net-prod": "../../config/prod.tfvars", "stacks-dns-prod": "../../config/prod.tfvars in  bucket=b key=k"}, nil,
		},
		"directories that are environments": {
			map[string]string{"live/dev/main.tf": s3 + needs, "live/prod/main.tf": s3 + needs, "config/dev.tfvars": "size = 1", "config/prod.tfvars": "size = 2"},
			map[string]string{"live-dev": "../../config/dev.tfvars", "live-prod": "../../config/prod.tfvars"}, nil,
		},
		"environments that are directories": {
			map[string]string{"app/main.tf": needs + "variable \"b\" {}", "environments/dev/terraform.tfvars": "size = 1", "environments/prod/vars.tfvars.json": `{"size": 2}`, "environments/variables.tf": "variable \"x\" {}", "common.tfvars": "b = 1"},
			map[string]string{"app-dev": "../common.tfvars ../environments/dev/terraform.tfvars", "app-prod": "../common.tfvars ../environments/prod/vars.tfvars.json"}, nil,
		},
		"one backend for all environments": {
			map[string]string{"app/main.tf": s3 + needs, "app/vars/acme.tfvars": "size = 1", "app/vars/other.tfvars": "size = 2"},
			map[string]string{"app-acme": "vars/acme.tfvars in acme", "app-other": "vars/other.tfvars in other"}, nil,
		},
		"links": {
			map[string]string{"app/main.tf": s3 + needs, "app/terraform.tfvars": "->../all.tfvars", "all.tfvars": "size = 1", "b/main.tf": s3 + needs, "b/dev.tfvars": "->../all.tfvars"},
			map[string]string{"app": "../all.tfvars", "b-dev": "../all.tfvars dev.tfvars"}, nil,
		},
		"settings under any name": {
			map[string]string{"app/main.tf": partial, "app/backend.tfvars": bucket, "app/state.x": "key = \"k\"", "app/notes.x": "title = \"k\"", "app/text": "bucket"},
			map[string]string{"app": "in  bucket=b key=k"}, nil,
		},
		"one without an environment's name": {
			map[string]string{"app/main.tf": partial, "app/prod.backend": bucket + "key = \"p\"", "app/tools.backend": bucket + "key = \"t\""},
			map[string]string{"app-prod": "in  bucket=b key=p", "app-tools": "in  bucket=b key=t"}, nil,
		},
		"settings of former versions": {
			map[string]string{"app/main.tf": "terraform {\n  backend \"gcs\" {}\n}\n", "app/x.backend": bucket + "project = \"p\""},
			map[string]string{"app": "in  bucket=b project=p"}, nil,
		},
		"secrets are not settings": {
			map[string]string{"app/main.tf": partial, "app/backend.conf": "access_key = \"s3cr3t\"\n" + bucket},
			map[string]string{"app": "in  bucket=b"}, nil,
		},
		"variables are not settings": {
			map[string]string{"app/main.tf": partial + "variable \"region\" {}", "config/region.tfvars": "region = 1"},
			map[string]string{"app": "../config/region.tfvars"}, nil,
		},
		"files of tests and examples": {
			map[string]string{"app/main.tf": s3 + needs, "app/terraform.tfvars": "size = 1", "app/examples/dev.tfvars": "size = 1", "tests/app/prod.tfvars": "size = 1", "examples/x/main.tf": s3 + needs, "examples/x/prod.tfvars": "size = 2"},
			map[string]string{"app": ""},
			map[string]string{"app/examples/dev.tfvars": "it lies below examples", "tests/app/prod.tfvars": "it lies below tests", "examples/x/prod.tfvars": "it lies below examples"},
		},
		"files of nobody": {
			map[string]string{"app/main.tf": s3 + resource, "app/x.tfvars": "y = 1", "modules/m/main.tf": resource, "modules/m/test.tfvars": "a = 1", "a.tfbackend": bucket, "app/git.tfvars": "\x00GITCRYPT\x00", "app/sops.tfvars.json": `{"a": "ENC[AES256_GCM,data:x]"}`, "app/prod.tfvars.enc": "x"},
			map[string]string{"app": ""},
			map[string]string{
				"app/x.tfvars": "no root module declares", "modules/m/test.tfvars": "it lies in modules/m", "a.tfbackend": "no backend here lacks",
				"app/git.tfvars": "it is encrypted", "app/sops.tfvars.json": "it is encrypted", "app/prod.tfvars.enc": "it is encrypted",
			},
		},
	} {
		found := find(t, tree(t, tc.files), discover.Options{})
		got, others := map[string]string{}, map[string]string{}
		for _, w := range found.Workspaces {
			got[w.Name] = shape(w)
			if notes := strings.Join(w.Notes, " "); strings.Contains(notes, "s3cr3t") || strings.Contains(notes, "nothing gives a value") {
				t.Errorf("%s: notes %q", title, notes)
			}
		}
		for _, f := range found.Files {
			others[f.File] = f.Why[:min(len(f.Why), len(tc.other[f.File]))]
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", title, diff)
		}
		if diff := cmp.Diff(tc.other, others); diff != "" && len(tc.other)+len(others) > 0 {
			t.Errorf("%s: files (-want +got):\n%s", title, diff)
		}
	}
}

func TestTree_Versions(t *testing.T) {
	required := "terraform {\n  required_version = \">= 1.5, < 2\"\n}\n"
	dir := tree(t, map[string]string{
		".git/HEAD": "", "versions/terraform": "1.9.5\n", ".terraform-version": "->versions/terraform",
		"live/up/main.tf": s3 + required, "live/tools/main.tf": s3, "live/tools/.tool-versions": "python 3\nterraform 1.8.0 1.7.0 # both\n",
		"live/mise/main.tf": s3, "live/mise/mise.toml": "[env]\nterraform = \"1\"\n[tools]\n\"aqua:opentofu/opentofu\" = \"1.9\"\n",
		"live/table/main.tf": s3, "live/table/.mise.toml": "[tools]\nterraform = {version = '1.6.1'}\n",
		"live/latest/main.tf": s3 + required, "live/latest/.terraform-version": "latest",
		"live/tofu/main.tf": s3 + required, "live/tofu/.opentofu-version": "v1.8.1",
		"live/both/main.tf": s3, "live/both/.tool-versions": "opentofu 1.8.2\nterraform 1.9.0\n",
		"live/encrypts/main.tf": s3 + required + "terraform {\n  encryption {}\n}\n",
	})
	found := find(t, dir+"/live", discover.Options{})
	got := map[string]string{}
	for _, w := range found.Workspaces {
		got[w.Name] = w.Engine + " " + w.EngineVersion
	}
	want := map[string]string{
		"up": "terraform 1.9.5", "tools": "terraform 1.8.0", "mise": "tofu ~> 1.9.0", "table": "terraform 1.6.1",
		"latest": "terraform >= 1.5, < 2", "tofu": "tofu 1.8.1", "both": "terraform 1.9.0", "encrypts": "tofu >= 1.5, < 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the files have, each workspace can be written and read.
func FuzzFiles(f *testing.F) {
	f.Add("size = 1", "bucket = \"b\"\nkey = 1.50", "terraform 1.9\nopentofu latest:^1.8", "[tools]\nterraform = \"1\"")
	f.Add("", "workspaces {\n name = \"x\"\n}", "", "[tools.opentofu]\nversion='1'")
	f.Fuzz(func(t *testing.T, variables, settings, tools, mise string) {
		dir := tree(t, map[string]string{
			"app/main.tf": partial + needs, "app/env/dev.tfvars": "size = 1", "app/env/prod.tfvars": variables, "config/x.conf": settings,
			".tool-versions": tools, "app/mise.toml": mise,
		})
		find(t, dir, discover.Options{})
	})
}
