package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner/credserver"
	"github.com/dayfly-dev/dayfly/internal/runner/source"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/vault"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// roleSchemes begin references that a run's role resolves: they are those of the packages awssm, which not every build
// links, and vault. A run has a role in the cloud only, where Vault learns the caller from AWS.
var roleSchemes = []string{"arn", vault.Scheme}

// Cloud is a cloud account in which the task has an identity.
type Cloud interface {
	// Assume assumes a run's role. The error is a sentence that an admin can act on. If it wraps
	// secrets.ErrUnavailable, another try may succeed.
	Assume(ctx context.Context, role api.Role, session string) (Identity, error)
	// Region returns the task's region.
	Region() string
}

// Identity is an assumed role.
type Identity interface {
	// Credentials returns credentials that stay valid for a while, and renews them when that is due.
	Credentials(ctx context.Context) (credserver.Credentials, error)
	// Resolver resolves references to secrets of the cloud (arn:...) and of Vault as this identity.
	secrets.Resolver
	// Objects opens objects as this identity.
	source.Objects
}

// assumedRole is the run's role.
type assumedRole struct {
	identity    Identity
	credentials *credserver.Server
	region      string
}

// assumeRole assumes the role of the run and serves its credentials to the engine.
func (r *run) assumeRole(ctx context.Context, spec api.Spec) error {
	role := *spec.Role
	if r.cfg.Cloud == nil {
		return fmt.Errorf("the workspace has the role %s, but this runner has no identity in the cloud to assume it with: roles are for pools with deploy_target ecs; name such a pool, or remove the role from the workspace", role.ARN)
	}
	retry := newBackoff()
	for n := 1; ; n++ {
		identity, err := r.cfg.Cloud.Assume(ctx, role, spec.Workflow+"-"+strconv.Itoa(spec.Attempt))
		if err == nil {
			server, err := credserver.Listen(ctx, credserver.Config{Source: identity.Credentials, Hide: func(values ...string) { r.hidden.Add(values...) }, Log: r.log})
			if err != nil {
				return err
			}
			r.role = &assumedRole{identity, server, r.cfg.Cloud.Region()}
			r.logf("the engine has the role %s", role.ARN)
			return nil
		}
		if !errors.Is(err, secrets.ErrUnavailable) || n == secretTries || wait.For(ctx, retry.NextBackOff()) != nil {
			return err
		}
		r.log.Warn("role not assumed yet", "err", err)
	}
}

// closeRole stops serving the credentials, when no process of the engine remains.
func (r *run) closeRole() {
	if r.role == nil {
		return
	}
	if err := r.role.credentials.Close(); err != nil {
		r.log.Warn("address of the role's credentials not closed", "err", err)
	}
}

// objects opens objects as the run's role, or where it has none as the task; nil if neither can.
func (r *run) objects() source.Objects {
	if r.role != nil {
		return r.role.identity
	}
	return r.cfg.Objects
}

// withRole resolves references of the cloud as the run's role, and the others as before.
type withRole struct {
	others secrets.Resolver
	role   Identity
}

// Resolve implements secrets.Resolver.
func (w withRole) Resolve(ctx context.Context, ref string) (redact.String, error) {
	if scheme, _, _ := strings.Cut(ref, ":"); slices.Contains(roleSchemes, scheme) {
		return w.role.Resolve(ctx, ref)
	}
	return w.others.Resolve(ctx, ref)
}
