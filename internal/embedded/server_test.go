package embedded_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

// dataDir is a directory that users of their own can pass through, as root's engines must.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func serve(t *testing.T, cfg embedded.ServerConfig) (s *embedded.Server, stop func()) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	s, err := embedded.OpenServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func whoami(t *testing.T, s *embedded.Server) api.Identity {
	t.Helper()
	token, err := s.AdminToken()
	if err != nil || token == "" {
		t.Fatalf("admin token: got %d bytes, %v", len(token), err)
	}
	who, err := person(t, s).Whoami(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func TestServer_TheAdminTokenWorksAndIsTheOwnersAlone(t *testing.T) {
	data := dataDir(t)
	s, stop := serve(t, embedded.ServerConfig{Data: data})
	if who := whoami(t, s); who.Role != api.RoleAdmin {
		t.Errorf("got %+v, want an admin", who)
	}
	first, _ := s.AdminToken()
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, others can read it", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	stop()

	// The same token after a restart, another where the file was lost.
	s, stop = serve(t, embedded.ServerConfig{Data: data})
	if again, _ := s.AdminToken(); again != first {
		t.Error("the token changed over a restart")
	}
	stop()
	if err := os.Remove(filepath.Join(data, embedded.AdminTokenFile)); err != nil {
		t.Fatal(err)
	}
	s, _ = serve(t, embedded.ServerConfig{Data: data})
	if again, _ := s.AdminToken(); again == first {
		t.Error("a lost token came back")
	}
	whoami(t, s)
}

func TestServer_ADataDirectoryHasOneProcess(t *testing.T) {
	data := dataDir(t)
	_, stop := serve(t, embedded.ServerConfig{Data: data})
	_, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0"})
	if !errors.Is(err, workflow.ErrInUse) || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, want a refusal that names the process", err)
	}
	stop()
	_, stop = serve(t, embedded.ServerConfig{Data: data})
	stop()
}

func TestServer_TokensAreNotShownToANetwork(t *testing.T) {
	for _, tc := range []struct {
		cfg  embedded.ServerConfig
		says string
	}{
		{embedded.ServerConfig{Listen: "0.0.0.0:0"}, "--insecure-listen"},
		{embedded.ServerConfig{Listen: ":0"}, "--insecure-listen"},
		{embedded.ServerConfig{Listen: "example.com:80"}, "--insecure-listen"},
		{embedded.ServerConfig{Listen: "7331"}, "HOST:PORT"},
		{embedded.ServerConfig{Listen: "127.0.0.1:99999"}, "--listen: 127.0.0.1:99999 is not an address"},
		{embedded.ServerConfig{Listen: "127.0.0.1:no-such-service"}, "--listen: 127.0.0.1:no-such-service is not an address"},
		{embedded.ServerConfig{Listen: "127.0.0.1:0", TLSCert: "x"}, "--tls-key"},
		{embedded.ServerConfig{Listen: "127.0.0.1:0", Connections: -1}, "--connections-per-address"},
		{embedded.ServerConfig{Listen: "127.0.0.1:0", TrustedProxies: []string{"10.0.0.0/8", "proxy"}}, "--trusted-proxies"},
		{embedded.ServerConfig{Listen: "127.0.0.1:0", TLSCert: "/none", TLSKey: "/none"}, "certificate"},
	} {
		tc.cfg.Data = dataDir(t)
		_, err := embedded.OpenServer(t.Context(), tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: got %v, want %q", tc.cfg, err, tc.says)
		}
	}
	s, _ := serve(t, embedded.ServerConfig{Data: dataDir(t), Listen: "0.0.0.0:0", InsecureListen: true})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL(), "http://"))
	_, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: dataDir(t), Listen: "127.0.0.1:" + port})
	if !errors.Is(err, workflow.ErrInUse) || !strings.Contains(err.Error(), "already") {
		t.Errorf("a port that is taken: got %v", err)
	}
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("got %s", s.URL())
	}
	whoami(t, s)
}

