package api

import (
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Grants and types of tokens of POST /v1/token, as RFC 6749 and RFC 8693 name them.
const (
	GrantExchange          = "urn:ietf:params:oauth:grant-type:token-exchange"
	GrantClientCredentials = "client_credentials"
	TokenTypeID            = "urn:ietf:params:oauth:token-type:id_token"     //nolint:gosec // a name, not a credential
	TokenTypeJWT           = "urn:ietf:params:oauth:token-type:jwt"          //nolint:gosec // as above
	TokenTypeAccess        = "urn:ietf:params:oauth:token-type:access_token" //nolint:gosec // as above

	// TokenTypePrefix comes before the kind of token that is asked for: user, service or pool.
	TokenTypePrefix = "urn:dayfly:token-type:access_token:" //nolint:gosec // as above
	// OrganizationPrefix comes before the name of an organization: it is the audience of tokens for it.
	OrganizationPrefix = "urn:dayfly:org:"
)

// Kinds of caller that a token can be of.
const (
	KindUser    = "user"
	KindService = "service"
	KindPool    = "pool"
)

// Lifetimes of the tokens that POST /v1/token gives.
const (
	MinLifetime     = time.Minute
	DefaultLifetime = time.Hour
	MaxLifetime     = 12 * time.Hour
)

// Issuer is a provider whose OIDC tokens the organization accepts, with the rules for their holders.
type Issuer struct {
	Name       string       `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"github"`
	URL        string       `json:"url" maxLength:"512" doc:"Its address, exactly as its tokens say it in iss; it never changes" example:"https://token.actions.githubusercontent.com"`
	Audiences  []string     `json:"audiences,omitempty" maxItems:"10" doc:"Audiences, one of which the aud of a token must hold; default urn:dayfly:org:ORGANIZATION" example:"[\"urn:dayfly:org:default\"]"`
	Shared     bool         `json:"shared,omitempty" doc:"Whether strangers get tokens of it too; implied for hosts that are known. Then each rule needs an exact condition on owner_claim, and each audience names the organization"`
	OwnerClaim string       `json:"owner_claim,omitempty" maxLength:"128" doc:"Of a shared issuer that is not known: the claim with an id of the owner that is never given to another"`
	Algorithms []string     `json:"algorithms,omitempty" maxItems:"7" doc:"Signatures that are taken: RS256, RS384, RS512, PS256, ES256, ES384, ES512; default RS256 and ES256" example:"[\"RS256\"]"`
	IsDisabled bool         `json:"is_disabled,omitempty" doc:"Whether its tokens are refused, and those that were given for them have ended"`
	Login      *IssuerLogin `json:"login,omitempty" doc:"How people log in with it, with dayfly login"`
	Pipelines  *Pipelines   `json:"pipelines,omitempty" doc:"Of a git host whose pipelines get its tokens: how their claims are read. Then a token of a pipeline that a pull request may have started, or of a ref that is not protected, only views, and submits previews of its commit"`
	Rules      []TrustRule  `json:"rules,omitempty" maxItems:"50" doc:"Rules for the holder of a token: the first that matches applies"`
	CreatedAt  *time.Time   `json:"created_at,omitempty" doc:"When it was made; not taken"`
	Version    int64        `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// Key implements Setting.
func (i Issuer) Key() (name string, version int64) { return i.Name, i.Version }

// Normal implements Setting.
func (i Issuer) Normal(organization string) Setting {
	i.CreatedAt, i.Version = nil, 0
	if len(i.Audiences) == 0 {
		i.Audiences = []string{OrganizationPrefix + organization}
	}
	if len(i.Algorithms) == 0 {
		i.Algorithms = []string{"RS256", "ES256"}
	}
	if i.Pipelines != nil {
		i.Pipelines = new(i.Pipelines.withHost(i.URL))
	}
	_, known := i.Owners()
	i.Shared = i.Shared || known
	return i
}

// sharedHosts are issuers of which strangers get tokens too, with the claims that hold an owner's id, which is never
// reused. A name is not enough: the next owner of a name that was given up gets tokens with it.
var sharedHosts = map[string][]string{
	"token.actions.githubusercontent.com": {"repository_owner_id", "repository_id", "enterprise_id"},
	"gitlab.com":                          {"namespace_id", "project_id"},
	"agent.buildkite.com":                 {"organization_id", "pipeline_id"},
	"app.terraform.io":                    {"terraform_organization_id", "terraform_workspace_id"},
	"accounts.google.com":                 {"sub"},
	"appleid.apple.com":                   {"sub"},
	"cognito-identity.amazonaws.com":      {"sub"},
}

// sharedTenants are the addresses of Microsoft that all its tenants or all persons share, by the beginning of their paths.
// The last is the tenant of personal accounts.
var sharedTenants = map[string][]string{
	"common": {"tid", "oid"}, "organizations": {"tid", "oid"}, "consumers": {"oid"}, "9188040d-6c67-4c5b-b112-36a304b66dad": {"oid"},
}

// Owners are the claims one of which a rule of a shared issuer must name; known says whether strangers are known to get
// its tokens.
func (i Issuer) Owners() (claims []string, known bool) {
	u, err := url.Parse(i.URL)
	if err != nil {
		return nil, false
	}
	host := strings.ToLower(u.Hostname())
	if host == "login.microsoftonline.com" || host == "sts.windows.net" {
		tenant, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(u.Path), "/"), "/")
		claims, known = sharedTenants[tenant]
	} else {
		claims, known = sharedHosts[host]
	}
	if i.OwnerClaim != "" {
		claims = []string{i.OwnerClaim}
	}
	return claims, known
}

// IssuerLogin has the data that a command line needs to log people in. None of it is secret.
type IssuerLogin struct {
	ClientID string   `json:"client_id" minLength:"1" maxLength:"256" doc:"Id of a public client of the issuer, without a secret" example:"dayfly-cli"`
	Scopes   []string `json:"scopes,omitempty" maxItems:"20" doc:"Scopes that are asked for; default openid, profile and email" example:"[\"openid\",\"profile\",\"email\"]"`
}

// Kinds of git host whose pipelines' claims this version reads.
const (
	PipelinesGitHub = "github"
	PipelinesGitLab = "gitlab"
)

// Pipelines says that an issuer's tokens are those of a git host's pipelines.
type Pipelines struct {
	Kind string `json:"kind" enum:"github,gitlab" doc:"Whose claims they have" example:"github"`
	Host string `json:"host,omitempty" maxLength:"255" doc:"Host of the repositories that its tokens name; default github.com for GitHub's issuer, else the host of url" example:"github.com"`
}

// withHost is the pipelines with their host. The default is implied by the issuer's address.
func (p Pipelines) withHost(issuer string) Pipelines {
	if u, err := url.Parse(issuer); err == nil && p.Host == "" {
		if p.Host = u.Host; strings.EqualFold(u.Hostname(), "token.actions.githubusercontent.com") {
			p.Host = "github.com"
		}
	}
	p.Host = strings.ToLower(p.Host)
	return p
}

// TrustRule says which tokens of an issuer are trusted, and the kind and role of their holder.
type TrustRule struct {
	Description        string               `json:"description,omitempty" maxLength:"200" doc:"Purpose of the rule" example:"deployments of the main branch"`
	Claims             map[string]string    `json:"claims" doc:"For each claim the value that it must have; * stands for any characters. One of several values of a claim is enough. Parts of a nested claim are joined with a dot" example:"{\"repository_owner_id\":\"1234567\",\"repository\":\"acme/network\"}"`
	Becomes            string               `json:"becomes" enum:"user,service,pool" doc:"Kind that the holder becomes" example:"service"`
	NameClaim          string               `json:"name_claim,omitempty" maxLength:"128" doc:"Claim whose value the audit shows; default sub" example:"repository"`
	Role               string               `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role in the whole organization of a user or service" example:"operator"`
	Grants             map[string]string    `json:"grants,omitempty" doc:"Roles in projects, and in all below them, of a user or service" example:"{\"global\":\"operator\"}"`
	GroupsClaim        string               `json:"groups_claim,omitempty" maxLength:"128" doc:"Claim with the names of groups" example:"groups"`
	Groups             map[string]GroupRole `json:"groups,omitempty" doc:"Roles that each group adds; the highest role counts"`
	Pool               string               `json:"pool,omitempty" maxLength:"64" doc:"With becomes pool: name of the pool" example:"production"`
	MaxLifetimeSeconds int                  `json:"max_lifetime_seconds,omitempty" minimum:"60" maximum:"43200" doc:"Longest lifetime of a token; default 3600" example:"3600"`
}

// GroupRole is the roles of the members of a group.
type GroupRole struct {
	Role   string            `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role in the whole organization" example:"viewer"`
	Grants map[string]string `json:"grants,omitempty" doc:"Roles in projects" example:"{\"global\":\"operator\"}"`
}

// ServicePrincipal is a program that logs in with an id and a secret.
type ServicePrincipal struct {
	Name               string            `json:"name" doc:"Name, which the audit shows after service/" example:"nightly"`
	ClientID           string            `json:"client_id" doc:"Client id for the login" example:"sp_01k1xz4m2p7q9r3s5t8v"`
	Role               string            `json:"role,omitempty" enum:"viewer,operator,admin" doc:"Role in the whole organization" example:"operator"`
	Grants             map[string]string `json:"grants,omitempty" doc:"Roles in projects, and in all below them" example:"{\"global\":\"operator\"}"`
	MaxLifetimeSeconds int               `json:"max_lifetime_seconds" doc:"Longest lifetime of its tokens" example:"3600"`
	IsDisabled         bool              `json:"is_disabled" doc:"Whether it cannot log in, and its tokens have ended"`
	Secrets            []ServiceSecret   `json:"secrets" nullable:"false" doc:"Its secrets, without their values: one, or two while one takes the other's place"`
	CreatedAt          time.Time         `json:"created_at" doc:"When it was made"`
	Version            int64             `json:"version" doc:"Of the stored record" example:"1"`
}

// ServiceSecret is a secret of a service principal, without its value.
type ServiceSecret struct {
	ID        string     `json:"id" doc:"Id of the secret" example:"sec_01k1xz4m2p7q9r3s5t8v"`
	CreatedAt time.Time  `json:"created_at" doc:"When it was made"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it ends; none means never"`
}

// NewServicePrincipal asks for a service principal.
type NewServicePrincipal struct {
	Name string `json:"name" doc:"1 to 64 characters of A-Z, a-z, 0-9, _ and -" example:"nightly"`
	ServicePrincipalSettings
}

// ServicePrincipalSettings creates or changes a service principal. On change, a field that is left out stays as it is.
type ServicePrincipalSettings struct {
	Role               *string            `json:"role,omitempty" doc:"viewer, operator or admin in the whole organization; empty for none" example:"operator"`
	Grants             *map[string]string `json:"grants,omitempty" doc:"Roles in projects, and in all below them" example:"{\"global\":\"operator\"}"`
	MaxLifetimeSeconds *int               `json:"max_lifetime_seconds,omitempty" minimum:"60" maximum:"43200" doc:"Longest lifetime of its tokens; default 3600" example:"3600"`
	IsDisabled         *bool              `json:"is_disabled,omitempty" doc:"Whether it cannot log in; its tokens end at once"`
	Version            int64              `json:"version,omitempty" doc:"Of the stored record; where given on a change, it must be the current one"`
}

// RotateSecret asks for a new secret of a service principal.
type RotateSecret struct {
	OverlapSeconds int `json:"overlap_seconds,omitempty" minimum:"0" maximum:"604800" doc:"Seconds for which the previous secret stays valid; 0 ends it, and the tokens that it got, at once" example:"3600"`
}

// ServicePrincipalSecret is a service principal with a new secret, which is shown this once.
type ServicePrincipalSecret struct {
	ServicePrincipal ServicePrincipal `json:"service_principal" doc:"The service principal"`
	Secret           string           `json:"secret" doc:"Shown once: keep it now" example:"dfc_..."`
}

// LogValue keeps the secret out of logs.
func (s ServicePrincipalSecret) LogValue() slog.Value {
	return slog.StringValue("secret of service principal " + s.ServicePrincipal.Name)
}

// LoginOptions says how people log in to an organization. Everybody may ask.
type LoginOptions struct {
	Organization string        `json:"organization" doc:"Name of the organization" example:"default"`
	Issuers      []LoginOption `json:"issuers" nullable:"false" doc:"The issuers with which people log in; none where they use tokens"`
}

// LoginOption is one issuer with which people log in.
type LoginOption struct {
	Name     string   `json:"name" doc:"Name of the issuer" example:"okta"`
	Issuer   string   `json:"issuer" doc:"Its address" example:"https://acme.okta.com"`
	ClientID string   `json:"client_id" doc:"Id of the public client" example:"dayfly-cli"`
	Scopes   []string `json:"scopes" nullable:"false" doc:"Scopes to ask for" example:"[\"openid\",\"profile\",\"email\"]"`
}

// TokenRequest is the form that POST /v1/token takes.
type TokenRequest struct {
	GrantType          string `json:"grant_type" doc:"urn:ietf:params:oauth:grant-type:token-exchange or client_credentials" example:"client_credentials"`
	Audience           string `json:"audience,omitempty" doc:"urn:dayfly:org:ORGANIZATION; required for a token exchange" example:"urn:dayfly:org:default"`
	RequestedTokenType string `json:"requested_token_type,omitempty" doc:"urn:dayfly:token-type:access_token: followed by user, service or pool; default the kind of the first rule that matches"`
	Scope              string `json:"scope,omitempty" doc:"pool: followed by the id or the name of a pool"`
	Expiration         int    `json:"expiration,omitempty" doc:"Lifetime in seconds, from 60; default 3600. It is cut to the allowed maximum"`
	SubjectToken       string `json:"subject_token,omitempty" doc:"For a token exchange: the issuer's token, at most 16 KiB"`
	SubjectTokenType   string `json:"subject_token_type,omitempty" doc:"For a token exchange: urn:ietf:params:oauth:token-type:id_token, jwt or access_token"`
	ClientID           string `json:"client_id,omitempty" doc:"For client_credentials without HTTP Basic" example:"sp_01k1xz4m2p7q9r3s5t8v"`
	ClientSecret       string `json:"client_secret,omitempty" doc:"For client_credentials without HTTP Basic" example:"dfc_..."`
}

// LogValue keeps tokens and secrets out of logs.
func (r TokenRequest) LogValue() slog.Value {
	return slog.StringValue("token request of " + r.GrantType + " for " + r.Audience)
}

// Form is the request as it is sent.
func (r TokenRequest) Form() url.Values {
	f := url.Values{}
	for name, value := range map[string]string{
		"grant_type": r.GrantType, "audience": r.Audience, "requested_token_type": r.RequestedTokenType, "scope": r.Scope,
		"subject_token": r.SubjectToken, "subject_token_type": r.SubjectTokenType, "client_id": r.ClientID, "client_secret": r.ClientSecret,
	} {
		if value != "" {
			f.Set(name, value)
		}
	}
	if r.Expiration != 0 {
		f.Set("expiration", strconv.Itoa(r.Expiration))
	}
	return f
}

// IssuedToken is the answer of POST /v1/token: a token that expires.
type IssuedToken struct {
	AccessToken     string `json:"access_token" doc:"The token: keep it secret" example:"dfs_..."`
	IssuedTokenType string `json:"issued_token_type" doc:"Kind of the token" example:"urn:dayfly:token-type:access_token:service"`
	TokenType       string `json:"token_type" doc:"Always Bearer" example:"Bearer"`
	ExpiresIn       int    `json:"expires_in" doc:"Seconds until it ends" example:"3600"`
	Scope           string `json:"scope,omitempty" doc:"Of a pool's token: pool: and the pool's id" example:"pool:pool_01k1xz4m2p7q9r3s5t8v"`
	ID              string `json:"id" doc:"Id of the token, by which the audit names it and an admin revokes it" example:"tok_01k1xz4m2p7q9r3s5t8v"`
	Organization    string `json:"organization" doc:"Organization of the token" example:"default"`
	Name            string `json:"name" doc:"Name of the principal or pool that the token speaks for" example:"service/nightly"`
}

// LogValue keeps the token out of logs.
func (t IssuedToken) LogValue() slog.Value { return slog.StringValue("token " + t.ID) }
