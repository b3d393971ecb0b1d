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
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/test/gitserver"
)

// code is what the private repository holds: a root module, a package of policies, or nothing but a name, per directory.
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
    bucket                      = "` + bucket + `"
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
	"pulled/main.tf": `
variable "password" {
  sensitive = true
}
resource "terraform_data" "first" {
  input = "hello"
  provisioner "local-exec" {
    command = "echo the password is $TF_VAR_password"
  }
}
`,
	"held/main.tf": `
resource "terraform_data" "first" {
  input = "hello"
}
output "greeting" {
  value = terraform_data.first.output
}
`,
	"fed/main.tf": `
variable "greeting" {
}
resource "terraform_data" "second" {
  input = "they said ${var.greeting}"
}
output "said" {
  value = terraform_data.second.output
}
`,
	"rules/main.rego": `package main

deny_greeting contains {"msg": "do not say hello", "address": r.address} if {
	some r in input.resource_changes
	r.change.after.input == "hello"
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

// change is what the pull request adds to the repository.
var change = map[string]string{
	"pulled/second.tf": `
resource "terraform_data" "second" {
  input = terraform_data.first.output
}
`,
}

// repository is the path of the one repository.
const repository = "example/infra"

// Git is a git host: it lets in who shows its token, over https, with git's own program behind it, and beside it the API
// of a stand-in.
type Git struct {
	URL   string // of its one repository
	Token string

	address string // it listens at
	host    *githosttest.Server
	change  string // commit of the pull request
	server  *http.Server
	dir     string
	work    sync.WaitGroup
}

// ServeGit serves the repository of the scenario at an address of this machine, until Close.
func ServeGit(ctx context.Context, a *gitserver.Authority, address string) (g *Git, err error) {
	g = &Git{Token: "git-" + rand.Text(), address: address}
	if g.dir, err = os.MkdirTemp("", "dayfly-git-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if g.change, err = commit(ctx, g.dir); err != nil {
		return g, err
	}
	if err := os.WriteFile(g.certificates(), a.PEM, 0o600); err != nil {
		return g, err
	}
	g.host = githosttest.New(githosttest.GitHub)
	behind, err := url.Parse(g.host.URL)
	if err != nil {
		return g, err
	}
	api := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
	certificate, err := a.Issue(address)
	if err != nil {
		return g, err
	}
	plain, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return g, err
	}
	g.URL = "https://" + plain.Addr().String() + "/" + repository + ".git"
	backend, err := gitserver.Handler(ctx, g.dir)
	if err != nil {
		return g, err
	}
	g.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/api/") {
				api.ServeHTTP(w, r)
				return
			}
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

// origin is the address of the host, without a path.
func (g *Git) origin() string { return strings.TrimSuffix(g.URL, "/"+repository+".git") }

// certificates is the file of the authority that has issued its certificate.
func (g *Git) certificates() string { return filepath.Join(g.dir, "authority.pem") }

// Close ends the server and removes the repository.
func (g *Git) Close() {
	if g.server != nil {
		_ = g.server.Close()
	}
	if g.host != nil {
		g.host.Stop()
	}
	g.work.Wait()
	_ = os.RemoveAll(g.dir)
}

// commit makes the repository, and returns the commit of the pull request.
func commit(ctx context.Context, dir string) (head string, err error) {
	work := filepath.Join(dir, "work")
	step := func(files map[string]string, commands ...string) (out string, err error) {
		for name, text := range files {
			file := filepath.Join(work, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				return "", err
			}
		}
		for _, command := range commands {
			c := exec.CommandContext(ctx, "git", strings.Fields(command)...) //nolint:gosec // git, with what stands below
			c.Dir = work
			c.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
				"GIT_AUTHOR_NAME=Tester", "GIT_AUTHOR_EMAIL=tester@example.com", "GIT_COMMITTER_NAME=Tester", "GIT_COMMITTER_EMAIL=tester@example.com")
			said, err := c.CombinedOutput()
			if err != nil {
				return "", fmt.Errorf("git %s: %w\n%s", command, err, said)
			}
			out = strings.TrimSpace(string(said))
		}
		return out, nil
	}
	if _, err := step(code, "init --quiet --initial-branch=main", "add .", "commit --quiet --message main"); err != nil {
		return "", err
	}
	return step(change, "checkout --quiet -b change", "add .", "commit --quiet --message change", "checkout --quiet main",
		"clone --quiet --bare . ../"+repository+".git", "rev-parse change")
}
