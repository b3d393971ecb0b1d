package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher/taskdir"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// ErrNoImage means that the engine does not have the image of the tasks.
var ErrNoImage = errors.New("no image")

// Reach says how tasks reach their relay.
type Reach struct {
	Sockets bool   // through a Unix socket in a directory that they mount
	Listen  string // otherwise: the host that the relay must listen on
	Host    string // and the name by which tasks find it

	Unkept []task.Limit // limits of a size that do not hold
	Why    string       // why they do not
}

const (
	probeTime = 30 * time.Second
	probePoll = 20 * time.Millisecond
)

// Check says whether tasks can run here, and how they reach this machine. It asks the engine about itself,
// then runs a container with the image and the settings of a task. Call it once, before anything is
// launched.
func (l *Launcher) Check(ctx context.Context) (Reach, error) {
	info, err := l.know(ctx)
	if err != nil {
		return Reach{}, err
	}
	reach, err := l.check(ctx, info)
	reach.Unkept, reach.Why = info.unkept(), whyUnkept
	return reach, err
}

func (l *Launcher) check(ctx context.Context, info engineInfo) (Reach, error) {
	if info.OSType != "linux" {
		return Reach{}, workflow.Refuse(workflow.ErrInvalid, "deploy_target", "the Docker engine runs %s containers, not Linux containers", info.OSType)
	}
	for _, option := range info.SecurityOptions {
		if strings.Contains(option, "name=rootless") || strings.Contains(option, "name=userns") {
			return Reach{}, workflow.Refuse(workflow.ErrInvalid, "deploy_target",
				"the Docker engine maps the users of containers to other numbers (%s), so tasks could not read their files: use another engine, or process", option)
		}
	}
	if err := l.pull(ctx, l.config.Image); err != nil {
		return Reach{}, fmt.Errorf("%w: %w", ErrNoImage, err)
	}
	if err := l.engine.call(ctx, http.MethodGet, "/images/"+l.config.Image+"/json", nil, nil, nil); err != nil {
		if hasStatus(err, http.StatusNotFound) {
			return Reach{}, fmt.Errorf("%w: %w", ErrNoImage, workflow.Refuse(workflow.ErrNotFound, "runner_image", "the Docker engine has no image %s: make image builds it, and pull_image: true fetches one that runner_image names", l.config.Image))
		}
		return Reach{}, fmt.Errorf("look at image %s: %w", l.config.Image, err)
	}
	if err := l.ensureNetwork(ctx); err != nil {
		return Reach{}, err
	}
	bySocket := errors.New("sockets are switched off")
	if !l.config.NoSockets {
		bySocket = l.probe(ctx, "", "")
	}
	if bySocket == nil {
		return Reach{Sockets: true}, nil
	}
	if l.config.Network == networkNone {
		return Reach{}, fmt.Errorf("a container without a network cannot reach this machine: %w", bySocket)
	}
	return l.checkGateways(ctx, bySocket)
}

func (l *Launcher) checkGateways(ctx context.Context, tried ...error) (Reach, error) {
	for _, reach := range l.gateways(ctx) {
		err := l.probe(ctx, reach.Listen, reach.Host)
		if err == nil {
			l.config.hostGateway = reach.Host == GatewayName
			return reach, nil
		}
		tried = append(tried, err)
	}
	return Reach{}, fmt.Errorf("a container cannot reach this machine: %w", errors.Join(tried...))
}

// gateways returns the hosts to listen on that a container may reach: its network's gateway, if that is
// this machine, and loopback, because some engines resolve the machine's name to it.
func (l *Launcher) gateways(ctx context.Context) []Reach {
	var network struct {
		IPAM struct{ Config []struct{ Gateway string } }
	}
	var out []Reach
	if err := l.engine.call(ctx, http.MethodGet, "/networks/"+l.config.Network, nil, nil, &network); err == nil {
		for _, c := range network.IPAM.Config {
			if net.ParseIP(c.Gateway) != nil {
				out = append(out, Reach{Listen: c.Gateway, Host: c.Gateway})
			}
		}
	}
	return append(out, Reach{Listen: "127.0.0.1", Host: GatewayName})
}

