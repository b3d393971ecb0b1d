package cloud

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/templates"
)

// Samples are the files of events/ that each function takes, by its name in the templates, the usual one first.
var Samples = map[string][]string{
	"Poller":       {"schedule.json", "wake.json"},
	"Dispatcher":   {"sqs-jobs.json"},
	"DeadLetters":  {"sqs-dead-letters.json"},
	"Status":       {"status-start.json", "status-heartbeat.json", "sqs-reports.json"},
	"Reaper":       {"sweep.json", "ecs-task-stopped.json", "ecs-task-failed-to-start.json"},
	"Deliverer":    {"deliver.json"},
	"ControlPlane": {"controlplane-pass.json", "http-api-list.json", "rest-api-list.json"},
	"LongPolls":    {"http-api-claim.json"},
}

// Sampled finds the name of a function in the templates: poller, dead-letters and ControlPlane are known.
func Sampled(name string) (string, error) {
	all := slices.Sorted(maps.Keys(Samples))
	for _, logical := range all {
		if strings.EqualFold(logical, strings.ReplaceAll(name, "-", "")) {
			return logical, nil
		}
	}
	return "", fmt.Errorf("there is no function %q; there are %s", name, strings.Join(all, ", "))
}

// Invoke gives an event to a function, by its name in the templates, and waits for the answer.
func (c *Cloud) Invoke(ctx context.Context, logical string, event []byte) (lambdahost.Result, error) {
	for _, s := range []*templates.Stack{c.Pool, c.Control} {
		if s.Resources[logical].Type == "AWS::Lambda::Function" {
			return c.Host.Invoke(ctx, c.functionName(s, logical), event)
		}
	}
	return lambdahost.Result{}, fmt.Errorf("no stack has a function %s", logical)
}
