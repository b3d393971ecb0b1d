package engine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/providercache/providercachetest"
	"github.com/dayfly-dev/dayfly/internal/runner/engine"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// shared is a cache of providers and a registry to fill it from.
type shared struct {
	*providercachetest.Registry
	store *providercache.Store
	dir   string
}

func newShared(t *testing.T) *shared {
	t.Helper()
	top := t.TempDir()
	s := &shared{Registry: providercachetest.New(t), dir: filepath.Join(top, "cache")}
	var err error
	if s.store, err = providercache.Open(providercache.Config{Dir: s.dir, Left: filepath.Join(top, "left"), Bytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	return s
}

// run is one with the cache, and what it left for it.
type run struct {
	host     *host
	job      engine.Job
	env      map[string]string
	packages string
	used     []string
}

// begin makes a run of these files that ends after init: what is published cannot plan. Its environment is as empty as
// that of a runner.
func (s *shared) begin(t *testing.T, name string, files map[string]string) *run {
	t.Helper()
	r := &run{job: job(t, name, workflow.StateList, files)}
	home := filepath.Join(r.job.TempDir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	r.env = map[string]string{"HOME": home, "SSL_CERT_FILE": s.CA}
	r.job.Providers = s.dir
	r.job.Getenv = func(name string) string { return r.env[name] }
	r.job.HandOverProviders = func(packages string, used []string) { r.packages, r.used = packages, used }
	return r
}

// run runs it.
func (r *run) run(t *testing.T) error {
	t.Helper()
	r.host = newHost()
	for name, value := range r.env {
		r.host.env = append(r.host.env, name+"="+value)
	}
	_, err := engine.Run(t.Context(), r.host, r.job)
	return err
}

// leave does what runner, launcher and agent do with what a run left.
func (s *shared) leave(t *testing.T, r *run) {
	t.Helper()
	work := t.TempDir()
	to := filepath.Join(work, providercache.TaskDir)
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if r.packages != "" {
		if err := os.Rename(r.packages, filepath.Join(to, providercache.TaskPackages)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.store.Take("task", work); err != nil {
		t.Fatal(err)
	}
	s.store.Collect(t.Context())
}

func TestProviders_AreFetchedOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		s := newShared(t)
		one, two := s.Publish(t, "one", "1.0.0", 1<<20), s.Publish(t, "two", "2.3.4", 1<<20)
		files := map[string]string{"main.tf": providercachetest.Module(one, two), ".terraform.lock.hcl": s.Lock(one, two)}
		first := s.begin(t, name, files)
		if err := first.run(t); err != nil {
			t.Fatalf("%v\n%s", err, first.host.text())
		}
		if fetched, _ := s.Fetched(); fetched["one/1.0.0"] != 1 || fetched["two/2.3.4"] != 1 {
			t.Errorf("the first run fetched %v, want each package once", fetched)
		}
		s.leave(t, first)

		second := s.begin(t, name, files)
		if err := second.run(t); err != nil {
			t.Fatalf("%v\n%s", err, second.host.text())
		}
		if fetched, bytes := s.Fetched(); len(fetched) != 0 {
			t.Errorf("the second run fetched %v, %d bytes, want nothing", fetched, bytes)
		}
		if said := second.host.steps[0].Text; !strings.HasSuffix(said, "; 2 of 2 providers from the cache, which spared a download of 2.0 MiB unpacked") {
			t.Errorf("init said %q", said)
		}
		if second.packages != "" || len(second.used) != 2 {
			t.Errorf("the second run leaves %q and used %q, want nothing new and both", second.packages, second.used)
		}
	})
}

func TestProviders_OfAFilledCacheAreSharedByManyAtOnce(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		s := newShared(t)
		one := s.Publish(t, "one", "1.0.0", 1<<20)
		files := map[string]string{"main.tf": providercachetest.Module(one), ".terraform.lock.hcl": s.Lock(one)}
		for _, want := range []int{20, 0} { // without the cache each fetches it once, too
			runs, errs := make([]*run, 20), make([]error, 20)
			for i := range runs {
				runs[i] = s.begin(t, name, files)
			}
			var all sync.WaitGroup
			for i := range runs {
				all.Go(func() { errs[i] = runs[i].run(t) })
			}
			all.Wait()
			for i, err := range errs {
				if err != nil {
					t.Fatalf("%v\n%s", err, runs[i].host.text())
				}
				s.leave(t, runs[i])
			}
			if fetched, _ := s.Fetched(); fetched["one/1.0.0"] != want {
				t.Errorf("20 runs fetched %v, want the package %d times", fetched, want)
			}
		}
		found, ok := providercache.Find(s.dir, providercache.Platform(), []string{one.Hash})
		if !ok {
			t.Fatal("the package is not in the cache")
		}
		for file, want := range one.Files {
			if got, err := os.ReadFile(filepath.Join(found.Path, file)); err != nil || string(got) != string(want) {
				t.Errorf("%s is not what was published: %v", file, err)
			}
		}
	})
}

