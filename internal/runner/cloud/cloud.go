// Package cloud is the identity of a task on ECS: which task it is, the credentials of its own role, with which it
// signs its calls, and the credentials of a run's role. It starts nothing, keeps credentials in memory only, and asks
// for them when they are first needed.
//
// Requests, signatures and retries are the AWS SDK's. This package adds parts that the SDK does not have: renewal
// (see cache), the metadata of an ECS task, and a transport that signs calls to an API Gateway.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/awssend"
)

// roleTime is how long the credentials of a run's role last: a role that is assumed by a role has no
// longer sessions (IAM user guide, "role chaining"). They are renewed as long as the run lasts.
const roleTime = time.Hour

const (
	taskAddress = "http://169.254.170.2" // where AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is relative to
	credsTime   = 20 * time.Second       // for credentials, repeats counted
	awsTries    = 3                      // of one call; the caller repeats the whole
)

// Config says where a task finds its credentials. The values are those of the environment that ECS makes.
type Config struct {
	TaskARN     string           // names the region where Region does not
	Region      string           // AWS_REGION; empty means that of the task's ARN
	RelativeURI string           // AWS_CONTAINER_CREDENTIALS_RELATIVE_URI
	FullURI     string           // AWS_CONTAINER_CREDENTIALS_FULL_URI, where there is no relative one
	Token       string           // AWS_CONTAINER_AUTHORIZATION_TOKEN, for FullURI
	Endpoint    Endpoint         // of services; nil means AWS's own
	Now         func() time.Time // nil means time.Now
}

// Endpoint returns another address of a service, given by its name in AWS_ENDPOINT_URL_NAME; "" means
// AWS's own. A nil Endpoint has none.
type Endpoint func(service string) string

func (e Endpoint) of(service string) *string {
	if e == nil {
		return nil
	}
	if address := e(service); address != "" {
		return &address
	}
	return nil
}

// FromEnv is an Endpoint of the variables AWS_ENDPOINT_URL_SERVICE and AWS_ENDPOINT_URL.
func FromEnv(getenv func(string) string) Endpoint {
	return func(service string) string {
		return cmp.Or(getenv("AWS_ENDPOINT_URL_"+service), getenv("AWS_ENDPOINT_URL"))
	}
}

// Cloud is the task's identity. Its methods may be called concurrently.
type Cloud struct {
	task     *cache
	region   string
	endpoint Endpoint
	now      func() time.Time
	http     awssend.Client
}

// New returns the identity that a configuration describes. It does not connect.
func New(cfg Config) (*Cloud, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	region := cmp.Or(cfg.Region, regionOf(cfg.TaskARN))
	if region == "" {
		return nil, errors.New("the task does not know its region: set AWS_REGION")
	}
	address, err := credentialsAddress(cfg.RelativeURI, cfg.FullURI)
	if err != nil {
		return nil, err
	}
	ask := func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("the task has no role: its task definition names no taskRoleArn")
	}
	if address != "" {
		ask = taskCredentials(address, cfg.Token)
	}
	return &Cloud{
		task: newCache(cfg.Now, within(credsTime, "the credentials of the task's role", ask)), region: region, endpoint: cfg.Endpoint, now: cfg.Now,
		http: awssend.Whole(awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) { d.Timeout = 5 * time.Second }).WithTimeout(15 * time.Second)),
	}, nil
}

// credentialsAddress is where a task asks for its credentials; "" means that it has none.
func credentialsAddress(relative, full string) (string, error) {
	switch {
	case relative != "":
		if !strings.HasPrefix(relative, "/") {
			return "", errors.New("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with a slash")
		}
		return taskAddress + relative, nil
	case full != "":
		// As in the SDKs: only https, or an address of this machine, is trusted.
		u, err := url.Parse(full)
		if err != nil || u.Scheme != "https" && (u.Scheme != "http" || !stays(u.Hostname())) {
			return "", errors.New("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither an https address nor one of this machine")
		}
		return full, nil
	}
	return "", nil
}

func stays(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip.IsLoopback() || ip.IsLinkLocalUnicast()
}

// taskCredentials asks the endpoint of the task. Its errors do not name the address.
func taskCredentials(address, token string) func(context.Context) (aws.Credentials, error) {
	provider := endpointcreds.New(address, func(o *endpointcreds.Options) {
		o.AuthorizationToken = token
		o.HTTPClient = direct()
	})
	return func(ctx context.Context) (aws.Credentials, error) {
		creds, err := provider.Retrieve(ctx)
		if err != nil {
			return creds, fmt.Errorf("ask for the credentials of the task's role: %w", anonymous(err, address))
		}
		return creds, nil
	}
}

// anonymous hides an address in the text of an error: anyone who knows it gets the credentials.
func anonymous(err error, address string) error {
	u, parseErr := url.Parse(address)
	if parseErr != nil || u.Path == "" {
		return err
	}
	return &unnamed{err, u.Path}
}

// unnamed is an error whose text leaves out a path.
type unnamed struct {
	err  error
	path string
}

func (e *unnamed) Error() string { return strings.ReplaceAll(e.err.Error(), e.path, "/...") }

// Unwrap lets the error be classified by its cause.
func (e *unnamed) Unwrap() error { return e.err }

// Region is where the task is.
func (c *Cloud) Region() string { return c.region }

// config is that of a client with an identity.
func (c *Cloud) config(provider aws.CredentialsProvider) aws.Config {
	return aws.Config{
		Region: c.region, Credentials: provider, HTTPClient: c.http,
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = awsTries, 2*time.Second })
		},
	}
}

