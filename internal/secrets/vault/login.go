package vault

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// maxToken is more than any token has.
const maxToken = 64 << 10

// TokenFile logs in with the token in a file, which something else keeps fresh, such as Vault Agent.
func TokenFile(path string) Login {
	return func(context.Context, *Server) (redact.String, error) {
		f, err := os.Open(path)
		if err != nil {
			return redact.String{}, workflow.Refuse(workflow.ErrForbidden, "vault_token_file", "the token for Vault cannot be read: %v", err)
		}
		defer func() { _ = f.Close() }()
		raw, err := io.ReadAll(io.LimitReader(f, maxToken))
		if err != nil {
			return redact.String{}, workflow.Refuse(workflow.ErrForbidden, "vault_token_file", "the token for Vault cannot be read: %v", err)
		}
		token := strings.TrimSpace(string(raw))
		if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return redact.String{}, workflow.Refuse(workflow.ErrInvalid, "vault_token_file", "the file %s does not hold a token of Vault", path)
		}
		return redact.New(token), nil
	}
}

// SignedRequest is a request that its maker has signed and the server makes.
type SignedRequest struct {
	Method string
	URL    string
	Body   []byte
	Header http.Header
}

// AWS logs in with the AWS auth method of type iam, mounted at mount, as a role of it; empty means the role that has
// the name of the IAM role. sign signs a call of sts:GetCallerIdentity with this header, if it is not empty. The server
// makes the call and learns in this way who signed it.
//
// Source: Vault's HTTP API, "AWS auth method", "Login".
func AWS(mount, role, serverID string, sign func(ctx context.Context, serverID string) (SignedRequest, error)) Login {
	return func(ctx context.Context, s *Server) (redact.String, error) {
		signed, err := sign(ctx, serverID)
		if err != nil {
			return redact.String{}, err
		}
		header, err := json.Marshal(signed.Header)
		if err != nil {
			return redact.String{}, fmt.Errorf("log in to Vault: %w", err)
		}
		encode := base64.StdEncoding.EncodeToString
		body, err := json.Marshal(map[string]string{
			"role": role, "iam_http_request_method": signed.Method, "iam_request_url": encode([]byte(signed.URL)),
			"iam_request_body": encode(signed.Body), "iam_request_headers": encode(header),
		})
		if err != nil {
			return redact.String{}, fmt.Errorf("log in to Vault: %w", err)
		}
		var answer struct {
			Auth struct {
				Token string `json:"client_token"`
			}
		}
		to := "log in to Vault with the AWS auth method at " + quote(mount)
		if err := s.call(ctx, http.MethodPost, "auth/"+mount+"/login", to, redact.String{}, body, &answer); err != nil {
			return redact.String{}, err
		}
		if answer.Auth.Token == "" {
			return redact.String{}, workflow.Refuse(workflow.ErrForbidden, "secrets", "cannot %s: the answer holds no token", to)
		}
		return redact.New(answer.Auth.Token), nil
	}
}

// STSRegion is the region for which the request of CallerIdentity is signed: the one of its endpoint.
const STSRegion = "us-east-1"

// CallerIdentity is the request that AWS signs. Vault's default configuration makes it at the global endpoint of STS.
//
// Source: Vault's "AWS auth method", "IAM auth method".
func CallerIdentity(serverID string) SignedRequest {
	r := SignedRequest{
		Method: http.MethodPost, URL: "https://sts.amazonaws.com/",
		Body:   []byte(url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"}}.Encode()),
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded; charset=utf-8"}},
	}
	if serverID != "" {
		r.Header.Set("X-Vault-AWS-IAM-Server-ID", serverID)
	}
	return r
}
