//go:build machine

package runner

import (
	"context"
	"errors"
	"net/http"
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

func (*ecsTask) getenv(getenv func(string) string) func(string) string { return getenv }

func (*ecsTask) check(func(string) string) error { return nil }

func (*ecsTask) way(auth, _ string) (*http.Client, error) {
	if auth != "" {
		return nil, errors.New("DAYFLY_RELAY_AUTH is set, and this runner was built for processes of one machine, which sign nothing")
	}
	return nil, nil //nolint:nilnil // the usual one
}

func (*ecsTask) apply(*Config) {}
