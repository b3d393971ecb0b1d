package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob/files"
	"github.com/dayfly-dev/dayfly/internal/console"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/sqlite"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// DefaultListen is where a control plane listens by default.
const DefaultListen = "127.0.0.1:7331"

const (
	defaultPassEvery = time.Minute
	passTimeout      = 55 * time.Second
	shutdownTimeout  = 5 * time.Second
	// organization is the only organization in this version.
	organization = "default"
)

// ServerConfig says where a control plane listens and stores its data.
type ServerConfig struct {
	Data    string // data directory; required
	Listen  string // empty means DefaultListen; port 0 takes a free one
	Version string // empty means "dev"

	PublicURL string // under which browsers reach the pages; empty means the address of each request

	TLSCert, TLSKey string // files; both or none
	InsecureListen  bool   // let other machines connect without TLS

	Connections    int      // of one address at once on which nobody has shown a valid token; 0: no bound of their own
	TrustedProxies []string // addresses and networks of proxies whose X-Forwarded-For says where requests come from

	PrivateIssuers []string // hosts and networks of OIDC issuers that may be called although they are private

	Rates        admission.Rates // of people's calls; the zero value bounds none
	LogQuota     int64           // see controlplane.Config; 0 means its default
	DefaultState string          // see controlplane.Config; empty means nowhere
	NoRoles      bool            // refuse workspaces with a role; see controlplane.Config
	Log          *slog.Logger    // nil means none

	Forward controlplane.Forwarder // of the audit trail; see controlplane.Config

	// For tests; zero values mean the real thing.
	Now       func() time.Time
	PassEvery time.Duration // between passes; 0 means one minute
	WrapStore func(store.Store) store.Store

	jobs   int                                                         // of the same process at once
	digest func(ctx context.Context, dir, path string) (string, error) // see controlplane.Config
}

// Server is a control plane with its listener.
type Server struct {
	cfg       ServerConfig
	log       *slog.Logger
	data      *dataDir
	db        *sqlite.Store
	plane     *controlplane.Plane
	pages     *console.Console
	handler   http.Handler
	proxies   proxies
	listener  net.Listener
	serving   atomic.Bool
	tokenFile string
}

// OpenServer locks the data directory, opens the store and the listener, and makes sure that there is an admin
// token. Close must be called; Run serves.
func OpenServer(ctx context.Context, cfg ServerConfig) (s *Server, err error) {
	cfg.Listen = cmp.Or(cfg.Listen, DefaultListen)
	cfg.PassEvery = cmp.Or(cfg.PassEvery, defaultPassEvery)
	s = &Server{cfg: cfg, log: cfg.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err = checkListen(cfg); err != nil {
		return nil, err
	}
	if cfg.Connections < 0 {
		return nil, workflow.Refuse(workflow.ErrInvalid, "--connections-per-address", "want a number of connections, or 0 for no limit, not %d", cfg.Connections)
	}
	if s.proxies, err = readProxies(cfg.TrustedProxies); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.data, err = openData(cfg.Data); err != nil {
		return s, err
	}
	if err = s.data.restored(); err != nil {
		return s, err
	}
	if s.db, err = sqlite.Open(ctx, s.data.file(DatabaseFile), sqlite.Config{
		Log: s.log, Now: cfg.Now, Program: "dayfly " + cmp.Or(cfg.Version, "dev"),
	}); err != nil {
		return s, err
	}
	issuers, err := oidc.New(oidc.Config{Private: cfg.PrivateIssuers, Log: s.log})
	if err != nil {
		return s, workflow.Refuse(workflow.ErrInvalid, "--private-issuers", "%v", err)
	}
	var st store.Store = s.db
	if cfg.WrapStore != nil {
		st = cfg.WrapStore(st)
	}
	s.plane = controlplane.New(st, controlplane.Config{
		Now: cfg.Now, Log: s.log, Alone: true, LogQuota: cfg.LogQuota, Blobs: files.New(s.data.file(blobsDir)), DefaultState: cfg.DefaultState, Digest: cfg.digest, NoRoles: cfg.NoRoles,
		Forward: cfg.Forward, Issuers: issuers,
		Address: address(cfg), WebhookKey: func(context.Context) ([]byte, error) { return s.data.webhookKey() },
	})
	gate := admission.New(cfg.Rates, nil)
	s.pages = console.New(s.plane, console.Config{
		Log: s.log, Version: cfg.Version, Now: cfg.Now, Gate: gate, Organization: organization, PublicURL: cfg.PublicURL, Hosts: hosts(cfg), Closed: closed(cfg),
	})
	s.handler = s.proxies.behind(s.pages.Beside(httpapi.New(s.plane, httpapi.Config{Log: s.log, Version: cfg.Version, Gate: gate})))
	s.tokenFile = s.data.file(AdminTokenFile)
	if err := s.ensureAdminToken(ctx); err != nil {
		return s, err
	}
	if s.listener, err = s.listen(ctx); err != nil {
		return s, err
	}
	return s, nil
}

// address is under which people reach the pages; empty if the listener alone does not say so.
func address(cfg ServerConfig) string {
	host, port, err := net.SplitHostPort(cfg.Listen)
	scheme := "http://"
	if cfg.TLSCert != "" {
		scheme = "https://"
	}
	switch ip := net.ParseIP(host); {
	case cfg.PublicURL != "":
		return strings.TrimRight(cfg.PublicURL, "/")
	case err != nil || port == "0" || host == "" || ip != nil && ip.IsUnspecified():
		return ""
	}
	return scheme + cfg.Listen
}

// checkListen refuses an address that would show tokens to a network.
func checkListen(cfg ServerConfig) error {
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return workflow.Refuse(workflow.ErrInvalid, "--listen", "want HOST:PORT, such as %s, not %q", DefaultListen, cfg.Listen)
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		return workflow.Refuse(workflow.ErrInvalid, "--tls-cert", "a certificate needs its key: give both --tls-cert and --tls-key")
	}
	if !outbound.Loopback(host) && cfg.TLSCert == "" && !cfg.InsecureListen {
		return workflow.Refuse(workflow.ErrInvalid, "--listen",
			"other machines can reach %s, and would send their tokens in clear text: give --tls-cert and --tls-key, or --insecure-listen behind a proxy that has TLS", cfg.Listen)
	}
	if cfg.PublicURL != "" {
		return console.CheckPublicURL("--public-url", cfg.PublicURL)
	}
	return nil
}

