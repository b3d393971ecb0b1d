package bench_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/built"
)

// BenchmarkMemory measures the memory of a real `dayfly up` at rest and with 100 running jobs of `sleep`.
func BenchmarkMemory(b *testing.B) {
	const jobs = 100
	root := directory(b)
	source := filepath.Join(root, "source")
	check(b, errors.Join(os.Mkdir(source, 0o755), os.Chmod(source, 0o755)))
	u := startUp(b, root, source, jobs)
	check(b, wait.For(b.Context(), 2*time.Second))
	rest, err := proc(u.PID(), "status", "VmRSS")
	check(b, err)
	u.submit(b, source, jobs)
	running := u.await(b, jobs)
	check(b, wait.For(b.Context(), 2*time.Second))
	busy, err := proc(u.PID(), "status", "VmRSS")
	check(b, err)
	var resident, shared int64
	for _, pid := range running {
		rss, err := proc(pid, "status", "VmRSS")
		pss, failed := proc(pid, "smaps_rollup", "Pss")
		check(b, errors.Join(err, failed))
		resident, shared = resident+rss, shared+pss
	}
	b.Logf("up at rest %.1f MB; with %d jobs %.1f MB: %.2f MB a job", mb(rest), jobs, mb(busy), mb(busy-rest)/jobs)
	b.Logf("a runner: %.1f MB resident, %.1f MB where what they share is divided among them", mb(resident/jobs), mb(shared/jobs))
	metric(b, mb(rest), "rest-MB")
	metric(b, mb(busy), "busy-MB")
}

// upProcess is a `dayfly up` of its own.
type upProcess struct {
	*built.Up

	cl *client.Client
}

// startUp starts one that ends with the benchmark.
func startUp(b *testing.B, root, source string, jobs int) *upProcess {
	b.Helper()
	data := filepath.Join(root, "data")
	cmd := exec.Command(program(b, "dayfly"), "up", "--listen", "127.0.0.1:0", "--data", data, "--source-root", source, "--deploy-target", "process", "--concurrency", fmt.Sprint(jobs)) //nolint:noctx // stop ends it
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root}, root
	up, err := built.StartUp(b.Context(), cmd, data)
	check(b, err)
	u := &upProcess{Up: up}
	b.Cleanup(u.stop)
	u.cl, err = up.Client(up.Token)
	check(b, err)
	return u
}

// submit starts jobs that sleep, in a workspace each ten.
func (u *upProcess) submit(b *testing.B, source string, jobs int) {
	b.Helper()
	for i := range jobs {
		name := fmt.Sprintf("sleep-%02d", i/10)
		if i%10 == 0 {
			_, _, err := u.cl.PutWorkspace(b.Context(), api.Workspace{
				Name: name, RunSettings: api.RunSettings{
					Engine: api.EngineCommand, Source: api.Source{Directory: source},
					Commands: map[string]string{"preview": "exec sleep 300"},
				},
			})
			check(b, err)
		}
		_, err := u.cl.Submit(b.Context(), api.Submit{Workspace: name, Operation: workflow.Preview})
		check(b, err)
	}
}

// await waits until all jobs run their command, and returns their runners.
func (u *upProcess) await(b *testing.B, jobs int) []int {
	b.Helper()
	for range 600 {
		page, err := u.cl.Workflows(b.Context(), client.Filter{State: string(workflow.Running), Limit: 200})
		check(b, err)
		if all := runners(u.PID()); len(page.Items) == jobs && len(all) == jobs {
			return all
		}
		check(b, wait.For(b.Context(), 100*time.Millisecond))
	}
	b.Fatalf("%d jobs did not come to run:\n%s", jobs, u.Said())
	return nil
}

// stop ends it: a second signal ends its jobs at once, and it may say so with its code.
func (u *upProcess) stop() {
	for range 2 {
		u.Signal(syscall.SIGTERM)
		select {
		case <-u.Ended():
		case <-time.After(300 * time.Millisecond):
		}
	}
	<-u.Ended()
}
