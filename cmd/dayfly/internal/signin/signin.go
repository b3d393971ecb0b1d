// Package signin gets a token of a person from an OIDC issuer: in a browser on this machine, or by a code that the
// person types in elsewhere. The requests to an issuer and the checks of its answers are in package oidc.
package signin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/wait"
)

// Patience is how long a person has to log in.
const Patience = 5 * time.Minute

const (
	answerTime  = 30 * time.Second // for the browser's request
	maxWords    = 300              // bytes of an issuer's text in an error
	devicePause = 5 * time.Second  // between two polls where the issuer names none; slow_down adds the same (RFC 8628)
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

// begin reads the issuer's discovery document.
func (cfg *Config) begin(ctx context.Context) (*oidc.Login, error) {
	if cfg.Wait == nil {
		cfg.Wait = wait.For
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{}
	}
	l := &oidc.Login{Issuer: cfg.Issuer, ClientID: cfg.ClientID, Scopes: cfg.Scopes, HTTP: cfg.HTTP, Check: private}
	return l, l.Discover(ctx)
}

// private refuses an address to which a code or token would go in clear text over a network.
func private(name, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !outbound.Loopback(u.Hostname())) {
		return fmt.Errorf("%s is %s: it must begin with https://", name, text.Quote(address, maxWords))
	}
	return nil
}
