// Package signin gets a token of a person from an OIDC issuer: in a browser on this machine, or by a code that the
// person types in elsewhere. It checks what only it can check (state, nonce, issuer, client); whether the token is
// genuine is checked by who takes it. It keeps nothing, and asks for no refresh token.
package signin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// Patience is how long a person has to log in.
const Patience = 5 * time.Minute

const (
	mostAnswer  = 1 << 20          // bytes of an answer of an issuer
	answerTime  = 30 * time.Second // for one
	mostWords   = 300              // bytes of what an issuer says in an error
	devicePause = 5 * time.Second  // between two polls where the issuer names none, and what slow_down adds (RFC 8628)
)

// Config says with which issuer somebody logs in, and how to talk to the person.
type Config struct {
	Issuer   string // its address
	ClientID string // of a public client
	Scopes   []string

	Say  func(format string, args ...any)            // a line for the person
	Open func(ctx context.Context, url string) error // opens a browser; a failure is no matter, the person has the address
	HTTP *http.Client                                // nil: one with Go's defaults
	Wait func(context.Context, time.Duration) error  // nil: time passes
}

// flow is one login.
type flow struct {
	Config
	found discovery
}

// discovery is what an issuer says of itself.
type discovery struct {
	Issuer        string   `json:"issuer"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Device        string   `json:"device_authorization_endpoint"`
	Challenges    []string `json:"code_challenge_methods_supported"`
}

// begin reads what the issuer says of itself.
func begin(ctx context.Context, cfg Config) (*flow, error) {
	f := &flow{Config: cfg}
	if f.Wait == nil {
		f.Wait = wait.For
	}
	own := http.Client{}
	if cfg.HTTP != nil {
		own = *cfg.HTTP
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	f.HTTP = &own
	if err := private("the issuer's address", cfg.Issuer); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(cfg.Issuer, "/")+"/.well-known/openid-configuration", http.NoBody)
	if err != nil {
		return nil, err
	}
	if err := f.ask(request, &f.found); err != nil {
		return nil, fmt.Errorf("ask %s how to log in: %w", cfg.Issuer, err)
	}
	if f.found.Issuer != cfg.Issuer {
		return nil, fmt.Errorf("%s says that it is %s: an admin must correct the issuer's address", cfg.Issuer, text.Quote(f.found.Issuer, mostWords))
	}
	return f, private("the token endpoint of "+cfg.Issuer, f.found.Token)
}

// private refuses an address to which a code or token would go in clear text over a network.
func private(what, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !config.Loopback(u.Hostname())) {
		return fmt.Errorf("%s is %s: it must begin with https://", what, text.Quote(address, mostWords))
	}
	return nil
}

// refusal is an error answer of an issuer (RFC 6749, section 5.2).
type refusal struct {
	Code string `json:"error"`
	Text string `json:"error_description"`
}

func (r *refusal) Error() string {
	if r.Text == "" {
		return "the issuer says " + text.Cut(r.Code, mostWords)
	}
	return text.Cut("the issuer says "+r.Code+": "+r.Text, mostWords)
}

// ask sends a request and reads its answer. A refusal is a *refusal.
func (f *flow) ask(request *http.Request, out any) error {
	request.Header.Set("Accept", "application/json")
	response, err := f.HTTP.Do(request)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // without the address
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return err
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK {
		var said refusal
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

// post sends a form.
func (f *flow) post(ctx context.Context, to string, form url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return f.ask(request, out)
}

// given is the answer of a token endpoint. Other tokens in it are dropped.
type given struct {
	IDToken string `json:"id_token"`
}

// take returns the token of an answer if it is for this login. Its signature is checked by the control plane; the
// answer came from the issuer itself, over TLS (OpenID Connect Core, section 3.1.3.7).
func (f *flow) take(got given, nonce string) (redact.String, error) {
	var claims struct {
		Issuer   string   `json:"iss"`
		Audience audience `json:"aud"`
		Nonce    string   `json:"nonce"`
	}
	if got.IDToken == "" {
		return redact.String{}, errors.New("the issuer gave no id_token: its scopes must include openid")
	}
	parts := strings.Split(got.IDToken, ".")
	if len(parts) != 3 {
		return redact.String{}, errors.New("the issuer's id_token is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return redact.String{}, errors.New("the issuer's id_token is not a JWT")
	}
	switch {
	case claims.Issuer != f.found.Issuer:
		return redact.String{}, errors.New("the token is of another issuer")
	case !slices.Contains(claims.Audience, f.ClientID):
		return redact.String{}, errors.New("the token is for another client")
	case nonce != "" && claims.Nonce != nonce:
		return redact.String{}, errors.New("the token is of another login: it has another nonce")
	}
	return redact.New(got.IDToken), nil
}

// audience is a claim with one value or several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

// scope is what is asked for. A refresh token is not: there would be a place where it is kept.
func (f *flow) scope() string {
	scopes := slices.DeleteFunc(slices.Clone(f.Scopes), func(s string) bool { return s == "offline_access" })
	if !slices.Contains(scopes, "openid") {
		scopes = append([]string{"openid"}, scopes...)
	}
	return strings.Join(scopes, " ")
}
