package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"log/syslog"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/blob/s3"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/forward"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// serving are the flags of commands that serve until they are stopped.
type serving struct {
	Verbose  bool   `short:"v" help:"Log everything, including what changes nothing; the same as --log-level debug."`
	LogLevel string `help:"Least important lines to log: debug, info, warn or error; default info (DAYFLY_LOG_LEVEL)." placeholder:"LEVEL"`
}

// log writes text to a terminal, JSON elsewhere, or to the syslog, as the settings say.
func (s serving) log(a *app, c config.Config) (*slog.Logger, error) {
	handler, err := s.handler(a, term.IsTerminal(a.stderr), slog.LevelInfo, c)
	return slog.New(handler), err
}

// handler writes from a level on, if the settings name no other.
func (s serving) handler(a *app, text bool, level slog.Level, c config.Config) (slog.Handler, error) {
	if c.LogLevel != "" && level.UnmarshalText([]byte(c.LogLevel)) != nil { // only server has not checked it
		return slog.DiscardHandler, usage(fmt.Errorf("--log-level: want debug, info, warn or error, not %q", c.LogLevel))
	}
	if s.Verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case c.Syslog:
		return syslogHandler(func() (*syslog.Writer, error) { return syslog.New(syslog.LOG_DAEMON, "dayfly") }, level)
	case text:
		return slog.NewTextHandler(a.stderr, options), nil
	}
	return slog.NewJSONHandler(a.stderr, options), nil
}

// listening are the flags of a control plane.
type listening struct {
	Listen         string `help:"Address to listen on; one that other machines reach needs TLS or --insecure-listen; default ${listen} (DAYFLY_LISTEN)." placeholder:"HOST:PORT"`
	TLSCert        string `name:"tls-cert" type:"path" help:"File with the certificate."`
	TLSKey         string `name:"tls-key" type:"path" help:"File with the certificate's key."`
	InsecureListen bool   `help:"Let other machines connect without TLS: for use behind a proxy that has TLS."`

	PublicURL string `name:"public-url" help:"Address under which browsers reach the pages, such as https://dayfly.example.com; needed behind a proxy (for server also DAYFLY_PUBLIC_URL)." placeholder:"URL"`

	TokenRate        callRate `default:"${token_rate}" placeholder:"N" help:"Most calls a second with one user token; default ${token_rate}, 0 for no limit."`
	OrganizationRate callRate `default:"${organization_rate}" placeholder:"N" help:"Most calls a second with all user tokens of an organization; default ${organization_rate}, 0 for no limit."`
	FailureRate      callRate `default:"${failure_rate}" placeholder:"N" help:"Most failed sign-ins a second from one address, after the first 60; default ${failure_rate}, 0 for no limit."`
	Connections      int      `name:"connections-per-address" default:"1000" placeholder:"N" help:"Max connections of one address at once on which nobody has shown a valid token; default 1000, 0 for no limit."`
	TrustedProxies   []string `placeholder:"NETWORKS" help:"Addresses and networks of proxies whose X-Forwarded-For says where requests come from, separated by commas."`
	AuditForward     string   `placeholder:"ADDRESS" help:"Where the sealed audit trail is sent to: file:///PATH, syslog+tls://HOST:PORT (or tcp, udp), syslog+unix:///PATH, or s3://BUCKET/PREFIX."`
	PrivateIssuers   []string `placeholder:"HOSTS" help:"Hosts, addresses and networks of OIDC issuers that may be called although they are private, separated by commas (DAYFLY_PRIVATE_ISSUERS)."`

	LogQuota logQuota `placeholder:"SIZE" help:"Largest log of a run, from 1MiB to 1024MiB; default 64MiB."`
}

// callRate is a number of calls a second; 0 means no limit.
type callRate int

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *callRate) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 || n > 1_000_000 {
		return fmt.Errorf("want a whole number a second, up to 1000000, or 0 for no limit, not %q", text)
	}
	*r = callRate(n)
	return nil
}

// logQuota is a size such as 64MiB.
type logQuota int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (q *logQuota) UnmarshalText(text []byte) error {
	n, err := api.ParseLogQuota(string(text))
	*q = logQuota(n)
	return err
}

func (l listening) config(a *app, log *slog.Logger) (embedded.ServerConfig, error) {
	c := embedded.ServerConfig{
		Rates:  admission.Rates{Token: int(l.TokenRate), Organization: int(l.OrganizationRate), Failures: int(l.FailureRate)},
		Listen: l.Listen, TLSCert: l.TLSCert, TLSKey: l.TLSKey, InsecureListen: l.InsecureListen, PublicURL: l.PublicURL, PrivateIssuers: l.PrivateIssuers, Connections: l.Connections, TrustedProxies: l.TrustedProxies, LogQuota: int64(l.LogQuota), Version: versionText(), Log: log,
	}
	if l.AuditForward == "" {
		return c, nil
	}
	to, err := forward.To("--audit-forward", l.AuditForward, func(name string) (*s3.Store, error) {
		cfg, err := awsSettings(a.ctx, "bucket of --audit-forward")
		return s3.New(cfg, name), err
	})
	if err != nil {
		return c, wrongSettings(err)
	}
	c.Forward = to
	return c, nil
}

// wrongSettings turns a refusal of flags or settings into wrong usage.
func wrongSettings(err error) error {
	if errors.Is(err, workflow.ErrInvalid) || errors.Is(err, workflow.ErrUnsupported) {
		return usage(errors.New(sentence(err)))
	}
	return err
}

type serverCommands struct {
	Serve   serverCommand `cmd:"" default:"withargs" help:"Serve until interrupted; server alone does the same."`
	Backup  serverBackup  `cmd:"" help:"Copy the records of a data directory, also while a server uses it."`
	Restore serverRestore `cmd:"" help:"Put a backup in the place of a data directory's records, while nothing uses it."`
}

type serverCommand struct {
	dataFlag
	listening
	serving
}

// Run serves until the command is interrupted.
func (c *serverCommand) Run(a *app) (err error) {
	log, err := c.log(a, config.Config{LogLevel: cmp.Or(c.LogLevel, a.getenv("DAYFLY_LOG_LEVEL"))})
	if err != nil {
		return err
	}
	cfg, err := c.config(a, log)
	if err != nil {
		return err
	}
	cfg.Listen = cmp.Or(c.Listen, a.getenv("DAYFLY_LISTEN"))
	cfg.PublicURL = cmp.Or(c.PublicURL, a.getenv("DAYFLY_PUBLIC_URL"))
	if listed := a.getenv("DAYFLY_PRIVATE_ISSUERS"); len(cfg.PrivateIssuers) == 0 && listed != "" {
		cfg.PrivateIssuers = strings.Split(listed, ",")
	}
	if cfg.Data, err = c.directory(a); err != nil {
		return err
	}
	s, err := embedded.OpenServer(a.ctx, cfg)
	if err != nil {
		return wrongSettings(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	a.announce(s)
	return s.Run(a.ctx)
}

// invite says by which link a browser is signed in. It is not for the journal of the machine, which others may read.
func (a *app) invite(s *embedded.Server) error {
	if a.getenv("JOURNAL_STREAM") != "" {
		return nil
	}
	link, err := s.Link()
	if link != "" {
		a.say("open %s in a browser; the link works once, within 10 minutes", link)
	}
	return err
}

// announce says where a control plane is and which file has its token; never the token.
func (a *app) announce(s *embedded.Server) {
	a.say("dayfly %s serves at %s", versionText(), s.URL())
	a.say("  data         %s", s.Data())
	a.say("  admin token  %s", s.AdminTokenFile())
}
