// Command poller is the function that claims jobs and queues their launches. A schedule invokes it each
// minute, and the control plane, with {}, when work became claimable.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
)

var version = "unknown" // set by the build

func main() {
	if err := run(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "poller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	f, err := build(getenv)
	if err != nil {
		return err
	}
	lambda.StartWithOptions(func(ctx context.Context, event json.RawMessage) error { return f.handle(ctx, event) }, lambda.WithContext(ctx))
	return nil
}

// build reads the environment and makes everything that lives as long as the process.
func build(getenv func(string) string) (*function, error) {
	env := boot.Read(getenv)
	cfg, aws, log := read(env), env.AWS(), env.Log(os.Stderr)
	if err := env.Err(); err != nil {
		return nil, err
	}
	token := boot.SecretsManager(aws, "the pool token", cfg.tokenSecret)
	keys := boot.NewKeys(boot.SecretsManager(aws, "the ticket keys", cfg.keysSecret))
	upstream, err := boot.ControlPlane(cfg.serviceURL, token)
	if err != nil {
		return nil, err
	}
	jobs, err := sqs.New(awssqs.NewFromConfig(aws), sqs.Config{URL: cfg.jobsQueue})
	if err != nil {
		return nil, err
	}
	p, err := poller.New(upstream, launches{jobs}, keys, poller.Config{
		Instance: cfg.instance, Version: version, Types: cfg.types, Wait: 20 * time.Second,
		Reports: queue.MaxBatch, DepthFor: depthFor, Log: log,
	})
	return &function{poller: p, keys: keys, token: token, window: cfg.window, log: log}, err
}
