package ecs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/task"
)

const (
	perPage    = 100  // tasks in one ListTasks and one DescribeTasks
	maxPages   = 1000 // of one list; a longer one is an error
	maxStopped = 10   // pages of tasks that were told to stop
	maxReason  = 255  // characters of a StopTask's reason
)

// List implements launcher.Launcher. It returns every task of the pool that is to run, and at most 1,000
// tasks of each task definition that were told to stop or have stopped. If there are more in an hour, Describe finds the others.
//
// ListTasks accepts startedBy only without another filter, and then shows only tasks that are to run. The
// others are listed by the family of their definition. DescribeTasks then shows whose they are.
func (l *Launcher) List(ctx context.Context) ([]launcher.Task, error) {
	by := startedBy(l.config.Pool)
	alive, _, err := l.arns(ctx, &ecs.ListTasksInput{StartedBy: &by}, maxPages)
	if err != nil {
		return nil, err
	}
	all := alive
	for _, family := range l.config.families() {
		ending, more, err := l.arns(ctx, &ecs.ListTasksInput{Family: &family, DesiredStatus: types.DesiredStatusStopped}, maxStopped)
		if err != nil {
			return nil, err
		}
		if more {
			l.config.Log.Warn("stopped tasks not listed in full", "family", family, "listed", len(ending))
		}
		all = append(all, ending...)
	}
	slices.Sort(all)
	out, err := l.describe(ctx, slices.Compact(all))
	if err != nil {
		return nil, err
	}
	return out, nil
}

// arns reads a list page by page. more says that the list has more pages than the limit; for a list of tasks that
// are to run that is an error.
func (l *Launcher) arns(ctx context.Context, in *ecs.ListTasksInput, limit int) (arns []string, more bool, err error) {
	in.Cluster, in.MaxResults = &l.config.Cluster, aws.Int32(perPage)
	for page := 0; ; page++ {
		if page == limit {
			if in.StartedBy != nil {
				return nil, true, fmt.Errorf("list tasks of pool %s: no end after %d pages", l.config.Pool, limit)
			}
			return arns, true, nil
		}
		out, err := bounded(ctx, l.config.CallTime, func(ctx context.Context) (*ecs.ListTasksOutput, error) {
			return l.client.ListTasks(ctx, in)
		})
		if err != nil {
			return nil, false, fmt.Errorf("list tasks of pool %s: %w", l.config.Pool, err)
		}
		arns = append(arns, out.TaskArns...)
		if aws.ToString(out.NextToken) == "" {
			return arns, false, nil
		}
		in.NextToken = out.NextToken
	}
}

// Describe implements launcher.Launcher. It does not ask for references that are not tasks of the cluster:
// ECS would refuse the whole call.
func (l *Launcher) Describe(ctx context.Context, refs ...string) ([]launcher.Task, error) {
	ours := slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return !l.ours(ref) })
	return l.describe(ctx, ours)
}

// describe asks for tasks and returns those of this launcher's kind that ECS knows.
func (l *Launcher) describe(ctx context.Context, arns []string) ([]launcher.Task, error) {
	var all []launcher.Task
	for batch := range slices.Chunk(arns, perPage) {
		out, err := bounded(ctx, l.config.CallTime, func(ctx context.Context) (*ecs.DescribeTasksOutput, error) {
			return l.client.DescribeTasks(ctx, &ecs.DescribeTasksInput{
				Cluster: &l.config.Cluster, Tasks: batch, Include: []types.TaskField{types.TaskFieldTags},
			})
		})
		if err != nil {
			return nil, fmt.Errorf("describe %d tasks: %w", len(batch), err)
		}
		for _, f := range out.Failures {
			if awserr.OfFailure(aws.ToString(f.Reason), "") != awserr.NotFound {
				// The task may exist. Without it the answer would say that it does not.
				return nil, fmt.Errorf("describe task %s: %s", aws.ToString(f.Arn), failureText(f))
			}
		}
		for _, t := range out.Tasks {
			if aws.ToString(t.StartedBy) != "" && *t.StartedBy != startedBy(l.config.Pool) {
				continue // another pool's of the same cluster
			}
			if task := l.task(t); task.Workflow != "" {
				all = append(all, task)
			}
		}
	}
	return all, nil
}

