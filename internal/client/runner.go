package client

import (
	"context"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// RunnerConfig says where a runner reports to and which run it speaks for.
type RunnerConfig struct {
	URL            string        // the relay's address, or the control plane's; unix:///PATH is a socket
	Credential     redact.String // a ticket for the relay, a job token for the control plane
	Run            api.Run
	Knows          []string      // features that it names at its start; nil means all of this version
	HTTPClient     *http.Client  // nil means one with Go's defaults
	UserAgent      string        // empty means "dayfly"
	RequestTimeout time.Duration // of one request, heartbeats excepted; 0 means 30s
}

// Runner makes the calls of one run. Each is a single attempt without retries or breaker: the
// runner's loops handle errors, with Transient and RunOver.
type Runner struct {
	endpoint
	id    string
	knows []string
}

// NewRunner returns a Runner, or an error that says what is wrong with the address. It does not
// connect.
func NewRunner(cfg RunnerConfig) (*Runner, error) {
	address := cfg.URL
	if socket, ok := strings.CutPrefix(address, "unix://"); ok {
		if !path.IsAbs(socket) || cfg.HTTPClient != nil {
			return nil, workflow.Refuse(workflow.ErrInvalid, "", "the relay's address %q is not the absolute path of a socket, or comes with a client of its own", address)
		}
		address, cfg.HTTPClient = "http://relay", overSocket(socket)
	}
	e, err := newEndpoint(address, cfg.HTTPClient, cfg.UserAgent, func() redact.String { return cfg.Credential }, cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	e.header = http.Header{
		api.HeaderAttempt: {strconv.Itoa(cfg.Run.Attempt)},
		api.HeaderTask:    {cfg.Run.Task},
		api.HeaderBoot:    {cfg.Run.Boot},
	}
	if cfg.Knows == nil {
		cfg.Knows = api.RunnerKnows()
	}
	return &Runner{endpoint: *e, id: cfg.Run.Workflow, knows: cfg.Knows}, nil
}

// overSocket returns a client that reaches one server, whatever the address.
func overSocket(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: time.Minute,
	}}
}

// Start asks for the run. The same boot may ask again and gets the same answer.
func (r *Runner) Start(ctx context.Context) (api.Started, error) {
	return send[api.Started](ctx, r, "start", api.Start{Knows: r.knows}, false)
}

// Spec reads the spec of the run.
func (r *Runner) Spec(ctx context.Context) (out api.Spec, err error) {
	_, err = r.do(ctx, call{op: "read spec of job " + r.id, method: http.MethodGet, path: []string{"v1", "jobs", r.id, "spec"}}, &out)
	return out, err
}

// Heartbeat says that the runner lives. Only ctx bounds it, because only its caller knows how
// long the answer may be held.
func (r *Runner) Heartbeat(ctx context.Context, in api.Heartbeat) (api.Control, error) {
	return send[api.Control](ctx, r, "heartbeat", in, true)
}

// Steps reports steps.
func (r *Runner) Steps(ctx context.Context, in api.Steps) (api.Control, error) {
	return send[api.Control](ctx, r, "steps", in, false)
}

// WhoseStates asks whose some states are.
func (r *Runner) WhoseStates(ctx context.Context, in api.StateRefs) (api.WhoseStates, error) {
	return send[api.WhoseStates](ctx, r, "states", in, false)
}

// Logs sends lines. A *api.LogGapError names the line to send from.
func (r *Runner) Logs(ctx context.Context, in api.Logs) (api.LogsTaken, error) {
	return send[api.LogsTaken](ctx, r, "logs", in, false)
}

// Result hands the result over.
func (r *Runner) Result(ctx context.Context, in api.Result) (api.Control, error) {
	return send[api.Control](ctx, r, "result", in, false)
}

// HandOver hands the result over, together with the steps and log lines that the control plane has not taken yet.
func (r *Runner) HandOver(ctx context.Context, in api.Handover) (api.HandedOver, error) {
	return send[api.HandedOver](ctx, r, "result", in, false)
}

func send[T any](ctx context.Context, r *Runner, kind string, in any, bare bool) (out T, err error) {
	_, err = r.do(ctx, call{
		op: "send " + kind + " of job " + r.id, method: http.MethodPost,
		path: []string{"v1", "jobs", r.id, kind}, in: in, bare: bare,
	}, &out)
	return out, err
}
