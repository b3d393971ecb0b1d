// Package awssm resolves references to secrets in AWS Secrets Manager and to parameters in the Parameter Store of AWS
// Systems Manager. It asks the service each time and keeps nothing. IAM decides which of them the clients' credentials
// may read.
package awssm

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Scheme begins every reference; it is the key of a Resolver in a secrets.Mux.
const Scheme = "arn"

// Resolver is a secrets.Resolver over Secrets Manager and Parameter Store.
type Resolver struct {
	secrets    *secretsmanager.Client
	parameters Parameters
}

// New returns a resolver that asks as the clients' credentials allow, in the region that a reference
// names. Without parameters it refuses them.
func New(secrets *secretsmanager.Client, parameters Parameters) *Resolver {
	return &Resolver{secrets, parameters}
}

// Resolve implements secrets.Resolver; see Ref for the form of references. The value of a whole secret or parameter
// is its text or its bytes, unchanged; that of a key is the one that secrets.Pick finds.
func (r *Resolver) Resolve(ctx context.Context, reference string) (redact.String, error) {
	if err := ctx.Err(); err != nil {
		return redact.String{}, err
	}
	ref, err := ParseRef(reference)
	switch {
	case err != nil:
		return redact.String{}, err
	case ref.Parameter && r.parameters == nil:
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "parameters of Systems Manager are not read here; keep it as a secret in Secrets Manager and name that")
	case ref.Parameter:
		return r.parameter(ctx, ref)
	}
	in := &secretsmanager.GetSecretValueInput{SecretId: &ref.ARN}
	if ref.Stage != "" {
		in.VersionStage = &ref.Stage
	}
	if ref.Version != "" {
		in.VersionId = &ref.Version
	}
	out, err := r.secrets.GetSecretValue(ctx, in, func(o *secretsmanager.Options) { o.Region = ref.Region })
	if err != nil {
		return redact.String{}, failed(ctx, ref, err)
	}
	if out.SecretString == nil && out.SecretBinary == nil {
		return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "the secret %s has no value yet", ref.short())
	}
	switch {
	case ref.Key == "" && out.SecretString == nil:
		return redact.New(string(out.SecretBinary)), nil
	case ref.Key == "":
		return redact.New(*out.SecretString), nil
	case out.SecretString == nil:
		return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "secrets", "the key %s cannot be read from the secret %s: it is binary; name the whole secret, without a key", quote(ref.Key), ref.short())
	}
	return secrets.Pick(*out.SecretString, ref.Key, "the secret "+ref.short())
}

// failed classifies the error of the call.
func failed(ctx context.Context, ref Ref, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("read secret %s: %w", ref.short(), ended)
	}
	said := text.Cut(awserr.Message(err), 400)
	switch code := awserr.Code(err); {
	case code == "InvalidRequestException" && strings.Contains(said, "marked for deletion"):
		return workflow.Refuse(workflow.ErrNotFound, "secrets", "the secret %s is marked for deletion; restore it, or name another", ref.short())
	case code == "DecryptionFailure":
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "the secret %s cannot be decrypted: the role that reads it needs kms:Decrypt on the secret's key, and the key must be enabled", ref.short())
	}
	switch class := awserr.Of(err); {
	case class == awserr.NotFound && ref.Stage+ref.Version != "":
		return workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no secret %s, or it has no such version: %s", ref.short(), said)
	case class == awserr.NotFound:
		return workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no secret %s, or it has no value yet; check its name, its account and its region", ref.short())
	case class == awserr.Denied:
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "the secret %s may not be read; the role that reads it needs secretsmanager:GetSecretValue on it, and kms:Decrypt where it has a key of its own: %s", ref.short(), said)
	case class.Transient():
		return fmt.Errorf("read secret %s: %s: %w", ref.short(), said, secrets.ErrUnavailable)
	}
	return workflow.Refuse(workflow.ErrInvalid, "secrets", "the secret %s cannot be read: %s", ref.short(), said)
}
