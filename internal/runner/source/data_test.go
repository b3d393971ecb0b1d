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
	_, digest := s.Digest(t.Context(), dir, "")
	_, fetch := source.Fetch(t.Context(), source.Request{Source: api.Source{Directory: dir}, Dest: filepath.Join(t.TempDir(), "work"), Roots: s.Roots, Data: s.Data})
	return map[string]error{"digest": digest, "fetch": fetch, "copy": s.Copy(t.Context(), dir, "", filepath.Join(t.TempDir(), "copy"))}
}

// A data directory is no source: neither the agent's own nor another's.
func TestSources_DataDirectoriesAreRefused(t *testing.T) {
	home := tempDir(t)
	write(t, home, map[string]string{
		"code/main.tf": "x", "own/state/default/ws/terraform.tfstate": "{}", "own/private/admin-token": "t",
		"other/.dayfly-data": "", "other/state/default/ws/main.tf": "x",
		"above/deep/data/.dayfly-data": "", "above/main.tf": "x",
		"to-own": "->own", "to-state": "->other/state/default", "project/lock": "", "project/main.tf": "x",
	})
	s := source.Sources{Roots: []string{home}, Data: filepath.Join(home, "own")}
	for _, dir := range []string{
		"", "own", "own/state", "own/state/default/ws", "own/private", "other", "other/state", "other/state/default/ws",
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
	if err := s.Copy(t.Context(), app, "", dest); err != nil {
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

// With a path all of the directory is copied, and only what the engine left beside the root module counts as state.
func TestSources_OfAPathAreTheWholeDirectory(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{
		"repo/.git/config": "token", "repo/modules/vpc/main.tf": "module", "repo/modules/vpc/.terraform/environment": "z", "repo/terraform.tfstate": "another's",
		"repo/envs/test/terraform.tfstate": "another's", "repo/envs/prod/main.tf": "x", "repo/envs/prod/shared": "->../../modules/vpc",
		"repo/envs/prod/terraform.tfstate": "own", "repo/envs/prod/terraform.tfstate.d/eu/terraform.tfstate": "own of eu",
		"repo/envs/prod/.terraform/environment": "eu", "repo/envs/prod/.terraform/modules/modules.json": "left",
		"repo/envs/prod/sub/some.tfstate": "whose", "repo/current": "->envs/prod",
	})
	repo, s := filepath.Join(top, "repo"), source.Sources{Roots: []string{top}}
	given := filepath.Join(t.TempDir(), "given")
	if err := s.Copy(t.Context(), repo, "envs/prod", given); err != nil {
		t.Fatal(err)
	}
	code := map[string]string{
		"current": "->envs/prod", "modules/": "", "modules/vpc/": "", "modules/vpc/main.tf": "module", "envs/": "", "envs/test/": "", "envs/prod/": "",
		"envs/prod/main.tf": "x", "envs/prod/shared": "->../../modules/vpc", "envs/prod/sub/": "",
	}
	for from, whose := range map[string]string{repo: "whose", given: ""} {
		work, aside := filepath.Join(t.TempDir(), "work"), t.TempDir()
		r := source.Request{Source: api.Source{Directory: from, Path: "envs/prod"}, Dest: work, Aside: aside, Roots: []string{from}}
		fetched, err := source.Fetch(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if fetched.Root != filepath.Join(work, "envs/prod") || fetched.Aside != filepath.Join(aside, "envs/prod") {
			t.Errorf("got %+v", fetched)
		}
		if sum, err := s.Digest(t.Context(), repo, "envs/prod"); err != nil || sum != fetched.Digest {
			t.Errorf("digest of the directory %q, %v; of what was fetched from %s: %q", sum, err, from, fetched.Digest)
		}
		if diff := cmp.Diff(code, read(t, work)); diff != "" {
			t.Errorf("code from %s (-want +got):\n%s", from, diff)
		}
		want := map[string]string{
			"terraform.tfstate": "own", "terraform.tfstate.d/": "", "terraform.tfstate.d/eu/": "", "terraform.tfstate.d/eu/terraform.tfstate": "own of eu",
			".terraform/": "", ".terraform/environment": "eu", "sub/": "", "sub/some.tfstate": whose,
		}
		if diff := cmp.Diff(want, read(t, fetched.Aside)); diff != "" {
			t.Errorf("set aside from %s (-want +got):\n%s", from, diff)
		}
		for path, says := range map[string]string{"envs/none": "no directory", "envs/prod/main.tf": "no directory", "current": "symbolic link", "envs/prod/shared/x": "symbolic link"} {
			r.Source.Path, r.Dest, r.Aside = path, filepath.Join(t.TempDir(), "work"), ""
			if refusal, ok := errors.AsType[*workflow.Error](second(source.Fetch(t.Context(), r))); !ok || refusal.Field != "source.path" || !strings.Contains(refusal.Error(), says) {
				t.Errorf("%s: got %v, want it refused with %q", path, refusal, says)
			}
		}
	}
	before, err := s.Digest(t.Context(), repo, "envs/prod")
	if err != nil {
		t.Fatal(err)
	}
	write(t, top, map[string]string{"repo/modules/vpc/main.tf": "changed"})
	if after, err := s.Digest(t.Context(), repo, "envs/prod"); err != nil || after == before {
		t.Errorf("a module was changed, and the digest is %q (%v) as before", after, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestSources_CopyEndsWithItsContext(t *testing.T) {
	top := tempDir(t)
	write(t, top, map[string]string{"one": "x"})
	why := errors.New("nobody wants it")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := (source.Sources{Roots: []string{top}}).Copy(ctx, top, "", filepath.Join(t.TempDir(), "given")); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	r := source.Interruptible(ctx, strings.NewReader("a long file"))
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, why) {
		t.Errorf("got %d bytes, %v, want %v", n, err, why)
	}
}
