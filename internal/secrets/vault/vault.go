// Package vault resolves references to values in the KV secrets engine of HashiCorp Vault or OpenBao, version 1 or 2.
// It asks the server each time and keeps nothing but its own token. The server's policies decide what that token may
// read.
//
// Two read calls and a login are all that is needed, so it does without Vault's own client library, which would bring
// some twenty modules into every runner.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Scheme begins every reference; it is the key of a Resolver in a secrets.Mux.
const Scheme = "vault"

const (
	maxAnswer = 1 << 20 // bytes; the server itself keeps values below this by default
	patience  = 15 * time.Second
	redirects = 3 // a standby node redirects to the active one
)

// Config names the server, and the identity for its login.
type Config struct {
	Address   string // such as https://vault.example.com:8200, as in VAULT_ADDR
	Namespace string // of Vault Enterprise; empty means none
	Login     Login
}

// Login returns a token of the server. It is called again when the server refuses the one before.
type Login func(ctx context.Context, s *Server) (redact.String, error)

// Server makes the calls. Its methods may be called concurrently.
type Server struct {
	base      *url.URL
	namespace string
	http      *http.Client
}

// Resolver is a secrets.Resolver over a server.
type Resolver struct {
	server *Server
	login  Login

	mu    sync.Mutex
	token redact.String
}

// New returns a resolver. It does not connect. An address at which others could read the token is refused.
func New(c Config) (*Resolver, error) {
	base, err := url.Parse(c.Address)
	switch {
	case err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, workflow.Refuse(workflow.ErrInvalid, "vault_address", "want an address such as https://vault.example.com:8200, without credentials, ? and #")
	case !safe(base):
		return nil, workflow.Refuse(workflow.ErrInvalid, "vault_address", "plain http would show the token to others on the network: want an https address, or one of this machine such as http://127.0.0.1:8200")
	}
	follow := func(to *http.Request, via []*http.Request) error {
		// The token goes along, so it goes nowhere that the address itself could not lead.
		if len(via) > redirects || !safe(to.URL) {
			return errors.New("the server redirects too often, or to plain http")
		}
		return nil
	}
	return &Resolver{
		server: &Server{base: base, namespace: c.Namespace, http: &http.Client{Timeout: patience, CheckRedirect: follow}},
		login:  c.Login,
	}, nil
}

// Resolve implements secrets.Resolver. A reference is vault:PATH#KEY with the path as in vault kv get PATH; the value
// of the key is the one that secrets.Pick finds.
func (r *Resolver) Resolve(ctx context.Context, reference string) (redact.String, error) {
	if err := ctx.Err(); err != nil {
		return redact.String{}, err
	}
	path, key, err := parse(reference)
	if err != nil {
		return redact.String{}, err
	}
	token, cached, err := r.current(ctx)
	if err != nil {
		return redact.String{}, err
	}
	document, err := r.server.secret(ctx, token, path)
	if cached && errors.Is(err, workflow.ErrForbidden) { // the token may have ended
		r.forget(token)
		if token, _, err = r.current(ctx); err == nil {
			document, err = r.server.secret(ctx, token, path)
		}
	}
	if err != nil {
		return redact.String{}, err
	}
	return secrets.Pick(document, key, "the secret "+quote(path)+" of Vault")
}

// current returns the token, and whether it has been used before.
func (r *Resolver) current(ctx context.Context) (token redact.String, cached bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.token.Empty() {
		return r.token, true, nil
	}
	r.token, err = r.login(ctx, r.server)
	return r.token, false, err
}

// forget drops a token, unless another has come in its place.
func (r *Resolver) forget(token redact.String) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.token == token {
		r.token = redact.String{}
	}
}

// parse reads a reference. An error does not repeat it, because it may be a secret that was put there by mistake.
func parse(reference string) (path, key string, err error) {
	rest, ok := strings.CutPrefix(reference, Scheme+":")
	path, key, named := strings.Cut(rest, "#")
	if !ok || !named || key == "" || len(reference) > 2048 || !plain(path) {
		return "", "", workflow.Refuse(workflow.ErrInvalid, "secrets", "a reference to Vault is written vault:PATH#KEY with the path as in vault kv get PATH, such as vault:secret/db#password; this one is not")
	}
	return path, key, nil
}

