// Package awssm resolves references to secrets in AWS Secrets Manager. It asks the service each time and
// keeps nothing. IAM decides which secrets the client's credentials may read.
package awssm

import (
	"bytes"
	"context"
	"encoding/json"
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

// Resolver is a secrets.Resolver over Secrets Manager.
type Resolver struct {
	client *secretsmanager.Client
}

// New returns a resolver that asks as the client's credentials allow, in the region that a reference
// names.
func New(client *secretsmanager.Client) *Resolver { return &Resolver{client} }

// Resolve implements secrets.Resolver; see Ref for the form of references. The value of a whole secret
// is its text or its bytes, unchanged. The value of a key of a JSON document is that of a string; a
// number, a boolean, an object or an array is given as JSON; it knows the document that was read for it.
func (r *Resolver) Resolve(ctx context.Context, reference string) (redact.String, error) {
	if err := ctx.Err(); err != nil {
		return redact.String{}, err
	}
	ref, err := ParseRef(reference)
	if err != nil {
		return redact.String{}, err
	}
	in := &secretsmanager.GetSecretValueInput{SecretId: &ref.ARN}
	if ref.Stage != "" {
		in.VersionStage = &ref.Stage
	}
	if ref.Version != "" {
		in.VersionId = &ref.Version
	}
	out, err := r.client.GetSecretValue(ctx, in, func(o *secretsmanager.Options) { o.Region = ref.Region })
	if err != nil {
		return redact.String{}, failed(ctx, ref, err)
	}
	if out.SecretString == nil && out.SecretBinary == nil {
		return redact.String{}, workflow.Refuse(workflow.ErrNotFound, "secrets", "the secret %s has no value yet", ref.short())
	}
	if ref.Key != "" {
		return pick(ref, out.SecretString)
	}
	if out.SecretString == nil {
		return redact.New(string(out.SecretBinary)), nil
	}
	return redact.New(*out.SecretString), nil
}

// pick takes the value of a key out of a JSON document. Errors tell neither values nor other keys.
func pick(ref Ref, text *string) (redact.String, error) {
	refuse := func(kind error, format string, args ...any) (redact.String, error) {
		return redact.String{}, workflow.Refuse(kind, "secrets", "the key %s cannot be read from the secret %s: %s", quote(ref.Key), ref.short(), fmt.Sprintf(format, args...))
	}
	if text == nil {
		return refuse(workflow.ErrInvalid, "it is binary; name the whole secret, without a key")
	}
	var document map[string]json.RawMessage
	if err := json.Unmarshal([]byte(*text), &document); err != nil || document == nil {
		// Without the cause, which may quote the value.
		return refuse(workflow.ErrInvalid, "it is not a JSON object; name the whole secret, without a key")
	}
	raw, ok := document[ref.Key]
	if !ok {
		return refuse(workflow.ErrNotFound, "it has no such key")
	}
	if bytes.Equal(raw, []byte("null")) {
		return refuse(workflow.ErrNotFound, "its value is null")
	}
	if raw[0] != '"' {
		return redact.New(string(raw)).Of(*text), nil
	}
	var value string
	if err := json.Unmarshal(raw, &value); err != nil {
		return refuse(workflow.ErrInvalid, "its value is not a string in UTF-8")
	}
	return redact.New(value).Of(*text), nil
}

// failed says what the error of the call means.
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
