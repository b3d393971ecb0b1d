package ecs

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// once turns the SDK's own repeats off. See the package comment.
func once(o *ecs.Options) { o.Retryer = aws.NopRetryer{} }

// Launch implements launcher.Launcher with one RunTask. If the answer is lost, the refusal is Unknown. If the request
// MayHaveStarted, so is a refusal that ECS could give without looking for its task.
func (l *Launcher) Launch(ctx context.Context, r launcher.Request) (launcher.Task, error) {
	in, err := l.config.input(r)
	if err != nil {
		return launcher.Task{}, err
	}
	if ctx.Err() != nil {
		return launcher.Task{}, markUnknown(r, awserr.Unavailable, &launcher.Refusal{
			Reason: workflow.ReasonUnavailable, Text: "the launch did not begin: its time was over",
		})
	}
	call, cancel := context.WithTimeout(ctx, l.config.CallTime)
	defer cancel()
	out, err := l.client.RunTask(call, in, once)
	if err == nil && len(out.Tasks) > 0 {
		return l.launched(r, out.Tasks[0]), nil
	}
	if conflict, ok := errors.AsType[*types.ConflictException](err); ok {
		return l.adopt(ctx, r, conflict.ResourceIds)
	}
	class, text := awserr.Lost, "ECS answered with neither a task nor a reason"
	switch {
	case err != nil:
		class, text = awserr.Of(err), awserr.Message(err)
	case len(out.Failures) > 0:
		f := out.Failures[0]
		class, text = awserr.OfFailure(aws.ToString(f.Reason), aws.ToString(f.Detail)), failureText(f)
	}
	refusal := refusalOf(class, text, in)
	if class == awserr.Denied && awserr.Credentials(err) {
		refusal.Permanent, refusal.Reason = false, workflow.ReasonUnavailable
		refusal.Text = "AWS refused the launcher's own credentials, so nothing can be launched: " + text
	}
	return launcher.Task{}, markUnknown(r, class, refusal)
}

// launched returns the task of an answer. If it has stopped already, the answer may have only its ARN and status.
func (l *Launcher) launched(r launcher.Request, t types.Task) launcher.Task {
	task := l.task(t)
	task.Workflow, task.Attempt = r.Workflow, r.Attempt
	return task
}

// markUnknown marks a refusal as Unknown if the task of the request may exist: because this answer was lost, or
// because an earlier one was and this one does not prove that the task does not exist.
func markUnknown(r launcher.Request, class awserr.Class, refusal *launcher.Refusal) *launcher.Refusal {
	switch class {
	case awserr.Lost, awserr.Conflict:
		refusal.Unknown = true
	case awserr.Throttled, awserr.Unavailable, awserr.Denied:
		refusal.Unknown = r.MayHaveStarted // refused before ECS looked for the task
	case awserr.None, awserr.Permanent, awserr.Capacity, awserr.Quota, awserr.Busy, awserr.LostRace, awserr.NotFound:
		// ECS looks for the token before it looks for anything else.
	}
	if refusal.Unknown {
		refusal.Permanent = false
		if !refusal.Reason.Held() {
			refusal.Reason = workflow.ReasonUnavailable
		}
	}
	return refusal
}

// adopt takes the task that ECS has under the token. ECS's word is enough, since the token is made of
// workflow, attempt and placement. If ECS also shows the task, it must be this attempt's.
func (l *Launcher) adopt(ctx context.Context, r launcher.Request, arns []string) (launcher.Task, error) {
	if len(arns) == 0 {
		return launcher.Task{}, markUnknown(r, awserr.Conflict, &launcher.Refusal{
			Reason: workflow.ReasonUnavailable, Text: "ECS says that a task of this attempt exists, but does not name it",
		})
	}
	shown, err := l.describe(ctx, arns)
	if err != nil {
		l.config.Log.Warn("adopted task not looked at", "job_id", r.Workflow, "attempt", r.Attempt, "err", err)
	}
	var found *launcher.Task
	others := map[string]string{}
	for _, t := range shown {
		if t.Workflow != "" && (t.Workflow != r.Workflow || t.Attempt != r.Attempt) {
			others[t.Ref] = fmt.Sprintf("attempt %d of job %s", t.Attempt, t.Workflow)
			continue
		}
		if found == nil || found.Phase == launcher.Stopped && t.Phase != launcher.Stopped {
			found = &t
		}
	}
	for _, arn := range arns {
		if found == nil && others[arn] == "" {
			found = &launcher.Task{Ref: arn, Phase: launcher.Starting} // not shown yet
		}
	}
	if found == nil {
		return launcher.Task{}, &launcher.Refusal{
			Reason: workflow.ReasonUnavailable,
			Text:   fmt.Sprintf("ECS has task %s under the token of this launch, but that task is %s", arns[0], others[arns[0]]),
		}
	}
	found.Workflow, found.Attempt = r.Workflow, r.Attempt
	l.config.Log.Info("task adopted", "job_id", r.Workflow, "attempt", r.Attempt, "task", found.Ref, "placement", r.Placement)
	return *found, nil
}

func failureText(f types.Failure) string {
	text := aws.ToString(f.Reason)
	if detail := aws.ToString(f.Detail); detail != "" {
		text += ": " + detail
	}
	return text
}

// refusalOf makes a refusal from the class of a failed launch.
func refusalOf(class awserr.Class, said string, in *ecs.RunTaskInput) *launcher.Refusal {
	where := fmt.Sprintf("%s, %s", in.NetworkConfiguration.AwsvpcConfiguration.Subnets[0], capacityName(in))
	refuse := func(reason workflow.Reason, format string, args ...any) *launcher.Refusal {
		return &launcher.Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
	}
	switch class {
	case awserr.Throttled:
		return refuse(workflow.ReasonThrottled, "AWS limits how fast this account may start tasks, and that rate was exceeded: %s", said)
	case awserr.Quota:
		return refuse(workflow.ReasonQuota, "this account's quota is used up: %s. Wait for running tasks to end, or ask AWS for a higher quota", said)
	case awserr.Capacity:
		return refuse(workflow.ReasonCapacity, "there is no capacity for a task of this size (%s): %s", where, said)
	case awserr.Unavailable, awserr.Busy:
		return refuse(workflow.ReasonUnavailable, "ECS did not accept the launch: %s", said)
	case awserr.Lost:
		return refuse(workflow.ReasonUnavailable, "ECS did not answer, so the task may exist: %s", said)
	case awserr.Denied:
		return launcher.Never("AWS does not permit this launch (check the launcher's policy and its iam:PassRole): %s", said)
	case awserr.NotFound:
		return launcher.Never("the cluster or the task definition of the pool does not exist: %s", said)
	case awserr.Permanent, awserr.LostRace, awserr.Conflict, awserr.None:
	}
	return launcher.Never("ECS refused the launch, and would refuse it again: %s", said)
}

func capacityName(in *ecs.RunTaskInput) string {
	if in.LaunchType == "" {
		return "Spot"
	}
	return "on demand"
}
