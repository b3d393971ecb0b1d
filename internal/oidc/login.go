package oidc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
)

const (
	maxAnswer  = 1 << 20          // bytes of an answer to a login
	answerTime = 30 * time.Second // for one
	maxWords   = 300              // bytes of an issuer's text in an error
)

// Login is how a person logs in to a public client: authorization code with PKCE, and no client secret. It makes the
// checks that only the party that began the login can make (state, nonce, issuer, client); the receiver of the token
// checks whether it is genuine. It keeps nothing, and asks for no refresh token.
type Login struct {
	Issuer   string // its address
	ClientID string
	Scopes   []string

	HTTP  *http.Client                        // its own setting of redirects is ignored: none are followed
	Check func(subject, address string) error // refuses an address to which nothing of a login may be sent

	found discovery
}

// discovery is the metadata of an issuer.
type discovery struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Device        string   `json:"device_authorization_endpoint"`
	Challenges    []string `json:"code_challenge_methods_supported"`
}

// Ticket ties the answer of an issuer to the login that asked for it. Only the browser and the party that began the
// login may know it.
type Ticket struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// NewTicket returns a ticket for one login.
func NewTicket() Ticket {
	return Ticket{State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text()}
}

// How long the metadata of an issuer serves for logins to the control plane. Everybody may begin one, so the issuer
// is not asked for each.
const (
	loginAge = 5 * time.Minute
	loginBad = 30 * time.Second // where it did not answer usefully
)

// asked is the metadata of an issuer, as it was read.
type asked struct {
	mu    sync.Mutex
	found discovery
	err   error
	until time.Time
}

// Login begins a login to the control plane: nothing of it goes to a private address that is not listed.
func (v *Verifier) Login(ctx context.Context, issuer, clientID string, scopes []string, now time.Time) (*Login, error) {
	l := &Login{Issuer: issuer, ClientID: clientID, Scopes: scopes, HTTP: v.http(), Check: func(subject, address string) error {
		u, err := url.Parse(address)
		if err != nil {
			return fmt.Errorf("%s is %s, which is not an address", subject, text.Quote(address, maxWords))
		}
		u.RawQuery = "" // only an issuer's own address has none
		return v.CheckAddress("issuer", u.String())
	}}
	v.mu.Lock()
	a := v.logins[issuer]
	if a == nil {
		if len(v.logins) >= maxSources {
			clear(v.logins)
		}
		a = &asked{}
		v.logins[issuer] = a
	}
	v.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.until) {
		l.found = a.found
		return l, a.err
	}
	// It is bounded by the client's time and not by a caller that may leave: one that leaves must not fail the others.
	a.err = l.Discover(context.WithoutCancel(ctx))
	if a.found, a.until = l.found, now.Add(loginAge); a.err != nil {
		a.until = now.Add(loginBad)
	}
	return l, a.err
}

// Discover reads the metadata of the issuer.
func (l *Login) Discover(ctx context.Context) error {
	if err := l.Check("the issuer's address", l.Issuer); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(l.Issuer, "/")+"/.well-known/openid-configuration", http.NoBody)
	if err != nil {
		return err
	}
	if err := l.ask(request, &l.found); err != nil {
		return fmt.Errorf("ask %s how to log in: %w", l.Issuer, err)
	}
	if l.found.Issuer != l.Issuer {
		return fmt.Errorf("%s says that it is %s: an admin must correct the issuer's address", l.Issuer, text.Quote(l.found.Issuer, maxWords))
	}
	return l.Check("the token endpoint of "+l.Issuer, l.found.Token)
}

// DeviceEndpoint is where the issuer gives codes for devices; empty if it gives none.
func (l *Login) DeviceEndpoint() string { return l.found.Device }

// Refusal is an error answer of an issuer (RFC 6749, section 5.2).
type Refusal struct {
	Code string `json:"error"`
	Text string `json:"error_description"`
}

func (r *Refusal) Error() string {
	if r.Text == "" {
		return "the issuer says " + text.Cut(r.Code, maxWords)
	}
	return text.Cut("the issuer says "+r.Code+": "+r.Text, maxWords)
}

