package runner_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// noLogs is a relay that takes everything but lines of the log.
type noLogs struct {
	runner.Relay // it is not asked for artifacts

	spec api.Spec

	mu    sync.Mutex
	taken []api.Handover
	limit int             // bytes of a tail
	knows workflow.Reason // all others are refused; none: it knows every reason
}

var errAway = workflow.Refuse(workflow.ErrBusy, "", "not now")

func (*noLogs) Start(context.Context) (api.Started, error) { return api.Started{}, nil }
func (n *noLogs) Spec(context.Context) (api.Spec, error)   { return n.spec, nil }
func (*noLogs) Heartbeat(context.Context, api.Heartbeat) (api.Control, error) {
	return api.Control{}, nil
}
func (*noLogs) Steps(context.Context, api.Steps) (api.Control, error) { return api.Control{}, nil }
func (*noLogs) Logs(context.Context, api.Logs) (api.LogsTaken, error) {
	return api.LogsTaken{}, errAway
}

func (n *noLogs) HandOver(_ context.Context, in api.Handover) (api.HandedOver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = append(n.taken, in)
	if in.Tail != nil && len(in.Tail.Lines) > n.limit {
		return api.HandedOver{}, workflow.Refuse(workflow.ErrTooLarge, "", "too large")
	}
	if n.knows != "" && in.Reason != n.knows {
		return api.HandedOver{}, workflow.Refuse(workflow.ErrInvalid, "reason", "not in the list")
	}
	return api.HandedOver{}, nil
}

// An outcome counts more than a reason that an older control plane does not know.
func TestRunJob_AResultWhoseReasonIsRefusedIsHandedOverWithAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &noLogs{knows: workflow.ReasonRunnerError, spec: api.Spec{
			Workflow: "wf-1", Attempt: 1, Engine: api.EngineCommand, Secrets: []api.Secret{{Env: "A", Ref: "file:none"}},
		}}
		err := runner.RunJob(t.Context(), runner.Config{
			Run: api.Run{Workflow: "wf-1", Attempt: 1, Task: "task-1", Boot: strings.Repeat("ab", 16)}, Relay: r, WorkDir: t.TempDir(), Spool: "log-spool",
		})
		if got := r.taken[len(r.taken)-1]; err != nil || got.Outcome != workflow.Failed || got.Reason != workflow.ReasonRunnerError || !strings.Contains(got.Detail, "did not resolve") {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// R5: where the disk ends with the task, what was not taken of the log goes with the result, which counts more.
func TestRunJob_WhatWasNotTakenOfTheLogGoesWithTheResult(t *testing.T) {
	for name, c := range map[string]struct {
		spool string
		limit int
		calls int
		tail  bool
	}{
		"on ECS":                 {"", 1 << 20, 1, true},
		"too large":              {"", 0, 2, false},
		"where the file is left": {"log-spool", 1 << 20, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &noLogs{limit: c.limit, spec: api.Spec{
					Workflow: "wf-1", Attempt: 1, Engine: api.EngineCommand, Secrets: []api.Secret{{Env: "A", Ref: "file:none"}},
				}}
				err := runner.RunJob(t.Context(), runner.Config{
					Run: api.Run{Workflow: "wf-1", Attempt: 1, Task: "task-1", Boot: strings.Repeat("ab", 16)}, Relay: r, WorkDir: t.TempDir(), Spool: c.spool,
				})
				if err != nil || len(r.taken) != c.calls {
					t.Fatalf("%d results handed over, %v", len(r.taken), err)
				}
				got := r.taken[c.calls-1]
				if got.Outcome != workflow.Failed || got.Reason != workflow.ReasonSecretUnavailable || got.LogEnd != 1 || (got.Tail != nil) != c.tail {
					t.Fatalf("got %+v", got)
				}
				if !c.tail {
					return
				}
				lines, err := got.Tail.Unpack()
				if err != nil || got.Tail.First != 0 || len(lines) != 1 || !strings.Contains(lines[0].Text, "the secret for A did not resolve") {
					t.Errorf("got from %d on %+v, %v", got.Tail.First, lines, err)
				}
			})
		})
	}
}
