package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// What pulumi 3.274.1 printed, shortened.
const (
	pulumiPreview = `{"config":{"demo:word":"second"},"steps":[
		{"op":"same","urn":"urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev","oldState":{"urn":"x","outputs":{"a":"planted"}},"detailedDiff":null},
		{"op":"update","urn":"urn:pulumi:dev::demo::a:b:Parent$aws:s3/bucket:Bucket::one","provider":"urn:pulumi:dev::demo::pulumi:providers:aws::default_6_0_0::04da6b54","diffReasons":["tags"],"detailedDiff":{"tags.Name":{"kind":"update","inputDiff":false},"rules[0].planted":{"kind":"add"}}},
		{"op":"import","urn":"urn:pulumi:dev::demo::aws:s3/bucket:Bucket::two","detailedDiff":null}],
		"diagnostics":[{"message":"\u001b[31mError\u001b[0m: no type\n\n  on line 7:\n","severity":"info#err"}],"duration":11079821,"changeSummary":{"same":1,"update":1}}`
	pulumiExport = `{"version":3,"deployment":{"manifest":{"time":"2026-11-24T14:42:42.437087365Z","magic":"29","version":"v3.274.1"},
		"secrets_providers":{"type":"passphrase","state":{"salt":"v1:VR2G0nLh3AM=:v1:vKpE"}},"resources":[
		{"urn":"urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev","custom":false,"type":"pulumi:pulumi:Stack","outputs":{"a":"planted"}},
		{"urn":"urn:pulumi:dev::demo::pulumi:providers:aws::default","custom":true,"type":"pulumi:providers:aws"},
		{"urn":"urn:pulumi:dev::demo::aws:s3/bucket:Bucket::one","custom":true,"type":"aws:s3/bucket:Bucket"},
		{"urn":"urn:pulumi:dev::demo::aws:s3/bucket:Bucket::one","custom":true,"type":"aws:s3/bucket:Bucket","delete":true}],"metadata":{}}}`
)

func TestPulumi_ReadsAPreview(t *testing.T) {
	one := api.ResourceChange{Address: "urn:pulumi:dev::demo::a:b:Parent$aws:s3/bucket:Bucket::one", Action: "update", Provider: "aws", Changed: []string{"rules", "tags"}}
	two := api.ResourceChange{Address: "urn:pulumi:dev::demo::aws:s3/bucket:Bucket::two", Action: "import", Imported: true}
	got, said, err := engine.ReadPreview([]byte(pulumiPreview), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Changes{Change: 1, Import: 1, Resources: []api.ResourceChange{one, two}}, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Error: no type", "  on line 7:"}, said); diff != "" {
		t.Errorf("what it said (-want +got):\n%s", diff)
	}
	// Older versions list the resources that they refresh, and count those that drifted.
	got, _, err = engine.ReadPreview([]byte(`{"steps":[{"op":"refresh","urn":"urn:pulumi:dev::demo::a:b:C::x"}],"changeSummary":{"update":2,"delete":1,"same":4}}`), nil, true)
	if err != nil || got.Drift != 3 || len(got.Resources) != 0 {
		t.Errorf("got %+v, %v, want 3 that drifted", got, err)
	}
}

// Of a provider that does not say what differs, as a dynamic one, the names are those of the inputs that do; of drift,
// those of the outputs. A secret is compared as it is shown.
func TestPulumi_NamesWhatDiffersByItself(t *testing.T) {
	const preview = `{"steps":[{"op":"%s","urn":"urn:pulumi:dev::demo::pulumi-nodejs:dynamic:Resource::a",%s"detailedDiff":null,
		"oldState":{"inputs":{"same":{"a":[1]},"size":"planted","gone":1,"key":"[secret]","__provider":"x"},"outputs":{"size":"planted","seen":1,"__provider":"x"}},
		"newState":{"inputs":{"same":{"a":[1]},"size":"planted-too","made":2,"key":"[secret]","__provider":"y"},"outputs":{"size":"planted","seen":2,"__provider":"x"}}}]}`
	for name, tc := range map[string]struct {
		op, says string
		refresh  bool
		want     []string
	}{
		"update": {"update", "", false, []string{"__provider", "gone", "made", "size"}},
		"drift":  {"update", "", true, []string{"seen"}},
		"said":   {"update", `"diffReasons":["size"],`, false, []string{"size"}},
		"delete": {"delete", "", false, nil},
		"create": {"create", "", false, nil},
	} {
		got, _, err := engine.ReadPreview(fmt.Appendf(nil, preview, tc.op, tc.says), nil, tc.refresh)
		if err != nil || len(got.Resources) != 1 {
			t.Fatalf("%s: got %+v, %v", name, got, err)
		}
		if diff := cmp.Diff(tc.want, got.Resources[0].Changed); diff != "" {
			t.Errorf("%s: names (-want +got):\n%s", name, diff)
		}
	}
}

