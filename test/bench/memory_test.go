package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// BenchmarkMemory measures the memory of a real `dayfly up` at rest and with 100 running jobs of `sleep`.
func BenchmarkMemory(b *testing.B) {
	const jobs = 100
	root := directory(b)
	source := filepath.Join(root, "source")
	check(b, errors.Join(os.Mkdir(source, 0o755), os.Chmod(source, 0o755)))
	u := startUp(b, root, source, jobs)
	check(b, wait.For(b.Context(), 2*time.Second))
	rest, err := proc(u.pid(), "status", "VmRSS")
	check(b, err)
	u.submit(b, source, jobs)
	running := u.await(b, jobs)
	check(b, wait.For(b.Context(), 2*time.Second))
	busy, err := proc(u.pid(), "status", "VmRSS")
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
	cmd *exec.Cmd
	cl  *client.Client
	out *lockedBuffer

	url, token string // of its administrator
}

func (u *upProcess) pid() int { return u.cmd.Process.Pid }

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// startUp starts one that ends with the benchmark.
func startUp(b *testing.B, root, source string, jobs int) *upProcess {
	b.Helper()
	data := filepath.Join(root, "data")
	u := &upProcess{out: &lockedBuffer{}}
	u.cmd = exec.Command(program(b, "dayfly"), "up", "--listen", "127.0.0.1:0", "--data", data, "--source-root", source, "--deploy-target", "process", "--concurrency", fmt.Sprint(jobs)) //nolint:noctx // stop ends it
	u.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root}
	u.cmd.Dir = root
	u.cmd.Stdout, u.cmd.Stderr = u.out, u.out
	check(b, u.cmd.Start())
	b.Cleanup(u.stop)
	for range 1200 {
		url := address.FindString(u.out.String())
		token, err := os.ReadFile(filepath.Join(data, "private", "admin-token"))
		if url != "" && err == nil {
			u.url, u.token = url, strings.TrimSpace(string(token))
			u.cl, err = client.New(client.Config{URL: url, Token: func() redact.String { return redact.New(u.token) }, HTTPClient: &http.Client{}})
			check(b, err)
			return u
		}
		check(b, wait.For(b.Context(), 50*time.Millisecond))
	}
	b.Fatalf("dayfly up did not come up:\n%s", u.out)
	return nil
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
		if all := runners(u.pid()); len(page.Items) == jobs && len(all) == jobs {
			return all
		}
		check(b, wait.For(b.Context(), 100*time.Millisecond))
	}
	b.Fatalf("%d jobs did not come to run:\n%s", jobs, u.out)
	return nil
}

// stop ends it: a second signal ends its jobs at once, and it may say so with its code.
func (u *upProcess) stop() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = u.cmd.Wait()
	}()
	for range 2 {
		_ = u.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(300 * time.Millisecond):
		}
	}
	<-ended
}

// lockedBuffer takes the output of a process while it is read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
