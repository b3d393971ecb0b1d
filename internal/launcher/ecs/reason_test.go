package ecs_test

import (
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func runner(code int, reason string) ecs.ContainerEnd {
	if code < 0 {
		return ecs.ContainerEnd{Name: "runner", Reason: reason}
	}
	return ecs.ContainerEnd{Name: "runner", ExitCode: &code, Reason: reason}
}

func TestStopReasons_AreSentences(t *testing.T) {
	const exited = "Essential container in task exited"
	for name, tc := range map[string]struct {
		code, reason string
		containers   []ecs.ContainerEnd
		want         string
		exit         int // -1: none
	}{
		"done":           {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(0, "")}, "the runner ended with exit code 0", 0},
		"failed":         {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(1, "")}, "the runner ended with exit code 1", 1},
		"killed":         {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(137, "")}, "the runner ended with exit code 137: it was killed, because it ran out of memory or did not end in time", 137},
		"crashed":        {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(139, "")}, "the runner ended with exit code 139: it crashed", 139},
		"no program":     {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(127, "")}, "the runner ended with exit code 127: its program is not in the image", 127},
		"terminated":     {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(143, "")}, "the runner ended with exit code 143: it was asked to end", 143},
		"out of memory":  {"EssentialContainerExited", exited, []ecs.ContainerEnd{runner(137, "OutOfMemoryError: Container killed due to memory usage")}, "it ran out of memory: give the workspace a larger size; OutOfMemoryError: Container killed due to memory usage", 137},
		"a side car too": {"EssentialContainerExited", exited, []ecs.ContainerEnd{{Name: "proxy", Reason: "x"}, runner(2, "")}, "the runner ended with exit code 2", 2},
		"a side car first": {"EssentialContainerExited", exited, []ecs.ContainerEnd{{Name: "metrics", ExitCode: new(int), Reason: "gone"}, runner(143, "")},
			"the container metrics, which the task cannot do without, ended with exit code 0; gone; the runner ended with exit code 143: it was asked to end", 143},
		"a side car that was asked to end": {"EssentialContainerExited", exited, []ecs.ContainerEnd{{Name: "metrics", ExitCode: new(143)}, runner(1, "")}, "the runner ended with exit code 1", 1},
		"no image": {"TaskFailedToStart", "CannotPullContainerError: pull image manifest has been retried 5 time(s): not found", []ecs.ContainerEnd{runner(-1, "")},
			"the image of the runner could not be pulled: check that it exists, that the execution role may pull it, and that the subnet reaches the registry; CannotPullContainerError: pull image manifest has been retried 5 time(s): not found", -1},
		"no secret": {"TaskFailedToStart", "ResourceInitializationError: unable to pull secrets or registry auth", nil,
			"the resources of the task could not be set up: check the execution role, and that the subnet reaches the registry, Secrets Manager and CloudWatch Logs; ResourceInitializationError: unable to pull secrets or registry auth", -1},
		"failed to start, no containers": {"TaskFailedToStart", "Unexpected EC2 error while attempting to tag the network interface", nil, "the task never started; Unexpected EC2 error while attempting to tag the network interface", -1},
		"failed to start, no word":       {"TaskFailedToStart", "", nil, "the task never started", -1},
		"Spot":                           {"SpotInterruption", "Your Spot Task was interrupted.", []ecs.ContainerEnd{runner(143, "")}, "AWS took its Spot capacity back; Your Spot Task was interrupted.", 143},
		"Spot without a word":            {"SpotInterruption", "", nil, "AWS took its Spot capacity back", -1},
		"maintenance":                    {"TerminationNotice", "ECS is performing maintenance on the underlying infrastructure hosting the task", nil, "AWS stopped it to maintain the machine that it ran on; ECS is performing maintenance on the underlying infrastructure hosting the task", -1},
		"retirement":                     {"TerminationNotice", "retired", nil, "AWS stopped it to maintain the machine that it ran on; retired", -1},
		"host":                           {"InfrastructureHealth", "Host is not reachable", nil, "the machine that it ran on failed; Host is not reachable", -1},
		"by us":                          {"UserInitiated", "the job was cancelled", []ecs.ContainerEnd{runner(3, "")}, "it was told to stop; the job was cancelled; the runner ended with exit code 3", 3},
		"by us, killed":                  {"UserInitiated", "the job was cancelled", []ecs.ContainerEnd{runner(137, "")}, "it was told to stop; the job was cancelled; the runner ended with exit code 137: it was killed, because it ran out of memory or did not end in time", 137},
		"runtime":                        {"TaskFailedToStart", "Task failed to start", []ecs.ContainerEnd{runner(-1, "ContainerRuntimeError: failed to create container")}, "the container runtime failed; ContainerRuntimeError: failed to create container", -1},
		"new code":                       {"CometImpact", "a comet", nil, "the task has ended, and ECS gives no exit code; a comet", -1},
		"new code with an exit":          {"CometImpact", "a comet", []ecs.ContainerEnd{runner(1, "")}, "the runner ended with exit code 1; a comet", 1},
		"nothing":                        {"", "", nil, "the task has ended, and ECS gives no exit code", -1},
		"named otherwise":                {"EssentialContainerExited", exited, []ecs.ContainerEnd{{Name: "main", ExitCode: new(int)}}, "the runner ended with exit code 0", 0},
		"two, and none is ours":          {"EssentialContainerExited", exited, []ecs.ContainerEnd{{Name: "a", ExitCode: new(int)}, {Name: "b"}}, "the task has ended, and ECS gives no exit code; Essential container in task exited", -1},
	} {
		got := ecs.Ended(tc.code, tc.reason, tc.containers...)
		if got.Phase != launcher.Stopped || got.Text != tc.want {
			t.Errorf("%s: got %q, want %q", name, got.Text, tc.want)
		}
		switch {
		case tc.exit < 0 && got.ExitCode != nil:
			t.Errorf("%s: got exit code %d, want none", name, *got.ExitCode)
		case tc.exit >= 0 && (got.ExitCode == nil || *got.ExitCode != tc.exit):
			t.Errorf("%s: got %v, want exit code %d", name, got.ExitCode, tc.exit)
		}
		if strings.HasSuffix(got.Text, "; ") {
			t.Errorf("%s: %q ends in nothing", name, got.Text)
		}
	}
}

// L8: what ends a task is told apart where ECS knows it.
func TestReason_OfAStoppedTask(t *testing.T) {
	for name, tc := range map[string]struct {
		got  launcher.Task
		want workflow.Reason
	}{
		"memory of the container": {ecs.Ended("EssentialContainerExited", "", runner(137, "OutOfMemoryError: Container killed due to memory usage")), workflow.ReasonOutOfMemory},
		"memory of the task":      {ecs.Ended("", "OutOfMemory: task killed"), workflow.ReasonOutOfMemory},
		"Spot":                    {ecs.Ended("SpotInterruption", "", runner(0, "")), workflow.ReasonSpotTaken},
		"Spot in the reason":      {ecs.Ended("", "Your Spot Task was interrupted."), workflow.ReasonSpotTaken},
		"relay":                   {ecs.Ended("EssentialContainerExited", "", runner(task.ExitUnreported, "")), workflow.ReasonRelayLost},
		"killed":                  {ecs.Ended("EssentialContainerExited", "", runner(137, "")), workflow.ReasonNone},
		"by us":                   {ecs.Ended("UserInitiated", "cancelled", runner(143, "")), workflow.ReasonNone},
	} {
		if tc.got.Reason != tc.want {
			t.Errorf("%s: got %q, want %q", name, tc.got.Reason, tc.want)
		}
	}
}
