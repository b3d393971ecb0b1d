// Command dispatcher is the function that turns launch messages into tasks. With DAYFLY_MODE dead-letters it ends the
// workflows whose launch messages could not be handled.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
)

func main() {
	child.CloseInherited()
	if err := run(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "dispatcher:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	f, err := build(getenv)
	if err != nil {
		return err
	}
	lambda.StartWithOptions(f.handle, lambda.WithContext(ctx))
	return nil
}

// build reads the environment and makes everything that lives as long as the process.
func build(getenv func(string) string) (*function, error) {
	env := boot.Read(getenv)
	cfg, aws, log := read(env), env.AWS(), env.Log(os.Stderr)
	token := env.PoolToken(aws, cfg.serviceURL, log)
	if err := env.Err(); err != nil {
		return nil, err
	}
	cfg.tasks.Log, cfg.launches.Log = log, log
	upstream, err := boot.ControlPlane(cfg.serviceURL, token)
	if err != nil {
		return nil, err
	}
	tasks, err := ecs.New(awsecs.NewFromConfig(aws), cfg.tasks)
	if err != nil {
		return nil, err
	}
	queue, err := sqs.New(awssqs.NewFromConfig(boot.Repeating(aws)), sqs.Config{URL: cfg.queue})
	if err != nil {
		return nil, err
	}
	decide, err := cfg.decider(upstream, tasks)
	return &function{mode: cfg.mode, decide: decide, queue: queue, log: log}, err
}
