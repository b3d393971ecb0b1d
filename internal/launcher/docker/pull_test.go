package docker_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
)

// engineOf is a Docker engine that has some images and reaches a registry with others.
func engineOf(t *testing.T, has, registry string) (socket string, pulled *[]string) {
	t.Helper()
	socket, pulled = filepath.Join(t.TempDir(), "s"), &[]string{}
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // of a test
		w.Header().Set("Api-Version", "1.41")
		_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch image := r.URL.Query().Get("fromImage"); {
		case path == "images/create" && image == registry:
			*pulled = append(*pulled, image)
			_, _ = fmt.Fprint(w, `{"status":"Pulling"}{"status":"Done"}`)
		case path == "images/create":
			_, _ = fmt.Fprint(w, `{"status":"Pulling"}{"error":"no such manifest"}`)
		case path == "images/"+has+"/json", r.URL.Path == "/_ping":
			_, _ = fmt.Fprint(w, `{}`)
		default:
			http.Error(w, `{"message":"No such image"}`, http.StatusNotFound)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket, pulled
}

func TestPull_TheNewestImageOrTheOneThatIsThere(t *testing.T) {
	for name, tc := range map[string]struct{ image, has, registry, says string }{
		"with a tag":             {image: "reg.example.com:5000/run:v1", registry: "reg.example.com:5000/run:v1"},
		"without one":            {image: "reg.example.com:5000/run", registry: "reg.example.com:5000/run:latest"},
		"with a digest":          {image: "run@sha256:0123", registry: "run@sha256:0123"},
		"the registry is away":   {image: "run:v1", has: "run:v1"},
		"it is nowhere":          {image: "run:v1", says: "pull image run:v1: no such manifest"},
		"another one than there": {image: "run:v2", has: "run:v1", says: "pull image run:v2"},
	} {
		socket, pulled := engineOf(t, tc.has, tc.registry)
		l, err := docker.New(docker.Config{Machine: launcher.Machine{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, Image: tc.image, Pull: []string{tc.image}, Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		err = docker.Pull(t.Context(), l, tc.image)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", name, err, tc.says)
		}
		if got := strings.Join(*pulled, " "); got != tc.registry {
			t.Errorf("%s: pulled %q, want %q", name, got, tc.registry)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A dayfly in a container has other paths than the engine that mounts them.
func TestContainer_MountsAreThoseOfTheEngine(t *testing.T) {
	for host, want := range map[string]string{"": "/data/relay/wf-1-2", "/srv/host": "/srv/host/relay/wf-1-2"} {
		l, err := docker.New(docker.Config{Machine: launcher.Machine{Dir: t.TempDir()}, Image: "x:1", Data: "/data", HostData: host})
		if err != nil {
			t.Fatal(err)
		}
		text, err := docker.Posture(l, launcher.Request{Workflow: "wf-1", Ticket: "sealed", Relay: "unix:///data/relay/wf-1-2/relay.sock"})
		if err != nil || !strings.Contains(string(text), `"Source":"`+want+`","Target":"/run/dayfly"`) {
			t.Errorf("%q: got %s, %v, want the source %s", host, text, err, want)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