// Somebody changed the cache after all: the engine compares with the lock file.
func TestProviders_AChangedPackageIsRefusedByTheEngine(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		s := newShared(t)
		one := s.Publish(t, "one", "1.0.0", 1<<10)
		files := map[string]string{"main.tf": providercachetest.Module(one), ".terraform.lock.hcl": s.Lock(one)}
		first := s.begin(t, name, files)
		if err := first.run(t); err != nil {
			t.Fatalf("%v\n%s", err, first.host.text())
		}
		s.leave(t, first)
		found, _ := providercache.Find(s.dir, providercache.Platform(), []string{one.Hash})
		program := filepath.Join(found.Path, "terraform-provider-one_v1.0.0")
		if err := os.Chmod(program, 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		if err := os.WriteFile(program, providercachetest.Program(t, 1<<10), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		second := s.begin(t, name, files)
		err := second.run(t)
		if err == nil || !strings.Contains(err.Error(), "checksums previously recorded in the dependency lock file") {
			t.Errorf("got %v, want a refusal by the engine:\n%s", err, second.host.text())
		}
	})
}

// The cache has a package with another content under the same source and version: a lock file never leads to it.
func TestProviders_AnotherHashIsNeverChosen(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		s := newShared(t)
		bad := s.Publish(t, "one", "1.0.0", 1<<10)
		poisoner := s.begin(t, name, map[string]string{"main.tf": providercachetest.Module(bad), ".terraform.lock.hcl": s.Lock(bad)})
		if err := poisoner.run(t); err != nil {
			t.Fatalf("%v\n%s", err, poisoner.host.text())
		}
		s.leave(t, poisoner)
		good := s.Publish(t, "one", "1.0.0", 1<<10)
		s.Fetched()
		victim := s.begin(t, name, map[string]string{"main.tf": providercachetest.Module(good), ".terraform.lock.hcl": s.Lock(good)})
		if err := victim.run(t); err != nil {
			t.Fatalf("%v\n%s", err, victim.host.text())
		}
		if fetched, _ := s.Fetched(); fetched["one/1.0.0"] != 1 || len(victim.used) != 0 {
			t.Errorf("it fetched %v and used %q, want the right package from the registry", fetched, victim.used)
		}
	})
}

func TestProviders_WhatIsConfiguredOtherwiseWins(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		s := newShared(t)
		one := s.Publish(t, "one", "1.0.0", 1<<10)
		module, lock := providercachetest.Module(one), s.Lock(one)
		files := map[string]string{"main.tf": module, ".terraform.lock.hcl": lock}
		first := s.begin(t, name, files)
		if err := first.run(t); err != nil {
			t.Fatalf("%v\n%s", err, first.host.text())
		}
		s.leave(t, first)
		config := filepath.Join(t.TempDir(), "empty.tfrc")
		put(t, filepath.Dir(config), map[string]string{"empty.tfrc": ""})
		s.Fetched()
		for what, c := range map[string]struct {
			files  map[string]string
			change func(r *run)
			said   string
		}{
			"no lock file":               {files: map[string]string{"main.tf": module}, said: "there is no .terraform.lock.hcl in the root module: commit the file that " + name + " providers lock -platform="},
			"no hash of an unpacked one": {files: map[string]string{"main.tf": module, ".terraform.lock.hcl": strings.Replace(lock, one.Hash, "zh:00", 1)}, said: ".terraform.lock.hcl has none of 1 provider"},
			"a configuration":            {files: files, change: func(r *run) { r.env["TF_CLI_CONFIG_FILE"] = config }, said: "the environment has TF_CLI_CONFIG_FILE"},
			"arguments":                  {files: files, change: func(r *run) { r.env["TF_CLI_ARGS_init"] = "-upgrade" }, said: "the environment has TF_CLI_ARGS_init"},
			"a flag":                     {files: files, change: func(r *run) { r.job.Spec.Flags = map[string][]string{"init": {"-upgrade"}} }, said: "flags of init have -upgrade"},
			"a file of the user": {files: files, change: func(r *run) {
				put(t, r.env["HOME"], map[string]string{".terraformrc": ""})
			}, said: ".terraformrc configures the engine"},
			"vendored providers": {files: map[string]string{"main.tf": module, ".terraform.lock.hcl": lock, "terraform.d/plugins/README": "x"}, said: filepath.Join("terraform.d", "plugins") + " configures the engine or has providers"},
		} {
			t.Run(what, func(t *testing.T) {
				r := s.begin(t, name, c.files)
				if c.change != nil {
					c.change(r)
				}
				if err := r.run(t); err != nil {
					t.Fatalf("%v\n%s", err, r.host.text())
				}
				if !strings.Contains(r.host.text(), c.said) {
					t.Errorf("the log does not say %q:\n%s", c.said, r.host.text())
				}
				if fetched, _ := s.Fetched(); fetched["one/1.0.0"] != 1 || len(r.used) != 0 {
					t.Errorf("it fetched %v and used %q, want the package from the registry", fetched, r.used)
				}
			})
		}
	})
}

