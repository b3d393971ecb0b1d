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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/built"
)

const (
	testImage = "dayfly-test-isolation"
	upArg     = "play-dayfly-up"
	// forwardedName is a variable that the dayfly of tests forwards to every engine.
	forwardedName = "ATTACK_FORWARDED"
	patience      = 4 * time.Minute // for a machine that is busy
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
	if builtIn, err = os.MkdirTemp("", "isolation"); err != nil {
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

// site is the directories of one dayfly, and a way to it.
type site struct {
	t      *testing.T
	data   string
	runner string // the program that runs jobs, as it ships
	source string // with the attack in it; beside it is the directory of engines, with the attack as one
	said   []string
	cl     *client.Client
	token  string // of the first admin
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
	dir := t.TempDir()
	p, err := needed()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, data: filepath.Join(dir, "data"), runner: p.runner, source: filepath.Join(dir, "source")}
	b, err := os.ReadFile(p.attack)
	if err != nil {
		t.Fatal(err)
	}
	evaluates, err := os.ReadFile(p.policy)
	if err := errors.Join(
		err, os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o711),
		os.Mkdir(s.source, 0o755), os.Chmod(s.source, 0o755),
		os.WriteFile(filepath.Join(s.source, "attack"), b, 0o755),
		os.Mkdir(engines(s.source), 0o755), os.Chmod(engines(s.source), 0o755),
		os.WriteFile(filepath.Join(engines(s.source), "terraform"), b, 0o755),
		os.WriteFile(filepath.Join(engines(s.source), api.PolicyProgram), evaluates, 0o755),
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
func (s *site) open(target string, change ...func(*embedded.AgentConfig)) {
	s.t.Helper()
	log := slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := upConfig(target, s.data, s.source, s.runner, log)
	for _, c := range change {
		c(&cfg.Agent)
	}
	up, err := embedded.OpenUp(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.said = up.Describe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- up.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, up.Close()); err != nil {
			s.t.Errorf("end of up: %v", err)
		}
		s.leftNothing()
	})
	token, err := up.AdminToken()
	if err != nil {
		s.t.Fatal(err)
	}
	s.connect(up.URL(), token)
}

func (s *site) connect(url, token string) { s.cl, s.token = s.client(url, token), token }

func (s *site) client(url, token string) *client.Client {
	s.t.Helper()
	tr := &http.Transport{}
	s.t.Cleanup(tr.CloseIdleConnections)
	cl, err := client.New(client.Config{URL: url, HTTPClient: &http.Client{Transport: tr}, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		s.t.Fatal(err)
	}
	return cl
}

// leftNothing reports directories of jobs and sockets that are left.
func (s *site) leftNothing() {
	s.t.Helper()
	for _, dir := range []string{embedded.JobsDir, embedded.ContainersDir, embedded.RelayDir} {
		entries, err := os.ReadDir(filepath.Join(s.data, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Error(err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != "spools" {
				s.t.Errorf("left: %s", filepath.Join(dir, e.Name()))
			}
		}
		spools, err := filepath.Glob(filepath.Join(s.data, dir, "spools", "*"))
		if err != nil || len(spools) > 0 {
			s.t.Errorf("left: %v, %v", spools, err)
		}
	}
}

// put registers a workspace that runs a command of the attack.
func (s *site) put(name, command string, change ...func(*api.Workspace)) {
	s.t.Helper()
	in := api.Workspace{
		Name: name, RunSettings: api.RunSettings{
			Engine: api.EngineCommand, Source: api.Source{Directory: s.source},
			Commands: map[string]string{"update": "./attack " + command, "preview": "./attack " + command},
		},
	}
	for _, c := range change {
		c(&in)
	}
	if _, _, err := s.cl.PutWorkspace(s.t.Context(), in); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) submit(workspace string, op workflow.Operation) string {
	s.t.Helper()
	wf, err := s.cl.Submit(s.t.Context(), api.Submit{Workspace: workspace, Operation: op})
	if err != nil {
		s.t.Fatal(err)
	}
	return wf.ID
}

func (s *site) show(id string) api.Workflow {
	s.t.Helper()
	wf, err := s.cl.Workflow(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return wf
}

// until waits for something that others bring about.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// log returns all that a run said.
func (s *site) log(id string) string {
	s.t.Helper()
	var text strings.Builder
	for offset := int64(0); ; {
		page, err := s.cl.Logs(s.t.Context(), id, 0, offset, 1000, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, l := range page.Lines {
			text.WriteString(l.Text + "\n")
		}
		if page.Next == offset || len(page.Lines) == 0 {
			return text.String()
		}
		offset = page.Next
	}
}

// owner names the user and group of a file.
func owner(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "?"
	}
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}
