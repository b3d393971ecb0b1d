package awssm

import (
	"context"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Parameters calls GetParameter of Systems Manager in a region for the ARN of a parameter, and returns its value,
// decrypted. Only programs that read parameters link the SDK's client for it: it takes 2.7 MB, and the function of
// deliveries, which reads none, may grow by only 0.2 MB.
type Parameters func(ctx context.Context, region, arn string) (string, error)

// parameter reads a parameter, decrypted.
func (r *Resolver) parameter(ctx context.Context, ref Ref) (redact.String, error) {
	value, err := r.parameters(ctx, ref.Region, ref.ARN)
	switch {
	case err != nil:
		return redact.String{}, parameterFailed(ctx, ref, err)
	case ref.Key != "":
		return secrets.Pick(value, ref.Key, "the parameter "+ref.short())
	}
	return redact.New(value), nil
}

// parameterFailed is failed for a parameter.
func parameterFailed(ctx context.Context, ref Ref, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("read parameter %s: %w", ref.short(), ended)
	}
	said := text.Cut(awserr.Message(err), 400)
	switch code, class := awserr.Code(err), awserr.Of(err); {
	case code == "ParameterNotFound", class == awserr.NotFound:
		return workflow.Refuse(workflow.ErrNotFound, "secrets", "there is no parameter %s; check its name, its account and its region", ref.short())
	case class == awserr.Denied:
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "the parameter %s may not be read; the role that reads it needs ssm:GetParameter on it, and kms:Decrypt where it has a key of its own: %s", ref.short(), said)
	case class.Transient():
		return fmt.Errorf("read parameter %s: %s: %w", ref.short(), said, secrets.ErrUnavailable)
	}
	return workflow.Refuse(workflow.ErrInvalid, "secrets", "the parameter %s cannot be read: %s", ref.short(), said)
}
