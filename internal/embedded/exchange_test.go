package embedded_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// trusting is a control plane that lets the holder of an issuer's token be its built-in pool, for a minute. Its clock, the
// issuer's and the agent's go on together, as a test says.
type trusting struct {
	t      *testing.T
	issuer *provider.Provider
	person *client.Client
	url    string
	file   string   // with the agent's token
	given  chan int // the status of each exchange
	ahead  atomic.Int64
}

func (w *trusting) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func newTrusting(t *testing.T) *trusting {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &trusting{t: t, issuer: provider.Start(t, "RS256"), file: filepath.Join(t.TempDir(), "token"), given: make(chan int, 1000)}
	w.issuer.Now = w.now
	issuers, err := oidc.New(oidc.Config{Private: []string{"127.0.0.1"}})
	must(err)
	plane := controlplane.New(memory.New(), controlplane.Config{DefaultState: api.StateDirectory, Issuers: issuers, Now: w.now, Alone: true})
	token, err := plane.Bootstrap(t.Context(), "default")
	must(err)
	admin, err := plane.Authenticate(t.Context(), token)
	must(err)
	_, _, err = plane.Issuers.Put(t.Context(), admin, api.Issuer{Name: "cluster", URL: w.issuer.URL, Rules: []api.TrustRule{
		{Claims: map[string]string{"sub": "system:serviceaccount:dayfly:agent"}, Becomes: api.KindPool, Pool: "default", MaxLifetimeSeconds: 60},
	}})
	must(err)
	handler := httpapi.New(plane, httpapi.Config{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/token" {
			handler.ServeHTTP(rw, r)
			return
		}
		seen := httptest.NewRecorder()
		handler.ServeHTTP(seen, r)
		for name, values := range seen.Header() {
			rw.Header()[name] = values
		}
		rw.WriteHeader(seen.Code)
		_, _ = rw.Write(seen.Body.Bytes())
		w.given <- seen.Code
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.person, err = client.New(client.Config{URL: w.url, Token: func() redact.String { return redact.New(token) }})
	must(err)
	return w
}

// write writes a new token of the issuer into the file.
func (w *trusting) write() {
	w.t.Helper()
	text := w.issuer.Token("RS256", map[string]any{"sub": "system:serviceaccount:dayfly:agent", "aud": "urn:dayfly:org:default"})
	if err := os.WriteFile(w.file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// exchanged waits for an exchange that ends so.
func (w *trusting) exchanged(what string, want int) {
	w.t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case got := <-w.given:
			if got == want {
				return
			}
		case <-limit:
			w.t.Fatalf("%s: no exchange was answered %d", what, want)
		}
	}
}

func TestAgent_ExchangedTokenOutlivesALostIssuer(t *testing.T) {
	w, sources := newTrusting(t), dataDir(t)
	w.write()
	gate := filepath.Join(sources, "gate")
	put(t, w.person, api.Workspace{
		Name: "one", RunSettings: api.RunSettings{Engine: "command", Source: api.Source{Directory: sources}, Commands: map[string]string{"update": "until [ -e " + gate + " ]; do sleep 0.2; done"}},
	})
	set := settings(sources)
	set.WorkingDirectory, set.ServiceURL, set.DeployTarget = dataDir(t), w.url, "process"
	set.OIDCTokenFile, set.OrganizationName, set.RunnerPoolID = w.file, "default", "default"
	set.RequestRetryCount, set.CircuitBreakerFailures = 0, 1000 // polling goes on while there is no token
	a, err := embedded.OpenAgent(t.Context(), embedded.AgentConfig{Settings: set, Now: w.now})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	submit := func() string {
		t.Helper()
		got, err := w.person.Submit(t.Context(), api.Submit{Workspace: "one", Operation: workflow.Update})
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	first := submit()
	w.exchanged("at the start", http.StatusOK)
	running(t, w.person, first)

	w.write()
	w.ahead.Add(int64(45 * time.Second))
	w.exchanged("after two thirds of its life", http.StatusOK)

	w.issuer.Rotate("RS256") // so that its keys must be asked for
	w.issuer.Switch(provider.Switches{Down: true})
	w.write()
	w.ahead.Add(int64(45 * time.Second))
	w.exchanged("while the issuer is away", http.StatusServiceUnavailable)
	w.ahead.Add(int64(30 * time.Second)) // the pool token is over
	w.exchanged("when the token is over", http.StatusServiceUnavailable)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ends(t, w.person, first); got.State != workflow.Succeeded {
		t.Errorf("the job of a lost issuer: got %s (%s): %s", got.State, got.Reason, got.Detail)
	}

	w.issuer.Switch(provider.Switches{})
	w.ahead.Add(int64(30 * time.Second)) // longer than a source of keys that failed is left alone
	w.write()
	w.exchanged("when the issuer is back", http.StatusOK)
	if got := finished(t, w.person, submit()); got.State != workflow.Succeeded {
		t.Errorf("the next job: got %s (%s): %s", got.State, got.Reason, got.Detail)
	}
}

// running waits for the start of a workflow.
func running(t *testing.T, cl *client.Client, id string) {
	t.Helper()
	for {
		got, err := cl.Workflow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got.State == workflow.Running {
			return
		}
		if _, err := cl.Logs(t.Context(), id, 0, 0, 100, time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// ends waits for the end of a workflow, whether or not its slot is free.
func ends(t *testing.T, cl *client.Client, id string) api.Workflow {
	t.Helper()
	for {
		got, err := cl.Workflow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got.State.Terminal() {
			return got
		}
		if _, err := cl.Logs(t.Context(), id, 0, 1000, 100, time.Second); err != nil {
			t.Fatal(err)
		}
	}
}
