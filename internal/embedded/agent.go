package embedded

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/outbound"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
	"github.com/dayfly-dev/dayfly/internal/secrets/vault"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// AgentConfig configures an agent.
type AgentConfig struct {
	Settings config.Config // working_directory is the data directory; token and service_url are for an agent alone
	Version  string        // empty means "dev"
	// Runner is the command of a runner for jobs that run as processes: an absolute path and its arguments. Empty means
	// RunnerProgram beside this program if it was built with it, else this program with the argument "runner".
	Runner     []string
	DockerHost string                           // where the Docker engine is, as DOCKER_HOST says it; empty means its usual socket
	Path       string                           // PATH in which engines and commands are looked for; empty means the runner's default
	LookupEnv  func(name string) (string, bool) // of the variables that are forwarded; nil: os.LookupEnv
	// ECS makes the ECS client for deploy target ecs; nil means none.
	ECS func(ctx context.Context) (ecs.Client, error)
	Log *slog.Logger // nil means none
	// Waiting is called with the runs that a drain waits for; see agent.Config.
	Waiting func(runs []agent.Run)

	// For tests; zero values mean the real thing. A wrapped launcher must still be a launcher.Watcher, so that ends
	// are seen at once, and a launcher.Spooler, so that logs are complete.
	Now           func() time.Time // the agent's clock, which is not the control plane's
	WrapQueue     func(queue.Queue) queue.Queue
	WrapLauncher  func(launcher.Launcher) launcher.Launcher
	WrapTransport func(http.RoundTripper) http.RoundTripper // the way to the control plane
	// WithoutSockets makes container jobs reach their relay by an address, as if the engine ran in another machine.
	WithoutSockets bool
	// ShutdownGrace is how long running tasks have to end; 0 means the agent's default.
	ShutdownGrace time.Duration

	pool     func(ctx context.Context) (string, error) // the pool of the token
	process  api.Process                               // of this process of the instance; the zero value names none
	instance string                                    // name of the instance; known once the data directory is open
	stateID  string                                    // of the data directory

	providers *providercache.Store // nil: jobs share no cache of providers
}

// Agent is an agent with its launcher.
type Agent struct {
	agent     *agent.Agent
	target    *target
	data      *dataDir        // nil if Up owns it
	transport *http.Transport // nil if Up owns it
	single    *singleRun      // nil: it works until it is told to end
	health    net.Listener    // of /healthz; nil: it is not served
}

// OpenAgent locks the data directory and builds an agent of a control plane elsewhere. Close must be
// called; Run works.
func OpenAgent(ctx context.Context, cfg AgentConfig) (*Agent, error) {
	data, err := openData(cfg.Settings.WorkingDirectory)
	if err != nil {
		return nil, err
	}
	instance, err := instanceName(data.file(instanceFile))
	if err != nil {
		return nil, errors.Join(err, data.close())
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		transport = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	transport = transport.Clone()
	cfg.process.Boot = rand.Text()
	if cfg.process.After, err = readPrivate(data.file(processFile)); err != nil {
		return nil, errors.Join(err, data.close())
	}
	a, err := newAgent(ctx, cfg, data, instance, elsewhere(cfg, transport))
	if err != nil {
		return nil, errors.Join(err, data.close())
	}
	a.data, a.transport = data, transport
	a.openHealth(ctx, cfg.Settings)
	return a, nil
}

// upstream is an agent's control plane and how to reach it.
type upstream struct {
	url       string
	token     func() redact.String
	source    *client.Secret // the token, in place of token
	exchanged bool           // the token is made of that in oidc_token_file, again and again
	transport http.RoundTripper
	advice    string // for a refused token; empty means to give the agent another one
}

// elsewhere is a control plane that the settings name.
func elsewhere(cfg AgentConfig, transport http.RoundTripper) upstream {
	s := cfg.Settings
	to := upstream{url: s.ServiceURL, transport: transport, token: func() redact.String { return s.Token }}
	if s.OIDCTokenFile != "" {
		to.token, to.exchanged = nil, true
		to.advice = "look at the issuer's trust rules with dayfly issuer show, and at oidc_token_file, organization_name and runner_pool_id"
	}
	return to
}

// exchanged returns the pool token of an agent that has none of its own.
func exchanged(cfg AgentConfig, to client.Config) (*client.Secret, error) {
	s := cfg.Settings
	bare, err := client.New(to)
	if err != nil {
		return nil, err
	}
	return client.Exchanged(bare, api.TokenRequest{
		Audience: api.OrganizationPrefix + s.OrganizationName, RequestedTokenType: api.TokenTypePrefix + api.KindPool,
		Scope: "pool:" + s.RunnerPoolID, Expiration: int(s.TokenExpiration / time.Second),
	}, cfg.Now, cfg.Log, client.TokenFile(s.OIDCTokenFile, cfg.Now)), nil
}

// checkDirs refuses directories of a setting that do not exist, before a run does.
func checkDirs(field string, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			errs = append(errs, workflow.Refuse(workflow.ErrInvalid, field, "%v: name a directory that exists", err))
		case !info.IsDir():
			errs = append(errs, workflow.Refuse(workflow.ErrInvalid, field, "%s is not a directory", dir))
		}
	}
	return errors.Join(errs...)
}