// ours reports whether ref is the ARN of a task of this launcher's cluster:
// arn:aws:ecs:REGION:ACCOUNT:task/CLUSTER/ID.
func (l *Launcher) ours(ref string) bool {
	if !isARN(ref, "ecs", ":task/") {
		return false
	}
	parts := strings.Split(ref, "/")
	return len(parts) == 3 && parts[1] == last(l.config.Cluster) && (len(parts[2]) == 32 || len(parts[2]) == 36) && isName(parts[2])
}

// Stop implements launcher.Launcher. ECS sends SIGTERM, and SIGKILL after the stopTimeout of the task
// definition. It is not an error to stop a task again.
func (l *Launcher) Stop(ctx context.Context, ref, why string) error {
	if !l.ours(ref) {
		return fmt.Errorf("stop task %s: %w", ref, launcher.ErrNotFound)
	}
	_, err := bounded(ctx, l.config.CallTime, func(ctx context.Context) (*ecs.StopTaskOutput, error) {
		return l.client.StopTask(ctx, &ecs.StopTaskInput{Cluster: &l.config.Cluster, Task: &ref, Reason: aws.String(reasonText(why))})
	})
	switch {
	case err == nil:
		return nil
	case awserr.Of(err) == awserr.NotFound:
		return fmt.Errorf("stop task %s: %w", ref, errors.Join(launcher.ErrNotFound, err))
	}
	return fmt.Errorf("stop task %s: %w", ref, err)
}

// reasonText cuts a reason to the length that ECS keeps.
func reasonText(why string) string {
	out := []rune(strings.ToValidUTF8(why, "?"))
	if len(out) == 0 {
		return "no reason was given"
	}
	return string(out[:min(len(out), maxReason)])
}

// bounded makes one call with a time limit.
func bounded[T any](ctx context.Context, d time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return call(ctx)
}

// task reads a task as ECS describes it.
func (l *Launcher) task(t types.Task) launcher.Task {
	v := view{
		ARN: aws.ToString(t.TaskArn), LastStatus: aws.ToString(t.LastStatus), DesiredStatus: aws.ToString(t.DesiredStatus),
		CreatedAt: aws.ToTime(t.CreatedAt), StopCode: string(t.StopCode), StoppedReason: aws.ToString(t.StoppedReason),
		Runner: l.config.Container,
	}
	for _, c := range t.Containers {
		one := containerView{Name: aws.ToString(c.Name), Reason: aws.ToString(c.Reason)}
		if c.ExitCode != nil {
			code := int(*c.ExitCode)
			one.ExitCode = &code
		}
		v.Containers = append(v.Containers, one)
	}
	if t.Overrides != nil {
		for _, o := range t.Overrides.ContainerOverrides {
			env := map[string]string{}
			for _, e := range o.Environment {
				env[aws.ToString(e.Name)] = aws.ToString(e.Value)
			}
			v.claimByEnv(aws.ToString(o.Name), env)
		}
	}
	tags := map[string]string{}
	for _, tag := range t.Tags {
		tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	// A task may have tags although its overrides are not shown.
	if n, err := strconv.Atoi(tags[tagAttempt]); err == nil {
		v.claim("", tags[tagJob], n)
	}
	return v.task()
}

// claimByEnv notes the job of a task if a container's variables name it.
func (v *view) claimByEnv(container string, env map[string]string) {
	given, _ := task.Read(func(name string) string { return env[name] }, "")
	v.claim(container, given.Workflow, given.Attempt)
}

// claim notes the job of a task if that is not known yet.
func (v *view) claim(container, job string, attempt int) {
	if v.Workflow != "" || job == "" || attempt < 1 {
		return
	}
	v.Workflow, v.Attempt = job, attempt
	if container != "" {
		v.Runner = container
	}
}
