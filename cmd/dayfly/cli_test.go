package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/setup"
	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/httpapi"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// world is a control plane and an admin of it at a terminal.
type world struct {
	t     *testing.T
	plane *controlplane.Plane
	store *memory.Store
	url   string
	admin string // the first admin's token
	env   map[string]string
	shift atomic.Int64 // of the control plane's clock, in nanoseconds
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: memory.New(), env: map[string]string{"HOME": t.TempDir(), "PATH": os.Getenv("PATH")}}
	w.listen()
	token, err := w.plane.Bootstrap(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	w.admin, w.env["DAYFLY_API_TOKEN"] = token, token
	return w
}

// clone is a world of its own that begins as this one is now. They share the home directory.
func (w *world) clone(t *testing.T) *world {
	t.Helper()
	c := &world{t: t, store: w.store.Clone(), admin: w.admin, env: maps.Clone(w.env)}
	c.listen()
	return c
}

func (w *world) listen() {
	now := func() time.Time { return time.Now().Add(time.Duration(w.shift.Load())) }
	w.plane = controlplane.New(w.store, controlplane.Config{DefaultState: api.StateDirectory, Now: now, WebhookKey: func(context.Context) ([]byte, error) { return []byte("of the secrets of webhooks"), nil }})
	server := httptest.NewServer(httpapi.New(w.plane, httpapi.Config{}))
	w.t.Cleanup(server.Close)
	w.url, w.env["DAYFLY_URL"] = server.URL, server.URL
}

// answer is the output and the exit code of a command.
type answer struct {
	code           int
	stdout, stderr string
}

// lockedBuffer may be read while a command writes to it.
type lockedBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	written chan struct{} // holds one when something was written since it was last taken; nil: nobody asks
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *world) in(ctx context.Context, stdin string, args ...string) answer {
	w.t.Helper()
	var stdout, stderr lockedBuffer
	code := command(ctx, args, func(name string) string { return w.env[name] }, strings.NewReader(stdin), &stdout, &stderr)
	return answer{code, stdout.String(), stderr.String()}
}

func (w *world) run(args ...string) answer {
	w.t.Helper()
	return w.in(w.t.Context(), "", args...)
}

// ok runs a command that must succeed and returns its output.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	got := w.run(args...)
	if got.code != cli.ExitOK {
		w.t.Fatalf("dayfly %s: exit %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
	}
	return got.stdout
}

// value runs a command with -o json and decodes its output.
func value[T any](w *world, args ...string) T {
	w.t.Helper()
	var v T
	text := w.ok(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		w.t.Fatalf("dayfly %s: %v in\n%s", strings.Join(args, " "), err, text)
	}
	return v
}

// stack claims one job as an agent would and returns the runner's side of it.
func (w *world) claim() (api.Job, *client.Runner) {
	w.t.Helper()
	ctx := w.t.Context()
	token, err := w.plane.EnsurePoolToken(ctx, "default", "default", "test")
	if err != nil {
		w.t.Fatal(err)
	}
	pool, err := client.New(client.Config{URL: w.url, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		w.t.Fatal(err)
	}
	var got api.Claimed
	for range 10 { // polls of 20 s: the test that submits the workflow may have to wait for the CPU
		if got, err = pool.Claim(ctx, api.Claim{Instance: "test", Max: 1, WaitSeconds: 20}); err != nil || len(got.Jobs) > 0 {
			break
		}
	}
	if err != nil || len(got.Jobs) != 1 {
		w.t.Fatalf("claim: got %d jobs, %v", len(got.Jobs), err)
	}
	job := got.Jobs[0]
	if err := pool.Launch(ctx, job.ID, api.Launch{Attempt: job.Attempt, Kind: api.LaunchAccepted, Task: "task-1"}); err != nil {
		w.t.Fatal(err)
	}
	runner, err := client.NewRunner(client.RunnerConfig{
		URL: w.url, Credential: redact.New(job.Token),
		Run: api.Run{Workflow: job.ID, Attempt: job.Attempt, Task: "task-1", Boot: strings.Repeat("ab", 16)},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := runner.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	return job, runner
}

func (w *world) workspace(name string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "workspace.yaml")
	text := "name: " + name + "\nengine: command\ncommands: {preview: 'true', update: 'true', destroy: 'true'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.ok("apply", "-f", file)
}

func has(t *testing.T, name, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s: got\n%s\nwant it to contain %q", name, text, want)
		}
	}
}

