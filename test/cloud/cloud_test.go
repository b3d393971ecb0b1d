package cloud_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/scripts/functions/bootstrap"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// What TestMain builds: the functions, and the runner.
var functions, runner string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cloud")
	if err == nil {
		functions = filepath.Join(dir, "functions")
		err = build(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func build(dir string) error {
	packages, err := bootstrap.Functions("../..")
	if err != nil {
		return err
	}
	_, err = bootstrap.Build(context.Background(), bootstrap.Config{Root: "../..", Out: functions, NoZip: true}, packages...)
	if err != nil {
		return err
	}
	runner, err = built.Program(context.Background(), dir, "runnerimage")
	return err
}

// A workflow goes through everything that is deployed, with no permission but those of the templates: those of roles,
// of the endpoints of a network without a way out, and for a key that is the installation's own.
func TestCloud_TakesAWorkflowToItsTaskAndBack(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs functions and a task")
	}
	for direct, launches := range map[string]string{"true": "PollerRole", "false": "DispatcherRole"} {
		t.Run("DirectLaunch "+direct, func(t *testing.T) {
			dir := t.TempDir()
			c, err := cloud.Start(t.Context(), cloud.Config{
				Root: "../..", Functions: functions, Image: "runner",
				Parameters: map[string]string{"KmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/0b4f", "DirectLaunch": direct},
				TaskEnv:    map[string]string{"DAYFLY_WORK_DIR": dir},
				Runner:     &procrun.Runner{Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: dir, Output: t.Output()},
				Log:        func(function, line string) { t.Log(function, line) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			takeToItsTaskAndBack(t, c)
			for _, call := range c.AWS.Calls() {
				if call.Operation == "RunTask" && !strings.Contains(call.Caller.ARN, launches) {
					t.Errorf("%s launched, and not the %s", call.Caller.ARN, launches)
				}
			}
		})
	}
}

// takeToItsTaskAndBack runs a workflow whose source is nowhere, which only its task can find out.
func takeToItsTaskAndBack(t *testing.T, c *cloud.Cloud) {
	t.Helper()
	if _, _, err := c.Client.PutWorkspace(t.Context(), api.Workspace{
		Name: "hello", RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Git: &api.GitSource{URL: "https://127.0.0.1:1/hello.git"}},
			Commands: map[string]string{"preview": "echo hello"},
		},
		Pool: c.PoolName(),
	}); err != nil {
		t.Fatal(err)
	}
	wf, err := c.Client.Submit(t.Context(), api.Submit{Workspace: "hello", Operation: workflow.Preview})
	if err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(4 * time.Minute); !wf.State.Terminal(); {
		if time.Now().After(end) {
			t.Fatalf("it is still %s", wf.State)
		}
		<-look.C
		if wf, err = c.Client.Workflow(t.Context(), wf.ID); err != nil {
			t.Fatal(err)
		}
	}
	if wf.State != workflow.Failed || wf.Reason != workflow.ReasonSourceFailed || wf.Attempt != 1 {
		t.Errorf("it ended %s (%s) in attempt %d: %s", wf.State, wf.Reason, wf.Attempt, wf.Detail)
	}
	if p := c.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
}
