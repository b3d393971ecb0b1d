// Package serve has the commands that run Dayfly itself: up, server and agent, the settings file of an agent, and the
// backup of a control plane's records.
package serve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"log/syslog"
	"strconv"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/awsaccess"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
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
	Verbose  bool   `short:"v" help:"Log everything, including debug lines; the same as --log-level debug."`
	LogLevel string `help:"Minimum level of the lines to log: debug, info, warn or error; default info (DAYFLY_LOG_LEVEL)." placeholder:"LEVEL"`
}

// log writes text to a terminal, JSON elsewhere, or to the syslog, as the settings say.
func (s serving) log(a *cli.App, c config.Config) (*slog.Logger, error) {
	handler, err := s.handler(a, term.IsTerminal(a.Stderr), slog.LevelInfo, c)
	return slog.New(handler), err
}

// handler writes from a level on, if the settings name no other.
func (s serving) handler(a *cli.App, text bool, level slog.Level, c config.Config) (slog.Handler, error) {
	if c.LogLevel != "" && level.UnmarshalText([]byte(c.LogLevel)) != nil { // only server has not checked it
		return slog.DiscardHandler, cli.Usage(fmt.Errorf("--log-level: want debug, info, warn or error, not %q", c.LogLevel))
	}
	if s.Verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case c.Syslog:
		return syslogHandler(func() (*syslog.Writer, error) { return syslog.New(syslog.LOG_DAEMON, "dayfly") }, level)
	case text:
		return slog.NewTextHandler(a.Stderr, options), nil
	}
	return slog.NewJSONHandler(a.Stderr, options), nil
}

// listening are the flags of a control plane.
type listening struct {
	Listen         string `help:"Address to listen on; one that other machines reach needs TLS or --insecure-listen; default ${listen} (DAYFLY_LISTEN)." placeholder:"HOST:PORT"`
	TLSCert        string `name:"tls-cert" type:"path" help:"File with the certificate."`
	TLSKey         string `name:"tls-key" type:"path" help:"File with the certificate's key."`
	InsecureListen bool   `help:"Let other machines connect without TLS: for use behind a proxy that has TLS."`

	PublicURL string `name:"public-url" help:"Address under which browsers reach the pages, such as https://dayfly.example.com; needed behind a proxy (for server also DAYFLY_PUBLIC_URL)." placeholder:"URL"`

	TokenRate        callRate `default:"${token_rate}" placeholder:"N" help:"Maximum calls a second with one user token; default ${token_rate}, 0 for no limit."`
	OrganizationRate callRate `default:"${organization_rate}" placeholder:"N" help:"Maximum calls a second with all user tokens of an organization; default ${organization_rate}, 0 for no limit."`
	FailureRate      callRate `default:"${failure_rate}" placeholder:"N" help:"Maximum failed sign-ins a second from one address, after the first 60; default ${failure_rate}, 0 for no limit."`
	Connections      int      `name:"connections-per-address" default:"1000" placeholder:"N" help:"Maximum connections of one address at once on which nobody has shown a valid token; default 1000, 0 for no limit."`
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

func (l listening) config(a *cli.App, log *slog.Logger) (embedded.ServerConfig, error) {
	c := embedded.ServerConfig{
		Rates:  admission.Rates{Token: int(l.TokenRate), Organization: int(l.OrganizationRate), Failures: int(l.FailureRate)},
		Listen: l.Listen, TLSCert: l.TLSCert, TLSKey: l.TLSKey, InsecureListen: l.InsecureListen, PublicURL: l.PublicURL, PrivateIssuers: l.PrivateIssuers, Connections: l.Connections, TrustedProxies: l.TrustedProxies, LogQuota: int64(l.LogQuota), Version: cli.VersionText(), Log: log,
	}
	if l.AuditForward == "" {
		return c, nil
	}
	to, err := forward.To("--audit-forward", l.AuditForward, func(name string) (*s3.Store, error) {
		cfg, err := awsaccess.Settings(a.Ctx, "bucket of --audit-forward")
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
		return cli.Usage(errors.New(cli.Sentence(err)))
	}
	return err
}

// ServerCommands are the commands of dayfly server.
type ServerCommands struct {
	Serve   serverCommand `cmd:"" default:"withargs" help:"Serve until interrupted; server alone does the same."`
	Backup  serverBackup  `cmd:"" help:"Copy the records of a data directory, also while a server uses it."`
	Restore serverRestore `cmd:"" help:"Replace the records of a data directory by a backup, while nothing uses it."`
}

type serverCommand struct {
	cli.DataFlag
	listening
	serving
}

// Run serves until the command is interrupted.
func (c *serverCommand) Run(a *cli.App) (err error) {
	log, err := c.log(a, config.Config{LogLevel: cmp.Or(c.LogLevel, a.Getenv("DAYFLY_LOG_LEVEL"))})
	if err != nil {
		return err
	}
	cfg, err := c.config(a, log)
	if err != nil {
		return err
	}
	cfg.Listen = cmp.Or(c.Listen, a.Getenv("DAYFLY_LISTEN"))
	cfg.PublicURL = cmp.Or(c.PublicURL, a.Getenv("DAYFLY_PUBLIC_URL"))
	if listed := a.Getenv("DAYFLY_PRIVATE_ISSUERS"); len(cfg.PrivateIssuers) == 0 && listed != "" {
		cfg.PrivateIssuers = strings.Split(listed, ",")
	}
	if cfg.Data, err = c.Directory(a); err != nil {
		return err
	}
	s, err := embedded.OpenServer(a.Ctx, cfg)
	if err != nil {
		return wrongSettings(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	announce(a, s)
	return s.Run(a.Ctx)
}

// invite prints the link that signs in a browser; not into the journal of the machine, which others may read.
func invite(a *cli.App, s *embedded.Server) error {
	if a.Getenv("JOURNAL_STREAM") != "" {
		return nil
	}
	link, err := s.Link()
	if link != "" {
		a.Say("open %s in a browser; the link works once, within 10 minutes", link)
	}
	return err
}

// announce says where a control plane is and which file has its token; never the token.
func announce(a *cli.App, s *embedded.Server) {
	a.Say("dayfly %s serves at %s", cli.VersionText(), s.URL())
	a.Say("  data         %s", s.Data())
	a.Say("  admin token  %s", s.AdminTokenFile())
}
