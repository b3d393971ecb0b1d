package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
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
	has(t, "pause", w.ok("pool", "pause", "default"), "pool default is paused", id+"  preview of net (running) by test, task task-1, since", "dayfly pool resume default")
	if got := value[api.Pool](w, "pool", "show", "default"); !got.IsDisabled {
		t.Error("the pool is not disabled")
	}
	if got := w.run("pool", "drain", "default", "--timeout", "10ms"); got.code != cli.ExitTimeout || !strings.Contains(got.stderr, id) || !strings.Contains(got.stderr, "stays paused") {
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
	has(t, "create", made.stderr, `DAYFLY_TOKEN="$(cat TOKEN_FILE)" dayfly agent --service-url `+w.url,
		"dayfly agent --service-url "+w.url+" --organization-name default --runner-pool-id pool_")
	if token := strings.TrimSpace(made.stdout); strings.Contains(made.stderr, token) {
		t.Error("the command has the token")
	}
}

func TestCommand_ProjectsAreATree(t *testing.T) {
	w := newWorld(t)
	w.ok("pool", "create", "trusted")
	has(t, "create", w.ok("project", "create", "payments", "--pool", "trusted", "--description", "money"), "project payments is created below global")
	w.ok("project", "create", "payments-eu", "--parent", "payments")
	w.ok("project", "create", "apps")
	has(t, "list", w.ok("project", "list"), "PROJECT", "\nglobal", "\n  apps", "\n  payments ", "trusted", "money", "\n    payments-eu")
	w.ok("project", "update", "payments-eu", "--parent", "apps")
	has(t, "show", w.ok("project", "show", "payments-eu"), "parent       apps")
	if got := w.run("project", "delete", "apps", "-y"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "project payments-eu lies below it; change that before project apps is deleted") {
		t.Errorf("delete of a project with children: got %+v", got)
	}
	if got := w.run("project", "update", "apps"); got.code != cli.ExitUsage {
		t.Errorf("an update of nothing: got %+v", got)
	}
	w.ok("project", "delete", "payments-eu", "-y")
	w.ok("project", "delete", "apps", "-y")
	if got := value[[]api.Project](w, "project", "list"); len(got) != 2 || got[0].Name != "global" || got[1].Pool != "trusted" {
		t.Errorf("got %+v", got)
	}
}

func TestCommand_APoolIsAssignedLabelledAndExplained(t *testing.T) {
	w := newWorld(t)
	w.workspace("net")
	w.workspace("app")
	w.ok("project", "create", "eu")
	w.ok("pool", "create", "gpu", "--label", "gpu", "--label", "big", "--stack", "ml")
	has(t, "show", w.ok("pool", "show", "gpu"), "big, gpu", "stack ml")
	file := filepath.Join(t.TempDir(), "workspace.yaml")
	if err := os.WriteFile(file, []byte("{name: train, engine: command, labels: [gpu, big], commands: {update: 'true'}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	has(t, "workspaces", w.ok("workspace", "list"), " with big,gpu ")
	has(t, "assign", w.ok("pool", "assign", "gpu", "-w", "net", "-w", "app", "-p", "eu", "--namespace", "lab"), "pool gpu is assigned to workspaces app, net; project eu; stack ml; namespace lab")
	has(t, "unassign", w.ok("pool", "unassign", "gpu", "-w", "app", "--stack", "ml"), "pool gpu is assigned to workspace net; project eu; namespace lab")
	if got := w.run("pool", "unassign", "gpu", "-w", "app"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, `pool gpu is not assigned to workspace "app"`) {
		t.Errorf("unassign without an assignment: got %+v", got)
	}
	if got := w.run("pool", "assign", "gpu", "-w", "ap"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, `there is no workspace "ap"`) {
		t.Errorf("assignment to a workspace that does not exist: got %+v", got)
	}
	if got := w.run("pool", "assign", "gpu"); got.code != cli.ExitUsage {
		t.Errorf("assignment to nothing: got %+v", got)
	}
	has(t, "all", w.ok("pool", "assign", "gpu", "--all"), "assigned to all workspaces")
	has(t, "not all", w.ok("pool", "unassign", "gpu", "--all"), "workspace net; project eu; namespace lab")
	has(t, "explain", w.ok("pool", "explain", "net"), "default  yes      it is the built-in pool", "gpu      no       pool default is nearer: it is the built-in pool")
	has(t, "set-default", w.ok("pool", "set-default", "gpu"), "pool gpu takes the workspaces")
	has(t, "organization", w.ok("organization", "show"), "default pool", "gpu")
	has(t, "explain with a default", w.ok("pool", "explain", "net"), "gpu      yes      it is the default pool of the organization")
	has(t, "explain of one that is not assigned", w.ok("pool", "explain", "app"), "gpu      no       it is not assigned to workspace app")
	w.ok("pool", "set-default", "default")
	if got := value[api.Organization](w, "organization", "update", "--limit", "7"); got.Limit != 7 || got.DefaultPool != "default" {
		t.Errorf("got %+v", got)
	}
	w.ok("pool", "update", "gpu", "--no-labels", "--all-workspaces")
	if got := value[api.Pool](w, "pool", "show", "gpu"); len(got.Labels)+len(got.AssignedProjects)+len(got.AssignedWorkspaces) > 0 || !got.AssignedToAll {
		t.Errorf("got %+v", got)
	}
}
