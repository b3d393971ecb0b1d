// Package dockerrun runs the containers of a fake ECS in a Docker engine, on a network that the test
// makes, where the machine can have the address at which a task of AWS finds its credentials.
package dockerrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/dayfly-dev/dayfly/test/awsim/ecs"
)

// The address and network that AWS gives to the endpoints of a task.
const (
	TaskSubnet  = "169.254.170.0/24"
	TaskGateway = "169.254.170.2"
)

// Engine is a Docker engine on this machine.
type Engine struct {
	http *http.Client
}

// NewEngine returns the engine behind a socket; empty means /var/run/docker.sock. It calls nothing.
func NewEngine(socket string) *Engine {
	if socket == "" {
		socket = "/var/run/docker.sock"
	}
	return &Engine{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}}
}

// Close lets the engine's connections go.
func (e *Engine) Close() { e.http.CloseIdleConnections() }

// problem is an answer of the engine that reports a failure.
type problem struct {
	status  int
	message string
}

func (p *problem) Error() string {
	return fmt.Sprintf("the Docker engine answers %d: %s", p.status, p.message)
}

func (e *Engine) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		var said struct {
			Message string `json:"message"`
		}
		_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&said) // what it says is for people
		return &problem{resp.StatusCode, said.Message}
	}
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

func status(err error) int {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.status
	}
	return 0
}

// Ping reports whether the engine answers.
func (e *Engine) Ping(ctx context.Context) error {
	return e.call(ctx, http.MethodGet, "/version", nil, nil)
}

// HasImage reports whether the engine has an image.
func (e *Engine) HasImage(ctx context.Context, name string) bool {
	return e.call(ctx, http.MethodGet, "/images/"+url.PathEscape(name)+"/json", nil, nil) == nil
}

// MakeNetwork makes a bridge and returns the machine's address on it, and what removes it again. subnet
// and gateway may be empty, and the engine chooses. What processes have left that were killed is removed first: a
// subnet can be there only once.
func (e *Engine) MakeNetwork(ctx context.Context, name, subnet, gateway string) (address string, remove func(context.Context) error, err error) {
	owner, err := self()
	if err != nil {
		return "", nil, err
	}
	if err := e.RemoveLeft(ctx); err != nil {
		return "", nil, err
	}
	return e.makeNetwork(ctx, name, subnet, gateway, owner)
}

func (e *Engine) makeNetwork(ctx context.Context, name, subnet, gateway, owner string) (address string, remove func(context.Context) error, err error) {
	in := map[string]any{"Name": name, "Driver": "bridge", "Labels": map[string]string{labelTest: "awsim", labelOwner: owner}}
	if subnet != "" {
		in["IPAM"] = map[string]any{"Driver": "default", "Config": []any{map[string]string{"Subnet": subnet, "Gateway": gateway}}}
	}
	if err := e.call(ctx, http.MethodPost, "/networks/create", in, nil); err != nil {
		return "", nil, fmt.Errorf("make network %s: %w", name, err)
	}
	remove = func(ctx context.Context) error {
		if err := e.call(ctx, http.MethodDelete, "/networks/"+name, nil, nil); err != nil && status(err) != http.StatusNotFound {
			return fmt.Errorf("remove network %s: %w", name, err)
		}
		return nil
	}
	var made struct {
		IPAM struct {
			Config []struct{ Gateway string }
		}
	}
	if err := e.call(ctx, http.MethodGet, "/networks/"+name, nil, &made); err != nil || len(made.IPAM.Config) == 0 {
		return "", nil, errors.Join(fmt.Errorf("look at network %s: %w", name, err), remove(ctx))
	}
	address, _, _ = strings.Cut(made.IPAM.Config[0].Gateway, "/")
	return address, remove, nil
}

// Runner is an ecs.Runner. A container is removed once it has ended.
type Runner struct {
	Engine  *Engine
	Network string            // that containers are on
	Labels  map[string]string // of each container, to find what a test left
	Hosts   []string          // NAME:ADDRESS, further names that containers know
	// Ended gets the output of each container, before it is removed; nil: it is not reported.
	Ended func(s ecs.Spec, output []byte)
}

