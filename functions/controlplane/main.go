// Command controlplane is the function that owns all state of workflows: the API behind an HTTP API or a private REST
// API, over DynamoDB, and its own pass once a minute. With DAYFLY_MODE long-polls it serves only calls that wait, beside
// the one that serves the others: so waiting pools take no concurrency from runners and people.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // schedules name time zones, and the function has no files of them for sure

	"github.com/aws/aws-lambda-go/lambda"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob/s3"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/forward"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/store/dynamodb"
)

var version = "dev" // set when it is built

// How long runners gather lines while somebody reads, and while nobody does: each batch is several requests, which are
// paid for. The second is less than the time between heartbeats, so that a run that prints needs none.
const (
	logWait = 2 * time.Second
	logIdle = 25 * time.Second
)

const maxRate = 1_000_000 // that can be set; 0 means none

// Modes: which calls the gateway routes here. Only modeAll ensures the first admin's token.
const (
	modeAll       = "all"
	modeLongPolls = "long-polls"
)

func main() {
	child.CloseInherited()
	if err := run(context.Background(), os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
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
	bucket := env.Text("DAYFLY_LOG_BUCKET", "") // of logs beyond their first MiB; none means that the table has all
	table := env.Required("DAYFLY_TABLE", "the name of the control plane's DynamoDB table")
	var admin *boot.Secret
	if env.OneOf("DAYFLY_MODE", modeAll, modeAll, modeLongPolls) == modeAll {
		admin = boot.SecretsManager(cfg, "the admin token", env.Required("DAYFLY_ADMIN_TOKEN_SECRET", "the ARN of the secret with the first admin's token"))
	}
	var webhooks func(context.Context) ([]byte, error) // the key from which the secrets of webhooks are derived
	if arn := env.Text("DAYFLY_WEBHOOK_KEY_SECRET", ""); arn != "" {
		key := boot.SecretsManager(cfg, "the key of webhooks", arn)
		webhooks = func(ctx context.Context) ([]byte, error) {
			value, err := key.Get(ctx)
			return []byte(value.Reveal()), err
		}
	}
	organization := env.Text("DAYFLY_ORGANIZATION", "default")
	var audit *forward.Place // where the sealed audit trail is sent to
	if to := env.Text("DAYFLY_AUDIT_FORWARD", ""); to != "" {
		var err error
		audit, err = forward.To("", to, func(name string) (*s3.Store, error) { return s3.New(env.Of("S3", cfg), name), nil })
		if err != nil {
			env.Wrong("DAYFLY_AUDIT_FORWARD", "%v", err)
		}
	}
	active := env.Int("DAYFLY_ORGANIZATION_LIMIT", 150, 1, 100_000) // limit of active workflows of an organization
	quota, err := api.ParseLogQuota(env.Text("DAYFLY_LOG_QUOTA", ""))
	if err != nil {
		env.Wrong("DAYFLY_LOG_QUOTA", "%v", err)
	}
	rates := admission.DefaultRates() // of each process, beside those of the gateway
	rates.Token = env.Int("DAYFLY_TOKEN_RATE", rates.Token, 0, maxRate)
	rates.Organization = env.Int("DAYFLY_ORGANIZATION_RATE", rates.Organization, 0, maxRate)
	var private []string // hosts and networks of OIDC issuers that may be called although they are private
	if listed := env.Text("DAYFLY_PRIVATE_ISSUERS", ""); listed != "" {
		private = strings.Split(listed, ",")
	}
	issuers, err := oidc.New(oidc.Config{Private: private, Log: log})
	if err != nil {
		env.Wrong("DAYFLY_PRIVATE_ISSUERS", "%v", err)
	}
	public := env.Text("DAYFLY_PUBLIC_URL", "") // under which browsers reach the pages; none means the gateway's address
	if public != "" {
		if err := console.CheckPublicURL("", public); err != nil {
			env.Wrong("DAYFLY_PUBLIC_URL", "%v", err)
		}
	}
	if err := env.Err(); err != nil {
		return nil, err
	}
	store, err := dynamodb.New(awsdynamodb.NewFromConfig(cfg), table, dynamodb.Config{})
	if err != nil {
		return nil, err
	}
	config := controlplane.Config{
		OrganizationLimit: active, LogQuota: quota, LogWait: logWait, LogIdle: logIdle, Expires: true, DefaultState: api.StateS3, Log: log, Waker: newWaker(cfg, log), Issuers: issuers, WebhookKey: webhooks, Address: public,
	}
	if bucket != "" {
		config.Blobs = s3.New(env.Of("S3", cfg), bucket)
	}
	if audit != nil {
		config.Forward = audit
	}
	plane := controlplane.New(store, config)
	gate := admission.New(rates, nil)
	apiHandler := httpapi.New(plane, httpapi.Config{Log: log, Version: version, Gate: gate})
	// The gateway decides by which names it is reached. A REST API has its stage in each address, unless a domain leads there.
	pages := func(base string) http.Handler {
		return console.New(plane, console.Config{
			Log: log, Version: version, Wait: time.Second, Download: 4 << 20, Organization: organization, Gate: gate, PublicURL: public, Base: base, HTTPS: true,
		}).Beside(apiHandler)
	}
	stage := "/api"
	if public != "" {
		stage = ""
	}
	return newFunction(plane, pages(""), pages(stage), admin, organization, log), nil
}
