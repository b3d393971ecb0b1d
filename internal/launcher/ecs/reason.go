package ecs

import (
	"fmt"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// view is a task in the words that DescribeTasks and the events of ECS share.
type view struct {
	ARN           string
	LastStatus    string
	DesiredStatus string
	CreatedAt     time.Time
	StopCode      string
	StoppedReason string
	Containers    []containerView

	Workflow string // the job that it runs, if that could be read
	Attempt  int
	Runner   string // name of the runner's container
}

type containerView struct {
	Name     string
	ExitCode *int
	Reason   string
}

// task reads a view. It is a pure function.
func (v view) task() launcher.Task {
	t := launcher.Task{
		Ref: v.ARN, Workflow: v.Workflow, Attempt: v.Attempt, CreatedAt: v.CreatedAt.UTC(),
		Phase: phaseOf(v.LastStatus, v.DesiredStatus),
	}
	if t.Phase == launcher.Stopped {
		t.ExitCode, t.Text, t.Reason = v.runner().ExitCode, v.sentence(), v.reason()
		t.Unstarted = v.StopCode == "TaskFailedToStart"
	}
	return t
}

// phaseOf reads the status of a task. (ECS developer guide, "Task lifecycle".)
func phaseOf(status, desired string) launcher.Phase {
	switch status {
	case "STOPPED", "DELETED":
		return launcher.Stopped
	case "DEACTIVATING", "STOPPING", "DEPROVISIONING":
		return launcher.Stopping
	}
	switch {
	case desired == "STOPPED":
		return launcher.Stopping
	case status == "RUNNING":
		return launcher.Running
	}
	return launcher.Starting
}

// runner returns the runner's container, by its name or because it is the only one.
func (v view) runner() containerView {
	for _, c := range v.Containers {
		if c.Name == v.Runner {
			return c
		}
	}
	if len(v.Containers) == 1 {
		return v.Containers[0]
	}
	return containerView{}
}

// families are the errors that ECS writes at the beginning of a reason, and the remedies.
// (ECS developer guide, "Stopped task error codes".)
var families = []struct{ begins, says string }{
	{"OutOfMemory", "it ran out of memory: give the workspace a larger size"},
	{"CannotPull", "the image of the runner could not be pulled: check that it exists, that the execution role may pull it, and that the subnet reaches the registry"},
	{"ResourceInitializationError", "the resources of the task could not be set up: check the execution role, and that the subnet reaches the registry, Secrets Manager and CloudWatch Logs"},
	{"CannotStartContainer", "the container could not be started: check the entry point of the image and its user"},
	{"CannotCreateContainer", "the container could not be created: check the task definition"},
	{"CannotCreateVolume", "a volume of the task could not be created: check the task definition"},
	{"CannotInspectContainer", "ECS lost sight of the container"},
	{"ContainerRuntime", "the container runtime failed"},
	{"InternalError", "ECS failed while it created the task"},
	{"DockerTimeout", "the container did not start in time"},
	{"TaskFailedToStart", "the task could not be started"},
	{"SpotInterruption", spotText},
	{"Timeout waiting for network interface", "no network interface was ready in time"},
	{"Capacity is unavailable", "there was no capacity for it"},
	{"ECS is performing maintenance", maintenanceText},
	{"Your Spot Task was interrupted", spotText},
}

const (
	spotText        = "AWS took its Spot capacity back"
	maintenanceText = "AWS stopped it to maintain the machine that it ran on"
	hostText        = "the machine that it ran on failed"
)

// reason is the cause of a task's end, where it is one of ours.
func (v view) reason() workflow.Reason {
	c := v.runner()
	switch {
	case strings.HasPrefix(c.Reason, "OutOfMemory"), strings.HasPrefix(v.StoppedReason, "OutOfMemory"):
		return workflow.ReasonOutOfMemory
	case v.StopCode == "SpotInterruption", strings.HasPrefix(v.sentence(), spotText):
		return workflow.ReasonSpotTaken
	}
	return launcher.ExitReason(c.ExitCode)
}

// sentence says why a stopped task has ended and, if possible, what to do about it.
func (v view) sentence() string {
	c := v.runner()
	// The container knows more than the task, which often says only that an essential container exited.
	for _, reason := range []string{c.Reason, v.StoppedReason} {
		for _, f := range families {
			if strings.HasPrefix(reason, f.begins) {
				return join(f.says, reason)
			}
		}
	}
	switch v.StopCode {
	case "SpotInterruption":
		return join(spotText, v.StoppedReason)
	case "TerminationNotice":
		return join(maintenanceText, v.StoppedReason)
	case "InfrastructureHealth":
		return join(hostText, v.StoppedReason)
	case "TaskFailedToStart":
		return join("the task never started", v.StoppedReason, c.Reason)
	case "UserInitiated", "ServiceSchedulerInitiated":
		return join("it was told to stop", v.StoppedReason, exitText(c.ExitCode))
	}
	if other := v.endedBy(); other != "" {
		return join(other, exitText(c.ExitCode))
	}
	if c.ExitCode != nil {
		text := exitText(c.ExitCode)
		if v.StopCode != "EssentialContainerExited" && v.StoppedReason != "" {
			return join(text, v.StoppedReason, c.Reason)
		}
		return join(text, c.Reason)
	}
	return join("the task has ended, and ECS gives no exit code", v.StoppedReason, c.Reason)
}

// endedBy names the container whose end has stopped the task before the runner had ended by itself; "" if there is none.
func (v view) endedBy() string {
	c := v.runner()
	if v.StopCode != "EssentialContainerExited" || c.ExitCode != nil && *c.ExitCode != 137 && *c.ExitCode != 143 {
		return ""
	}
	for _, other := range v.Containers {
		if other.Name != c.Name && c.Name != "" && other.ExitCode != nil {
			return join(fmt.Sprintf("the container %s, which the task cannot do without, ended with exit code %d", other.Name, *other.ExitCode), other.Reason)
		}
	}
	return ""
}

// exitText explains an exit code of the runner; "" if there is none.
func exitText(code *int) string {
	if code == nil {
		return ""
	}
	text := launcher.ExitText(*code)
	switch *code {
	case 126:
		return text + ": its program cannot be executed"
	case 127:
		return text + ": its program is not in the image"
	case 134:
		return text + ": it aborted"
	case 137:
		return text + ": it was killed, because it ran out of memory or did not end in time"
	case 139:
		return text + ": it crashed"
	case 143:
		return text + ": it was asked to end"
	}
	return text
}

// join makes one text of the parts and leaves out repeated ones.
func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		p = strings.TrimSpace(p)
		if p == "" || strings.Contains(strings.Join(out, "\n"), p) {
			continue
		}
		out = append(out, p)
	}
	return strings.Join(out, "; ")
}
