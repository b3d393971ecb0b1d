package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/dayfly-dev/dayfly/internal/githost/githosttest"
	"github.com/dayfly-dev/dayfly/test/gitserver"
	"github.com/dayfly-dev/dayfly/test/issuer/provider"
)

// repository is the one of the demo's git host.
const repository = "acme/infra"

// host serves what stands in for a git host with pipelines: repositories below a directory, the API that comments and
// statuses are written to, and the tokens of jobs. It prints its address, that of its issuer, the token for its API and
// the key for tokens of jobs, a line each.
func host(ctx context.Context, dir string) error {
	git, err := gitserver.Handler(ctx, dir)
	if err != nil {
		return err
	}
	api := githosttest.New(githosttest.GitHub)
	defer api.Stop()
	behind, err := url.Parse(api.URL)
	if err != nil {
		return err
	}
	issuer := provider.New("RS256")
	first, err := listen(ctx)
	if err != nil {
		return err
	}
	second, err := listen(ctx)
	if err != nil {
		return err
	}
	issuer.URL = "http://" + second.Addr().String()
	key := rand.Text()

	mux := http.NewServeMux()
	mux.Handle("/", git)
	mux.Handle("/api/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }})
	mux.HandleFunc("/demo/token", jobToken(issuer, key))
	mux.HandleFunc("/demo/open", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, api.Open(githosttest.Pull{Repository: repository, Author: "carol", Head: r.FormValue("head")}))
	})
	mux.HandleFunc("/demo/merge", func(_ http.ResponseWriter, r *http.Request) { api.Merge(repository, 1, r.FormValue("commit")) })
	mux.HandleFunc("/demo/pull", func(w http.ResponseWriter, r *http.Request) {
		for _, c := range api.Comments(repository, 1) {
			_, _ = fmt.Fprintf(w, "comment of %s:\n%s\n", c.Author, c.Text)
		}
		for _, s := range api.Statuses(repository, r.FormValue("commit")) {
			_, _ = fmt.Fprintf(w, "status %s: %s: %s\n", s.Context, s.State, s.Description)
		}
	})
	fmt.Fprintf(os.Stdout, "http://%s\n%s\n%s\n%s\n", first.Addr(), issuer.URL, api.Token().Reveal(), key)
	ended := make(chan error, 2)
	for l, handler := range map[net.Listener]http.Handler{first: mux, second: issuer} {
		s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		defer context.AfterFunc(ctx, func() { _ = s.Close() })()
		go func() { ended <- s.Serve(l) }()
	}
	if err := <-ended; ctx.Err() == nil {
		return err
	}
	return nil
}

func listen(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}

// jobToken gives the OIDC token of a job, as GitHub does to who has the job's key. Which job it is stands in the address.
func jobToken(issuer *provider.Provider, key string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key {
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
		_ = json.NewEncoder(w).Encode(map[string]string{"value": issuer.Token("RS256", claims)})
	}
}

// ask prints what is at an address.
func ask(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", address, response.Status)
	}
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
