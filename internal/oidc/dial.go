package oidc

import (
	"net/http"
	"net/url"

	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// setting is the name of the setting that lists the private addresses of issuers.
const setting = "private_issuers of the control plane"

// CheckAddress refuses an address that cannot be an issuer's. It does not look names up: that is done when they are
// called, each time.
func (v *Verifier) CheckAddress(field, address string) error {
	u, err := url.Parse(address)
	bad := func(format string, args ...any) error {
		return workflow.Refuse(workflow.ErrInvalid, field, format, args...)
	}
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return bad("want the address of an issuer, such as https://id.example.com")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return bad("the address of an issuer has no user, query or fragment")
	}
	if err := v.private.Check("the address of an issuer", setting, u); err != nil {
		return bad("%v", err)
	}
	return nil
}

// caller makes the HTTP client for issuers.
func caller(p outbound.Private) *http.Client {
	return p.Client(outbound.Limits{Setting: setting, Connect: askTime, Timeout: askTime, Redirects: 3, Body: maxAnswer})
}
