package controlplane_test

import (
	"fmt"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// benchWorld is a world without a *testing.T.
type benchWorld struct {
	plane       *controlplane.Plane
	admin, pool controlplane.Principal
}

func newBenchWorld(b *testing.B, st store.Store) *benchWorld {
	b.Helper()
	w := &benchWorld{plane: controlplane.New(st, controlplane.Config{OrganizationLimit: 1 << 30})}
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	token, err := w.plane.Bootstrap(b.Context(), "default")
	must(err)
	w.admin, err = w.plane.Authenticate(b.Context(), token)
	must(err)
	token, err = w.plane.EnsurePoolToken(b.Context(), "default", "default", "agent")
	must(err)
	w.pool, err = w.plane.Authenticate(b.Context(), token)
	must(err)
	return w
}

func (w *benchWorld) lifecycle(b *testing.B, n int) error {
	if _, err := w.plane.Submit(b.Context(), w.admin, "", api.Submit{Workspace: fmt.Sprintf("ws%d", n%16), Operation: workflow.Preview}); err != nil {
		return err
	}
	out, err := w.plane.Claim(b.Context(), w.pool, api.Claim{Instance: "one", Max: 1})
	if err != nil || len(out.Jobs) == 0 {
		return err
	}
	j := out.Jobs[0]
	r := run(j, "task-"+j.ID, 'a')
	if err := w.plane.Queued(b.Context(), w.pool, j.ID, api.Attempt{Attempt: 1}); err != nil {
		return err
	}
	if err := w.plane.Launch(b.Context(), w.pool, j.ID, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: r.Task}); err != nil {
		return err
	}
	if _, err := w.plane.Start(b.Context(), j.Token, r, api.Start{Knows: api.RunnerKnows()}); err != nil {
		return err
	}
	_, err = w.plane.Result(b.Context(), j.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded}})
	return err
}

// BenchmarkLifecycle takes workflows from submission to result, eight at a time.
func BenchmarkLifecycle(b *testing.B) {
	for name, open := range map[string]func() store.Store{
		"memory": func() store.Store { return memory.New() },
		"sqlite": func() store.Store {
			st, err := sqlite.Open(b.Context(), b.TempDir()+"/dayfly.db", sqlite.Config{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = st.Close() })
			return st
		},
	} {
		b.Run(name, func(b *testing.B) {
			w := newBenchWorld(b, open())
			for i := range 16 {
				if _, _, err := w.plane.PutWorkspace(b.Context(), w.admin, api.Workspace{
					Name: fmt.Sprintf("ws%d", i), RunSettings: api.RunSettings{
						Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
						Commands: map[string]string{"preview": "true"},
					},
					MaxActive: 1000,
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetParallelism(4)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					if err := w.lifecycle(b, n); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lifecycles/s")
		})
	}
}
