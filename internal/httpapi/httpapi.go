// Package httpapi is the HTTP face of the rules: the routes of the API, who each of them is for,
// decoding and checking of requests, and every error as a problem with a stable code. Its
// OpenAPI document is made from the same registrations. It decides nothing about workflows and
// nothing about roles: that is for the rules.
package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dayfly-dev/dayfly/internal/admission"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Config holds the settings of a handler. The zero value works.
type Config struct {
	Log     *slog.Logger    // nil means no log
	Version string          // answer of the health address; empty means "dev"
	MaxBody int64           // most bytes of a request's body; 0 means 1 MiB. Routes that need no more take 64 KiB
	Gate    *admission.Gate // bounds people's calls, together with others that have it too; nil bounds none
}

const (
	defaultMaxBody = 1 << 20
	smallBody      = 64 << 10
	readTimeout    = 30 * time.Second // for a whole request with its body
)

// server is the handler.
type server struct {
	plane    *controlplane.Plane
	log      *slog.Logger
	maxBody  int64
	version  string
	mux      *http.ServeMux
	routes   []func(huma.API) // registers each route, for the document
	document func() (*served, error)

	gate *admission.Gate
}

// New returns the handler of the whole API over plane. The parts of a route are made at its first call, because a process
// may answer one call and end.
func New(plane *controlplane.Plane, cfg Config) http.Handler {
	s := &server{
		plane:   plane,
		log:     cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		maxBody: cmp.Or(cfg.MaxBody, defaultMaxBody),
		version: cmp.Or(cfg.Version, "dev"),
		mux:     http.NewServeMux(),
		gate:    cfg.Gate,
	}
	if s.gate == nil {
		s.gate = admission.New(admission.Rates{}, nil)
	}
	s.openRoutes()
	s.schemaRoutes()
	s.workflowRoutes()
	s.treeRoutes()
	s.workspaceRoutes()
	s.organizationRoutes()
	s.projectRoutes()
	s.poolRoutes()
	s.tokenRoutes()
	s.loginRoutes()
	s.gitHostRoutes()
	s.settingRoutes()
	s.deliveryRoutes()
	s.scheduleRoutes()
	s.stackRoutes()
	s.runnerRoutes()
	s.document = sync.OnceValues(func() (*served, error) {
		text, err := s.describeAll()
		return compress(text), err
	})
	return s
}

// Server returns a server for handler whose time-outs allow a long poll and nothing slower. The caller sets its address
// or listener, its TLS and its error log.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
	}
}

// openRoutes are for everybody.
func (s *server) openRoutes() {
	s.add(route{id: "health", method: http.MethodGet, path: "/healthz", summary: "Say that the control plane is up", tag: "service", audience: open},
		direct(func(context.Context, *struct{}) (*answer[api.Health], error) {
			return reply(api.Health{Status: "ok", Version: s.version}, nil)
		}))
	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		doc, err := s.document()
		if err != nil {
			s.writeProblem(w, r, fmt.Errorf("write the API's document: %w", err))
			return
		}
		doc.serve(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := api.RequestID(r.Header.Get(api.HeaderRequestID))
	ctx := context.WithValue(r.Context(), requestKey{}, id)
	r = r.WithContext(ctx)
	b := &buffered{under: w, header: http.Header{}}
	_, pattern := s.mux.Handler(r)
	s.serve(b, r)
	switch pattern {
	case "":
		s.noRoute(b, r)
	case http.MethodPost + " " + tokenPath:
		b.asOAuth()
	}
	if b.header.Get("Cache-Control") == "" {
		b.header.Set("Cache-Control", "no-store")
	}
	b.header.Set("X-Content-Type-Options", "nosniff")
	b.header.Set(api.HeaderRequestID, id)
	if err := b.flush(); err != nil {
		s.log.DebugContext(ctx, "answer not sent", "request_id", id, "err", err)
	}
	s.log.DebugContext(ctx, "request answered", "request_id", id, "method", r.Method,
		"route", pattern, "status", b.status, "duration", time.Since(began))
}

// serve calls the mux and turns a panic into an answer: one broken request must not end the
// process that serves all others.
func (s *server) serve(b *buffered, r *http.Request) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(cause)
		}
		b.reset()
		s.writeProblem(b, r, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
	}()
	s.mux.ServeHTTP(b, r)
}

// noRoute rewrites the mux's own answers, which are plain text, as problems.
func (s *server) noRoute(b *buffered, r *http.Request) {
	allow := b.header.Get("Allow")
	status := b.status
	b.reset()
	p := api.Problem{Status: http.StatusNotFound, Code: codeNoRoute, Detail: "there is nothing at this address; /openapi.json lists the addresses"}
	if status == http.StatusMethodNotAllowed {
		b.header.Set("Allow", allow)
		p = api.Problem{Status: status, Code: codeMethod, Detail: "this address takes " + allow + " and not " + r.Method}
	}
	p.Title = http.StatusText(p.Status)
	write(b, p, nil)
}

// requestKey is the key of a request's id, which is in its answer and in its lines of the log.
type requestKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// buffered holds an answer back until it is whole, so that a failure on the way can still become
// a problem. Every answer of this API is short.
type buffered struct {
	under  http.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header { return b.header }

func (b *buffered) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

func (b *buffered) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(p)
}

// Unwrap lets http.ResponseController reach the connection's deadlines.
func (b *buffered) Unwrap() http.ResponseWriter { return b.under }

func (b *buffered) reset() {
	b.header, b.status = http.Header{}, 0
	b.body.Reset()
}

func (b *buffered) flush() error {
	b.WriteHeader(http.StatusOK)
	maps.Copy(b.under.Header(), b.header)
	b.under.WriteHeader(b.status)
	if b.body.Len() == 0 {
		return nil
	}
	_, err := b.under.Write(b.body.Bytes())
	return err
}

// errTooLarge is the refusal of a body beyond limit bytes.
func errTooLarge(limit int64) error {
	return workflow.Refuse(workflow.ErrTooLarge, "", "the request's body is longer than %d bytes, the most that this call takes", limit)
}
