package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
	"github.com/dayfly-dev/dayfly/test/bench/figures"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/cloud/scenario"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// firstLines is how many runs are measured.
const firstLines = 7

// firstLine measures what a runner takes from its start until the first line of its log is on record: the real
// program, as a process of this machine, which fetches a small repository by git, resolves a secret and runs a
// command.
func firstLine(ctx context.Context, b *bench) error {
	b.out.heading("The runner: from its start to the first line of the log, latency %s", stated.name)
	authority, err := gitserver.OpenAuthority(filepath.Join(b.functions, "authority"))
	if err != nil {
		return err
	}
	git, err := scenario.ServeGit(ctx, authority, "127.0.0.1")
	if err != nil {
		b.out.line("not measured: %v", err)
		return nil
	}
	defer git.Close()
	bundle := filepath.Join(b.functions, "ca.pem")
	if err := os.WriteFile(bundle, authority.PEM, 0o600); err != nil {
		return err
	}
	program, err := built.Program(ctx, b.functions, "runnerimage")
	if err != nil {
		return err
	}
	started := &started{Runner: &procrun.Runner{
		Commands: map[string][]string{"runner": {program}}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: filepath.Join(b.functions, "tasks"), DirEnv: "DAYFLY_WORK_DIR",
	}}
	w, err := open(ctx, b, stated, nil, func(cfg *cloud.Config) {
		cfg.Runner, cfg.TaskEnv = started, map[string]string{"SSL_CERT_FILE": bundle}
	})
	if err != nil {
		return err
	}
	defer w.Close()
	defer w.problems(b)
	w.alive = true
	token, err := w.Secret(ctx, "git", git.Token)
	if err != nil {
		return err
	}
	ws := api.Workspace{
		Name: "line", RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Git: &api.GitSource{URL: git.URL, Path: "plain", TokenRef: token}},
			Commands: map[string]string{"preview": "echo hello"},
		},
		Pool: pool,
	}
	made, _, err := w.plane.PutWorkspace(ctx, admin, ws)
	if err != nil {
		return err
	}
	ws.Role = w.WorkspaceRole(ws.Name, made.ID)
	if _, _, err := w.plane.PutWorkspace(ctx, admin, ws); err != nil {
		return err
	}
	if err := w.begin(ctx, byWake); err != nil {
		return err
	}
	var took figures.Sample
	for range firstLines {
		wf, err := w.Client.Submit(ctx, api.Submit{Workspace: ws.Name, Operation: workflow.Preview})
		if err != nil {
			return err
		}
		at, err := w.awaitLine(ctx, wf.ID)
		if err != nil {
			return err
		}
		took = append(took, at.Sub(started.last()))
		if err := w.awaitEnds(ctx, most); err != nil {
			return err
		}
	}
	b.firstLine = took.At(0.5)
	b.row(fmt.Sprintf("%d runs", len(took)), took, "  load average "+figures.LoadAverage())
	return nil
}

// awaitLine waits for the first line of a workflow's log.
func (w *world) awaitLine(ctx context.Context, id string) (time.Time, error) {
	for end := time.Now().Add(most); ; {
		page, err := w.plane.Logs(ctx, admin, id, 0, 0, 1, 0)
		switch {
		case err == nil && len(page.Lines) > 0:
			return time.Now(), nil
		case time.Now().After(end):
			return time.Time{}, fmt.Errorf("no line of %s after %s: %w", id, most, err)
		}
		if err := wait.For(ctx, 20*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
}

// started is a Runner that remembers when it began the latest task.
type started struct {
	ecs.Runner

	mu sync.Mutex
	at time.Time
}

// Start implements ecs.Runner.
func (s *started) Start(ctx context.Context, spec ecs.Spec) (ecs.Process, error) {
	s.mu.Lock()
	s.at = time.Now()
	s.mu.Unlock()
	return s.Runner.Start(ctx, spec)
}

func (s *started) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}
