package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// R6: a launch is told which secrets of its machine the run names, and its directory; never a value.
func TestClaim_NamesWhatTheRunNeedsOfItsMachine(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("dir", func(ws *api.Workspace) {
		ws.Source.Directory = "/src/dir"
		ws.Secrets = []api.Secret{{Env: "A", Ref: "file:a"}, {File: "b", Ref: "file:a"}, {Env: "C", Ref: "env:C"}, {Env: "D", Ref: "file:" + strings.Repeat("x", 500)}}
	})
	w.submit("dir", workflow.Update)
	job := w.claimOne()
	if job.SourceDirectory != "/src/dir" || !slices.Equal(job.SecretRefs, []string{"file:a"}) {
		t.Errorf("got %q and %q", job.SourceDirectory, job.SecretRefs)
	}
	w.workspace("git", func(ws *api.Workspace) {
		ws.Source = api.Source{Git: &api.GitSource{URL: "https://git.example.com/a.git", TokenRef: "file:git"}}
	})
	w.submit("git", workflow.Preview)
	job = w.claimOne()
	if job.SourceDirectory != "" || !slices.Equal(job.SecretRefs, []string{"file:git"}) {
		t.Errorf("got %q and %q", job.SourceDirectory, job.SecretRefs)
	}
}
