package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// thing is code whose plan adds one thing to a state that is empty. It needs no provider of a registry.
const thing = "resource \"terraform_data\" \"thing\" {\n  input = \"made by hand\"\n}\n"

// codeDir is where the code lies that ran before Dayfly.
func (d *demo) codeDir() string { return filepath.Join(d.temp, "code") }

// ranBefore shows what becomes of code in which the engine ran before.
func (d *demo) ranBefore(ctx context.Context) error {
	local, err := d.byHand(ctx, "network", map[string]string{"main.tf": thing})
	if err != nil {
		return err
	}
	refused, err := d.follow(ctx, "Its state lies beside it: no run begins on an empty one instead", local, "preview", "")
	if err != nil {
		return err
	}
	d.expect(&refused, "failed", "state_elsewhere")
	refused.check(strings.Contains(refused.answer.Detail, "--take-over"), "the reason is %q", refused.answer.Detail)
	taken, err := d.follow(ctx, "The same, taken over: there is nothing to add", local, "update", "", "--take-over")
	if err != nil {
		return err
	}
	d.expect(&taken, "succeeded", "")
	taken.counts(0, 0, 0, 0)
	after, err := d.follow(ctx, "A preview after that: the state is known", local, "preview", "")
	if err != nil {
		return err
	}
	d.expect(&after, "succeeded", "")
	after.counts(0, 0, 0, 0)

	d.results = append(d.results, refused, taken, after)
	if d.target == "docker" {
		note("left out: code that declares a backend, whose server on this machine's loopback no container reaches")
		return nil
	}
	return d.declaredBackend(ctx)
}

// declaredBackend is ranBefore for code whose state is kept by a server.
func (d *demo) declaredBackend(ctx context.Context) error {
	server, err := serveStates(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	remote, err := d.byHand(ctx, "cluster", map[string]string{
		"main.tf": thing, "backend.tf": fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n  }\n}\n", server.url+"/cluster"),
	})
	if err != nil {
		return err
	}
	declared, err := d.follow(ctx, "Its code declares a backend: that is used", remote, "preview", "")
	if err != nil {
		return err
	}
	d.expect(&declared, "succeeded", "")
	declared.counts(0, 0, 0, 0)
	// From now on Dayfly is to keep the state, whatever the code declares.
	if err := d.apply(ctx, map[string]any{
		"name": "cluster-moved", "engine": d.engine.name, "source": map[string]any{"directory": remote}, "state": map[string]any{"kind": "directory"},
	}); err != nil {
		return err
	}
	moved, err := d.follow(ctx, "A workspace that keeps its state elsewhere takes over that of the backend", "cluster-moved", "update", "", "--take-over")
	if err != nil {
		return err
	}
	d.expect(&moved, "succeeded", "")
	moved.counts(0, 0, 0, 0)
	d.results = append(d.results, declared, moved)
	return nil
}

// byHand writes code and applies it with the engine itself, as its user did before.
func (d *demo) byHand(ctx context.Context, name string, files map[string]string) (dir string, err error) {
	heading("Code that ran before: %s init and apply by hand, in %s", d.engine.name, name)
	dir = filepath.Join(d.codeDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // code, for every user
		return "", err
	}
	for file, text := range files {
		if err := writeOpen(filepath.Join(dir, file), text); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"init", "-input=false"}, {"apply", "-input=false", "-auto-approve"}} {
		c := exec.CommandContext(ctx, filepath.Join(d.engine.dir, d.engine.name), append(args, "-no-color")...)
		c.Dir, c.Env = dir, append([]string{"CHECKPOINT_DISABLE=1"}, d.env...)
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s %s in %s: %w\n%s", d.engine.name, args[0], name, err, out)
		}
	}
	note("its state has one thing in it")
	return dir, nil
}

// apply registers a workspace.
func (d *demo) apply(ctx context.Context, w map[string]any) error {
	text, err := yaml.Marshal(w)
	if err != nil {
		return err
	}
	file := filepath.Join(d.temp, fmt.Sprint(w["name"], ".yaml"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	_, err = d.read(ctx, "workspace", "apply", "-f", file)
	return err
}

// states is a server for the engines' backend http, which keeps each state under its path.
type states struct {
	url    string
	server *http.Server
	ended  chan struct{}

	mu   sync.Mutex
	docs map[string][]byte
}

// serveStates starts one on a free port of loopback.
func serveStates(ctx context.Context) (*states, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &states{url: "http://" + l.Addr().String(), ended: make(chan struct{}), docs: map[string][]byte{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_ = s.server.Serve(l)
		close(s.ended)
	}()
	return s, nil
}

func (s *states) close() {
	_ = s.server.Close()
	<-s.ended
}

// ServeHTTP implements http.Handler.
func (s *states) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch doc := s.docs[r.URL.Path]; {
	case r.Method == http.MethodPost:
		s.docs[r.URL.Path] = body
	case doc == nil:
		http.NotFound(w, r)
	default:
		_, _ = w.Write(doc)
	}
}
