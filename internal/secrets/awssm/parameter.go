package awssm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"github.com/dayfly-dev/dayfly/internal/awserr"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxParameter is more than an answer with a parameter has, whose value is bounded to 8 KiB.
const maxParameter = 64 << 10

// Parameters reads parameters of Systems Manager. It makes its one call itself: the SDK's client of that service costs
// every runner two milliseconds at its start and two megabytes.
type Parameters struct{ config aws.Config }

// NewParameters returns a reader that asks as the configuration's credentials allow, at its BaseEndpoint if it has one.
func NewParameters(c aws.Config) *Parameters { return &Parameters{c} }

// parameter reads a parameter, decrypted.
func (r *Resolver) parameter(ctx context.Context, ref Ref) (redact.String, error) {
	value, err := r.parameters.get(ctx, ref)
	switch {
	case err != nil:
		return redact.String{}, parameterFailed(ctx, ref, err)
	case ref.Key != "":
		return secrets.Pick(value, ref.Key, "the parameter "+ref.short())
	}
	return redact.New(value), nil
}

// get calls GetParameter of the Systems Manager API, in the protocol AWS JSON 1.1.
func (p *Parameters) get(ctx context.Context, ref Ref) (string, error) {
	body, err := json.Marshal(map[string]any{"Name": ref.ARN, "WithDecryption": true})
	if err != nil {
		return "", err
	}
	suffix := ""
	if strings.HasPrefix(ref.Region, "cn-") {
		suffix = ".cn"
	}
	address := cmp.Or(aws.ToString(p.config.BaseEndpoint), "https://ssm."+ref.Region+".amazonaws.com"+suffix) + "/"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "AmazonSSM.GetParameter")
	creds, err := p.config.Credentials.Retrieve(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, creds, req, hex.EncodeToString(sum[:]), "ssm", ref.Region, time.Now()); err != nil {
		return "", err
	}
	resp, err := p.config.HTTPClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxParameter))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", refusedParameter(resp, answer)
	}
	var out struct{ Parameter struct{ Value *string } }
	if json.Unmarshal(answer, &out) != nil || out.Parameter.Value == nil { // without the cause, which may quote the value
		return "", &smithy.GenericAPIError{Code: "InvalidAnswer", Message: "the answer holds no value", Fault: smithy.FaultServer}
	}
	return *out.Parameter.Value, nil
}

// refusedParameter reads an error of the service.
func refusedParameter(resp *http.Response, answer []byte) error {
	var said struct {
		Type    string `json:"__type"`
		Message string
	}
	_ = json.Unmarshal(answer, &said) // an answer that is not JSON says nothing
	fault := smithy.FaultClient
	if resp.StatusCode >= http.StatusInternalServerError {
		fault = smithy.FaultServer
	}
	code := cmp.Or(said.Type, resp.Header.Get("X-Amzn-Errortype"), fmt.Sprintf("HTTP%d", resp.StatusCode))
	return &smithy.GenericAPIError{Code: code, Message: said.Message, Fault: fault}
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
