package boot

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// The sources of the pool token.
const (
	identitySecret = "secret" // a secret that holds it
	identityAWS    = "aws"    // exchanged for a token that AWS signs for the function's role
)

// PoolToken reads where the pool token comes from: DAYFLY_POOL_IDENTITY (secret), and DAYFLY_POOL_TOKEN_SECRET, or else
// DAYFLY_ORGANIZATION and DAYFLY_POOL. It calls nobody. serviceURL is the control plane's address.
func (e *Env) PoolToken(cfg aws.Config, serviceURL string, log *slog.Logger) *Secret {
	const name = "DAYFLY_POOL_IDENTITY"
	if e.OneOf(name, identitySecret, identitySecret, identityAWS) == identitySecret {
		return SecretsManager(cfg, "the pool token", e.Required("DAYFLY_POOL_TOKEN_SECRET", "the ARN of the secret with the pool token"))
	}
	organization := e.Required("DAYFLY_ORGANIZATION", "the organization of the pool")
	pool := e.Required("DAYFLY_POOL", "the name of the pool")
	to, err := client.New(ClientConfig(serviceURL))
	if err != nil {
		return nil // the mistake in the address was reported where it was read
	}
	audience := api.OrganizationPrefix + organization
	return client.Exchanged(to, api.TokenRequest{
		Audience: audience, RequestedTokenType: api.TokenTypePrefix + api.KindPool, Scope: "pool:" + pool,
	}, nil, log, webIdentity(NewCaller(cfg), audience))
}

// webIdentity returns a function that gets a token from AWS about this function's role, for one audience. It needs
// one call of the Region's STS, GetWebIdentityToken, in its query protocol. (STS API reference.)
func webIdentity(caller Caller, audience string) func(context.Context) (redact.String, error) {
	form := url.Values{
		"Action": {"GetWebIdentityToken"}, "Version": {"2011-06-15"},
		"Audience.member.1": {audience}, "SigningAlgorithm": {"RS256"}, "DurationSeconds": {"300"},
	}
	return func(ctx context.Context) (redact.String, error) {
		endpoint, err := caller.Endpoint(ctx, "STS", "sts", "")
		if err != nil {
			return redact.String{}, err
		}
		answer, err := caller.repeat(ctx, Call{
			Service: "sts", Address: endpoint + "/", Body: []byte(form.Encode()),
			Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
		})
		if err != nil {
			return redact.String{}, err
		}
		token := element(string(answer), "WebIdentityToken")
		if token == "" {
			return redact.String{}, errors.New("cannot read the answer of STS") // without the answer: it holds the token
		}
		return redact.New(token), nil
	}
}

// element returns the text of the first element of a name. It reads only texts without characters that XML would
// escape, as tokens and codes of errors are: a parser of XML costs more at a function's start than everything else
// here.
func element(xml, name string) string {
	_, rest, _ := strings.Cut(xml, "<"+name+">")
	text, _, found := strings.Cut(rest, "</"+name+">")
	if !found {
		return ""
	}
	return strings.TrimSpace(text)
}
