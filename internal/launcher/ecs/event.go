package ecs

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// event is the part of an "ECS Task State Change" event that is read. Unknown fields are ignored: AWS adds
// some without notice. (ECS developer guide, "Amazon ECS task state change events".)
type event struct {
	Source     string `json:"source"`
	DetailType string `json:"detail-type"`
	Detail     struct {
		TaskArn       string      `json:"taskArn"`
		LastStatus    string      `json:"lastStatus"`
		DesiredStatus string      `json:"desiredStatus"`
		CreatedAt     string      `json:"createdAt"`
		StopCode      string      `json:"stopCode"`
		StoppedReason string      `json:"stoppedReason"`
		Version       json.Number `json:"version"`
		Containers    []struct {
			Name     string   `json:"name"`
			ExitCode *float64 `json:"exitCode"`
			Reason   string   `json:"reason"`
		} `json:"containers"`
		Overrides struct {
			ContainerOverrides []struct {
				Name        string `json:"name"`
				Environment []struct {
					Name  string `json:"name"`
					Value string `json:"value"`
				} `json:"environment"`
			} `json:"containerOverrides"`
		} `json:"overrides"`
	} `json:"detail"`
}

// maxEvent bounds an event; EventBridge's own bound is 256 KiB.
const maxEvent = 1 << 20

// ParseEvent reads an "ECS Task State Change" event of EventBridge. Events come at least once and in any
// order. The version grows with each change of the task and is the same in duplicates, so of two events
// of one task the one with the higher version is later. The Phase says whether the task has ended: it is
// Stopping if the event only says that the task is to stop, such as the warning of a Spot interruption.
// The Workflow of a task that Dayfly did not start is empty. Any other event is refused with
// workflow.ErrInvalid.
func ParseEvent(body []byte) (task launcher.Task, version int64, err error) {
	refuse := func(format string, args ...any) (launcher.Task, int64, error) {
		return launcher.Task{}, 0, workflow.Refuse(workflow.ErrInvalid, "", format, args...)
	}
	if len(body) > maxEvent {
		return refuse("the event has %d bytes; the limit is %d", len(body), maxEvent)
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return refuse("the event is not the JSON that was expected: %v", err)
	}
	d := e.Detail
	if e.Source != "aws.ecs" || e.DetailType != "ECS Task State Change" {
		return refuse("the event is %.80q of %.80q, not an ECS Task State Change of aws.ecs", e.DetailType, e.Source)
	}
	if !isARN(d.TaskArn, "ecs", ":task/") || d.LastStatus == "" {
		return refuse("the event has no task or no status")
	}
	if version, err = d.Version.Int64(); err != nil || version < 0 {
		return refuse("the event has no version, or its version is not a number")
	}
	v := view{
		ARN: d.TaskArn, LastStatus: d.LastStatus, DesiredStatus: d.DesiredStatus, StopCode: d.StopCode, StoppedReason: d.StoppedReason,
	}
	if v.CreatedAt, err = time.Parse(time.RFC3339, d.CreatedAt); err != nil {
		v.CreatedAt = time.Time{} // only people read it
	}
	for _, c := range d.Containers {
		one := containerView{Name: c.Name, Reason: c.Reason}
		if c.ExitCode != nil {
			code := int(*c.ExitCode)
			one.ExitCode = &code
		}
		v.Containers = append(v.Containers, one)
	}
	for _, o := range d.Overrides.ContainerOverrides {
		env := map[string]string{}
		for _, e := range o.Environment {
			env[e.Name] = e.Value
		}
		v.claimByEnv(strings.TrimSpace(o.Name), env)
	}
	return v.task(), version, nil
}
