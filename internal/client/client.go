// Package client is the typed client of the control plane's API. An error comes back as the same
// workflow.Error, with the same sentinel, that the rules gave on the other side; only a control
// plane that cannot be reached is an error of the client itself. It keeps nothing and decides
// nothing: loops, and the handling of errors, are up to its caller.
//
// # How hard it tries
//
// Claim, the call that polls, is guarded by the retry settings and the breaker of Config. The
// other calls repeat a transient error a few times within seconds, where a repeat can do no harm.
// CallTimeout bounds a call with all its repeats. A Runner never repeats anything: the runner's own
// loops know better.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Config says where the control plane is and how patient the client is with it.
type Config struct {
	URL        string               // address of the control plane: http or https, maybe with a path
	Token      func() redact.String // asked before each request, so that a changed token is taken up; nil sends none
	Source     *Secret              // the token, instead of Token; one that is refused is read again, once, before the caller gets the error
	HTTPClient *http.Client         // for TLS, a proxy or InMemory; nil means one with Go's defaults
	UserAgent  string               // empty means "dayfly"
	Process    api.Process          // of an agent, named with each request; the zero value names none

	RequestTimeout time.Duration // of one request, its own waiting not counted; 0 means 30s
	CallTimeout    time.Duration // of a call with all its repeats, its own waiting not counted; 0 means no limit

	RetryCount   int           // repeats of a claim; 0 means 2, negative means none
	RetryWait    time.Duration // before the first of them, doubled for each next; 0 means 20s
	RetryMaxWait time.Duration // longest wait between two; a longer Retry-After is returned to the caller; 0 means 2m

	BreakerFailures int           // failed claims in a row after which claims pause; 0 means 2
	BreakerTimeout  time.Duration // how long they pause; 0 means 10m
}

// Client calls the control plane for a person or a pool stack. Its methods may be called
// concurrently.
type Client struct {
	endpoint
	limit  time.Duration // of a call with its repeats; 0: none
	claims *breaker
}

// New returns a client, or an error that says what is wrong with the address. It does not
// connect.
func New(cfg Config) (*Client, error) {
	e, err := newEndpoint(cfg.URL, cfg.HTTPClient, cfg.UserAgent, cfg.Token, cfg.RequestTimeout)
	if err != nil {
		return nil, err
	}
	e.source = cfg.Source
	if p := cfg.Process; p.Boot != "" {
		e.header = http.Header{api.HeaderProcess: {p.Boot}, api.HeaderAfter: {p.After}}
	}
	return &Client{endpoint: *e, limit: cfg.CallTimeout, claims: newBreaker(cfg)}, nil
}

const (
	defaultTimeout = 30 * time.Second
	maxAnswer      = 16 << 20 // bytes of an answer
)

// endpoint makes single requests.
type endpoint struct {
	base    *url.URL
	http    *http.Client
	agent   string
	token   func() redact.String
	source  *Secret     // instead of token; nil: none
	header  http.Header // of every request
	timeout time.Duration
}

