package embedded

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner"
)

// Names of Up's agent: its instance and its pool.
const (
	upInstance = "up"
	upPool     = "default"
)

// upTokenLife is how long the token of Up's agent is used, unless it is refused before.
const upTokenLife = 10 * 365 * 24 * time.Hour

// lastLooks is how long Up still serves after a drain: a follower asks every half second, and wants to see the end.
const lastLooks = 2 * time.Second

// UpConfig configures Up. Data directory, version and log are the server's; those of the agent are ignored. Each has
// its own clock.
type UpConfig struct {
	Server ServerConfig
	Agent  AgentConfig
}

// Up is control plane and agent in one process. While it drains, the control plane serves on: new workflows wait for
// the next start.
type Up struct {
	*Server
	*Agent
	waited atomic.Bool // a drain waited for a run
}

// OpenUp opens both. Close must be called; Run serves and works.
func OpenUp(ctx context.Context, cfg UpConfig) (u *Up, err error) {
	if cfg.Server.DefaultState == "" {
		cfg.Server.DefaultState = api.StateDirectory
	}
	roots := cfg.Agent.Settings.SourceRoots
	var s *Server
	cfg.Server.digest = func(ctx context.Context, dir, path string) (string, error) {
		return runner.Sources{Roots: roots, Data: s.Data()}.Digest(ctx, dir, path)
	}
	cfg.Server.jobs = jobsAtOnce(cfg.Agent.Settings)
	cfg.Server.NoRoles = true // this machine has none to assume them with
	if s, err = OpenServer(ctx, cfg.Server); err != nil {
		return nil, err
	}
	// Where it is refused, because the token of the pool was rotated or revoked, it makes itself another one.
	source := client.NewSecret("the pool token of this process", cfg.Server.Now, func(ctx context.Context) (redact.String, time.Duration, error) {
		token, err := s.plane.EnsurePoolToken(ctx, organization, upPool, upInstance)
		return redact.New(token), upTokenLife, err
	})
	if _, err := source.Get(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	in := cfg.Agent
	in.Version, in.Log = cfg.Server.Version, cfg.Server.Log
	u = &Up{Server: s}
	in.Waiting = func(runs []agent.Run) {
		u.waited.Store(true)
		if cfg.Agent.Waiting != nil {
			cfg.Agent.Waiting(runs)
		}
	}
	u.Agent, err = newAgent(ctx, in, s.data, upInstance, upstream{
		url: s.URL(), source: source, transport: client.InMemory(s.handler), advice: "start dayfly up again, which makes itself a new one",
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return u, nil
}

// Client returns a client of the control plane with the first admin's token, which needs no network.
func (u *Up) Client() (*client.Client, error) {
	token, err := u.AdminToken()
	if err != nil {
		return nil, err
	}
	secret := redact.New(token)
	return client.New(client.Config{URL: u.URL(), Token: func() redact.String { return secret }, HTTPClient: &http.Client{Transport: client.InMemory(u.handler)}})
}

// Run serves and works until ctx ends. The control plane ends last: the agent reports to it how its
// tasks ended. An agent that fails does not end it.
func (u *Up) Run(ctx context.Context) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	working, stopWorking := context.WithCancelCause(ctx)
	defer stopWorking(nil)
	served := make(chan error, 1)
	go func() {
		err := u.Server.Run(serving)
		stopWorking(errors.New("the control plane has ended"))
		served <- err
	}()
	err := u.Agent.Run(working)
	if err != nil && working.Err() == nil {
		u.log.ErrorContext(working, "the agent has ended; the control plane serves on, and nothing runs here until dayfly up is started again", "err", err)
		<-working.Done()
	}
	if u.waited.Load() {
		last, cancel := context.WithTimeout(working, lastLooks)
		<-last.Done()
		cancel()
	}
	stopServing()
	return errors.Join(err, <-served)
}

// Close closes everything that OpenUp opened.
func (u *Up) Close() error { return errors.Join(u.Agent.Close(), u.Server.Close()) }
