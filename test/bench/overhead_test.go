package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// code needs no provider but the one that is built into the engine. It has as many resources as it is given.
const code = `variable "n" {
  type = number
}

resource "terraform_data" "this" {
  count = %d
  input = "${var.n}-${count.index}"
}

output "n" {
  value = var.n
}
`

// BenchmarkOverhead runs the same code (20 resources) as an update through Dayfly, and by hand as people type it: init,
// plan, apply; in turns.
func BenchmarkOverhead(b *testing.B) {
	const resources = 20
	engine, name := anEngine(b)
	w := open(b, 1)
	dir, direct := filepath.Join(w.source, "code"), b.TempDir()
	check(b, writeCode(dir, resources))
	var alone, through, more figures.Sample
	var peak, own int64
	for i := range quick(25, 5) + 1 {
		d := engineAlone(b, engine, direct, resources, i, "init", "plan", "apply")
		watch := watchRunner(b.Context())
		t := engineThrough(b, w, name, dir, i)
		memory, private := watch()
		if i == 0 {
			continue // the first ones fill caches
		}
		alone, through, more = append(alone, d), append(through, t), append(more, t-d)
		peak, own = max(peak, memory), max(own, private)
	}
	a, t, m := alone.At(0.5), through.At(0.5), more.At(0.5)
	b.Logf("%s init, plan and apply p50 %s; as a workflow, submit to seen end, p50 %s: x%.3f; %d rounds", name, ms(a), ms(t), float64(t)/float64(a), len(more))
	said := fmt.Sprintf("%s (%s to %s)", ms(m), ms(more.At(0.1)), ms(more.At(0.9)))
	b.Logf("difference within a round: p50 %s, from %s to %s; between the two p50: %s", said, ms(more.At(0)), ms(more.At(1)), ms(t-a))
	judge(b, m <= 100*time.Millisecond, "an update beyond init, plan and apply", said, "<= 100 ms")
	b.Logf("memory of the runner: at most %.1f MB its own; the rest are pages of the program's file, which all runners share", mb(own))
	judge(b, peak > 0 && peak <= 30e6, "peak memory of the runner", fmt.Sprintf("%.1f MB", mb(peak)), "<= 30 MB")
	metric(b, milliseconds(m), "overhead-ms")
}

// anEngine is the engine that there is, and its name.
func anEngine(b *testing.B) (path, name string) {
	b.Helper()
	for _, name := range []string{api.EngineTerraform, api.EngineTofu} {
		if path, err := exec.LookPath(name); err == nil {
			return path, name
		}
	}
	b.Skip("there is neither terraform nor tofu on PATH")
	return "", ""
}

func writeCode(dir string, resources int) error {
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "main.tf"), fmt.Appendf(nil, code, resources), 0o644)
}

// engineAlone does by hand what a run is for.
func engineAlone(b *testing.B, engine, dir string, resources, n int, commands ...string) time.Duration {
	b.Helper()
	began := time.Now()
	work := filepath.Join(dir, "work")
	override := fmt.Sprintf("terraform {\n  backend \"local\" {\n    path = %q\n  }\n}\n", filepath.Join(dir, "terraform.tfstate"))
	check(b, errors.Join(os.RemoveAll(work), writeCode(work, resources), os.WriteFile(filepath.Join(work, "backend_override.tf"), []byte(override), 0o600)))
	for _, command := range commands {
		args := append([]string{command, "-input=false", "-no-color"}, map[string][]string{
			"plan": {"-out=plan", fmt.Sprintf("-var=n=%d", n)}, "apply": {"plan"},
		}[command]...)
		c := exec.CommandContext(b.Context(), engine, args...)
		c.Dir = work
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + work, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1"}
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	return time.Since(began)
}

// engineThrough runs an update of the same code as a workflow.
func engineThrough(b *testing.B, w *world, engine, dir string, n int) time.Duration {
	b.Helper()
	_, _, err := w.cl.PutWorkspace(b.Context(), api.Workspace{
		Name: "code", RunSettings: api.RunSettings{
			Engine: engine, Source: api.Source{Directory: dir}, Variables: map[string]any{"n": n},
			Environment: map[string]string{"CHECKPOINT_DISABLE": "1"},
		},
	})
	check(b, err)
	began := time.Now()
	wf, err := w.cl.Submit(b.Context(), api.Submit{Workspace: "code", Operation: workflow.Update})
	check(b, err)
	w.finished(b, wf.ID, 5*time.Millisecond)
	return time.Since(began)
}

// watchRunner measures the memory of the runners of this process until it is told to end. It returns the peak of
// all their memory, and the peak without the pages of files. The engines are processes of their own and do not count.
func watchRunner(ctx context.Context) (end func() (peak, own int64)) {
	ctx, cancel := context.WithCancel(ctx)
	var peak, own int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for wait.For(ctx, 20*time.Millisecond) == nil {
			for _, pid := range runners(os.Getpid()) {
				if n, err := proc(pid, "status", "VmHWM"); err == nil {
					peak = max(peak, n)
				}
				if n, err := proc(pid, "status", "RssAnon"); err == nil {
					own = max(own, n)
				}
			}
		}
	})
	return func() (int64, int64) {
		cancel()
		wg.Wait()
		return peak, own
	}
}
