package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/test/built"
)

// runnerImage is an image with the real runner, which probes when it is told to.
var runnerImage = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runner")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	runner, err := built.Program(context.Background(), dir, "runnerimage")
	if err != nil {
		return "", err
	}
	const name = "dayfly-test-runner"
	return name, docker.Build(context.Background(), "", docker.Image{
		Tag: name, Files: []docker.File{{From: runner, To: "/runner"}}, Entrypoint: []string{"/runner"},
	})
})

// What a container reaches is asked of a container: by its socket without any network, and at the
// gateway of its network.
func TestCheck_AsksAContainer(t *testing.T) {
	image(t)
	name, err := runnerImage()
	if err != nil {
		t.Fatalf("%v: %s", err, name)
	}
	t.Run("socket, no network", func(t *testing.T) {
		c := config(filepath.Join(t.TempDir(), strings.Repeat("long", 20)), name, time.Minute)
		c.Network = "none"
		if got, err := open(t, c).Check(t.Context()); err != nil || !got.Sockets {
			t.Errorf("got %+v, %v; want sockets", got, err)
		}
	})
	t.Run("gateway", func(t *testing.T) {
		c := config(t.TempDir(), name, time.Minute)
		c.Network = docker.NetworkOwn
		l := open(t, c)
		got, err := docker.CheckWithoutSockets(t.Context(), l)
		if err != nil || got.Sockets || got.Listen == "" || got.Host != got.Listen {
			t.Errorf("got %+v, %v; want a host to listen on", got, err)
		}
	})
	t.Run("something else in the image", func(t *testing.T) {
		l := open(t, config(t.TempDir(), playerImage, time.Minute))
		if got, err := l.Check(t.Context()); err == nil {
			t.Errorf("got %+v, want an error", got)
		}
	})
	t.Run("no image", func(t *testing.T) {
		l := open(t, config(t.TempDir(), "dayfly-test-no-such-image", time.Minute))
		if _, err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "make image") {
			t.Errorf("got %v, want what to do", err)
		}
	})
}
