package docker

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
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/task"
)

// This is the part of an Engine API client that a launcher needs: about ten calls over the engine's
// own socket. The official module would bring thirty others with it, for types of a few lines each.

const (
	minAPI     = "1.41" // of Docker Engine 20.10
	maxAPI     = "1.47" // the newest that this was written for; newer engines support it too
	callTime   = 30 * time.Second
	maxAnswer  = 16 << 20
	maxMessage = 500
)

// apiError is an engine's refusal.
type apiError struct {
	status  int
	message string
}

func (e *apiError) Error() string {
	return fmt.Sprintf("the Docker engine answered %d: %s", e.status, e.message)
}

// errUnreachable means that no answer came. The engine may still have carried the request out.
var errUnreachable = errors.New("the Docker engine cannot be reached")

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*apiError](err)
	return ok && e.status == status
}

// engine talks to one engine over a Unix socket.
type engine struct {
	socket string
	http   *http.Client

	mu      sync.Mutex
	version string // of the API; empty until agreed upon
}

func newEngine(socket string) *engine {
	return &engine{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression: true,
		MaxIdleConns:       8,
		IdleConnTimeout:    30 * time.Second,
	}}}
}

func (e *engine) close() { e.http.CloseIdleConnections() }

// agree finds the version of the API that both sides speak.
func (e *engine) agree(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.version != "" {
		return e.version, nil
	}
	response, err := e.send(ctx, http.MethodGet, "/_ping", nil, nil, "")
	if err != nil {
		return "", err
	}
	_ = response.Body.Close()
	theirs := response.Header.Get("Api-Version")
	if older(theirs, minAPI) {
		return "", fmt.Errorf("the Docker engine has API version %q: %s (Docker Engine 20.10) or newer is needed", theirs, minAPI)
	}
	e.version = maxAPI
	if older(theirs, maxAPI) {
		e.version = theirs
	}
	return e.version, nil
}

// older compares two versions such as 1.41. A text that is not a version is older than all.
func older(a, b string) bool {
	parse := func(v string) (major, minor int) {
		x, y, _ := strings.Cut(v, ".")
		major, _ = strconv.Atoi(x)
		minor, _ = strconv.Atoi(y)
		return major, minor
	}
	a1, a2 := parse(a)
	b1, b2 := parse(b)
	return a1 < b1 || a1 == b1 && a2 < b2
}

// send makes one request to an unversioned path. A status of 400 or more is an *apiError.
func (e *engine) send(ctx context.Context, method, path string, query url.Values, body io.Reader, contentType string) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("ask the Docker engine: %w", err)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if contentType == upgrade {
		request.Header.Del("Content-Type")
		request.Header.Set("Connection", "Upgrade")
		request.Header.Set("Upgrade", "tcp")
	}
	response, err := e.http.Do(request)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err
		}
		return nil, fmt.Errorf("%w at %s: %w", errUnreachable, e.socket, err)
	}
	if response.StatusCode < 400 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = strings.TrimSpace(string(text))
	}
	if len(said.Message) > maxMessage {
		said.Message = strings.ToValidUTF8(said.Message[:maxMessage], "")
	}
	return nil, &apiError{status: response.StatusCode, message: said.Message}
}

// upgrade is used instead of a content type for a request that takes its connection over.
const upgrade = "upgrade"

// open makes a request whose answer the caller reads.
func (e *engine) open(ctx context.Context, method, path string, query url.Values, body io.Reader, contentType string) (*http.Response, error) {
	version, err := e.agree(ctx)
	if err != nil {
		return nil, err
	}
	return e.send(ctx, method, "/v"+version+path, query, body, contentType)
}

// call makes a request with a JSON body, if in is not nil, and decodes its answer, if out is not nil.
func (e *engine) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var body io.Reader
	contentType := ""
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request for the Docker engine: %w", err)
		}
		body, contentType = bytes.NewReader(text), "application/json"
	}
	response, err := e.open(ctx, method, path, query, body, contentType)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w at %s: %w", errUnreachable, e.socket, err)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the server at %s is not a Docker engine: %w", e.socket, err)
	}
	return nil
}

