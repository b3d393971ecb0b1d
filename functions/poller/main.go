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
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
)

var version = "unknown" // set by the build

func main() {
	child.CloseInherited()
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
	aws, log := env.AWS(), env.Log(os.Stderr)
	address := env.URL("DAYFLY_SERVICE_URL", "the address of the control plane")
	instance := env.Required("DAYFLY_INSTANCE", "the name under which this pool's stack claims") // however many invocations there are
	token := env.PoolToken(aws, address, log)
	keys := boot.NewKeys(boot.SecretsManager(aws, "the ticket keys", env.Required("DAYFLY_TICKET_KEYS_SECRET", "the ARN of the secret with the ticket keys")))
	queueURL := env.URL("DAYFLY_JOBS_QUEUE_URL", "the URL of the queue of launches")
	window := env.Duration("DAYFLY_POLLING_WINDOW", 0, 0, maxWindow)
	types := env.Types()
	shortWay := readDirect(env)
	waiting := &deliveries{caller: boot.NewCaller(aws), deliverer: env.Text("DAYFLY_DELIVERER", ""), log: log}
	if err := env.Err(); err != nil {
		return nil, err
	}
	upstream, err := boot.ControlPlane(address, token)
	if err != nil {
		return nil, err
	}
	direct, err := shortWay.open(aws, upstream, log)
	if err != nil {
		return nil, err
	}
	jobs, err := sqs.New(awssqs.NewFromConfig(boot.Repeating(aws)), sqs.Config{URL: queueURL})
	if err != nil {
		return nil, err
	}
	p, err := poller.New(upstream, held{jobs}, keys, poller.Config{
		Instance: instance, Version: version, Types: types, Wait: 20 * time.Second,
		Reports: queue.MaxBatch, DepthFor: depthFor, Direct: direct, Deliveries: waiting.wait, Log: log,
	})
	return &function{poller: p, keys: keys, token: token, deliveries: waiting, window: window, log: log}, err
}
