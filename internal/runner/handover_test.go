package runner_test

import (
	"context"
	"fmt"
	"slices"
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

func (n *noLogs) Start(context.Context) (api.Started, error) { return api.Started{Spec: &n.spec}, nil }
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

// An outcome counts more than its reason, which the control plane does not know where the runner is newer.
func TestRunJob_ResultWithRefusedReasonIsResent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec, cfg := job(t, "exit 9")
		r := &noLogs{limit: 1 << 20, knows: workflow.ReasonRunnerError, spec: spec}
		cfg.Run, cfg.Relay, cfg.Spool = api.Run{Workflow: spec.Workflow, Attempt: spec.Attempt, Task: "task-1", Boot: strings.Repeat("ab", 16)}, r, "log-spool"
		err := runner.RunJob(t.Context(), cfg)
		if got := r.taken[len(r.taken)-1]; err != nil || got.Outcome != workflow.Failed || got.Reason != workflow.ReasonRunnerError {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

// R5: where the disk ends with the task, what was not taken of the log goes with the result, which counts more.
func TestRunJob_UnsentLogGoesWithTheResult(t *testing.T) {
	for name, c := range map[string]struct {
		spool string
		limit int
		print int
		calls int
		tail  bool
	}{
		"on ECS":                       {"", 1 << 20, 3, 1, true},
		"too large":                    {"", 0, 3, 2, false},
		"where the file is left":       {"log-spool", 1 << 20, 3, 1, true},
		"much, on ECS":                 {"", 1 << 20, api.MaxLogLines, 1, true},
		"much, where the file is left": {"log-spool", 1 << 20, api.MaxLogLines, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec, cfg := job(t, fmt.Sprintf("seq %d; exit 9", c.print))
				r := &noLogs{limit: c.limit, spec: spec}
				cfg.Run, cfg.Relay, cfg.Spool = api.Run{Workflow: spec.Workflow, Attempt: spec.Attempt, Task: "task-1", Boot: strings.Repeat("ab", 16)}, r, c.spool
				if err := runner.RunJob(t.Context(), cfg); err != nil || len(r.taken) != c.calls {
					t.Fatalf("%d results handed over, %v", len(r.taken), err)
				}
				got := r.taken[c.calls-1]
				if got.Outcome != workflow.Failed || got.Reason != workflow.ReasonStepFailed || got.LogEnd <= int64(c.print) || (got.Tail != nil) != c.tail {
					t.Fatalf("got %+v", got)
				}
				if !c.tail {
					return
				}
				lines, err := got.Tail.Unpack()
				if err != nil || got.Tail.First+int64(len(lines)) != got.LogEnd || !slices.ContainsFunc(lines, func(l api.LogLine) bool { return l.Text == fmt.Sprint(c.print) }) {
					t.Errorf("got %d lines from %d on of %d, %v", len(lines), got.Tail.First, got.LogEnd, err)
				}
			})
		})
	}
}
