package scenario

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// code is what the private repository holds: a root module, or nothing but a name, per directory.
var code = map[string]string{
	"plain/README.md": "What runs here is a command.\n",
	"network/main.tf": `
variable "greeting" {
  default = "hello"
}
variable "password" {
  sensitive = true
}
resource "terraform_data" "first" {
  input = var.greeting
  provisioner "local-exec" {
    command = "echo the password is $TF_VAR_password"
  }
}
resource "terraform_data" "second" {
  input = terraform_data.first.output
}
output "greeting" {
  value = terraform_data.second.output
}
output "password" {
  value     = var.password
  sensitive = true
}
`,
	"declared/main.tf": `
terraform {
  backend "s3" {
    bucket                      = "states"
    key                         = "declared/terraform.tfstate"
    region                      = "us-east-1"
    use_path_style              = true
    use_lockfile                = true
    skip_credentials_validation = true
    skip_requesting_account_id  = true
    skip_metadata_api_check     = true
    skip_region_validation      = true
  }
}
resource "terraform_data" "first" {
  input = "hello"
}
resource "terraform_data" "second" {
  input = terraform_data.first.output
}
output "greeting" {
  value = terraform_data.second.output
}
`,
	"failing-plan/main.tf": `
variable "environment" {
  default = "moon"
  validation {
    condition     = contains(["dev", "prod"], var.environment)
    error_message = "The environment must be dev or prod."
  }
}
resource "terraform_data" "a" {
  input = var.environment
}
`,
	"failing-apply/main.tf": `
resource "terraform_data" "kept" {
  input = "kept"
}
resource "terraform_data" "breaks" {
  depends_on = [terraform_data.kept]
  provisioner "local-exec" {
    command = "echo it breaks here; exit 3"
  }
}
`,
	"slow/main.tf": `
resource "terraform_data" "slow" {
  provisioner "local-exec" {
    command = "echo it is at work; sleep 600"
  }
}
`,
}

// Git is a git server that lets in who shows its token, over https, with git's own program behind it.
type Git struct {
	URL   string // of its one repository
	Token string

	server *http.Server
	dir    string
	work   sync.WaitGroup
}

// errNoGit says that there is no git on this machine.
var errNoGit = errors.New("git is not on this machine, whose own program serves the repository")

// ServeGit serves the repository of the scenario at an address of this machine, until Close.
func ServeGit(ctx context.Context, a *Authority, address string) (g *Git, err error) {
	programs, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return nil, errNoGit
	}
	g = &Git{Token: "git-" + rand.Text()}
	if g.dir, err = os.MkdirTemp("", "dayfly-git-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if err := commit(ctx, g.dir); err != nil {
		return g, err
	}
	certificate, err := a.issue(address)
	if err != nil {
		return g, err
	}
	plain, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return g, err
	}
	g.URL = "https://" + plain.Addr().String() + "/infra.git"
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + g.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + g.dir},
	}
	g.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, got, _ := r.BasicAuth(); got != g.Token {
				w.Header().Set("WWW-Authenticate", "Basic")
				http.Error(w, "wrong token "+got, http.StatusUnauthorized) // a server that is not careful
				return
			}
			backend.ServeHTTP(w, r)
		}),
	}
	l := tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	g.work.Go(func() { _ = g.server.Serve(l) })
	return g, nil
}

// Close ends the server and removes the repository.
func (g *Git) Close() {
	if g.server != nil {
		_ = g.server.Close()
	}
	g.work.Wait()
	_ = os.RemoveAll(g.dir)
}

// commit makes the repository.
func commit(ctx context.Context, dir string) error {
	work := filepath.Join(dir, "work")
	for name, text := range code {
		file := filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "."},
		{"commit", "--quiet", "--message", "What the scenario runs"},
		{"clone", "--quiet", "--bare", work, filepath.Join(dir, "infra.git")},
	} {
		c := exec.CommandContext(ctx, "git", args...) //nolint:gosec // git, with what stands above
		c.Dir = work
		c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
			"GIT_AUTHOR_NAME=Tester", "GIT_AUTHOR_EMAIL=tester@example.com", "GIT_COMMITTER_NAME=Tester", "GIT_COMMITTER_EMAIL=tester@example.com")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", args[0], err, out)
		}
	}
	return nil
}
