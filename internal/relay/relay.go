// Package relay stands between runners and the control plane, so that a runner never holds a
// credential of the control plane: it opens the ticket that a runner shows, and forwards the call
// with the job token that was sealed in it. It forwards the calls of runners and nothing else, keeps
// no state that a restart could lose, and logs neither ticket nor token. Where it is given a queue, it
// puts there the results that the control plane cannot take now, and delivers them later.
//
// # Consistency model
//
// Each call is forwarded at most once. Its answer is the control plane's own, or 503 (busy) if there is none: the runner
// repeats the call, and the control plane recognises repetitions. A heartbeat is forwarded first and held afterwards, so
// that holding it never makes a run look silent. A cancellation or an end that is missed while it is held comes with
// the next heartbeat.
//
// Where its keys do not change, the relay opens the ticket of a run once and keeps its claims in memory, until it has
// expired or the result is taken. On AWS a runner is known by the session of its task's role, as API Gateway states
// it. A call for another task is answered 403 (wrong_caller), which a runner repeats.
package relay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Opener opens tickets.
type Opener interface {
	Open(ticket string, now time.Time) (ticket.Claims, error)
}

// Upstream knows the states of jobs, and waits for their changes.
type Upstream interface {
	States(ctx context.Context, in api.StatesQuery) (api.States, error)
}

// Bounds of a relay.
const (
	MaxBody        = 1 << 20         // bytes of a request
	maxAnswer      = 16 << 20        // bytes of an answer
	retryAfter     = 5 * time.Second // that a runner waits while the control plane is away
	forwardTime    = 30 * time.Second
	beatTime       = 8 * time.Second // of forwarding a heartbeat: a runner waits 10 s beyond the hold
	beatSlack      = 9 * time.Second // all that a heartbeat may take beyond the hold
	keepHeartbeats = time.Hour       // for how long a last heartbeat is remembered
)

// Config says how a relay works.
type Config struct {
	URL       string            // base address of the control plane; required
	Transport http.RoundTripper // nil means http.DefaultTransport
	Hold      time.Duration     // how long a heartbeat is held, at most 20 s; 0 means 20 s, negative means not at all
	Forward   time.Duration     // limit of one call other than a heartbeat; 0 means 30 s
	Now       func() time.Time  // nil means time.Now
	Log       *slog.Logger      // nil means no log

	// Caller identifies the caller of a request, where the transport proves it; it must not believe a header. nil means
	// no such check: any caller may show a ticket.
	Caller   func(*http.Request) (Identity, error)
	TaskRole string // with Caller: name of the role of the pool's tasks; required then
	// Know is called before a ticket is opened, for keys that are read again when they change. Its
	// error means that the ticket cannot be checked now. nil means that the keys are known.
	Know func(ctx context.Context, ticket string, now time.Time) error
	// Reports keeps results that the control plane cannot take now; nil means that they stay with their
	// runners.
	Reports Reports
	// Lines gets each piece of a job's log that the control plane has taken. It must not block. nil means no call.
	Lines func(job string, lines []api.LogLine)
	// Places is where the bytes of artifacts go; nil means that runs leave none.
	Places Places
}

// Relay is the http.Handler that runners talk to.
type Relay struct {
	opener  Opener
	base    *url.URL
	cfg     Config
	watcher watcher

	mu         sync.Mutex
	heartbeats map[run]sign
	opened     map[string]ticket.Claims // by ticket, until the run's result is taken; empty where keys may change
	pruned     time.Time

	grants grants
}

// sign is the last call of a task that the control plane took.
type sign struct {
	at     time.Time
	result bool // one of its calls was the result
}

// run is the task that makes a call.
type run struct {
	job     string
	attempt int
	task    string
}

