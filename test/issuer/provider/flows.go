package provider

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// grant is what a code stands for.
type grant struct {
	redirect, challenge, nonce string
	until                      time.Time
}

// device is a login on a device without a browser.
type device struct {
	polls int
	until time.Time
}

const codeLife = time.Minute

// authorize approves the user at once. What is wrong with the redirect address or the client is not sent there.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || !loopback(to) {
		http.Error(w, "redirect_uri must be http://127.0.0.1:PORT/...", http.StatusBadRequest)
		return
	}
	if q.Get("client_id") != p.ClientID {
		http.Error(w, "unknown client_id", http.StatusBadRequest)
		return
	}
	back := to.Query()
	back.Set("iss", p.URL)
	if s := q.Get("state"); s != "" {
		back.Set("state", s)
	}
	challenge, _ := base64.RawURLEncoding.DecodeString(q.Get("code_challenge"))
	switch {
	case q.Get("response_type") != "code":
		back.Set("error", "unsupported_response_type")
	case !slices.Contains(strings.Fields(q.Get("scope")), "openid"):
		back.Set("error", "invalid_scope")
	case q.Get("code_challenge_method") != "S256" || len(challenge) != sha256.Size:
		back.Set("error", "invalid_request")
		back.Set("error_description", "PKCE with S256 is required")
	case q.Get("state") == "" || q.Get("nonce") == "":
		back.Set("error", "invalid_request")
		back.Set("error_description", "state and nonce are required")
	default:
		code := rand.Text()
		back.Set("code", code)
		p.mu.Lock()
		p.codes[code] = grant{q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("nonce"), p.Now().Add(codeLife)}
		p.mu.Unlock()
	}
	to.RawQuery = back.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && ip != nil && ip.IsLoopback() && u.Fragment == "" && u.User == nil
}

// device begins a login on a device.
func (p *Provider) device(w http.ResponseWriter, r *http.Request) {
	if r.ParseForm() != nil || r.PostForm.Get("client_id") != p.ClientID {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	if !slices.Contains(strings.Fields(r.PostForm.Get("scope")), "openid") {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_scope"})
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.devices[code] = &device{polls: p.Pending, until: p.Now().Add(codeLife)}
	p.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{
		"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": p.URL + "/activate", "verification_uri_complete": p.URL + "/activate?user_code=WDJB-MJHT",
		"expires_in": int(codeLife.Seconds()), "interval": 1,
	})
}

// token gives an ID token for a code, which works once.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(code string) { answer(w, http.StatusBadRequest, map[string]string{"error": code}) }
	if r.ParseForm() != nil {
		refuse("invalid_request")
		return
	}
	f := r.PostForm
	if f.Get("client_id") != p.ClientID || f.Get("client_secret") != "" {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	with := map[string]any{"aud": p.ClientID, "azp": p.ClientID}
	p.mu.Lock()
	switch f.Get("grant_type") {
	case "authorization_code":
		g, ok := p.codes[f.Get("code")]
		delete(p.codes, f.Get("code"))
		p.mu.Unlock()
		sum := sha256.Sum256([]byte(f.Get("code_verifier")))
		made := base64.RawURLEncoding.EncodeToString(sum[:])
		if !ok || p.Now().After(g.until) || g.redirect != f.Get("redirect_uri") || len(f.Get("code_verifier")) < 43 ||
			subtle.ConstantTimeCompare([]byte(made), []byte(g.challenge)) != 1 {
			refuse("invalid_grant")
			return
		}
		with["nonce"] = g.nonce
	case deviceGrant:
		d := p.devices[f.Get("device_code")]
		code := ""
		switch {
		case d == nil:
			code = "invalid_grant"
		case p.Now().After(d.until):
			code = "expired_token"
		case d.polls > 0:
			d.polls--
			code = "authorization_pending"
		default:
			delete(p.devices, f.Get("device_code"))
		}
		p.mu.Unlock()
		if code != "" {
			refuse(code)
			return
		}
	default:
		p.mu.Unlock()
		refuse("unsupported_grant_type")
		return
	}
	p.mu.Lock()
	alg := p.keys[0].Algorithm
	p.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	answer(w, http.StatusOK, map[string]any{
		"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 300, "scope": "openid", "id_token": p.Token(alg, with),
	})
}
