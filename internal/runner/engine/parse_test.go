package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestCommands(t *testing.T) {
	head := []string{"TF init -input=false"}
	const plan = "TF plan -input=false -detailed-exitcode -out=PLAN"
	const show, apply, output = "TF show -json -no-color PLAN", "TF apply -input=false PLAN", "TF output -json -no-color"
	for name, tc := range map[string]struct {
		kind workflow.Type
		op   workflow.Operation
		want []string
	}{
		"preview": {workflow.Deployment, workflow.Preview, []string{plan + " -lock=false", show}},
		"update":  {workflow.Deployment, workflow.Update, []string{plan, show, apply, output}},
		"refresh": {workflow.Deployment, workflow.Refresh, []string{plan + " -refresh-only", show, apply, output}},
		"destroy": {workflow.Deployment, workflow.Destroy, []string{plan + " -destroy", show, apply, output}},
		"scan":    {workflow.InsightsScan, "", []string{plan + " -lock=false -refresh-only", show}},
	} {
		var got []string
		for _, args := range engine.Args(tc.kind, tc.op) {
			got = append(got, strings.Join(args, " "))
		}
		if diff := cmp.Diff(slices.Concat(head, tc.want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Only addresses, actions and counts leave a plan; what is sensitive is masked, and nothing else.
func TestReadPlan(t *testing.T) {
	raw, err := os.ReadFile("testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	changes, truncated, secrets, err := engine.ReadPlan(raw, false)
	if err != nil || truncated {
		t.Fatalf("got %v, truncated %v", err, truncated)
	}
	want := api.Changes{
		Add: 3, Change: 1, Destroy: 3, Replace: 2, Forget: 1,
		Resources: []api.ResourceChange{
			{Address: "a.delete", Action: "delete"}, {Address: "a.replace1", Action: "replace"}, {Address: "a.replace2", Action: "replace"},
			{Address: "a.create", Action: "create"}, {Address: "a.forget", Action: "forget"}, {Address: "a.update", Action: "update", Changed: []string{"p", "q"}},
			{Address: "data.x.read", Action: "read"},
		},
		Outputs: []api.OutputChange{{Name: "open", Action: "create"}, {Name: "secret", Action: "create"}},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	slices.Sort(secrets)
	wantSecrets := []string{"1234567", "planted-before", "planted-new", "planted-one", "planted-prior", "planted-three", "planted-two", "planted-user", "planted-variable"}
	if diff := cmp.Diff(wantSecrets, secrets); diff != "" {
		t.Errorf("masked (-want +got):\n%s", diff)
	}
}

func TestReadPlan_BoundsAreKept(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"format_version":"1.2","resource_changes":[`)
	for i := range 1200 {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"address":"a.b[%04d]","change":{"actions":["create"]}}`, i)
	}
	fmt.Fprintf(&b, `,{"address":"a.%s","change":{"actions":["create"]}}]}`, strings.Repeat("é", 2000))
	changes, truncated, _, err := engine.ReadPlan([]byte(b.String()), false)
	if err != nil {
		t.Fatal(err)
	}
	if changes.Add != 1201 || len(changes.Resources) != 1000 || !truncated {
		t.Errorf("got %d added, %d listed, truncated %v; want 1201, 1000, true", changes.Add, len(changes.Resources), truncated)
	}
	for _, r := range changes.Resources {
		if len(r.Address) > 1000 || !utf8.ValidString(r.Address) {
			t.Errorf("address of %d bytes", len(r.Address))
		}
	}
}

func TestReadOutputs(t *testing.T) {
	outputs, truncated, secrets, err := engine.ReadOutputs([]byte(`{
		"b": {"sensitive": true, "type": "string", "value": "planted-output"},
		"c": {"sensitive": false, "type": ["object", {}], "value": {"n": 12345678901234567890, "null": null}},
		"a": {"sensitive": false, "type": "bool", "value": false}}`))
	if err != nil || truncated {
		t.Fatalf("got %v, truncated %v", err, truncated)
	}
	want := []api.Output{{Name: "a", Value: false}, {Name: "b", Sensitive: true}, {Name: "c", Value: map[string]any{"n": json.Number("12345678901234567890"), "null": nil}}}
	if diff := cmp.Diff(want, outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"planted-output"}, secrets); diff != "" {
		t.Errorf("masked (-want +got):\n%s", diff)
	}
	if _, _, _, err := engine.ReadOutputs([]byte(`{"a": "planted-output"}`)); err == nil || strings.Contains(err.Error(), "planted") {
		t.Errorf("got %v, want an error without the value", err)
	}
}

func TestReadOutputs_BoundsAreKept(t *testing.T) {
	doc := map[string]any{"large": map[string]any{"value": strings.Repeat("x", 70<<10)}, "zz-small": map[string]any{"value": 1}}
	for i := range 600 {
		doc[fmt.Sprintf("o%03d", i)] = map[string]any{"value": i}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	outputs, truncated, _, err := engine.ReadOutputs(raw)
	if err != nil || !truncated || len(outputs) != 500 {
		t.Errorf("got %d outputs, truncated %v, %v; want 500, true", len(outputs), truncated, err)
	}
	delete(doc, "o000")
	for i := range 600 {
		delete(doc, fmt.Sprintf("o%03d", i))
	}
	if raw, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	outputs, truncated, _, _ = engine.ReadOutputs(raw)
	if diff := cmp.Diff([]api.Output{{Name: "zz-small", Value: json.Number("1")}}, outputs); diff != "" || !truncated {
		t.Errorf("truncated %v, outputs (-want +got):\n%s", truncated, diff)
	}
}

func TestReadOutputFile(t *testing.T) {
	for name, tc := range map[string]struct {
		text    string
		want    []api.Output
		secrets []string
		says    string // of an error
	}{
		"nothing":      {text: " \n"},
		"empty":        {text: "{}"},
		"values":       {text: `{"s":"x","n":1.5,"b":true,"z":null,"l":[1]}` + "\n", want: []api.Output{{Name: "b", Value: true}, {Name: "l", Value: []any{json.Number("1")}}, {Name: "n", Value: json.Number("1.5")}, {Name: "s", Value: "x"}, {Name: "z"}}},
		"wrapped":      {text: `{"a":{"value":"x"},"b":{"value":"planted","sensitive":true},"c":{"value":2,"sensitive":false}}`, want: []api.Output{{Name: "a", Value: "x"}, {Name: "b", Sensitive: true}, {Name: "c", Value: json.Number("2")}}, secrets: []string{"planted"}},
		"plain object": {text: `{"a":{"value":"x","other":1},"b":{"sensitive":true}}`, want: []api.Output{{Name: "a", Value: map[string]any{"value": "x", "other": json.Number("1")}}, {Name: "b", Value: map[string]any{"sensitive": true}}}},
		"list":         {text: `[1]`, says: "not a JSON object"},
		"text":         {text: `hello`, says: "not a JSON object"},
		"cut off":      {text: `{"a":1`, says: "not a whole JSON object"},
		"twice":        {text: `{"a":1,"a":2}`, says: "twice"},
		"two objects":  {text: `{"a":1}{"b":2}`, says: "more text after"},
		"no name":      {text: `{"":1}`, says: "name"},
		"control name": {text: `{"a\nb":1}`, says: "name"},
		"bad mark":     {text: `{"a":{"value":"planted","sensitive":"yes"}}`, says: "neither true nor false"},
		"bad bytes":    {text: "{\"a\":\"\xff\"}", says: "UTF-8"},
		"bad value":    {text: `{"a":planted}`, says: "not JSON"},
	} {
		outputs, _, secrets, err := engine.ReadOutputFile([]byte(tc.text))
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "planted") {
				t.Errorf("%s: got %v, want an error that says %q and holds no value", name, err, tc.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, outputs); diff != "" {
			t.Errorf("%s: outputs (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(tc.secrets, secrets); diff != "" {
			t.Errorf("%s: masked (-want +got):\n%s", name, diff)
		}
	}
}

const lockText = `╷
│ Error: Error acquiring the state lock
│ 
│ Error message: resource temporarily unavailable
│ Lock Info:
│   ID:        9db590f1-b6fe-c5f2-2678-8804f089deba
│   Path:      terraform.tfstate
│   Operation: OperationTypePlan
│   Who:       root@host
│   Version:   1.11.4
│   Created:   2026-01-02 03:04:05.678 +0000 UTC
│   Info:      
│ 
│ 
│ Terraform acquires a state lock to protect the state from being written
│ by multiple users at the same time.
╵`

func TestLockFromText(t *testing.T) {
	want := &api.Lock{ID: "9db590f1-b6fe-c5f2-2678-8804f089deba", Path: "terraform.tfstate", Operation: "OperationTypePlan", Who: "root@host", Created: "2026-01-02 03:04:05.678 +0000 UTC"}
	plain := strings.NewReplacer("│ ", "", "│", "").Replace(lockText)
	for name, text := range map[string]string{"boxed": lockText, "plain": plain, "coloured": "\x1b[31m" + strings.ReplaceAll(lockText, "│", "\x1b[31m│\x1b[0m"), "with line ends of windows": strings.ReplaceAll(plain, "\n", "\r\n")} {
		if diff := cmp.Diff(want, engine.LockFromText(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, text := range []string{"", "Lock Info:", "Lock Info:\n\n  ID: x", "Error: something else\n  ID: x"} {
		if got := engine.LockFromText(text); got != nil {
			t.Errorf("%q: got %+v, want none", text, got)
		}
	}
}

func TestFirstError(t *testing.T) {
	for text, want := range map[string]string{
		lines("╷", "│ Error: Invalid index", "│ ", "│   on main.tf line 3, in output \"x\":", "│    3:   value = \"planted\"", "│     ├────────────────", "│     │ local.a is list", "│ ", "│ The given key does not identify", "│ an element.", "│ ", "│ More.", "╵"):                                                                            `Error: Invalid index (on main.tf line 3, in output "x"): The given key does not identify an element.`,
		lines("Error: Unsupported argument", "", "  on main.tf line 1:", "   1: x = 1", "", "An argument named \"x\" is not expected here."):                                                                                                                                                                                                      `Error: Unsupported argument (on main.tf line 1): An argument named "x" is not expected here.`,
		lines("Warning: Old", "", "Something.", "", "Error: First", "", "Because.", "", "Error: Second", "", "Other."):                                                                                                                                                                                                                            "Error: First: Because. (1 more error in the log)",
		lines("Error: local-exec provisioner error", "", "  with terraform_data.boom,", "  on main.tf line 2, in resource \"terraform_data\" \"boom\":", "   2:   provisioner \"local-exec\" {", "", "Error running command 'exit 7': exit", "status 7. Output: "):                                                                                `Error: local-exec provisioner error (terraform_data.boom, on main.tf line 2): Error running command 'exit 7': exit status 7.`,
		lines("╷", "│ Error: local-exec provisioner error", "│ ", "│   with module.m[\"a b\"].terraform_data.deep[0],", "│   on mod/main.tf line 3, in resource \"terraform_data\" \"deep\":", "│    3:   provisioner \"local-exec\" { command = \"exit 7\" }", "│ ", "│ Error running command 'exit 7': exit status 7. Output: it said so", "╵"): `Error: local-exec provisioner error (module.m["a b"].terraform_data.deep[0], on mod/main.tf line 3): Error running command 'exit 7': exit status 7. Output: it said so`,
		lines("Error: creating the thing", "", "  with terraform_data.gone,", "", "operation failed: access denied", "", "Error: Second", "", "Other.", "", "Error: Third"):                                                                                                                                                                       "Error: creating the thing (terraform_data.gone): operation failed: access denied (2 more errors in the log)",
		lines("╷", "│ Error: Terraform encountered problems during initialisation, including problems", "│ with the configuration, described below.", "│ ", "│ The Terraform configuration must be valid", "╵", "╷", "│ Error: Invalid expression", "│ ", "│   on main.tf line 2:", "│ ", "│ Expected the start of an expression.", "╵"):          "Error: Invalid expression (on main.tf line 2): Expected the start of an expression.",
		lines("OpenTofu encountered problems during initialization, including problems", "with the configuration, described below.", "", "Error: Invalid expression"):                                                                                                                                                                             "Error: Invalid expression",
		lines("╷", "│ Error: failed to create backend alias to target \"\". The hostname is not in the correct format.", "╵", "╷", "│ Error: Invalid workspaces configuration", "│ ", "│ It conflicts.", "╵"):                                                                                                                                     "Error: Invalid workspaces configuration: It conflicts.",
		lines("Error: Unreadable module directory", "", "The directory  could not be read for module \"n\" at main.tf:2.", "", "Error: Unreadable module directory", "", "Unable to evaluate it: lstat n", "", "Error: Third"):                                                                                                                    "Error: Unreadable module directory: Unable to evaluate it: lstat n (1 more error in the log)",
		"Error: Terraform encountered problems during initialisation": "Error: Terraform encountered problems during initialisation",
		"Error: alone":    "Error: alone",
		"nothing of that": "",
		"":                "",
	} {
		if got := engine.FirstError(text); got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
	if got := engine.FirstError("Error: " + strings.Repeat("é", 5000)); len(got) > 1000 || !utf8.ValidString(got) {
		t.Errorf("a long error is not cut: %d bytes", len(got))
	}
}

func TestFailedWith_NamesSignals(t *testing.T) {
	for code, want := range map[int]string{
		1: "apply failed with exit code 1", 128: "apply failed with exit code 128", 255: "apply failed with exit code 255", -1: "apply failed with exit code -1",
		139: "apply failed: tofu was ended by signal 11 (segmentation fault)",
		137: "apply failed: tofu was ended by signal 9 (killed), which it does not send itself: see whether the machine ran out of memory",
	} {
		if got := engine.FailedWith("apply", "tofu", code); got != want {
			t.Errorf("%d: got %q, want %q", code, got, want)
		}
	}
}

func TestLacksCredentials_OnlyWhereABackendSaysSo(t *testing.T) {
	for detail, want := range map[string]bool{
		"Error: No valid credential sources found: Please see":                                                          true,
		"Error: storage.NewClient() failed: dialing: google: could not find default credentials":                        true,
		"Error: Required token could not be found: Run the following command":                                           true,
		"Error: Failed to get existing workspaces: Unable to list objects in S3 bucket: api error AccessDenied":         true,
		"Error: HTTP remote state endpoint requires auth":                                                               true,
		"Error: pq: password authentication failed for user \"a\"":                                                      true,
		"Error: Invalid expression (on main.tf line 2, in terraform): but found an invalid expression token.":           false,
		"Error: Failed to download module (on main.tf line 9): fatal: Authentication failed for 'https://a/b.git/'":     false,
		"Error: Failed to query available provider packages: the request failed: 401 Unauthorized":                      false,
		"Error: Unsupported argument (on main.tf line 2, in provider \"x\"): An argument \"password\" is not expected.": false,
		"Error: Failed to request discovery document: connection refused (on main.tf line 3, in terraform)":             false,
	} {
		if got := engine.LacksCredentials("init failed with exit code 1: " + detail); got != want {
			t.Errorf("%s: got %t", detail, got)
		}
	}
}

func TestCredentialHint_NamesTheTokenOfTheHost(t *testing.T) {
	none := func(string) string { return "" }
	for host, want := range map[string]string{"app.terraform.io": "TF_TOKEN_app_terraform_io", "TFE.my-company.com:443": "TF_TOKEN_tfe_my__company_com"} {
		for _, backend := range []string{"remote", "cloud"} {
			if got := engine.CredentialHint(backend, host, none); !strings.Contains(got, " from "+want+", and") {
				t.Errorf("%s: got %s", host, got)
			}
		}
	}
}

func TestReadCode_SettingsOfACloudBlock(t *testing.T) {
	want := map[string]string{"hostname": "h", "organization": "o", "workspaces.name": "w"}
	for name, src := range map[string]string{
		"main.tf": `terraform {
  backend "s3" { hostname = "x" }
  cloud {
    hostname     = "h"
    organization = "o"
    token        = var.t
    workspaces {
      name = "w"
      tags = ["a"]
    }
  }
  required_providers {
    x = { source = "a/b" }
  }
}`,
		"main.tf.json": `{"terraform":[{"cloud":{"hostname":"h","organization":"o","token":"${var.t}","workspaces":[{"name":"w","tags":["a"]}]}}]}`,
	} {
		c := engine.ReadCode(fstest.MapFS{name: {Data: []byte(src)}}, ".", api.EngineTerraform)
		if diff := cmp.Diff(want, c.CloudSettings); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadCode_WorkspacesOfABackend(t *testing.T) {
	want := map[string]string{"organization": "o", "workspaces.prefix": "net-"}
	for name, src := range map[string]string{
		"main.tf":      "terraform {\n  backend \"remote\" {\n    organization = \"o\"\n    workspaces {\n      prefix = \"net-\"\n    }\n  }\n}\n",
		"main.tf.json": `{"terraform":{"backend":{"remote":{"organization":"o","workspaces":[{"prefix":"net-"}]}}}}`,
	} {
		c := engine.ReadCode(fstest.MapFS{name: {Data: []byte(src)}}, ".", api.EngineTerraform)
		if diff := cmp.Diff(want, c.Settings); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadCode_NameOfTheEnginesWorkspace(t *testing.T) {
	for src, want := range map[string]bool{
		`locals { n = terraform.workspace }`:              true,
		`locals { n = "a-${terraform.workspace}-b" }`:     true,
		`locals { n = lookup(m, terraform . workspace) }`: true,
		`# terraform.workspace`:                           false,
		`locals { n = "terraform.workspace" }`:            false,
		`locals { n = local.terraform.applying }`:         false,
		`terraform`: false,
		`{"locals":{"n":"${terraform.workspace}"}}`: true,
		`{"locals":{"n":"default"}}`:                false,
	} {
		name := "main.tf"
		if src[0] == '{' {
			name += ".json"
		}
		if got := engine.ReadCode(fstest.MapFS{name: {Data: []byte(src)}}, ".", api.EngineTerraform).ReadsWorkspace; got != want {
			t.Errorf("%s: got %v", src, got)
		}
	}
}

func TestDeclaredBackend(t *testing.T) {
	for name, tc := range map[string]struct {
		file, src string
		backend   string
		cloud     bool
		unsure    bool
	}{
		"none":               {file: "main.tf", src: `resource "a" "b" {}`},
		"backend":            {file: "main.tf", src: lines(`terraform {`, `  required_version = ">= 1"`, `  backend "s3" {}`, `}`), backend: "s3"},
		"cloud":              {file: "main.tf", src: lines(`terraform {`, `  cloud {`, `    organization = "x"`, `  }`, `}`), cloud: true},
		"in a comment":       {file: "main.tf", src: lines(`/* terraform { backend "s3" {} } */`, `# terraform { cloud {} }`)},
		"in a heredoc":       {file: "main.tf", src: lines(`locals {`, `  x = <<EOT`, `terraform {`, `  cloud {}`, `}`, `EOT`, `}`)},
		"of another block":   {file: "main.tf", src: lines(`resource "a" "b" {`, `  cloud {}`, `  backend "x" {}`, `}`)},
		"json":               {file: "main.tf.json", src: `{"terraform":{"backend":{"gcs":{"bucket":"b"}}}}`, backend: "gcs"},
		"cloud in json":      {file: "main.tf.json", src: `{"terraform":[{"cloud":{"organization":"o"}}]}`, cloud: true},
		"broken":             {file: "main.tf", src: `terraform {`, unsure: true},
		"broken json":        {file: "main.tf.json", src: `{"terraform":`, unsure: true},
		"two on a line":      {file: "main.tf", src: `terraform { backend "s3" {} }`, backend: "s3"},
		"bare label":         {file: "main.tf", src: lines(`terraform {`, `  backend s3 {}`, `}`), backend: "s3"},
		"behind a comment":   {file: "main.tf", src: lines(`terraform {`, `  /* here */ cloud /* it is */ {`, `  }`, `}`), cloud: true},
		"deeper inside":      {file: "main.tf", src: lines(`terraform {`, `  provider_meta "x" {`, `    cloud {}`, `  }`, `}`)},
		"attribute":          {file: "main.tf", src: lines(`terraform {`, `  cloud = {}`, `}`)},
		"after a template":   {file: "main.tf", src: lines("locals {", `  x = "a ${foo({ y = "}" })} %{ if true }b%{ endif }"`, "}", "terraform {", `  backend "gcs" {}`, "}"), backend: "gcs"},
		"in a string":        {file: "main.tf", src: `locals { x = "terraform { backend \"s3\" {} }" }`},
		"too deep to follow": {file: "main.tf", src: "x = " + strings.Repeat("[", 200_000) + "1", unsure: true},
		"deep blocks":        {file: "main.tf", src: strings.Repeat("a {\n", 200_000), unsure: true},
		"deep templates":     {file: "main.tf", src: "x = " + strings.Repeat("\"${", 100_000), unsure: true},
		"deep json":          {file: "main.tf.json", src: strings.Repeat("[", 200_000), unsure: true},
		"json lists":         {file: "main.tf.json", src: `[{"terraform":[{"required_version":">= 1"},{"backend":[{"pg":{}}]}]}]`, backend: "pg"},
		"backend, no labels": {file: "main.tf", src: lines(`terraform {`, `  backend {}`, `}`)},
	} {
		backend, cloud, unsure := engine.Declared(tc.src, tc.file)
		if backend != tc.backend || cloud != tc.cloud || unsure != tc.unsure {
			t.Errorf("%s: got %q, %v, %v; want %q, %v, %v", name, backend, cloud, unsure, tc.backend, tc.cloud, tc.unsure)
		}
	}
}

func TestDeclaredBackend_OverrideHasTheLastWord(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"a_override.tf":   lines(`terraform {`, `  backend "gcs" {}`, `}`),
		"z.tf":            lines(`terraform {`, `  backend "s3" {}`, `}`),
		"sub/cloud.tf":    lines(`terraform {`, `  cloud {}`, `}`),
		".hidden.tf":      lines(`terraform {`, `  cloud {}`, `}`),
		"only.tofu":       lines(`terraform {`, `  cloud {}`, `}`),
		"notes.tf.backup": lines(`terraform {`, `  cloud {}`, `}`),
	})
	if backend, cloud, _ := engine.DeclaredIn(dir, api.EngineTerraform); backend != "gcs" || cloud {
		t.Errorf("terraform: got %q, %v; want gcs", backend, cloud)
	}
	if err := os.Remove(filepath.Join(dir, "a_override.tf")); err != nil {
		t.Fatal(err)
	}
	// A file that is shared by a link counts as well.
	if err := os.Symlink("z.tf", filepath.Join(dir, "zz.tf")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "only.tofu")); err != nil {
		t.Fatal(err)
	}
	if backend, cloud, _ := engine.DeclaredIn(dir, api.EngineTofu); backend != "s3" || cloud {
		t.Errorf("tofu: got %q, %v; want s3", backend, cloud)
	}
	put(t, dir, map[string]string{"zzz.tofu": lines(`terraform {`, `  cloud {}`, `}`)})
	if _, cloud, _ := engine.DeclaredIn(dir, api.EngineTofu); !cloud {
		t.Error("tofu: a .tofu file was not read")
	}
}

func TestCandidates(t *testing.T) {
	one, two, path := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{one + "/tofu", one + "/tofu_1.9.0", one + "/tofu_1.10.0", one + "/tofu_none", two + "/tofu/1.11.0/tofu", two + "/tofu/1.2.3/tofu", path + "/tofu"} {
		fakeEngine(t, name, "1.0.0", "")
	}
	put(t, two, map[string]string{"tofu_1.12.0": "not executable"})
	for constraint, want := range map[string][]string{
		"":        {one + "/tofu", one + "/tofu_1.10.0", one + "/tofu_1.9.0", two + "/tofu/1.11.0/tofu", two + "/tofu/1.2.3/tofu", path + "/tofu"},
		"~> 1.10": {one + "/tofu", one + "/tofu_1.10.0", two + "/tofu/1.11.0/tofu", path + "/tofu"},
		"1.2.3":   {one + "/tofu", two + "/tofu/1.2.3/tofu", path + "/tofu"},
	} {
		got := engine.Candidates("tofu", []string{one, two, "relative"}, "."+string(filepath.ListSeparator)+path, constraint)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", constraint, diff)
		}
	}
}

func TestVariableEnv(t *testing.T) {
	got, err := engine.VariableEnv(map[string]any{"text": "a b", "count": json.Number("3"), "on": true, "dash-ed": "x", "list": []any{"a", 1.5}, "none": nil})
	want := []string{"DAYFLY_VAR_count=3", "DAYFLY_VAR_dash_ed=x", `DAYFLY_VAR_list=["a",1.5]`, "DAYFLY_VAR_none=null", "DAYFLY_VAR_on=true", "DAYFLY_VAR_text=a b"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, variables := range map[string]map[string]any{"collision": {"a-b": 1, "a_b": 2}, "zero byte": {"a": "x\x00y"}} {
		if _, err := engine.VariableEnv(variables); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, workflow.ErrInvalid)
		}
	}
}

// A file that the engine put in place of its own is not read for it by a runner that may be root.
func TestFilesOfTheEngineAreReadOnlyIfTheyAreItsOwn(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "shadow")
	put(t, dir, map[string]string{"own": "ours", "large": strings.Repeat("x", 2<<10), "folder/x": ""})
	if err := os.WriteFile(outside, []byte("planted"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "in": "own"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(outside, filepath.Join(dir, "hard")); err != nil {
		t.Skip("no hard links here: ", err)
	}
	for name, want := range map[string]string{"own": "ours", "out": "", "in": "", "hard": "", "folder": "", "large": "", "../x": "", "missing": ""} {
		got, err := engine.ReadIn(dir, name, nil)
		if want == "" && err == nil || string(got) != want && err == nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(dir, "own"), 200001, 200001); err != nil {
			t.Fatal(err)
		}
		if got, err := engine.ReadIn(dir, "own", &engine.Owner{UID: 200002}); err == nil {
			t.Errorf("a file of another user was read: %q", got)
		}
	}
}

func FuzzReadOutputFile(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1}`, `{"a":{"value":"x","sensitive":true}}`, `{"a":[{"b":null}],"c":"d"}`, ``, `[`, `{"a":1}}`, `{"a":1e999}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		outputs, _, _, err := engine.ReadOutputFile(raw)
		if err != nil {
			return
		}
		for i, o := range outputs {
			if o.Sensitive && o.Value != nil {
				t.Errorf("sensitive output %q has a value", o.Name)
			}
			if o.Name == "" || i > 0 && outputs[i-1].Name >= o.Name {
				t.Errorf("outputs are not in order: %q", o.Name)
			}
		}
		if _, err := json.Marshal(outputs); err != nil {
			t.Errorf("outputs that no answer can hold: %v", err)
		}
	})
}

func FuzzReadPlan(f *testing.F) {
	for _, name := range []string{"testdata/plan.json", "testdata/drift.json"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"format_version":"1.2","resource_changes":[null,{"change":null}],"output_changes":{"a":null}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		changes, _, secrets, err := engine.ReadPlan(raw, true)
		if text, jsonErr := json.Marshal(changes); err == nil && (jsonErr != nil || len(text) > 201<<10 || len(changes.Resources) > 1000 || len(changes.Outputs) > 500 || len(secrets) > 2000) {
			t.Errorf("beyond the bounds: %d resources, %d secrets, %d bytes", len(changes.Resources), len(secrets), len(text))
		}
	})
}

func FuzzLockFromText(f *testing.F) {
	f.Add(lockText)
	f.Add("Lock Info:\nID: x\n")
	f.Fuzz(func(t *testing.T, text string) {
		if l := engine.LockFromText(text); l != nil && (l.ID == "" || len(l.ID) > 255 || len(l.Path) > 1000 || len(l.Who) > 255) {
			t.Errorf("lock beyond its bounds: %+v", l)
		}
		if s := engine.FirstError(text); len(s) > 2000 || !utf8.ValidString(s) {
			t.Errorf("sentence beyond its bounds: %q", s)
		}
	})
}

func FuzzDeclaredBackend(f *testing.F) {
	f.Add(`terraform { cloud {} }`, "main.tf")
	f.Add(`{"terraform":{"backend":{"s3":{}}}}`, "main.tf.json")
	f.Fuzz(func(t *testing.T, src, name string) {
		if backend, cloud, _ := engine.Declared(src, name); cloud && backend != "" {
			t.Errorf("both a cloud block and the backend %q", backend)
		}
	})
}

func FuzzParseLockFile(f *testing.F) {
	f.Add([]byte(`{"ID":"x","Who":"me"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if l := engine.ParseLockFile(raw); l != nil && (l.ID == "" || len(l.ID) > 255 || !utf8.ValidString(l.ID)) {
			t.Errorf("lock beyond its bounds: %+v", l)
		}
	})
}

// What a lock file says becomes the path of a link: it stays below the directory of the links.
func FuzzReadLockFile(f *testing.F) {
	f.Add([]byte("provider \"registry.terraform.io/hashicorp/local\" {\n  version = \"2.5.1\"\n  hashes = [\n    \"h1:x\",\n  ]\n}\n"))
	f.Add([]byte("provider \"a/../b\" { version = \"1\" }\nprovider \"a/b/c\" { version = \"1/../../..\" }\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, name := range engine.LinkNames(src) {
			if !filepath.IsLocal(name) || strings.Count(name, "/") != 3 {
				t.Errorf("a link would lie at %q", name)
			}
		}
	})
}

func FuzzSensitiveInState(f *testing.F) {
	f.Add([]byte(`{"format_version":"1.0","values":{"outputs":{"a":{"sensitive":true,"value":"x"}},"root_module":{"resources":[{"values":{"p":"y"},"sensitive_values":{"p":true}}],"child_modules":[null,{}]}}}`))
	f.Add([]byte(`{"format_version":"1.0","values":{"root_module":{"resources":[null,{"sensitive_values":[[true]],"values":{"0":1}}]}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if found, err := engine.SensitiveInState(raw); err != nil && len(found) > 0 {
			t.Errorf("got %q and %v", found, err)
		}
	})
}

// A number is kept as it is written, however many digits it has.
func TestReadOutputFile_KeepsNumbersAsTheyAre(t *testing.T) {
	for _, value := range []string{"1", "-0.0", "1e3", "1.50", "9007199254740993", "123456789012345678901", "0.12345678901234567890123", "1e999", `[1,{"a":9007199254740993}]`} {
		outputs, _, _, err := engine.ReadOutputFile([]byte(`{"a": ` + value + `}`))
		if err != nil || len(outputs) != 1 {
			t.Fatalf("%s: got %+v, %v", value, outputs, err)
		}
		raw, err := json.Marshal(outputs[0])
		var again api.Output
		if err != nil || json.Unmarshal(raw, &again) != nil || !reflect.DeepEqual(again, outputs[0]) || !strings.Contains(string(raw), `"value":`+value) {
			t.Errorf("%s: got %s, %v", value, raw, err)
		}
	}
}

func TestReadCode_WhatAModuleDeclares(t *testing.T) {
	for name, src := range map[string]string{
		"main.tf": `
terraform { # first
  required_version = "~> 1.9"
  encryption {
  }
  backend "s3" {} # second
}
variable "a" {} // third
variable "b" {
  default = null # fourth
}
variable "c" { type = object({ default = string }) } /* fifth */
resource "x" "default" {
  resource = default
}
data "x" "y" {}
module "m" { source = "./m" }
`,
		"main.tf.json": `{"terraform": {"required_version": "~> 1.9", "encryption": {}, "backend": {"s3": {}}},
"variable": [{"a": {}, "b": {"default": null}}, {"c": []}],
"resource": {"x": {"default": {}}}, "data": {"x": [{"y": {}}]}, "module": {"m": {"source": "./m"}}}`,
	} {
		c := engine.ReadCode(fstest.MapFS{name: {Data: []byte(src)}}, ".", api.EngineTofu)
		if diff := cmp.Diff(map[string]bool{"a": false, "b": true, "c": false}, c.Variables); diff != "" {
			t.Errorf("%s: variables (-want +got):\n%s", name, diff)
		}
		if c.Blocks != 3 || c.Backend != "s3" || !c.Encrypts || c.Unsure || !cmp.Equal(c.Required, []string{"~> 1.9"}) {
			t.Errorf("%s: got %+v", name, c)
		}
	}
}

func TestSettings_OnlyPlainValues(t *testing.T) {
	const wrong = "wrong"
	for src, want := range map[string]string{
		"bucket = \"b\" # mine\nencrypt = true\n\nretries = 3": `{"bucket":"b","encrypt":true,"retries":3}`,
		"workspaces {\n  name = \"w\"\n}\n":                    `{"workspaces":{"name":"w"}}`,
		"endpoints = {\n  s3 = \"x\"\n}":                       `{"endpoints":{"s3":"x"}}`,
		`{"bucket": "b"}`:                                      `{"bucket":"b"}`,
		"bucket = var.b":                                       wrong,
		"bucket = b":                                           wrong,
		"bucket":                                               wrong,
		"bucket=my-bucket":                                     wrong,
		"resource \"a\" \"b\" {}":                              wrong,
		"a = 1 }":                                              wrong,
		"":                                                     wrong,
		"a = " + strings.Repeat("[", 20) + strings.Repeat("]", 20): wrong,
	} {
		name := "x.conf"
		if strings.HasPrefix(src, "{") {
			name = "x.json"
		}
		raw, err := json.Marshal(engine.Settings([]byte(src), name))
		if got := string(raw); err != nil || got != want && !(got == "null" && want == wrong) {
			t.Errorf("%s: got %s", src, got)
		}
	}
}

func FuzzAssignments(f *testing.F) {
	f.Add([]byte("a = 1\nb {\n c = \"x${y}\"\n}\n"), "x.tfvars")
	f.Add([]byte("a = <<E\n}\nE\n"), "x.hcl")
	f.Add([]byte(`{"a": [1.50]}`), "x.json")
	f.Fuzz(func(t *testing.T, src []byte, name string) {
		names, only := engine.Assignments(src, name)
		for set := range engine.Settings(src, name) {
			if !only || !slices.Contains(names, set) {
				t.Errorf("%q is set, and the names are %q, only %v", set, names, only)
			}
		}
	})
}
