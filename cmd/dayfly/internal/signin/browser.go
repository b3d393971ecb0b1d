package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/redact"
)

// callback is the path to which the issuer sends the browser back.
const callback = "/callback"

// Browser logs in with the browser of this machine: authorization code with PKCE, back to a random port of 127.0.0.1
// (RFC 8252).
func Browser(ctx context.Context, cfg Config) (redact.String, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("nobody logged in within %s", Patience))
	defer cancel()
	f, err := begin(ctx, cfg)
	if err != nil {
		return redact.String{}, err
	}
	if err := private("the address at which people log in", f.found.Authorization); err != nil {
		return redact.String{}, err
	}
	if c := f.found.Challenges; len(c) > 0 && !slices.Contains(c, "S256") {
		return redact.String{}, errors.New("the issuer does not know PKCE with S256, which a login needs")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return redact.String{}, fmt.Errorf("listen for the browser: %w", err)
	}
	state, nonce, verifier := rand.Text(), rand.Text(), rand.Text()+rand.Text()
	back := "http://" + listener.Addr().String() + callback
	came := make(chan url.Values, 1)
	server := &http.Server{Handler: f.receive(state, came), ReadHeaderTimeout: answerTime}
	go func() { _ = server.Serve(listener) }()
	defer func() {
		// The page is on its way to the browser.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(last)
		_ = server.Close()
	}()

	sum := sha256.Sum256([]byte(verifier))
	address, err := with(f.found.Authorization, url.Values{
		"response_type": {"code"}, "client_id": {f.ClientID}, "redirect_uri": {back}, "scope": {f.scope()}, "state": {state}, "nonce": {nonce},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	})
	if err != nil {
		return redact.String{}, err
	}
	f.Say("log in at this address, in a browser of this machine:\n\n  %s\n", address)
	if err := f.Open(ctx, address); err != nil {
		f.Say("no browser was opened (%v); without one on this machine, use dayfly login --device", err)
	}
	select {
	case <-ctx.Done():
		return redact.String{}, context.Cause(ctx)
	case answer := <-came:
		return f.redeem(ctx, answer, back, verifier, nonce)
	}
}

// receive serves the page to which the browser is sent back. A call with another state is not of this login, and ends
// nothing.
func (f *flow) receive(state string, came chan<- url.Values) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+callback, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		q := r.URL.Query()
		if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, page("This is not the login that dayfly waits for", "Start it again in the terminal."))
			return
		}
		select {
		case came <- q:
		default: // the page was loaded again
		}
		if q.Get("code") == "" {
			_, _ = fmt.Fprint(w, page("You are not logged in", "The terminal says why. You may close this page."))
			return
		}
		_, _ = fmt.Fprint(w, page("The terminal goes on with your login", "You may close this page."))
	})
	return mux
}

func page(title, line string) string {
	return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Dayfly</title><h1>" + title + "</h1><p>" + line + "</p></html>\n"
}

// redeem exchanges what the browser brought for a token.
func (f *flow) redeem(ctx context.Context, answer url.Values, back, verifier, nonce string) (redact.String, error) {
	if by := answer.Get("iss"); by != "" && by != f.found.Issuer { // RFC 9207
		return redact.String{}, errors.New("the answer comes from another issuer")
	}
	if answer.Get("code") == "" {
		return redact.String{}, &refusal{Code: answer.Get("error"), Text: answer.Get("error_description")}
	}
	var got given
	err := f.post(ctx, f.found.Token, url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Get("code")}, "redirect_uri": {back}, "client_id": {f.ClientID}, "code_verifier": {verifier},
	}, &got)
	if err != nil {
		return redact.String{}, fmt.Errorf("get a token from %s: %w", f.Issuer, err)
	}
	return f.take(got, nonce)
}

// with adds parameters to an address that may have some.
func with(address string, more url.Values) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	u.RawQuery = strings.TrimPrefix(u.Query().Encode()+"&"+more.Encode(), "&")
	return u.String(), nil
}
