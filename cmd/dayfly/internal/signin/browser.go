package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// callback is the path to which the issuer sends the browser back.
const callback = "/callback"

// Browser logs in with the browser of this machine: authorization code with PKCE, back to a random port of 127.0.0.1
// (RFC 8252).
func Browser(ctx context.Context, cfg Config) (redact.String, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("nobody logged in within %s", Patience))
	defer cancel()
	login, err := cfg.begin(ctx)
	if err != nil {
		return redact.String{}, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return redact.String{}, fmt.Errorf("listen for the browser: %w", err)
	}
	ticket := oidc.NewTicket()
	back := "http://" + listener.Addr().String() + callback
	address, err := login.Authorize(back, ticket)
	if err != nil {
		return redact.String{}, errors.Join(err, listener.Close())
	}
	came := make(chan url.Values, 1)
	server := &http.Server{Handler: receive(ticket.State, came), ReadHeaderTimeout: answerTime}
	go func() { _ = server.Serve(listener) }()
	defer func() {
		// The page is on its way to the browser.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(last)
		_ = server.Close()
	}()

	cfg.Say("log in at this address, in a browser of this machine:\n\n  %s\n", address)
	if err := cfg.Open(ctx, address); err != nil {
		cfg.Say("no browser was opened (%v); without one on this machine, use dayfly login --device", err)
	}
	select {
	case <-ctx.Done():
		return redact.String{}, context.Cause(ctx)
	case answer := <-came:
		return login.Redeem(ctx, answer, back, ticket)
	}
}

// receive serves the page to which the browser is sent back. A call with another state is not of this login, and is
// ignored.
func receive(state string, came chan<- url.Values) http.Handler {
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
