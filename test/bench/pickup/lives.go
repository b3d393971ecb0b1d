package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/cloud"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
)

// A stand-in of a runner makes a real one's calls, signed with its task's role, in the time that a short run takes. Ten
// thousand real ones would be as many processes.
const (
	standInTime  = 10 * time.Second // from its start to its result
	standInLines = 40               // of its log
	standInTries = 60               // of one call, a second apart
)

// play is a task: what it does of a run is kept in the world.
func (w *world) play(ctx context.Context, s ecs.Spec, _ <-chan struct{}) int {
	if err := w.live(ctx, s); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed[err.Error()]++
		return 1
	}
	return 0
}

func (w *world) live(ctx context.Context, s ecs.Spec) error {
	runner, err := speaker(s)
	if err != nil {
		return err
	}
	began := time.Now()
	step := api.Step{Seq: 1, Name: "preview", Status: workflow.StepRunning, StartedAt: began}
	var lines []api.LogLine
	for i := range standInLines {
		lines = append(lines, api.LogLine{At: began, Step: step.Name, Text: fmt.Sprintf("line %d of what an engine says about one of its resources", i)})
	}
	half := len(lines) / 2
	ended := step
	ended.Status, ended.Seconds = workflow.StepSucceeded, standInTime.Seconds()
	for _, call := range []struct {
		pause time.Duration
		name  string
		make  func() error
	}{
		{0, "start", func() error { _, err := runner.Start(ctx); return err }},
		{0, "spec", func() error { _, err := runner.Spec(ctx); return err }},
		{0, "steps", func() error { _, err := runner.Steps(ctx, api.Steps{Steps: []api.Step{step}}); return err }},
		{0, "logs", func() error { _, err := runner.Logs(ctx, api.Logs{Lines: lines[:half]}); return err }},
		{standInTime / 2, "heartbeat", func() error { _, err := runner.Heartbeat(ctx, api.Heartbeat{Step: step.Name}); return err }},
		{standInTime / 2, "logs", func() error {
			_, err := runner.Logs(ctx, api.Logs{First: int64(half), Lines: lines[half:]})
			return err
		}},
		{0, "steps", func() error { _, err := runner.Steps(ctx, api.Steps{Steps: []api.Step{ended}}); return err }},
		{0, "result", func() error {
			_, err := runner.Result(ctx, api.Result{Outcome: workflow.Succeeded, LogEnd: standInLines})
			return err
		}},
	} {
		_ = wait.For(ctx, call.pause)
		if err := w.again(ctx, call.name, call.make); err != nil {
			return fmt.Errorf("%s: %w", call.name, err)
		}
	}
	return nil
}

// again makes a call until it is taken, as a runner does, and counts what was not.
func (w *world) again(ctx context.Context, name string, call func() error) error {
	for n := 1; ; n++ {
		err := call()
		if err == nil || n == standInTries || !client.Transient(err) {
			return err
		}
		w.mu.Lock()
		w.repeated[name+" "+why(err)]++
		w.mu.Unlock()
		if wait.For(ctx, time.Second) != nil {
			return err
		}
	}
}

// why is the kind of an error after which a call is made again.
func why(err error) string {
	for _, kind := range []error{workflow.ErrTooMany, workflow.ErrNotReported, workflow.ErrBusy, client.ErrUnreachable} {
		if errors.Is(err, kind) {
			return fmt.Sprintf("(%v)", kind)
		}
	}
	return "(?)"
}

// speaker makes the calls of a task's run.
func speaker(s ecs.Spec) (*client.Runner, error) {
	env := map[string]string{}
	for _, v := range s.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	getenv := func(name string) string { return env[name] }
	given, err := task.Read(getenv, s.Task)
	if err != nil {
		return nil, err
	}
	role, err := cloud.New(cloud.Config{
		TaskARN: s.Task, Region: env["AWS_REGION"], RelativeURI: env["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"],
		FullURI: env["AWS_CONTAINER_CREDENTIALS_FULL_URI"], Token: env["AWS_CONTAINER_AUTHORIZATION_TOKEN"], Endpoint: cloud.FromEnv(getenv),
	})
	if err != nil {
		return nil, err
	}
	var boot [16]byte
	_, _ = rand.Read(boot[:])
	return client.NewRunner(client.RunnerConfig{
		URL: given.Relay, Credential: redact.New(given.Ticket), HTTPClient: &http.Client{Transport: role.Sign("")}, UserAgent: "pickup/" + fmt.Sprint(os.Getpid()),
		Run: api.Run{Workflow: given.Workflow, Attempt: given.Attempt, Task: s.Task, Boot: hex.EncodeToString(boot[:])},
	})
}
