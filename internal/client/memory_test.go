package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/client"
)

// A handler cannot tell memory from a network, nor can a caller.
func TestInMemory_IsAsOverANetwork(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read body: %v", err)
		}
		if r.RequestURI == "" || r.RemoteAddr == "" || r.URL.Host != "" {
			t.Errorf("request %q from %q with host %q", r.RequestURI, r.RemoteAddr, r.URL.Host)
		}
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "yes")
		_, _ = io.WriteString(w, strings.Join([]string{r.Method, r.URL.Path, r.URL.EscapedPath(), r.URL.RawQuery, r.Host, r.Header.Get("X-Asked"), string(body)}, "|"))
	})
	server := httptest.NewServer(echo)
	defer server.Close()
	type answer struct {
		Status       int
		Answer, Late string
		Body         string
	}
	ask := func(transport http.RoundTripper, method, body string) answer {
		var reader io.Reader
		if body != "" {
			reader = strings.NewReader(body)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/a%2Fb/c?x=1&y=%20", reader)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Asked", "this")
		response, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer{response.StatusCode, response.Header.Get("X-Answer"), response.Header.Get("X-Late"), string(text)}
	}
	for _, in := range [][2]string{{http.MethodGet, ""}, {http.MethodPost, "hello"}} {
		got, want := ask(client.InMemory(echo), in[0], in[1]), ask(http.DefaultTransport, in[0], in[1])
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s: in memory -, over the network +\n%s", in[0], diff)
		}
	}
}

func get(ctx context.Context, h http.Handler) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://control.test/", nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: client.InMemory(h)}).Do(r)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// A caller that gives up is free at once, even of a handler that does not listen, and the handler
// is told.
func TestInMemory_CallerMayLeave(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	told, release := make(chan struct{}), make(chan struct{})
	err := get(ctx, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leave()
		<-r.Context().Done()
		close(told)
		<-release
	}))
	is(t, "error", err, context.Canceled)
	<-told
	close(release)
}

func TestInMemory_PanicIsAnErrorOfItsRequest(t *testing.T) {
	for _, cause := range []any{"broken", http.ErrAbortHandler} {
		err := get(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half an ans")
			panic(cause)
		}))
		if err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Errorf("panic %v: got %v", cause, err)
		}
	}
}

// The handler's context ends with its call, as it does on a server.
func TestInMemory_ContextEndsWithTheCall(t *testing.T) {
	var inner context.Context
	err := get(t.Context(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inner = r.Context() }))
	is(t, "error", err, nil)
	<-inner.Done()
	is(t, "handler's context", inner.Err(), context.Canceled)
}

func TestInMemory_ManyAtOnce(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	hc := &http.Client{Transport: client.InMemory(h)}
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			want := strings.Repeat("x", i*100)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://control.test/", strings.NewReader(want))
			if err != nil {
				t.Error(err)
				return
			}
			response, err := hc.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			got, err := io.ReadAll(response.Body)
			if err := errors.Join(err, response.Body.Close()); err != nil || string(got) != want {
				t.Errorf("request %d: got %d bytes, %v", i, len(got), err)
			}
		})
	}
	group.Wait()
}
