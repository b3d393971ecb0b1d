package embedded

import (
	"errors"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// Parts is what settings become: the configurations of the parts of an agent.
type Parts struct {
	Client  client.Config
	Process process.Config
	Docker  docker.Config
	Agent   agent.Config
	Rest    [3]any // what newAgent itself does by settings
}

// PartsOf passes settings on as newAgent does.
func PartsOf(cfg AgentConfig) (Parts, error) {
	data := &dataDir{path: "/data"}
	processes, err := processConfig(cfg, data)
	containers, failed := dockerConfig(cfg, data)
	err = errors.Join(err, failed)
	token := cfg.Settings.Token
	return Parts{
		Client:  clientConfig(cfg, upstream{url: cfg.Settings.ServiceURL, token: func() redact.String { return token }}),
		Process: processes,
		Docker:  containers,
		Agent:   agentConfig(cfg, agent.Config{}),
		Rest:    [3]any{cfg.Settings.WorkingDirectory, cfg.Settings.DeployTarget, cfg.Settings.SingleRun},
	}, err
}

// SingleRun is what holds an agent to one job.
type SingleRun = singleRun

// NewSingleRun returns one, and a channel that is closed when its job is over.
func NewSingleRun(upstream agent.Upstream) (*SingleRun, <-chan struct{}) {
	s := newSingleRun(upstream)
	return s, s.over
}
