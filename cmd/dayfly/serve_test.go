package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/cli"
	"github.com/dayfly-dev/dayfly/cmd/dayfly/internal/serve"
	"github.com/dayfly-dev/dayfly/internal/agent"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// asProgram is the variable that makes this binary the program: for tests that need a terminal or signals.
const asProgram = "PLAY_DAYFLY"

// noWait spares such a program the second for which the race detector holds it back at its end.
const noWait = "GORACE=atexit_sleep_ms=0"

// TestMain plays the runner where the process launcher starts this binary again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == serve.RunnerCommand {
		os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// reachable is a directory that root's engines could pass through.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// served matches an announcement that is there as a whole.
var served = regexp.MustCompile(`(?s)serves at (http://127\.0\.0\.1:[0-9]+)\n.*admin token +\S+\n`)

// started waits until a serving command has said where it serves.
func started(t *testing.T, stderr *lockedBuffer, done <-chan int) string {
	t.Helper()
	for {
		if m := served.FindStringSubmatch(stderr.String()); m != nil {
			return m[1]
		}
		select {
		case code := <-done:
			t.Fatalf("it ended with %d: %s", code, stderr.String())
		case <-stderr.written:
		}
	}
}

func TestServer_ServesUntilAnInterruptAndHidesItsToken(t *testing.T) {
	w := newWorld(t)
	data := reachable(t)
	stderr, done, stop := w.background("server", "--data", data, "--listen", "127.0.0.1:0")
	url := started(t, stderr, done)
	token, err := os.ReadFile(filepath.Join(data, embedded.AdminTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(stderr.String(), strings.TrimSpace(string(token))) {
		t.Error("the token is shown")
	}
	has(t, "announcement", stderr.String(), filepath.Join(data, embedded.AdminTokenFile))
	w.env["DAYFLY_URL"], w.env["DAYFLY_API_TOKEN"] = url, strings.TrimSpace(string(token))
	has(t, "pools", w.ok("pool", "list"), "default")

	if got := w.run("server", "--data", data, "--listen", "127.0.0.1:0"); got.code != cli.ExitRefused || !strings.Contains(got.stderr, "uses the data directory") {
		t.Errorf("a second server: got %+v", got)
	}
	if code := stop(); code != cli.ExitOK {
		t.Errorf("got exit %d: %s", code, stderr.String())
	}
}

// background runs a serving command until stop, which returns its exit code.
func (w *world) background(args ...string) (stderr *lockedBuffer, done chan int, stop func() int) {
	w.t.Helper()
	stderr, done = &lockedBuffer{written: make(chan struct{}, 1)}, make(chan int, 1)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	code := -1
	go func() {
		defer close(ended)
		code = command(ctx, args, func(name string) string { return w.env[name] }, strings.NewReader(""), &lockedBuffer{}, stderr)
		done <- code
	}()
	stop = func() int {
		cancel()
		<-ended
		return code
	}
	w.t.Cleanup(func() { stop() })
	return stderr, done, stop
}

// The quick start: up in one terminal, run in another, without any other settings.
func TestUp_RunsTheReadersOwnDirectory(t *testing.T) {
	w := newWorld(t)
	delete(w.env, "DAYFLY_URL")
	delete(w.env, "DAYFLY_API_TOKEN")
	sources := reachable(t)
	dir := filepath.Join(sources, "site")
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // a source is not a secret
		t.Fatal(err)
	}
	file := "engine: command\nsecrets: [{env: TOKEN, ref: 'file:token'}]\ncommands:\n  update: |\n    echo \"working, the token is $TOKEN\"\n    printf '{\"x\": 1}' >\"$DAYFLY_OUTPUTS\"\n"
	if err := os.WriteFile(filepath.Join(dir, "workspace.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	data := reachable(t)
	set := w.in(t.Context(), "planted-secret\n", "secret", "set", "token", "--data", data)
	if set.code != cli.ExitOK {
		t.Fatalf("secret set: %+v", set)
	}
	has(t, "where it is kept", set.stdout+set.stderr, "below "+data)
	stderr, done, stop := w.background("up", "--data", data, "--source-root", sources, "--listen", "127.0.0.1:0")
	started(t, stderr, done)
	for !strings.Contains(stderr.String(), "try:") {
		<-stderr.written
	}
	has(t, "announcement", stderr.String(), "jobs run as processes", "workflow code runs as", "sources below "+sources, "credentials.json")

	role := w.in(t.Context(), "name: lent\nengine: tofu\nrole: arn:aws:iam::123456789012:role/x\n", "apply", "-f", "-")
	if role.code != cli.ExitRefused || !strings.Contains(role.stderr, "dayfly up has no cloud identity") {
		t.Errorf("a role: got %+v, want a refusal when it is written", role)
	}
	has(t, "secrets of the control plane that commands talk to", w.ok("secret", "list"), "file:token")

	got := w.run("run", dir, "--op", "update", "--yes", "--follow")
	if got.code != cli.ExitOK {
		t.Errorf("run: got %+v\n%s", got, stderr)
	}
	has(t, "run", got.stdout, "run      │ working, the token is ", "succeeded", "x = 1")
	if all := got.stdout + got.stderr + stderr.String(); strings.Contains(all, "planted-secret") {
		t.Errorf("the secret shows in\n%s", all)
	}
	if code := stop(); code != cli.ExitOK {
		t.Errorf("up: got exit %d\n%s", code, stderr)
	}
	if left, err := filepath.Glob(filepath.Join(data, "jobs", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAgent_TakesOneJobOfItsPool(t *testing.T) {
	w := newWorld(t)
	sources := reachable(t)
	if err := os.WriteFile(filepath.Join(sources, "workspace.yaml"), []byte("name: one\nengine: command\npool: second\ncommands: {update: 'echo on the second pool'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(w.ok("pool", "create", "second"))
	w.ok("apply", "-f", filepath.Join(sources, "workspace.yaml"))
	id := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
	t.Setenv("DAYFLY_TOKEN", token)
	w.env["DAYFLY_TOKEN"] = token
	stderr, _, stop := w.background("agent", "--service-url", w.url, "--data", reachable(t), "--source-root", sources, "--single-run")
	has(t, "log", w.ok("workflow", "logs", "-f", id), "on the second pool", "succeeded")
	if code := stop(); code != cli.ExitOK || strings.Contains(stderr.String(), token) {
		t.Errorf("agent: got exit %d\n%s", code, stderr)
	}
	has(t, "pool", w.ok("pool", "show", "second"), "healthy")
}

// D3: an installation of another agent moves over by changing the program: its file and its variables are read, and
// probes find it where they did.
func TestAgent_WorksWithTheFileOfAnotherAgent(t *testing.T) {
	w := newWorld(t)
	home := reachable(t)
	sample, err := os.ReadFile("../../internal/config/testdata/pulumi-workflow-agent.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "pulumi-workflow-agent.yaml"), sample, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	free, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "agent")
	cmd.Dir = home
	cmd.Env = []string{
		asProgram + "=1", noWait, "PATH=" + w.env["PATH"], "HOME=" + home, "PULUMI_AGENT_TOKEN=" + strings.TrimSpace(w.ok("pool", "create", "second")),
		"PULUMI_AGENT_SERVICE_URL=" + w.url, "PULUMI_AGENT_DEPLOY_TARGET=process", "PULUMI_AGENT_HTTP_SERVER_PORT=" + port,
	}
	stderr := &lockedBuffer{written: make(chan struct{}, 1)}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(stderr.String(), "agent started") {
		<-stderr.written
	}
	has(t, "what it says", stderr.String(), "/pulumi-workflow-agent.yaml; rename it to dayfly.yaml", "health at http://"+address+"/healthz", "data         "+home+"/agent")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("health: %d, %v", answer.StatusCode, err)
	}
	has(t, "health", string(text), `"status":"healthy"`, `"last_activity":"20`, `"threshold":"2m0s"`)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// The output of a job is for its own log: readers of the agent's log may not have the right to see it.
func TestAgent_LogsTheOutputOfJobsOnRequest(t *testing.T) {
	w := newWorld(t)
	sources := reachable(t)
	if err := os.WriteFile(filepath.Join(sources, "workspace.yaml"), []byte("name: one\nengine: command\npool: second\ncommands: {update: 'echo printed-by-the-job'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(w.ok("pool", "create", "second", "--multiple-instances"))
	t.Setenv("DAYFLY_TOKEN", token)
	w.env["DAYFLY_TOKEN"] = token
	w.ok("apply", "-f", filepath.Join(sources, "workspace.yaml"))
	for _, flags := range [][]string{{"-v"}, {"--log-jobs"}, {"--log-jobs", "--log-level", "warn"}} {
		id := strings.TrimSpace(w.ok("run", "one", "--op", "update", "--yes"))
		stderr, _, stop := w.background(append([]string{"agent", "--service-url", w.url, "--data", reachable(t), "--source-root", sources, "--single-run", "--deploy-target", "process", "--http-server-port", "0"}, flags...)...)
		has(t, "log", w.ok("workflow", "logs", "-f", id), "printed-by-the-job", "succeeded")
		if code := stop(); code != cli.ExitOK {
			t.Errorf("%q: exit %d", flags, code)
		}
		said := stderr.String()
		if got, want := strings.Contains(said, "printed-by-the-job"), len(flags) == 1 && flags[0] == "--log-jobs"; got != want {
			t.Errorf("%q: the job's output is said: %t, want %t\n%s", flags, got, want, said)
		}
		if got, want := strings.Contains(said, `"level":"DEBUG"`), flags[0] == "-v"; got != want || strings.Contains(said, `"level":"INFO"`) == (len(flags) == 3) {
			t.Errorf("%q: wrong levels in\n%s", flags, said)
		}
	}
}

// An agent's token is not a person's: nobody logs in with it.
func TestAgent_SaysThatItsTokenIsRefused(t *testing.T) {
	w := newWorld(t)
	t.Setenv("DAYFLY_TOKEN", "dfp_wrong")
	w.env["DAYFLY_TOKEN"] = "dfp_wrong"
	stderr, done, stop := w.background("agent", "--service-url", w.url, "--data", reachable(t), "--deploy-target", "process")
	words := "the control plane at " + w.url + " does not accept the pool token: it is not known there; make one with dayfly pool create or dayfly pool rotate-token"
	for !strings.Contains(stderr.String(), words) {
		select {
		case code := <-done:
			t.Fatalf("it ended with exit %d: %s", code, stderr)
		case <-stderr.written:
		}
	}
	if code := stop(); code != cli.ExitOK || strings.Contains(stderr.String(), "log in") || strings.Contains(stderr.String(), "dfp_wrong") {
		t.Errorf("stopped before it gave up: exit %d\n%s", code, stderr)
	}

	var end bytes.Buffer
	gaveUp := agent.TokenRefused(fmt.Errorf("claim: %w", workflow.Refuse(workflow.ErrUnauthenticated, "", "log in again")), w.url, "")
	if code := cli.Report(&end, errors.Join(gaveUp)); code != cli.ExitRefused || !strings.HasPrefix(end.String(), "dayfly: "+words) {
		t.Errorf("when it gives up: exit %d, %s", code, &end)
	}
}

func TestUp_WrongSettingsAreUsageAndAllNamed(t *testing.T) {
	w := newWorld(t)
	t.Setenv("DAYFLY_HTTP_SERVER_PORT", "80")
	w.env["DAYFLY_HTTP_SERVER_PORT"] = "80"
	got := w.run("up", "--data", reachable(t), "--listen", "127.0.0.1:0", "--deploy-target", "ecs", "--polling-interval", "soon")
	if got.code != cli.ExitUsage {
		t.Errorf("got %+v", got)
	}
	has(t, "mistakes", got.stderr, "DAYFLY_HTTP_SERVER_PORT: does nothing for dayfly up (its control plane has /healthz)", "--deploy-target: ecs is for dayfly agent", "--polling-interval: want")
	if strings.Count(got.stderr, "\n") != 3 {
		t.Errorf("got %q, want three mistakes", got.stderr)
	}
}

func TestServe_ListensAndTakesOnWhatTheEnvironmentSays(t *testing.T) {
	w := newWorld(t)
	set := func(name, value string) {
		t.Setenv(name, value)
		w.env[name] = value
	}
	set("DAYFLY_LISTEN", "127.0.0.1:0")
	set("DAYFLY_CONCURRENCY", "3")
	stderr, done, stop := w.background("up", "--data", reachable(t), "--deploy-target", "process")
	started(t, stderr, done)
	for !strings.Contains(stderr.String(), "agent started") {
		<-stderr.written
	}
	has(t, "log", stderr.String(), `"concurrency":3`)
	stop()
	stderr, done, stop = w.background("server", "--data", reachable(t))
	started(t, stderr, done) // and not at the default, which another may have
	stop()

	set("DAYFLY_LISTEN", "nowhere")
	for _, command := range []string{"up", "server"} {
		got := w.run(command, "--data", reachable(t))
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "HOST:PORT") {
			t.Errorf("%s: got %+v", command, got)
		}
	}
	for _, command := range []string{"up", "server", "agent"} {
		if got := w.run(command, "-o", "json"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "-o json: dayfly "+command) {
			t.Errorf("%s -o json: got %+v", command, got)
		}
	}
}

func TestUp_RootsBelowWhichNothingCanLieAreAllNamed(t *testing.T) {
	w := newWorld(t)
	missing, file := filepath.Join(reachable(t), "missing"), filepath.Join(reachable(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := w.run("up", "--data", reachable(t), "--listen", "127.0.0.1:0", "--deploy-target", "process", "--source-root", missing, "--source-root", file)
	if got.code != cli.ExitUsage {
		t.Errorf("got %+v", got)
	}
	has(t, "mistakes", got.stderr, "source_roots: stat "+missing, "source_roots: "+file+" is not a directory")
}

func TestServer_BadFlagsAreUsage(t *testing.T) {
	w := newWorld(t)
	for _, listen := range []string{"0.0.0.0:0", "nonsense"} {
		if got := w.run("server", "--data", reachable(t), "--listen", listen); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--listen") {
			t.Errorf("%s: got %+v", listen, got)
		}
	}
	for _, size := range []string{"lots", "64", "64MB", "0MiB", "2000MiB", "-1MiB"} {
		got := w.run("server", "--data", reachable(t), "--listen", "127.0.0.1:0", "--log-quota="+size)
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--log-quota") || !strings.Contains(got.stderr, "from 1MiB to 1024MiB, such as 64MiB") {
			t.Errorf("%s: got %+v", size, got)
		}
	}
}

func TestServer_RefusesAnotherAddressForTheAuditTrail(t *testing.T) {
	w := newWorld(t)
	for _, command := range []string{"server", "up"} {
		got := w.run(command, "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--audit-forward", "/var/log/audit")
		if got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--audit-forward: want file:///PATH, syslog+tcp://") {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// The first thing that up says is a link. It signs a browser in, once, and its code is said nowhere else.
func TestUp_PrintsALinkThatSignsABrowserInOnce(t *testing.T) {
	w := newWorld(t)
	stderr, done, stop := w.background("up", "-v", "--data", reachable(t), "--listen", "127.0.0.1:0")
	address := started(t, stderr, done)
	m := regexp.MustCompile(`open (http://\S+/signin\?once=(\S+)) in a browser; the link works once, within 10 minutes\n`).FindStringSubmatch(stderr.String())
	if m == nil || !strings.HasPrefix(m[1], address) || strings.Index(stderr.String(), m[0]) > strings.Index(stderr.String(), "serves at") {
		t.Fatalf("up said\n%s", stderr.String())
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	send := func(method, to, form string, cookies ...*http.Cookie) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, k := range cookies {
			req.AddCookie(k)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		page, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(page)
	}
	if _, page := send(http.MethodGet, m[1], ""); !strings.Contains(page, "Open the console") {
		t.Errorf("the link shows %s", page)
	}
	res, page := send(http.MethodPost, address+"/signin", "once="+m[2])
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/" {
		t.Fatalf("got %s %s", res.Status, page)
	}
	if res, page := send(http.MethodGet, address+"/", "", res.Cookies()...); res.StatusCode != http.StatusOK || !strings.Contains(page, "signed in as admin") {
		t.Errorf("home: %s %s", res.Status, page)
	}
	if res, _ := send(http.MethodPost, address+"/signin", "once="+m[2]); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("again: %s", res.Status)
	}
	stop()
	if n := strings.Count(stderr.String(), m[2]); n != 1 {
		t.Errorf("the code was said %d times", n)
	}

	w.env["JOURNAL_STREAM"] = "8:1" // others than its owner can read the journal
	stderr, done, stop = w.background("up", "--data", reachable(t), "--listen", "127.0.0.1:0")
	started(t, stderr, done)
	stop()
	if strings.Contains(stderr.String(), "once=") {
		t.Errorf("the journal has the link:\n%s", stderr.String())
	}
}

func TestServer_RefusesAPublicAddressInTheClear(t *testing.T) {
	w := newWorld(t)
	w.env["DAYFLY_PUBLIC_URL"] = "http://dayfly.example.com"
	if got := w.run("server", "--data", reachable(t), "--listen", "127.0.0.1:0"); got.code != cli.ExitUsage || !strings.Contains(got.stderr, "--public-url: begins with https://") {
		t.Errorf("got %+v", got)
	}
}
