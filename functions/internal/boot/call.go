package boot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// The tries of a call that may be repeated, and the pauses between them: the mean of the first, which doubles each
// time, and its bound.
const (
	callTries = 3
	callPause = 200 * time.Millisecond
	maxCall   = time.Second
)

// maxAnswer bounds an answer, in bytes; a secret has at most 64 KiB.
const maxAnswer = 1 << 20

// Repeating is a configuration whose clients try and pause as a Caller does. The SDK's own pauses last for seconds, which
// the end of an invocation may not have.
func Repeating(cfg aws.Config) aws.Config {
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.RateLimiter = callTries, ratelimit.None
			o.Backoff = retry.BackoffDelayerFunc(func(try int, _ error) (time.Duration, error) {
				return wait.Backoff(callPause, maxCall, try-1), nil
			})
		})
	}
	return cfg
}

// Caller makes single calls of Lambda, Secrets Manager and STS. It uses the SDK's configuration, credentials, signer and
// transport, but not its clients, each of which would break an aim of make bench-functions by its package's init alone:
// with that of Lambda the control plane takes 15.6 MB at its start, with that of Secrets Manager 14.9 (14.4 without, and
// at most 14.5), and with that of STS the deliverer takes 11.9 (11.4, and at most 11.5). Its methods may be called
// concurrently.
type Caller struct {
	cfg    aws.Config
	signer *v4.Signer
}

// NewCaller returns a Caller with the region, credentials, transport and endpoints of a configuration.
func NewCaller(cfg aws.Config) Caller { return Caller{cfg: cfg, signer: v4.NewSigner()} }

// Call is one call: a signed POST.
type Call struct {
	Service string            // by its name in signatures: lambda, sts ...
	Region  string            // "" means that of the configuration
	Address string            // where it goes, with its path
	Header  map[string]string // signed too
	Body    []byte
}

// Do makes a call once and returns the answer's body. A refusal of the service is a smithy.APIError with
// its status, so that awserr can classify every error.
func (c Caller) Do(ctx context.Context, call Call) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, call.Address, bytes.NewReader(call.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range call.Header {
		request.Header.Set(name, value)
	}
	key, err := c.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(call.Body)
	err = c.signer.SignHTTP(ctx, key, request, hex.EncodeToString(sum[:]), call.Service, cmp.Or(call.Region, c.cfg.Region), time.Now())
	if err != nil {
		return nil, err
	}
	response, err := c.cfg.HTTPClient.Do(request)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // to its end, so that the connection can be used again
	_ = response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return nil, refusalOf(response, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", call.Service, err)
	}
	return answer, nil
}

// repeat makes an idempotent call. It repeats it after errors that may pass: throttles, errors of the service, broken
// connections.
func (c Caller) repeat(ctx context.Context, call Call) ([]byte, error) {
	for try := 1; ; try++ {
		answer, err := c.Do(ctx, call)
		if err == nil || try == callTries || ctx.Err() != nil || !awserr.Of(err).Transient() {
			return answer, err
		}
		if ended := wait.For(ctx, wait.Backoff(callPause, maxCall, try-1)); ended != nil {
			return nil, errors.Join(ended, err)
		}
	}
}

// Endpoint returns the address of a service: AWS_ENDPOINT_URL_SERVICE, AWS_ENDPOINT_URL, or its own endpoint
// in the region; "" means the region of the configuration. sdkID is the SDK's name of the service
// ("Secrets Manager"), host the one in its addresses ("secretsmanager").
func (c Caller) Endpoint(ctx context.Context, sdkID, host, region string) (string, error) {
	for _, source := range c.cfg.ConfigSources {
		own, ok := source.(interface {
			GetServiceBaseEndpoint(ctx context.Context, sdkID string) (string, bool, error)
		})
		if !ok {
			continue
		}
		if url, found, err := own.GetServiceBaseEndpoint(ctx, sdkID); err != nil || found {
			return strings.TrimRight(url, "/"), err
		}
	}
	region = cmp.Or(region, c.cfg.Region)
	suffix := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		suffix += ".cn"
	}
	url := cmp.Or(aws.ToString(c.cfg.BaseEndpoint), "https://"+host+"."+region+"."+suffix)
	return strings.TrimRight(url, "/"), nil
}

// refusal is an error of a service.
type refusal struct {
	smithy.GenericAPIError
	status int
}

// HTTPStatusCode is the status that it came with.
func (r *refusal) HTTPStatusCode() int { return r.status }

// refusalOf reads an error of a service, whose code is in a header or in the body.
func refusalOf(response *http.Response, answer []byte) *refusal {
	var said struct {
		Type    string `json:"__type"`
		Message string
	}
	_ = json.Unmarshal(answer, &said) // an answer that is not JSON says nothing
	code, _, _ := strings.Cut(cmp.Or(said.Type, response.Header.Get("X-Amzn-Errortype"), element(string(answer), "Code")), ":")
	if _, local, ok := strings.Cut(code, "#"); ok {
		code = local
	}
	fault := smithy.FaultClient
	if response.StatusCode >= http.StatusInternalServerError {
		fault = smithy.FaultServer
	}
	code = cmp.Or(code, fmt.Sprintf("HTTP%d", response.StatusCode))
	return &refusal{smithy.GenericAPIError{Code: code, Message: cmp.Or(said.Message, element(string(answer), "Message")), Fault: fault}, response.StatusCode}
}
