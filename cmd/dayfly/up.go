package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// settings are the keys of the settings file as flags. The token has none: everybody on the machine
// can read the arguments of a process.
type settings struct {
	Config                 string   `type:"path" help:"The settings file; default dayfly.yaml in the current directory, home, /etc, or beside the binary (DAYFLY_CONFIG)."`
	Data                   string   `aliases:"working-directory" type:"path" help:"The data directory; default /var/lib/dayfly for root, else below the user's own."`
	DeployTarget           string   `help:"Where jobs run: auto, docker, process or, for an agent, ecs."`
	RunnerImage            string   `help:"Image of container jobs; default dayfly-runner:VERSION, which make image builds, and auto makes where it can." placeholder:"IMAGE"`
	RunnerNetwork          string   `help:"Network of container jobs: outbound (the default) or none."`
	Concurrency            string   `help:"Most jobs at once; default 10." placeholder:"N"`
	SourceRoot             []string `type:"path" sep:"none" help:"A directory below which sources may lie. May be repeated."`
	EnabledWorkflowTypes   string   `help:"Types to claim, divided by commas; default all." placeholder:"TYPES"`
	EnvForwardAllowlist    string   `help:"Names of variables that reach the runners, divided by commas." placeholder:"NAMES"`
	PollingInterval        string   `help:"Longest pause between two polls; default 1m." placeholder:"DURATION"`
	JobStatusLoopInterval  string   `help:"Pause between two looks at the running jobs; default 30s." placeholder:"DURATION"`
	RequestTimeout         string   `help:"Time-out of one request; default 30s." placeholder:"DURATION"`
	RequestRetryCount      string   `help:"Further tries of a poll that failed; default 2." placeholder:"N"`
	RequestRetryWait       string   `help:"Wait before the first of them; default 20s." placeholder:"DURATION"`
	RequestRetryMaxWait    string   `help:"Longest wait between two; default 2m." placeholder:"DURATION"`
	CircuitBreakerFailures string   `help:"Failed polls in a row after which polling pauses; default 2." placeholder:"N"`
	CircuitBreakerTimeout  string   `help:"For how long it pauses; default 10m." placeholder:"DURATION"`
}

// load reads the settings for a use; more are flags beside the shared ones.
func (s settings) load(a *app, use config.Use, more map[string]config.Flag) (config.Config, error) {
	given := map[string]config.Flag{}
	for key, f := range more {
		given[key] = f
	}
	for _, f := range []struct{ key, name, value string }{
		{"working_directory", "data", s.Data},
		{"deploy_target", "deploy-target", s.DeployTarget},
		{"runner_image", "runner-image", s.RunnerImage},
		{"runner_network", "runner-network", s.RunnerNetwork},
		{"concurrency", "concurrency", s.Concurrency},
		{"source_roots", "source-root", strings.Join(s.SourceRoot, string(os.PathListSeparator))},
		{"enabled_workflow_types", "enabled-workflow-types", s.EnabledWorkflowTypes},
		{"env_forward_allowlist", "env-forward-allowlist", s.EnvForwardAllowlist},
		{"polling_interval", "polling-interval", s.PollingInterval},
		{"job_status_loop_interval", "job-status-loop-interval", s.JobStatusLoopInterval},
		{"request_timeout", "request-timeout", s.RequestTimeout},
		{"request_retry_count", "request-retry-count", s.RequestRetryCount},
		{"request_retry_wait", "request-retry-wait", s.RequestRetryWait},
		{"request_retry_max_wait", "request-retry-max-wait", s.RequestRetryMaxWait},
		{"circuit_breaker_failures", "circuit-breaker-failures", s.CircuitBreakerFailures},
		{"circuit_breaker_timeout", "circuit-breaker-timeout", s.CircuitBreakerTimeout},
	} {
		if f.value != "" {
			given[f.key] = config.Flag{Name: f.name, Value: f.value}
		}
	}
	loaded, err := config.Load(use, config.Sources{File: cmp.Or(s.Config, a.getenv("DAYFLY_CONFIG")), Dirs: config.SearchPath(a.getenv), Environ: a.environ(), Flags: given})
	if err != nil {
		return config.Config{}, usage(err)
	}
	if loaded.File != "" {
		a.say("settings from %s", loaded.File)
	}
	for _, n := range loaded.Notices {
		a.say("%s", n)
	}
	if loaded.WorkingDirectory == "" {
		if loaded.WorkingDirectory, err = embedded.DefaultData(a.getenv); err != nil {
			return config.Config{}, usage(err)
		}
	}
	return loaded.Config, nil
}

func (s settings) agent(a *app, c config.Config) embedded.AgentConfig {
	return embedded.AgentConfig{
		Settings: c, Version: versionText(), Path: a.getenv("PATH"),
		DockerHost: a.getenv("DOCKER_HOST"), Waiting: a.waiting,
		LookupEnv: func(name string) (string, bool) { v := a.getenv(name); return v, v != "" },
	}
}

