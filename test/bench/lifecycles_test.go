package bench_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
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
	"github.com/dayfly-dev/dayfly/test/bench/figures"
)

// world is an `up` in this process, with runners that are processes of the real program.
type world struct {
	up     *embedded.Up
	cl     *client.Client
	source string // directory of sources
	ops    *counted
}

// open runs `up` in a directory of its own until the benchmark ends. Each change is made to its agent.
func open(b *testing.B, concurrency int, changes ...func(*embedded.AgentConfig)) *world {
	b.Helper()
	root := directory(b)
	w := &world{source: filepath.Join(root, "source"), ops: &counted{}}
	for _, dir := range []string{w.source, filepath.Join(w.source, "empty")} {
		check(b, errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)))
	}
	settings := config.Default()
	settings.SourceRoots, settings.Concurrency = []string{w.source}, concurrency
	agent := embedded.AgentConfig{
		Settings: settings, Runner: []string{program(b, "dayfly-runner")},
		Path: os.Getenv("PATH"), ShutdownGrace: 5 * time.Second,
	}
	for _, change := range changes {
		change(&agent)
	}
	var err error
	w.up, err = embedded.OpenUp(b.Context(), embedded.UpConfig{
		Server: embedded.ServerConfig{
			Data: filepath.Join(root, "data"), Listen: "127.0.0.1:0", Version: "bench",
			WrapStore: func(st store.Store) store.Store { w.ops.Store = st; return w.ops },
		},
		Agent: agent,
	})
	check(b, err)
	running, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- w.up.Run(running) }()
	b.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, w.up.Close()); err != nil {
			b.Error(err)
		}
	})
	token, err := w.up.AdminToken()
	check(b, err)
	w.cl, err = client.New(client.Config{URL: w.up.URL(), Token: func() redact.String { return redact.New(token) }, HTTPClient: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}})
	check(b, err)
	return w
}

// put registers a workspace that runs a script.
func (w *world) put(b *testing.B, name, script string) {
	b.Helper()
	_, _, err := w.cl.PutWorkspace(b.Context(), api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: filepath.Join(w.source, "empty")},
			Commands: map[string]string{"preview": script, "update": script},
		},
	})
	check(b, err)
}

// finished waits for the end of a workflow, which must be success.
func (w *world) finished(b *testing.B, id string, look time.Duration) {
	b.Helper()
	for {
		wf, err := w.cl.Workflow(b.Context(), id)
		check(b, err)
		switch {
		case wf.State == workflow.Succeeded:
			return
		case wf.State.Terminal():
			b.Fatalf("workflow %s of %s is %s: %s %s", id, wf.Workspace, wf.State, wf.Reason, wf.Detail)
		}
		check(b, wait.For(b.Context(), look))
	}
}

// BenchmarkLifecycles measures whole lives of workflows that run `true` as an update, in processes, from their submission
// to their end.
func BenchmarkLifecycles(b *testing.B) {
	const atOnce, workspaces = 16, 100
	total, alone := quick(1000, 250), quick(60, 20)
	w := open(b, atOnce)
	for _, line := range w.up.Describe() {
		b.Log(line)
	}
	w.put(b, "ws-00", "true")
	logged := w.logged(b)
	for i := range workspaces {
		w.put(b, fmt.Sprintf("ws-%02d", i), "true")
	}
	single := w.oneByOne(b, alone)
	w.many(b, 50, workspaces) // until everything is warm
	w.ops.reset()
	self, children := cpu()
	took := w.many(b, total, workspaces)
	selfAfter, childrenAfter := cpu()
	each := func(d time.Duration) string { return ms(d / time.Duration(total)) }
	b.Logf("%d lifecycles in %s, %d at once; each: %s", total, took.Round(time.Millisecond), atOnce, w.ops.per(total))
	b.Logf("processor time of a lifecycle: %s in `up`, %s in its runner and command", each(selfAfter-self), each(childrenAfter-children))
	least := floor(b, alone)
	b.Logf("least of that, to start the runner's program, which ends at once, and `sh -c true`: %s; 200 a second of that alone would keep %.1f cores busy",
		ms(least), 200*least.Seconds())
	b.Logf("one alone, submit to seen end: p50 %s, p99 %s", ms(single.At(0.5)), ms(single.At(0.99)))
	judge(b, logged <= 120<<10, "write-ahead log of a lifecycle alone", fmt.Sprintf("%d KB", logged>>10), "<= 120 KB")
	b.Logf("so 200 a second would keep %.1f cores busy", 200*(selfAfter-self+childrenAfter-children).Seconds()/float64(total))
	judge(b, rate(total, took) >= 200, "lifecycles/s", fmt.Sprintf("%.0f", rate(total, took)), ">= 200")
	metric(b, rate(total, took), "lifecycles/s")
}

