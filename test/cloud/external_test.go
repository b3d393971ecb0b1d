package cloud_test

import (
	"context"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/test/awsim/moto"
	"github.com/dayfly-dev/dayfly/test/cloud"
	"github.com/dayfly-dev/dayfly/test/procrun"
)

// D5: another fake of AWS can stand in for ours, here moto for secrets and records, as LocalStack does in make
// e2e-localstack. (Of queues, moto takes back what was deleted with a partial failure.)
func TestCloud_WithServicesOfSomebodyElse(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs functions, a task and moto")
	}
	other := aws.ToString(moto.Start(t).BaseEndpoint)
	dir := t.TempDir()
	c, err := cloud.Start(t.Context(), cloud.Config{
		Root: "../..", Functions: functions, Image: "runner", TaskEnv: map[string]string{"DAYFLY_WORK_DIR": dir},
		Runner:   &procrun.Runner{Commands: map[string][]string{"runner": {runner}}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: dir, Output: t.Output()},
		Log:      func(function, line string) { t.Log(function, line) },
		External: map[string]string{"secretsmanager": other, "dynamodb": other},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Close()
		if err := c.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	takeToItsTaskAndBack(t, c)
}

func TestCloud_RefusesToLendWhatIsOurs(t *testing.T) {
	_, err := cloud.Start(t.Context(), cloud.Config{
		Root: "../..", Functions: functions, Image: "runner", Runner: &procrun.Runner{}, External: map[string]string{"ecs": "http://127.0.0.1:1"},
	})
	if err == nil {
		t.Error("an external ECS is accepted")
	}
	for _, list := range []string{"ecs=http://127.0.0.1:1", "sqs", "sqs=", "http://127.0.0.1:1", "s3=http://127.0.0.1:1,s3=http://127.0.0.1:2"} {
		if got, err := cloud.ParseExternal(list, ""); err == nil {
			t.Errorf("%q is read as %v", list, got)
		}
	}
}
