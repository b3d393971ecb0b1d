// Package ecs is the launcher of a cluster of Amazon ECS: a task is one Fargate task of its own. It
// registers no task definition, makes no network and keeps nothing: what it knows, it asks ECS.
//
// # Consistency
//
// A launch carries a client token made of workflow, attempt and placement, and nothing in the call
// depends on the time or on who calls, so ECS itself answers the same request with the same task. ECS
// remembers a token for as long as the task lives and an hour more, a day at most; after that it is
// the control plane that refuses a second start. Where ECS says that the token was used for a request
// that differs (another version of the launcher, another ticket of the same attempt), the task that it
// names is adopted.
//
// One call is made per Launch, without the SDK's own repeats: a repeat that was throttled would hide a
// first try whose answer was lost. For the same reason a request that is Unsettled stays so until ECS has
// answered in a way that it could not if the task were there.
//
// DescribeTasks and ListTasks show what RunTask did only after a while, and a stopped task for an hour.
// So List and Describe leave out what ECS does not (yet, or any more) know, and that proves an end only
// of a task that was launched more than AbsenceProves ago: whoever takes absence for an end, the
// reaper by its policy, must know that age. A task is Stopped when ECS says STOPPED: every container
// has ended then. That a task is told to stop, which the warning of a Spot interruption also says,
// is not an end.
package ecs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
)

// AbsenceProves is how old a task must be for its absence from ECS to prove its end, for
// reaper.Policy. ECS asks for up to five minutes until it knows its own tasks, and shows stopped
// ones for an hour at least.
const AbsenceProves = 10 * time.Minute

// Client is what the launcher needs of ECS; *ecs.Client has it. Its own repeats serve the calls that read, and
// StopTask; RunTask turns them off.
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

// New returns a launcher. It calls nothing.
func New(client Client, c Config) (*Launcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Launcher{client: client, config: c.withDefaults()}, nil
}