// ask sends a request and reads its answer. A refusal is a *Refusal.
func (l *Login) ask(request *http.Request, out any) error {
	request.Header.Set("Accept", "application/json")
	own := *l.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := own.Do(request)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // without the address
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK {
		var said Refusal
		if media == "application/json" && json.Unmarshal(body, &said) == nil && said.Code != "" {
			return &said
		}
		return fmt.Errorf("it answered %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	if json.Unmarshal(body, out) != nil { // without the cause, which can quote a token
		return errors.New("its answer is not the JSON of an OIDC issuer")
	}
	return nil
}

// Post sends a form to an endpoint of the issuer.
func (l *Login) Post(ctx context.Context, to string, form url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return l.ask(request, out)
}

// Authorize returns the address at which the person logs in; the issuer sends the browser back to another one.
func (l *Login) Authorize(back string, t Ticket) (string, error) {
	if err := l.Check("the address at which people log in", l.found.Authorization); err != nil {
		return "", err
	}
	if c := l.found.Challenges; len(c) > 0 && !slices.Contains(c, "S256") {
		return "", errors.New("the issuer does not know PKCE with S256, which a login needs")
	}
	sum := sha256.Sum256([]byte(t.Verifier))
	u, err := url.Parse(l.found.Authorization)
	if err != nil {
		return "", err
	}
	u.RawQuery = strings.TrimPrefix(u.Query().Encode()+"&"+url.Values{
		"response_type": {"code"}, "client_id": {l.ClientID}, "redirect_uri": {back}, "scope": {l.Scope()}, "state": {t.State}, "nonce": {t.Nonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode(), "&")
	return u.String(), nil
}

// Redeem exchanges the answer that the browser brought back for a token. Its caller has compared the state.
func (l *Login) Redeem(ctx context.Context, answer url.Values, back string, t Ticket) (redact.String, error) {
	if by := answer.Get("iss"); by != "" && by != l.found.Issuer { // RFC 9207
		return redact.String{}, errors.New("the answer comes from another issuer")
	}
	if answer.Get("code") == "" {
		return redact.String{}, &Refusal{Code: answer.Get("error"), Text: answer.Get("error_description")}
	}
	got, err := l.Token(ctx, url.Values{"grant_type": {"authorization_code"}, "code": {answer.Get("code")}, "redirect_uri": {back}, "code_verifier": {t.Verifier}})
	if err != nil {
		return redact.String{}, err
	}
	return l.Take(got, t.Nonce)
}

// Given is the answer of a token endpoint. Other tokens in it are dropped.
type Given struct {
	IDToken string `json:"id_token"`
}

// Token asks the token endpoint. A refusal is a *Refusal.
func (l *Login) Token(ctx context.Context, form url.Values) (got Given, err error) {
	form.Set("client_id", l.ClientID)
	if err := l.Post(ctx, l.found.Token, form, &got); err != nil {
		return got, fmt.Errorf("get a token from %s: %w", l.Issuer, err)
	}
	return got, nil
}

// Take returns the token of an answer if it is for this login; an empty nonce is not compared. The token's signature is
// checked by the control plane; the answer came from the issuer itself, over TLS (OpenID Connect Core, section 3.1.3.7).
func (l *Login) Take(got Given, nonce string) (redact.String, error) {
	if got.IDToken == "" {
		return redact.String{}, errors.New("the issuer gave no id_token: its scopes must include openid")
	}
	_, claims, err := parse(got.IDToken)
	if err != nil {
		return redact.String{}, errors.New("the issuer's id_token is not a JWT that is only signed")
	}
	switch {
	case claims.text("iss") != l.found.Issuer:
		return redact.String{}, errors.New("the token is of another issuer")
	case !slices.Contains(values(claims["aud"]), l.ClientID):
		return redact.String{}, errors.New("the token is for another client")
	case nonce != "" && claims.text("nonce") != nonce:
		return redact.String{}, errors.New("the token is of another login: it has another nonce")
	}
	return redact.New(got.IDToken), nil
}

// Scope is the requested scope. A refresh token is not requested: it would have to be stored.
func (l *Login) Scope() string {
	scopes := slices.DeleteFunc(slices.Clone(l.Scopes), func(s string) bool { return s == "offline_access" })
	if !slices.Contains(scopes, "openid") {
		scopes = append([]string{"openid"}, scopes...)
	}
	return strings.Join(scopes, " ")
}
