package bench_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/providercache/providercachetest"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// BenchmarkProviderCache compares 20 runs of init at once, with OpenTofu or else Terraform against a registry of this
// machine, without the cache of providers and with a filled one, in turns. The registry answers as fast as the machine
// can: over a real network the cache saves more time than here.
func BenchmarkProviderCache(b *testing.B) {
	engine := api.EngineTofu
	if _, err := exec.LookPath(engine); err != nil {
		engine = api.EngineTerraform
	}
	if _, err := exec.LookPath(engine); err != nil {
		b.Skip("neither tofu nor terraform is on this machine")
	}
	const many, size = 20, 50 << 20
	registry := providercachetest.New(b)
	one := registry.Publish(b, "one", "1.0.0", size)
	var worlds []*world
	for _, cached := range []bool{false, true} {
		w := open(b, many, func(c *embedded.AgentConfig) { c.Settings.ProviderCache = cached })
		module := filepath.Join(w.source, "module")
		check(b, errors.Join(
			os.Mkdir(module, 0o755), os.Chmod(module, 0o755),
			os.WriteFile(filepath.Join(module, "main.tf"), []byte(providercachetest.Module(one)), 0o644),
			os.WriteFile(filepath.Join(module, ".terraform.lock.hcl"), []byte(registry.Lock(one)), 0o644),
		))
		for i := range many {
			_, _, err := w.cl.PutWorkspace(b.Context(), api.Workspace{
				Name: fmt.Sprintf("ws-%02d", i), RunSettings: api.RunSettings{
					Engine: engine, Source: api.Source{Directory: module},
					Environment: map[string]string{"SSL_CERT_FILE": registry.CA},
				},
			})
			check(b, err)
		}
		worlds = append(worlds, w)
	}
	without, with := worlds[0], worlds[1]
	with.inits(b, 1) // fills the cache
	for {
		_, ok := providercache.Find(filepath.Join(filepath.Dir(with.source), "data", embedded.ProvidersDir), providercache.Platform(), []string{one.Hash})
		if ok {
			break
		}
		check(b, wait.For(b.Context(), 50*time.Millisecond))
	}
	registry.Fetched()
	var took [2][]float64 // seconds of all inits together, until the last one has ended
	var bytes [2]int64
	for range quick(7, 2) {
		for i, w := range []*world{without, with} {
			begun := time.Now()
			w.inits(b, many)
			took[i] = append(took[i], time.Since(begun).Seconds())
			_, n := registry.Fetched()
			bytes[i] += n
		}
	}
	rounds := int64(len(took[0]))
	b.Logf("%d inits at once with %s and a provider of %.0f MB, %d rounds in turns", many, engine, mb(size), rounds)
	b.Logf("without the cache: %s s, %.0f MB downloaded", middle(took[0], 1), mb(bytes[0]/rounds))
	b.Logf("with a filled one: %s s, %.0f MB downloaded", middle(took[1], 1), mb(bytes[1]/rounds))
	judge(b, bytes[1] == 0 && bytes[0] >= rounds*many*size, "bytes that 20 inits download with a filled cache", fmt.Sprintf("%.0f MB instead of %.0f MB", mb(bytes[1]/rounds), mb(bytes[0]/rounds)), "0")
	metric(b, mb((bytes[0]-bytes[1])/rounds), "MB-saved")
}

// inits runs so many inits at once: to list a state ends after it.
func (w *world) inits(b *testing.B, n int) {
	b.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			wf, err := w.cl.Submit(b.Context(), api.Submit{Workspace: fmt.Sprintf("ws-%02d", i), Operation: workflow.StateList})
			for err == nil && !wf.State.Terminal() {
				if err = wait.For(b.Context(), 50*time.Millisecond); err == nil {
					wf, err = w.cl.Workflow(b.Context(), wf.ID)
				}
			}
			if err != nil || wf.State != workflow.Succeeded {
				b.Errorf("init: %v, %s (%s): %s", err, wf.State, wf.Reason, wf.Detail)
			}
		})
	}
	all.Wait()
}