// engineInfo is the engine's description of itself.
type engineInfo struct {
	ID              string
	ServerVersion   string
	OSType          string
	Architecture    string
	NCPU            int
	SecurityOptions []string

	// The limits that its system has. An engine may leave them out.
	MemoryLimit, PidsLimit *bool
	CPUCfsQuota            *bool `json:"CpuCfsQuota"`
}

// unkept returns the limits of a size that the engine says it cannot keep.
func (i engineInfo) unkept() (limits []task.Limit) {
	for _, c := range []struct {
		limit task.Limit
		holds *bool
	}{{task.LimitCPU, i.CPUCfsQuota}, {task.LimitMemory, i.MemoryLimit}, {task.LimitProcesses, i.PidsLimit}} {
		if c.holds != nil && !*c.holds {
			limits = append(limits, c.limit)
		}
	}
	return limits
}

func (e *engine) info(ctx context.Context) (out engineInfo, err error) {
	return out, e.call(ctx, http.MethodGet, "/info", nil, nil, &out)
}

// createRequest is the part of a container's configuration that we set.
type createRequest struct {
	Image       string
	Entrypoint  []string `json:",omitempty"` // empty: the image's own
	Cmd         []string `json:",omitempty"`
	User        string
	WorkingDir  string
	Env         []string
	Labels      map[string]string
	OpenStdin   bool
	StdinOnce   bool
	AttachStdin bool
	StopSignal  string
	HostConfig  hostConfig
}

type hostConfig struct {
	NetworkMode    string
	IpcMode        string
	ReadonlyRootfs bool
	CapDrop        []string
	SecurityOpt    []string
	Memory         int64
	MemorySwap     int64
	NanoCPUs       int64 `json:"NanoCpus"`
	PidsLimit      int64
	Init           bool
	AutoRemove     bool
	Privileged     bool
	RestartPolicy  restartPolicy
	Mounts         []mount           `json:",omitempty"`
	Tmpfs          map[string]string `json:",omitempty"`
	Ulimits        []ulimit          `json:",omitempty"`
	LogConfig      logConfig
	ExtraHosts     []string `json:",omitempty"`
}

type restartPolicy struct{ Name string }

type mount struct {
	Type, Source, Target string
	ReadOnly             bool
	BindOptions          *bindOptions `json:",omitempty"`
}

// bindOptions keep mounts below a source out of a container, because the engine makes only the
// topmost mount read-only.
type bindOptions struct{ NonRecursive bool }

type ulimit struct {
	Name       string
	Soft, Hard int64
}

type logConfig struct {
	Type   string
	Config map[string]string
}

// create makes a container and returns its id.
func (e *engine) create(ctx context.Context, name string, r createRequest) (string, error) {
	var out struct {
		ID string `json:"Id"`
	}
	return out.ID, e.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, r, &out)
}

func (e *engine) start(ctx context.Context, id string) error {
	return e.call(ctx, http.MethodPost, "/containers/"+id+"/start", nil, nil, nil)
}

func (e *engine) kill(ctx context.Context, id, signal string) error {
	return e.call(ctx, http.MethodPost, "/containers/"+id+"/kill", url.Values{"signal": {signal}}, nil, nil)
}

// remove kills a container and removes it with its volumes. It is not an error if the container is gone.
func (e *engine) remove(ctx context.Context, id string) error {
	err := e.call(ctx, http.MethodDelete, "/containers/"+id, url.Values{"force": {"true"}, "v": {"true"}}, nil, nil)
	if hasStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// container is one of a list.
type container struct {
	ID     string `json:"Id"`
	State  string
	Labels map[string]string
}

// list returns the containers with a label, also those that have ended.
func (e *engine) list(ctx context.Context, label string) (out []container, err error) {
	return out, e.call(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"true"}, "filters": {filter("label", label)}}, nil, &out)
}