// floor is the processor time of starting the programs of a lifecycle, without anything that they do.
func floor(b *testing.B, n int) time.Duration {
	b.Helper()
	_, before := cpu()
	for range n {
		runner := exec.CommandContext(b.Context(), program(b, "dayfly-runner"))
		runner.Env = []string{} // it says what is missing in it, and ends
		var exit *exec.ExitError
		if err := runner.Run(); !errors.As(err, &exit) {
			b.Fatal("a runner without a job: ", cmp.Or(err, errors.New("it did not refuse to run")))
		}
		check(b, exec.CommandContext(b.Context(), "/bin/sh", "-c", "true").Run())
	}
	_, after := cpu()
	return (after - before) / time.Duration(n)
}

// logged is how many bytes the write-ahead log of the records grows by with a lifecycle that is alone. It must be asked
// while the log is young: it is written from its begin again when it has 4 MB.
func (w *world) logged(b *testing.B) int64 {
	b.Helper()
	size := func() int64 {
		info, err := os.Stat(filepath.Join(w.up.Data(), embedded.DatabaseFile+"-wal"))
		check(b, err)
		return info.Size()
	}
	const n = 6
	w.oneByOne(b, 1)
	before := size()
	w.oneByOne(b, n)
	return (size() - before) / n
}

// oneByOne runs workflows one after the other.
func (w *world) oneByOne(b *testing.B, n int) (took figures.Sample) {
	b.Helper()
	for range n {
		began := time.Now()
		wf, err := w.cl.Submit(b.Context(), api.Submit{Workspace: "ws-00", Operation: workflow.Update})
		check(b, err)
		w.finished(b, wf.ID, 2*time.Millisecond)
		took = append(took, time.Since(began))
	}
	return took
}

// many submits workflows over workspaces, a few at once, and waits until all have ended.
func (w *world) many(b *testing.B, total, workspaces int) time.Duration {
	b.Helper()
	began := time.Now()
	ids := make([]string, total)
	var next atomic.Int64
	g, inner := errgroup.WithContext(b.Context())
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
	check(b, g.Wait())
	for _, id := range ids { // the oldest first: few are asked after more than once
		w.finished(b, id, 50*time.Millisecond)
	}
	return time.Since(began)
}

// BenchmarkLifecyclesFloor runs the same command as a job of River over SQLite: a queue and a process, and nothing
// else of a lifecycle. It is a module of its own, so that ours does not need River.
func BenchmarkLifecyclesFloor(b *testing.B) {
	program := filepath.Join(b.TempDir(), "river")
	build := exec.CommandContext(b.Context(), "go", "build", "-C", "../river", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		b.Skipf("test/river cannot be built: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(b.Context(), program, "-jobs", strconv.Itoa(quick(1000, 250)), "-workers", "16").Output()
	check(b, err)
	var floor struct {
		Jobs            int
		Took, Processor time.Duration
	}
	check(b, json.Unmarshal(out, &floor))
	b.Logf("River over SQLite, with jobs that start `sh -c true`: %.0f a second, %s of processor time each. It has no runner process, "+
		"no fence against a second start, no log, steps or result, no user of its own for the command, and no API that is asked over the network",
		rate(floor.Jobs, floor.Took), ms(floor.Processor))
	metric(b, rate(floor.Jobs, floor.Took), "jobs/s")
}
