package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/providercache/providercachetest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

// R13: jobs of a pool that says so share providers; many at once, with an empty cache and with a filled one.
func TestProviders_AreSharedByTheJobsOfAnAgent(t *testing.T) {
	for _, name := range []string{api.EngineTerraform, api.EngineTofu} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not on this machine", name)
			}
			const many = 20
			registry := providercachetest.New(t)
			one, two := registry.Publish(t, "one", "1.0.0", 1<<20), registry.Publish(t, "two", "2.0.0", 1<<20)
			w := start(t, func(c *embedded.UpConfig) {
				c.Agent.Settings.ProviderCache = true
				c.Agent.Settings.Concurrency = many
				c.Agent.Path = os.Getenv("PATH")
			})
			module := filepath.Join(w.Source, "module")
			if err := errors.Join(
				os.Mkdir(module, 0o755),
				os.WriteFile(filepath.Join(module, "main.tf"), []byte(providercachetest.Module(one, two)), 0o644),
				os.WriteFile(filepath.Join(module, ".terraform.lock.hcl"), []byte(registry.Lock(one, two)), 0o644),
			); err != nil {
				t.Fatal(err)
			}
			for i := range many {
				if _, _, err := w.Client.PutWorkspace(t.Context(), api.Workspace{
					Name: fmt.Sprintf("ws-%02d", i), RunSettings: api.RunSettings{
						Engine: name, Source: api.Source{Directory: module},
						Environment: map[string]string{"SSL_CERT_FILE": registry.CA},
					},
				}); err != nil {
					t.Fatal(err)
				}
			}
			cached := func(p providercachetest.Package) bool {
				_, ok := providercache.Find(filepath.Join(w.Data, embedded.ProvidersDir), providercache.Platform(), []string{p.Hash})
				return ok
			}
			all := func() (texts []string) {
				t.Helper()
				var ids []string
				for i := range many { // listing a state ends after init: what is published cannot plan
					ids = append(ids, w.Submit(api.Submit{Workspace: fmt.Sprintf("ws-%02d", i), Operation: workflow.StateList}))
				}
				for _, id := range ids {
					got := w.Over(id)
					w.wants(got, workflow.Succeeded, workflow.ReasonNone)
					for _, s := range got.Steps {
						if s.Name == "init" {
							texts = append(texts, s.Text)
						}
					}
				}
				return texts
			}
			all()
			if fetched, _ := registry.Fetched(); fetched["one/1.0.0"] > many || fetched["two/2.0.0"] > many {
				t.Errorf("with an empty cache, %d jobs fetched %v, want each package at most as often", many, fetched)
			}
			uptest.Eventually(t, "the packages are in the cache", func() bool { return cached(one) && cached(two) })
			for _, text := range all() {
				if !strings.HasSuffix(text, "; 2 of 2 providers from the cache, which spared a download of 2.0 MiB unpacked") {
					t.Errorf("init said %q", text)
				}
			}
			if fetched, _ := registry.Fetched(); len(fetched) > 0 {
				t.Errorf("with a filled cache they fetched %v", fetched)
			}
			uptest.Eventually(t, "nothing waits to be taken into the cache", func() bool {
				left, err := os.ReadDir(filepath.Join(w.Data, "private", "providers-left"))
				return err == nil && len(left) == 0
			})
		})
	}
}