// New returns a relay. Heartbeats are held while Run runs, and not before. With a negative Hold,
// upstream is not used and may be nil.
func New(opener Opener, upstream Upstream, cfg Config) (*Relay, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.User != nil {
		return nil, workflow.Refuse(workflow.ErrInvalid, "url", "the relay needs the address of the control plane, such as https://dayfly.example.com")
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if cfg.Caller != nil && cfg.TaskRole == "" {
		return nil, workflow.Refuse(workflow.ErrInvalid, "task_role", "a relay that checks its callers needs the name of the role of the pool's tasks")
	}
	cfg.Forward = cmp.Or(cfg.Forward, forwardTime)
	cfg.Hold = min(cmp.Or(cfg.Hold, 20*time.Second), 20*time.Second)
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Relay{
		opener: opener, base: base, cfg: cfg,
		watcher: newWatcher(upstream, cfg.Log), heartbeats: map[run]sign{}, opened: map[string]ticket.Claims{},
	}, nil
}

// Run watches the jobs whose heartbeats are held, until ctx ends. Then it answers those that are held,
// and none is held any more.
func (r *Relay) Run(ctx context.Context) error { return r.watcher.run(ctx) }

// LastHeartbeat is when the control plane last took a call of this very task.
func (r *Relay) LastHeartbeat(job string, attempt int, task string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.heartbeats[run{job, attempt, task}]
	return s.at, ok
}

// TookResult reports whether the control plane has taken the result of this very task. It forgets that an hour later.
func (r *Relay) TookResult(job string, attempt int, task string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heartbeats[run{job, attempt, task}].result
}

func (r *Relay) heartbeat(of run, result bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	if now.Sub(r.pruned) > keepHeartbeats/4 {
		r.pruned = now
		maps.DeleteFunc(r.heartbeats, func(_ run, s sign) bool { return now.Sub(s.at) > keepHeartbeats })
		maps.DeleteFunc(r.opened, func(_ string, c ticket.Claims) bool { return !now.Before(c.Expires) })
	}
	r.heartbeats[of] = sign{now, result || r.heartbeats[of].result}
}

// route is one of the calls that a runner may make.
type route struct {
	method  string
	control bool // its answer carries an api.Control
	put     bool // it is also called with PUT
}

var routes = map[string]route{
	"start":     {method: http.MethodPost, control: true},
	"spec":      {method: http.MethodGet},
	"heartbeat": {method: http.MethodPost, control: true},
	"steps":     {method: http.MethodPost, control: true},
	"logs":      {method: http.MethodPost, control: true},
	"states":    {method: http.MethodPost, control: true},
	"artifacts": {method: http.MethodPost, control: true},
	"input":     {method: http.MethodGet, control: true},
	callBytes:   {method: http.MethodGet, put: true}, // of the relay itself
	"result":    {method: http.MethodPost, control: true},
}

// ParsePath splits the path of a runner's call, /v1/jobs/ID/CALL. It takes one spelling of each.
func ParsePath(path string) (job, call string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/jobs/")
	if !ok {
		return "", "", false
	}
	job, call, ok = strings.Cut(rest, "/")
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	if _, known := routes[call]; !ok || !known || job == "" || len(job) > 128 || strings.Trim(job, plain) != "" {
		return "", "", false
	}
	return job, call, true
}

// call is one admitted call of a runner.
type call struct {
	name   string
	route  route
	job    string
	claims ticket.Claims
	header http.Header
	body   []byte
}

// answer is the answer to the runner.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) ok() bool { return a.status >= 200 && a.status <= 299 }

// ServeHTTP implements http.Handler.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id := api.RequestID(req.Header.Get(api.HeaderRequestID))
	w.Header().Set(api.HeaderRequestID, id)
	c, err := r.admit(w, req)
	if err != nil {
		r.cfg.Log.Debug("call refused", "request_id", id, "method", req.Method, "err", err)
		write(w, refusal(err))
		return
	}
	c.header.Set(api.HeaderRequestID, id)
	begun := r.cfg.Now()
	if c.name == callBytes {
		status := r.bytes(w, req, c)
		r.cfg.Log.Debug("bytes of an artifact", "request_id", id, "job_id", c.job, "attempt", c.claims.Attempt, "method", req.Method, "status", status,
			"took", r.cfg.Now().Sub(begun))
		return
	}
	var a answer
	switch c.name {
	case "heartbeat":
		a = r.beat(req.Context(), c)
	case "result":
		a = r.result(req.Context(), c, shownTicket(req))
		r.close(shownTicket(req))
	case "artifacts":
		a = r.artifacts(req.Context(), c)
	case "input":
		a = r.input(req.Context(), c)
	default:
		a = r.forward(req.Context(), c, r.cfg.Forward)
	}
	if a.ok() {
		r.passLines(c)
	}
	if c.route.control && a.ok() {
		a = r.announce(a)
	}
	r.cfg.Log.Debug("call answered", "request_id", id, "job_id", c.job, "attempt", c.claims.Attempt, "call", c.name, "status", a.status,
		"took", r.cfg.Now().Sub(begun))
	write(w, a)
}

