package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/redact"
)

// script is a control plane that answers as a test says and remembers what it was asked.
type script struct {
	mu      sync.Mutex
	answers []http.HandlerFunc // one per request; the last is used for all that follow
	seen    []*http.Request
	at      []time.Time
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := min(len(s.seen), len(s.answers)-1)
	s.seen = append(s.seen, r)
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	s.answers[n](w, r)
}

// waits returns the time between each two requests.
func (s *script) waits() []time.Duration {
	var all []time.Duration
	for i := 1; i < len(s.at); i++ {
		all = append(all, s.at[i].Sub(s.at[i-1]))
	}
	return all
}

func answering(answers ...http.HandlerFunc) *script { return &script{answers: answers} }

func ok(body any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
}

// refusing answers a problem, as the control plane would.
func refusing(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		p := api.ProblemFor(err)
		w.Header().Set("Content-Type", "application/problem+json")
		if after := api.RetryAfter(err); after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		}
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
	}
}

// gateway answers as something in between would.
func gateway(status int, media, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

const secret = "dfu_0123456789abcdef"

func newClient(t testing.TB, h http.Handler, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{
		URL:        "http://control.test",
		HTTPClient: &http.Client{Transport: client.InMemory(h)},
		Token:      func() redact.String { return redact.New(secret) },
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newRunner(t testing.TB, h http.Handler) *client.Runner {
	t.Helper()
	r, err := client.NewRunner(client.RunnerConfig{
		URL: "http://relay.test", HTTPClient: &http.Client{Transport: client.InMemory(h)},
		Credential: redact.New("ticket"),
		Run:        api.Run{Workflow: "w1", Attempt: 3, Task: "task-1", Boot: "b00t"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func is(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
