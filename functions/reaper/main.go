// Command reaper is the function that repairs: it gets the ends of tasks from ECS, and sweeps every few minutes for
// ends that no event reported.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/functions/internal/launches"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/reaper"
)

func main() {
	child.CloseInherited()
	if err := run(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "reaper:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	f, err := build(getenv, os.Stderr)
	if err != nil {
		return err
	}
	lambda.StartWithOptions(f.Handle, lambda.WithContext(ctx))
	return nil
}

// build reads the environment and makes the clients, once for each process.
func build(getenv func(string) string, logTo io.Writer) (*function, error) {
	env := boot.Read(getenv)
	cfg, log := env.AWS(), env.Log(logTo)
	address := env.URL("DAYFLY_SERVICE_URL", "the address of the control plane")
	token := env.PoolToken(cfg, address, log)
	// Without it, jobs of the pool's other instances, whose tasks are not in this cluster, would be taken for lost.
	instance := env.Required("DAYFLY_INSTANCE", "the name under which the stack's poller claims")
	dry := env.Bool("DAYFLY_REAPER_DRY_RUN", false)
	tasks := ecs.Config{
		Cluster:        env.Required("DAYFLY_CLUSTER", "the ECS cluster of the tasks"),
		TaskDefinition: env.Required("DAYFLY_TASK_DEFINITION", "the task definition of the runner"),
		Container:      env.Required("DAYFLY_CONTAINER", "the name of the runner's container"),
		Pool:           env.Required("DAYFLY_POOL", "the name of the pool"),
		Subnets:        env.RequiredList("DAYFLY_SUBNETS", "the subnets of the tasks"),
		Images:         launches.Pairs(env, "DAYFLY_IMAGES"),
		Log:            log,
	}
	if err := env.Err(); err != nil {
		return nil, err
	}
	launcher, err := ecs.New(awsecs.NewFromConfig(cfg), tasks)
	if err != nil {
		return nil, err
	}
	upstream, err := boot.ControlPlane(address, token)
	if err != nil {
		return nil, err
	}
	return &function{log: log, reaper: reaper.New(upstream, launcher, reaper.Config{
		Instance: instance, DryRun: dry, Log: log, Policy: reaper.Policy{AbsenceProves: ecs.AbsenceProves},
	})}, nil
}
