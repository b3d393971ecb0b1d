// Package ecs is the launcher of an Amazon ECS cluster: each task is one Fargate task. It registers no
// task definition, makes no network and keeps no state: it asks ECS each time.
//
// # Consistency
//
// A launch has a client token made of workflow, attempt and placement. Nothing in the call depends on
// the time or on the caller, so ECS answers the same request with the same task. ECS remembers a token
// while the task lives and for an hour more, at most a day; after that the control plane refuses a
// second start. ECS may say that the token was used for a different request (another version of the
// launcher, another ticket of the same attempt). The launcher then adopts the task that ECS names.
//
// Launch makes one call, without the SDK's own repeats: a throttled repeat would hide a first try
// whose answer was lost. For the same reason a request that MayHaveStarted stays so until ECS gives an answer that
// proves that the task does not exist.
//
// DescribeTasks and ListTasks show a new task only after a while, and a stopped one for an hour. So List
// and Describe may leave out a task that exists or existed. Absence proves an end only if the task was
// launched more than AbsenceProves ago; the reaper knows that age from its policy. A task is Stopped
// when ECS says STOPPED: then every container has ended. A task that is told to stop has not ended. The
// warning of a Spot interruption says no more than that.
package ecs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
)

// AbsenceProves is how old a task must be for its absence from ECS to prove its end, for
// reaper.Policy. ECS may need up to five minutes to show a new task. It shows stopped ones for at
// least an hour.
const AbsenceProves = 10 * time.Minute

// Client has the calls of ECS that the launcher makes; *ecs.Client implements it. Its own repeats are used for
// reading calls and StopTask. RunTask turns them off.
type Client interface {
	RunTask(ctx context.Context, in *ecs.RunTaskInput, options ...func(*ecs.Options)) (*ecs.RunTaskOutput, error)
	StopTask(ctx context.Context, in *ecs.StopTaskInput, options ...func(*ecs.Options)) (*ecs.StopTaskOutput, error)
	ListTasks(ctx context.Context, in *ecs.ListTasksInput, options ...func(*ecs.Options)) (*ecs.ListTasksOutput, error)
	DescribeTasks(ctx context.Context, in *ecs.DescribeTasksInput, options ...func(*ecs.Options)) (*ecs.DescribeTasksOutput, error)
}

// Launcher is a launcher.Launcher. Its methods may be called concurrently.
type Launcher struct {
	client Client
	config Config
}

// New returns a launcher. It makes no call.
func New(client Client, c Config) (*Launcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Launcher{client: client, config: c.withDefaults()}, nil
}
