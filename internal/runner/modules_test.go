package runner_test

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/gitserver"
)

// R10: each credential reaches its own host and no other, and none is on a command line or in what leaves the runner.
func TestRunJob_CredentialsForModules(t *testing.T) {
	for _, program := range []string{"git", "ssh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not on this machine")
		}
	}
	const token, other, key = "dfy-token-of-modules", "dfy-token-of-git", "-----BEGIN KEY-----\nAAAAB3NzaC1yc2E\n-----END KEY-----"
	spec, cfg := job(t, `
of() { printf 'protocol=%s\nhost=%s\n\n' "$1" "$2"; }
fill() { of "$1" "$2" | git credential fill 2>&1 | tr '\n' ' '; echo; }
echo "registry $TF_TOKEN_my__modules_example_com"
echo "other $(fill https git.example.com:8443)"
echo "port $(fill https git.example.com)"
echo "plain $(fill http git.example.com:8443)"
echo "again $(of https git.example.com:8443 | git credential reject; fill https git.example.com:8443)"
echo "mine $(git config user.name)"
set -- $(echo "$GIT_SSH_COMMAND" | tr -d "'")
ssh -F "$3" -G ssh.example.com 2>/dev/null | grep -E '^(identityfile|identitiesonly|identityagent|stricthostkeychecking|batchmode|userknownhostsfile|globalknownhostsfile) ' | sort
echo "elsewhere $(ssh -F "$3" -G else.example.com 2>/dev/null | grep -c '^identityfile .*/modules/')"
cd "$(dirname "$3")"; stat -c '%a %n' * | sort -k2; cat 2 2.known_hosts`)
	spec.Modules = []api.ModuleCredential{
		{Host: "My-Modules.example.com", TokenRef: "file:token"},
		{Host: "git.example.com:8443", TokenRef: "file:other", Username: "bot"},
		{Host: "ssh.example.com:2222", SSHKeyRef: "file:key", KnownHosts: "[ssh.example.com]:2222 ssh-ed25519 AAAA"},
	}
	spec.Environment = map[string]string{"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Ann"}
	cfg.Secrets = known{"file:token": token + "\n", "file:other": other, "file:key": key}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	got, text := r.result(), r.text()
	if got.Outcome != workflow.Succeeded {
		t.Fatalf("got %+v; log: %s", got, text)
	}
	dir := filepath.Join(cfg.WorkDir, "modules")
	for _, want := range []string{
		"registry ***\n", "other protocol=https host=git.example.com:8443 username=bot password=*** \n",
		"again protocol=https host=git.example.com:8443 username=bot password=*** \n", "mine Ann\n",
		"batchmode yes\nglobalknownhostsfile /dev/null\nidentitiesonly yes\nidentityagent none\nidentityfile " + dir + "/2\nstricthostkeychecking true\nuserknownhostsfile " + dir + "/2.known_hosts\n",
		"elsewhere 0\n", "600 0\n600 1\n600 2\n600 2.known_hosts\n600 ssh_config\n***\n***\n***\n[ssh.example.com]:2222 ssh-ed25519 AAAA\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the log %s", want, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if (strings.HasPrefix(line, "port") || strings.HasPrefix(line, "plain")) && strings.Contains(line, "password=***") {
			t.Errorf("another address got it: %s", line)
		}
	}
	for _, hidden := range []string{token, other, "AAAAB3NzaC1yc2E", base64.StdEncoding.EncodeToString([]byte("bot:" + other))} {
		if strings.Contains(string(r.bodies), hidden) {
			t.Errorf("%q left the runner: %s", hidden, text)
		}
	}
}

func TestRunJob_CredentialsForModulesThatDoNotResolve(t *testing.T) {
	for ref, says := range map[string]string{
		"file:none":  "the credential for modules of git.example.com did not resolve",
		"file:empty": "is empty",
		"file:lines": "more than one line",
	} {
		spec, cfg := job(t, "echo ran")
		spec.Modules = []api.ModuleCredential{{Host: "git.example.com", TokenRef: ref}}
		cfg.Secrets = known{"file:empty": " \n", "file:lines": "one-line\nand another"}
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		if got := r.result(); got.Reason != workflow.ReasonSecretUnavailable || !strings.Contains(got.Detail, says) || strings.Contains(r.text(), "ran\n") {
			t.Errorf("%s: got %+v", ref, got)
		}
	}
}

// registry is a module registry, at any name below example.com by way of a proxy. Its one module is in a git repository.
// Both want a token.
type registry struct{ proxy, git, ca string }

