// Package oidc checks the tokens of OpenID Connect issuers: it finds an issuer's keys, keeps them for a while, and
// checks signature, issuer, audience and times of a token. It does not decide what the holder of a token may do.
//
// It calls addresses that others name, so each call is bounded: no address of a private network unless it is listed,
// no redirect to another host, few bytes, a few seconds. An issuer is asked at most once in 30 s, however many tokens
// callers send. Keys that were read before are used for a day more while the issuer is down.
package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// MaxToken is the longest token that is read.
const MaxToken = 16 << 10

// skew is how far the clocks of an issuer and of the control plane may be apart.
const skew = time.Minute

// Algorithms are the signatures that can be taken: only those that are checked with a public key.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512"}
}

// Issuer is an issuer and the expectations of its tokens.
type Issuer struct {
	URL        string
	Audiences  []string // one of them must be in aud
	ClientID   string   // or this one: then azp, where there is one, must be it too
	Algorithms []string // with which it may be signed
}

// Config configures a Verifier. The zero value works.
type Config struct {
	// Private lists the hosts, addresses and networks (CIDR) that may be called although they are private.
	Private []string
	Log     *slog.Logger // nil means no log
}

// Verifier checks tokens. Its methods may be called concurrently.
type Verifier struct {
	log     *slog.Logger
	private outbound.Private
	http    func() *http.Client

	mu      sync.Mutex
	sources map[string]*source
	logins  map[string]*asked
}

// New returns a verifier, or an error that names the wrong entry of Private. It makes no call.
func New(cfg Config) (*Verifier, error) {
	p, err := outbound.ReadPrivate(cfg.Private)
	if err != nil {
		return nil, err
	}
	v := &Verifier{log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), private: p, sources: map[string]*source{}, logins: map[string]*asked{}}
	v.http = sync.OnceValue(func() *http.Client { return caller(p) }) // a process that verifies nothing pays nothing
	return v, nil
}

// IssuerOf reads the issuer that a token claims, without trusting it.
func IssuerOf(token string) (string, error) {
	_, c, err := parse(token)
	if err != nil {
		return "", err
	}
	if c.text("iss") == "" {
		return "", refuse("the token does not name its issuer (iss)")
	}
	return c.text("iss"), nil
}

// Verify checks a token and returns its claims.
func (v *Verifier) Verify(ctx context.Context, is Issuer, token string, now time.Time) (Claims, error) {
	h, said, err := parse(token)
	if err != nil {
		return nil, err
	}
	switch {
	case !slices.Contains(is.Algorithms, h.Algorithm) || !slices.Contains(Algorithms(), h.Algorithm):
		return nil, refuse("the token is signed with %.20q: the issuer is registered with %s", h.Algorithm, strings.Join(is.Algorithms, ", "))
	case said.text("iss") != is.URL:
		return nil, refuse("the token was issued by %q, not by %s", text.Cut(said.text("iss"), 200), is.URL)
	}
	alg := jose.SignatureAlgorithm(h.Algorithm)
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return nil, refuse("this is not a signed JSON Web Token")
	}
	keys, err := v.keys(ctx, is.URL, h, now)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if _, err := signed.Verify(k.Key); err != nil {
			continue
		}
		// The signed claims are those that were read before: both are the second part of the token.
		if err := check(said, is, now); err != nil {
			return nil, err
		}
		return said, nil
	}
	return nil, refuse("the signature of the token is wrong")
}

// check decides on the audience and the times of a token. It is a pure function.
func check(c Claims, is Issuer, now time.Time) error {
	aud := values(c["aud"])
	ours := slices.ContainsFunc(is.Audiences, func(a string) bool { return slices.Contains(aud, a) })
	if !ours {
		if is.ClientID == "" || !slices.Contains(aud, is.ClientID) {
			return refuse("the token is for %s: ask the issuer for one with the audience %s", addressees(aud), strings.Join(is.Audiences, " or "))
		}
		if azp := c.text("azp"); c["azp"] != nil && azp != is.ClientID {
			return refuse("the token was given to %q (azp), not to %s", text.Cut(azp, 200), is.ClientID)
		}
	}
	exp, ok := at(c, "exp")
	if !ok {
		return refuse("the token does not say when it expires (exp)")
	}
	if !now.Before(exp.Add(skew)) {
		return refuse("the token expired at %s", exp.Format(time.RFC3339))
	}
	for _, name := range []string{"nbf", "iat"} {
		t, ok := at(c, name)
		if c[name] != nil && !ok {
			return refuse("the %s of the token is not a time", name)
		}
		if ok && now.Add(skew).Before(t) {
			return refuse("the token is valid from %s on (%s): compare the clocks of the issuer and of the control plane", t.Format(time.RFC3339), name)
		}
	}
	return nil
}

func addressees(aud []string) string {
	if len(aud) == 0 {
		return "nobody (it has no aud)"
	}
	return text.Cut(fmt.Sprintf("%q", aud), 300)
}

// at reads a time, in seconds that need not be whole.
func at(c Claims, name string) (time.Time, bool) {
	n, ok := c[name].(json.Number)
	if !ok {
		return time.Time{}, false
	}
	f, err := n.Float64()
	const latest = 253402300799 // the year 9999
	if err != nil || math.IsNaN(f) || f < 0 || f > latest {
		return time.Time{}, false
	}
	return time.Unix(int64(f), 0).UTC(), true
}

func refuse(format string, args ...any) error {
	return workflow.Refuse(workflow.ErrUnauthenticated, "subject_token", format, args...)
}

// errDown is why an issuer was not asked, or did not answer usefully; the cause is for the log alone.
var errDown = errors.New("the issuer's keys cannot be read")
