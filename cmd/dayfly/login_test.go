package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/credentials"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/oidc"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// newLoginWorld is a control plane whose organization trusts an issuer: its people, and the pipelines of one
// repository. Nobody is logged in.
func newLoginWorld(t *testing.T) (*world, *provider.Provider, controlplane.Principal) {
	t.Helper()
	w, is := &world{t: t}, provider.Start(t, "RS256")
	issuers, err := oidc.New(oidc.Config{Private: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	w.plane = controlplane.New(memory.New(), controlplane.Config{DefaultState: api.StateDirectory, Issuers: issuers})
	token, err := w.plane.Bootstrap(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := w.plane.Authenticate(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = w.plane.Issuers.Put(t.Context(), admin, api.Issuer{
		Name: "acme", URL: is.URL, Login: &api.IssuerLogin{ClientID: is.ClientID, Scopes: []string{"openid", "offline_access"}},
		Rules: []api.TrustRule{
			{Claims: map[string]string{"sub": "alice"}, Becomes: api.KindUser, NameClaim: "email", Role: api.RoleOperator},
			{Claims: map[string]string{"sub": "repo:acme/net:*"}, Becomes: api.KindService, Role: api.RoleOperator},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(httpapi.New(w.plane, httpapi.Config{}))
	t.Cleanup(server.Close)
	w.url = server.URL
	w.env = map[string]string{"HOME": t.TempDir()} // and no PATH: there is no browser
	return w, is, admin
}

// atScreen runs a command, and does something with the first match that its lines for people have.
func (w *world) atScreen(ctx context.Context, find *regexp.Regexp, do func(match string), args ...string) answer {
	w.t.Helper()
	var stdout lockedBuffer
	stderr := lockedBuffer{written: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- command(ctx, args, func(name string) string { return w.env[name] }, strings.NewReader(""), &stdout, &stderr)
	}()
	for {
		select {
		case code := <-ended:
			return answer{code, stdout.String(), stderr.String()}
		case <-stderr.written:
			if match := find.FindString(stderr.String()); match != "" && do != nil {
				do(match)
				do = nil
			}
		}
	}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\S+\n`)

func TestLogin_ByBrowser(t *testing.T) {
	w, _, _ := newLoginWorld(t)
	var page string
	got := w.atScreen(t.Context(), address, func(url string) {
		page = visit(t, strings.TrimSpace(url))
	}, "login", w.url, "--organization", "default", "--expires", "30m")
	if got.code != cli.ExitOK || !strings.Contains(got.stdout, "as acme/alice@example.com (operator) until ") || !strings.Contains(page, "may close this page") {
		t.Fatalf("got %+v and the page\n%s", got, page)
	}
	if strings.Contains(got.stderr, "offline_access") || strings.Contains(got.stdout+got.stderr, "dfu_") || strings.Contains(got.stdout+got.stderr, "eyJ") {
		t.Errorf("a refresh token was asked for, or a token shows:\n%+v", got)
	}
	has(t, "list after login", w.ok("workflow", "list"), "no workflows")
	target, err := credentials.Find(func(name string) string { return w.env[name] })
	if remaining := time.Until(target.Ends); err != nil || remaining > 30*time.Minute || remaining < 25*time.Minute {
		t.Errorf("the login ends in %s, %v, want 30m", remaining, err)
	}
	if got := w.run("workspace", "delete", "x", "--yes"); got.code != cli.ExitRefused {
		t.Errorf("an operator deletes a workspace: %+v", got)
	}
}

// visit opens an address as a browser does, and follows where it is sent.
func visit(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestLogin_ByDeviceCode(t *testing.T) {
	w, is, _ := newLoginWorld(t)
	is.Pending = 0
	got := w.run("login", w.url, "--device")
	if got.code != cli.ExitOK || !strings.Contains(got.stdout, "as acme/alice@example.com") || !strings.Contains(got.stderr, "WDJB-MJHT") {
		t.Fatalf("got %+v", got)
	}
}

// A pipeline logs in with the token that its host gives it, and stores no secret.
func TestLogin_APipelineWithTheTokenOfItsHost(t *testing.T) {
	w, is, _ := newLoginWorld(t)
	file := filepath.Join(t.TempDir(), "token")
	write := func(with map[string]any) {
		t.Helper()
		if err := os.WriteFile(file, []byte(is.Token("RS256", with)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(map[string]any{"sub": "repo:acme/net:ref:refs/heads/main", "aud": "urn:dayfly:org:default"})
	if got := w.run("login", w.url, "--oidc-token-file", file); got.code != cli.ExitOK || !strings.Contains(got.stdout, "acme/repo:acme/net:ref:refs/heads/main (operator)") {
		t.Fatalf("got %+v", got)
	}
	has(t, "list after login", w.ok("workflow", "list"), "no workflows")
	for name, with := range map[string]map[string]any{
		"another audience":   {"sub": "repo:acme/net:ref:refs/heads/main", "aud": "sts.amazonaws.com"},
		"another repository": {"sub": "repo:evil/net:ref:refs/heads/main", "aud": "urn:dayfly:org:default"},
	} {
		write(with)
		if got := w.run("login", w.url, "--oidc-token-file", file); got.code != cli.ExitRefused || strings.Contains(got.stderr, "eyJ") || strings.Contains(got.stderr, "log in again") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestLogin_AServicePrincipal(t *testing.T) {
	w, _, admin := newLoginWorld(t)
	role := api.RoleViewer
	made, err := w.plane.CreateService(t.Context(), admin, api.NewServicePrincipal{Name: "nightly", ServicePrincipalSettings: api.ServicePrincipalSettings{Role: &role}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(made.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := w.run("login", w.url, "--client-id", made.ServicePrincipal.ClientID, "--client-secret-file", file); got.code != cli.ExitOK || !strings.Contains(got.stdout, "service/nightly (viewer)") {
		t.Fatalf("got %+v", got)
	}
	for _, tt := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitRefused, "refuses this login", []string{"--client-id", "sp_none", "--client-secret-file", file}},
		{cli.ExitUsage, "both --client-id and --client-secret-file", []string{"--client-id", "sp_none"}},
		{cli.ExitUsage, "--client-secret-file: ", []string{"--client-id", "sp_none", "--client-secret-file", file + "x"}},
		{cli.ExitUsage, "", []string{"--client-id", "sp_none", "--device"}},
		{cli.ExitUsage, "is empty: pipe the value in, or log in with --device,", nil},
		{cli.ExitRefused, "choose one with --issuer", []string{"--issuer", "other"}},
		{cli.ExitRefused, "no issuer with which people log in", []string{"--organization", "other"}},
	} {
		if got := w.run(append([]string{"login", w.url}, tt.args...)...); got.code != tt.code || !strings.Contains(got.stderr, tt.says) || strings.Contains(got.stderr, made.Secret) {
			t.Errorf("%v: got %+v", tt.args, got)
		}
	}
}

func TestLogin_OneThatIsOverSaysSoAndALogoutForgetsIt(t *testing.T) {
	w, is, _ := newLoginWorld(t)
	is.Pending = 0
	w.ok("login", w.url, "--device")
	get := func(name string) string { return w.env[name] }
	target, err := credentials.Find(get)
	if err != nil {
		t.Fatal(err)
	}
	target.Ends = time.Now().Add(-time.Second)
	if _, err := credentials.Save(get, target); err != nil {
		t.Fatal(err)
	}
	if got := w.run("workflow", "list"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "your login at "+w.url+" has expired: dayfly login") {
		t.Errorf("got %+v", got)
	}
	w.ok("login", "--device") // at the address of the last login
	w.ok("workflow", "list")
	w.ok("logout")
	if got := w.run("workflow", "list"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "no token is known for "+w.url) {
		t.Errorf("after the logout: %+v", got)
	}
	if got := w.run("logout"); got.code != cli.ExitUsage {
		t.Errorf("a second logout: %+v", got)
	}
}

func TestLogin_CtrlCEndsIt(t *testing.T) {
	w, _, _ := newLoginWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	got := w.atScreen(ctx, address, func(string) { cancel() }, "login", w.url, "--organization", "default")
	if got.code != cli.ExitInterrupted {
		t.Errorf("got %+v", got)
	}
}
