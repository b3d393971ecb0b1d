package serve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/term"
	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// settings are the keys of the settings file as flags. The token has none: everybody on the machine
// can read the arguments of a process.
type settings struct {
	Config                 string   `type:"path" help:"The settings file; default dayfly.yaml in the current directory, home, /etc, or beside the binary (DAYFLY_CONFIG)."`
	Data                   string   `aliases:"working-directory" key:"working_directory" type:"path" help:"The data directory; default /var/lib/dayfly for root, else ~/.local/share/dayfly."`
	DeployTarget           string   `help:"Where jobs run: auto, docker, process or, for an agent, ecs."`
	RunnerImage            string   `help:"Image of container jobs; default dayfly-runner:VERSION, which make image builds, or deploy target auto if it can." placeholder:"IMAGE"`
	RunnerNetwork          string   `help:"Network of container jobs: outbound (the default) or none."`
	PullImage              bool     `help:"Pull the image that --runner-image names before each job."`
	SharedVolumeDirectory  string   `type:"path" help:"The data directory as the Docker engine sees it, for a dayfly that runs in a container itself." placeholder:"DIR"`
	Concurrency            string   `help:"Maximum jobs at once; default 10." placeholder:"N"`
	Images                 string   `help:"Further images that workspaces may name, each NAME=IMAGE, separated by commas." placeholder:"IMAGES"`
	DiskQuota              string   `help:"Disk of each job in GiB; default no bound." placeholder:"N"`
	MaxDisk                string   `help:"Maximum disk in GiB that a workspace may ask for; default that of each job." placeholder:"N"`
	AdditionalBinaryPath   []string `key:"additional_binary_paths" type:"path" sep:"none" help:"Look for engines in this directory first. May be repeated."`
	EngineDownloads        string   `help:"Engines of which missing versions are downloaded and verified: terraform, tofu or both, separated by commas." placeholder:"ENGINES"`
	ProviderCache          bool     `help:"Jobs share a cache of the providers of terraform and tofu, and Pulumi workspaces keep their packages."`
	ProviderCacheSize      string   `help:"Maximum GiB of that cache, and of all these packages; default 10." placeholder:"N"`
	VaultAddress           string   `help:"Address of a Vault server, for secrets vault:PATH#KEY." placeholder:"URL"`
	VaultNamespace         string   `help:"Namespace of Vault Enterprise." placeholder:"PATH"`
	VaultTokenFile         string   `type:"path" help:"File with a token for Vault."`
	SourceRoot             []string `key:"source_roots" type:"path" sep:"none" help:"Allow sources in this directory and below. May be repeated."`
	EnabledWorkflowTypes   string   `help:"Workflow types to claim, separated by commas; default all." placeholder:"TYPES"`
	EnvForwardAllowlist    string   `help:"Names of variables to pass to the runners, separated by commas." placeholder:"NAMES"`
	PreapprovedHooks       string   `help:"SHA-256 of the hooks that may run, as hook digest prints them, separated by commas; none for no hook; default every hook." placeholder:"DIGESTS"`
	PrivateDeliveries      string   `help:"Hosts, addresses and networks that deliveries may call although they are private, separated by commas." placeholder:"HOSTS"`
	PollingInterval        string   `help:"Longest pause between polls; default 1m." placeholder:"DURATION"`
	JobStatusLoopInterval  string   `help:"Time between checks of the running jobs; default 30s." placeholder:"DURATION"`
	RequestTimeout         string   `help:"Timeout of one request; default 30s." placeholder:"DURATION"`
	RequestRetryCount      string   `help:"How often a failed poll is retried; default 2." placeholder:"N"`
	RequestRetryWait       string   `help:"Wait before the first retry; default 20s." placeholder:"DURATION"`
	RequestRetryMaxWait    string   `help:"Longest wait between retries; default 2m." placeholder:"DURATION"`
	CircuitBreakerFailures string   `help:"Failed polls in a row before polling pauses; default 2." placeholder:"N"`
	CircuitBreakerTimeout  string   `help:"How long polling pauses; default 10m." placeholder:"DURATION"`
	LogJobs                bool     `help:"Log the output of jobs too."`
	Syslog                 bool     `help:"Log to the syslog of this machine."`
}

