// Package launches reads how a pool's stack launches, for every function that does. Two functions with the same
// variables make the same call for the same message. It is apart from boot, because it links ECS.
package launches

import (
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/queue"
)

// Margin is the part of an invocation's time that is kept for the answer of a launch that begins.
const Margin = 10 * time.Second

// Tasks reads the settings of tasks and of the place where they run.
func Tasks(env *boot.Env) ecs.Config {
	out := ecs.Config{
		Cluster:        env.Required("DAYFLY_CLUSTER", "the name or the ARN of the ECS cluster"),
		TaskDefinition: env.Required("DAYFLY_TASK_DEFINITION", "the task definition of the runner"),
		Container:      env.Required("DAYFLY_CONTAINER", "the name of the runner's container in it"),
		Pool:           env.Required("DAYFLY_POOL", "the name of the pool, with which its tasks are marked"),
		Subnets:        env.RequiredList("DAYFLY_SUBNETS", "the subnets of the tasks"),
		SecurityGroups: env.List("DAYFLY_SECURITY_GROUPS"),
		AssignPublicIP: env.Bool("DAYFLY_ASSIGN_PUBLIC_IP", false),
		Tags:           Pairs(env, "DAYFLY_TASK_TAGS"),
		Spot:           ecs.Spot(env.OneOf("DAYFLY_SPOT", string(ecs.SpotReads), string(ecs.SpotNever), string(ecs.SpotReads), string(ecs.SpotAll))),
		Images:         Pairs(env, "DAYFLY_IMAGES"),
		MaxDisk:        env.Int("DAYFLY_MAX_DISK", 0, 0, 200),
	}
	if env.Err() == nil { // else it would report the missing variables again, in other words
		env.Also(out.Validate())
	}
	return out
}

// Pairs reads a variable that holds KEY=VALUE divided by commas.
func Pairs(env *boot.Env, name string) map[string]string {
	out := map[string]string{}
	for _, pair := range env.List(name) {
		key, value, ok := strings.Cut(pair, "=")
		if _, twice := out[key]; !ok || twice {
			env.Wrong(name, "%q is not KEY=VALUE, or its key is there twice", pair)
		}
		out[key] = value
	}
	return out
}

// Dispatcher reads how tasks are launched. The function has a part of the pool's calls per second.
func Dispatcher(env *boot.Env, tasks ecs.Config, part float64) dispatcher.Config {
	relay := env.URL("DAYFLY_RELAY_URL", "the address that tasks report to")
	rate := env.Number("DAYFLY_LAUNCH_RATE", 20, 20)
	// The part is divided by the invocations that may run at once.
	invocations := env.Int("DAYFLY_LAUNCH_CONCURRENCY", 2, 1, 1000)
	return dispatcher.Config{
		Relay:      func(string) string { return relay },
		Placements: tasks.Placements,
		Workers:    queue.MaxBatch, // a batch is launched at once, as fast as its pace allows
		Rate:       rate * part / float64(max(invocations, 1)),
		Margin:     Margin,
	}
}
