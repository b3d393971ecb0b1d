package ecs

import "github.com/dayfly-dev/dayfly/internal/launcher"

// Names for the tests.
var (
	StartedBy   = startedBy
	TagText     = tagText
	ClientToken = clientToken
)

// Ended is the sentence and exit code of a stopped task whose runner's container is "runner".
func Ended(stopCode, stoppedReason string, containers ...ContainerEnd) launcher.Task {
	v := view{LastStatus: "STOPPED", StopCode: stopCode, StoppedReason: stoppedReason, Runner: "runner"}
	for _, c := range containers {
		v.Containers = append(v.Containers, containerView(c))
	}
	return v.task()
}

// ContainerEnd is how a container ended.
type ContainerEnd containerView

// Input is the call that a configuration makes of a request.
var Input = Config.input