func newRegistry(t *testing.T, token, gitToken string) registry {
	t.Helper()
	dir := t.TempDir()
	code := filepath.Join(dir, "code")
	if err := errors.Join(os.Mkdir(code, 0o700), os.WriteFile(filepath.Join(code, "main.tf"), []byte(`output "word" { value = "from afar" }`), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-C", code, "init", "-q"}, {"-C", code, "add", "."},
		{"-C", code, "-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-q", "-m", "x"},
		{"clone", "-q", "--bare", code, filepath.Join(dir, "m.git")},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Skipf("git: %v: %s", err, out)
		}
	}
	git, err := gitserver.Handler(t.Context(), dir)
	if err != nil {
		t.Skip(err)
	}
	var server *httptest.Server
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, password, _ := req.BasicAuth()
		switch path := req.URL.Path; {
		case path == "/.well-known/terraform.json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"modules.v1":"/v1/modules/"}`)
		case strings.HasPrefix(path, "/v1/") && req.Header.Get("Authorization") != "Bearer "+token,
			strings.HasPrefix(path, "/m.git/") && password != gitToken:
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(path, "/versions"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"modules":[{"versions":[{"version":"1.0.0"}]}]}`)
		case strings.HasSuffix(path, "/download"):
			w.Header().Set("X-Terraform-Get", "git::"+server.URL+"/m.git")
			w.WriteHeader(http.StatusNoContent)
		default:
			git.ServeHTTP(w, req)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodConnect || !strings.HasSuffix(req.Host, ".example.com:443") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		to, err := (&net.Dialer{}).DialContext(req.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			return
		}
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}))
	t.Cleanup(proxy.Close)
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return registry{proxy.URL, strings.TrimPrefix(server.URL, "https://"), ca}
}

// R10: a private module of a registry, whose code is in a private git repository, is there with both tokens, and not
// without one of them. Only init has them.
func TestRunJob_PrivateModules(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const token, gitToken = "dfy-token-of-registry", "dfy-token-of-git"
	from := newRegistry(t, token, gitToken)
	both := []api.ModuleCredential{{Host: "my-modules.example.com", TokenRef: "file:token"}, {Host: from.git, TokenRef: "file:git"}}
	for name, dir := range foreign(t) {
		for _, modules := range [][]api.ModuleCredential{both, both[:1], both[1:]} {
			spec, cfg := job(t, "")
			spec.Engine, spec.State, spec.Commands = name, api.State{Kind: api.StateDirectory}, nil
			spec.Modules = modules
			spec.Environment = map[string]string{"SSL_CERT_FILE": from.ca, "GIT_SSL_CAINFO": from.ca, "HTTPS_PROXY": from.proxy, "NO_PROXY": "127.0.0.1", "CHECKPOINT_DISABLE": "1"}
			cfg.StateDir = filepath.Join(filepath.Dir(cfg.WorkDir), "state")
			cfg.Secrets, cfg.EnginePath = known{"file:token": token, "file:git": gitToken}, []string{dir}
			code := `
module "m" {
  source  = "my-modules.example.com/a/b/c"
  version = "1.0.0"
}
resource "terraform_data" "a" {
  provisioner "local-exec" { command = "echo ${module.m.word}, left: $(env | grep -cE '^(TF_TOKEN|GIT_CONFIG)_') $(ls $TMPDIR/.. 2>/dev/null | grep -c modules)" }
}`
			if err := errors.Join(os.WriteFile(filepath.Join(spec.Source.Directory, "main.tf"), []byte(code), 0o600), os.Mkdir(cfg.StateDir, 0o700)); err != nil {
				t.Fatal(err)
			}
			r := newRelay(t, spec)
			runJob(t, r, cfg)
			got, text := r.result(), r.text()
			if len(modules) == 2 && (got.Outcome != workflow.Succeeded || !strings.Contains(text, "from afar, left: 0 0")) {
				t.Errorf("%s: got %+v; log: %s", name, got, text)
			}
			if len(modules) == 1 && got.Outcome != workflow.Failed {
				t.Errorf("%s with only the token of %s: got %+v; log: %s", name, modules[0].Host, got, text)
			}
			if strings.Contains(string(r.bodies), token) || strings.Contains(string(r.bodies), gitToken) {
				t.Errorf("%s: a token left the runner: %s", name, text)
			}
		}
	}
}

// foreign are the engines of this machine, with where they are.
func foreign(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{api.EngineTerraform, api.EngineTofu} {
		if path, err := exec.LookPath(name); err == nil {
			out[name] = filepath.Dir(path)
		}
	}
	if len(out) == 0 {
		t.Skip("neither terraform nor tofu is on this machine")
	}
	return out
}
