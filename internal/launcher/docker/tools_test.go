package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/toolcache/toolcachetest"
)

// downloader is a launcher that needs no Docker engine for what it downloads.
func downloader(t *testing.T, releases *toolcachetest.Releases, engines ...string) *docker.Launcher {
	t.Helper()
	dir := t.TempDir()
	l, err := docker.New(docker.Config{
		Machine: launcher.Machine{Dir: filepath.Join(dir, "jobs"), ToolsDir: filepath.Join(dir, "tools"), Downloads: engines},
		Image:   "runner", Network: "none", Publishers: releases.Publishers(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// admitted is what comes through the gate of a task.
func admitted(ctx context.Context, t *testing.T, l *docker.Launcher, version string) (bundle contract.Bundle, err error) {
	t.Helper()
	from, gate, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	docker.Admit(ctx, l, gate, launcher.Request{Needs: contract.Needs{Engine: "tofu", EngineVersion: version}})
	raw, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) == 0 {
		return bundle, io.EOF
	}
	return bundle, json.Unmarshal(raw[1:], &bundle)
}

func TestAdmit_EngineIsDownloadedBeforeTheTaskBegins(t *testing.T) {
	releases := toolcachetest.New(t)
	releases.Publish(t, "tofu", "1.10.1", "an engine")
	off, on := downloader(t, releases), downloader(t, releases, "tofu")
	defer func() { _ = errors.Join(off.Close(t.Context()), on.Close(t.Context())) }()
	over, cancel := context.WithCancel(t.Context())
	cancel() // the launch is, before the download is
	for _, tc := range []struct {
		l             *docker.Launcher
		version, says string
		most          int
	}{
		{off, "~> 1.10", "", 0}, {on, "", "only if the workspace has an engine_version", 0}, {on, "no version", "", 0}, {on, "~> 1.10", "", 1}, {on, "1.10.1", "", 1},
		{on, "~> 99.0", "has no such version", 1},
	} {
		got, err := admitted(over, t, tc.l, tc.version)
		if err != nil || !strings.Contains(got.NoDownload, tc.says) || (tc.says == "") != (got.NoDownload == "") {
			t.Errorf("%q: got %q, %v, want %q", tc.version, got.NoDownload, err, tc.says)
		}
		if n := releases.Fetched("tofu"); n != tc.most {
			t.Errorf("%q: got %d downloads, want %d", tc.version, n, tc.most)
		}
	}
	if b, err := os.ReadFile(filepath.Join(on.ToolsDir, "tofu", "1.10.1", "tofu")); err != nil || string(b) != "an engine" {
		t.Errorf("got %q, %v", b, err)
	}
}

// A launcher that ends leaves a waiting task at its gate, where it has done nothing.
func TestAdmit_DownloadEndsWithTheLauncher(t *testing.T) {
	releases := toolcachetest.New(t)
	releases.Publish(t, "tofu", "1.10.1", "an engine")
	asked := make(chan struct{}, 9)
	releases.Before = func(r *http.Request) { asked <- struct{}{}; <-r.Context().Done() }
	l := downloader(t, releases, "tofu")
	closed := make(chan error, 1)
	go func() {
		<-asked
		closed <- l.Close(context.WithoutCancel(t.Context()))
	}()
	if got, err := admitted(t.Context(), t, l, "~> 1.10"); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v, want that the gate stays closed", got, err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
