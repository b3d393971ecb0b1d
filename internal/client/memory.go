package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// InMemory returns a transport that calls h without a socket. As over a network, a caller that
// gives up gets its answer at once and the handler sees a cancelled context, a handler that
// panics is an error of that one request, and an answer arrives whole or not at all.
func InMemory(h http.Handler) http.RoundTripper { return &memory{handler: h} }

type memory struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (m *memory) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := context.Cause(request.Context()); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(request.Context())
	served, err := received(ctx, request)
	if err != nil {
		cancel()
		return nil, err
	}
	type outcome struct {
		response *http.Response
		err      error
	}
	done := make(chan outcome, 1) // so that a handler whose caller gave up can end
	go func() {
		defer cancel()
		defer func() { _ = served.Body.Close() }()
		answer := &recorded{header: http.Header{}}
		err := serve(m.handler, answer, served)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		done <- outcome{response: answer.response(request)} //nolint:bodyclose // its caller closes it, as any transport's
	}()
	select {
	case o := <-done:
		return o.response, o.err
	case <-request.Context().Done():
		cancel()
		return nil, context.Cause(request.Context())
	}
}

// received turns a client's request into the one that a server would see.
func received(ctx context.Context, request *http.Request) (*http.Request, error) {
	served := request.Clone(ctx)
	served.RequestURI = request.URL.RequestURI()
	u, err := url.ParseRequestURI(served.RequestURI)
	if err != nil {
		return nil, fmt.Errorf("request in memory: %w", err)
	}
	served.URL = u
	if served.Host == "" {
		served.Host = request.URL.Host
	}
	served.RemoteAddr = "in-memory"
	served.Proto, served.ProtoMajor, served.ProtoMinor = "HTTP/1.1", 1, 1
	served.GetBody = nil
	if served.Body == nil {
		served.Body = http.NoBody
	}
	return served, nil
}

// serve calls the handler; a panic in it becomes the error that a broken connection would be.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the handler of %s %s panicked: %v", r.Method, r.URL.Path, cause)
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

// recorded takes an answer down. Only the handler's goroutine touches it until the answer is
// whole.
type recorded struct {
	header http.Header
	sent   http.Header // as it was when the status was written
	status int
	body   bytes.Buffer
}

func (w *recorded) Header() http.Header { return w.header }

func (w *recorded) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *recorded) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

func (w *recorded) response(request *http.Request) *http.Response {
	w.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: request,
	}
}