// Start implements ecs.Runner.
func (r *Runner) Start(ctx context.Context, s ecs.Spec) (ecs.Process, error) {
	owner, err := self()
	if err != nil {
		return nil, fmt.Errorf("CannotCreateContainerError: %w", err)
	}
	labels := map[string]string{labelTest: "awsim", labelOwner: owner, "dev.dayfly.test.task": s.Task}
	for k, v := range r.Labels {
		labels[k] = v
	}
	host := map[string]any{
		"NetworkMode": r.Network, "ReadonlyRootfs": s.ReadOnly, "ExtraHosts": r.Hosts,
		"Memory": int64(s.MemoryMB) << 20, "MemorySwap": int64(s.MemoryMB) << 20,
		"RestartPolicy": map[string]any{"Name": "no"}, "SecurityOpt": []string{"no-new-privileges"},
		"LogConfig": map[string]any{"Type": "json-file", "Config": map[string]string{"max-size": "4m", "max-file": "1"}},
	}
	if s.DropAll {
		host["CapDrop"] = []string{"ALL"}
	}
	volumes := map[string]any{}
	for _, path := range s.Volumes {
		volumes[path] = map[string]any{}
	}
	in := map[string]any{
		"Image": s.Image, "Env": s.Env, "Labels": labels, "Volumes": volumes, "HostConfig": host, "User": s.User,
	}
	if len(s.Command) > 0 {
		in["Cmd"] = s.Command
	}
	if len(s.EntryPoint) > 0 {
		in["Entrypoint"] = s.EntryPoint
	}
	var made struct{ ID string }
	err = r.Engine.call(ctx, http.MethodPost, "/containers/create", in, &made)
	if status(err) == http.StatusNotFound {
		return nil, fmt.Errorf("CannotPullContainerError: pull image manifest has been retried 5 time(s): %s: not found", s.Image)
	}
	if err != nil {
		return nil, fmt.Errorf("CannotCreateContainerError: %w", err)
	}
	p := &process{runner: r, spec: s, id: made.ID}
	if err := r.Engine.call(ctx, http.MethodPost, "/containers/"+p.id+"/start", nil, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("CannotStartContainerError: %w", err), p.remove(ctx))
	}
	return p, nil
}

type process struct {
	runner *Runner
	spec   ecs.Spec
	id     string
}

// Signal implements ecs.Process.
func (p *process) Signal(ctx context.Context, s syscall.Signal) error {
	name := "SIGTERM"
	if s == syscall.SIGKILL {
		name = "SIGKILL"
	}
	err := p.runner.Engine.call(ctx, http.MethodPost, "/containers/"+p.id+"/kill?signal="+name, nil, nil)
	if code := status(err); code == http.StatusNotFound || code == http.StatusConflict {
		return nil // it has ended
	}
	return err
}

// Wait implements ecs.Process.
func (p *process) Wait(ctx context.Context) (ecs.Exit, error) {
	var out struct{ StatusCode int }
	if err := p.runner.Engine.call(ctx, http.MethodPost, "/containers/"+p.id+"/wait?condition=not-running", nil, &out); err != nil {
		return ecs.Exit{}, errors.Join(err, p.remove(ctx))
	}
	exit := ecs.Exit{Code: out.StatusCode}
	var seen struct{ State struct{ OOMKilled bool } }
	if err := p.runner.Engine.call(ctx, http.MethodGet, "/containers/"+p.id+"/json", nil, &seen); err == nil && seen.State.OOMKilled {
		exit.Reason = "OutOfMemoryError: Container killed due to memory usage"
	}
	if p.runner.Ended != nil {
		p.runner.Ended(p.spec, p.output(ctx))
	}
	return exit, p.remove(ctx)
}

// output is what the container wrote.
func (p *process) output(ctx context.Context) []byte {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/containers/"+p.id+"/logs?stdout=1&stderr=1&tail="+strconv.Itoa(2000), nil)
	if err != nil {
		return nil
	}
	resp, err := p.runner.Engine.http.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<20)) // what came of it is better than nothing
	return frames(raw)
}

// frames takes the headers out of a stream of the engine: kind, three zeros, and four bytes of length before
// each piece.
func frames(raw []byte) (out []byte) {
	for len(raw) >= 8 {
		n := int(raw[4])<<24 | int(raw[5])<<16 | int(raw[6])<<8 | int(raw[7])
		raw = raw[8:]
		n = min(n, len(raw))
		out, raw = append(out, raw[:n]...), raw[n:]
	}
	return out
}

func (p *process) remove(ctx context.Context) error {
	err := p.runner.Engine.call(ctx, http.MethodDelete, "/containers/"+p.id+"?force=1&v=1", nil, nil)
	if status(err) == http.StatusNotFound {
		return nil
	}
	return err
}
