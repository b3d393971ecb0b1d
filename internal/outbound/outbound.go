// Package outbound makes HTTP clients for addresses that somebody else named: they call no private address unless it is
// listed, take no proxy, follow few redirects and none to another host, and end within their time and bytes. It does
// not decide which addresses people may name.
package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrRefused is in the error of a call that was not made: it would have reached a private address, or one without TLS.
var ErrRefused = errors.New("the address is not called")

// ErrLong is in the error of a reader that gets beyond Limits.Body.
var ErrLong = errors.New("the answer is too long")

// Private is a list of private addresses that may be called. The zero value allows none. It is safe for concurrent
// use.
type Private struct {
	hosts []string
	nets  []netip.Prefix
}

// ReadPrivate reads a list of hosts, addresses and networks (CIDR). Its error names the entry that is none of these.
func ReadPrivate(list []string) (p Private, err error) {
	for _, one := range list {
		one = strings.ToLower(strings.TrimSpace(one))
		if n, err := Network(one); err == nil {
			p.nets = append(p.nets, n)
			continue
		}
		if one == "" || strings.ContainsAny(one, "/:@*? ") {
			return Private{}, fmt.Errorf("want hosts such as id.example.internal, addresses, or networks such as 10.1.0.0/16, not %.100q", one)
		}
		p.hosts = append(p.hosts, one)
	}
	return p, nil
}

// Network reads an address or a network (CIDR).
func Network(s string) (netip.Prefix, error) {
	if n, err := netip.ParsePrefix(s); err == nil {
		return n.Masked(), nil
	}
	a, err := netip.ParseAddr(strings.Trim(s, "[]"))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("neither an address nor a network: %w", err)
	}
	return a.Unmap().Prefix(a.Unmap().BitLen())
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
func (p Private) hosted(host string) bool {
	return slices.Contains(p.hosts, strings.ToLower(strings.TrimSuffix(host, ".")))
}

// allows says whether an address may be called.
func (p Private) allows(a netip.Addr) bool {
	return public(a) || slices.ContainsFunc(p.nets, func(n netip.Prefix) bool { return n.Contains(a.Unmap().WithZone("")) })
}

// Check refuses an address that a client would not call, or that would be called without TLS. Only listed addresses of
// this machine are called without TLS. It does not look names up: the client does that each time. The errors begin
// with the subject, "the address of an issuer", and name the setting that would allow the address, "private_issuers
// of the control plane".
func (p Private) Check(subject, setting string, u *url.URL) error {
	if u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "" || u.Hostname() == "" {
		return fmt.Errorf("%s begins with https:// and a host", subject)
	}
	host := u.Hostname()
	a, err := netip.ParseAddr(host)
	isAddress := err == nil
	listed := p.hosted(host) || isAddress && !public(a) && p.allows(a)
	loopback := Loopback(host)
	switch {
	case u.Scheme == "http" && (!loopback || !listed):
		return fmt.Errorf("%s begins with https://; http:// is only for one on this machine that %s lists", subject, setting)
	case (isAddress && !public(a) || host == "localhost") && !listed:
		return fmt.Errorf("%.200s is private: it is called only if %s lists it", host, setting)
	}
	return nil
}

// Loopback reports whether only this machine reaches a host.
func Loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// Limits bound the calls of a client.
type Limits struct {
	Setting   string        // name of the setting that allows a private address: "private_issuers of the control plane"
	Connect   time.Duration // for a connection, and for TLS; zero means 5 s
	Timeout   time.Duration // for a call with its answer; zero means 30 s
	Redirects int           // that are followed, within one host; zero means none: the redirect is the answer
	Body      int64         // bytes of an answer; zero means 1 MiB
}

// Client makes an HTTP client. It calls nothing that Check refuses, and checks each address after the name is resolved,
// when it connects, so that a name whose address changes does not lead elsewhere. It takes no proxy from the environment:
// then the proxy's address would be checked. A host that is listed by its name may have any address.
func (p Private) Client(l Limits) *http.Client {
	connect := cmp.Or(l.Connect, 5*time.Second)
	plain := &net.Dialer{Timeout: connect}
	checked := &net.Dialer{Timeout: connect, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil || !p.allows(to.Addr()) {
			return fmt.Errorf("%w: %s is private, and %s does not list it", ErrRefused, address, l.Setting)
		}
		return nil
	}}
	return &http.Client{
		Timeout: cmp.Or(l.Timeout, 30*time.Second),
		Transport: &bounded{private: p, setting: l.Setting, limit: cmp.Or(l.Body, 1<<20), Transport: &http.Transport{
			Proxy: nil, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connect,
			MaxResponseHeaderBytes: 32 << 10, MaxIdleConns: 10, IdleConnTimeout: 30 * time.Second,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				if host, _, err := net.SplitHostPort(address); err == nil && p.hosted(host) {
					return plain.DialContext(ctx, network, address)
				}
				return checked.DialContext(ctx, network, address)
			},
		}},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			if l.Redirects == 0 {
				return http.ErrUseLastResponse
			}
			if first := via[0].URL; to.URL.Host != first.Host || to.URL.Scheme != first.Scheme || len(via) > l.Redirects {
				return fmt.Errorf("it redirects to %.200q, and only %d redirects within one host are followed", to.URL.Redacted(), l.Redirects)
			}
			return nil
		},
	}
}

// bounded is a transport that calls nothing that Check refuses, and whose answers end with an error after so many bytes.
type bounded struct {
	*http.Transport

	private Private
	setting string
	limit   int64
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := b.private.Check("the address", b.setting, r.URL); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	response, err := b.Transport.RoundTrip(r)
	if err == nil {
		response.Body = &body{response.Body, b.limit, b.limit}
	}
	return response, err
}

type body struct {
	io.ReadCloser

	remaining, limit int64
}

func (b *body) Read(to []byte) (int, error) {
	if b.remaining < 0 {
		return 0, fmt.Errorf("%w: at most %d bytes are read", ErrLong, b.limit)
	}
	n, err := b.ReadCloser.Read(to[:min(int64(len(to)), b.remaining+1)]) // one more tells an end from an excess
	if b.remaining -= int64(n); b.remaining < 0 {
		return n - 1, fmt.Errorf("%w: at most %d bytes are read", ErrLong, b.limit)
	}
	return n, err
}
