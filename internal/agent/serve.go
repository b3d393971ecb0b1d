package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// MaxConnections is how many connections a job may have open to its relay at once. Its runner needs two. Further ones
// wait in the kernel. They must not take the descriptors of the agent, which the other jobs need too.
const MaxConnections = 16

// listen opens the relay's address. With sockets there is none, and the listener is nil.
func (a *Agent) listen(ctx context.Context) (net.Listener, string, error) {
	if a.cfg.RelaySockets != "" {
		return nil, "unix://" + a.cfg.RelaySockets, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", a.cfg.RelayListen)
	if err != nil {
		return nil, "", err
	}
	scheme := "http://"
	if a.cfg.RelayTLS != nil {
		scheme = "https://"
	}
	url := cmp.Or(a.cfg.RelayURL, scheme+listener.Addr().String())
	// All tasks share this address.
	listener = netutil.LimitListener(listener, MaxConnections*a.cfg.Concurrency)
	if a.cfg.RelayTLS != nil {
		listener = tls.NewListener(listener, a.cfg.RelayTLS)
	}
	return listener, url, nil
}

// crowd warns when as many connections are open as may be.
type crowd struct {
	limit int
	full  func()

	mu     sync.Mutex
	open   int
	warned bool
}

// changed is for http.Server's ConnState.
func (c *crowd) changed(_ net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open++
	case http.StateClosed, http.StateHijacked:
		c.open--
	case http.StateActive, http.StateIdle:
	}
	if c.open >= c.limit && !c.warned {
		c.warned = true // once: a job that does it on purpose must not fill the log
		c.full()
	}
}

// server serves the relay, with time limits for slow clients. The log warns once, with the attributes, when as many
// connections are open as the limit allows.
func (a *Agent) server(ctx context.Context, h http.Handler, limit int, attributes ...any) *http.Server {
	log := a.log.With("stage", "relay")
	watch := &crowd{limit: limit, full: func() {
		log.Warn("no more connections to the relay are let in until some close: a job may open them to harm others", append(attributes, "connections", limit)...)
	}}
	return &http.Server{
		ConnState:         watch.changed,
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      90 * time.Second, // a heartbeat is held up to 20 s, between two calls to the control plane
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

func shut(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(ctx, serverTime)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // a caller without an answer by now repeats its call
	}
}
