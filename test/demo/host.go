package main

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"

	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// repository is the one of the demo's git host.
const repository = "acme/infra"

// forge stands in for a git host with pipelines: a repository, the API that comments and statuses are written to, and
// the tokens of jobs.
type forge struct {
	url, dir, clone string
	api             *githosttest.Server
	issuer          *provider.Provider // of the tokens of jobs
	key             string             // by which a job asks for its own
}

// openForge serves the git host where jobs reach it: over TLS, unless that is the loopback.
func (d *demo) openForge(authority *gitserver.Authority) *forge {
	f := &forge{dir: d.dir("git", 0o755), api: githosttest.New(githosttest.GitHub), issuer: provider.New("RS256"), key: rand.Text()}
	f.clone = d.dir("git/clone", 0o755)
	d.later = append(d.later, func() error { f.api.Stop(); return nil })
	f.issuer.URL = "http://" + d.serve("127.0.0.1", f.issuer, plain)
	git, err := gitserver.Handler(d.ctx, f.dir)
	must(err)
	behind, err := url.Parse(f.api.URL)
	must(err)
	mux := http.NewServeMux()
	mux.Handle("/", git)
	mux.Handle("/api/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }})
	mux.HandleFunc("/token", f.jobToken)
	if d.address == "127.0.0.1" {
		f.url = "http://" + d.serve(d.address, mux, plain)
	} else {
		certificate, err := authority.Issue(d.address)
		must(err)
		f.url = "https://" + d.serve(d.address, mux, func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
		})
	}
	d.forge = f
	bare := filepath.Join(f.dir, repository+".git")
	d.repo("init", "--quiet", "--bare", "--initial-branch=main", bare)
	d.repo("-C", bare, "config", "uploadpack.allowReachableSHA1InWant", "true")
	d.repo("init", "--quiet", "--initial-branch=main")
	d.repo("remote", "add", "origin", f.url+"/"+repository+".git")
	return f
}

// source is the code of the repository at a path, as a workspace names it.
func (f *forge) source(path string) string {
	return `{git: {url: "` + f.url + "/" + repository + `.git", ref: main, path: ` + path + `}}`
}

// jobToken gives the OIDC token of a job, as GitHub does to who has the job's key. Which job it is stands in the address.
func (f *forge) jobToken(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+f.key {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	claims := map[string]any{
		"sub": "repo:" + repository, "email": nil, "aud": r.FormValue("audience"), "repository": repository, "repository_id": "74",
		"actor": "carol", "actor_id": "1001", "sha": r.FormValue("sha"), "event_name": r.FormValue("event"),
		"ref": "refs/heads/main", "ref_protected": "true",
	}
	if r.FormValue("event") == "pull_request" {
		claims["ref"], claims["ref_protected"] = "refs/pull/1/merge", "false"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"value": f.issuer.Token("RS256", claims)})
}
