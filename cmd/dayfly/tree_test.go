package main

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// after registers workspaces that run after others.
func (w *world) after(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		name, on, _ := strings.Cut(line, " ")
		text := "{name: " + name + ", engine: command, after: [" + on + "], commands: {preview: 'true', update: 'true', destroy: 'true'}}"
		w.ok("apply", "-f", w.put(text))
	}
}

// plays ends the runs that come, in their order, until the context ends: those of the workspaces that are named fail.
func (w *world) plays(n int, failing ...string) (done chan []string) {
	done = make(chan []string, 1)
	go func() {
		var all []string
		defer func() { done <- all }()
		for range n {
			job, runner := w.claim()
			result := api.Result{Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 1}}
			for _, name := range failing {
				if job.Workspace == name {
					result = api.Result{Outcome: workflow.Failed, Reason: workflow.ReasonStepFailed, Detail: "exit 1"}
				}
			}
			if _, err := runner.Result(context.WithoutCancel(w.t.Context()), result); err != nil {
				w.t.Error(err)
				return
			}
			all = append(all, job.Workspace)
		}
	}()
	return done
}

func TestTree_IsRunFollowedAndShown(t *testing.T) {
	w := newWorld(t)
	w.after("net", "db net", "app db")
	done := w.plays(3)
	got := w.run("run", "net", "--downstream", "--op", "update", "--yes", "--follow", "-m", "peering")
	if diff := cmp.Diff([]string{"net", "db", "app"}, <-done); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if got.code != cli.ExitOK {
		t.Fatalf("got %+v", got)
	}
	has(t, "order", got.stderr, "  1  net\n  2  db\n  3  app\n")
	has(t, "followed", got.stdout, "net  succeeded  wf_", "db   succeeded  wf_", "app  succeeded  wf_", "update of net: succeeded, 3/3 done")
	list := value[[]api.Tree](w, "tree", "list")
	if len(list) != 1 || list[0].Message != "peering" {
		t.Fatalf("listed: %+v", list)
	}
	has(t, "list", w.ok("tree", "list"), list[0].ID, "succeeded", "3/3")
	has(t, "show", w.ok("tree", "show", list[0].ID), "update of net and all that depend on it", "message     peering", "app        succeeded")
	if diff := cmp.Diff(list[0].ID+"\n", w.ok("tree", "list", "-o", "name")); diff != "" {
		t.Error(diff)
	}

	// Failed nodes, and those skipped for them, are reported, also by the exit code.
	done = w.plays(1, "app")
	got = w.run("run", "net", "--downstream", "--op", "destroy", "--yes", "--follow")
	<-done
	if got.code != cli.ExitFailed {
		t.Errorf("got %+v", got)
	}
	has(t, "failed", got.stderr, "  1  app\n  2  db\n  3  net\n")
	has(t, "failed", got.stdout, "app  failed", "its run failed (step_failed): exit 1", "db   skipped  app failed", "net  skipped  app failed", "destroy of net: failed, 3/3 done")
}

func TestTree_IsCancelledAndItsFollowerToldSo(t *testing.T) {
	w := newWorld(t)
	w.after("net", "db net")
	id := strings.TrimSpace(w.ok("run", "net", "--downstream", "--op", "update", "--every", "--yes"))
	if got := value[api.Tree](w, "tree", "show", id); !got.Every || got.State != api.TreeRunning {
		t.Errorf("submitted: %+v", got)
	}
	has(t, "completion", w.ok("__complete", "tree", "show", ""), id+"\trunning, update of net")
	has(t, "show", w.ok("tree", "show", id), "db         waiting", "waits for net")
	has(t, "cancel", w.ok("tree", "cancel", id, "--reason", "wrong day"), "tree "+id+" is over: cancelled")
	if got := w.run("tree", "cancel", id); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "has ended: it is cancelled") {
		t.Errorf("cancelled again: %+v", got)
	}

	out, ended, interrupt := w.begun("run", "net", "--downstream", "--op", "update", "--yes", "--follow")
	out.until(t, "running")
	interrupt()
	if code := ended(); code != cli.ExitInterrupted {
		t.Errorf("interrupted: exit %d", code)
	}
	has(t, "interrupted", out.String(), "dayfly tree cancel "+value[[]api.Tree](w, "tree", "list")[0].ID)
}

func TestTree_WaitsForApprovals(t *testing.T) {
	w := newWorld(t)
	w.ok("apply", "-f", w.put("{name: net, engine: terraform, source: {directory: /src}, approval: {required: true}}"))
	w.after("db net")
	planned := make(chan string, 1)
	go func() { planned <- w.planned(api.Changes{Add: 1}) }()
	got := w.run("run", "net", "--downstream", "--op", "update", "--yes", "--follow")
	if id := <-planned; got.code != cli.ExitAwaiting || !strings.Contains(got.stderr, "dayfly workflow approve "+id) {
		t.Errorf("got %+v, want exit %d and the plan of %s", got, cli.ExitAwaiting, id)
	}
	has(t, "followed", got.stdout, "net  running", api.TreeAwaits)
}

func TestTree_RefusesWhatDoesNotGoWithIt(t *testing.T) {
	w := newWorld(t)
	w.after("net")
	for _, tc := range []struct{ args, says string }{
		{"run net --downstream", "--op update or --op destroy"},
		{"run net --downstream --op scan", "--op update or --op destroy"},
		{"run ./net --downstream --op update", "name a workspace"},
		{"run net --downstream --op update --priority 3", "--downstream: goes with"},
		{"run net --downstream --op update --take-over", "--downstream: goes with"},
		{"run net --downstream --op update --target a.b", "no options"},
		{"run net --every --op update --yes", "--every: goes with --downstream"},
		{"run net --downstream --op destroy", "this tree destroys everything that net and 0 workspaces that depend on it manage"},
		{"tree list -n 0", "--limit"},
	} {
		if got := w.run(strings.Fields(tc.args)...); got.code != cli.ExitUsage || !strings.Contains(got.stderr, tc.says) {
			t.Errorf("%s: got %+v, want %q", tc.args, got, tc.says)
		}
	}
	for _, args := range []string{"tree show tree_1", "run nowhere --downstream --op update --yes"} {
		if got := w.run(strings.Fields(args)...); got.code != cli.ExitRefused || !regexp.MustCompile(`there is no (tree tree_1|workspace "?nowhere)`).MatchString(got.stderr) {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	if page, err := w.dialed(w.url, w.admin).Workflows(t.Context(), client.Filter{}); err != nil || len(page.Items) > 0 {
		t.Errorf("runs: %+v, %v", page.Items, err)
	}
}
