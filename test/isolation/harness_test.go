// Package isolation_test runs workflow code that attacks: its own runner, the other jobs, and the
// machine; from inside a container, and as a process of a machine whose dayfly is root. Each way is a
// test of its own. It also makes what a stranger can make at a git host: pull requests, comments, webhooks and pipelines.
// It kills dayfly in the middle of jobs and counts what they did.
package isolation_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/test/built"
	"github.com/dayfly-dev/dayfly/test/uptest"
)

const (
	testImage = "dayfly-test-isolation"
	upArg     = "play-dayfly-up"
	// forwardedName is a variable that the dayfly of tests forwards to every engine.
	forwardedName = "ATTACK_FORWARDED"
)

func TestMain(m *testing.M) {
	child.CloseInherited() // as every main does
	if len(os.Args) > 1 && os.Args[1] == upArg {
		os.Exit(playUp(os.Args[2:]))
	}
	code := m.Run()
	if *printTable {
		report(os.Stdout, *printEach)
	}
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

// builtIn is the directory of what was built, if anything was; TestMain removes it.
var builtIn string

// programs are paths of what the tests run.
type programs struct{ attack, runner, policy string }

// needed are the attack, the runner of a container and the program that evaluates policies.
var needed = sync.OnceValues(func() (p programs, err error) {
	if builtIn, err = os.MkdirTemp("", "isolation"); err == nil {
		err = os.Chmod(builtIn, 0o711) // policies are evaluated by a user of their own
	}
	if err != nil {
		return p, err
	}
	for pkg, at := range map[string]*string{"test/isolation/testdata/attack": &p.attack, "runnerimage": &p.runner, "cmd/dayfly-policy": &p.policy} {
		if *at, err = built.Program(context.Background(), builtIn, pkg); err != nil {
			return p, err
		}
	}
	return p, nil
})

// builtImage has the runner, and the attack in place of a shell and of an engine.
var builtImage = sync.OnceValue(func() error {
	p, err := needed()
	if err != nil {
		return err
	}
	return docker.Build(context.Background(), "", docker.Image{
		Tag: testImage, Entrypoint: []string{"/runner"}, Path: "/bin",
		Files: []docker.File{{From: p.runner, To: "/runner"}, {From: p.attack, To: "/bin/sh"}, {From: p.attack, To: "/bin/terraform"}},
	})
})

// site is a dayfly whose sources have the attack in them; beside them is the directory of engines, with the attack as one.
type site struct {
	*uptest.World
	runner string // the program that runs jobs, as it ships
}

// needs skips a test where its target cannot be.
func needs(t *testing.T, target string) {
	t.Helper()
	if not := missing(t, target); not != "" {
		t.Skip(not)
	}
}

// missing says what a target lacks here.
func missing(t *testing.T, target string) string {
	t.Helper()
	if testing.Short() {
		return "this needs built programs, and a Docker engine or root"
	}
	if target == config.TargetProcess {
		if os.Geteuid() != 0 {
			return "process isolation is a barrier only where dayfly runs as root"
		}
		return ""
	}
	c, err := (&net.Dialer{Timeout: time.Minute}).DialContext(t.Context(), "unix", docker.DefaultSocket)
	if err != nil {
		return fmt.Sprintf("no Docker engine answers here: %v", err)
	}
	_ = c.Close()
	if err := builtImage(); err != nil {
		t.Fatal(err)
	}
	return ""
}

func newSite(t *testing.T) *site {
	t.Helper()
	p, err := needed()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{World: uptest.New(t), runner: p.runner}
	b, err := os.ReadFile(p.attack)
	if err != nil {
		t.Fatal(err)
	}
	evaluates, err := os.ReadFile(p.policy)
	if err := errors.Join(
		err,
		os.WriteFile(filepath.Join(s.Source, "attack"), b, 0o755),
		os.Mkdir(engines(s.Source), 0o755), os.Chmod(engines(s.Source), 0o755),
		os.WriteFile(filepath.Join(engines(s.Source), api.EngineTerraform), b, 0o755),
		os.WriteFile(filepath.Join(engines(s.Source), api.EnginePulumi), b, 0o755),
		os.WriteFile(filepath.Join(engines(s.Source), api.EngineTerragrunt), b, 0o755),
		os.WriteFile(filepath.Join(engines(s.Source), api.PolicyProgram), evaluates, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return s
}

func engines(source string) string { return filepath.Join(filepath.Dir(source), "engines") }

// upConfig is what a dayfly of tests is made of.
func upConfig(target, data, source, runner string, log *slog.Logger) embedded.UpConfig {
	s := config.Default()
	s.DeployTarget, s.RunnerImage, s.RunnerNetwork = target, testImage, config.NetworkNone
	s.SourceRoots = []string{filepath.Dir(source)}
	s.EnvForwardAllowlist = []string{forwardedName}
	s.PrivateDeliveries = []string{listed}
	s.EngineDownloads = []string{"terraform"}
	s.ProviderCache, s.ProviderCacheSize = true, 1
	for _, h := range preapproved {
		s.PreapprovedHooks = append(s.PreapprovedHooks, h.Digest())
	}
	s.PollingInterval, s.JobStatusLoopInterval = time.Second, time.Second
	return embedded.UpConfig{
		Server: embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0", Log: log},
		Agent:  embedded.AgentConfig{Settings: s, Runner: []string{runner}, Path: engines(source) + ":/usr/local/bin:/usr/bin:/bin", ShutdownGrace: 20 * time.Second, Log: log},
	}
}

// open runs a dayfly in this process until the test ends.
func (s *site) open(target string, changes ...func(*embedded.UpConfig)) {
	s.T.Helper()
	s.Open(upConfig(target, s.Data, s.Source, s.runner, uptest.Log(s.T)), changes...)
}

// put registers a workspace that runs a command of the attack.
func (s *site) put(name, command string, changes ...func(*api.Workspace)) {
	s.T.Helper()
	s.Put(name, map[string]string{"update": "./attack " + command, "preview": "./attack " + command}, changes...)
}

// owner names the user and group of a file.
func owner(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "?"
	}
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}
