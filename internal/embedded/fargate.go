package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/dayfly-dev/dayfly/internal/launcher/ecs"
)

// openFargate makes Fargate the target. Its tasks outlive the agent: the next agent with the same data directory
// serves them again.
func openFargate(ctx context.Context, cfg AgentConfig) (*target, error) {
	if cfg.ECS == nil {
		return nil, errors.New("this program has no ECS client: deploy_target ecs is for dayfly agent")
	}
	// Tasks of several pools may share a cluster: they are told apart by the pool's name.
	pool, err := cfg.pool(ctx)
	if err != nil {
		return nil, fmt.Errorf("learn which pool the token is for: %w", err)
	}
	settings, s := fargateConfig(cfg, pool), cfg.Settings
	var relayTLS *tls.Config
	if s.RelayCert != "" {
		if relayTLS, err = certificate(s.RelayCert, s.RelayKey); err != nil {
			return nil, fmt.Errorf("relay_cert: %w", err)
		}
	}
	client, err := cfg.ECS(ctx)
	if err != nil {
		return nil, err
	}
	l, err := ecs.New(client, settings)
	if err != nil {
		return nil, err
	}
	leave := func(context.Context) error { return nil }
	return &target{
		launcher: l, end: leave, close: leave, listen: s.RelayListen, url: s.RelayURL, tls: relayTLS,
		placements: settings.Placements, rate: s.LaunchRate, absence: ecs.AbsenceProves,
		lines: []string{
			"jobs run as Fargate tasks in the cluster " + s.Cluster + ", as " + s.TaskDefinition,
			"they report to " + s.RelayURL + ", which must lead to " + s.RelayListen + " here; they go on when this agent is stopped, so start it again within ten minutes",
		},
	}, nil
}

func fargateConfig(cfg AgentConfig, pool string) ecs.Config {
	s := cfg.Settings
	return ecs.Config{
		Cluster: s.Cluster, TaskDefinition: s.TaskDefinition, Container: s.Container, Pool: pool,
		Subnets: s.Subnets, SecurityGroups: s.SecurityGroups, AssignPublicIP: s.AssignPublicIP, Spot: ecs.Spot(s.Spot),
		Images: s.Images, MaxDisk: s.MaxDisk,
		Log: cfg.Log,
	}
}
