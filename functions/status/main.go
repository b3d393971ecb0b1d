// Command status is the function that runners talk to: the relay behind a REST API with IAM
// authorization. It also delivers the results that the control plane could not take at first.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/artifact"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/queue/sqs"
	"github.com/dayfly-dev/dayfly/internal/relay"
)

func main() {
	child.CloseInherited()
	if err := run(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "status:", err)
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
	keys := boot.NewKeys(boot.SecretsManager(cfg, "the ticket keys", env.Required("DAYFLY_TICKET_KEYS_SECRET", "the ARN of the secret with the ticket keys")))
	upstream := env.URL("DAYFLY_SERVICE_URL", "the address of the control plane")
	role := env.Required("DAYFLY_TASK_ROLE_NAME", "the name of the role of the pool's tasks, without its path")
	reports := env.URL("DAYFLY_REPORTS_QUEUE_URL", "the URL of the queue of reports")
	if err := env.Err(); err != nil {
		return nil, err
	}
	queue, err := sqs.New(awssqs.NewFromConfig(cfg), sqs.Config{URL: reports, Timeout: queueTime})
	if err != nil {
		return nil, err
	}
	var places relay.Places
	if bucket := env.Text("DAYFLY_ARTIFACTS_BUCKET", ""); bucket != "" { // none: this pool's runs leave no artifacts
		places = artifact.NewBucket(env.Of("S3", cfg), bucket, nil)
	}
	r, err := relay.New(keys, nil, relay.Config{
		URL: upstream, Transport: boot.Transport(), Log: log,
		Hold: -1, Forward: forwardTime, // time that a function waits is paid for
		Caller: caller, TaskRole: role, Know: keys.Know, Reports: queue, Places: places,
	})
	if err != nil {
		return nil, err
	}
	return newFunction(r, queue, log), nil
}
