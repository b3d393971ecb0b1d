package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestCommand_APoolIsPausedDrainedAndResumed(t *testing.T) {
	w := newWorld(t)
	w.workspace("net")
	id := strings.TrimSpace(w.ok("run", "net", "--op", "preview", "--timeout", "20m", "--priority", "0"))
	job, runner := w.claim()
	has(t, "show", w.ok("workflow", "show", id), "instance      test", "task          task-1", "max runtime   20m0s")
	has(t, "runners", w.ok("pool", "runners", "default"), "test", id, "net", "task-1", "running")
	has(t, "pool", w.ok("pool", "show", "default"), id)
	has(t, "pause", w.ok("pool", "pause", "default"), "pool default is paused", id+"  deployment preview of net (running) by test, task task-1, since", "dayfly pool resume default")
	if got := value[api.Pool](w, "pool", "show", "default"); !got.IsDisabled {
		t.Error("the pool is not disabled")
	}
	if got := w.run("pool", "drain", "default", "--timeout", "10ms"); got.code != exitTimeout || !strings.Contains(got.stderr, id) || !strings.Contains(got.stderr, "stays paused") {
		t.Errorf("a drain whose time is over: got %+v", got)
	}
	has(t, "list", w.ok("workflow", "list", "--pool", "default", "--state", "active"), id)
	if _, err := runner.Result(t.Context(), api.Result{Outcome: workflow.Succeeded}); err != nil {
		t.Fatal(err, job.ID)
	}
	has(t, "drain", w.ok("pool", "drain", "default", "--timeout", time.Minute.String()), "nothing runs in pool default any more")
	has(t, "resume", w.ok("pool", "resume", "default"), "claims again")
	if got := value[api.Pool](w, "pool", "show", "default"); got.IsDisabled {
		t.Error("the pool is still disabled")
	}
}

func TestCommand_ANewPoolSaysHowAnAgentIsStartedForIt(t *testing.T) {
	w := newWorld(t)
	made := w.run("pool", "create", "trusted")
	has(t, "create", made.stderr, `DAYFLY_TOKEN="$(cat TOKEN_FILE)" dayfly agent --service-url `+w.url)
	if token := strings.TrimSpace(made.stdout); strings.Contains(made.stderr, token) {
		t.Error("the command has the token")
	}
}