// newClient makes the client of the agent's control plane.
func newClient(cfg AgentConfig, to upstream) (*client.Client, error) {
	how := clientConfig(cfg, to)
	if to.exchanged {
		var err error
		if how.Source, err = exchanged(cfg, how); err != nil {
			return nil, err
		}
	}
	return client.New(how)
}

// newAgent builds an agent in a directory that is already locked.
func newAgent(ctx context.Context, cfg AgentConfig, data *dataDir, instance string, to upstream) (*Agent, error) {
	if cfg.WrapTransport != nil {
		to.transport = cfg.WrapTransport(to.transport)
	}
	if err := errors.Join(
		checkDirs("source_roots", cfg.Settings.SourceRoots), checkDirs("additional_binary_paths", cfg.Settings.AdditionalBinaryPaths),
	); err != nil {
		return nil, err
	}
	keys, err := ticket.EnsureFile(data.file(TicketKeysFile))
	if err != nil {
		return nil, err
	}
	cl, err := newClient(cfg, to)
	if err != nil {
		return nil, err
	}
	mq, err := memory.New(memory.Config{})
	if err != nil {
		return nil, err
	}
	a := &Agent{}
	parts := agent.Config{Upstream: cl, ControlURL: to.url, Transport: to.transport, Queue: mq, Keyring: keys, Instance: instance, Artifacts: data.file(ArtifactsDir), TokenAdvice: to.advice}
	if cfg.process.Boot != "" {
		// Not before: if this process was never admitted, the next one must still show which one it follows.
		parts.Admitted = func() error { return writePrivate(data.file(processFile), cfg.process.Boot) }
	}
	if cfg.Settings.SingleRun {
		a.single = newSingleRun(cl)
		parts.Upstream, parts.Acknowledged = a.single, a.single.acknowledged
	}
	cfg.instance = instance
	if cfg.stateID, err = data.stateID(); err != nil {
		return nil, err
	}
	cfg.pool = func(ctx context.Context) (string, error) {
		me, err := cl.Whoami(ctx)
		return me.Pool, cmp.Or(agent.TokenRefused(err, to.url, to.advice), err)
	}
	if cfg.providers, err = openProviders(cfg, data); err != nil {
		return nil, err
	}
	if a.target, err = openTarget(ctx, cfg, data); err != nil {
		return nil, err
	}
	a.target.describe(cfg)
	a.target.apply(&parts)
	if cfg.providers != nil {
		parts.Providers = cfg.providers
	}

	if err := allowDeliveries(&parts, cfg, data); err != nil {
		return nil, errors.Join(err, a.target.close(context.WithoutCancel(ctx)))
	}

	parts.Mask = func(ctx context.Context) (func(string) string, error) { return maskOf(ctx, cfg, data) }
	if cfg.WrapLauncher != nil {
		parts.Launcher = cfg.WrapLauncher(parts.Launcher)
	}
	if cfg.WrapQueue != nil {
		parts.Queue = cfg.WrapQueue(mq)
	}
	if a.agent, err = agent.New(agentConfig(cfg, parts)); err != nil {
		return nil, errors.Join(err, a.target.close(context.WithoutCancel(ctx))) // nothing runs yet, so this does not wait
	}
	return a, nil
}

