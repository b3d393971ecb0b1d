package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/providercache"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/text"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// checkTime bounds the look at a Docker engine at the start.
const checkTime = 90 * time.Second

// target is where jobs run.
type target struct {
	launcher launcher.Launcher
	// end ends every task with its grace, or leaves them alone.
	end   func(ctx context.Context) error
	close func(ctx context.Context) error
	lines []string // its description for people

	sockets, listen, url string      // of the relay, as agent.Config wants them
	tls                  *tls.Config // of the relay; nil means none

	placements func(api.LaunchMessage) []string // nil means one
	rate       float64                          // launches a second; 0 means no limit
	absence    time.Duration                    // see reaper.Policy.AbsenceProves
}

// openTarget opens the target that the settings name, or the best that this machine has.
func openTarget(ctx context.Context, cfg AgentConfig, data *dataDir) (*target, error) {
	switch wanted := cfg.Settings.DeployTarget; {
	case wanted == config.TargetProcess:
		return openProcesses(cfg, data, "as deploy_target says")
	case wanted == config.TargetDocker:
		t, _, err := openContainers(ctx, cfg, data, "as deploy_target says")
		return t, err
	case wanted == config.TargetECS:
		return openFargate(ctx, cfg)
	case len(cfg.Runner) > 0:
		return openProcesses(cfg, data, "deploy_target auto: the runner is a program of this machine")
	}
	t, alive, err := openContainers(ctx, cfg, data, "deploy_target auto: the engine answers, and the image is there")
	if err == nil {
		return t, nil
	}
	if alive > 0 {
		// With jobs as processes, their ends would never be known.
		return nil, fmt.Errorf("%s of an earlier start may still run, and the Docker engine cannot be used: start the engine again, or abandon these jobs with deploy_target process: %w", text.Count(alive, "container job"), err)
	}
	return openProcesses(cfg, data, "deploy_target auto: no containers, because "+text.Cut(strings.Join(strings.Fields(err.Error()), " "), 300))
}

func openProcesses(cfg AgentConfig, data *dataDir, why string) (*target, error) {
	parts, runner, err := processConfig(cfg, data)
	if err != nil {
		return nil, err
	}
	l, err := process.New(parts)
	if err != nil {
		return nil, err
	}
	is := l.Isolation()
	lines := []string{"jobs run as processes of this machine (" + why + ")"}
	if runner != "" {
		lines = append(lines, runner)
	}
	if is.EngineUser {
		lines = append(lines, "workflow code runs as a separate user")
	} else {
		lines = append(lines, "workflow code runs as your own user and can read all files that you can read: run only code that you trust")
	}
	if !is.EngineUser && !is.Cgroup {
		lines = append(lines, "no cgroup can be made: if dayfly is killed, a process that left its session on purpose goes on, and its run is called over")
	}
	lines = append(lines, unkept(is.Unkept, is.Why)...)
	if !is.DiesWithParent {
		lines = append(lines, "this system does not end runners when dayfly is killed: stop it with a signal")
	}
	return &target{launcher: l, end: l.End, close: l.Close, lines: lines}, nil
}

// unkept says which limits of a size do not hold here. Each run says so too.
func unkept(limits []task.Limit, why string) []string {
	if len(limits) == 0 {
		return nil
	}
	var names []string
	for _, l := range limits {
		names = append(names, string(l))
	}
	return []string{"this machine does not enforce these limits of a job's size: " + strings.Join(names, ", ") + "; " + why}
}

// openContainers says also how many tasks of an earlier start are not known to have ended.
func openContainers(ctx context.Context, cfg AgentConfig, data *dataDir, why string) (_ *target, alive int, err error) {
	parts, err := dockerConfig(cfg, data)
	if err != nil {
		return nil, 0, err
	}
	l, err := docker.New(parts)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close(context.WithoutCancel(ctx)))
		}
	}()
	alive = len(l.Unended())
	checking, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	reach, err := l.Check(checking)
	made := ""
	// An image that somebody named is theirs to build.
	if errors.Is(err, docker.ErrNoImage) && cfg.Settings.RunnerImage == "" {
		if made, err = makeImage(ctx, parts.Socket, parts.Image, cmp.Or(cfg.Path, os.Getenv("PATH"))); err == nil {
			again, cancel := context.WithTimeout(ctx, checkTime)
			defer cancel()
			reach, err = l.Check(again)
		}
	}
	if err != nil {
		if shared := cfg.Settings.SharedVolumeDirectory; shared != "" {
			err = fmt.Errorf("%w; shared_volume_directory %s must be the path at which the Docker engine has %s", err, shared, data.path)
		}
		return nil, alive, err
	}
	t := &target{launcher: l, end: l.End, close: l.Close, lines: []string{"jobs run in containers of " + parts.Image + " (" + why + ")"}}
	if made != "" {
		t.lines = append(t.lines, "the image was not there: it was "+made)
	}
	if reach.Sockets {
		t.sockets = data.file(RelayDir)
	} else {
		port, err := relayPort(ctx, data.file(relayPortFile), reach.Listen)
		if err != nil {
			return nil, alive, err
		}
		t.listen, t.url = net.JoinHostPort(reach.Listen, port), "http://"+net.JoinHostPort(reach.Host, port)
	}
	switch {
	case cfg.Settings.RunnerNetwork == config.NetworkNone:
		t.lines = append(t.lines, "they have no network: each reaches only its relay, by its own socket")
	case reach.Sockets:
		t.lines = append(t.lines, "they reach everything that this machine reaches, but not each other; each reaches its relay by its own socket")
	default:
		t.lines = append(t.lines, "they reach everything that this machine reaches, and their relay at "+t.url)
	}
	t.lines = append(t.lines, unkept(reach.Unkept, reach.Why)...)
	return t, alive, nil
}

