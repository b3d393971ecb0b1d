package record

import (
	"crypto/subtle"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/kind"
	"github.com/dayfly-dev/dayfly/internal/store"
)

// Principal is a person or a program that an admin gives tokens to. It is never deleted, so its name is never
// another's.
type Principal struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

// Ref names it.
func (p Principal) Ref() api.PrincipalRef { return api.PrincipalRef{ID: p.ID, Name: p.Name} }

// PrincipalIDs is the prefix of the ids of principals.
const PrincipalIDs = "prn_"

// SubjectID is the id of an issuer's subject: by OpenID Connect Core 1.0, 5.7, no other claims identify people for
// good.
func SubjectID(issuer, subject string) string {
	return PrincipalIDs + Hash(issuer + "\n" + subject)[:40]
}

// Issuer is a provider whose tokens an organization takes, as it is kept.
type Issuer struct {
	I     api.Issuer `json:"i"` // without its rules
	Rules []Rule     `json:"rules,omitempty"`
}

// Rule is a trust rule. Its id is made from its content: a token names the rule that gave it, and ends with it.
type Rule struct {
	ID     string        `json:"id"`
	PoolID string        `json:"pool,omitempty"`
	R      api.TrustRule `json:"r"`
}

// ServicePrincipal is a program that logs in with its id and a secret.
type ServicePrincipal struct {
	ID          string            `json:"id"` // its client id
	Name        string            `json:"name"`
	Role        string            `json:"role,omitempty"`
	Grants      map[string]string `json:"grants,omitempty"`
	MaxLifetime time.Duration     `json:"max,omitempty"`
	Disabled    bool              `json:"disabled,omitempty"`
	Secrets     []Secret          `json:"secrets"`
	Created     time.Time         `json:"created"`
}

// Secret is a secret of a service principal.
type Secret struct {
	ID      string    `json:"id"`
	Hash    string    `json:"hash"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
}

// Source is the rule or secret that gave a token: the token is valid only as long as its source exists.
type Source struct {
	Issuer  string `json:"issuer,omitempty"`  // name of an issuer
	Service string `json:"service,omitempty"` // or of a service principal
	ID      string `json:"id"`                // its id: one that was made again under the same name is another
	Part    string `json:"part"`              // id of the rule or of the secret
}

// Pipeline has the claims of a pipeline's token when it was exchanged.
type Pipeline struct {
	Protected  bool   `json:"protected,omitempty"`
	Host       string `json:"host"`
	Repository string `json:"repo"` // its path at the host, as the host writes it
	Commit     string `json:"commit,omitempty"`
	Ref        string `json:"ref,omitempty"`
	Number     int    `json:"number,omitempty"` // of the pull request
	ActorID    string `json:"actor_id,omitempty"`
}

// Submitter is the account that caused the pipeline: HOST/ID, because the id of an account never changes and is never
// given to another. It is empty if the account is unknown.
func (p *Pipeline) Submitter() api.PrincipalRef {
	if p == nil || p.ActorID == "" {
		return api.PrincipalRef{}
	}
	account := p.Host + "/" + p.ActorID
	return api.PrincipalRef{ID: account, Name: account}
}

// View is the pipeline as people see it; nil where there is none.
func (p *Pipeline) View() *api.Pipeline {
	if p == nil {
		return nil
	}
	return &api.Pipeline{Protected: p.Protected, Host: p.Host, Repository: p.Repository, Commit: p.Commit, Ref: p.Ref, Number: p.Number}
}

// Key is the key of the record of the source.
func (s *Source) Key(org string) store.Key {
	if s.Issuer != "" {
		return SettingsKey(org, kind.Issuer, s.Issuer)
	}
	return ServiceKey(org, s.Service)
}

// Session is a sign-in to the web pages.
type Session struct {
	ID      string    `json:"id"`
	Org     string    `json:"org"`
	Name    string    `json:"name"`  // of the principal, for the audit trail
	ByID    string    `json:"by_id"` // id of the principal
	Token   string    `json:"token"` // hash of the token that it came from and ends with
	Seen    time.Time `json:"seen"`  // when somebody last did something in it; some minutes late
	Expires time.Time `json:"expires"`
}

// Client is the service principal of a client id.
type Client struct {
	Org  string `json:"org"`
	Name string `json:"name"`
}

// The prefixes of the keys of service principals and of principals in the part of their organization.
const (
	ServicesPrefix   = "service/"
	PrincipalsPrefix = "principal/"
)

// PrincipalKey is the key of a principal.
func PrincipalKey(org, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: PrincipalsPrefix + name}
}

// IssuerURLKey leads from an issuer's address to its name.
func IssuerURLKey(org, url string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "issuerurl/" + Hash(url)}
}

// ServiceKey is the key of a service principal.
func ServiceKey(org, name string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: ServicesPrefix + name}
}

// ClientKey is the key of a client id.
func ClientKey(id string) store.Key { return store.Key{Part: "client/" + id, Sort: "client"} }

// ShortTokenKey is the key of a token that ends by itself, by its id. Such tokens are many, so they are not in the
// list of the others.
func ShortTokenKey(org, id string) store.Key {
	return store.Key{Part: OrganizationPart(org), Sort: "short/" + id}
}

// Live says whether a secret is valid.
func (s Secret) Live(now time.Time) bool { return s.Expires.IsZero() || now.Before(s.Expires) }

// Find returns the live secret with a value. It takes the same time for each value.
func (s ServicePrincipal) Find(value string, now time.Time) (Secret, bool) {
	hash, found, ok := Hash(value), Secret{}, false
	for _, one := range s.Secrets {
		if subtle.ConstantTimeCompare([]byte(one.Hash), []byte(hash)) == 1 && one.Live(now) {
			found, ok = one, true
		}
	}
	return found, ok
}