// hosts are the names under which the pages are served; none means any. Some site could let its name lead to this
// machine, and a browser would let it read our pages under that name.
func hosts(cfg ServerConfig) (names []string) {
	if u, err := url.Parse(cfg.PublicURL); err == nil && u.Host != "" {
		names = append(names, strings.ToLower(u.Hostname()))
	}
	if host, _, _ := net.SplitHostPort(cfg.Listen); outbound.Loopback(host) {
		names = append(names, "localhost", "127.0.0.1", "::1", host)
	}
	return names
}

// closed says why no page is served; empty means that they are.
func closed(cfg ServerConfig) string {
	if host, _, _ := net.SplitHostPort(cfg.Listen); outbound.Loopback(host) || cfg.TLSCert != "" || cfg.PublicURL != "" {
		return ""
	}
	return "this control plane does not know under which address browsers reach it: start it with --public-url https://NAME, the address of the proxy in front of it"
}

func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	var tlsConfig *tls.Config
	if s.cfg.TLSCert != "" {
		var err error
		if tlsConfig, err = certificate(s.cfg.TLSCert, s.cfg.TLSKey); err != nil {
			return nil, err
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, workflow.Refuse(workflow.ErrInUse, "--listen", "another program already listens on %s: stop it, or choose another port; 0 takes a free one", s.cfg.Listen)
	}
	_, badAddress := errors.AsType[*net.AddrError](err)
	if _, unknown := errors.AsType[*net.DNSError](err); badAddress || unknown {
		return nil, workflow.Refuse(workflow.ErrInvalid, "--listen", "%s is not an address of this machine with a port from 0 to 65535: %v", s.cfg.Listen, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	calls, _ := descriptors(openFiles(), s.cfg.jobs)
	l = netutil.LimitListener(l, calls)
	if s.cfg.Connections > 0 { // and never all that there are
		l = &strangers{Listener: l, max: min(s.cfg.Connections, calls/2), proxies: s.proxies, open: map[string]int{}}
	}
	if tlsConfig != nil {
		return tls.NewListener(l, tlsConfig), nil
	}
	return l, nil
}

// certificate makes TLS of the files of a certificate and its key.
func certificate(cert, key string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// ensureAdminToken makes sure that the token file has a valid token: a start that was killed between making the token
// and writing it must not lock everybody out.
func (s *Server) ensureAdminToken(ctx context.Context) error {
	first, err := s.plane.Bootstrap(ctx, organization)
	if err != nil {
		return fmt.Errorf("prepare the control plane: %w", err)
	}
	if first != "" {
		return writePrivate(s.tokenFile, first)
	}
	kept, err := readPrivate(s.tokenFile)
	if err != nil {
		return err
	}
	if kept != "" {
		admin, err := s.plane.Authenticate(ctx, kept)
		if err == nil && admin.Role == api.RoleAdmin {
			return nil
		}
		if err != nil && !errors.Is(err, workflow.ErrUnauthenticated) && !errors.Is(err, workflow.ErrRevoked) {
			return fmt.Errorf("check the admin token: %w", err)
		}
	}
	// The owner of the data directory is the administrator.
	owner := controlplane.Principal{Organization: organization, ID: controlplane.DataDirectory, Name: controlplane.DataDirectory, Audience: "user", Role: api.RoleAdmin}
	made, err := s.plane.CreateToken(ctx, owner, api.NewToken{Name: api.FirstAdmin, Principal: api.FirstAdmin, Role: api.RoleAdmin})
	if err != nil {
		return fmt.Errorf("make an admin token: %w", err)
	}
	s.log.WarnContext(ctx, "admin token replaced", "file", s.tokenFile, "token_id", made.Token.ID)
	return writePrivate(s.tokenFile, made.Value)
}

// AdminToken returns the value in the token file.
func (s *Server) AdminToken() (string, error) { return readPrivate(s.tokenFile) }

// Link returns an address that signs a browser in as the administrator: once, within ten minutes. It is empty where no
// page is served.
func (s *Server) Link() (string, error) {
	token, err := s.AdminToken()
	if err != nil || closed(s.cfg) != "" {
		return "", err
	}
	return strings.TrimRight(cmp.Or(s.cfg.PublicURL, s.URL()), "/") + s.pages.OneTimeLink(redact.New(token)), nil
}

// AdminTokenFile returns the path of the admin token.
func (s *Server) AdminTokenFile() string { return s.tokenFile }

// Data returns the data directory, without symbolic links.
func (s *Server) Data() string { return s.data.path }

// Plane returns the rules, for tests, which move time by hand.
func (s *Server) Plane() *controlplane.Plane { return s.plane }

// URL returns an address at which this machine reaches the control plane.
func (s *Server) URL() string {
	scheme := "http"
	if s.cfg.TLSCert != "" {
		scheme = "https"
	}
	host, _, _ := net.SplitHostPort(s.cfg.Listen)
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if scheme == "https" {
			host = "localhost"
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// Run serves and makes passes until ctx ends, then gives open requests a moment to finish.
func (s *Server) Run(ctx context.Context) error {
	if s.serving.Swap(true) {
		return errors.New("this server was run before")
	}
	server := httpapi.Server(s.handler)
	server.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	// Long polls end with the server and not with their time.
	requests, endRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endRequests(nil)
	server.ConnContext = noteProof
	server.BaseContext = func(net.Listener) context.Context { return requests }

	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error { s.passes(inner); return nil })
	group.Go(func() error {
		<-inner.Done()
		endRequests(errStopping)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if err := server.Shutdown(late); err != nil {
			return errors.Join(server.Close())
		}
		return nil
	})
	return group.Wait()
}

var errStopping = errors.New("the control plane is stopping")

// passes applies the rules of time, until ctx ends. The next pass repeats one that fails.
func (s *Server) passes(ctx context.Context) {
	every := time.NewTicker(s.cfg.PassEvery)
	defer every.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, passTimeout)
		sum, err := s.plane.Pass(limited)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			s.log.WarnContext(ctx, "pass failed", "err", err)
		case sum.Moved > 0 || sum.Failed > 0 || sum.Deleted > 0:
			s.log.InfoContext(ctx, "pass done", "looked", sum.Looked, "moved", sum.Moved, "failed", sum.Failed, "deleted", sum.Deleted)
		}
		s.purge(ctx)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// purge deletes expired records: this store does that only on request.
func (s *Server) purge(ctx context.Context) {
	const batches = 20
	now := time.Now
	if s.cfg.Now != nil {
		now = s.cfg.Now
	}
	for range batches {
		n, err := s.db.Purge(ctx, now())
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "expired records not deleted", "err", err)
		}
		if err != nil || n < sqlite.PurgeLimit {
			return
		}
	}
}

// Close closes everything that OpenServer opened.
func (s *Server) Close() error {
	var errs []error
	if s.listener != nil {
		if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.close())
	}
	return errors.Join(errs...)
}
