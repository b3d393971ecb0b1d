package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// says plays a runner whose step prints lines, the first of its log.
func (w *world) says(runner *client.Runner, step string, lines []string) {
	w.t.Helper()
	if len(lines) == 0 {
		return
	}
	in := api.Logs{}
	for _, l := range lines {
		in.Lines = append(in.Lines, api.LogLine{At: time.Now(), Step: step, Text: l})
	}
	if _, err := runner.Logs(w.t.Context(), in); err != nil {
		w.t.Fatal(err)
	}
}

// finish plays a runner that does one step and ends with the given result.
func (w *world) finish(result api.Result, lines ...string) {
	w.t.Helper()
	ctx := w.t.Context()
	_, runner := w.claim()
	if _, err := runner.Steps(ctx, api.Steps{Steps: []api.Step{{Seq: 1, Name: "update", Status: workflow.StepRunning, StartedAt: time.Now()}}}); err != nil {
		w.t.Fatal(err)
	}
	w.says(runner, "update", lines)
	status := workflow.StepSucceeded
	if result.Outcome == workflow.Failed {
		status = workflow.StepFailed
	}
	if _, err := runner.Steps(ctx, api.Steps{Steps: []api.Step{{Seq: 1, Name: "update", Status: status, StartedAt: time.Now(), Seconds: 1.5}}}); err != nil {
		w.t.Fatal(err)
	}
	result.LogEnd = int64(len(lines))
	if _, err := runner.Result(ctx, result); err != nil {
		w.t.Fatal(err)
	}
}

// C14: the log, the steps, the changes and the outputs are there while it runs and at its end.
func TestFollow_ShowsLogStepsAndOutcome(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	for _, tc := range []struct {
		result api.Result
		code   int
		says   []string
	}{
		{
			api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 2, Destroy: 1}, Outputs: []api.Output{
				{Name: "address", Value: "10.0.0.1"}, {Name: "password", Sensitive: true},
			}, Inventory: &api.Inventory{Resources: 4, Types: []api.InventoryCount{{Type: "aws_subnet", Count: 3}, {Type: "aws_vpc", Count: 1}}}, Checks: &api.Checks{Failing: 1, Names: []string{"check.health"}}},
			cli.ExitOK, []string{"succeeded", "checks: 1 failing: check.health", "1 destroyed, 2 added", "address = 10.0.0.1", "password = (sensitive)", "the state has 4 resources: 3 aws_subnet, 1 aws_vpc", "✓ update 1.5s"},
		},
		{
			api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "update exited with 3"},
			cli.ExitFailed, []string{"failed", "step_failed", "update exited with 3", "dayfly why", "✗ update 1.5s"},
		},
		{
			api.Result{Outcome: workflow.Cancelled, Reason: workflow.ReasonCancelled},
			cli.ExitCancelled, []string{"cancelled"},
		},
	} {
		done := make(chan answer)
		go func() { done <- w.in(t.Context(), "", "run", "one", "--op", "update", "--yes", "--follow") }()
		w.finish(tc.result, "first line", "\x1b[31msecond\x1b[0m line")
		got := <-done
		if got.code != tc.code {
			t.Errorf("%s: got exit %d, want %d", tc.result.Outcome, got.code, tc.code)
		}
		has(t, string(tc.result.Outcome), got.stdout, append(tc.says, "update   │ first line\n", "update   │ second line\n")...)
		if strings.Contains(got.stdout+got.stderr, "\x1b") || strings.Contains(got.stdout, "\r") {
			t.Errorf("%s: escape sequences outside a terminal: %q", tc.result.Outcome, got.stdout)
		}
	}
}

func TestFollow_JSONIsTheResultAlone(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	id := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	w.finish(api.Result{Outcome: workflow.Succeeded}, "a line")
	got := value[api.Workflow](w, "workflow", "logs", "-f", id)
	if got.ID != id || got.State != workflow.Succeeded || len(got.Steps) != 1 {
		t.Errorf("got %+v", got)
	}
	if text := w.ok("workflow", "logs", id); text != "update   │ a line\n" {
		t.Errorf("got %q", text)
	}
	if text := w.ok("workflow", "logs", id, "-o", "json"); !strings.Contains(text, `"text":"a line"`) {
		t.Errorf("got %q", text)
	}
}