func newEndpoint(address string, hc *http.Client, agent string, token func() redact.String, timeout time.Duration) (*endpoint, error) {
	base, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	own := http.Client{}
	if hc != nil {
		own = *hc
	}
	if own.CheckRedirect == nil {
		// The API never redirects. Something in between does, and it must not get the token.
		own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &endpoint{
		base: base, http: &own, agent: cmp.Or(agent, "dayfly"), token: token, timeout: cmp.Or(timeout, defaultTimeout),
	}, nil
}

func parseURL(address string) (*url.URL, error) {
	refuse := func(format string, args ...any) error {
		return workflow.Refuse(workflow.ErrInvalid, "", "the control plane's address "+format, args...)
	}
	if address == "" {
		return nil, refuse("is missing: give one such as https://dayfly.example.com")
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, refuse("is not a URL: give one such as https://dayfly.example.com") // without the cause: it repeats a password
	case u.User != nil:
		return nil, refuse("holds a user name or password: leave it out, the token says who you are")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse("%q starts neither with https:// nor with http://", address)
	case u.Hostname() == "":
		return nil, refuse("%q has no host", address)
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, refuse("%q holds a query or a fragment: leave it out", address)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// call is one request: its name in errors, and how it goes over the wire.
type call struct {
	op     string // such as "cancel workflow w1"
	method string
	path   []string // segments, unescaped
	query  url.Values
	key    string      // idempotency key
	in     any         // body; nil for none
	form   url.Values  // body of a call without a token, instead of in
	send   http.Header // headers of the request beside those of every call
	header http.Header // takes the headers of the answer; nil for nobody
	wait   time.Duration
	bare   bool // bounded by the caller's context alone
}

// do makes one request and decodes its answer into out, which may be nil.
func (e *endpoint) do(ctx context.Context, c call, out any) (status int, err error) {
	status, err = e.exchange(ctx, c, out)
	if err != nil {
		return status, fmt.Errorf("%s: %w", c.op, err)
	}
	return status, nil
}

func (e *endpoint) exchange(ctx context.Context, c call, out any) (int, error) {
	inner := ctx
	if !c.bare {
		limited, cancel := context.WithTimeout(ctx, e.timeout+c.wait)
		defer cancel()
		inner = limited
	}
	response, err := e.send(ctx, inner, c)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if c.header != nil {
		maps.Copy(c.header, response.Header)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return response.StatusCode, e.unreached(ctx, err)
	case len(text) > maxAnswer:
		return response.StatusCode, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return response.StatusCode, e.refused(response, text)
	case out == nil:
		return response.StatusCode, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return response.StatusCode, fmt.Errorf("%w: %w", ErrUnreachable, &workflow.Error{
			Kind: workflow.ErrBusy, Message: fmt.Sprintf("the server at %s is not a control plane: %v", e.base, err),
		})
	}
	return response.StatusCode, nil
}

// send makes a request with the token. One that is answered 401 is repeated once if the source has another token by
// then: a rotated token costs one answer and no failed call. inner has the request's time limit, ctx is the caller's.
func (e *endpoint) send(ctx, inner context.Context, c call) (*http.Response, error) {
	if e.source == nil || c.form != nil {
		var token redact.String
		if e.token != nil {
			token = e.token()
		}
		return e.sendAs(ctx, inner, c, token)
	}
	used, err := e.sourced(ctx, inner)
	if err != nil {
		return nil, err
	}
	response, err := e.sendAs(ctx, inner, c, used)
	if err != nil || response.StatusCode != http.StatusUnauthorized {
		return response, err
	}
	if again, _ := e.source.Refused(); !again {
		return response, nil
	}
	newer, err := e.sourced(ctx, inner)
	if err != nil || newer == used {
		return response, nil //nolint:nilerr // the caller gets the refusal
	}
	_ = response.Body.Close()
	return e.sendAs(ctx, inner, c, newer)
}

// sourced returns the source's token. Where it cannot be had, that is a refusal, or else the same as a control plane
// that does not answer.
func (e *endpoint) sourced(ctx, inner context.Context) (redact.String, error) {
	token, err := e.source.Get(inner)
	if _, said := errors.AsType[*workflow.Error](err); err != nil && !said && !errors.Is(err, ErrUnreachable) {
		err = e.unreached(ctx, err)
	}
	return token, err
}

func (e *endpoint) sendAs(ctx, inner context.Context, c call, token redact.String) (*http.Response, error) {
	request, err := e.request(inner, c, token)
	if err != nil {
		return nil, err
	}
	response, err := e.http.Do(request)
	if err != nil {
		return nil, e.unreached(ctx, err)
	}
	return response, nil
}

func (e *endpoint) request(ctx context.Context, c call, with redact.String) (*http.Request, error) {
	u := *e.base
	raw := e.base.EscapedPath()
	for _, segment := range c.path {
		if segment == "" || segment == "." || segment == ".." {
			return nil, workflow.Refuse(workflow.ErrInvalid, "", "%q cannot be a name or an id", segment)
		}
		u.Path += "/" + segment
		raw += "/" + url.PathEscape(segment)
	}
	u.RawPath, u.RawQuery = raw, c.query.Encode()
	var body io.Reader
	if c.form != nil {
		body = strings.NewReader(c.form.Encode())
	}
	if c.in != nil {
		text, err := json.Marshal(c.in)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, c.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	maps.Copy(request.Header, e.header)
	maps.Copy(request.Header, c.send)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", e.agent)
	if c.in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return request, nil
	}
	if c.key != "" {
		request.Header.Set("Idempotency-Key", c.key)
	}
	if token := with.Reveal(); token != "" {
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, workflow.Refuse(workflow.ErrUnauthenticated, "", "the token holds characters that no token has")
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

// unreached classifies a failed exchange. ctx is the caller's: a caller that gave up does not get the error that the
// control plane cannot be reached.
func (e *endpoint) unreached(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err // without the address, which is said once
	}
	return fmt.Errorf("%w at %s: %w", ErrUnreachable, e.base, err)
}

// refused turns an answer that is not a success into its error.
func (e *endpoint) refused(response *http.Response, text []byte) error {
	after := api.ParseRetryAfter(response.Header.Get("Retry-After"), time.Now())
	if p, ours := problem(response, text); ours {
		err := p.Err(after)
		// Only the control plane's operators can explain an internal error: their log has the same id.
		if id := response.Header.Get(api.HeaderRequestID); id != "" && p.Status >= http.StatusInternalServerError {
			err = fmt.Errorf("%w (request %s)", err, id)
		}
		return err
	}
	p := api.Problem{
		Status: response.StatusCode, Title: http.StatusText(response.StatusCode),
		Detail: fmt.Sprintf("%s answered %d %s, which does not come from the control plane", e.base, response.StatusCode, http.StatusText(response.StatusCode)),
	}
	if to := response.Header.Get("Location"); to != "" && response.StatusCode < 400 {
		p.Detail = fmt.Sprintf("%s redirects to %.200q: give the address that the control plane itself has", e.base, to)
	}
	err := p.Err(after)
	if errors.Is(err, workflow.ErrBusy) {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return err
}