func dockerConfig(cfg AgentConfig, data *dataDir) (docker.Config, error) {
	socket, err := engineSocket(cfg.DockerHost)
	if err != nil {
		return docker.Config{}, err
	}
	stores, err := storesOf(cfg, data)
	if err != nil {
		return docker.Config{}, err
	}
	network := docker.NetworkOwn
	if cfg.Settings.RunnerNetwork == config.NetworkNone {
		network = "none"
	}
	return docker.Config{
		Machine: machine(cfg, data, ContainersDir), Socket: socket, Image: cmp.Or(cfg.Settings.RunnerImage, DefaultImage(cfg.Version)),
		Images: cfg.Settings.Images, Pull: pulled(cfg.Settings), Data: data.path, HostData: cfg.Settings.SharedVolumeDirectory,
		Network: network, Instance: cfg.instance, NoSockets: cfg.WithoutSockets,
		Secrets: stores,
	}, nil
}

// pulled are the images that somebody named; the other one is made here.
func pulled(s config.Config) []string {
	if !s.PullImage {
		return nil
	}
	out := slices.Sorted(maps.Values(s.Images))
	if s.RunnerImage != "" {
		out = append(out, s.RunnerImage)
	}
	return out
}

// machine is the configuration that all launchers of this machine share.
func machine(cfg AgentConfig, data *dataDir, dir string) launcher.Machine {
	m := launcher.Machine{
		Dir: data.file(dir), StateRoot: data.file(StateDir), StateStore: cfg.stateID, SourceRoots: cfg.Settings.SourceRoots,
		Sources:    runner.Sources{Roots: cfg.Settings.SourceRoots, Data: data.path},
		EnginePath: cfg.Settings.AdditionalBinaryPaths, ToolsDir: data.file(ToolsDir), Downloads: cfg.Settings.EngineDownloads,
		EnvAllow: cfg.Settings.EnvForwardAllowlist, LookupEnv: cfg.lookup(), Hooks: cfg.Settings.PreapprovedHooks, Log: cfg.Log,
		DiskQuota: cfg.Settings.DiskQuota, MaxDisk: cfg.Settings.MaxDisk,
	}
	if cfg.providers != nil {
		m.ProvidersDir, m.Providers = data.file(ProvidersDir), cfg.providers
	}
	return m
}

// openProviders opens the cache of providers, where jobs share one.
func openProviders(cfg AgentConfig, data *dataDir) (*providercache.Store, error) {
	if !cfg.Settings.ProviderCache || cfg.Settings.DeployTarget == config.TargetECS {
		return nil, nil //nolint:nilnil // no cache
	}
	return providercache.Open(providercache.Config{
		Dir: data.file(ProvidersDir), Left: data.file(providersLeft), Packages: data.file(packagesDir), Bytes: int64(cfg.Settings.ProviderCacheSize) << 30,
		Now: cfg.Now, Log: cfg.Log,
	})
}

// engineSocket is the socket that DOCKER_HOST names. An engine elsewhere has none of this machine's
// directories.
func engineSocket(host string) (string, error) {
	if host == "" {
		return "", nil
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return "", workflow.Refuse(workflow.ErrUnsupported, "DOCKER_HOST", "%q is an engine on another machine: jobs need one on this machine, by its socket", host)
	}
	return path, nil
}

// DefaultImage is the image of a version's container jobs.
func DefaultImage(version string) string {
	tag := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-' // such as the + of a version with build metadata
	}, cmp.Or(version, "dev"))
	return "dayfly-runner:" + tag[:min(len(tag), 120)]
}

// relayPort returns the port of a relay that containers reach by an address: found once and kept,
// because tasks that outlive the agent know only that one.
func relayPort(ctx context.Context, path, host string) (string, error) {
	kept, err := readPrivate(path)
	if err != nil {
		return "", err
	}
	if n, err := strconv.Atoi(kept); err == nil && n > 0 && n < 1<<16 {
		return kept, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("find a port for the relay: %w", err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		return "", fmt.Errorf("find a port for the relay: %w", err)
	}
	return port, writePrivate(path, port)
}

func (cfg AgentConfig) lookup() func(name string) (string, bool) {
	if cfg.LookupEnv != nil {
		return cfg.LookupEnv
	}
	return os.LookupEnv
}

// describe adds the lines about the agent's sources, descriptors and cache of providers.
func (t *target) describe(cfg AgentConfig) {
	if cfg.Settings.DeployTarget != config.TargetECS {
		t.lines = append(t.lines, "sources below "+cmp.Or(strings.Join(cfg.Settings.SourceRoots, ", "), "no directory of this machine: source_roots is empty"))
	}
	if _, short := descriptors(openFiles(), jobsAtOnce(cfg.Settings)); short != "" {
		t.lines = append(t.lines, short)
	}
	if cfg.providers != nil {
		t.lines = append(t.lines, fmt.Sprintf("jobs share a cache of providers of at most %d GiB, and Pulumi workspaces keep their packages in as much again", cfg.Settings.ProviderCacheSize))
	}
}

// apply hands a target to the agent.
func (t *target) apply(parts *agent.Config) {
	parts.Launcher, parts.CloseLauncher = t.launcher, t.end
	parts.RelaySockets, parts.RelayListen, parts.RelayURL, parts.RelayTLS = t.sockets, t.listen, t.url, t.tls
	parts.Placements, parts.LaunchRate, parts.Policy.AbsenceProves = t.placements, t.rate, t.absence
}