func TestFollow_AnInterruptSaysWhatBecomesOfTheWorkflow(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	id := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan answer)
	go func() { done <- w.in(ctx, "", "workflow", "logs", "-f", id) }()
	cancel(errors.New("interrupted"))
	got := <-done
	if got.code != cli.ExitInterrupted {
		t.Errorf("got exit %d, want %d", got.code, cli.ExitInterrupted)
	}
	has(t, "interrupt", got.stderr, id+" goes on", "dayfly workflow cancel "+id)

	w.ok("workflow", "cancel", id)
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	has(t, "interrupt after the end", w.in(ctx, "", "workflow", "logs", "-f", id).stderr, "is over: cancelled")
}

func TestLogs_SayWhyThereAreNone(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	id := strings.TrimSpace(w.ok("run", "one"))
	logs := func(code int, says string, args ...string) {
		t.Helper()
		got := w.run(append([]string{"workflow", "logs", id}, args...)...)
		if got.code != code || got.stdout != "" || !strings.Contains(got.stderr, says) {
			t.Errorf("logs %v: got %+v, want exit %d and %q", args, got, code, says)
		}
	}
	logs(cli.ExitOK, "it is pending; dayfly why "+id)
	logs(cli.ExitRefused, "no attempt 1: it was not claimed yet", "--attempt", "1")
	logs(cli.ExitUsage, "--attempt: want a number above 0", "--attempt", "0")
	job, _ := w.claim()
	logs(cli.ExitOK, "it is running; -f waits for it")
	logs(cli.ExitRefused, "no attempt 7: its latest is 1", "--attempt", "7")
	if job.ID != id {
		t.Fatalf("claimed %s", job.ID)
	}
	id = strings.TrimSpace(w.ok("run", "one"))
	w.ok("workflow", "cancel", id)
	logs(cli.ExitOK, "it never started (cancelled")
}

func TestTimes_CarryTheirZone(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	id := strings.TrimSpace(w.ok("run", "one"))
	w.ok("token", "create", "ci", "--expires", "24h")
	clock := regexp.MustCompile(`[0-9]{1,2}:[0-9]{2}:[0-9]{2}( ?[A-Z+-])?`)
	for _, args := range [][]string{{"why", id}, {"workflow", "show", id}, {"token", "list"}, {"workflow", "list"}, {"pool", "show", "default"}, {"pool", "list"}} {
		for _, m := range clock.FindAllStringSubmatch(w.ok(args...), -1) {
			if m[1] == "" {
				t.Errorf("%v: %s has no zone", args, m[0])
			}
		}
	}
	for _, args := range [][]string{{"why", id}, {"workflow", "show", id}, {"token", "list"}} {
		if text := w.ok(args...); !clock.MatchString(text) {
			t.Errorf("%v: shows no time:\n%s", args, text)
		}
	}
}

// O1: what it waits for, since when, what happens next.
func TestWhy_ReadsTheTimelineOut(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	first := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	second := strings.TrimSpace(w.ok("run", "one", "--op", "destroy", "--yes"))
	text := w.ok("why", second)
	has(t, "why of the second", text, "destroy of one: pending", "now ", "next ", "submitted", first)
	w.finish(api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "no"})
	has(t, "why of the failed one", w.ok("why", first), "failed", "started", "result")
	if got := value[api.Why](w, "why", first); got.Workflow.ID != first || len(got.Timeline) < 4 {
		t.Errorf("got %+v", got)
	}
	has(t, "list", w.ok("workflow", "list"), first, second, "step_failed", "pending")
	has(t, "filtered list", w.ok("workflow", "list", "--state", "failed"), first)
	has(t, "show", w.ok("workflow", "show", first), "step_failed", "✗ update")

	retried := value[api.Workflow](w, "workflow", "retry", first, "--yes", "--reason", "the right one")
	if retried.RetryOf != first || retried.Operation != workflow.Update {
		t.Errorf("got %+v", retried)
	}
	has(t, "cancel", w.ok("workflow", "cancel", retried.ID, "--reason", "wrong branch"), "is cancelled")
	has(t, "why", w.ok("why", retried.ID), "the right one", "wrong branch")
	has(t, "cancel again", w.ok("workflow", "cancel", retried.ID), "cancelled")
	has(t, "a short list", w.run("workflow", "list", "-n", "1").stderr, "-n 2 shows more")
}
