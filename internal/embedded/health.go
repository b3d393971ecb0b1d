package embedded

import (
	"context"
	"net"
	"strconv"

	"golang.org/x/net/netutil"

	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
)

// maxProbes bounds the connections to /healthz: they must not take the descriptors of jobs.
const maxProbes = 16

// openHealth listens for probes. A port that is taken is said and not an error: the agent can work.
func (a *Agent) openHealth(ctx context.Context, s config.Config) {
	if s.HTTPServerPort == 0 {
		return
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(s.HTTPServerAddress, strconv.Itoa(s.HTTPServerPort)))
	if err != nil {
		a.target.lines = append(a.target.lines, "/healthz is not served: "+err.Error()+"; set http_server_port to another port, or to 0")
		return
	}
	a.health = netutil.LimitListener(listener, maxProbes)
	a.target.lines = append(a.target.lines, "health at http://"+listener.Addr().String()+"/healthz")
}

// serveHealth answers probes until the function that it returns is called.
func (a *Agent) serveHealth() (stop func()) {
	if a.health == nil {
		return func() {}
	}
	server, done := httpapi.Server(a.agent.Health()), make(chan struct{})
	go func() { defer close(done); _ = server.Serve(a.health) }()
	return func() { _ = server.Close(); <-done }
}