// What the pool's mirror has comes from there, and the rest from the registry.
func TestProviders_ComeFromTheMirror(t *testing.T) {
	eachEngine(t, func(t *testing.T, name string) {
		s := newShared(t)
		one, two := s.Publish(t, "one", "1.0.0", 1<<10).Mirrored(), s.Publish(t, "two", "2.0.0", 1<<10)
		files := map[string]string{"main.tf": providercachetest.Module(one, two), ".terraform.lock.hcl": s.Lock(one, two)}
		r := s.begin(t, name, files)
		r.job.Providers, r.job.Mirror = "", s.Mirror()
		r.job.Mirrored = func(_ context.Context, source, version string) bool {
			return source == one.Source && version == "1.0.0"
		}
		if err := r.run(t); err != nil {
			t.Fatalf("%v\n%s", err, r.host.text())
		}
		if fetched, _ := s.Fetched(); fetched["mirror/one/1.0.0"] != 1 || fetched["two/2.0.0"] != 1 || len(fetched) != 2 {
			t.Errorf("it fetched %v, want one from the mirror and two from the registry", fetched)
		}
		if said := r.host.steps[0].Text; !strings.HasSuffix(said, "; 1 provider from the pool's mirror") {
			t.Errorf("init said %q", said)
		}
		other := s.begin(t, name, map[string]string{"main.tf": providercachetest.Module(one), ".terraform.lock.hcl": s.Lock(one)})
		other.job.Providers, other.job.Mirror, other.job.Mirrored = "", s.Mirror(), r.job.Mirrored
		s.Publish(t, "one", "1.0.0", 1<<10) // the mirror has another one now
		if err := other.run(t); err == nil || !strings.Contains(err.Error(), "checksums previously recorded in the dependency lock file") {
			t.Errorf("got %v, want a refusal by the engine:\n%s", err, other.host.text())
		}
	})
}

func TestProviders_OfAnUnsafeVersionAreNotLinked(t *testing.T) {
	for version, safe := range map[string]bool{
		"1.9.0": false, "1.10.9": false, "1.10.10-rc1": false, "1.10.10": true, "1.10.11": true, "1.10.11-beta1": true,
		"1.11.0-alpha1": false, "1.11.0": false, "1.11.6": false, "1.11.7-rc1": false, "1.11.7": true, "1.11.7+build": true,
		"1.12.0-alpha1": false, "1.12.0-rc2": false, "1.12.0": true, "1.12.1-dev": true, "1.13.0-alpha1": true, "2.0.0": true,
	} {
		if why := engine.UnsafeVersion(api.EngineTofu, version); (why == "") != safe {
			t.Errorf("OpenTofu %s: got %q, safe is %v", version, why, safe)
		}
		if why := engine.UnsafeVersion(api.EngineTerraform, version); why != "" {
			t.Errorf("Terraform %s: got %q, want that the cache is used", version, why)
		}
	}
	s := newShared(t)
	r := s.begin(t, api.EngineTofu, map[string]string{"main.tf": "", ".terraform.lock.hcl": s.Lock(s.Publish(t, "one", "1.0.0", 1<<10))})
	r.job.EnginePath = []string{filepath.Join(t.TempDir(), "bin")}
	fakeEngine(t, filepath.Join(r.job.EnginePath[0], "tofu"), "1.10.9", "init) exit 3 ;;")
	_ = r.run(t)
	if want := "the cache of providers is not used: OpenTofu 1.10.9 follows links where it installs providers (GHSA-wcmj-x466-56mm): take 1.10.10, 1.11.7 or a later release"; !strings.Contains(r.host.text(), want) {
		t.Errorf("the log does not say %q:\n%s", want, r.host.text())
	}
}

func TestReadLockFile(t *testing.T) {
	const ok = "provider \"registry.opentofu.org/hashicorp/local\" {\n  version     = \"1.4.0\"\n  constraints = \"~> 1.0\"\n  hashes = [\n    \"h1:a\", # why\n    \"zh:b\",\n  ]\n}\n"
	for src, want := range map[string]string{
		"": "[]", ok: "[{registry.opentofu.org/hashicorp/local 1.4.0 [h1:a zh:b]}]",
		ok + strings.ReplaceAll(ok, "local", "random"): "[{registry.opentofu.org/hashicorp/local 1.4.0 [h1:a zh:b]} {registry.opentofu.org/hashicorp/random 1.4.0 [h1:a zh:b]}]",
		strings.Replace(ok, "hashicorp", "..", 1):      "[]",
		strings.Replace(ok, "1.4.0", "../../x", 1):     "[]",
		strings.Replace(ok, "registry", "Registry", 1): "[]",
		strings.Replace(ok, "provider", "resource", 1): "[]",
		strings.Replace(ok, "\"1.4.0\"", "var.x", 1):   "[]",
		strings.Replace(ok, "hashes =", "others =", 1): "[{registry.opentofu.org/hashicorp/local 1.4.0 []}]",
		strings.TrimSuffix(ok, "}\n"):                  "[]",
		"}}}]])" + ok:                                  "[]",
		strings.Repeat("[{(", 100_000):                 "[]",
	} {
		if got := fmt.Sprint(engine.ReadLockFile([]byte(src))); got != want {
			t.Errorf("%.80q: got %s, want %s", src, got, want)
		}
	}
}
