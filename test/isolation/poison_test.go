package isolation_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// poison has jobs try to change the cache of providers, and leave for it what must not get into it. A victim is who has
// a lock file with the hash of the package that was there before.
func (w *world) poison() {
	cache := filepath.Join(w.Data, embedded.ProvidersDir)
	good, hash := w.cached(cache)
	b, err := os.ReadFile(filepath.Join(w.site.Source, "attack"))
	source := filepath.Join(filepath.Dir(w.site.Source), "poison")
	precious := filepath.Join(w.precious.dir, "precious")
	err = errors.Join(err, os.MkdirAll(source, 0o755), os.Chmod(source, 0o755), os.WriteFile(filepath.Join(source, "attack"), b, 0o755),
		os.WriteFile(filepath.Join(source, "platform"), []byte(providercache.Platform()), 0o644),
		os.WriteFile(filepath.Join(source, ".terraform.lock.hcl"), []byte(lockOf(hash)), 0o644))
	if err != nil {
		w.T.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(source) }()
	in := func(ws *api.Workspace) { ws.Source = api.Source{Directory: source} }
	at := cache
	if w.target == config.TargetDocker {
		at = "/dayfly/providers"
	}
	w.jobSucceeds("poison", "poison "+filepath.Join(at, "packages", filepath.Base(good))+" "+precious, in)
	for _, kind := range []string{"tree", "link", "many"} {
		name := "poison-" + kind
		w.put(name, "", in, func(ws *api.Workspace) {
			ws.Engine, ws.Commands = api.EngineTerraform, nil
			ws.Environment = map[string]string{"MODE": "mode:poison " + kind + " " + precious}
		})
		id := w.Submit(api.Submit{Workspace: name, Operation: workflow.StateList})
		w.Over(id)
		log := w.attempted(id)
		if !strings.Contains(log, "tried ") {
			w.T.Errorf("%s tried nothing:\n%s", name, log)
		}
	}
	uptest.Eventually(w.T, "what the jobs left is looked at", func() bool {
		left, err := os.ReadDir(filepath.Join(w.Data, "private", "providers-left"))
		return err == nil && len(left) == 0
	})
	found, ok := providercache.Find(cache, providercache.Platform(), []string{hash})
	got, err := dirhash.HashDir(good, "", dirhash.Hash1)
	w.tried("change the provider of the next job", ok && found.Path == good && err == nil && got == hash, "%s, %v", got, err)
	all, err := os.ReadDir(filepath.Dir(good))
	if err != nil || len(all) < 2 { // what the job left under the right name is there, under its own hash
		w.T.Errorf("the cache has %v, %v, want the good package and others", all, err)
	}
	for _, e := range all {
		is, err := dirhash.HashDir(filepath.Join(cache, "packages", e.Name()), "", dirhash.Hash1)
		w.tried("add a package under another hash than its own", err == nil && nameOf(w, is) == e.Name(), "%s is %s, %v", e.Name(), is, err)
		files, err := os.ReadDir(filepath.Join(cache, "packages", e.Name()))
		w.tried("add what is no package", err == nil && len(files) == 1 && files[0].Name() == "terraform-provider-one_v1.0.0", "%v, %v", files, err)
	}
}

// cached puts a package into the cache as the agent does, and returns its directory and its hash.
func (w *world) cached(cache string) (dir, hash string) {
	w.T.Helper()
	temp := filepath.Join(cache, "packages", ".seed")
	b, err := os.ReadFile(filepath.Join(w.site.Source, "attack"))
	err = errors.Join(err, os.MkdirAll(temp, 0o755), os.Chmod(temp, 0o755),
		os.WriteFile(filepath.Join(temp, "terraform-provider-one_v1.0.0"), append(b, "good"...), 0o555), os.Chmod(filepath.Join(temp, "terraform-provider-one_v1.0.0"), 0o555))
	if err != nil {
		w.T.Fatal(err)
	}
	hash, err = dirhash.HashDir(temp, "", dirhash.Hash1)
	name := nameOf(w, hash)
	dir = filepath.Join(cache, "packages", name)
	index := filepath.Join(cache, "index", providercache.Platform())
	err = errors.Join(err, os.Rename(temp, dir), os.MkdirAll(index, 0o755), os.Chmod(index, 0o755),
		os.WriteFile(filepath.Join(index, name), fmt.Appendf(nil, "%d\n", len(b)+4), 0o644))
	if err != nil {
		w.T.Fatal(err)
	}
	return dir, hash
}

func nameOf(w *world, hash string) string {
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(hash, "h1:"))
	if err != nil {
		w.T.Fatal(err)
	}
	return hex.EncodeToString(sum)
}

func lockOf(hash string) string {
	return fmt.Sprintf("provider \"registry.example.com/tests/one\" {\n  version = \"1.0.0\"\n  hashes = [\n    %q,\n  ]\n}\n", hash)
}