// load reads the settings for a use.
func (s settings) load(a *cli.App, use config.Use) (config.Config, error) {
	loaded, err := config.Load(use, config.Sources{File: cmp.Or(s.Config, a.Getenv("DAYFLY_CONFIG")), Dirs: config.SearchPath(a.Getenv), Environ: a.Environ(), Flags: a.Flags(use)})
	if err != nil {
		return config.Config{}, cli.Usage(err)
	}
	if loaded.File != "" {
		a.Say("settings from %s", loaded.File)
	}
	for _, n := range loaded.Notices {
		a.Say("%s", n)
	}
	if loaded.WorkingDirectory == "" {
		if loaded.WorkingDirectory, err = embedded.DefaultData(a.Getenv); err != nil {
			return config.Config{}, cli.Usage(err)
		}
	}
	return loaded.Config, nil
}

func (s settings) agent(a *cli.App, c config.Config) embedded.AgentConfig {
	return embedded.AgentConfig{
		Settings: c, Version: cli.VersionText(), Path: a.Getenv("PATH"),
		DockerHost: a.Getenv("DOCKER_HOST"), Waiting: func(runs []agent.Run) { waiting(a, runs) },
		LookupEnv: func(name string) (string, bool) { v := a.Getenv(name); return v, v != "" },
	}
}

// UpCommand is dayfly up.
type UpCommand struct {
	settings
	listening
	serving
	LogFormat string `enum:"auto,lines,json" default:"auto" help:"lines: a line when a job starts and one when it ends, and warnings, with -v the whole log; json: the whole log as JSON; auto: lines on a terminal, else json."`
}

// Run serves and works until the command is stopped.
func (c *UpCommand) Run(a *cli.App) error {
	s, err := c.load(a, config.Up)
	if err != nil {
		return err
	}
	if len(s.SourceRoots) == 0 {
		cwd, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("find the current directory: %w", err)
		}
		s.SourceRoots = []string{cwd}
	}
	lines := &jobLines{style: term.StyleOf(a.Stderr, a.Getenv), say: a.Say, ids: make(chan string, maxSeen)}
	log, err := c.upLog(a, s, lines)
	if err != nil {
		return err
	}

	server, err := c.config(a, log)
	if err != nil {
		return err
	}
	server.Data, server.Listen, server.PrivateIssuers = s.WorkingDirectory, s.Listen, s.PrivateIssuers
	return work(a, "workflows submitted now wait for the next start", func(ctx context.Context) (worker, error) {
		u, err := embedded.OpenUp(ctx, embedded.UpConfig{Server: server, Agent: c.agent(a, s)})
		if err != nil {
			return nil, wrongSettings(err)
		}
		if err := invite(a, u.Server); err != nil {
			a.Say("there is no link for a browser: %s", err)
		}

		announce(a, u.Server)
		for _, line := range u.Describe() {
			a.Say("  %s", line)
		}
		if err := remember(a, u.Server); err != nil {
			a.Say("  commands need DAYFLY_URL and DAYFLY_API_TOKEN: %s", err)
		}
		a.Say("  try: dayfly run .%cDIR --op preview --follow", filepath.Separator)
		w := upWorker{Up: u}
		if cl, err := u.Client(); err != nil {
			a.Say("  runs are not shown here: %s", err)
		} else if c.lines(a) {
			w.watch = func(ctx context.Context) { lines.watch(ctx, cl) }
		}
		return w, nil
	})
}

// lines reports whether each job has its lines in place of the log.
func (c *UpCommand) lines(a *cli.App) bool {
	return c.LogFormat == "lines" || c.LogFormat == "auto" && term.IsTerminal(a.Stderr)
}

// upLog is the log beside the lines of the jobs, or in their place.
func (c *UpCommand) upLog(a *cli.App, s config.Config, lines *jobLines) (*slog.Logger, error) {
	beside, level := c.lines(a), slog.LevelInfo
	if beside && !s.Syslog && !s.LogJobs {
		level = slog.LevelWarn
	}
	handler, err := c.handler(a, beside, level, s)
	if err != nil || !beside {
		return slog.New(handler), err
	}
	return slog.New(jobLog{Handler: handler, seen: lines.seen}), nil
}