// allowDeliveries sets the secrets and the private addresses that deliveries may use.
func allowDeliveries(parts *agent.Config, cfg AgentConfig, data *dataDir) (err error) {
	if parts.Secrets, err = secretsOf(cfg, data); err != nil {
		return err
	}
	if parts.PrivateDeliveries, err = outbound.ReadPrivate(cfg.Settings.PrivateDeliveries); err != nil {
		return workflow.Refuse(workflow.ErrInvalid, "private_deliveries", "%v", err)
	}
	return nil
}

// secretsOf resolves the references that deliveries name: those that runs of this machine may name.
func secretsOf(cfg AgentConfig, data *dataDir) (secrets.Resolver, error) {
	getenv := func(name string) string {
		value, _ := cfg.lookup()(name)
		return value
	}
	mux, err := storesOf(cfg, data)
	if err == nil {
		mux["env"] = local.Env(getenv, cfg.Settings.EnvForwardAllowlist)
	}
	return mux, err
}

// storesOf resolves the references to stores of this machine, whose values a launcher hands over.
func storesOf(cfg AgentConfig, data *dataDir) (secrets.Mux, error) {
	mux := secrets.Mux{"file": local.New(data.file(SecretsDir))}
	s := cfg.Settings
	if s.VaultAddress == "" {
		return mux, nil
	}
	store, err := vault.New(vault.Config{Address: s.VaultAddress, Namespace: s.VaultNamespace, Login: vault.TokenFile(s.VaultTokenFile)})
	mux[vault.Scheme] = store
	return mux, err
}

// maskOf hides every secret that a job of this machine could have: all values of its store, and the secret parts of
// forwarded variables.
func maskOf(ctx context.Context, cfg AgentConfig, data *dataDir) (func(string) string, error) {
	store := local.New(data.file(SecretsDir))
	names, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	var values, variables []string
	for _, name := range names {
		value, err := store.Resolve(ctx, "file:"+name)
		if err != nil && !errors.Is(err, workflow.ErrNotFound) {
			return nil, err
		}
		values = append(values, value.Reveal())
	}
	for _, name := range cfg.Settings.EnvForwardAllowlist {
		value, _ := cfg.lookup()(name)
		variables = append(variables, name+"="+value)
	}
	return runner.Mask(values, variables), nil
}

// clientConfig, processConfig and agentConfig pass every setting to the part that it is for. A test checks
// that none is forgotten.
func clientConfig(cfg AgentConfig, to upstream) client.Config {
	s := cfg.Settings
	retries := s.RequestRetryCount
	if retries == 0 {
		retries = -1 // 0 would mean the client's default
	}
	return client.Config{
		URL: to.url, Token: to.token, Source: to.source, Process: cfg.process, HTTPClient: &http.Client{Transport: to.transport}, UserAgent: "dayfly/" + cmp.Or(cfg.Version, "dev"),
		RequestTimeout: s.RequestTimeout, RetryCount: retries, RetryWait: s.RequestRetryWait, RetryMaxWait: s.RequestRetryMaxWait,
		BreakerFailures: s.CircuitBreakerFailures, BreakerTimeout: s.CircuitBreakerTimeout,
	}
}

