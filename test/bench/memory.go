package main

import (
	"bufio"
	"bytes"
	"context"
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
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// memoryOfUp measures the memory of a real `dayfly up` at rest and with 100 running jobs.
func memoryOfUp(ctx context.Context, b *bench) (err error) {
	jobs := 100
	b.out.Heading("Memory of `dayfly up`, at rest and with %d running jobs of `sleep`", jobs)
	root, err := os.MkdirTemp(b.temp, "memory-")
	if err != nil {
		return err
	}
	source := filepath.Join(root, "source")
	if err := errors.Join(os.Mkdir(source, 0o755), os.Chmod(root, 0o711), os.Chmod(source, 0o755)); err != nil {
		return err
	}
	u, err := startUp(ctx, b, root, source, jobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, u.stop()) }()
	if err := wait.For(ctx, 2*time.Second); err != nil {
		return err
	}
	rest, err := status(u.pid(), "VmRSS")
	if err != nil {
		return err
	}
	if err := u.submit(ctx, source, jobs); err != nil {
		return err
	}
	running, err := u.await(ctx, jobs)
	if err != nil {
		return err
	}
	if err := wait.For(ctx, 2*time.Second); err != nil {
		return err
	}
	busy, err := status(u.pid(), "VmRSS")
	if err != nil {
		return err
	}
	var resident, shared int64
	for _, pid := range running {
		rss, err := status(pid, "VmRSS")
		if err != nil {
			return err
		}
		pss, err := proportional(pid)
		if err != nil {
			return err
		}
		resident, shared = resident+rss, shared+pss
	}
	n := int64(len(running))
	b.out.Line("up at rest %.1f MB; with %d jobs %.1f MB: %.2f MB a job", mb(rest), n, mb(busy), mb(busy-rest)/float64(n))
	b.out.Line("a runner: %.1f MB resident, %.1f MB where what they share is divided among them", mb(resident/n), mb(shared/n))
	return nil
}

// upProcess is a `dayfly up` of its own.
type upProcess struct {
	cmd *exec.Cmd
	cl  *client.Client
	out *lockedBuffer
}

func (u *upProcess) pid() int { return u.cmd.Process.Pid }

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

func startUp(ctx context.Context, b *bench, root, source string, jobs int) (*upProcess, error) {
	data := filepath.Join(root, "data")
	u := &upProcess{out: &lockedBuffer{}}
	u.cmd = exec.CommandContext(ctx, b.dayfly, "up", "--listen", "127.0.0.1:0", "--data", data, "--source-root", source, "--concurrency", fmt.Sprint(jobs))
	u.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root}
	u.cmd.Dir = root
	u.cmd.Stdout, u.cmd.Stderr = u.out, u.out
	u.cmd.Cancel = func() error { return u.cmd.Process.Signal(syscall.SIGTERM) }
	u.cmd.WaitDelay = 30 * time.Second
	if err := u.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		url := address.FindString(u.out.String())
		token, err := os.ReadFile(filepath.Join(data, "admin-token"))
		if url != "" && err == nil {
			value := strings.TrimSpace(string(token))
			u.cl, err = client.New(client.Config{URL: url, Token: func() redact.String { return redact.New(value) }, HTTPClient: &http.Client{}})
			if err == nil {
				return u, nil
			}
		}
		if err := wait.For(ctx, 50*time.Millisecond); err != nil {
			return nil, errors.Join(err, u.stop())
		}
	}
	return nil, errors.Join(fmt.Errorf("dayfly up did not come up:\n%s", u.out.String()), u.stop())
}

// submit starts jobs that sleep, in a workspace each ten.
func (u *upProcess) submit(ctx context.Context, source string, jobs int) error {
	for i := range jobs {
		name := fmt.Sprintf("sleep-%02d", i/10)
		if i%10 == 0 {
			_, _, err := u.cl.PutWorkspace(ctx, api.Workspace{
				Name: name, Engine: api.EngineCommand, Source: api.Source{Directory: source},
				Commands: map[string]string{"preview": "exec sleep 300"},
			})
			if err != nil {
				return err
			}
		}
		if _, err := u.cl.Submit(ctx, api.Submit{Workspace: name, Operation: workflow.Preview}); err != nil {
			return err
		}
	}
	return nil
}

// await waits until all jobs run their command, and returns their runners.
func (u *upProcess) await(ctx context.Context, jobs int) ([]int, error) {
	for range 600 {
		page, err := u.cl.Workflows(ctx, client.Filter{State: string(workflow.Running), Limit: 200})
		if err != nil {
			return nil, err
		}
		if all := runners(u.pid()); len(page.Items) == jobs && len(all) == jobs {
			return all, nil
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%d jobs did not come to run:\n%s", jobs, lastLines(u.out.String(), 10))
}

// stop ends it: a second signal ends its jobs at once.
func (u *upProcess) stop() error {
	for range 2 {
		if err := u.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			break // it has ended
		}
		_ = wait.For(context.Background(), 300*time.Millisecond)
	}
	err := u.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil // an interrupted `up` may say so with its code
	}
	return err
}

func lastLines(s string, n int) string {
	var all []string
	for scan := bufio.NewScanner(strings.NewReader(s)); scan.Scan(); {
		all = append(all, scan.Text())
	}
	return strings.Join(all[max(0, len(all)-n):], "\n")
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
