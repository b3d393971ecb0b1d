package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/internal/config"
)

func TestConfigure_WritesAFileThatTheAgentReads(t *testing.T) {
	w := newWorld(t)
	token := strings.TrimSpace(w.ok("pool", "create", "second"))
	file := filepath.Join(t.TempDir(), "dayfly.yaml")
	args := []string{"configure", "--config", file, "--service-url", w.url, "--token-file", "-", "--data", "/srv/dayfly", "--source-root", "/srv/one", "--source-root", "/srv/two", "--concurrency", "3"}
	got := w.in(t.Context(), token+"\n", args...)
	if got.code != cli.ExitOK || strings.Contains(got.stdout+got.stderr, token) {
		t.Fatalf("got %+v", got)
	}
	has(t, "what it says", got.stdout+got.stderr, "it is that of pool second", "wrote "+file+"; start the agent with: dayfly agent --config "+file)
	loaded, err := config.Load(config.Agent, config.Sources{File: file})
	if err != nil || loaded.Token.Reveal() != token || loaded.ServiceURL != w.url || loaded.WorkingDirectory != "/srv/dayfly" || len(loaded.SourceRoots) != 2 || loaded.Concurrency != 3 || len(loaded.Notices) > 0 {
		t.Errorf("got %+v, %v", loaded, err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "# yaml-language-server: $schema="+w.url+"/schemas/agent.json\n") {
		t.Errorf("it is %s, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file for its owner alone", info, err)
	}
	if again := w.in(t.Context(), token, args...); again.code != cli.ExitUsage || !strings.Contains(again.stderr, file+" exists already: --force replaces it") {
		t.Errorf("again: got %+v", again)
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("configure", "--config", file, "--service-url", w.url, "--token-file", tokenFile, "--force")
	if loaded, err := config.Load(config.Agent, config.Sources{File: file}); err != nil || loaded.Concurrency != 0 {
		t.Errorf("with --force: got %+v, %v", loaded, err)
	}
}

func TestConfigure_WhatIsWrongWritesNothing(t *testing.T) {
	w := newWorld(t)
	for name, tc := range map[string]struct {
		stdin string
		args  []string
		code  int
		says  []string
	}{
		"several mistakes": {"dfp_x", []string{"--service-url", "x", "--token-file", "-", "--concurrency", "many", "--deploy-target", "moon"}, cli.ExitUsage, []string{"service_url: want an address", "concurrency: want a number", "deploy_target: want auto"}},
		"no token":         {"", []string{"--service-url", w.url}, cli.ExitUsage, []string{"token: is required"}},
		"an empty pipe":    {"", []string{"--service-url", w.url, "--token-file", "-"}, cli.ExitUsage, []string{"standard input is empty"}},
		"an unknown token": {"dfp_x", []string{"--service-url", w.url, "--token-file", "-"}, cli.ExitRefused, []string{"does not accept the pool token"}},
		"of a person":      {w.admin, []string{"--service-url", w.url, "--token-file", "-"}, cli.ExitRefused, []string{"an agent needs that of a pool"}},
		"nobody there":     {"dfp_x", []string{"--service-url", "http://127.0.0.1:1", "--token-file", "-"}, cli.ExitUnreachable, []string{"--skip-check"}},
	} {
		file := filepath.Join(t.TempDir(), "dayfly.yaml")
		got := w.in(t.Context(), tc.stdin, append([]string{"configure", "--config", file}, tc.args...)...)
		if got.code != tc.code || strings.Contains(got.stderr, "dfp_x") {
			t.Errorf("%s: got %+v, want exit %d", name, got, tc.code)
		}
		has(t, name, got.stderr, tc.says...)
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s: there is a file", name)
		}
	}
	file := filepath.Join(t.TempDir(), "dayfly.yaml")
	if got := w.in(t.Context(), "dfp_x", "configure", "--config", file, "--service-url", "http://127.0.0.1:1", "--token-file", "-", "--skip-check"); got.code != cli.ExitOK {
		t.Errorf("without the check: got %+v", got)
	}
}

func TestSchema_IsThatOfTheProgram(t *testing.T) {
	w := newWorld(t)
	for of, part := range map[string]string{"agent": `"health_threshold": {`, "workspace": `"engine_version": {`} {
		has(t, of, w.ok("schema", of), part, `"$schema": "https://json-schema.org/draft/2020-12/schema"`)
	}
}
