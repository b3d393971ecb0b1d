package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/built"
)

var (
	_ launcher.Launcher = (*docker.Launcher)(nil)
	_ launcher.Watcher  = (*docker.Launcher)(nil)
	_ launcher.Spooler  = (*docker.Launcher)(nil)
)

const (
	hostVariable = "DOCKER_TEST_HOST" // this binary is to run a launcher, which will be killed
	playerImage  = "dayfly-test-player"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(hostVariable); text != "" {
		os.Exit(host(text))
	}
	os.Exit(leak.Main(m))
}

var player = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "player")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	player, err := built.Program(context.Background(), dir, "internal/launcher/docker/testdata/player")
	if err != nil {
		return "", err
	}
	return playerImage, docker.Build(context.Background(), "", docker.Image{
		Tag: playerImage, Files: []docker.File{{From: player, To: "/player"}}, Entrypoint: []string{"/player"},
	})
})

// image makes the image of the tests' tasks, or skips the test where there is no engine.
func image(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a Docker engine is not used in short tests")
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "unix", docker.DefaultSocket)
	if err != nil {
		t.Skipf("no Docker engine answers here: %v", err)
	}
	_ = c.Close()
	name, err := player()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// config is the part of docker.Config that crosses to another process. Its tasks use the network of
// the machine, on which the stage listens.
func config(dir, image string, grace time.Duration) docker.Config {
	return docker.Config{Machine: launcher.Machine{Dir: dir, StateRoot: filepath.Join(dir, "state"), Grace: grace}, Image: image, Network: "host"}
}

func open(t *testing.T, c docker.Config) *docker.Launcher {
	t.Helper()
	l, err := docker.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, l) })
	return l
}

// end removes every container of a launcher and closes it.
func end(t *testing.T, l *docker.Launcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := docker.RemoveAll(ctx, l); err != nil {
		t.Errorf("clean up: %v", err)
	}
	if err := l.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// hosted is what the process that runs a launcher is told.
type hosted struct {
	Dir, Image string
	Request    launcher.Request
}

// host runs a launcher until it is killed.
func host(text string) int {
	var h hosted
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return 91
	}
	l, err := docker.New(config(h.Dir, h.Image, time.Hour))
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 92
	}
	task, err := l.Launch(context.Background(), h.Request)
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 93
	}
	if err := json.NewEncoder(os.Stdout).Encode(task); err != nil {
		return 94
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 95
}

// crash launches r with a launcher in another process, and kills that process.
func crash(t *testing.T, h hosted, alive func()) launcher.Task {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), hostVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var task launcher.Task
	if err := json.NewDecoder(out).Decode(&task); err != nil {
		t.Fatal(err)
	}
	alive()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok {
		t.Fatal("the launcher was to be killed and ended by itself")
	}
	return task
}

// C4, O2: one container per job, found again after a restart of its launcher, which goes on.
func TestLauncher_KeepsTheContract(t *testing.T) {
	image := image(t)
	launchertest.Run(t, launchertest.Harness{
		New: func(t *testing.T, grace time.Duration) launcher.Launcher {
			return open(t, config(t.TempDir(), image, grace))
		},
		Crash: func(t *testing.T, r launcher.Request, alive func()) (launcher.Launcher, launcher.Task) {
			dir := t.TempDir()
			task := crash(t, hosted{dir, image, r}, alive)
			// This one knows a short grace: the stubborn task of the other is killed after it.
			return open(t, config(dir, image, 100*time.Millisecond)), task
		},
	})
}
