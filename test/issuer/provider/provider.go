// Package provider is an OpenID Connect provider for tests: strict where a client must be right (PKCE with S256, exact
// redirect addresses, codes that work once), and hostile where a test asks for it. It approves its one user at once.
// It imports nothing of ours.
package provider

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Switches make the provider misbehave. The zero value behaves.
type Switches struct {
	Down       bool          // it answers 503
	Hold       chan struct{} // it answers when this is closed, or when the caller has left
	Issuer     string        // what its metadata says in place of its own address
	KeysAt     string        // where its metadata says that its keys are
	RedirectTo string        // where its keys redirect to
	Padding    int           // bytes that its keys are longer
	ManyKeys   int           // keys more
	Header     http.Header   // of its keys
}

// Provider is an issuer. Its methods may be called concurrently.
type Provider struct {
	URL      string         // its address; set before it is used
	ClientID string         // its one public client
	User     map[string]any // claims of its one user
	Pending  int            // how often a device's poll is answered with authorization_pending
	Now      func() time.Time

	mu       sync.Mutex
	keys     []jose.JSONWebKey // private, by algorithm and turn; those that are published
	turn     int
	switches Switches
	asked    map[string]int
	codes    map[string]grant
	devices  map[string]*device
}

// New returns a provider with a key of each of some algorithms: RS256, ES256 or ES384.
func New(algorithms ...string) *Provider {
	p := &Provider{
		ClientID: "dayfly-cli", User: map[string]any{"sub": "alice", "email": "alice@example.com"}, Now: time.Now,
		asked: map[string]int{}, codes: map[string]grant{}, devices: map[string]*device{},
	}
	p.Rotate(algorithms...)
	return p
}

// Start serves a provider for a test.
func Start(t testing.TB, algorithms ...string) *Provider {
	t.Helper()
	p := New(algorithms...)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Rotate replaces the keys by new ones.
func (p *Provider) Rotate(algorithms ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn++
	p.keys = nil
	for _, alg := range algorithms {
		p.keys = append(p.keys, jose.JSONWebKey{Key: newKey(alg), KeyID: fmt.Sprintf("%s-%d", strings.ToLower(alg), p.turn), Algorithm: alg, Use: "sig"})
	}
}

// AddSameName publishes, before each key, another of the same name and kind.
func (p *Provider) AddSameName() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []jose.JSONWebKey
	for _, k := range p.keys {
		other := k
		other.Key = newKey(k.Algorithm)
		all = append(all, other, k)
	}
	p.keys = all
}

func newKey(alg string) crypto.Signer {
	var key crypto.Signer
	var err error
	switch alg {
	case "RS256":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		panic(err) // the machine has no randomness
	}
	return key
}

// Switch makes the provider misbehave from now on.
func (p *Provider) Switch(s Switches) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.switches = s
}

// Asked is how often a path was asked for.
func (p *Provider) Asked(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

// Key returns the key that signs for an algorithm: the last of it that is published.
func (p *Provider) Key(alg string) jose.JSONWebKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range slices.Backward(p.keys) {
		if k.Algorithm == alg {
			return k
		}
	}
	panic("the provider has no key of " + alg)
}

// Claims are the usual claims of a token, with some in their place. A nil one is left out.
func (p *Provider) Claims(with map[string]any) map[string]any {
	now := p.Now()
	c := map[string]any{"iss": p.URL, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(c, p.User)
	maps.Copy(c, with)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// Token signs the usual claims, with some in their place.
func (p *Provider) Token(alg string, with map[string]any) string {
	return Sign(p.Key(alg), nil, p.Claims(with))
}

// Sign makes a token. The header's entries replace the usual ones.
func Sign(key jose.JSONWebKey, header, claims map[string]any) string {
	o := (&jose.SignerOptions{}).WithType("JWT")
	for k, v := range header {
		o.WithHeader(jose.HeaderKey(k), v)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, o)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		panic(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return out
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.URL.Path]++
	s := p.switches
	p.mu.Unlock()
	if s.Hold != nil {
		select {
		case <-s.Hold:
		case <-r.Context().Done():
		}
	}
	if s.Down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /.well-known/openid-configuration":
		p.metadata(w, s)
	case "GET /keys":
		p.serveKeys(w, r, s)
	case "GET /authorize":
		p.authorize(w, r)
	case "POST /device":
		p.device(w, r)
	case "POST /token":
		p.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (p *Provider) metadata(w http.ResponseWriter, s Switches) {
	issuer, keys := p.URL, p.URL+"/keys"
	if s.Issuer != "" {
		issuer = s.Issuer
	}
	if s.KeysAt != "" {
		keys = s.KeysAt
	}
	answer(w, http.StatusOK, map[string]any{
		"issuer": issuer, "jwks_uri": keys,
		"authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "device_authorization_endpoint": p.URL + "/device",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "scopes_supported": []string{"openid", "profile", "email"},
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"id_token_signing_alg_values_supported":          []string{"ES256", "RS256"},
		"grant_types_supported":                          []string{"authorization_code", deviceGrant},
		"authorization_response_iss_parameter_supported": true,
	})
}

func (p *Provider) serveKeys(w http.ResponseWriter, r *http.Request, s Switches) {
	if s.RedirectTo != "" {
		http.Redirect(w, r, s.RedirectTo, http.StatusFound)
		return
	}
	maps.Copy(w.Header(), s.Header)
	set := jose.JSONWebKeySet{}
	p.mu.Lock()
	for _, k := range p.keys {
		set.Keys = append(set.Keys, k.Public())
	}
	p.mu.Unlock()
	for i := range s.ManyKeys {
		k := set.Keys[0]
		k.KeyID = fmt.Sprintf("more-%d", i)
		set.Keys = append(set.Keys, k)
	}
	answer(w, http.StatusOK, struct {
		jose.JSONWebKeySet
		Padding string `json:"padding,omitempty"`
	}{set, strings.Repeat("x", s.Padding)})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
