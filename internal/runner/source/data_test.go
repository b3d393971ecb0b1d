package source_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// everywhere calls each way in which a directory is copied or looked at, and returns the errors by its name.
func everywhere(t *testing.T, s source.Sources, dir string) map[string]error {
	t.Helper()
	_, digest := s.Digest(t.Context(), dir)
	_, fetch := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: dir}, Dest: filepath.Join(t.TempDir(), "work"), Roots: s.Roots, Data: s.Data})
	return map[string]error{"digest": digest, "fetch": fetch, "copy": s.Copy(t.Context(), dir, filepath.Join(t.TempDir(), "copy"))}
}

// A data directory is no source: neither the agent's own nor another's, of this version or one before.
func TestSources_DataDirectoriesAreRefused(t *testing.T) {
	home := tempDir(t)
	write(t, home, map[string]string{
		"code/main.tf": "x", "own/state/default/ws/terraform.tfstate": "{}", "own/private/admin-token": "t",
		"other/.dayfly-data": "", "other/state/default/ws/main.tf": "x",
		"old/lock": "", "old/dayfly.db": "", "old/secrets/db": "x", "older/lock": "", "older/ticket-keys.json": "{}",
		"above/deep/data/.dayfly-data": "", "above/main.tf": "x",
		"to-own": "->own", "to-state": "->other/state/default", "project/lock": "", "project/main.tf": "x",
	})
	s := source.Sources{Roots: []string{home}, Data: filepath.Join(home, "own")}
	for _, dir := range []string{
		"", "own", "own/state", "own/state/default/ws", "own/private", "other", "other/state", "other/state/default/ws", "old", "old/secrets", "older",
		"to-own", "to-state", "to-state/ws", "above", "above/deep", "above/deep/data",
	} {
		errs := everywhere(t, s, filepath.Join(home, dir))
		if dir != "above" && dir != "above/deep" { // what another's contains is found by copying
			errs["check"] = s.Check(filepath.Join(home, dir))
		}
		for how, err := range errs {
			if !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), "data directory") {
				t.Errorf("%s of %q: got %v, want it refused as a data directory", how, dir, err)
			}
		}
	}
	for _, dir := range []string{"code", "project"} {
		errs := everywhere(t, s, filepath.Join(home, dir))
		errs["check"] = s.Check(filepath.Join(home, dir))
		for how, err := range errs {
			if err != nil {
				t.Errorf("%s of %q: %v", how, dir, err)
			}
		}
	}
	if got := source.DataAbove(filepath.Join(home, "other/state/default/ws")); got != filepath.Join(home, "other") {
		t.Errorf("above: got %q", got)
	}
	if got := source.DataAbove(filepath.Join(home, "code")); got != "" {
		t.Errorf("above the code: got %q", got)
	}
}

// To link to a file takes less than to read it.
func TestSources_HardLinksToFilesOfOthersAreRefused(t *testing.T) {
	home := tempDir(t)
	write(t, home, map[string]string{"own/private/admin-token": "t", "code/a": "1", "code/sub/b": "2", "others": "secret"})
	link := func(from, to string) {
		t.Helper()
		if err := os.Link(filepath.Join(home, from), filepath.Join(home, to)); err != nil {
			t.Fatal(err)
		}
	}
	s := source.Sources{Roots: []string{home}, Data: filepath.Join(home, "own")}
	code := filepath.Join(home, "code")
	link("code/a", "code/same")
	for how, err := range everywhere(t, s, code) {
		if err != nil {
			t.Errorf("%s of a file with two names: %v", how, err)
		}
	}
	link("own/private/admin-token", "code/sub/token")
	for how, err := range everywhere(t, s, code) {
		if !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), `"sub/token"`) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s of a file of the data directory: got %v", how, err)
		}
	}
	if os.Geteuid() != 0 {
		return // nobody else's file can be made
	}
	if err := errors.Join(os.Remove(filepath.Join(code, "sub/token")), os.Chown(filepath.Join(home, "others"), 4711, 4711)); err != nil {
		t.Fatal(err)
	}
	link("others", "code/sub/theirs")
	for how, err := range everywhere(t, s, code) {
		if !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), `"sub/theirs"`) || !strings.Contains(err.Error(), "put a copy") {
			t.Errorf("%s of another's file: got %v", how, err)
		}
	}
}

