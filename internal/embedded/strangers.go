package embedded

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// strangers is a listener that bounds how many connections of one address may be open on which nobody has shown a valid
// token: one machine cannot take those of all others. A connection beyond that is closed at once. Its methods may be
// called concurrently.
type strangers struct {
	net.Listener
	max     int
	proxies proxies // their connections are of many senders, and not counted

	mu   sync.Mutex
	open map[string]int // by address
}

// stranger is a connection that counts until it is closed, or a token that came on it was valid.
type stranger struct {
	net.Conn
	counted sync.Once
	known   func()
}

// Accept implements net.Listener.
func (l *strangers) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.proxies.trust(c.RemoteAddr().String()) {
			return c, err
		}
		address := admission.Address(c.RemoteAddr().String())
		if l.count(address, 1) {
			return &stranger{Conn: c, known: func() { l.count(address, -1) }}, nil
		}
		_ = c.Close()
	}
}

// count adds to the connections of an address; false means that there are too many already.
func (l *strangers) count(address string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.open[address] + n
	if now > l.max {
		return false
	}
	l.open[address] = now
	if now == 0 {
		delete(l.open, address)
	}
	return true
}

// Close implements net.Conn.
func (c *stranger) Close() error {
	c.counted.Do(c.known)
	return c.Conn.Close()
}

// noteProof is for http.Server.ConnContext: a connection on which a token proves valid is no stranger's.
func noteProof(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if c, ok := c.(*stranger); ok {
		return admission.OnProof(ctx, func() { c.counted.Do(c.known) })
	}
	return ctx
}

// proxies are the networks of proxies whose X-Forwarded-For is trusted.
type proxies []netip.Prefix

// readProxies reads addresses and networks.
func readProxies(list []string) (p proxies, err error) {
	for _, one := range list {
		network, err := outbound.Network(one)
		if err != nil {
			return nil, workflow.Refuse(workflow.ErrInvalid, "--trusted-proxies", "want addresses and networks, such as 10.0.0.7 or 10.0.0.0/24, not %q", one)
		}
		p = append(p, network)
	}
	return p, nil
}

// trust says whether an address, with its port, is that of such a proxy.
func (p proxies) trust(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(at.Addr().Unmap().WithZone("")) })
}

// sender is where a request comes from. Each proxy adds the address that it sees to X-Forwarded-For, at the end:
// addresses before the last one that is not a trusted proxy may be forged.
func (p proxies) sender(remote string, forwarded []string) string {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !p.trust(remote) {
			break
		}
		address, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		remote = netip.AddrPortFrom(address, 0).String()
	}
	return remote
}

// behind gives requests that come by way of a trusted proxy the address of their sender.
func (p proxies) behind(next http.Handler) http.Handler {
	if len(p) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = p.sender(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
		next.ServeHTTP(w, r)
	})
}
