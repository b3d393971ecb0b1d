package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/api"
)

func TestCommand_ApprovalsAreRequiredAndTakenAway(t *testing.T) {
	w := newWorld(t)
	has(t, "at first", w.ok("organization", "show"), "approval          none")
	has(t, "organization", w.ok("organization", "update", "--approval", "required", "--approval-expires", "24h"), "approval          required; within 24h")
	has(t, "after the merge", w.ok("organization", "update", "--approval", "required", "--approval-after-merge"), "approval          required; of a pull request after the merge\n")
	has(t, "create", w.ok("project", "create", "payments", "--approval", "required"), "project payments is created")
	w.ok("project", "update", "payments", "--approval", "required", "--approval-not-by-submitter", "--approval-rule", "destroys", "--approval-rule", "changes>5")
	has(t, "project", w.ok("project", "show", "payments"), "approval     required for destroys, changes > 5; not by the submitter")
	want := &api.Approval{Required: true, NotBySubmitter: true, Rules: []string{"destroys", "changes > 5"}}
	if got := value[api.Project](w, "project", "show", "payments"); !cmp.Equal(got.Approval, want) {
		t.Errorf("project: got %+v", got.Approval)
	}

	for _, args := range [][]string{{"--approval-rule", "destroys"}, {"--approval-after-merge"}, {"--approval", "none", "--approval-expires", "1h"}, {"--approval", "yes"}} {
		if got := w.run(append([]string{"project", "update", "payments"}, args...)...); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--approval") {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	if got := w.run("project", "update", "payments", "--approval", "required", "--approval-rule", "never"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "approval.rules[0]") {
		t.Errorf("a rule that is none: got %+v", got)
	}

	w.ok("project", "update", "payments", "--approval", "none")
	w.ok("org", "update", "--approval", "none")
	if got := value[api.Project](w, "project", "show", "payments"); got.Approval != nil {
		t.Errorf("taken away: got %+v", got.Approval)
	}
	has(t, "at last", w.ok("organization", "show"), "approval          none")
}

func TestCommand_AWorkspaceFileRequiresApprovals(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "workspace.yaml")
	text := "{name: net, engine: command, commands: {update: 'true'}, approval: {required: true, not_by_submitter: true, expires: 2h, rules: [destroys]}}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("apply", "-f", file)
	has(t, "show", w.ok("workspace", "show", "net"), "approval        required for destroys; not by the submitter; within 2h")
}