// A container's copy has nothing that a run would leave out, but the state that the root module's own engine left. The
// runner makes of it what it makes of the directory.
func TestSources_CopyHasWhatARunTakesAndNoMore(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{
		"app/main.tf": "x", "app/script": "y", "app/link": "->main.tf", "app/modules/net/main.tf": "module", "app/states/mine.tfstate": "of whom",
		"app/.git/config": "token", "app/modules/net/.terraform/environment": "z", "app/modules/net/terraform.tfstate": "others",
		"app/modules/net/terraform.tfstate.d/dev/terraform.tfstate": "others", "app/terraform.tfstate.backup": "old", "app/.terraform/providers/p": "binary",
		"app/terraform.tfstate": "own", "app/prod.tfstate": "own", "app/terraform.tfstate.d/dev/terraform.tfstate": "own of dev",
		"app/.terraform/environment": "dev", "app/.terraform/terraform.tfstate": "backend",
	})
	app := filepath.Join(top, "app")
	if err := os.Chmod(filepath.Join(app, "script"), 0o755); err != nil { //nolint:gosec // a script
		t.Fatal(err)
	}
	s := source.Sources{Roots: []string{top}}
	dest := filepath.Join(t.TempDir(), "given")
	if err := s.Copy(t.Context(), app, dest); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"main.tf": "x", "script": "y", "link": "->main.tf", "modules/": "", "modules/net/": "", "modules/net/main.tf": "module", "states/": "",
		"terraform.tfstate": "own", "prod.tfstate": "own", "terraform.tfstate.d/": "", "terraform.tfstate.d/dev/": "", "terraform.tfstate.d/dev/terraform.tfstate": "own of dev",
		".terraform/": "", ".terraform/environment": "dev", ".terraform/terraform.tfstate": "backend",
		"states/mine.tfstate": "", "modules/net/terraform.tfstate": "", "modules/net/terraform.tfstate.d/": "",
		"modules/net/terraform.tfstate.d/dev/": "", "modules/net/terraform.tfstate.d/dev/terraform.tfstate": "",
	}
	if diff := cmp.Diff(want, read(t, dest)); diff != "" {
		t.Errorf("copy (-want +got):\n%s", diff)
	}

	fetch := func(dir string) (source.Fetched, map[string]string, map[string]string) {
		t.Helper()
		work, aside := filepath.Join(t.TempDir(), "work"), t.TempDir()
		fetched, err := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: dir}, Dest: work, Aside: aside, Roots: []string{dir}})
		if err != nil {
			t.Fatal(err)
		}
		return fetched, read(t, work), read(t, aside)
	}
	direct, code, aside := fetch(app)
	handed, code2, aside2 := fetch(dest)
	if direct.Digest != handed.Digest {
		t.Error("the copy has another digest than the directory")
	}
	if diff := cmp.Diff(code, code2); diff != "" {
		t.Errorf("code (-of the directory +of the copy):\n%s", diff)
	}
	for name := range aside {
		if name == "states/mine.tfstate" || strings.HasPrefix(name, "modules/") && !strings.HasSuffix(name, "/") {
			aside[name] = ""
		}
	}
	if diff := cmp.Diff(aside, aside2); diff != "" {
		t.Errorf("set aside (-of the directory +of the copy):\n%s", diff)
	}
}

func TestSources_CopyEndsWithItsContext(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{"one": "x"})
	why := errors.New("nobody wants it")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := (source.Sources{Roots: []string{top}}).Copy(ctx, top, filepath.Join(t.TempDir(), "given")); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	r := source.Interruptible(ctx, strings.NewReader("a long file"))
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, why) {
		t.Errorf("got %d bytes, %v, want %v", n, err, why)
	}
}
