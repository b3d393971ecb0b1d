package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestArtifact_IsListedAndCopiedFromThisMachine(t *testing.T) {
	w := newWorld(t)
	w.workspace("net")
	w.ok("run", "net")
	job, runner := w.claim()
	sum := sha256.Sum256([]byte("bill of materials"))
	digest := hex.EncodeToString(sum[:])
	announce := func(place api.Place, names ...string) (taken api.ArtifactsTaken) {
		t.Helper()
		in := api.NewArtifacts{Place: &place, Placed: names}
		for _, name := range names {
			in.Artifacts = append(in.Artifacts, api.NewArtifact{Name: name, Kind: api.ArtifactFile, Size: 17, SHA256: digest})
		}
		taken, err := runner.Artifacts(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	has(t, "list of none", w.ok("artifact", "list", job.ID), "no artifacts")
	here := announce(api.Place{Kind: api.PlaceDirectory}, "files/sbom.json", "files/elsewhere", "files/changed").Artifacts
	announce(api.Place{Kind: api.PlaceS3, Bucket: "artifacts"}, "files/far")
	if _, err := runner.Artifacts(t.Context(), api.NewArtifacts{
		Place: &api.Place{Kind: api.PlaceDirectory}, Artifacts: []api.NewArtifact{{Name: "files/lost", Kind: api.ArtifactFile, Size: 17, SHA256: digest}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Succeeded}); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	base := filepath.Join(data, embedded.ArtifactsDir)
	if err := os.Mkdir(filepath.Dir(base), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := artifact.NewDirectory(base)
	for _, one := range []api.Artifact{here[0], here[2]} {
		if err := kept.Keep(one.Place.Key, one, strings.NewReader("bill of materials")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, here[2].Place.Key), []byte("bill of materialS"), 0o600); err != nil {
		t.Fatal(err)
	}

	has(t, "list", w.ok("artifact", "list", job.ID), "files/sbom.json", digest[:12], "agent test of pool default", "s3://artifacts/runs/default/", "it never arrived")
	to := filepath.Join(t.TempDir(), "sbom.json")
	has(t, "get", w.ok("artifact", "get", job.ID, "files/sbom.json", "--to", to, "--data", data), to)
	if text, err := os.ReadFile(to); err != nil || string(text) != "bill of materials" {
		t.Errorf("got %q, %v", text, err)
	}
	for name, tc := range map[string]struct {
		artifact, to, want string
	}{
		"the file exists":     {"files/sbom.json", to, "exists already"},
		"another machine":     {"files/elsewhere", to + ".2", "it lies with agent test of pool default"},
		"changed bytes":       {"files/changed", to + ".2", "SHA-256 is another"},
		"a bucket":            {"files/far", to + ".2", "the region of the bucket"},
		"bytes never arrived": {"files/lost", to + ".2", "has no artifact files/lost"},
		"another name":        {"files/none", to + ".2", "has no artifact files/none"},
	} {
		got := w.run("artifact", "get", job.ID, tc.artifact, "--to", tc.to, "--data", data)
		if got.code == 0 || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v, want the one file", left, err)
	}
}
