package main

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/functions/internal/boot"
)

// invoked is one call of Lambda's Invoke as it went over the wire.
type invoked struct{ Path, Kind, Region, Body string }

// lambdaService takes invocations, and answers them with a status.
type lambdaService struct {
	mu     sync.Mutex
	calls  chan invoked
	status int
	hang   chan struct{} // nil: it answers at once
	opened int           // connections
	log    strings.Builder
	logged chan struct{} // closed with the first line
}

func (l *lambdaService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	region := ""
	if scope := strings.Split(r.Header.Get("Authorization"), "/"); len(scope) > 2 {
		region = scope[2]
	}
	l.mu.Lock()
	status, hang := l.status, l.hang
	l.mu.Unlock()
	l.calls <- invoked{r.URL.EscapedPath(), r.Header.Get("X-Amz-Invocation-Type"), region, string(body)}
	if hang != nil {
		<-hang
	}
	w.WriteHeader(status)
}

// Write takes lines of the waker's log.
func (l *lambdaService) Write(line []byte) (int, error) {
	defer close(l.logged)
	return l.log.Write(line)
}

func (l *lambdaService) waker(t *testing.T) *waker {
	t.Helper()
	server := httptest.NewUnstartedServer(l)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.opened++
		}
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it counts connections that are not used in the end
	server.StartTLS()
	t.Cleanup(server.Close)
	l.logged, l.calls = make(chan struct{}), make(chan invoked, 9)
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_LAMBDA": server.URL,
	}
	e := boot.Read(func(name string) string { return env[name] })
	cfg := e.AWS()
	if err := e.Err(); err != nil {
		t.Fatal(err)
	}
	w := newWaker(cfg, slog.New(slog.NewTextHandler(l, nil)))
	w.transport = func() *http.Transport {
		transport := boot.Transport()
		transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs //nolint:forcetypeassert // it is that of httptest
		return transport
	}
	return w
}

func TestWake_IsAnAsynchronousInvocationOfAnEmptyObject(t *testing.T) {
	l := &lambdaService{status: http.StatusAccepted}
	w := l.waker(t)
	var got []invoked
	for _, target := range []string{"dayfly-wake-default", "arn:aws:lambda:eu-central-1:210987654321:function:dayfly-wake-other"} {
		if err := w.Wake(t.Context(), target); err != nil {
			t.Error(err)
		}
		got = append(got, <-l.calls)
	}
	want := []invoked{
		{"/2015-03-31/functions/dayfly-wake-default/invocations", "Event", "us-east-1", "{}"},
		{"/2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-central-1%3A210987654321%3Afunction%3Adayfly-wake-other/invocations", "Event", "eu-central-1", "{}"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// A wake may be lost; repeating it would be waited for by whoever submitted the work. A refusal that comes after it was
// sent is for a person to see.
func TestWake_IsTriedOnceAndARefusalIsLogged(t *testing.T) {
	l := &lambdaService{status: http.StatusForbidden, hang: make(chan struct{})}
	if err := l.waker(t).Wake(t.Context(), "dayfly-wake-default"); err != nil {
		t.Error(err)
	}
	close(l.hang)
	<-l.logged
	if said := l.log.String(); !strings.Contains(said, "level=WARN") || !strings.Contains(said, "HTTP403") || len(l.calls) != 1 {
		t.Errorf("%d calls, and the log says %q", len(l.calls), said)
	}
}

// Whoever submitted the work must not wait for Lambda's answer: it is enough that the request is on its way.
func TestWake_ReturnsWhenItIsSentBeforeItIsAnswered(t *testing.T) {
	l := &lambdaService{status: http.StatusAccepted, hang: make(chan struct{})}
	w := l.waker(t)
	defer close(l.hang)
	if err := w.Wake(t.Context(), "dayfly-wake-default"); err != nil {
		t.Error(err)
	}
	<-l.calls
}

// Nothing can be sent while there is no connection: that is waited for, as long as the context lasts.
func TestWake_EndsWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	w := (&lambdaService{}).waker(t)
	w.transport = func() *http.Transport {
		transport := boot.Transport()
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, silent.Addr().String()) // nobody takes part in its handshake
		}
		return transport
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Wake(ctx, "dayfly-wake-default"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wake that could not be sent: %v", err)
	}
}

// The other end may have closed a connection while the process was frozen, and the request would be lost unseen.
func TestWake_UsesNoConnectionThatWasIdleForLong(t *testing.T) {
	l := &lambdaService{status: http.StatusAccepted}
	w := l.waker(t)
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	w.now = func() time.Time { return now }
	for i, after := range []time.Duration{0, warmFor + time.Second, time.Hour, -time.Hour} {
		now = now.Add(after)
		if err := w.Wake(t.Context(), "dayfly-wake-default"); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		opened := l.opened
		l.mu.Unlock()
		if opened != i+1 {
			t.Errorf("wake %d: %d connections", i+1, opened)
		}
	}
}