// probe runs a container that carries a word from its directory to a relay. The relay listens on a socket,
// or on a host of this machine that the container knows by name.
func (l *Launcher) probe(ctx context.Context, host, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	ref := taskdir.NewRef()
	l.Mu.Lock()
	l.Pending[ref] = true // so that no look treats it as a task
	l.Mu.Unlock()
	defer func() {
		l.Mu.Lock()
		defer l.Mu.Unlock()
		delete(l.Pending, ref)
	}()
	work := l.WorkDir(ref)
	if err := l.makeWork(ctx, work, "", ""); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.RemoveWork(ref)) }()
	word := rand.Text()
	if err := os.WriteFile(filepath.Join(work, task.ProbeFile), []byte(word), 0o644); err != nil { //nolint:gosec // the container's user reads it
		return fmt.Errorf("write probe: %w", err)
	}
	listener, address, err := l.probeListener(ctx, work, host, name)
	if err != nil {
		return err
	}
	received := make(chan struct{}, 1)
	server := &http.Server{ReadHeaderTimeout: probeTime, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != task.ProbePath+word {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		select {
		case received <- struct{}{}:
		default:
		}
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	defer func() { _ = server.Close(); <-served }()

	config := l.config
	config.hostGateway = name == GatewayName
	p := plan{ref: ref, launcher: l.id, image: l.config.Image, work: work}
	p.request.Workflow, p.request.Relay = "probe", address
	p.size.MemoryMB, p.size.MilliCPU, p.size.MaxPIDs = 256, 500, 64
	spec := config.spec(p)
	spec.Cmd = []string{task.ProbeArg}
	spec.OpenStdin, spec.StdinOnce = false, false // no gate: a probe may begin at once
	delete(spec.Labels, labelLauncher)            // it is not a task
	id, err := l.engine.create(ctx, "dayfly-probe-"+ref, spec)
	if err != nil {
		return err
	}
	defer func() {
		// Also when the time is over: the container must not stay.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
		defer cancel()
		err = errors.Join(err, l.engine.remove(late, id))
	}()
	if err := l.engine.start(ctx, id); err != nil {
		return err
	}
	for {
		info, err := l.engine.inspect(ctx, id)
		if err != nil {
			return err
		}
		if info.State.Status == "exited" {
			select {
			case <-received:
				if info.State.ExitCode == 0 {
					return nil
				}
			default:
			}
			said, _ := l.engine.tail(ctx, id)
			return fmt.Errorf("the probe ended with exit code %d: %s", info.State.ExitCode, said)
		}
		if err := wait.For(ctx, probePoll); err != nil {
			return fmt.Errorf("the probe did not end: %w", err)
		}
	}
}

func (l *Launcher) probeListener(ctx context.Context, work, host, name string) (net.Listener, string, error) {
	var lc net.ListenConfig
	if host != "" {
		listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, "", fmt.Errorf("listen for probe: %w", err)
		}
		_, port, err := net.SplitHostPort(listener.Addr().String())
		return listener, "http://" + net.JoinHostPort(name, port), err
	}
	// The socket is beside the word: the directory is mounted twice. Its path may be too long for an address.
	path := filepath.Join(work, "relay.sock")
	dir, err := os.Open(work)
	if err != nil {
		return nil, "", fmt.Errorf("listen for probe: %w", err)
	}
	defer func() { _ = dir.Close() }()
	address := path
	if len(path) > 100 {
		address = fmt.Sprintf("/proc/self/fd/%d/relay.sock", dir.Fd())
	}
	listener, err := lc.Listen(ctx, "unix", address)
	if err != nil {
		return nil, "", fmt.Errorf("listen for probe: %w", err)
	}
	if unix, ok := listener.(*net.UnixListener); ok {
		unix.SetUnlinkOnClose(false) // it goes with its directory
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the container's user connects to it
		return nil, "", errors.Join(fmt.Errorf("listen for probe: %w", err), listener.Close())
	}
	return listener, unixForm + path, nil
}
