package ecs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func sample(t testing.TB, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "event-"+name+".json")) //nolint:gosec // a file of the test
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestParseEvent_ReadsWhatECSSends(t *testing.T) {
	created := time.Date(2026, 1, 23, 17, 57, 34, 402_000_000, time.UTC)
	ours := launcher.Task{Ref: arnOne, Workflow: "wf-1", Attempt: 2, CreatedAt: created}
	with := func(change func(*launcher.Task)) launcher.Task {
		task := ours
		change(&task)
		return task
	}
	code := func(n int) *int { return &n }
	for name, tc := range map[string]struct {
		want    launcher.Task
		version int64
	}{
		"running": {with(func(t *launcher.Task) { t.Phase = launcher.Running }), 4},
		"stopped": {with(func(t *launcher.Task) {
			t.Phase, t.ExitCode, t.Text = launcher.Stopped, code(1), "the runner ended with exit code 1"
		}), 7},
		"failed-to-start": {with(func(t *launcher.Task) {
			t.Phase, t.Unstarted = launcher.Stopped, true
			t.Text = "the resources of the task could not be set up: check the execution role, and that the subnet reaches the registry, Secrets Manager and CloudWatch Logs; ResourceInitializationError: unable to pull secrets or registry auth: execution resource retrieval failed"
		}), 3},
		// After the warning the runner still has two minutes.
		"spot-warning": {with(func(t *launcher.Task) { t.Phase = launcher.Stopping }), 5},
		"spot-stopped": {with(func(t *launcher.Task) {
			t.Phase, t.ExitCode, t.Text = launcher.Stopped, code(137), "AWS took its Spot capacity back; Your Spot Task was interrupted."
			t.Reason = workflow.ReasonSpotTaken
		}), 8},
		"foreign": {launcher.Task{Ref: arnOne, CreatedAt: created, Phase: launcher.Stopped, Text: "the task has ended, and ECS gives no exit code"}, 4},
	} {
		got, version, err := ecs.ParseEvent([]byte(sample(t, name)))
		if diff := cmp.Diff(tc.want, got); err != nil || version != tc.version || diff != "" {
			t.Errorf("%s: got version %d, %v; task differs (-want +got):\n%s", name, version, err, diff)
		}
	}
}

func TestParseEvent_RefusesWhatIsNoTaskEvent(t *testing.T) {
	good := sample(t, "stopped")
	for name, body := range map[string]string{
		"nothing":        "",
		"no JSON":        "<event>",
		"a list":         "[]",
		"empty":          "{}",
		"another source": strings.Replace(good, `"aws.ecs"`, `"my.app"`, 1),
		"another type":   strings.Replace(good, "ECS Task State Change", "ECS Deployment State Change", 1),
		"no task":        strings.Replace(good, `"taskArn"`, `"x"`, 2),
		"a cluster":      strings.ReplaceAll(good, ":task/dayfly/", ":cluster/dayfly/"),
		"no version":     strings.Replace(good, `"version": 7`, `"v": 7`, 1),
		"no number":      strings.Replace(good, `"version": 7`, `"version": 7.5`, 1),
		"negative":       strings.Replace(good, `"version": 7`, `"version": -7`, 1),
		"too long":       good + strings.Repeat(" ", 1<<20),
	} {
		if task, _, err := ecs.ParseEvent([]byte(body)); !errors.Is(err, workflow.ErrInvalid) || task.Ref != "" {
			t.Errorf("%s: got %+v, %v; want a refusal", name, task, err)
		}
	}
}

// FuzzParseEvent: whatever comes, a stopped task has its reason, and one with a workflow has an attempt.
func FuzzParseEvent(f *testing.F) {
	for _, name := range []string{"running", "stopped", "failed-to-start", "spot-warning", "spot-stopped", "foreign"} {
		f.Add([]byte(sample(f, name)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		task, version, err := ecs.ParseEvent(body)
		if err != nil {
			if !errors.Is(err, workflow.ErrInvalid) {
				t.Errorf("got %v, want a refusal", err)
			}
			return
		}
		if task.Ref == "" || version < 0 || task.Phase == "" {
			t.Errorf("got %+v, version %d", task, version)
		}
		if (task.Phase == launcher.Stopped) != (task.Text != "") || (task.Workflow != "") != (task.Attempt > 0) {
			t.Errorf("got %+v", task)
		}
	})
}
