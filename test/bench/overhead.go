package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/figures"
)

// code needs no provider but the one that is built into the engine.
const code = `variable "n" {
  type = number
}

resource "terraform_data" "this" {
  count = 20
  input = "${var.n}-${count.index}"
}

output "n" {
  value = var.n
}
`

// overhead runs the same code through Dayfly and with the engine alone, in turns.
func overhead(ctx context.Context, b *bench) (err error) {
	rounds := 25
	if b.quick {
		rounds = 5
	}
	b.out.Heading("Overhead over the engine alone: init, validate, plan, show, apply, output of 20 resources; %d rounds in turns", rounds)
	engine, name := "", ""
	for _, name = range []string{api.EngineTerraform, api.EngineTofu} {
		if engine, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if engine == "" {
		b.out.Line("not measured: there is neither terraform nor tofu on PATH")
		return nil
	}
	w, err := open(ctx, b, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	dir := filepath.Join(w.source, "code")
	if err := writeCode(dir); err != nil {
		return err
	}
	direct := filepath.Join(b.temp, "direct")
	var alone, through, more figures.Sample
	var peak, own int64
	for i := range rounds + 1 {
		d, err := engineAlone(ctx, engine, direct, i)
		if err != nil {
			return err
		}
		watch := watchRunner(ctx)
		t, err := engineThrough(ctx, w, name, dir, i)
		memory, private := watch()
		if err != nil {
			return err
		}
		if i == 0 {
			continue // the first ones fill caches
		}
		alone, through, more = append(alone, d), append(through, t), append(more, t-d)
		peak, own = max(peak, memory), max(own, private)
	}
	a, t, m := alone.At(0.5), through.At(0.5), more.At(0.5)
	b.out.Line("%s alone p50 %s; as a workflow, submit to seen end, p50 %s: x%.3f", name, ms(a), ms(t), float64(t)/float64(a))
	b.out.Line("difference within a round: p50 %s, from %s to %s; between the two p50: %s", ms(m), ms(more.At(0)), ms(more.At(1)), ms(t-a))
	b.out.Judge(m <= 150*time.Millisecond, "overhead", ms(m), "<= 150 ms")
	b.out.Line("memory of the runner: at most %.1f MB its own; the rest are pages of the program's file, which all runners share", mb(own))
	b.out.Judge(peak > 0 && peak <= 30e6, "peak memory of the runner", fmt.Sprintf("%.1f MB", mb(peak)), "<= 30 MB")
	return nil
}

func writeCode(dir string) error {
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "main.tf"), []byte(code), 0o644)
}

// engineAlone does by hand what a workflow of an update does.
func engineAlone(ctx context.Context, engine, dir string, n int) (time.Duration, error) {
	began := time.Now()
	work := filepath.Join(dir, "work")
	if err := errors.Join(os.RemoveAll(work), writeCode(work)); err != nil {
		return 0, err
	}
	state := filepath.Join(dir, "terraform.tfstate")
	override := fmt.Sprintf("terraform {\n  backend \"local\" {\n    path = %q\n  }\n}\n", state)
	if err := os.WriteFile(filepath.Join(work, "backend_override.tf"), []byte(override), 0o600); err != nil {
		return 0, err
	}
	for _, args := range [][]string{
		{"init", "-input=false", "-no-color"}, {"validate", "-no-color"},
		{"plan", "-input=false", "-no-color", "-out=plan", fmt.Sprintf("-var=n=%d", n)},
		{"show", "-json", "-no-color", "plan"}, {"apply", "-input=false", "-no-color", "plan"}, {"output", "-json", "-no-color"},
	} {
		c := exec.CommandContext(ctx, engine, args...)
		c.Dir = work
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + work, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1"}
		if out, err := c.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
	}
	return time.Since(began), nil
}

// engineThrough runs an update of the same code as a workflow.
func engineThrough(ctx context.Context, w *world, engine, dir string, n int) (time.Duration, error) {
	_, _, err := w.cl.PutWorkspace(ctx, api.Workspace{
		Name: "code", Engine: engine, Source: api.Source{Directory: dir}, Variables: map[string]any{"n": n},
		Environment: map[string]string{"CHECKPOINT_DISABLE": "1"},
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	wf, err := w.cl.Submit(ctx, api.Submit{Workspace: "code", Operation: workflow.Update})
	if err != nil {
		return 0, err
	}
	_, err = w.finished(ctx, wf.ID, 5*time.Millisecond)
	return time.Since(began), err
}

// watchRunner looks at the memory of the runners of this process until it is told to end, and returns
// their peak, and that of what is no page of a file. The engines are processes of their own and do not count.
func watchRunner(ctx context.Context) (end func() (peak, own int64)) {
	ctx, cancel := context.WithCancel(ctx)
	var peak, own int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for wait.For(ctx, 20*time.Millisecond) == nil {
			for _, pid := range runners(os.Getpid()) {
				if n, err := status(pid, "VmHWM"); err == nil {
					peak = max(peak, n)
				}
				if n, err := status(pid, "RssAnon"); err == nil {
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
