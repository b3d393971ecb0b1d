package embedded

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/task"
)

// Parts is what settings become: the configurations of the parts of an agent.
type Parts struct {
	Client  client.Config
	Process process.Config
	Docker  docker.Config
	Fargate ecs.Config
	Agent   agent.Config
	Rest    [15]any // what newAgent itself does by settings
}

// PartsOf passes settings on as newAgent does.
func PartsOf(cfg AgentConfig) (Parts, error) {
	data := &dataDir{path: "/data"}
	processes, _, err := processConfig(cfg, data)
	containers, failed := dockerConfig(cfg, data)
	err = errors.Join(err, failed)
	token := cfg.Settings.Token
	return Parts{
		Client:  clientConfig(cfg, upstream{url: cfg.Settings.ServiceURL, token: func() redact.String { return token }}),
		Process: processes,
		Docker:  containers,
		Fargate: fargateConfig(cfg, "pool"),
		Agent:   agentConfig(cfg, agent.Config{}),
		Rest: [15]any{
			cfg.Settings.WorkingDirectory, cfg.Settings.DeployTarget, cfg.Settings.SingleRun,
			cfg.Settings.RelayURL, cfg.Settings.RelayListen, cfg.Settings.RelayCert, cfg.Settings.RelayKey, cfg.Settings.LaunchRate,
			cfg.Settings.OIDCTokenFile, cfg.Settings.OrganizationName, cfg.Settings.RunnerPoolID, cfg.Settings.TokenExpiration,
			cfg.Settings.PrivateDeliveries, cfg.Settings.HTTPServerAddress, cfg.Settings.HTTPServerPort,
		},
	}, err
}

// SingleRun is what holds an agent to one job.
type SingleRun = singleRun

// NewSingleRun returns one, and a channel that is closed when its job is over.
func NewSingleRun(upstream agent.Upstream) (*SingleRun, <-chan struct{}) {
	s, over := newSingleRun(upstream), make(chan struct{})
	s.end = sync.OnceFunc(func() { close(over) })
	return s, over
}

// Acknowledged tells a single run of the end of a task.
func Acknowledged(s *SingleRun, job string, attempt int) { s.acknowledged(job, attempt) }

// RunnerCommand is how runners that are processes are started.
var RunnerCommand = runnerCommand

// Descriptors divides the descriptors that a process may have.
var Descriptors = descriptors

// Unkept returns the limits that jobs of an agent do not have, which run as processes.
func Unkept(a *Agent) []task.Limit {
	l, ok := a.target.launcher.(*process.Launcher)
	if !ok {
		return nil
	}
	return l.Isolation().Unkept
}

// SecretsOf resolves what deliveries of an agent may name, with its data below a directory.
func SecretsOf(cfg AgentConfig, data string) (secrets.Resolver, error) {
	return secretsOf(cfg, &dataDir{path: data})
}

// SenderOf returns where a request comes from, as the handlers of a server with trusted proxies see it.
func SenderOf(trusted []string, remote string, forwarded []string) (seen string) {
	p, err := readProxies(trusted)
	if err != nil {
		return err.Error()
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr, r.Header["X-Forwarded-For"] = remote, forwarded
	p.behind(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RemoteAddr })).ServeHTTP(httptest.NewRecorder(), r)
	return seen
}