// plain reports whether a path leads where it says: through at least two names, none of which is . or .. or empty.
func plain(path string) bool {
	names := strings.Split(path, "/")
	for _, name := range names {
		if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\%?*+`, c) }) {
			return false
		}
	}
	return len(names) > 1
}

// secret reads a secret and returns it as a JSON object.
//
// The engine at the path is looked up first, as Vault's own command line does. Only a KV engine is read: other paths
// of the API return the token itself (auth/token/lookup-self), or create credentials.
//
// Source: Vault's HTTP API, "KV secrets engine" versions 1 and 2.
func (s *Server) secret(ctx context.Context, token redact.String, path string) (string, error) {
	var mount struct {
		Path, Type string
		Options    struct{ Version string }
	}
	if err := s.get(ctx, token, "sys/internal/ui/mounts/"+path, path, &mount); err != nil {
		return "", err
	}
	name, below := strings.CutPrefix(path, mount.Path)
	if !below || name == "" || mount.Type != "kv" && mount.Type != "generic" { // generic was the first name of kv
		return "", workflow.Refuse(workflow.ErrInvalid, "secrets", "the path %s of Vault does not name a secret of a KV secrets engine", quote(path))
	}
	if mount.Options.Version != "2" {
		var document json.RawMessage
		err := s.get(ctx, token, path, path, &document)
		return string(document), err
	}
	var versioned struct{ Data json.RawMessage }
	if err := s.get(ctx, token, mount.Path+"data/"+name, path, &versioned); err != nil {
		return "", err
	}
	return string(versioned.Data), nil
}

// get reads a path of the API into data. The error names the path that the person gave.
func (s *Server) get(ctx context.Context, token redact.String, at, named string, data any) error {
	return s.call(ctx, http.MethodGet, at, "read the secret "+quote(named)+" of Vault", token, nil, &struct{ Data any }{data})
}

// call makes a call. to names its purpose.
func (s *Server) call(ctx context.Context, method, at, to string, token redact.String, body []byte, answer any) error {
	var names []string
	for name := range strings.SplitSeq("v1/"+at, "/") {
		names = append(names, url.PathEscape(name))
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base.JoinPath(names...).String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", to, err)
	}
	req.Header.Set("X-Vault-Request", "true") // without it an agent in between may refuse the call
	if !token.Empty() {
		req.Header.Set("X-Vault-Token", token.Reveal())
	}
	if s.namespace != "" {
		req.Header.Set("X-Vault-Namespace", s.namespace)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return fmt.Errorf("%s: %w", to, ended)
		}
		return fmt.Errorf("%s: %w: %w", to, err, secrets.ErrUnavailable)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("%s: %w: %w", to, err, secrets.ErrUnavailable)
	}
	if resp.StatusCode != http.StatusOK {
		return refused(resp.StatusCode, raw, to)
	}
	if len(raw) > maxAnswer || json.Unmarshal(raw, answer) != nil { // without the cause, which may quote a value
		return workflow.Refuse(workflow.ErrInvalid, "secrets", "cannot %s: the answer is not that of Vault; check vault_address", to)
	}
	return nil
}

// refused classifies a status. It repeats messages of refused calls only: the answer for a deleted secret has the
// secret's metadata.
func refused(status int, raw []byte, to string) error {
	var answer struct{ Errors []string }
	_ = json.Unmarshal(raw, &answer)
	said := text.Cut(strings.Join(strings.Fields(strings.Join(answer.Errors, "; ")), " "), 300)
	switch {
	case status == http.StatusNotFound:
		return workflow.Refuse(workflow.ErrNotFound, "secrets", "cannot %s: there is none, or it was deleted; check its path as vault kv get shows it", to)
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		return workflow.Refuse(workflow.ErrForbidden, "secrets", "cannot %s: the runner's token lacks a policy that allows it, or has ended: %s", to, said)
	case status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return fmt.Errorf("cannot %s: status %d: %s: %w", to, status, said, secrets.ErrUnavailable)
	}
	return workflow.Refuse(workflow.ErrInvalid, "secrets", "cannot %s: status %d: %s", to, status, said)
}

// safe reports whether nobody else can read data on its way to an address.
func safe(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && outbound.Loopback(u.Hostname())
}

func quote(s string) string { return text.Quote(s, 200) }
