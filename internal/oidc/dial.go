package oidc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// private is what may be called although it is private.
type private struct {
	hosts []string
	nets  []netip.Prefix
}

func readPrivate(list []string) (p private, err error) {
	for _, one := range list {
		one = strings.ToLower(strings.TrimSpace(one))
		if n, err := netip.ParsePrefix(one); err == nil {
			p.nets = append(p.nets, n.Masked())
			continue
		}
		if a, err := netip.ParseAddr(strings.Trim(one, "[]")); err == nil {
			p.nets = append(p.nets, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		if one == "" || strings.ContainsAny(one, "/:@*? ") {
			return p, fmt.Errorf("want hosts such as id.example.internal, addresses, or networks such as 10.1.0.0/16, not %.100q", one)
		}
		p.hosts = append(p.hosts, one)
	}
	return p, nil
}

// special are networks that are not on the internet, or lead to such ones, besides those that package netip knows.
// https://www.iana.org/assignments/iana-ipv4-special-registry https://www.iana.org/assignments/iana-ipv6-special-registry
var special = []string{
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fec0::/10",
}

// public says whether an address is one of the internet.
func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if netip.MustParsePrefix("64:ff9b::/96").Contains(a) { // a network translates it to the IPv4 address at its end
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	return !slices.ContainsFunc(special, func(s string) bool { return netip.MustParsePrefix(s).Contains(a) })
}

// hosted says whether a host is listed by its name.
func (p private) hosted(host string) bool {
	return slices.Contains(p.hosts, strings.ToLower(strings.TrimSuffix(host, ".")))
}

// allows says whether an address may be called.
func (p private) allows(a netip.Addr) bool {
	return public(a) || slices.ContainsFunc(p.nets, func(n netip.Prefix) bool { return n.Contains(a.Unmap().WithZone("")) })
}

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
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("the address of an issuer begins with https://")
	}
	host := u.Hostname()
	a, err := netip.ParseAddr(host)
	isAddress := err == nil
	listed := v.private.hosted(host) || isAddress && !public(a) && v.private.allows(a)
	loopback := host == "localhost" || isAddress && a.Unmap().IsLoopback()
	switch {
	case u.Scheme == "http" && (!loopback || !listed):
		return bad("the address of an issuer begins with https://; http:// is only for one on this machine that private_issuers lists")
	case isAddress && !public(a) && !listed:
		return bad("%s is a private address: it is called only if private_issuers of the control plane lists it", host)
	case host == "localhost" && !listed:
		return bad("localhost is private: it is called only if private_issuers of the control plane lists it")
	}
	return nil
}

var errPrivate = errors.New("it is a private address, which private_issuers of the control plane does not list")

// client makes the HTTP client for issuers. It takes no proxy from the environment: then what is checked would be the
// proxy's address.
func (p private) client() *http.Client {
	checked := &net.Dialer{Timeout: askTime, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !p.allows(to.Addr()) {
			return fmt.Errorf("%s: %w", address, errPrivate)
		}
		return nil
	}}
	return &http.Client{
		Timeout: askTime,
		Transport: &http.Transport{
			Proxy: nil, ForceAttemptHTTP2: true, TLSHandshakeTimeout: askTime, ResponseHeaderTimeout: askTime,
			MaxResponseHeaderBytes: 32 << 10, MaxIdleConns: 10, IdleConnTimeout: 30 * time.Second,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if host, _, err := net.SplitHostPort(address); err == nil && p.hosted(host) {
					return (&net.Dialer{Timeout: askTime}).DialContext(ctx, network, address)
				}
				return checked.DialContext(ctx, network, address)
			},
		},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			if first := via[0].URL; to.URL.Host != first.Host || to.URL.Scheme != first.Scheme || len(via) > 3 {
				return fmt.Errorf("it redirects to %.200q, and only redirects within one host are followed", to.URL.Redacted())
			}
			return nil
		},
	}
}