// processConfig also says which runner jobs start; empty where the configuration names it.
func processConfig(cfg AgentConfig, data *dataDir) (of process.Config, said string, err error) {
	command := cfg.Runner
	if len(command) == 0 {
		if command, said, err = runnerCommand(runnerDigest); err != nil {
			return of, "", err
		}
	}
	m := machine(cfg, data, JobsDir)
	m.EnginePath = slices.Concat(m.EnginePath, absolute(cfg.Path))
	return process.Config{
		Machine: m, Command: command, SecretsStore: data.file(SecretsDir), Path: cfg.Path,
		VaultAddress: cfg.Settings.VaultAddress, VaultNamespace: cfg.Settings.VaultNamespace, VaultTokenFile: cfg.Settings.VaultTokenFile,
	}, said, nil
}

// absolute returns the absolute directories of a PATH. The runner gets them by name, because it takes no PATH
// from its environment.
func absolute(path string) []string {
	return slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
}

func agentConfig(cfg AgentConfig, parts agent.Config) agent.Config {
	s := cfg.Settings
	parts.Version, parts.Concurrency, parts.Types = cmp.Or(cfg.Version, "dev"), jobsAtOnce(s), s.EnabledWorkflowTypes
	parts.PollingInterval, parts.StatusLoopInterval = s.PollingInterval, s.JobStatusLoopInterval
	parts.PollingOverride, parts.HealthThreshold = s.PollingIntervalOverride, s.HealthThreshold
	if s.LogJobs && cfg.Log != nil {
		parts.Lines = func(job string, lines []api.LogLine) {
			for _, l := range lines {
				cfg.Log.Info("job output", "job", job, "step", l.Step, "text", l.Text)
			}
		}
	}
	parts.ShutdownGrace, parts.Now, parts.Log = cfg.ShutdownGrace, cfg.Now, cfg.Log
	parts.Waiting = cfg.Waiting
	return parts
}

// jobsAtOnce is how many jobs an agent of these settings runs at once.
func jobsAtOnce(s config.Config) int {
	if s.SingleRun {
		return 1
	}
	return cmp.Or(s.Concurrency, agent.DefaultConcurrency)
}

var instanceForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`) })

// instanceName returns the instance name of a data directory's agent, made once and stored: after a restart the agent
// finds its claims by it.
func instanceName(path string) (string, error) {
	kept, err := readPrivate(path)
	if err != nil || instanceForm().MatchString(kept) {
		return kept, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "agent"
	}
	host = strings.Map(func(r rune) rune {
		if instanceForm().MatchString(string(r)) {
			return r
		}
		return '-'
	}, host)
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: it would end the program
	name := host[:min(len(host), 100)] + "-" + hex.EncodeToString(b[:])
	return name, writePrivate(path, name)
}

// Describe says in sentences how tasks run, how they are isolated, and where sources may be.
func (a *Agent) Describe() []string { return a.target.lines }

// Run works until ctx ends, or its one job is over, then ends running tasks and reports them.
func (a *Agent) Run(ctx context.Context) error {
	defer a.serveHealth()()
	if a.single == nil {
		return a.agent.Run(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.single.end = cancel
	return a.agent.Run(ctx)
}

// Drain makes Run take no more work, wait for running tasks as long as they take, and end.
func (a *Agent) Drain() { a.agent.Drain() }

// Abort makes a Run that is ending stop waiting for running tasks.
func (a *Agent) Abort() { a.agent.Abort() }

// Close closes everything that OpenAgent opened.
func (a *Agent) Close() error {
	err := a.target.close(context.Background()) // after Run there is nothing to wait for
	if a.health != nil {
		_ = a.health.Close() // Run has closed it already, if it ran
	}
	if a.data != nil {
		err = errors.Join(err, a.data.close())
	}
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
	return err
}