// Credentials of an AWS identity, with the time at which they end.
type Credentials struct {
	AccessKeyID, SecretAccessKey, SessionToken string
	Expires                                    time.Time
}

// Identity is an AWS identity: that of the task, or the role of a run.
type Identity struct {
	cloud *Cloud
	keys  *cache
}

// Own is the task's own identity.
func (c *Cloud) Own() *Identity { return &Identity{c, c.task} }

// Credentials returns credentials that last for a while, renewed where that is due.
func (i *Identity) Credentials(ctx context.Context) (Credentials, error) {
	got, err := i.keys.Retrieve(ctx)
	if err != nil {
		return Credentials{}, err
	}
	return Credentials{got.AccessKeyID, got.SecretAccessKey, got.SessionToken, got.Expires}, nil
}

// SecretsManager is a client of Secrets Manager as this identity.
func (i *Identity) SecretsManager() *secretsmanager.Client {
	return secretsmanager.NewFromConfig(i.cloud.config(i.keys), func(o *secretsmanager.Options) {
		o.BaseEndpoint = i.cloud.endpoint.of("SECRETS_MANAGER")
	})
}

// Parameter reads a parameter of Systems Manager, decrypted, as this identity. It tries once.
func (i *Identity) Parameter(ctx context.Context, region, name string) (string, error) {
	client := ssm.NewFromConfig(i.cloud.config(i.keys), func(o *ssm.Options) {
		o.Region, o.BaseEndpoint, o.Retryer = region, i.cloud.endpoint.of("SSM"), aws.NopRetryer{}
	})
	out, err := client.GetParameter(ctx, &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
	if err != nil {
		return "", err //nolint:wrapcheck // the caller classifies it
	}
	if out.Parameter == nil || out.Parameter.Value == nil {
		return "", &smithy.GenericAPIError{Code: "InvalidAnswer", Message: "the answer holds no value", Fault: smithy.FaultServer}
	}
	return *out.Parameter.Value, nil
}

// Assume assumes a run's role and returns its identity. The credentials are renewed when they are due, for as long
// as somebody asks for them. CloudTrail shows the name of the session.
func (c *Cloud) Assume(ctx context.Context, role api.Role, session string) (*Identity, error) {
	client := sts.NewFromConfig(c.config(c.task), func(o *sts.Options) { o.BaseEndpoint = c.endpoint.of("STS") })
	in := assumption(role, session)
	i := &Identity{c, newCache(c.now, within(2*credsTime, "the credentials of the role", func(ctx context.Context) (aws.Credentials, error) {
		out, err := client.AssumeRole(ctx, in)
		if err != nil {
			return aws.Credentials{}, fmt.Errorf("assume the role %s: %w", role.ARN, err)
		}
		got := out.Credentials
		if got == nil || got.Expiration == nil {
			return aws.Credentials{}, fmt.Errorf("assume the role %s: the answer holds no credentials", role.ARN)
		}
		return aws.Credentials{
			AccessKeyID: aws.ToString(got.AccessKeyId), SecretAccessKey: aws.ToString(got.SecretAccessKey),
			SessionToken: aws.ToString(got.SessionToken), CanExpire: true, Expires: *got.Expiration, Source: "AssumeRole",
		}, nil
	}))}
	if _, err := i.keys.Retrieve(ctx); err != nil {
		return nil, &RoleError{ARN: role.ARN, class: awserr.Of(err), err: err}
	}
	return i, nil
}

// assumption is the request for a role. The tags are passed on to every role that the engine assumes with this
// one, so that its code cannot pass for that of another workspace.
func assumption(role api.Role, session string) *sts.AssumeRoleInput {
	in := &sts.AssumeRoleInput{
		RoleArn: &role.ARN, RoleSessionName: aws.String(SessionName(session)),
		DurationSeconds: aws.Int32(int32(roleTime / time.Second)),
	}
	if role.ExternalID != "" {
		in.ExternalId = &role.ExternalID
	}
	for _, name := range slices.Sorted(maps.Keys(role.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(name), Value: aws.String(role.Tags[name])})
		in.TransitiveTagKeys = append(in.TransitiveTagKeys, name)
	}
	return in
}

// SessionName makes a name that STS accepts for a session: 2 to 64 of its characters.
func SessionName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_=,.@-", r) {
			return r
		}
		return '-'
	}, s)
	for len(s) < 2 {
		s += "-"
	}
	return s[:min(len(s), 64)]
}

// RoleError says that a run's role could not be assumed, with advice for an admin.
type RoleError struct {
	ARN   string
	class awserr.Class
	err   error
}

func (e *RoleError) Error() string {
	switch {
	case e.class == awserr.Denied:
		return fmt.Sprintf("the role %s cannot be assumed: its trust policy must allow sts:AssumeRole and sts:TagSession to the role of the pool's tasks, with the workspace's id as sts:ExternalId, and that role must be allowed to assume it; AWS says: %s", e.ARN, awserr.Message(e.err))
	case e.Transient():
		return fmt.Sprintf("the role %s cannot be assumed now: %s", e.ARN, awserr.Message(e.err))
	default:
		return fmt.Sprintf("the role %s cannot be assumed: %s", e.ARN, awserr.Message(e.err))
	}
}

// Transient reports whether a later try may succeed without any change.
func (e *RoleError) Transient() bool { return e.class.Transient() }

// Unwrap returns the cause.
func (e *RoleError) Unwrap() error { return e.err }
