// Package config reads the settings of the agent from one file, the environment and flags; later ones override
// earlier ones. All mistakes are reported at once, each with its key and its place. It does not dial, start or create
// anything, and does not parse the command line.
package config

import (
	"time"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Names of the settings file, and of the one that is read if there is none.
const (
	FileName         = "dayfly.yaml"
	FallbackFileName = "pulumi-workflow-agent.yaml"

	fallbackEnvPrefix = "PULUMI_AGENT_"
)

// Deploy targets of this version.
const (
	TargetAuto    = "auto"    // the best that this machine has
	TargetDocker  = "docker"  // a container of its own per job
	TargetProcess = "process" // a process of its own per job
	TargetECS     = "ecs"     // a task of Fargate of its own per job
)

// Networks of container jobs.
const (
	NetworkOutbound = "outbound" // everything that the machine reaches, except other jobs
	NetworkNone     = "none"     // nothing but the job's own relay
)

// The runs that may use Spot capacity, which AWS can take back.
const (
	SpotNever = "never"
	SpotReads = "reads" // runs that change no state
	SpotAll   = "all"
)

// Use is the command whose settings are read. A key that does nothing for it is refused.
type Use string

// The commands that read settings.
const (
	Agent Use = "agent" // the agent alone, against a control plane elsewhere
	Up    Use = "up"    // control plane and agent in one process
)

// Config has every setting of this version. Load fills in the defaults.
type Config struct {
	Token            redact.String // pool token; the agent needs it or OIDCTokenFile
	OIDCTokenFile    string        // file with a token of an issuer, from which the agent gets its pool token
	OrganizationName string        // that the issuer is registered in; required with OIDCTokenFile
	RunnerPoolID     string        // the pool; required with OIDCTokenFile
	TokenExpiration  time.Duration // lifetime of each pool token; 0: the control plane's default, 1h
	ServiceURL       string        // address of the control plane; required for the agent
	WorkingDirectory string        // for jobs, state and records; empty: the caller's default
	DeployTarget     string        // one of the deploy targets; default TargetAuto
	RunnerImage      string        // image of container jobs; empty: the caller's default
	RunnerNetwork    string        // NetworkOutbound or NetworkNone; default NetworkOutbound
	PullImage        bool          // pull RunnerImage before each container job; default false
	SingleRun        bool          // handle one job, then exit; default false
	Concurrency      int           // limit of jobs at once; 0: the caller's default
	Listen           string        // where the control plane of up listens; empty: the caller's default
	PrivateIssuers   []string      // of up: hosts and networks of OIDC issuers that may be called although they are private; empty means none

	Images    map[string]string // by the names that workspaces ask for: images, or task definitions for TargetECS; empty means none
	DiskQuota int               // GiB that each job may use; 0 means no bound
	MaxDisk   int               // limit of the GiB that a workspace may ask for; 0 means as much as each job has

	// SharedVolumeDirectory is the working directory as the Docker engine sees it; empty: as this program does.
	SharedVolumeDirectory string

	EnabledWorkflowTypes  []workflow.Type // types that are claimed; empty means all
	EnvForwardAllowlist   []string        // names of variables that reach the runner; default none
	AdditionalBinaryPaths []string        // directories in which jobs look for engines first; default none
	EngineDownloads       []string        // engines of which missing versions are downloaded: terraform, tofu; default none
	ProviderCache         bool            // jobs share a cache of providers; default false
	ProviderCacheSize     int             // GiB that it may have; default 10
	SourceRoots           []string        // directories in which directory sources are allowed; empty means nowhere

	VaultAddress   string // of a Vault server; empty: vault:PATH#KEY does not resolve
	VaultNamespace string // of Vault Enterprise; default none
	VaultTokenFile string // file with a token for it; required with VaultAddress

	PreapprovedHooks []string // SHA-256 of the hooks that may run, or only task.NoHooks; empty means every hook

	PrivateDeliveries []string // hosts, addresses and networks that deliveries may call although they are private; default none

	// For TargetECS alone.
	RelayURL       string   // address at which tasks reach the relay; required
	RelayListen    string   // where the relay listens; default any address, at the port of RelayURL
	RelayCert      string   // file of the relay's certificate, with RelayKey; empty: it speaks plain http
	RelayKey       string   // file of its key
	RelayInsecure  bool     // plain http beyond this machine is wanted; default false
	Cluster        string   // name or ARN; required
	TaskDefinition string   // family, family:revision or ARN; required
	Container      string   // of the runner in it; default "runner"
	Subnets        []string // at least one
	SecurityGroups []string // empty means the default group of the VPC
	AssignPublicIP bool     // default false
	Spot           string   // SpotNever, SpotReads or SpotAll; default SpotNever
	LaunchRate     float64  // launches a second at most; default 20, the account's own limit

	PollingInterval         time.Duration // pause between polls that found nothing; default 1m
	PollingIntervalOverride bool          // a pause that the control plane asks for does not count; default false
	JobStatusLoopInterval   time.Duration // time between checks of the running jobs; default 30s

	HTTPServerAddress string        // of the agent's /healthz; default 127.0.0.1
	HTTPServerPort    int           // of it; default 8080, 0 means none
	HealthThreshold   time.Duration // without a sign of life before it answers 503; 0: twice the longer of the two loops
	LogLevel          string        // debug, info, warn or error; empty: the caller's default
	LogJobs           bool          // the log has the output of jobs too; default false
	Syslog            bool          // the log goes to the syslog of this machine; default false

	// The retry and breaker settings guard polling only.
	RequestTimeout         time.Duration // of one request; default 30s
	RequestRetryCount      int           // further tries of a failed request; default 2, 0 means none
	RequestRetryWait       time.Duration // before the first of them; default 20s
	RequestRetryMaxWait    time.Duration // the longest wait between two; default 2m
	CircuitBreakerFailures int           // failures in a row that open the breaker; default 2
	CircuitBreakerTimeout  time.Duration // how long it stays open; default 10m
}

// Default returns the settings where nothing is set.
func Default() Config {
	return Config{
		DeployTarget:           TargetAuto,
		RunnerNetwork:          NetworkOutbound,
		Container:              "runner",
		Spot:                   SpotNever,
		LaunchRate:             20,
		ProviderCacheSize:      10,
		PollingInterval:        time.Minute,
		JobStatusLoopInterval:  30 * time.Second,
		HTTPServerAddress:      "127.0.0.1",
		HTTPServerPort:         8080,
		RequestTimeout:         30 * time.Second,
		RequestRetryCount:      2,
		RequestRetryWait:       20 * time.Second,
		RequestRetryMaxWait:    2 * time.Minute,
		CircuitBreakerFailures: 2,
		CircuitBreakerTimeout:  10 * time.Minute,
	}
}