type upCommand struct {
	settings
	listening
	serving
}

// Run serves and works until the command is told to end.
func (c *upCommand) Run(a *app) error {
	more := map[string]config.Flag{}
	if c.Listen != "" {
		more["listen"] = config.Flag{Name: "listen", Value: c.Listen}
	}
	s, err := c.load(a, config.Up, more)
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
	server := c.config(a, c.log(a))
	server.Data, server.Listen = s.WorkingDirectory, s.Listen
	return a.work("workflows that are submitted now wait for the next start", func(ctx context.Context) (worker, error) {
		u, err := embedded.OpenUp(ctx, embedded.UpConfig{Server: server, Agent: c.agent(a, s)})
		if err != nil {
			return nil, wrongSettings(err)
		}
		a.announce(u.Server)
		for _, line := range u.Describe() {
			a.say("  %s", line)
		}
		if err := a.remember(u.Server); err != nil {
			a.say("  commands need DAYFLY_URL and DAYFLY_API_TOKEN: %s", err)
		}
		a.say("  try: dayfly run .%cDIR --op preview --follow", filepath.Separator)
		return u, nil
	})
}

// remember makes commands of this user talk to a control plane of this machine.
func (a *app) remember(s *embedded.Server) error {
	token, err := s.AdminToken()
	if err != nil {
		return err
	}
	path, err := credentials.Save(a.getenv, credentials.Target{URL: s.URL(), Token: redact.New(token), Data: s.Data()})
	if err != nil {
		return err
	}
	a.say("  commands     talk to it now, by %s", path)
	return nil
}

type agentCommand struct {
	ServiceURL string `help:"Address of the control plane."`
	SingleRun  bool   `help:"Handle one job, then exit."`
	fargate
	settings
	serving
}

// fargate are the keys of deploy target ecs as flags.
type fargate struct {
	RelayURL       string   `name:"relay-url" help:"With ecs: address by which tasks reach this agent."`
	RelayListen    string   `help:"With ecs: address to listen on for them; default every one, at the port of --relay-url." placeholder:"ADDRESS"`
	Cluster        string   `help:"With ecs: name or ARN of the cluster."`
	TaskDefinition string   `help:"With ecs: the runner's task definition." placeholder:"FAMILY[:REVISION]"`
	Container      string   `help:"With ecs: name of the runner's container in it; default runner."`
	Subnet         []string `help:"With ecs: a subnet that tasks may lie in. May be repeated."`
	SecurityGroup  []string `help:"With ecs: a security group of the tasks. May be repeated."`
	AssignPublicIP bool     `name:"assign-public-ip" help:"With ecs: give tasks a public address."`
	Spot           string   `help:"With ecs: what may run on Spot capacity: never (the default), reads or all."`
	LaunchRate     string   `help:"With ecs: most launches a second; default 20, all that an account has." placeholder:"N"`
}

// flags adds those that were given.
func (f fargate) flags(to map[string]config.Flag) {
	public := ""
	if f.AssignPublicIP {
		public = "true"
	}
	for _, one := range []struct{ key, name, value string }{
		{"relay_url", "relay-url", f.RelayURL},
		{"relay_listen", "relay-listen", f.RelayListen},
		{"cluster", "cluster", f.Cluster},
		{"task_definition", "task-definition", f.TaskDefinition},
		{"container", "container", f.Container},
		{"subnets", "subnet", strings.Join(f.Subnet, ",")},
		{"security_groups", "security-group", strings.Join(f.SecurityGroup, ",")},
		{"assign_public_ip", "assign-public-ip", public},
		{"spot", "spot", f.Spot},
		{"launch_rate", "launch-rate", f.LaunchRate},
	} {
		if one.value != "" {
			to[one.key] = config.Flag{Name: one.name, Value: one.value}
		}
	}
}

// Run works until the command is told to end, or its one job is over.
func (c *agentCommand) Run(a *app) error {
	more := map[string]config.Flag{}
	if c.ServiceURL != "" {
		more["service_url"] = config.Flag{Name: "service-url", Value: c.ServiceURL}
	}
	if c.SingleRun {
		more["single_run"] = config.Flag{Name: "single-run", Value: "true"}
	}
	c.flags(more)
	s, err := c.load(a, config.Agent, more)
	if err != nil {
		return err
	}
	cfg := c.agent(a, s)
	cfg.ECS = ecsClient
	cfg.Log = c.log(a)
	return a.work("workflows of the pool wait for another agent, or the next start of this one", func(ctx context.Context) (worker, error) {
		agent, err := embedded.OpenAgent(ctx, cfg)
		if err != nil {
			return nil, wrongSettings(err)
		}
		a.say("dayfly %s works for %s", versionText(), s.ServiceURL)
		a.say("  data         %s", s.WorkingDirectory)
		for _, line := range agent.Describe() {
			a.say("  %s", line)
		}
		return agent, nil
	})
}
