//go:build machine

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/dayfly-dev/dayfly/internal/task"
)

// With the tag machine, the runner is one for processes of one machine, which have no role in a cloud. It does not
// link the cloud's libraries: to make ready what they declare is a fifth of what the start of a runner takes.

// ecsTask is a task of ECS: this process is none.
type ecsTask struct{}

func onECS(_ context.Context, getenv func(string) string) (*ecsTask, error) {
	if getenv("ECS_CONTAINER_METADATA_URI_V4") != "" {
		return nil, errors.New("this runner was built for processes of one machine, and this is a task of ECS: use the image that make image builds")
	}
	return nil, nil //nolint:nilnil // no task of ECS
}

func (*ecsTask) ref() string { return "" }

func (*ecsTask) check([]string) error { return nil }

func (*ecsTask) way(given task.Environment) (*http.Client, error) {
	if given.RelayAuth != "" {
		return nil, fmt.Errorf("%s is set, and this runner was built for processes of one machine, which sign nothing", task.Name("RelayAuth"))
	}
	return nil, nil //nolint:nilnil // the usual one
}

func (*ecsTask) apply(*Config) {}