func TestCommand_Workspaces(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "both.yaml")
	if err := os.WriteFile(file, []byte("name: one\nengine: tofu\nsource: {directory: code}\n---\nname: two\nengine: command\ncommands: {update: 'true'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	has(t, "first apply", w.ok("apply", "-f", file), "workspace one is created", "workspace two is created")
	has(t, "second apply", w.ok("apply", "-f", file), "workspace one is unchanged", "workspace two is unchanged")
	if err := os.WriteFile(file, []byte("name: one\nengine: tofu\nsource: {directory: code}\nvariables: {n: 1.5, list: [1, two], nothing: null}\nenvironment: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, outcome := range []api.Outcome{api.OutcomeChanged, api.OutcomeUnchanged} {
		if got := value[[]setup.Change](w, "apply", "-f", file); len(got) != 1 || got[0].Outcome != outcome {
			t.Errorf("got %+v, want it %s", got, outcome)
		}
	}
	has(t, "list", w.ok("ws", "list"), "WORKSPACE", "one", "tofu", filepath.Join(dir, "code"))
	has(t, "show", w.ok("workspace", "show", "one"), "engine", "tofu", filepath.Join(dir, "code"))
	if got := value[api.Workspace](w, "workspace", "show", "two"); got.Engine != "command" || got.Source.Directory != dir {
		t.Errorf("got %+v", got)
	}
	if got := w.run("workspace", "delete", "two"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--yes") {
		t.Errorf("delete without --yes: got %+v", got)
	}
	w.ok("workspace", "delete", "two", "--yes")
	if got := value[[]api.Workspace](w, "workspace", "list"); len(got) != 1 || got[0].Name != "one" {
		t.Errorf("after the deletion: got %+v", got)
	}
}

func TestCommand_ApplyTakesSeveralFilesAndStandardInput(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const doc = "\nengine: command\ncommands: {update: 'true'}\n"
	one, two, odd := write("one.yaml", "name: one"+doc), write("two.yaml", "name: two"+doc), write("odd.yaml", "name: odd\nengine: 5\n")
	t.Chdir(dir)

	got := w.in(t.Context(), "name: three"+doc, "apply", "-f", one, "-f", "-", "-f", two)
	if got.code != cli.ExitOK {
		t.Fatalf("got %+v", got)
	}
	has(t, "apply", got.stdout, "workspace one is created\nworkspace three is created\nworkspace two is created\n")
	if got := value[api.Workspace](w, "workspace", "show", "three"); got.Source.Directory != dir {
		t.Errorf("a description on standard input means the current directory: got %+v", got.Source)
	}

	for says, args := range map[string][]string{
		"want a string":                   {"-f", write("four.yaml", "name: four"+doc), "-f", odd},
		"one is described in":             {"-f", one, "-f", write("again.yaml", "name: one"+doc)},
		"can be read only once":           {"-f", "-", "-f", "-"},
		"standard input: has no document": {"-f", "-"},
	} {
		if got := w.in(t.Context(), "", append([]string{"apply"}, args...)...); got.code != cli.ExitUsage || !strings.Contains(got.stderr, says) || got.stdout != "" {
			t.Errorf("%v: got %+v, want exit 64 and %q", args, got, says)
		}
	}
	if got := w.run("workspace", "show", "four"); got.code != cli.ExitRefused {
		t.Errorf("a document before a mistake was registered: got %+v", got)
	}
}

// C1: the token is shown once, alone on standard output; rename, disable, rotate, delete.
func TestCommand_PoolsAreManaged(t *testing.T) {
	w := newWorld(t)
	made := w.run("pool", "create", "trusted", "--description", "for production", "--concurrency", "3", "--type", "deployment")
	token := strings.TrimSpace(made.stdout)
	if made.code != cli.ExitOK || !strings.HasPrefix(token, "dfp_") || strings.Contains(made.stderr, token) {
		t.Fatalf("create: got %+v", made)
	}
	if shown := w.ok("pool", "show", "trusted"); strings.Contains(shown, token) {
		t.Error("the token is shown again")
	}
	got := value[api.Pool](w, "pool", "show", "trusted")
	if got.Description != "for production" || got.Concurrency != 3 || len(got.EnabledTypes) != 1 || !got.AssignedToAll || got.IsDisabled {
		t.Errorf("after create: got %+v", got)
	}
	w.workspace("one")
	w.ok("pool", "update", "trusted", "--rename", "inner", "--disabled", "--multiple-instances", "--workspace", "one", "--all-types")
	got = value[api.Pool](w, "pool", "show", "inner")
	if !got.IsDisabled || !got.AllowMultipleInstances || got.AssignedToAll || len(got.EnabledTypes) != 0 || got.Concurrency != 3 {
		t.Errorf("after update: got %+v", got)
	}
	w.ok("pool", "update", "inner", "--no-disabled", "--all-workspaces")
	if got = value[api.Pool](w, "pool", "show", "inner"); got.IsDisabled || !got.AssignedToAll || !got.AllowMultipleInstances {
		t.Errorf("after the second update: got %+v", got)
	}
	if next := strings.TrimSpace(w.ok("pool", "rotate-token", "inner", "--overlap", "1h")); next == token || !strings.HasPrefix(next, "dfp_") {
		t.Errorf("rotate: got %q", next)
	}
	has(t, "list", w.ok("pool", "list"), "inner", "default", "inactive", "never")
	has(t, "show", w.ok("pool", "show", "inner"), "last seen            never")
	if got := value[map[string]any](w, "pool", "show", "inner"); got["last_seen"] != nil {
		t.Errorf("never is %v as JSON, want none", got["last_seen"])
	}
	pool, err := w.plane.EnsurePoolToken(t.Context(), "default", "default", "test")
	if err != nil {
		t.Fatal(err)
	}
	who, err := w.plane.Authenticate(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.plane.Claim(t.Context(), who, api.Claim{Instance: "test", Max: 1}); err != nil {
		t.Fatal(err)
	}
	has(t, "list after a poll", w.ok("pool", "list"), "healthy", "s ago")
	if got := w.run("pool", "update", "inner"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "name at least one setting to change") {
		t.Errorf("an update of nothing: got %+v", got)
	}
	w.ok("pool", "delete", "inner", "-y")
	if got := w.run("pool", "show", "inner"); got.code != cli.ExitRefused {
		t.Errorf("after the deletion: got %+v", got)
	}
}

func TestCommand_AnOrganizationSetsItsRetention(t *testing.T) {
	w := newWorld(t)
	has(t, "show", w.ok("organization", "show"), "organization default", "workflows kept    400 days", "logs kept         90 days", "audit trail kept  for ever")
	if got := w.run("organization", "update", "--log-days", "30"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "cannot be restored") {
		t.Errorf("nobody was asked: got %+v", got)
	}
	has(t, "update", w.ok("org", "update", "--log-days", "30", "--audit-days", "1000", "--yes"), "400 days", "30 days", "1000 days")
	if o := value[api.Organization](w, "organization", "show"); o.LogRetention != 30 || o.AuditRetention != 1000 || o.WorkflowRetention != 400 {
		t.Errorf("after it: %+v", o)
	}
	if got := w.run("organization", "update", "--workflow-days", "7", "--yes"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "workflow_retention_days") {
		t.Errorf("too short: got %+v", got)
	}
	if got := w.run("organization", "update", "--yes"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--log-days") {
		t.Errorf("nothing named: got %+v", got)
	}
}

func TestCommand_LoginChecksTheTokenAndRemembersIt(t *testing.T) {
	w := newWorld(t)
	token := w.env["DAYFLY_API_TOKEN"]
	delete(w.env, "DAYFLY_API_TOKEN")
	delete(w.env, "DAYFLY_URL")
	if got := w.run("workflow", "list"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "dayfly up") {
		t.Errorf("before login: got %+v", got)
	}
	if got := w.in(t.Context(), "dfu_wrong\n", "login", w.url); got.code != cli.ExitRefused || strings.Contains(got.stderr, "dfu_wrong") ||
		!strings.Contains(got.stderr, "does not know this token: check that all of it was copied") || strings.Contains(got.stderr, "log in again") {
		t.Errorf("a wrong token: got %+v", got)
	}
	pool, err := w.plane.EnsurePoolToken(t.Context(), "default", "default", "test")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.in(t.Context(), pool, "login", w.url); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "token of a pool") {
		t.Errorf("a pool's token: got %+v", got)
	}
	if got := w.in(t.Context(), token+"\n", "login", w.url+"/"); got.code != cli.ExitOK || strings.Contains(got.stdout+got.stderr, token) {
		t.Fatalf("login: got %+v", got)
	}
	has(t, "list after login", w.ok("workflow", "list"), "no workflows")
}

func TestCommand_WrongUsageExitsWith64AndARefusalWith2(t *testing.T) {
	w := newWorld(t)
	w.workspace("one")
	for _, tc := range []struct {
		code int
		args []string
		says string
	}{
		{cli.ExitUsage, []string{"nonsense"}, "nonsense"},
		{cli.ExitUsage, []string{"run"}, "dayfly run --help"},
		{cli.ExitUsage, []string{"run", "one", "--op", "explode"}, "--op"},
		{cli.ExitUsage, []string{"run", "one", "-o", "xml"}, "--output"},
		{cli.ExitUsage, []string{"run", "one", "--nmf", "x"}, "unknown flag"},
		{cli.ExitUsage, []string{"run", "one", "--name", "x"}, "--name"},
		{cli.ExitRefused, []string{"run", "one", "--priority", "500"}, "priority"},
		{cli.ExitRefused, []string{"run", "none"}, "there is no workspace none"},
		{cli.ExitUsage, []string{"run", "./none"}, "dayfly: there is no directory or workspace file ./none"},
		{cli.ExitRefused, []string{"workflow", "show", "wf-none"}, "wf-none"},
		{cli.ExitRefused, []string{"workspace", "show", "none"}, `dayfly: there is no workspace "none"`},
		{cli.ExitRefused, []string{"pool", "show", "none"}, `dayfly: there is no pool "none"`},
		{cli.ExitRefused, []string{"secret", "delete", "none", "--yes", "--data", t.TempDir()}, "dayfly: there is no secret none on this machine"},
		{cli.ExitRefused, []string{"run", "one", "--take-over"}, "dayfly: take_over: workspace one has engine command: its commands keep their state"},
		{cli.ExitRefused, []string{"run", "one", "--begin-anew"}, "dayfly: begin_anew: workspace one has"},
		{cli.ExitRefused, []string{"state", "unlock", "one", "x", "--yes"}, "dayfly: operation: workspace one has engine command"},
		{cli.ExitUsage, []string{"state", "unlock", "one", "x"}, "no terminal to ask on: use --yes"},
		{cli.ExitUsage, []string{"token", "revoke", "tok_x"}, "no terminal to ask on: use --yes"},
		{cli.ExitUsage, []string{"pool", "rotate-token", "default"}, "ends the present token of pool default at once"},
		{cli.ExitUsage, []string{"service-principal", "rotate-secret", "x", "--overlap", "0"}, "ends the present secret and tokens of service principal x at once"},
		{cli.ExitUsage, []string{"workflow", "list", "-n", "0"}, "--limit"},
		{cli.ExitRefused, []string{"workflow", "list", "--state", "odd"}, "state"},
		{cli.ExitUsage, []string{"apply", "-f", "/none.yaml"}, "/none.yaml"},
		{cli.ExitRefused, []string{"workspace", "show", ".."}, "cannot be a name"},
		{cli.ExitRefused, []string{"pool", "create", "x"}, "3 to 64"},
		{cli.ExitUsage, []string{"pool", "create", "xyz", "--type", "a", "--all-types"}, "contradict"},
		{cli.ExitUsage, []string{"pool", "rotate-token", "default", "--overlap", "-1s"}, "--overlap"},
		{cli.ExitUsage, []string{"token", "create", "x", "--expires", "1ms"}, "--expires"},
		{cli.ExitUsage, []string{"token", "create", "x", "--grant", "payments"}, "--grant: want PROJECT=ROLE"},
		{cli.ExitUsage, []string{"token", "create", "x", "--grant", "a=viewer", "--grant", "a=admin"}, "--grant: project a is given twice"},
		{cli.ExitUsage, []string{"service-principal", "create", "x", "--grant", "a=viewer", "--grant", "a=admin"}, "--grant: project a is given twice"},
		{cli.ExitUsage, []string{"secret", "set", "../x"}, "../x"},
		{cli.ExitUsage, []string{"login", "ftp://x"}, "https://"},
		{cli.ExitUsage, []string{"login", "http://dayfly.example.com"}, "URL: plain http would show the token"},
		{cli.ExitUsage, []string{"run", "one", "--op", "preview", "--op", "destroy"}, "--op: is given twice; give it once; see dayfly run --help"},
		{cli.ExitUsage, []string{"run", "one", "--priority"}, "--priority"},
		{cli.ExitUsage, []string{"run", "one", "two"}, "two"},
	} {
		got := w.run(tc.args...)
		if got.code != tc.code || !strings.Contains(got.stderr, tc.says) || got.stdout != "" {
			t.Errorf("%v: got %+v, want exit %d and %q", tc.args, got, tc.code, tc.says)
		}
		if !strings.HasPrefix(got.stderr, "dayfly: ") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v: got %q, want one sentence", tc.args, got.stderr)
		}
	}
}

func TestCommand_NoAnswerExitsWith3(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(nil)
	server.Close()
	w.env["DAYFLY_URL"] = server.URL
	if got := w.run("workflow", "cancel", "wf"); got.code != cli.ExitUnreachable || !strings.Contains(got.stderr, "dayfly up starts one") {
		t.Errorf("got %+v, want exit 3", got)
	}
}

func TestCommand_ATokenIsNotSentInClear(t *testing.T) {
	w := newWorld(t)
	w.env["DAYFLY_URL"] = "http://dayfly.example.com"
	if got := w.run("workflow", "list"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "DAYFLY_URL: plain http would show the token") {
		t.Errorf("got %+v, want a refusal that names the variable and the fix", got)
	}
}

func TestCommand_HelpAndVersion(t *testing.T) {
	w := newWorld(t)
	has(t, "help", w.ok("--help"), "Exit codes", "run", "workflow", "secret")
	has(t, "no arguments", w.ok(), "Exit codes")
	has(t, "help of a command", w.ok("run", "--help"), "--op", "--follow")
	has(t, "help, as a word", w.ok("help"), "Exit codes")
	has(t, "help of a command, as a word", w.ok("help", "apply"), "standard input")
	has(t, "version", w.ok("version"), "dayfly ", "go1.")
	has(t, "version, as a flag", w.ok("--version"), "dayfly ", "go1.")
	if help := w.ok("agent", "--help"); strings.Index(help, "--relay-url") < strings.Index(help, "--circuit-breaker-timeout") || !strings.Contains(help, "With deploy target ecs") {
		t.Errorf("the flags of one deploy target come first:\n%s", help)
	}
	if got := value[map[string]string](w, "version"); got["version"] == "" || got["go"] == "" {
		t.Errorf("got %v", got)
	}
}

// R6: a secret's value comes by standard input only and lies in a file of the owner's own.
func TestCommand_SecretsAreKept(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir()
	if got := w.in(t.Context(), "planted-value\n", "secret", "set", "db", "--data", data); got.code != cli.ExitOK || strings.Contains(got.stdout+got.stderr, "planted") {
		t.Fatalf("set: got %+v", got)
	}
	b, err := os.ReadFile(filepath.Join(data, embedded.SecretsDir, "db"))
	if err != nil || string(b) != "planted-value" {
		t.Errorf("got %q, %v", b, err)
	}
	list := w.ok("secret", "list", "--data", data)
	has(t, "list", list, "db", "file:db")
	if strings.Contains(list, "planted") {
		t.Error("the list shows the value")
	}
	if got := w.run("secret", "set", "db", "--data", data); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "empty") {
		t.Errorf("an empty value: got %+v", got)
	}
	w.ok("secret", "delete", "db", "--data", data, "--yes")
	has(t, "list after the deletion", w.ok("secret", "list", "--data", data), "no secrets")
}

