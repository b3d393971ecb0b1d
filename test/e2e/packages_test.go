package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// installer stands in for pulumi and its package managers: it notes what is in the cache, and whether that is its own.
const installer = `#!/bin/sh
case "$1 $2" in
"version "*) echo v3.274.1 ;;
"stack export"*) echo "error: no stack named 'dev' found" >&2; exit 6 ;;
"install "*)
	for dir in "$npm_config_cache" "$UV_CACHE_DIR"; do
		mkdir -p "$dir" && echo "cache has [$(cat "$dir"/* 2>/dev/null)]" && echo package >"$dir/one" && chmod 600 "$dir/one" || exit 1
		[ "$(stat -c %u "$dir/..")" = "$(id -u)" ] || { echo "error: the cache is that of another user" >&2; exit 1; }
	done
	[ -z "$BROKEN" ] || exit 1 ;;
"preview "*) echo '{"steps":[],"changeSummary":{}}' ;;
esac
`

// A workspace's runs get the cache that the run before has filled, each as its own user; another workspace's do not.
func TestPackages_AreKeptForEachWorkspace(t *testing.T) {
	w := start(t, func(c *embedded.UpConfig) {
		c.Agent.Settings.ProviderCache = true
		bin := filepath.Join(filepath.Dir(c.Agent.Settings.SourceRoots[0]), "bin")
		if err := errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(filepath.Join(bin, "pulumi"), []byte(installer), 0o755)); err != nil {
			t.Fatal(err)
		}
		c.Agent.Path = bin + ":" + os.Getenv("PATH")
	})
	program := filepath.Join(w.Source, "program")
	if err := errors.Join(os.Mkdir(program, 0o755), os.WriteFile(filepath.Join(program, "Pulumi.yaml"), []byte("name: demo\nruntime: nodejs\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	preview := func(workspace string, env map[string]string, want string, ends workflow.State) {
		t.Helper()
		if _, _, err := w.Client.PutWorkspace(t.Context(), api.Workspace{Name: workspace, State: &api.State{Workspace: "dev"}, RunSettings: api.RunSettings{
			Engine: api.EnginePulumi, Source: api.Source{Directory: program}, Environment: env,
		}}); err != nil {
			t.Fatal(err)
		}
		id := w.Submit(api.Submit{Workspace: workspace, Operation: workflow.Preview})
		got := w.Over(id)
		log := w.Log(id, 1)
		if got.State != ends || strings.Count(log, "cache has ["+want+"]") != 2 {
			t.Fatalf("%s ended as %s (%s), and its log is\n%s", workspace, got.State, got.Detail, log)
		}
		uptest.Eventually(t, "the cache is taken back", func() bool {
			lent, err := os.ReadDir(filepath.Join(w.Data, "private", "packages", ".lent"))
			return err == nil && len(lent) == 0
		})
	}
	preview("one", nil, "", workflow.Succeeded)
	preview("one", nil, "package", workflow.Succeeded)
	preview("two", nil, "", workflow.Succeeded)
	preview("one", map[string]string{"BROKEN": "1"}, "package", workflow.Failed)
	preview("one", nil, "", workflow.Succeeded) // it may have been why
	left, err := os.ReadDir(filepath.Join(w.Data, "private", "packages"))
	if err != nil || len(left) != 3 { // one for each workspace, and the notes
		t.Errorf("the agent has %v, %v", left, err)
	}
}