// remember makes this user's commands talk to a control plane of this machine.
func remember(a *cli.App, s *embedded.Server) error {
	token, err := s.AdminToken()
	if err != nil {
		return err
	}
	path, err := credentials.Save(a.Getenv, credentials.Target{URL: s.URL(), Token: redact.New(token), Data: s.Data()})
	if err != nil {
		return err
	}
	a.Say("  commands     use it now, by %s", path)
	return nil
}

// agentSettings are the keys of an agent as flags.
type agentSettings struct {
	ServiceURL string `help:"Address of the control plane."`
	SingleRun  bool   `help:"Handle one job, then exit."`
	settings
	exchanging
	probed
	fargate `group:"ecs"`
}

// AgentCommand is dayfly agent.
type AgentCommand struct {
	agentSettings
	serving
}

// probed are the keys of an agent alone as flags that concern its polls and its health.
type probed struct {
	PollingIntervalOverride bool   `help:"Poll at the polling interval, even if the control plane asks for another pause."`
	HTTPServerAddress       string `name:"http-server-address" help:"Address of this machine that serves /healthz; default 127.0.0.1." placeholder:"ADDRESS"`
	HTTPServerPort          string `name:"http-server-port" help:"Port that serves /healthz; default 8080, 0 for none." placeholder:"PORT"`
	HealthThreshold         string `help:"How long without a sign of life /healthz answers 200; default twice the longer of polling interval and job status loop interval." placeholder:"DURATION"`
}

// exchanging are the keys of an agent without a stored token as flags.
type exchanging struct {
	OIDCTokenFile    string `name:"oidc-token-file" type:"path" help:"File with a token of an issuer that the organization trusts; the agent exchanges it for its pool token, and reads it again."`
	OrganizationName string `help:"With --oidc-token-file: the organization." placeholder:"NAME"`
	RunnerPoolID     string `name:"runner-pool-id" help:"With --oidc-token-file: the pool." placeholder:"ID"`
	TokenExpiration  string `help:"With --oidc-token-file: lifetime of each pool token, up to the organization's maximum; default 1h." placeholder:"DURATION"`
}

// fargate are the keys of deploy target ecs as flags.
type fargate struct {
	RelayURL       string   `name:"relay-url" help:"Address at which tasks reach this agent."`
	RelayListen    string   `help:"Address to listen on for tasks; default all, at the port of --relay-url." placeholder:"ADDRESS"`
	RelayCert      string   `type:"path" help:"File with the certificate with which it speaks TLS to tasks."`
	RelayKey       string   `type:"path" help:"File with the certificate's key."`
	RelayInsecure  bool     `help:"Let tasks report without TLS: for use behind a proxy that has TLS."`
	Cluster        string   `help:"Name or ARN of the cluster."`
	TaskDefinition string   `help:"The runner's task definition." placeholder:"FAMILY[:REVISION]"`
	Container      string   `help:"Name of the runner's container in it; default runner."`
	Subnet         []string `key:"subnets" help:"A subnet for tasks. May be repeated."`
	SecurityGroup  []string `key:"security_groups" help:"A security group of the tasks. May be repeated."`
	AssignPublicIP bool     `name:"assign-public-ip" help:"Give tasks a public address."`
	Spot           string   `help:"Runs allowed on Spot capacity: never (the default), reads or all."`
	LaunchRate     string   `help:"Maximum launches a second; default 20, the quota of an account." placeholder:"N"`
}

// Run works until the command is stopped, or its one job is over.
func (c *AgentCommand) Run(a *cli.App) error {
	s, err := c.load(a, config.Agent)
	if err != nil {
		return err
	}
	cfg := c.agent(a, s)
	cfg.ECS = ecsClient
	if cfg.Log, err = c.log(a, s); err != nil {
		return err
	}
	return work(a, "workflows of the pool wait for another agent, or for the next start of this one", func(ctx context.Context) (worker, error) {
		agent, err := embedded.OpenAgent(ctx, cfg)
		if err != nil {
			return nil, wrongSettings(err)
		}
		a.Say("dayfly %s works for %s", cli.VersionText(), s.ServiceURL)
		a.Say("  data         %s", s.WorkingDirectory)
		for _, line := range agent.Describe() {
			a.Say("  %s", line)
		}
		return agent, nil
	})
}
