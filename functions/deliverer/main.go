// Command deliverer is the function that performs deliveries: the poller invokes it, with {}, when some wait for the
// pool's side.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/deliverer"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/awssm"
)

// margin is kept of an invocation's time for its last log line.
const margin = 2 * time.Second

func main() {
	child.CloseInherited()
	if err := run(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "deliverer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	f, err := build(getenv, os.Stderr)
	if err != nil {
		return err
	}
	lambda.StartWithOptions(f.handle, lambda.WithContext(ctx))
	return nil
}

// build reads the environment and makes the clients, once for each process. The role of the function decides which
// secrets a delivery may name.
func build(getenv func(string) string, logTo io.Writer) (*function, error) {
	env := boot.Read(getenv)
	cfg, log := env.AWS(), env.Log(logTo)
	address := env.URL("DAYFLY_SERVICE_URL", "the address of the control plane")
	instance := env.Required("DAYFLY_INSTANCE", "the name under which this pool's stack claims")
	token := env.PoolToken(cfg, address, log)
	private, err := outbound.ReadPrivate(env.List("DAYFLY_PRIVATE_DELIVERIES"))
	if err != nil {
		env.Wrong("DAYFLY_PRIVATE_DELIVERIES", "%v", err)
	}
	if err := env.Err(); err != nil {
		return nil, err
	}
	upstream, err := boot.ControlPlane(address, token)
	if err != nil {
		return nil, err
	}
	d, err := deliverer.New(upstream, deliverer.Config{
		Instance: instance, Secrets: secrets.Mux{awssm.Scheme: awssm.New(secretsmanager.NewFromConfig(cfg), nil)},
		Private: private, Setting: "PrivateDeliveries of the stack", Log: log,
	})
	return &function{deliverer: d, log: log}, err
}

// function handles invocations, one at a time.
type function struct {
	deliverer *deliverer.Deliverer
	log       *slog.Logger
}

// handle performs waiting deliveries. Those for which it has no time wait for the next invocation.
func (f *function) handle(ctx context.Context, event json.RawMessage) error {
	boot.Began(ctx, f.log, "")
	members, kind, err := boot.Shape(event)
	if err == nil && len(members) > 0 {
		err = boot.WrongTrigger("the event is %.80q, and not empty", kind)
	}
	if err != nil {
		return err
	}
	ctx, cancel := boot.Until(ctx, margin)
	defer cancel()
	s, err := f.deliverer.Pass(ctx)
	f.log.InfoContext(ctx, "deliveries ended", "claimed", s.Claimed, "done", s.Done, "failed", s.Failed, "given_up", s.GivenUp, "unreported", s.Unreported, "more", s.More, "err", err)
	return err
}