// passLines passes on the lines of a log that a call brought: a piece of it, or its end.
func (r *Relay) passLines(c call) {
	var logs api.Logs
	switch {
	case r.cfg.Lines == nil:
		return
	case c.name == "logs":
		_ = json.Unmarshal(c.body, &logs) // the control plane took it
	case c.name == "result":
		if _, tail := split(c.body); tail != nil {
			logs.Lines, _ = tail.Unpack()
		}
	}
	if len(logs.Lines) > 0 {
		r.cfg.Lines(c.job, logs.Lines)
	}
}

// For returns the part of the relay that serves one attempt of one job: a call for another is refused with any
// ticket.
func (r *Relay) For(job string, attempt int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		named, _, ok := ParsePath(req.URL.Path)
		if ok && (named != job || req.Header.Get(api.HeaderAttempt) != strconv.Itoa(attempt)) {
			write(w, refusal(workflow.Refuse(workflow.ErrUnauthenticated, "", "this is the relay of another job")))
			return
		}
		r.ServeHTTP(w, req)
	})
}

// admit checks everything that the relay can check by itself. A ticket that does not fit is refused as
// unauthenticated for any reason, which tells a runner to end its run.
func (r *Relay) admit(w http.ResponseWriter, req *http.Request) (c call, err error) {
	job, name, ok := ParsePath(req.URL.Path)
	if !ok || req.URL.RawPath != "" || req.URL.RawQuery != "" {
		return c, workflow.Refuse(workflow.ErrNotFound, "", "the relay serves /v1/jobs/ID/CALL, where CALL is start, spec, heartbeat, steps, logs, artifacts, input, bytes or result")
	}
	c = call{name: name, route: routes[name], job: job}
	if req.Method != c.route.method && !(c.route.put && req.Method == http.MethodPut) {
		return c, workflow.Refuse(workflow.ErrInvalid, "", "%s is called with %s", name, c.route.method)
	}
	if err := r.checkCaller(req); err != nil {
		return c, err
	}
	sealed := shownTicket(req)
	if sealed == "" {
		return c, workflow.Refuse(workflow.ErrUnauthenticated, "", "the call shows no ticket: send Authorization: Bearer TICKET, or %s: TICKET", api.HeaderTicket)
	}
	if c.claims, err = r.open(req.Context(), sealed, r.cfg.Now()); err != nil {
		return c, err
	}
	if c.claims.Job != job {
		return c, workflow.Refuse(workflow.ErrUnauthenticated, "", "the ticket is for another job")
	}
	if req.Header.Get(api.HeaderAttempt) != strconv.Itoa(c.claims.Attempt) {
		return c, workflow.Refuse(workflow.ErrUnauthenticated, api.HeaderAttempt, "the ticket is for attempt %d", c.claims.Attempt)
	}
	c.header = req.Header.Clone()
	if name == callBytes {
		return c, nil // they are streamed
	}
	c.body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return c, workflow.Refuse(workflow.ErrTooLarge, "", "a call has at most %d bytes", MaxBody)
	}
	if err != nil {
		return c, workflow.Refuse(workflow.ErrInvalid, "", "the body could not be read to its end")
	}
	return c, nil
}

// passed lists the headers of a request that reach the control plane. The others stay here: the ticket, those that
// concern one connection, and those that could make the control plane take the runner for somebody else.
var passed = []string{"Accept", "Content-Type", "User-Agent", api.HeaderAttempt, api.HeaderTask, api.HeaderBoot, api.HeaderInput, api.HeaderRequestID}

