package vault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/secrets"
	"github.com/dayfly-dev/dayfly/internal/secrets/secretstest"
	"github.com/dayfly-dev/dayfly/internal/secrets/vault"
	"github.com/dayfly-dev/dayfly/internal/wait"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/ports"
)

var _ secrets.Resolver = (*vault.Resolver)(nil)

const token = "hvs.a-token-that-must-not-show"

var malformed = []string{
	"vault:", "vault:secret/db", "vault:secret/db#", "vault:secret#key", "vault:/secret/db#key", "vault:secret//db#key", "vault:secret/../sys/x#key",
	"vault:secret/a b#key", "vault:secret/%2e%2e/x#key", "vault:https://elsewhere/secret/db#key", "file:secret/db#key",
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func resolver(t *testing.T, address string, login vault.Login) *vault.Resolver {
	t.Helper()
	r, err := vault.New(vault.Config{Address: address, Login: login})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func tokenFile(t *testing.T, content string) vault.Login {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return vault.TokenFile(path)
}

func TestConformance(t *testing.T) {
	for name, mount := range map[string]string{"version 1": "old/kv/", "version 2": "secret/"} {
		t.Run(name, func(t *testing.T) {
			secretstest.Run(t, func(t *testing.T) secretstest.Subject {
				server := &secretstest.Vault{Token: token}
				server.Put(mount+"other/secret", "value", "a value that must not show")
				return secretstest.Subject{
					Resolver: resolver(t, serve(t, server), tokenFile(t, token+"\n")),
					Put: func(_ *testing.T, name, value string) string {
						server.Put(mount+"app/"+name, "value", value)
						return "vault:" + mount + "app/" + name + "#value"
					},
					Missing: "vault:" + mount + "missing#value", Forbidden: "vault:" + mount + "other/secret#value", Malformed: malformed, TextOnly: true,
				}
			})
		})
	}
}

// The same holds for a real server, where this machine has one: OpenBao's bao or HashiCorp's vault.
func TestConformance_OverARealServer(t *testing.T) {
	program := ""
	for _, name := range []string{"bao", "vault"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if testing.Short() || program == "" {
		t.Skip("neither bao nor vault is on PATH, or -short")
	}
	const token = "root-of-the-test" // a server makes none that begins as its own do
	address, err := ports.Free(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, ended := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "server", "-dev", "-dev-root-token-id="+token, "-dev-listen-address="+address, "-dev-no-store-token")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { defer ended(); _ = cmd.Wait() })
	t.Cleanup(func() { ended(); wg.Wait() })
	call := func(method, path, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for call(http.MethodGet, "sys/health", "") != http.StatusOK {
		if wait.For(ctx, 50*time.Millisecond) != nil {
			wg.Wait()
			t.Fatalf("the server has ended:\n%s", said.String())
		}
	}
	if got := call(http.MethodPost, "sys/mounts/old/kv", `{"type":"kv","options":{"version":"1"}}`); got >= 300 {
		t.Fatalf("mount: status %d", got)
	}
	for mount, at := range map[string]string{"secret/": "secret/data/", "old/kv/": "old/kv/"} {
		t.Run(mount, func(t *testing.T) {
			secretstest.Run(t, func(t *testing.T) secretstest.Subject {
				return secretstest.Subject{
					Resolver: resolver(t, "http://"+address, tokenFile(t, token)),
					Put: func(t *testing.T, name, value string) string {
						body := map[string]any{"value": value}
						if mount == "secret/" {
							body = map[string]any{"data": body}
						}
						if got := call(http.MethodPost, at+name, marshal(t, body)); got >= 300 {
							t.Fatalf("put: status %d", got)
						}
						return "vault:" + mount + name + "#value"
					},
					Missing: "vault:" + mount + "missing#value", Malformed: malformed, TextOnly: true,
				}
			})
		})
	}
}

func TestErrors_SayWhatToDoAndHoldNoToken(t *testing.T) {
	server := &secretstest.Vault{Token: token}
	server.Put("secret/db", "password", "must not show")
	address := serve(t, server)
	for name, c := range map[string]struct {
		login  vault.Login
		ref    string
		status int
		want   error
		text   string
	}{
		"missing key":     {tokenFile(t, token), "vault:secret/db#user", 0, workflow.ErrNotFound, "no such key"},
		"sealed":          {tokenFile(t, token), "vault:secret/db#password", 503, secrets.ErrUnavailable, "503"},
		"too many":        {tokenFile(t, token), "vault:secret/db#password", 429, secrets.ErrUnavailable, "429"},
		"bad request":     {tokenFile(t, token), "vault:secret/db#password", 400, workflow.ErrInvalid, "not well"},
		"unknown mount":   {tokenFile(t, token), "vault:elsewhere/db#password", 0, workflow.ErrForbidden, "lacks a policy"},
		"wrong token":     {tokenFile(t, token+"x"), "vault:secret/db#password", 0, workflow.ErrForbidden, "lacks a policy"},
		"no token file":   {vault.TokenFile("/nonexistent/token"), "vault:secret/db#password", 0, workflow.ErrForbidden, "/nonexistent/token"},
		"empty token":     {tokenFile(t, " \n"), "vault:secret/db#password", 0, workflow.ErrInvalid, "does not hold a token"},
		"token of lines":  {tokenFile(t, token+"\n"+token), "vault:secret/db#password", 0, workflow.ErrInvalid, "does not hold a token"},
		"its own token":   {tokenFile(t, token), "vault:auth/token/lookup-self#id", 0, workflow.ErrInvalid, "KV secrets engine"},
		"only the mount":  {tokenFile(t, token), "vault:old/kv#password", 0, workflow.ErrForbidden, "lacks a policy"},
		"a server's page": {tokenFile(t, token), "vault:secret/db#password", 200, workflow.ErrInvalid, "not that of Vault"},
	} {
		t.Run(name, func(t *testing.T) {
			to := address
			if c.status == http.StatusOK {
				to = serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>must not show")) }))
			} else {
				server.Fail(c.status)
				defer server.Fail(0)
			}
			got, err := resolver(t, to, c.login).Resolve(t.Context(), c.ref)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) || !got.Empty() {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
			if strings.Contains(err.Error(), "must-not-show") || strings.Contains(err.Error(), "must not show") {
				t.Errorf("a secret shows: %v", err)
			}
		})
	}
}

func TestServerThatIsAway_IsUnavailable(t *testing.T) {
	address := serve(t, http.NotFoundHandler())
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, to := range []string{gone.URL, address} {
		_, err := resolver(t, to, tokenFile(t, token)).Resolve(t.Context(), "vault:secret/db#password")
		if want := map[bool]error{true: secrets.ErrUnavailable, false: workflow.ErrNotFound}[to == gone.URL]; !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// The token goes to the server only: plain http to another machine is refused, as an address and as a redirect.
func TestToken_IsNotSentInClear(t *testing.T) {
	for address, refused := range map[string]bool{
		"http://vault.example.com:8200": true, "vault.example.com": true, "https://user:pw@vault.example.com": true, "ftp://vault.example.com": true, "": true,
		"https://vault.example.com:8200": false, "http://127.0.0.1:8200": false, "http://localhost:8200/proxy": false,
	} {
		if _, err := vault.New(vault.Config{Address: address, Login: vault.TokenFile("x")}); (err != nil) != refused {
			t.Errorf("%q: got %v, refused %v", address, err, refused)
		}
	}
	away := serve(t, http.RedirectHandler("http://vault.example.com/v1/secret/db", http.StatusTemporaryRedirect))
	if _, err := resolver(t, away, tokenFile(t, token)).Resolve(t.Context(), "vault:secret/db#password"); err == nil || !strings.Contains(err.Error(), "redirects") || strings.Contains(err.Error(), token) {
		t.Errorf("got %v", err)
	}
	server := &secretstest.Vault{Token: token}
	server.Put("secret/db", "password", "value")
	active := serve(t, server)
	standby := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, active+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	if got, err := resolver(t, standby, tokenFile(t, token)).Resolve(t.Context(), "vault:secret/db#password"); err != nil || got.Reveal() != "value" {
		t.Errorf("a standby node: got %q, %v", got.Reveal(), err)
	}
}

func TestAWS_LogsInOnceAndAgainWhenTheTokenEnds(t *testing.T) {
	server := &secretstest.Vault{Whose: func(r *http.Request) (string, error) {
		var body bytes.Buffer
		if _, err := body.ReadFrom(r.Body); err != nil || body.String() != "Action=GetCallerIdentity&Version=2011-06-15" {
			return "", errors.New("a call of something else")
		}
		if r.URL.Host != "sts.amazonaws.com" || r.Header.Get("X-Vault-AWS-IAM-Server-ID") != "vault.example.com" {
			return "", errors.New("a call for another server")
		}
		return r.Header.Get("Authorization"), nil
	}}
	server.Put("secret/db", "password", "value")
	sign := func(_ context.Context, serverID string) (vault.SignedRequest, error) {
		r := vault.CallerIdentity(serverID)
		r.Header.Set("Authorization", "ann")
		return r, nil
	}
	r := resolver(t, serve(t, server), vault.AWS("aws", "runners", "vault.example.com", sign))
	for n, want := range [][]string{{"runners ann"}, {"runners ann"}, {"runners ann", "runners ann"}} {
		if n == 2 {
			server.Revoke()
		}
		got, err := r.Resolve(t.Context(), "vault:secret/db#password")
		if err != nil || got.Reveal() != "value" {
			t.Fatalf("got %q, %v", got.Reveal(), err)
		}
		if d := cmp.Diff(want, server.Logins()); d != "" {
			t.Errorf("logins (-want +got):\n%s", d)
		}
	}
	failing := resolver(t, serve(t, &secretstest.Vault{}), func(context.Context, *vault.Server) (redact.String, error) {
		return redact.String{}, secrets.ErrUnavailable
	})
	if _, err := failing.Resolve(t.Context(), "vault:secret/db#password"); !errors.Is(err, secrets.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("vault:secret/db#password")
	for _, s := range malformed {
		f.Add(s)
	}
	server := &secretstest.Vault{Token: token}
	var paths []string
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.EscapedPath())
		server.ServeHTTP(w, r)
	}))
	f.Cleanup(counting.Close)
	r, err := vault.New(vault.Config{Address: counting.URL, Login: func(context.Context, *vault.Server) (redact.String, error) { return redact.New(token), nil }})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		paths = nil
		_, _ = r.Resolve(t.Context(), ref)
		for _, path := range paths { // no other part of the API is called, for any reference
			if strings.Contains(path+"/", "/../") || strings.Contains(path, "//") || strings.HasPrefix(path, "/v1/auth/") && !strings.HasPrefix(ref, "vault:auth/") {
				t.Errorf("%q led to %s", ref, path)
			}
		}
	})
}