func TestCommand_AnOlderDataDirectoryIsRefused(t *testing.T) {
	w := newWorld(t)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "ticket-keys.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"server", "backup", filepath.Join(t.TempDir(), "to")}, {"secret", "set", "db"}, {"secret", "list"}, {"secret", "delete", "db", "--yes"}} {
		got := w.in(t.Context(), "value\n", append(args, "--data", data)...)
		if got.code != cli.ExitRefused || !strings.Contains(got.stderr, data+" is of a version of Dayfly before 0.1.0") {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	if entries, err := os.ReadDir(data); err != nil || len(entries) != 1 {
		t.Errorf("in the directory: %v, %v; want the keys alone", entries, err)
	}
}

func TestCommand_ADirectoryBecomesAWorkspace(t *testing.T) {
	w := newWorld(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "network")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(parent, name)), 0o755); err != nil { //nolint:gosec // a source is not a secret
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(parent, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("network/main.tf", "")
	id := strings.TrimSpace(w.ok("run", dir, "--op", "update", "--yes", "-m", "first"))
	wf := value[api.Workflow](w, "workflow", "show", id)
	if wf.Workspace != "network" || wf.Type != workflow.Deployment || wf.Operation != workflow.Update || wf.Message != "first" {
		t.Errorf("got %+v", wf)
	}
	ws := value[api.Workspace](w, "workspace", "show", "network")
	if full, err := filepath.EvalSymlinks(dir); err != nil || ws.Source.Directory != full || ws.Engine != "terraform" && ws.Engine != "tofu" {
		t.Errorf("got %+v, %v", ws, err)
	}

	// Settings that were made elsewhere stay.
	ws.Description, ws.Version = "kept", 0
	admin := controlplane.Principal{Organization: "default", Name: "test", Audience: "user", Role: api.RoleAdmin}
	if _, _, err := w.plane.PutWorkspace(t.Context(), admin, ws); err != nil {
		t.Fatal(err)
	}
	has(t, "workspace show", w.ok("workspace", "show", "network"), "state           as the code declares, else the control plane's default")
	w.ok("run", dir, "--op", "scan")
	if again := value[api.Workspace](w, "workspace", "show", "network"); again.Description != "kept" {
		t.Errorf("the second run changed the workspace: %+v", again)
	}

	// The same name for another directory would be another's state.
	write("other/network/main.tf", "")
	if got := w.run("run", filepath.Join(parent, "other", "network")); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "--name") {
		t.Errorf("another directory of the same name: got %+v", got)
	}
	w.ok("run", filepath.Join(parent, "other", "network"), "--name", "network2")

	// Its code comes to call a module above it.
	write("other/network/main.tf", "module \"m\" {\n  source = \"../modules/m\"\n}\n")
	write("other/modules/m/main.tf", "")
	got := w.run("run", filepath.Join(parent, "other", "network"), "--name", "network2")
	if ws = value[api.Workspace](w, "workspace", "show", "network2"); ws.Source.Path != "network" || filepath.Base(ws.Source.Directory) != "other" {
		t.Errorf("got %+v", ws.Source)
	}
	has(t, "the first run with it", got.stderr, "uses ../modules/m: "+ws.Source.Directory+" is copied, and it runs in network")
	has(t, "workspace show", w.ok("workspace", "show", "network2"), "path            network")
	if again := w.run("run", filepath.Join(parent, "other", "network"), "--name", "network2"); again.code != 0 || strings.Contains(again.stderr, "uses") {
		t.Errorf("the next run: got %+v", again)
	}
	write("other/network/network2.yaml", "name: network2\n"+"engine: "+ws.Engine+"\n")
	has(t, "apply", w.ok("apply", "-f", filepath.Join(parent, "other", "network", "network2.yaml")), "unchanged")

	// A file in it marks it as a data directory.
	write("described/workspace.yaml", "engine: command\ncommands: {preview: 'true'}\nmax_runtime: 5m\n")
	w.ok("run", filepath.Join(parent, "described"))
	if got := value[api.Workspace](w, "workspace", "show", "described"); got.Engine != "command" || got.MaxRuntime != "5m" {
		t.Errorf("got %+v", got)
	}
	write("tofu/main.tofu", "")
	w.ok("run", filepath.Join(parent, "tofu"))
	if got := value[api.Workspace](w, "workspace", "show", "tofu"); got.Engine != "tofu" {
		t.Errorf("got %+v", got)
	}
	write("many/net/main.tf", "resource \"a\" \"b\" {}\n")
	for dir, says := range map[string]string{"empty dir": "nothing to run", "bad.name": "--name", "many": "1 root module below it, such as net: dayfly workspace discover "} {
		write(dir+"/x", "")
		if dir == "bad.name" {
			write(dir+"/main.tf", "")
		}
		if got := w.run("run", filepath.Join(parent, dir)); got.code != cli.ExitUsage || !strings.Contains(got.stderr, says) {
			t.Errorf("%s: got %+v, want %q", dir, got, says)
		}
	}
	// A refused command leaves no files behind.
	write("refused/workspace.yaml", "engine: command\ncommands: {preview: 'true'}\n")
	for _, args := range [][]string{{"--op", "refresh"}, {"--priority", "500"}} {
		if got := w.run(append([]string{"run", filepath.Join(parent, "refused")}, args...)...); got.code != cli.ExitRefused {
			t.Errorf("%v: got %+v, want a refusal", args, got)
		}
		if got := w.run("workspace", "show", "refused"); got.code != cli.ExitRefused {
			t.Errorf("%v: a run that was refused registered its directory: %+v", args, got)
		}
	}
	// The file that describes a directory stands for it.
	id = strings.TrimSpace(w.ok("run", filepath.Join(parent, "refused", "workspace.yaml"), "--priority", "-5"))
	if got := value[api.Workflow](w, "workflow", "show", id); got.Workspace != "refused" || got.Priority != -5 {
		t.Errorf("got %+v", got)
	}
	write("refused/other.yml", "name: other\nengine: command\ncommands: {preview: 'true'}\n")
	w.ok("run", filepath.Join(parent, "refused", "other.yml"))
	if got := value[api.Workspace](w, "workspace", "show", "other"); filepath.Base(got.Source.Directory) != "refused" {
		t.Errorf("got %+v", got)
	}
	if got := w.run("run", filepath.Join(dir, "main.tf")); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "neither a directory nor a workspace file") {
		t.Errorf("a file of code: got %+v", got)
	}

	t.Chdir(parent)
	if got := w.run("run", "bad.name"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "write ./bad.name") {
		t.Errorf("a directory without a slash: got %+v", got)
	}
}