func TestServer_DirectoriesThatCannotServeAreRefused(t *testing.T) {
	open := dataDir(t)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{open: "chmod go-w"}
	if os.Geteuid() == 0 {
		closed := filepath.Join(dataDir(t), "closed")
		if err := os.Mkdir(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		cases[filepath.Join(closed, "data")] = "cannot pass through " + closed
	}
	for dir, says := range cases {
		_, err := embedded.OpenServer(t.Context(), embedded.ServerConfig{Data: dir, Listen: "127.0.0.1:0"})
		if !errors.Is(err, workflow.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", dir, err, says)
		}
	}
}

// Root's umask is often such that nobody else gets anywhere.
func TestServer_MakesItsDirectoryWhateverTheUmask(t *testing.T) {
	dir := filepath.Join(dataDir(t), "on", "the", "way")
	defer syscall.Umask(syscall.Umask(0o077))
	serve(t, embedded.ServerConfig{Data: dir})
}

func TestServer_StopsCleanlyDuringALongPoll(t *testing.T) {
	defer leak.None(t, goleak.IgnoreCurrent())
	s, stop := serve(t, embedded.ServerConfig{Data: dataDir(t)})
	token, err := s.Plane().EnsurePoolToken(t.Context(), "default", "default", "test")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	cl, err := client.New(client.Config{URL: s.URL(), RetryCount: -1, HTTPClient: &http.Client{Transport: transport}, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := cl.Claim(t.Context(), api.Claim{Instance: "test", Max: 1, WaitSeconds: 20})
		asked <- err
	}()
	stop()
	t.Logf("the long poll ended: %v", <-asked) // that it ended is what counts
	transport.CloseIdleConnections()
	if _, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://")); err == nil {
		t.Error("something still listens")
	}
}

// A server makes all passes itself: what was before its first one is not counted, or a crash loop would run down the
// time of who cannot report in it.
func TestServer_FirstPassCountsNothing(t *testing.T) {
	now := time.Now()
	cfg := embedded.ServerConfig{Data: dataDir(t), Listen: "127.0.0.1:0", Now: func() time.Time { return now }}
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var job api.Job
	run := api.Run{Attempt: 1, Task: "task", Boot: strings.Repeat("a", 32)}
	for n := range 5 {
		s, err := embedded.OpenServer(ctx, cfg)
		must(err)
		p := s.Plane()
		_, err = p.Pass(ctx)
		must(err)
		if n == 0 {
			token, err := s.AdminToken()
			must(err)
			admin, err := p.Authenticate(ctx, token)
			must(err)
			_, _, err = p.PutWorkspace(ctx, admin, api.Workspace{
				Name: "one", RunSettings: api.RunSettings{
					Engine: api.EngineCommand, Source: api.Source{Directory: "/src"},
					Commands: map[string]string{"preview": "true"},
				},
				State: &api.State{Kind: api.StateDirectory},
			})
			must(err)
			_, err = p.Submit(ctx, admin, "", api.Submit{Workspace: "one", Operation: workflow.Preview})
			must(err)
			token, err = p.EnsurePoolToken(ctx, "default", "default", "test")
			must(err)
			pool, err := p.Authenticate(ctx, token)
			must(err)
			claimed, err := p.Claim(ctx, pool, api.Claim{Instance: "one", Max: 1})
			must(err)
			job = claimed.Jobs[0]
			run.Workflow = job.ID
			must(p.Launch(ctx, pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: run.Task}))
			_, err = p.Start(ctx, job.Token, run, api.Start{Knows: api.RunnerKnows()})
			must(err)
		}
		control, err := p.Heartbeat(ctx, job.Token, run, api.Heartbeat{})
		must(err)
		if most := workflow.DefaultMaxRuntime.Seconds(); control.RemainingSeconds < most-1 {
			t.Errorf("after %d starts of the server %.0f of %.0f s remain", n, control.RemainingSeconds, most)
		}
		must(s.Close())
		now = now.Add(time.Minute)
	}
}
