package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/figures"
)

// world is an `up` in this process, with runners that are processes of the real program.
type world struct {
	up     *embedded.Up
	cl     *client.Client
	source string // directory of sources
	ops    *counted
	cancel context.CancelFunc
	done   chan error
}

// open opens `up` in a directory of its own and runs it.
func open(ctx context.Context, b *bench, concurrency int) (w *world, err error) {
	root, err := os.MkdirTemp(b.temp, "up-")
	if err != nil {
		return nil, err
	}
	w = &world{source: filepath.Join(root, "source"), ops: &counted{}, done: make(chan error, 1)}
	for dir, mode := range map[string]os.FileMode{root: 0o711, w.source: 0o755, filepath.Join(w.source, "empty"): 0o755} {
		if err := errors.Join(os.MkdirAll(dir, mode), os.Chmod(dir, mode)); err != nil {
			return nil, err
		}
	}
	settings := config.Default()
	settings.SourceRoots, settings.Concurrency = []string{w.source}, concurrency
	w.up, err = embedded.OpenUp(ctx, embedded.UpConfig{
		Server: embedded.ServerConfig{
			Data: filepath.Join(root, "data"), Listen: "127.0.0.1:0", Version: "bench",
			WrapStore: func(st store.Store) store.Store { w.ops.Store = st; return w.ops },
		},
		Agent: embedded.AgentConfig{
			Settings: settings, Runner: b.runnerCommand(),
			Path: os.Getenv("PATH"), ShutdownGrace: 5 * time.Second,
		},
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	go func() { w.done <- w.up.Run(running) }()
	token, err := w.up.AdminToken()
	if err == nil {
		w.cl, err = client.New(client.Config{URL: w.up.URL(), Token: func() redact.String { return redact.New(token) }, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}})
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) close() error {
	w.cancel()
	return errors.Join(<-w.done, w.up.Close())
}

// put registers a workspace that runs a script.
func (w *world) put(ctx context.Context, name, script string) error {
	_, _, err := w.cl.PutWorkspace(ctx, api.Workspace{
		Name: name, Engine: api.EngineCommand, Source: api.Source{Directory: filepath.Join(w.source, "empty")},
		Commands: map[string]string{"preview": script, "update": script},
	})
	return err
}

// finished waits for the end of a workflow, which must be success.
func (w *world) finished(ctx context.Context, id string, look time.Duration) (api.Workflow, error) {
	for {
		wf, err := w.cl.Workflow(ctx, id)
		if err != nil {
			return wf, err
		}
		switch {
		case wf.State == workflow.Succeeded:
			return wf, nil
		case wf.State.Terminal():
			return wf, fmt.Errorf("workflow %s of %s is %s: %s %s", id, wf.Workspace, wf.State, wf.Reason, wf.Detail)
		}
		if err := wait.For(ctx, look); err != nil {
			return wf, err
		}
	}
}

// lifecycles measures whole lives of workflows that run `true`, from their submission to their end.
func lifecycles(ctx context.Context, b *bench) (err error) {
	const atOnce = 16
	total, alone := 1000, 60
	if b.quick {
		total, alone = 250, 20
	}
	b.out.Heading("Lifecycles: `true` as an update, submit to end, in processes; %d at once", atOnce)
	w, err := open(ctx, b, atOnce)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, line := range w.up.Describe() {
		b.out.Line("%s", line)
	}
	const workspaces = 100
	for i := range workspaces {
		if err := w.put(ctx, fmt.Sprintf("ws-%02d", i), "true"); err != nil {
			return err
		}
	}
	single, err := w.oneByOne(ctx, alone)
	if err != nil {
		return err
	}
	if _, err := w.many(ctx, 50, workspaces); err != nil { // until everything is warm
		return err
	}
	w.ops.reset()
	self, children := cpu()
	took, err := w.many(ctx, total, workspaces)
	if err != nil {
		return err
	}
	selfAfter, childrenAfter := cpu()
	each := func(d time.Duration) string { return ms(d / time.Duration(total)) }
	b.out.Line("%d in %s; a lifecycle: %s", total, took.Round(time.Millisecond), w.ops.per(total))
	b.out.Line("processor time of a lifecycle: %s in `up`, %s in its runner and command", each(selfAfter-self), each(childrenAfter-children))
	least, err := floor(ctx, b, alone)
	if err != nil {
		return err
	}
	b.out.Line("least of that, to start the runner's program, which ends at once, and `sh -c true`: %s; 200 a second of that alone would keep %.1f cores busy",
		ms(least), 200*least.Seconds())
	b.out.Line("one alone, submit to seen end: p50 %s, p99 %s", ms(single.At(0.5)), ms(single.At(0.99)))
	b.out.Line("so 200 a second would keep %.1f cores busy", 200*(selfAfter-self+childrenAfter-children).Seconds()/float64(total))
	b.out.Judge(rate(total, took) >= 200, "lifecycles/s", fmt.Sprintf("%.0f", rate(total, took)), ">= 200")
	return nil
}

// floor is the processor time of starting the programs of a lifecycle, without anything that they do.
func floor(ctx context.Context, b *bench, n int) (time.Duration, error) {
	_, before := cpu()
	for range n {
		command := b.runnerCommand()
		runner := exec.CommandContext(ctx, command[0], command[1:]...)
		runner.Env = []string{} // it says what is missing in it, and ends
		var exit *exec.ExitError
		if err := runner.Run(); !errors.As(err, &exit) {
			return 0, fmt.Errorf("a runner without a job: %w", cmp.Or(err, errors.New("it did not refuse to run")))
		}
		if err := exec.CommandContext(ctx, "/bin/sh", "-c", "true").Run(); err != nil {
			return 0, err
		}
	}
	_, after := cpu()
	return (after - before) / time.Duration(n), nil
}

// oneByOne runs workflows one after the other.
func (w *world) oneByOne(ctx context.Context, n int) (took figures.Sample, err error) {
	for range n {
		began := time.Now()
		wf, err := w.cl.Submit(ctx, api.Submit{Workspace: "ws-00", Operation: workflow.Update})
		if err != nil {
			return nil, err
		}
		if _, err := w.finished(ctx, wf.ID, 2*time.Millisecond); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// many submits workflows over workspaces, a few at once, and waits until all have ended.
func (w *world) many(ctx context.Context, total, workspaces int) (time.Duration, error) {
	began := time.Now()
	ids := make([]string, total)
	var next atomic.Int64
	g, inner := errgroup.WithContext(ctx)
	for range 4 {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= total {
					return nil
				}
				wf, err := w.cl.Submit(inner, api.Submit{Workspace: fmt.Sprintf("ws-%02d", i%workspaces), Operation: workflow.Update})
				if err != nil {
					return err
				}
				ids[i] = wf.ID
			}
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	for _, id := range ids { // the oldest first: few are asked after more than once
		if _, err := w.finished(ctx, id, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