func TestPulumi_ReadsAState(t *testing.T) {
	n, serial, inventory, err := engine.ReadDeployment([]byte(pulumiExport))
	if err != nil || n != 1 || serial != 1795531362437 || inventory.Types[0] != (api.InventoryCount{Type: "aws:s3/bucket:Bucket", Count: 1}) {
		t.Errorf("got %d resources, serial %d, %+v, %v", n, serial, inventory, err)
	}
	if _, _, _, err := engine.ReadDeployment([]byte(`{"version":4}`)); err == nil {
		t.Error("a state of another form was read")
	}
}

// Changes that a run made before it was cut off are found by comparing the state before and after, not by its plan.
func TestPulumi_CountsWhatWasMade(t *testing.T) {
	row := func(name, created, modified, more string) string {
		return `{"urn":"urn:pulumi:dev::demo::a:b:C::` + name + `","type":"a:b:C","created":"2026-01-0` + created + `T00:00:00Z","modified":"2026-01-0` + modified + `T00:00:00Z"` + more + `}`
	}
	state := func(rows ...string) []byte {
		return []byte(`{"deployment":{"resources":[{"urn":"urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev","type":"pulumi:pulumi:Stack"},` + strings.Join(rows, ",") + `]}}`)
	}
	before := state(row("same", "1", "1", ""), row("changed", "1", "1", ""), row("replaced", "1", "1", ""), row("half", "1", "1", ""), row("gone", "1", "1", ""))
	after := state(row("same", "1", "1", ""), row("changed", "1", "2", ""), row("replaced", "2", "2", ""), row("half", "2", "2", ""), row("half", "1", "1", `,"delete":true`), row("made", "2", "2", ""))
	of := func(name, action string) api.ResourceChange {
		return api.ResourceChange{Address: "urn:pulumi:dev::demo::a:b:C::" + name, Action: action}
	}
	want := &api.Changes{Add: 3, Change: 1, Destroy: 2, Replace: 1, Resources: []api.ResourceChange{
		of("gone", "delete"), of("replaced", "replace"), of("changed", "update"), of("half", "create"), of("made", "create"),
	}}
	if diff := cmp.Diff(want, engine.MadeByPulumi(before, after)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if got := engine.MadeByPulumi(before, before); got != nil {
		t.Errorf("of nothing: got %+v", got)
	}
}

// Variables win over the settings of the source, which else stay as they are; a key that only the state has kept is added.
func TestPulumi_VariablesBecomeSettings(t *testing.T) {
	before := lines("encryptionsalt: v1:own", "config:", "  word: old", "  demo:size: 3", "  aws:region: eu-west-1", "  demo:key: {secure: 'v1:abc'}", "  demo:since: 2020-01-01")
	out, err := engine.WithSettings(before, "name: demo", map[string]any{"word": "a \"b\"\n<c>", "demo:size": 12345678901.0, "aws:region": "eu-west-2", "list": []any{true, "x"}}, "v1:state")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	config, _ := got["config"].(map[string]any)
	want := map[string]any{
		"demo:word": "a \"b\"\n<c>", "demo:size": 12345678901, "aws:region": "eu-west-2", "demo:list": []any{true, "x"},
		"demo:key": map[string]any{"secure": "v1:abc"}, "demo:since": config["demo:since"],
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if got["encryptionsalt"] != "v1:own" || !strings.Contains(out, "since: 2020-01-01\n") {
		t.Errorf("the settings of the source were changed:\n%s", out)
	}
	const project = "name: demo\nconfig:\n  zones: {type: array, items: {type: string}}\n  demo:tags: {type: object}\n  text: {type: string}\n"
	texts := map[string]any{"demo:zones": `["a"]`, "tags": `{"b": 1}`, "text": `["c"]`, "other": `["d"]`}
	out, err = engine.WithSettings("", project, texts, "")
	if want := "config:\n    demo:zones: [\"a\"]\n    demo:other: \"[\\\"d\\\"]\"\n    demo:tags: {\"b\": 1}\n    demo:text: \"[\\\"c\\\"]\"\n"; err != nil || out != want {
		t.Errorf("texts of declared types: got %s, %v, want %s", out, err, want)
	}
	if out, err = engine.WithSettings("", "name: demo", nil, "v1:state"); err != nil || out != "encryptionsalt: \"v1:state\"\n" {
		t.Errorf("got %q, %v, want the salt that the state has kept", out, err)
	}
	if out, err = engine.WithSettings("- a\n", "name: demo", nil, ""); err == nil {
		t.Errorf("a list was taken for settings: %q", out)
	}
}

func TestPulumi_PlacesTheState(t *testing.T) {
	for name, tc := range map[string]struct {
		state    api.State
		url      string
		env      map[string]string
		address  string
		backend  string
		declared string
		says     string
	}{
		"bucket": {
			state:   api.State{Kind: api.StateS3, Key: "ws_1", Bucket: "b", Region: "eu-west-1", KMSKeyARN: "arn:aws:kms:eu-west-1:1:key/k"},
			address: "s3://b/default/ws_1?awssdk=v2&kmskeyid=arn%3Aaws%3Akms%3Aeu-west-1%3A1%3Akey%2Fk&region=eu-west-1&ssetype=aws%3Akms", backend: "s3",
		},
		"another service": {
			state:   api.State{Kind: api.StateS3, Key: "ws_1", Bucket: "b", Endpoint: "http://minio:9000"},
			address: "s3://b/default/ws_1?awssdk=v2&endpoint=http%3A%2F%2Fminio%3A9000&region=us-east-1&s3ForcePathStyle=true", backend: "s3",
		},
		"declared":          {state: api.State{Kind: api.StateSource, Default: api.StateDirectory}, url: "gs://b", backend: "gs"},
		"cloud":             {state: api.State{Kind: api.StateSource, Default: api.StateDirectory}, env: map[string]string{"PULUMI_ACCESS_TOKEN": "x"}, backend: "https"},
		"environment":       {state: api.State{Kind: api.StateSource}, url: "gs://b", env: map[string]string{"PULUMI_BACKEND_URL": "azblob://c"}, backend: "azblob"},
		"default":           {state: api.State{Kind: api.StateSource, Default: api.StateDirectory}, backend: "local"},
		"elsewhere":         {state: api.State{Kind: api.StateDirectory}, url: "gs://b", backend: "local", declared: "gs"},
		"nowhere":           {state: api.State{Kind: api.StateSource}, says: "would be lost"},
		"on the task alone": {state: api.State{Kind: api.StateSource}, url: "file://~", says: "would be lost"},
		"another setting":   {state: api.State{Kind: api.StateSource, BackendConfig: map[string]any{"a": "b"}}, url: "gs://b", says: "PULUMI_BACKEND_URL"},
		"another project":   {state: api.State{Kind: api.StateSource, Workspace: "acme/other/dev"}, url: "gs://b", says: "the project other"},
	} {
		j := engine.Job{Spec: api.Spec{Organization: "default", Workspace: "app", State: tc.state}, Getenv: func(name string) string { return tc.env[name] }}
		if j.Spec.State.Workspace == "" {
			j.Spec.State.Workspace = "acme/demo/dev"
		}
		address, is, err := engine.PlacePulumi(j, tc.url)
		if tc.says != "" {
			if f := failure(t, err); f.Reason != workflow.ReasonStateNotKept || !strings.Contains(f.Detail, tc.says) {
				t.Errorf("%s: got %s: %s", name, f.Reason, f.Detail)
			}
			continue
		}
		if err != nil || address != tc.address || is.Backend != tc.backend || is.Declared != tc.declared || len(is.Settings) != 64 {
			t.Errorf("%s: got %s, %+v, %v", name, address, is, err)
		}
	}
}

// The reason of a failure is the error that matters, not that something failed. The texts are those of the programs.
func TestPulumi_ReadsErrors(t *testing.T) {
	for name, tc := range map[string]struct{ want, printed string }{
		"of a resource": {"error: AccessDenied: no", lines(
			"Diagnostics:", "  pulumi:pulumi:Stack (demo-dev):", "    error: update failed", "", "  aws:s3:Bucket (a):", "    error: AccessDenied: no", "", "Resources:", "    3 unchanged")},
		"of a bridged provider": {"error: 1 error occurred: * creating S3 Bucket (x): BucketAlreadyExists", lines(
			"  aws:s3:Bucket (a):", "    error: 1 error occurred:", "    \t* creating S3 Bucket (x): BucketAlreadyExists", "", "  pulumi:pulumi:Stack (demo-dev):", "    error: update failed")},
		"nothing else": {"error: preview failed", "error: preview failed\n"},
		"protected": {
			"error: Preview failed: resource \"urn:pulumi:dev::demo::a:b:C::x\" cannot be deleted because it is protected. To unprotect the resource, either remove the `protect` flag from the resource in your Pulumi program and run `pulumi up`, or use the command: `pulumi state unprotect 'urn:pulumi:dev::demo::a:b:C::x'`",
			"error: Preview failed: resource \"urn:pulumi:dev::demo::a:b:C::x\" cannot be deleted\nbecause it is protected. To unprotect the resource, either remove the `protect` flag from the resource in your Pulumi program and run `pulumi up`, or use the command:\n`pulumi state unprotect 'urn:pulumi:dev::demo::a:b:C::x'`\n"},
		"node": {"TypeError: Cannot read properties of undefined (reading 'id')", lines(
			"error: preview failed", "error: Running program '/work/index.ts' failed with an unhandled exception:",
			"TypeError: Cannot read properties of undefined (reading 'id')", "    at Object.<anonymous> (/work/index.ts:4:13)", "    at Module._compile (node:internal/modules/cjs/loader:1554:14)")},
		"typescript": {"TSError: ⨯ Unable to compile TypeScript: index.ts(3,7): error TS2322: Type 'string' is not assignable to type 'number'.", lines(
			"    error: Running program '/work/index.ts' failed with an unhandled exception:", "    <ref *1> TSError: ⨯ Unable to compile TypeScript:",
			"    index.ts(3,7): error TS2322: Type 'string' is not assignable to type 'number'.", "    ")},
		"node alone": {"Error: Cannot find module './missing'", lines(
			"node:internal/modules/cjs/loader:1228", "  throw err;", "  ^", "", "Error: Cannot find module './missing'", "Require stack:", "- /work/index.js", "    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)",
			"error: an unhandled error occurred: Program exited with non-zero exit code: 1")},
		"python": {"ValueError: boom", lines(
			"  pulumi:pulumi:Stack (demo-dev):", "    error: Program failed with an unhandled exception:", "    Traceback (most recent call last):",
			"      File \"/work/__main__.py\", line 3, in <module>", "        raise ValueError(\"boom\")", "    ValueError: boom", "    ", "    error: an unhandled error occurred: Program exited with non-zero exit code: 1")},
		"python, in a chain": {"botocore.exceptions.ClientError: An error occurred (AccessDenied)", lines(
			"error: Program failed with an unhandled exception:", "Traceback (most recent call last):", "  File \"/work/__main__.py\", line 2, in <module>", "    {}['a']", "    ~~^^^^^", "KeyError: 'a'", "",
			"During handling of the above exception, another exception occurred:", "", "Traceback (most recent call last):", "  File \"/work/__main__.py\", line 4, in <module>", "    raise it", "botocore.exceptions.ClientError: An error occurred (AccessDenied)")},
		"python alone": {"SystemError: x", "Traceback (most recent call last):\n  File \"/work/__main__.py\", line 3, in <module>\n    run()\nSystemError: x\nerror: an unhandled error occurred: Program exited with non-zero exit code: 1"},
		"npm, refused": {"npm error FetchError: request to http://127.0.0.1:1/left-pad failed, reason: connect ECONNREFUSED 127.0.0.1:1", lines(
			"Installing dependencies...", "", "npm error code ECONNREFUSED", "npm error syscall connect", "npm error errno ECONNREFUSED",
			"npm error FetchError: request to http://127.0.0.1:1/left-pad failed, reason: connect ECONNREFUSED 127.0.0.1:1", "npm error     at ClientRequest.<anonymous> (/usr/lib/x.js:130:14)",
			"error: installing dependencies: rpc error: code = Unknown desc = npm install failed: exit status 1")},
		"npm, older": {"npm ERR! 404 Not Found - GET https://registry.npmjs.org/@pulumi%2fnope - Not found", lines(
			"npm ERR! code E404", "npm ERR! 404 Not Found - GET https://registry.npmjs.org/@pulumi%2fnope - Not found", "npm ERR! 404", "error: installing dependencies: exit status 1")},
		"npm, a certificate": {"npm error request to https://registry.npmjs.org/x failed, reason: self-signed certificate in certificate chain", lines(
			"npm error code SELF_SIGNED_CERT_IN_CHAIN", "npm error errno SELF_SIGNED_CERT_IN_CHAIN",
			"npm error request to https://registry.npmjs.org/x failed, reason: self-signed certificate in certificate chain", "error: installing dependencies: exit status 1")},
		"pip": {"ERROR: Could not find a version that satisfies the requirement nope (from versions: none)", lines(
			"Looking in indexes: http://127.0.0.1:1/", "ERROR: Could not find a version that satisfies the requirement nope (from versions: none)", "ERROR: No matching distribution found for nope",
			"error: installing dependencies: rpc error: code = Unknown desc = installing dependencies via 'python -m pip install -r requirements.txt': exit status 1: ERROR: Could not find it")},
		"pip, a certificate": {"WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/x/", lines(
			"WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))': /simple/x/",
			"ERROR: No matching distribution found for x", "error: installing dependencies: exit status 1")},
		"uv": {"× No solution found when resolving dependencies: ╰─▶ Because nope was not found in the package registry, your requirements are unsatisfiable.", lines(
			"  × No solution found when resolving dependencies:", "  ╰─▶ Because nope was not found in the package registry, your", "      requirements are unsatisfiable.", "", "error: error installing dependencies: exit status 1")},
		"uv, a certificate": {"error: Failed to fetch: `https://pypi.org/simple/x/` Caused by: client error (Connect) Caused by: invalid peer certificate: UnknownIssuer", lines(
			"error: Failed to fetch: `https://pypi.org/simple/x/`", "  Caused by: client error (Connect)", "  Caused by: invalid peer certificate: UnknownIssuer", "error: error installing dependencies: exit status 2")},
		"a plugin": {"error: could not load plugin for aws: x509: certificate signed by unknown authority", "error: could not load plugin for aws: x509: certificate signed by unknown authority"},
		"nothing":  {"", "Previewing update (dev):\n"},
	} {
		if got := engine.PulumiError(tc.printed); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if got := engine.LockOfPulumi("error: the stack is currently locked by 1 lock(s).\n  s3://b?region=x/.pulumi/locks/organization/p/s/ec3a.json: created by root@ip-1 (pid 478) at 2024-05-16T20:31:35Z\n"); got == nil || got.ID != "ec3a" || got.Who != "root@ip-1 (pid 478)" {
		t.Errorf("got %+v", got)
	}
}

func FuzzPulumiPreview(f *testing.F) {
	f.Add([]byte(pulumiPreview), []byte(`{"resourcePlans":{"urn:pulumi:dev::demo::pulumi:pulumi:Stack::x":{"goal":{"outputDiff":{"deletes":["a"]}}},"::::::":{"steps":["update"]}}}`), false)
	f.Add([]byte(`{"steps":[{"op":"delete","urn":"::::::"}],"changeSummary":{"update":-1}}`), []byte(`{"resourcePlans":{"":null}}`), true)
	f.Fuzz(func(t *testing.T, raw, plan []byte, refreshOnly bool) {
		changes, _, err := engine.ReadPreview(raw, plan, refreshOnly)
		if err == nil && len(changes.Resources) > 1000 {
			t.Errorf("%d resources", len(changes.Resources))
		}
	})
}

func FuzzPulumiState(f *testing.F) {
	f.Add([]byte(pulumiExport))
	f.Add([]byte(`{"checkpoint":{"latest":null}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, _, inventory, err := engine.ReadDeployment(raw)
		if err == nil && inventory.Resources != n {
			t.Errorf("%d resources, and %d in the inventory", n, inventory.Resources)
		}
	})
}

func FuzzPulumiSettings(f *testing.F) {
	f.Add("config: {a: b}\n", "v1:x")
	f.Add("config: &a {b: *a}", "")
	f.Fuzz(func(t *testing.T, raw, salt string) {
		out, err := engine.WithSettings(raw, "name: demo", map[string]any{"word": "x"}, salt)
		if err != nil {
			return
		}
		var doc struct{ Config map[string]any }
		if err := yaml.Unmarshal([]byte(out), &doc); err == nil && doc.Config["demo:word"] != "x" {
			t.Errorf("%q became %q", raw, out)
		}
	})
}
