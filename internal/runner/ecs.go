//go:build !machine

package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/runner/cloud"
	"github.com/dayfly-dev/dayfly/internal/runner/credserver"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/awssm"
	"github.com/dayfly-dev/dayfly/internal/secrets/vault"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// Variables that ECS sets in each container of a task. Anybody assumed knows the addresses in them can use them,
// so the engine never gets them.
const (
	envMetadata = "ECS_CONTAINER_METADATA_URI_V4"
	envRelative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
	envFull     = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	envToken    = "AWS_CONTAINER_AUTHORIZATION_TOKEN" //nolint:gosec // the name of a variable
)

// ecsTask is this process as an ECS task; nil means that it is not one.
type ecsTask struct {
	arn   string
	cloud *cloud.Cloud
}

// onECS finds out whether this is an ECS task, and which one.
func onECS(ctx context.Context, getenv func(string) string) (*ecsTask, error) {
	address := getenv(envMetadata)
	if address == "" {
		return nil, nil //nolint:nilnil // not an ECS task
	}
	arn, err := cloud.Task(ctx, address)
	if err != nil {
		return nil, err
	}
	c, err := cloud.New(cloud.Config{
		TaskARN: arn, Region: getenv("AWS_REGION"),
		RelativeURI: getenv(envRelative), FullURI: getenv(envFull), Token: getenv(envToken),
		Endpoint: cloud.FromEnv(getenv),
	})
	if err != nil {
		return nil, err
	}
	for _, name := range []string{envMetadata, envRelative, envFull, envToken} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("forget %s: %w", name, err)
		}
	}
	return &ecsTask{arn, c}, nil
}

// ref returns the task's name, which is not in its environment; empty if this is not an ECS task.
func (t *ecsTask) ref() string {
	if t == nil {
		return ""
	}
	return t.arn
}

// check refuses to forward variables that lead to the task's own credentials.
func (t *ecsTask) check(forward []string) error {
	if t == nil {
		return nil
	}
	var mistakes []error
	for _, name := range forward {
		if strings.HasPrefix(name, "AWS_CONTAINER_") || strings.HasPrefix(name, "ECS_CONTAINER_") || strings.HasPrefix(name, "ECS_AGENT_") {
			mistakes = append(mistakes, fmt.Errorf("%s: %s leads to the task's own credentials, which the engine must not have", task.Name("Forward"), name))
		}
	}
	return errors.Join(mistakes...)
}

// How a relay authenticates its callers, in addition to the ticket.
const (
	authIAM  = "iam"
	authNone = "none"
)

// way returns the client for calls to the relay; nil means the usual one. Calls are signed if the relay is
// an API Gateway or its stack says so.
func (t *ecsTask) way(given task.Environment) (*http.Client, error) {
	region, gateway := cloud.Gateway(given.Relay)
	switch given.RelayAuth {
	case "":
	case authIAM:
		gateway = true
	case authNone:
		gateway = false
	default:
		return nil, fmt.Errorf("%s: %q is neither %s nor %s", task.Name("RelayAuth"), given.RelayAuth, authIAM, authNone)
	}
	switch {
	case !gateway:
		return nil, nil //nolint:nilnil // the usual one
	case t == nil:
		return nil, fmt.Errorf("the relay at %s requires signed calls, and only an ECS task can sign them", task.Name("Relay"))
	}
	return &http.Client{Transport: t.cloud.Sign(region)}, nil
}

// apply changes a configuration for an ECS task. A run without a role of its own resolves secrets as the
// task.
func (t *ecsTask) apply(cfg *Config, given task.Environment) error {
	if t == nil {
		return nil
	}
	c := ecsCloud{t.cloud, given}
	own, err := c.identity(t.cloud.Own())
	if err != nil {
		return err
	}
	cfg.Cloud, cfg.Spool, cfg.Objects = c, "", t.cloud.Own() // its disk is removed with it
	if mux, ok := cfg.Secrets.(secrets.Mux); ok {
		maps.Copy(mux, own.Mux)
	}
	return nil
}

// ecsCloud is a Cloud, with the settings for Vault of the task's stack.
type ecsCloud struct {
	*cloud.Cloud
	given task.Environment
}

// Assume implements Cloud.
func (c ecsCloud) Assume(ctx context.Context, role api.Role, session string) (Identity, error) {
	assumed, err := c.Cloud.Assume(ctx, role, session)
	if refused, ok := errors.AsType[*cloud.RoleError](err); ok && refused.Transient() {
		return nil, fmt.Errorf("%w: %w", err, secrets.ErrUnavailable)
	}
	if err != nil {
		return nil, err
	}
	return c.identity(assumed)
}

// identity resolves secrets as somebody, those of Vault too if the stack names a server.
func (c ecsCloud) identity(assumed *cloud.Identity) (ecsIdentity, error) {
	i := ecsIdentity{secrets.Mux{awssm.Scheme: awssm.New(assumed.SecretsManager(), assumed.Parameter)}, assumed}
	if c.given.VaultAddress == "" {
		return i, nil
	}
	sign := func(ctx context.Context, serverID string) (vault.SignedRequest, error) {
		r := vault.CallerIdentity(serverID)
		return r, assumed.SignCall(ctx, r.Method, r.URL, "sts", vault.STSRegion, r.Header, r.Body)
	}
	store, err := vault.New(vault.Config{
		Address: c.given.VaultAddress, Namespace: c.given.VaultNamespace,
		Login: vault.AWS(cmp.Or(c.given.VaultAuthMount, "aws"), c.given.VaultRole, c.given.VaultServerID, sign),
	})
	i.Mux[vault.Scheme] = store
	return i, err
}

// ecsIdentity is an Identity.
type ecsIdentity struct {
	secrets.Mux
	assumed *cloud.Identity
}

// Credentials implements Identity.
func (i ecsIdentity) Credentials(ctx context.Context) (credserver.Credentials, error) {
	got, err := i.assumed.Credentials(ctx)
	return credserver.Credentials(got), err
}

// Object implements Identity.
func (i ecsIdentity) Object(ctx context.Context, region, bucket, key string) (io.ReadCloser, error) {
	return i.assumed.Object(ctx, region, bucket, key)
}
