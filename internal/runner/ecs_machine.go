//go:build machine

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/task"
)

// With the tag machine, the runner is built for processes of one machine, which have no role in a cloud. It does not
// link the cloud's libraries: their initialisation takes a fifth of a runner's start.

// ecsTask stands for an ECS task, which this process never is.
type ecsTask struct{}

func onECS(_ context.Context, getenv func(string) string) (*ecsTask, error) {
	if getenv("ECS_CONTAINER_METADATA_URI_V4") != "" {
		return nil, errors.New("this runner was built for processes of one machine, but this is an ECS task: use the image that make image builds")
	}
	return nil, nil //nolint:nilnil // not an ECS task
}

func (*ecsTask) ref() string { return "" }

func (*ecsTask) check([]string) error { return nil }

func (*ecsTask) way(given task.Environment) (*http.Client, error) {
	if given.RelayAuth != "" {
		return nil, fmt.Errorf("%s is set, but this runner was built for processes of one machine and cannot sign calls", task.Name("RelayAuth"))
	}
	return nil, nil //nolint:nilnil // the usual one
}

func (*ecsTask) apply(*Config, task.Environment) error { return nil }
