package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

func TestMain(m *testing.M) {
	if os.Getenv("DAYFLY_TICKET") != "" {
		os.Exit(smallRunner())
	}
	os.Exit(leak.Main(m))
}

// smallRunner is a runner without an engine, in a process of its own: the script says what it does.
func smallRunner() int {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	fd, _ := strconv.Atoi(os.Getenv("DAYFLY_GATE_FD"))
	if _, err := io.ReadFull(os.NewFile(uintptr(fd), "gate"), make([]byte, 1)); err != nil {
		return 90
	}
	attempt, _ := strconv.Atoi(os.Getenv("DAYFLY_ATTEMPT"))
	r, err := client.NewRunner(client.RunnerConfig{
		URL: os.Getenv("DAYFLY_RELAY"), Credential: redact.New(os.Getenv("DAYFLY_TICKET")),
		Run: api.Run{
			Workflow: os.Getenv("DAYFLY_JOB"), Attempt: attempt, Task: os.Getenv("DAYFLY_TASK"),
			Boot: strings.Repeat("0", 32-len(strconv.Itoa(os.Getpid()))) + strconv.Itoa(os.Getpid()),
		},
	})
	if err != nil {
		return 91
	}
	ctx := context.Background()
	for {
		if _, err = r.Start(ctx); err == nil {
			break
		}
		if client.RunOver(err) {
			return 0
		}
		<-time.After(20 * time.Millisecond)
	}
	spec, err := r.Spec(ctx)
	if err != nil {
		return 92
	}
	result := api.Result{Outcome: workflow.Succeeded}
	switch spec.Commands[string(spec.Operation)] {
	case "die":
		return 7
	case "leave":
		if err := leave(ctx, r); err != nil {
			return 94
		}
	case "wait":
		<-terms
		result = api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonInterrupted}
	}
	if _, err := r.Result(ctx, result); err != nil {
		return 93
	}
	return 0
}

// leave leaves an artifact, as a runner does: announced, then placed, then reported.
func leave(ctx context.Context, r *client.Runner) error {
	sum := sha256.Sum256([]byte("kept"))
	one := api.NewArtifact{Name: "files/a", Kind: api.ArtifactFile, Size: 4, SHA256: hex.EncodeToString(sum[:])}
	taken, err := r.Artifacts(ctx, api.NewArtifacts{Artifacts: []api.NewArtifact{one}})
	if err == nil {
		err = r.Upload(ctx, taken.Uploads[0], one.Name, one.Size, strings.NewReader("kept"))
	}
	if err == nil {
		_, err = r.Artifacts(ctx, api.NewArtifacts{Placed: []string{one.Name}})
	}
	return err
}

// The agent with the launcher that it has on one machine: real processes, told to end by signals.
func TestRun_WithTheProcessLauncher(t *testing.T) {
	s := newSite(t, memory.Config{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := process.New(process.Config{
		Machine: launcher.Machine{Dir: t.TempDir(), StateRoot: t.TempDir(), Grace: 20 * time.Second}, EngineUIDs: -1,
		// A binary with the race detector waits a second before it exits, unless it is told not to.
		Command: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", self, "-test.run=^$"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{"works": "work", "dies": "die", "waits": "wait", "leaves": "leave"} {
		_, _, err := s.plane.PutWorkspace(t.Context(), s.admin, api.Workspace{
			Name: name, RunSettings: api.RunSettings{Engine: api.EngineCommand, Source: api.Source{Git: &api.GitSource{URL: "https://git.example.com/x"}}, Commands: map[string]string{"update": script}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := s.config()
	cfg.Launcher, cfg.CloseLauncher, cfg.Artifacts = l, l.End, t.TempDir()
	_, end := s.run(cfg)
	leaves := s.submit("leaves", workflow.Update)
	works, dies, waits := s.submit("works", workflow.Update), s.submit("dies", workflow.Update), s.submit("waits", workflow.Update)
	s.awaitState(works, workflow.Succeeded)
	if wf := s.awaitState(dies, workflow.Failed); wf.Reason != workflow.ReasonTaskStopped || !strings.Contains(wf.Detail, "7") {
		t.Errorf("the one that died: %s, %q", wf.Reason, wf.Detail)
	}
	s.awaitState(leaves, workflow.Succeeded)
	page, err := s.plane.Artifacts(t.Context(), s.admin, leaves, "", 0)
	if err != nil || len(page.Items) != 1 || page.Items[0].PlacedAt == nil {
		t.Fatalf("artifacts: %+v, %v", page.Items, err)
	}
	if text, err := os.ReadFile(filepath.Join(cfg.Artifacts, page.Items[0].Place.Key)); err != nil || string(text) != "kept" {
		t.Errorf("the artifact has %q, %v", text, err)
	}
	s.awaitState(waits, workflow.Running)
	if err := end(); err != nil {
		t.Error(err)
	}
	if wf := s.get(waits); wf.State != workflow.Failed || wf.Reason != workflow.ReasonInterrupted || wf.SlotHeld {
		t.Errorf("the one that waited: %s (%s), slot held %t; want its own result", wf.State, wf.Reason, wf.SlotHeld)
	}
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 0 {
		t.Errorf("got %+v, %v after the end; want none of which nobody has been told", tasks, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
