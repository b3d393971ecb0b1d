package main

import (
	"context"
	"io"
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
	calls  []invoked
	status int
	hang   chan struct{} // nil: it answers at once
}

func (l *lambdaService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	region := ""
	if scope := strings.Split(r.Header.Get("Authorization"), "/"); len(scope) > 2 {
		region = scope[2]
	}
	l.mu.Lock()
	l.calls = append(l.calls, invoked{r.URL.EscapedPath(), r.Header.Get("X-Amz-Invocation-Type"), region, string(body)})
	status, hang := l.status, l.hang
	l.mu.Unlock()
	if hang != nil {
		<-hang
	}
	w.WriteHeader(status)
}

func (l *lambdaService) waker(t *testing.T) waker {
	t.Helper()
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	env := map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_LAMBDA": server.URL,
	}
	e := boot.Read(func(name string) string { return env[name] })
	cfg := e.AWS()
	if err := e.Err(); err != nil {
		t.Fatal(err)
	}
	return newWaker(cfg)
}

func TestWake_IsAnAsynchronousInvocationOfAnEmptyObject(t *testing.T) {
	l := &lambdaService{status: http.StatusAccepted}
	w := l.waker(t)
	for _, target := range []string{"dayfly-wake-default", "arn:aws:lambda:eu-central-1:210987654321:function:dayfly-wake-other"} {
		if err := w.Wake(t.Context(), target); err != nil {
			t.Error(err)
		}
	}
	want := []invoked{
		{"/2015-03-31/functions/dayfly-wake-default/invocations", "Event", "us-east-1", "{}"},
		{"/2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-central-1%3A210987654321%3Afunction%3Adayfly-wake-other/invocations", "Event", "eu-central-1", "{}"},
	}
	if d := cmp.Diff(want, l.calls); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// A wake may be lost; repeating it would be waited for by whoever submitted the work.
func TestWake_IsTriedOnce(t *testing.T) {
	l := &lambdaService{status: http.StatusInternalServerError}
	if err := l.waker(t).Wake(t.Context(), "dayfly-wake-default"); err == nil {
		t.Error("a failed wake is not told")
	}
	if len(l.calls) != 1 {
		t.Errorf("%d calls", len(l.calls))
	}
}

func TestWake_EndsWithItsContext(t *testing.T) {
	l := &lambdaService{status: http.StatusAccepted, hang: make(chan struct{})}
	w := l.waker(t)
	defer close(l.hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Wake(ctx, "dayfly-wake-default"); err == nil {
		t.Error("a wake that hangs came back as sent")
	}
}