// forward makes the call with the job token, within the limit.
func (r *Relay) forward(ctx context.Context, c call, limit time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	u := *r.base
	u.Path += "/v1/jobs/" + c.job + "/" + c.name
	req, err := http.NewRequestWithContext(ctx, c.route.method, u.String(), bytes.NewReader(c.body))
	if err != nil {
		return refusal(fmt.Errorf("make request: %w", err))
	}
	for _, name := range passed {
		if v := c.header.Get(name); v != "" {
			req.Header.Set(name, v) // one, where a runner sent several
		}
	}
	req.Header.Set("Authorization", "Bearer "+c.claims.Token.Reveal())
	resp, err := r.cfg.Transport.RoundTrip(req)
	if err != nil {
		r.cfg.Log.Warn("control plane not reached", "request_id", c.header.Get(api.HeaderRequestID), "job_id", c.job, "attempt", c.claims.Attempt, "call", c.name, "err", err)
		return away("the control plane could not be reached")
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(body) > maxAnswer {
		r.cfg.Log.Warn("answer not read", "request_id", c.header.Get(api.HeaderRequestID), "job_id", c.job, "attempt", c.claims.Attempt, "call", c.name, "bytes", len(body), "err", err)
		return away("the control plane's answer could not be read")
	}
	a := judge(resp, body)
	if a.ok() {
		r.heartbeat(run{c.job, c.claims.Attempt, c.header.Get(api.HeaderTask)}, c.name == "result")
	}
	return a
}

// judge decides whether an answer is the control plane's. The answer of a gateway in between must not reach the runner
// as if it were the control plane's: it might end a run.
func judge(resp *http.Response, body []byte) answer {
	a := answer{status: resp.StatusCode, header: http.Header{}, body: body}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if v := resp.Header.Get(name); v != "" {
			a.header.Set(name, v)
		}
	}
	if a.ok() {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(body, &object); err != nil || object == nil {
			return away("something other than the control plane answered")
		}
		return a
	}
	var p api.Problem
	if err := json.Unmarshal(body, &p); err == nil && p.Ours() {
		return a
	}
	switch resp.StatusCode {
	case http.StatusRequestEntityTooLarge:
		return refusal(workflow.Refuse(workflow.ErrTooLarge, "", "a gateway before the control plane does not take a call of this size"))
	case http.StatusTooManyRequests:
		out := refusal(workflow.Refuse(workflow.ErrTooMany, "", "a gateway before the control plane asks for patience"))
		out.header.Set("Retry-After", cmp.Or(a.header.Get("Retry-After"), seconds(retryAfter)))
		return out
	}
	return away(fmt.Sprintf("a gateway before the control plane answered %d", resp.StatusCode))
}

// away is the answer while the control plane cannot be asked.
func away(why string) answer {
	return refusal(&workflow.Error{Kind: workflow.ErrBusy, Message: why + "; try again", RetryAfter: retryAfter})
}

func refusal(err error) answer {
	p := api.ProblemFor(err)
	if errors.Is(err, errCaller) {
		p = api.Problem{Status: http.StatusForbidden, Title: http.StatusText(http.StatusForbidden), Code: codeCaller, Detail: api.Said(err)}
	}
	body, _ := json.Marshal(p) // of strings and numbers: it cannot fail
	a := answer{status: p.Status, header: http.Header{"Content-Type": {"application/problem+json"}}, body: body}
	if d := api.RetryAfter(err); d > 0 {
		a.header.Set("Retry-After", seconds(d))
	}
	if p.Status == http.StatusUnauthorized {
		a.header.Set("WWW-Authenticate", "Bearer")
	}
	return a
}

func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

func write(w http.ResponseWriter, a answer) {
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the runner is gone: it asks again
}

// announce tells the runner how long its next heartbeat may be held.
func (r *Relay) announce(a answer) answer {
	var hold time.Duration
	if r.watcher.holding() {
		hold = max(0, r.cfg.Hold)
	}
	a = a.with("hold_seconds", hold.Seconds())
	// A heartbeat that follows the held one at once leaves no gap in which an event would have to wait.
	var control api.Control
	if err := json.Unmarshal(a.body, &control); err == nil && hold > 0 && control.HeartbeatSeconds > hold.Seconds() {
		a = a.with("heartbeat_seconds", hold.Seconds())
	}
	return a
}

// with sets one field of a JSON answer and keeps all others, known or not.
func (a answer) with(field string, value any) answer {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(a.body, &object); err != nil || object == nil {
		return a // judge has seen an object
	}
	object[field], _ = json.Marshal(value) // neither can fail: a number or a boolean, and parsed JSON
	a.body, _ = json.Marshal(object)
	return a
}

// beat forwards a heartbeat, then holds its answer until the job is cancelled or over.
func (r *Relay) beat(ctx context.Context, c call) answer {
	ctx, cancel := context.WithTimeout(ctx, max(0, r.cfg.Hold)+beatSlack)
	defer cancel()
	a := r.forward(ctx, c, beatTime)
	var control api.Control
	if !a.ok() || r.cfg.Hold <= 0 || json.Unmarshal(a.body, &control) != nil || control.Cancel {
		return a
	}
	switch r.watcher.wait(ctx, c.job, c.claims.Attempt, r.cfg.Hold) {
	case cancelled:
		return a.with("cancel", true)
	case over:
		// Only the control plane can say how that ends this boot.
		if again := r.forward(ctx, c, beatTime); again.status != http.StatusServiceUnavailable {
			return again
		}
	case nothing:
	}
	return a
}
