package engine_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// The structure of a plan is said in full, and no value of it: not even what lies below the name of an attribute.
func TestReadPlan_SaysTheStructureAndNoValue(t *testing.T) {
	raw, err := os.ReadFile("testdata/structure.json")
	if err != nil {
		t.Fatal(err)
	}
	const provider = "registry.terraform.io/hashicorp/a"
	changes, truncated, _, err := engine.ReadPlan(raw, false)
	if err != nil || truncated {
		t.Fatalf("got %v, truncated %v", err, truncated)
	}
	want := api.Changes{
		Add: 1, Change: 2, Destroy: 3, Replace: 1, Import: 1, Move: 2, Forget: 1,
		Resources: []api.ResourceChange{
			{Address: "a.deleted", Action: "delete"},
			{Address: "a.deleted (deposed 1a2b3c4d)", Action: "delete"},
			{Address: `a.replaced["k"]`, Action: "replace", Changed: []string{"id", "name"}, Forces: []string{"block", "name"}},
			{Address: "a.forgotten", Action: "forget"},
			{Address: "a.imported", Action: "import", Imported: true},
			{Address: "a.moved", Action: "move", From: "a.before"},
			{Address: "a.moved_and_changed", Action: "update", From: "a.was", Changed: []string{"p"}},
			{Address: "a.updated", Action: "update", Provider: provider, Drifted: true, Changed: []string{"big", "computed", "gone", "list", "map", "marked", "nested", "text", "unmarked"}},
			{Address: "action.a_call.x", Action: "invoke", Provider: provider},
			{Address: "data.a.read", Action: "read"},
		},
		Outputs: []api.OutputChange{{Name: "new", Action: "create"}, {Name: "old", Action: "delete"}, {Name: "other", Action: "update"}},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	said, err := json.Marshal(changes)
	if err != nil || strings.Contains(string(said), "CANARY") {
		t.Errorf("a value is in what is said of the plan: %s, %v", said, err)
	}
}

// The digest of a summary is that of all of it, also of what does not fit, and of nothing else.
func TestReadPlan_DigestCoversAll(t *testing.T) {
	raw, err := os.ReadFile("testdata/structure.json")
	if err != nil {
		t.Fatal(err)
	}
	digest := engine.PlanDigest(raw)
	for range 20 { // the order of maps
		if got := engine.PlanDigest(raw); got != digest || len(got) != 64 {
			t.Fatalf("got %s, then %s", digest, got)
		}
	}
	if got := engine.PlanDigest(bytes.ReplaceAll(raw, []byte(`"CANARY"`), []byte(`"OTHER"`))); got != digest {
		t.Error("a value that is the same before and after counts")
	}
	for old, changed := range map[string]string{`"a.moved"`: `"a.moved2"`, `["name"]`: `["id"]`, `"other": {"actions": ["update"]`: `"other": {"actions": ["create"]`, `"computed": true`: `"computed": false`} {
		if got := engine.PlanDigest(bytes.Replace(raw, []byte(old), []byte(changed), 1)); got == digest {
			t.Errorf("%s in place of %s does not count", changed, old)
		}
	}
	long := func(last string) []byte {
		var b strings.Builder
		for i := range 3000 {
			fmt.Fprintf(&b, `{"address":"a.b%05d","change":{"actions":["create"]}},`, i)
		}
		return fmt.Appendf(nil, `{"format_version":"1.2","resource_changes":[%s{"address":"%s","change":{"actions":["create"]}}]}`, b.String(), last)
	}
	if engine.PlanDigest(long("z.1")) == engine.PlanDigest(long("z.2")) {
		t.Error("what does not fit does not count")
	}
}

// Large addresses and many names of outputs stay within bounds of their own.
func TestReadPlan_BoundsOfBytesAreKept(t *testing.T) {
	var b, outputs strings.Builder
	for i := range 900 {
		fmt.Fprintf(&b, `{"address":"a.%s%d","change":{"actions":["create"]}},`, strings.Repeat("x", 900), i)
		fmt.Fprintf(&outputs, `"%s%d":{"actions":["create"]},`, strings.Repeat("o", 300), i)
	}
	raw := fmt.Sprintf(`{"format_version":"1.2","resource_changes":[%s null],"output_changes":{%s "z":null}}`, b.String(), outputs.String())
	changes, truncated, _, err := engine.ReadPlan([]byte(raw), false)
	if err != nil || !truncated || changes.Add != 900 || len(changes.Resources) < 150 || len(changes.Outputs) < 100 {
		t.Fatalf("got %v, truncated %v, %d of %d resources, %d outputs", err, truncated, len(changes.Resources), changes.Add, len(changes.Outputs))
	}
	if text, _ := json.Marshal(changes); len(text) > 201<<10 {
		t.Errorf("got %d bytes", len(text))
	}
}

var madeOf = engine.Manifest{
	Format: 1, Organization: "default", WorkspaceID: "ws_1", Workspace: "app", For: workflow.Update, Engine: "tofu", EngineVersion: "1.10.0", Source: "commit",
	State: api.StateFound{Backend: "s3", Settings: "digest", Workspace: "default", Lineage: "l", Serial: 7}, Summary: "summary",
}

func TestStale_NamesWhatMoved(t *testing.T) {
	if got := engine.Stale(madeOf, madeOf); got != "" {
		t.Errorf("nothing moved, got %q", got)
	}
	for want, change := range map[string]func(m *engine.Manifest){
		"the form of plans was 1":       func(m *engine.Manifest) { m.Format = 2 },
		"the organization was default":  func(m *engine.Manifest) { m.Organization = "other" },
		"the workspace was app":         func(m *engine.Manifest) { m.Workspace = "other" },
		"the workspace's id was ws_1":   func(m *engine.Manifest) { m.WorkspaceID = "ws_2" },
		"the operation was update when": func(m *engine.Manifest) { m.For = workflow.Destroy },
		"force was false":               func(m *engine.Manifest) { m.Force = true },
		"the engine was tofu when the plan was made, and is terraform now": func(m *engine.Manifest) { m.Engine = "terraform" },
		"the engine's version was 1.10.0":                                  func(m *engine.Manifest) { m.EngineVersion = "1.10.1" },
		"the source was commit":                                            func(m *engine.Manifest) { m.Source = "other" },
		"backend http instead of s3":                                       func(m *engine.Manifest) { m.State.Backend = "http" },
		"other settings of the backend s3":                                 func(m *engine.Manifest) { m.State.Settings = "other" },
		"the engine's workspace dev instead of default":                    func(m *engine.Manifest) { m.State.Workspace = "dev" },
		"on another machine":                                               func(m *engine.Manifest) { m.State.Store = "other" },
		"the state's lineage was l when the plan was made, and is none now; the state's serial was 7": func(m *engine.Manifest) { m.State.Lineage, m.State.Serial = "", 0 },
		"the state's serial was 7 when the plan was made, and is 8 now":                               func(m *engine.Manifest) { m.State.Serial = 8 },
		"summary was summary": func(m *engine.Manifest) { m.Summary = "other" },
		"pushed was none":     func(m *engine.Manifest) { m.Entries = map[string]string{"state": "x"} },
	} {
		now := madeOf
		change(&now)
		if got := engine.Stale(madeOf, now); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	if got := engine.Stale(engine.Manifest{}, engine.Manifest{}); !strings.Contains(got, "does not name its source") {
		t.Errorf("a plan of an unknown source: %q", got)
	}
}

func TestBundle_IsReadOnlyAsItWasWritten(t *testing.T) {
	entries := func() map[string][]byte { return map[string][]byte{"plan": []byte("a plan"), "lock": []byte("a lock")} }
	raw, err := engine.Bundle(madeOf, entries())
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := engine.Bundle(madeOf, entries()); !bytes.Equal(raw, again) {
		t.Error("the same entries do not make the same bundle")
	}
	m, got, err := engine.ReadBundle(raw)
	if err != nil || string(got["plan"]) != "a plan" || string(got["lock"]) != "a lock" || len(got) != 3 {
		t.Fatalf("got %q, %v", got, err)
	}
	sums := m.Entries
	m.Entries = nil
	if diff := cmp.Diff(madeOf, m); diff != "" || len(sums) != 2 {
		t.Errorf("manifest (-want +got):\n%s", diff)
	}
	archive := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			data := got[h.Name]
			if h.Typeflag == 0 {
				h.Typeflag, h.Size = tar.TypeReg, int64(len(data))
			}
			if h.ModTime.IsZero() {
				h.ModTime = time.Unix(0, 0)
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				_, _ = w.Write(data)
			}
		}
		_ = w.Close()
		return b.Bytes()
	}
	of := func(name string) tar.Header { return tar.Header{Name: name, Mode: 0o600, Format: tar.FormatUSTAR} }
	if good := archive(of("manifest.json"), of("plan"), of("lock")); !bytes.Equal(good, raw) {
		t.Fatal("the test makes other archives than the package")
	}
	link, late, loose := of("lock"), of("lock"), of("lock")
	link.Typeflag, link.Linkname = tar.TypeSymlink, "plan"
	late.ModTime = time.Unix(1, 0)
	loose.Mode = 0o644
	swapped := maps.Clone(got)
	got["other"], got["state"] = []byte("x"), []byte("{}")
	for title, bad := range map[string][]byte{
		"nothing":             nil,
		"something after":     append(slices.Clone(raw), make([]byte, 512)...),
		"cut off":             raw[:len(raw)-600],
		"without its end":     raw[:len(raw)-1024],
		"another order":       archive(of("manifest.json"), of("lock"), of("plan")),
		"twice":               archive(of("manifest.json"), of("plan"), of("lock"), of("lock")),
		"an entry too many":   archive(of("manifest.json"), of("plan"), of("lock"), of("other")),
		"an unnamed entry":    archive(of("manifest.json"), of("plan"), of("state"), of("lock")),
		"an entry is missing": archive(of("manifest.json"), of("plan")),
		"no manifest":         archive(of("plan"), of("lock")),
		"a link":              archive(of("manifest.json"), of("plan"), link),
		"another time":        archive(of("manifest.json"), of("plan"), late),
		"another mode":        archive(of("manifest.json"), of("plan"), loose),
		"another plan":        bytes.Replace(raw, []byte("a plan"), []byte("a pwnd"), 1),
		"an unknown field":    bytes.Replace(raw, []byte(`"format"`), []byte(`"fromat"`), 1),
	} {
		if _, _, err := engine.ReadBundle(bad); err == nil {
			t.Errorf("%s: taken", title)
		}
	}
	delete(swapped, "plan")
	delete(swapped, "manifest.json")
	for title, parts := range map[string]map[string][]byte{"neither": swapped, "both": {"plan": nil, "state": nil}} {
		raw, err := engine.Bundle(madeOf, parts)
		if _, _, readErr := engine.ReadBundle(raw); err != nil || readErr == nil {
			t.Errorf("%s of plan and state: taken (%v)", title, err)
		}
	}
}

func FuzzReadBundle(f *testing.F) {
	for _, entries := range []map[string][]byte{{"plan": []byte("p"), "lock": []byte("l")}, {"state": []byte("{}")}} {
		raw, err := engine.Bundle(madeOf, entries)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, entries, err := engine.ReadBundle(raw)
		if err != nil {
			return
		}
		manifest := entries["manifest.json"]
		delete(entries, "manifest.json")
		again, err := engine.Bundle(m, entries)
		if err != nil || bytes.Equal(manifest, entries["manifest.json"]) && !bytes.Equal(raw, again) {
			t.Errorf("it is not what a bundle of these entries is: %v", err)
		}
	})
}