// containerInfo is the part of a container's description that is used.
type containerInfo struct {
	ID      string `json:"Id"`
	Created time.Time
	Config  struct{ Labels map[string]string }
	State   struct {
		Status    string
		ExitCode  int
		OOMKilled bool
		Error     string
		Pid       int
	}
}

// inspect looks at a container, by its id or its name.
func (e *engine) inspect(ctx context.Context, id string) (out containerInfo, err error) {
	return out, e.call(ctx, http.MethodGet, "/containers/"+id+"/json", nil, nil, &out)
}

// attach opens the container's standard input. It must be closed, and ends with ctx.
func (e *engine) attach(ctx context.Context, id string) (io.WriteCloser, error) {
	response, err := e.open(ctx, http.MethodPost, "/containers/"+id+"/attach", url.Values{"stream": {"1"}, "stdin": {"1"}}, nil, upgrade)
	if err != nil {
		return nil, err
	}
	conn, ok := response.Body.(io.ReadWriteCloser)
	if !ok {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the Docker engine answered %s to an attach, not 101", response.Status)
	}
	return conn, nil
}

// tail returns the last lines that a container wrote, without the frames around them.
func (e *engine) tail(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	response, err := e.open(ctx, http.MethodGet, "/containers/"+id+"/logs", url.Values{"stdout": {"true"}, "stderr": {"true"}, "tail": {"20"}}, nil, "")
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return "", fmt.Errorf("%w at %s: %w", errUnreachable, e.socket, err)
	}
	var text []byte
	for len(raw) >= 8 { // a frame: stream, three zero bytes, length, payload
		n := int(raw[4])<<24 | int(raw[5])<<16 | int(raw[6])<<8 | int(raw[7])
		raw = raw[8:]
		n = min(n, len(raw))
		text, raw = append(text, raw[:n]...), raw[n:]
	}
	if over := len(text) - 4096; over > 0 {
		text = text[over:]
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(text), []byte("?"))), nil
}

// events calls open once when the stream is open. It then calls ended for each container with a label
// that ended or was removed, until the stream or ctx ends.
func (e *engine) events(ctx context.Context, label string, open func(), ended func(container)) error {
	query := url.Values{"filters": {filter("label", label, "type", "container", "event", "die", "event", "destroy")}}
	response, err := e.open(ctx, http.MethodGet, "/events", query, nil, "")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	open()
	events := json.NewDecoder(response.Body)
	for {
		var event struct {
			Actor struct {
				ID         string
				Attributes map[string]string // the labels, among others
			}
		}
		if err := events.Decode(&event); err != nil {
			return fmt.Errorf("%w at %s: %w", errUnreachable, e.socket, err)
		}
		ended(container{ID: event.Actor.ID, State: "exited", Labels: event.Actor.Attributes})
	}
}

// network makes a network whose containers cannot reach each other, unless it exists.
func (e *engine) network(ctx context.Context, name string, labels map[string]string) error {
	err := e.call(ctx, http.MethodGet, "/networks/"+name, nil, nil, nil)
	if !hasStatus(err, http.StatusNotFound) {
		return err
	}
	err = e.call(ctx, http.MethodPost, "/networks/create", nil, map[string]any{
		"Name": name, "Driver": "bridge", "CheckDuplicate": true, "Labels": labels,
		"Options": map[string]string{"com.docker.network.bridge.enable_icc": "false"},
	}, nil)
	if hasStatus(err, http.StatusConflict) {
		return nil // somebody made it at the same time
	}
	return err
}

// filter encodes filters for the API. The pairs are names and values in turn.
func filter(pairs ...string) string {
	f := map[string][]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		f[pairs[i]] = append(f[pairs[i]], pairs[i+1])
	}
	text, _ := json.Marshal(f) // of strings: it cannot fail
	return string(text)
}
