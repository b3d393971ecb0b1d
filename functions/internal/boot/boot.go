// Package boot provides the parts that every function needs before its first event: a reader of the environment that
// reports every mistake at once, an AWS configuration, secrets that are read again when they change, a log,
// and a client of the control plane. It does not know the work of a function.
//
// It runs nothing between invocations: a function is frozen then, and a goroutine would wake during another
// invocation. (Only the control plane's waker leaves one, which reads the answer to a wake.) The age of a cached value
// is checked when it is next needed.
package boot

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/dayfly-dev/dayfly/internal/awssend"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Time-outs of connections. The first bounds a connection that is not accepted; the other, an answer that
// never begins. A long poll answers within 20 s.
const (
	dialTime   = 5 * time.Second
	answerTime = 30 * time.Second
	// idleTime is below the idle time-out of the servers that we call (a load balancer's is 60 s).
	idleTime = 50 * time.Second
)

// AWS returns the configuration of the SDK's clients from the variables that Lambda puts into a function's
// environment: region and credentials, which live as long as the function's process. AWS_ENDPOINT_URL and
// AWS_ENDPOINT_URL_SERVICE (such as AWS_ENDPOINT_URL_SECRETS_MANAGER) are used. The SDK's config package does the
// same for a function, and costs more at its start.
func (e *Env) AWS() aws.Config {
	const byLambda = "set by the Lambda runtime"
	key := aws.Credentials{
		AccessKeyID:     e.Required("AWS_ACCESS_KEY_ID", byLambda),
		SecretAccessKey: e.Required("AWS_SECRET_ACCESS_KEY", byLambda),
		SessionToken:    e.get("AWS_SESSION_TOKEN"),
		Source:          "the function's environment",
	}
	cfg := aws.Config{
		Region: e.Required("AWS_REGION", byLambda),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return key, nil
		}),
		HTTPClient: awssend.Whole(awshttp.NewBuildableClient().
			WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTime }).
			WithTransportOptions(func(t *http.Transport) {
				t.ResponseHeaderTimeout, t.IdleConnTimeout = answerTime, idleTime
				t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0) // as Transport
			})),
		ConfigSources: []any{endpoints{e.getenv}},
	}
	if url := e.get("AWS_ENDPOINT_URL"); url != "" {
		cfg.BaseEndpoint = &url
	}
	return cfg
}

// Of returns a configuration for a client of one service that is not the SDK's: its BaseEndpoint is the service's own,
// where there is one.
func (e *Env) Of(sdkID string, cfg aws.Config) aws.Config {
	if url := (endpoints{e.getenv}).of(sdkID); url != "" {
		cfg.BaseEndpoint = &url
	}
	return cfg
}

// endpoints gives a service's client its own endpoint.
type endpoints struct{ getenv func(string) string }

func (e endpoints) of(sdkID string) string {
	return strings.TrimSpace(e.getenv("AWS_ENDPOINT_URL_" + strings.ReplaceAll(strings.ToUpper(sdkID), " ", "_")))
}

// GetServiceBaseEndpoint implements the SDK's ServiceBaseEndpointProvider.
func (e endpoints) GetServiceBaseEndpoint(_ context.Context, sdkID string) (string, bool, error) {
	url := e.of(sdkID)
	return url, url != "", nil
}

// Log reads DAYFLY_LOG_LEVEL (debug, info, warn or error; info) and returns a log of JSON lines,
// each of which names the invocation that wrote it (see Began).
func (e *Env) Log(to io.Writer) *slog.Logger {
	var level slog.Level
	word := e.OneOf("DAYFLY_LOG_LEVEL", "info", "debug", "info", "warn", "error")
	_ = level.UnmarshalText([]byte(word)) // OneOf has checked it
	return slog.New(named{slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}), &atomic.Pointer[ids]{}})
}

// Types reads DAYFLY_ENABLED_WORKFLOW_TYPES; an empty list means all.
func (e *Env) Types() []workflow.Type {
	const name = "DAYFLY_ENABLED_WORKFLOW_TYPES"
	var types []workflow.Type
	for _, word := range e.List(name) {
		types = append(types, workflow.Type(word))
		if !slices.Contains(workflow.Types(), workflow.Type(word)) {
			e.Wrong(name, "%q is not one of %s, %s, %s", word, workflow.Deployment, workflow.InsightsScan, workflow.PolicyEvaluation)
		}
	}
	return types
}

// Until returns ctx with a deadline that is earlier by margin, so that the function can still report its
// work before it is stopped. If ctx has no deadline, neither has the result.
func Until(ctx context.Context, margin time.Duration) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-margin))
}
