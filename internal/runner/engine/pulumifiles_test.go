package engine_test

import (
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
	got, said, err := engine.ReadPreview([]byte(pulumiPreview), false)
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
	got, _, err = engine.ReadPreview([]byte(`{"steps":[{"op":"refresh","urn":"urn:pulumi:dev::demo::a:b:C::x"}],"changeSummary":{"update":2,"delete":1,"same":4}}`), true)
	if err != nil || got.Drift != 3 || len(got.Resources) != 0 {
		t.Errorf("got %+v, %v, want 3 that drifted", got, err)
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

func TestPulumi_ReadsErrors(t *testing.T) {
	printed := "Diagnostics:\n  pulumi:pulumi:Stack (demo-dev):\n    error: update failed\n  aws:s3:Bucket (a):\n    error: AccessDenied: no\n"
	if got := engine.PulumiError(printed); got != "error: AccessDenied: no" {
		t.Errorf("got %q", got)
	}
	if got := engine.PulumiError("error: preview failed\n"); got != "error: preview failed" {
		t.Errorf("got %q", got)
	}
	if got := engine.LockOfPulumi("error: the stack is currently locked by 1 lock(s).\n  s3://b?region=x/.pulumi/locks/organization/p/s/ec3a.json: created by root@ip-1 (pid 478) at 2024-05-16T20:31:35Z\n"); got == nil || got.ID != "ec3a" || got.Who != "root@ip-1 (pid 478)" {
		t.Errorf("got %+v", got)
	}
}

func FuzzPulumiPreview(f *testing.F) {
	f.Add([]byte(pulumiPreview), false)
	f.Add([]byte(`{"steps":[{"op":"delete","urn":"::::::"}],"changeSummary":{"update":-1}}`), true)
	f.Fuzz(func(t *testing.T, raw []byte, refreshOnly bool) {
		changes, _, err := engine.ReadPreview(raw, refreshOnly)
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
