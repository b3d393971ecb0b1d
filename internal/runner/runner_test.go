package runner_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/child"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

func TestMain(m *testing.M) {
	switch os.Getenv("RUNNER_TEST_CHILD") {
	case "":
	case "engine":
		os.Exit(asEngine(os.Stdout))
	default:
		os.Exit(asRunner())
	}
	os.Exit(leak.Main(m))
}

// job returns a spec that runs a script, and a config for it.
func job(t *testing.T, script string) (api.Spec, runner.Config) {
	t.Helper()
	dir := t.TempDir()
	code := filepath.Join(dir, "code")
	if err := os.MkdirAll(code, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(code, "file"), []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := api.Spec{
		Workflow: "wf-1", Attempt: 2, Organization: "default", WorkspaceID: "ws-1", Workspace: "network",
		Type: workflow.Deployment, Operation: workflow.Update, RunSettings: api.RunSettings{
			Engine:   api.EngineCommand,
			Commands: map[string]string{"update": script}, Source: api.Source{Directory: code},
		},
		State: api.State{Kind: api.StateSource}, MaxRuntimeSeconds: 3600,
	}
	return spec, runner.Config{WorkDir: filepath.Join(dir, "work"), SourceRoots: []string{dir}}
}

// begin runs a job against a relay until the returned function has waited for its end.
func begin(t *testing.T, r *relay, cfg runner.Config) (stop context.CancelFunc, end func() error) {
	t.Helper()
	cfg.Run, cfg.Relay = r.run(), r.client()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.RunJob(ctx, cfg) }()
	return cancel, func() error {
		t.Helper()
		defer cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(4 * time.Minute):
			t.Fatalf("the runner has not ended; log: %s", r.text())
			return nil
		}
	}
}

func runJob(t *testing.T, r *relay, cfg runner.Config) {
	t.Helper()
	_, end := begin(t, r, cfg)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(cfg.WorkDir); err == nil && len(left) > 0 {
		t.Errorf("left in the work directory: %v", left)
	}
}

// alive is a pipe that a script holds open while it lives: READY writes a line to it, and it is at
// its end when the script has ended.
type alive struct{ path string }

func newAlive(t *testing.T) alive {
	t.Helper()
	path := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return alive{path}
}

// listens says that it is ready and ends with an interrupt.
func (a alive) listens() string {
	return "exec 3>" + a.path + `; trap 'echo interrupted; exit 9' INT; echo ready >&3; sleep 1000 3>&- & wait`
}

// deaf does not end by an interrupt.
func (a alive) deaf() string {
	return "exec 3>" + a.path + `; trap '' INT; echo ready >&3; sleep 1000`
}

// ready waits until the script is ready; the returned function waits for its end.
func (a alive) ready(t *testing.T) (end func()) {
	t.Helper()
	_, rest := a.read(t)
	return func() { _, _ = io.Copy(io.Discard, rest) }
}

// says returns the line that the script writes when it is ready.
func (a alive) says(t *testing.T) string {
	t.Helper()
	line, _ := a.read(t)
	return strings.TrimSpace(line)
}

func (a alive) read(t *testing.T) (line string, rest io.Reader) {
	t.Helper()
	f, err := os.Open(a.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	r := bufio.NewReader(f)
	if line, err = r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return line, r
}

func TestRunJob_ReportsStepsLogAndResult(t *testing.T) {
	for name, c := range map[string]struct {
		relay func(r *relay)
		calls []string // at its beginning and its end
	}{
		"in two calls":                        {func(*relay) {}, []string{"start", "result"}},
		"of a spec that is asked for":         {func(r *relay) { r.bare = true }, []string{"start", "spec", "result"}},
		"of a log that was not kept":          {func(r *relay) { r.strips = true }, []string{"start", "logs"}},
		"of a result that is taken the third": {func(r *relay) { r.refuse = thirdResult() }, []string{"start", "result"}},
	} {
		t.Run(name, func(t *testing.T) { reportsAll(t, c.relay, c.calls) })
	}
}

// thirdResult refuses two results for now, and the third one until it needs no more steps and lines.
func thirdResult() func(call string, body []byte) error {
	tries := 0
	return func(call string, body []byte) error {
		if call != "result" {
			return nil
		}
		if tries++; tries < 3 || strings.Contains(string(body), `"tail"`) {
			return workflow.Refuse(workflow.ErrBusy, "", "not now")
		}
		return nil
	}
}

func reportsAll(t *testing.T, change func(*relay), calls []string) {
	t.Helper()
	spec, cfg := job(t, `pwd; cat file; echo "$DAYFLY_VAR_region $GREETING"; echo to stderr >&2; printf '{"url": "https://x"}' > "$DAYFLY_OUTPUTS"`)
	spec.Variables = map[string]any{"region": "eu"}
	spec.Environment = map[string]string{"GREETING": "hello"}
	r := newRelay(t, spec)
	r.control.HeartbeatSeconds = 30
	change(r)
	runJob(t, r, cfg)

	got := r.result()
	want := api.Result{Outcome: workflow.Succeeded, Outputs: []api.Output{{Name: "url", Value: "https://x"}}, LogEnd: int64(len(r.lines))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantSteps := []api.Step{{Seq: 1, Name: "source", Status: workflow.StepSucceeded, LogEnd: 1}, {Seq: 2, Name: "run", Status: workflow.StepSucceeded, LogEnd: 6}}
	if diff := cmp.Diff(wantSteps, r.steps, cmpopts.IgnoreFields(api.Step{}, "StartedAt", "Seconds", "Text")); diff != "" {
		t.Error(diff)
	}
	if text := r.text(); !strings.Contains(text, filepath.Join(cfg.WorkDir, "source")+"\ncontent\neu hello\nto stderr\n") {
		t.Errorf("got the log %s", text)
	}
	for _, l := range r.lines[len(r.lines)-3:] {
		if l.Step != "run" || l.At.IsZero() {
			t.Errorf("got line %+v, want its step and time", l)
		}
	}
	// Where it takes long, steps and lines have calls of their own in between.
	asked, last := r.asked(), len(calls)-1
	if got := append(asked[:last:last], asked[len(asked)-1]); !slices.Equal(got, calls) {
		t.Errorf("called %q, want %q at the beginning and the end", asked, calls)
	}
}

// A call that is answered is a sign of life; a heartbeat is sent where there was none, or where it is held for news.
func TestNextBeat(t *testing.T) {
	const interval, hold = 30 * time.Second, 20 * time.Second
	s := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, c := range map[string]struct{ last, answered, interval, hold, want time.Duration }{
		"the first":                        {-1, s(100), interval, 0, s(130)},
		"a quiet run":                      {s(130), s(130), interval, 0, s(160)},
		"a run that sends lines":           {s(130), s(155), interval, 0, s(185)},
		"while nothing is answered":        {s(160), s(100), interval, 0, s(190)},
		"the first that is held":           {-1, s(100), hold, hold, s(100) + 250*time.Millisecond},
		"held, of a run that sends lines":  {s(130), s(149), hold, hold, s(150)},
		"held no longer, after many lines": {s(130), s(155), interval, 0, s(185)},
	} {
		if got := runner.NextBeat(c.last, c.answered, c.interval, c.hold); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestRunJob_EnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("OF_THE_RUNNER", "1")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "1234567890")
	spec, cfg := job(t, "env | cut -d= -f1 | sort | grep -v '^_$\\|^PWD$\\|^SHLVL$\\|^OLDPWD$'; ls -a $HOME $TMPDIR | head -3; echo $PATH")
	cfg.EnginePath, cfg.Forward = []string{"/opt/engines"}, []string{"FORWARDED=1"}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	want := "DAYFLY_ARTIFACTS DAYFLY_ATTEMPT DAYFLY_OPERATION DAYFLY_ORGANIZATION DAYFLY_OUTPUTS DAYFLY_SECRETS_DIR DAYFLY_WORKFLOW_ID DAYFLY_WORKFLOW_TYPE DAYFLY_WORKSPACE FORWARDED HOME LANG PATH TMPDIR USER "
	if text := strings.ReplaceAll(r.text(), "\n", " "); !strings.Contains(text, want) || !strings.Contains(text, " /opt/engines:"+runner.DefaultPath) {
		t.Errorf("got %s", text)
	}
}

// The code of a pull request gets no secret that the machine lends its engines, and what is known to be public.
func TestRunJob_APullRequestGetsNoForwardedSecret(t *testing.T) {
	for pull, want := range map[bool]string{true: "PROXY=proxy.example.com:3128 .", false: "KEY=*** OTHER=*** PROXY=proxy.example.com:3128 ."} {
		spec, cfg := job(t, `env | grep -E '^(KEY|OTHER|PROXY)=' | sort | tr '\n' ' '; echo .`)
		spec.PullRequest, cfg.Forward = pull, []string{"KEY=hunter22", "OTHER=Some Value", "PROXY=proxy.example.com:3128"}
		r := newRelay(t, spec)
		runJob(t, r, cfg)
		if text := r.text(); !strings.Contains(text, want+"\n") || pull != strings.Contains(text, "2 variables of the machine not forwarded (KEY, OTHER)") {
			t.Errorf("pull request %t: got %s", pull, text)
		}
	}
}

// R3: what the engine is given is hidden in everything that leaves.
func TestRunJob_SecretsReachTheEngineAndNothingElse(t *testing.T) {
	const token, key, short = "hunter2-correct+horse/battery", "-----BEGIN-----\nAAAAB3NzaC1yc2E\n-----END-----\n", "x1"
	spec, cfg := job(t, `
test "$SHORT" = x1
echo "token $TOKEN"; printf "$TOKEN" | base64; printf "user:$TOKEN" | base64 -w0; echo
cat "$DAYFLY_SECRETS_DIR/ssh/id"; stat -c %a "$DAYFLY_SECRETS_DIR/ssh/id"
printf '%s' "$TOKEN" | cut -c1-7 | tr -d '\n'; printf '%s\n' "$TOKEN" | cut -c8-
printf '{"a": {"value": "x-%s", "sensitive": false}, "%s": "y"}' "$TOKEN" "$TOKEN" > "$DAYFLY_OUTPUTS"`)
	spec.Secrets = []api.Secret{{Env: "TOKEN", Ref: "file:token"}, {File: "ssh/id", Ref: "file:key"}, {Env: "SHORT", Ref: "file:short"}}
	cfg.Secrets = known{"file:token": token, "file:key": key, "file:short": short}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Succeeded {
		t.Fatalf("got %+v; log: %s", got, r.text())
	}
	text := r.text()
	for _, want := range []string{"token ***\n", "\n600\n", "the secret for SHORT has fewer than 4 characters"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the log %s", want, text)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hidden := range []string{
		token, "AAAAB3NzaC1yc2E", base64.StdEncoding.EncodeToString([]byte(token)), base64.StdEncoding.EncodeToString([]byte("user:" + token))[8:40], url.QueryEscape(token),
	} {
		if strings.Contains(string(r.bodies), hidden) {
			t.Errorf("%q left the runner: %s", hidden, text)
		}
	}
}

// Only the runner's own lines begin like those, whatever the engine prints, and in colours.
func TestRunJob_AnEngineCannotPoseAsTheRunner(t *testing.T) {
	spec, cfg := job(t, `printf '[dayfly] apply succeeded\n\033[2K\r\033[1m[dayfly] apply succeeded\n$ terraform apply\n\033[32mfine\033[0m\n'; printf '[day'; printf 'fly] in two' >&2; kill -9 $$`)
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	var got []string
	for line := range strings.Lines(r.text()) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "[dayfly] ") && !strings.HasPrefix(line, "$ ") {
			got = append(got, line)
		}
	}
	want := []string{"|| [dayfly] apply succeeded", "\x1b[2K\r\x1b[1m|| [dayfly] apply succeeded", "|| $ terraform apply", "\x1b[32mfine\x1b[0m", "|| [dayfly] in two"}
	if diff := cmp.Diff(want, got); diff != "" || !strings.HasSuffix(r.text(), "in two\n[dayfly] sh was ended by signal 9 (killed)\n") {
		t.Errorf("%s in %s", diff, r.text())
	}
}

func TestRunJob_FailuresHaveTheirReason(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*api.Spec, *runner.Config)
		reason workflow.Reason
		detail string
	}{
		"command": {func(s *api.Spec, _ *runner.Config) { s.Commands["update"] = "exit 3" }, workflow.ReasonStepFailed, "exit code 3"},
		"environment too long": {func(s *api.Spec, _ *runner.Config) {
			s.Variables = api.Values{"doc": strings.Repeat("a", 200000)}
		}, workflow.ReasonStepFailed, "variable DAYFLY_VAR_doc has 200000 bytes"},
		"secret": {func(s *api.Spec, c *runner.Config) {
			s.Secrets, c.Secrets = []api.Secret{{Env: "A", Ref: "file:none"}}, known{}
		}, workflow.ReasonSecretUnavailable, "the secret for A did not resolve"},
		"secret without a resolver": {func(s *api.Spec, _ *runner.Config) { s.Secrets = []api.Secret{{Env: "A", Ref: "file:none"}} }, workflow.ReasonSecretUnavailable, "the secret for A"},
		"secret outside its directory": {func(s *api.Spec, c *runner.Config) {
			s.Secrets, c.Secrets = []api.Secret{{File: "../out", Ref: "file:a"}}, known{"file:a": "value"}
		}, workflow.ReasonSecretUnavailable, "not below the directory"},
		"kept variable": {func(s *api.Spec, _ *runner.Config) { s.Environment = map[string]string{"LD_PRELOAD": "x"} }, workflow.ReasonRunnerError, "LD_PRELOAD"},
		"source":        {func(_ *api.Spec, c *runner.Config) { c.SourceRoots = nil }, workflow.ReasonSourceFailed, "source"},
		"engine":        {func(s *api.Spec, _ *runner.Config) { s.Engine = "cobol" }, workflow.ReasonEngineNotFound, "cobol"},
		"another spec":  {func(s *api.Spec, _ *runner.Config) { s.Workflow = "wf-2" }, workflow.ReasonRunnerError, "wf-2"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, cfg := job(t, "true")
			r := newRelay(t, spec)
			test.change(&spec, &cfg)
			run := r.run()
			r.spec = spec
			cfg.Run, cfg.Relay = run, r.client()
			if err := runner.RunJob(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			got := r.result()
			if got.Outcome != workflow.Failed || got.Reason != test.reason || !strings.Contains(got.Detail, test.detail) {
				t.Errorf("got %s, %s, %q, want %s with %q", got.Outcome, got.Reason, got.Detail, test.reason, test.detail)
			}
		})
	}
}

// The engine is asked for its version while the source is fetched: a source that begins to fail only when the
// engine was asked shows it. And a search that nobody needs any more is ended, and with it the engine.
func TestRunJob_FindsEngineWhileSourceIsFetched(t *testing.T) {
	spec, cfg := job(t, "")
	cfg.EnginePath = []string{t.TempDir()}
	asked := filepath.Join(t.TempDir(), "asked")
	script := "#!/bin/sh\necho $$ > " + asked + ".new; mv " + asked + ".new " + asked + "; exec sleep 1000\n"
	if err := os.WriteFile(filepath.Join(cfg.EnginePath[0], "terraform"), []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	git := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); {
			if _, err := os.Stat(asked); err == nil {
				break
			}
			<-time.After(5 * time.Millisecond)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer git.Close()
	spec.Engine, spec.Commands = api.EngineTerraform, nil
	spec.Source = api.Source{Git: &api.GitSource{URL: git.URL + "/code.git", Ref: "main"}}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Failed || got.Reason != workflow.ReasonSourceFailed {
		t.Errorf("got %s, %s: %s; want a source that failed", got.Outcome, got.Reason, got.Detail)
	}
	number, err := os.ReadFile(asked)
	if err != nil {
		t.Fatalf("the engine was not asked while the source was fetched: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(number)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the engine is still there when the run is over: %v", err)
	}
}

// C5: a run that is cancelled interrupts its engine and is cancelled.
func TestRunJob_CancelInterruptsTheEngine(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, pipe.listens())
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	pipe.ready(t)
	r.set(func() { r.control.Cancel = true })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	got := r.result()
	if got.Outcome != workflow.Cancelled || got.Reason != workflow.ReasonCancelled {
		t.Errorf("got %+v", got)
	}
	if text := r.text(); strings.Count(text, "interrupted\n") != 1 {
		t.Errorf("want one interrupt: %s", text)
	}
	if got := r.steps[len(r.steps)-1].Status; got != workflow.StepFailed {
		t.Errorf("got step %s", got)
	}
}

func TestRunJob_GraceEndsInAKill(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, pipe.deaf())
	cfg.Grace = 20 * time.Millisecond
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	pipe.ready(t)
	r.set(func() { r.control.Cancel = true })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.result(); got.Outcome != workflow.Cancelled {
		t.Errorf("got %+v", got)
	}
}

// C7: the runner keeps the deadline alone.
func TestRunJob_DeadlineIsKeptWithoutTheRelay(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, pipe.listens())
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	ended := pipe.ready(t)
	seen := 0
	r.set(func() { r.control.RemainingSeconds, seen = 0.05, len(r.beats) })
	r.wait("a heartbeat", func() bool {
		// From here on the runner is alone: the answer that names its deadline was the last one.
		r.away = len(r.beats) > seen
		return r.away
	})
	ended()
	r.set(func() { r.away = false })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	got := r.result()
	if got.Outcome != workflow.Failed || got.Reason != workflow.ReasonDeadline {
		t.Errorf("got %+v", got)
	}
}

// The clock of the control plane stands still in an outage: what it says remains after that is more than there is.
func TestRunJob_ItsOwnDeadlineIsNotPutOff(t *testing.T) {
	spec, cfg := job(t, newAlive(t).listens())
	r := newRelay(t, spec)
	r.refuse = func(call string, _ []byte) error {
		r.control.RemainingSeconds = 3600
		if call == "start" {
			r.control.RemainingSeconds = 2
		}
		return nil
	}
	_, end := begin(t, r, cfg)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.result(); got.Reason != workflow.ReasonDeadline || r.called("heartbeat") == 0 {
		t.Errorf("got %+v after %d heartbeats", got, r.called("heartbeat"))
	}
}

func TestRunJob_ToldToStopInterruptsAndReports(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, pipe.listens())
	r := newRelay(t, spec)
	stop, end := begin(t, r, cfg)
	pipe.ready(t)
	stop()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	got := r.result()
	if got.Outcome != workflow.Failed || got.Reason != workflow.ReasonInterrupted {
		t.Errorf("got %+v", got)
	}
	if text := r.text(); !strings.Contains(text, "interrupted\n") {
		t.Errorf("the end of the log is missing: %s", text)
	}
}

// C2: who does not hold the run any more kills its engine at once and says nothing.
func TestRunJob_RunThatIsOverIsKilledAndNotReported(t *testing.T) {
	for _, over := range []error{workflow.ErrOver, workflow.ErrAlreadyStarted, workflow.ErrRevoked, workflow.ErrUnauthenticated, workflow.ErrNotFound} {
		t.Run(over.Error(), func(t *testing.T) {
			pipe := newAlive(t)
			spec, cfg := job(t, pipe.deaf())
			cfg.Grace = time.Hour
			r := newRelay(t, spec)
			_, end := begin(t, r, cfg)
			pipe.ready(t)
			r.set(func() { r.over = over })
			if err := end(); err != nil {
				t.Fatal(err)
			}
			if len(r.results) > 0 || r.called("result") > 0 {
				t.Errorf("got results %+v, want none", r.results)
			}
		})
	}
}

func TestRunJob_StartThatIsRefusedDoesNothing(t *testing.T) {
	for _, refusal := range []error{workflow.ErrAlreadyStarted, workflow.ErrOver, workflow.ErrRevoked} {
		spec, cfg := job(t, "touch "+filepath.Join(t.TempDir(), "ran"))
		r := newRelay(t, spec)
		r.over = refusal
		runJob(t, r, cfg)
		if diff := cmp.Diff([]string{"start"}, r.asked()); diff != "" {
			t.Errorf("%v: %s", refusal, diff)
		}
		if _, err := os.Stat(cfg.WorkDir); err == nil {
			t.Errorf("%v: something was made", refusal)
		}
	}
}

func TestRunJob_StartIsAskedAgainUntilTheTaskIsReported(t *testing.T) {
	spec, cfg := job(t, "true")
	r := newRelay(t, spec)
	starts := 0
	r.refuse = func(call string, _ []byte) error {
		if call == "start" {
			if starts++; starts < 3 {
				return workflow.ErrNotReported
			}
		}
		return nil
	}
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Succeeded || starts != 3 {
		t.Errorf("got %+v after %d starts", got, starts)
	}
}

func TestRunJob_ToldToStopBeforeStartIsNoSuccess(t *testing.T) {
	spec, cfg := job(t, "true")
	r := newRelay(t, spec)
	r.refuse = func(string, []byte) error { return workflow.ErrNotReported }
	stop, end := begin(t, r, cfg)
	r.wait("a start", func() bool { return len(r.calls) > 0 })
	stop()
	if err := end(); err == nil {
		t.Error("got nil: nothing was handed over")
	}
}

// C3: an engine is never stopped because the relay is away; its result arrives late.
func TestRunJob_EngineGoesOnWhileTheRelayIsAway(t *testing.T) {
	pipe, gate := newAlive(t), newAlive(t)
	spec, cfg := job(t, "exec 3>"+pipe.path+"; echo ready >&3; read x < "+gate.path+" || true; echo applied")
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	ended := pipe.ready(t)
	asked := 0
	r.set(func() { r.away = true; asked = len(r.calls) })
	if err := os.WriteFile(gate.path, nil, 0); err != nil {
		t.Fatal(err)
	}
	ended()
	r.set(func() {
		if len(r.calls) != asked {
			t.Errorf("calls were taken by a relay that is away")
		}
		r.away = false
	})
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.result(); got.Outcome != workflow.Succeeded || got.LogEnd != int64(len(r.lines)) || !strings.HasSuffix(r.text(), "applied\n") {
		t.Errorf("got %+v; log: %s", got, r.text())
	}
}

// R5: another attempt has come, which ends the engine at once; what it printed is still in its own log.
func TestRunJob_ARunThatIsOverStillSendsItsLog(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, "echo printed; exec 3>"+pipe.path+"; echo ready >&3; sleep 1000")
	r := newRelay(t, spec)
	over := false
	r.refuse = func(call string, _ []byte) error {
		switch {
		case call == "logs" && !over:
			return workflow.ErrBusy
		case call != "logs" && over:
			return workflow.ErrOver
		}
		return nil
	}
	_, end := begin(t, r, cfg)
	ended := pipe.ready(t)
	r.set(func() { over = true })
	ended()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if got := r.text(); !strings.HasSuffix(got, "printed\n") || r.called("result") != 0 {
		t.Errorf("got the log %q, and %d results", got, r.called("result"))
	}
}

func TestRunJob_RefusedResultIsSentWithoutItsDetails(t *testing.T) {
	spec, cfg := job(t, `echo '{"a": "b"}' > "$DAYFLY_OUTPUTS"`)
	r := newRelay(t, spec)
	r.refuse = func(call string, body []byte) error {
		if call == "result" && strings.Contains(string(body), `"outputs"`) {
			return workflow.Refuse(workflow.ErrInvalid, "outputs", "no")
		}
		return nil
	}
	runJob(t, r, cfg)
	want := api.Result{Outcome: workflow.Succeeded, Truncated: true, LogEnd: int64(len(r.lines))}
	if diff := cmp.Diff(want, r.result()); diff != "" {
		t.Error(diff)
	}
}

// After a lost answer the same result is sent again, not a second one.
func TestRunJob_ResultIsRepeatedUntilItIsTaken(t *testing.T) {
	spec, cfg := job(t, "exit 4")
	r := newRelay(t, spec)
	tries := 0
	r.refuse = func(call string, _ []byte) error {
		if call == "result" {
			if tries++; tries < 4 {
				return workflow.ErrBusy
			}
		}
		return nil
	}
	runJob(t, r, cfg)
	if got := r.result(); got.Reason != workflow.ReasonStepFailed || tries != 4 {
		t.Errorf("got %+v after %d tries", got, tries)
	}
}

func TestRunJob_HeartbeatsNameTheStep(t *testing.T) {
	pipe := newAlive(t)
	spec, cfg := job(t, pipe.listens())
	r := newRelay(t, spec)
	_, end := begin(t, r, cfg)
	pipe.ready(t)
	r.wait("a heartbeat in the step", func() bool {
		return len(r.beats) > 0 && r.beats[len(r.beats)-1].Step == "run"
	})
	r.set(func() { r.control.Cancel = true })
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

func TestRunJob_EngineHasItsOwnUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give the engine a user of its own")
	}
	spec, cfg := job(t, `id -u; cat "$DAYFLY_SECRETS_DIR/f"; echo; echo x > file; echo y > "$TMPDIR/y"; grep NoNewPrivs /proc/self/status
if ls "$HOME/../private" 2>/dev/null; then echo entered; fi; if ls "$HOME/.." 2>/dev/null; then echo listed; fi`)
	spec.Secrets = []api.Secret{{File: "f", Ref: "file:f"}}
	cfg.Secrets = known{"file:f": "secret-value"}
	cfg.Engine = &child.User{UID: 200_077, GID: 200_077}
	publish(t, cfg.WorkDir) // as the launcher does for its own
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	text := r.text()
	if got := r.result(); got.Outcome != workflow.Succeeded || !strings.Contains(text, "200077\n***\nNoNewPrivs:\t1\n") || strings.Contains(text, "entered") || strings.Contains(text, "listed") {
		t.Errorf("got %+v; log: %s", got, text)
	}
}

// R1: pulumi asks for the name of its user, which has none, and lists directories above the program, which it may not.
func TestRunJob_PulumiAsAUserOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give the engine a user of its own")
	}
	for _, program := range []string{"pulumi", "pulumi-language-yaml"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not on this machine", program)
		}
	}
	spec, cfg := job(t, "")
	spec.Engine, spec.Commands, spec.Source.Path = api.EnginePulumi, nil, "live/network"
	spec.State = api.State{Kind: api.StateDirectory, Workspace: "dev"}
	spec.Secrets = []api.Secret{{Env: "PULUMI_CONFIG_PASSPHRASE", Ref: "file:passphrase"}}
	cfg.Secrets, cfg.Path = known{"file:passphrase": "correct-horse"}, os.Getenv("PATH")
	cfg.StateDir = filepath.Join(filepath.Dir(cfg.WorkDir), "state")
	cfg.Engine = &child.User{UID: 200_077, GID: 200_077}
	publish(t, cfg.WorkDir)
	code := filepath.Join(spec.Source.Directory, spec.Source.Path)
	if err := errors.Join(os.Mkdir(cfg.StateDir, 0o700), os.MkdirAll(code, 0o755), os.WriteFile(filepath.Join(code, "Pulumi.yaml"), []byte("name: demo\nruntime: yaml\noutputs: {word: hello}\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if got := r.result(); got.Outcome != workflow.Succeeded || len(got.Outputs) != 1 || got.Outputs[0].Value != "hello" {
		t.Errorf("got %+v; log: %s", got, r.text())
	}
}

func TestRunJob_Terraform(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skip("terraform is not on this machine")
	}
	spec, cfg := job(t, "")
	cfg.StateDir = filepath.Join(filepath.Dir(cfg.WorkDir), "state")
	spec.Engine, spec.State, spec.Commands = api.EngineTerraform, api.State{Kind: api.StateDirectory}, nil
	spec.Variables = map[string]any{"word": "hello"}
	spec.Secrets = []api.Secret{{Env: "TF_VAR_password", Ref: "file:password"}}
	cfg.Secrets = known{"file:password": "correct-horse"}
	const code = `
variable "word" {}
variable "password" {}
resource "terraform_data" "a" { input = "${var.word} ${var.password}" }
resource "terraform_data" "b" {
  input = "${terraform_data.a.id}-made-here"
  provisioner "local-exec" { command = "echo ${self.input} says $TF_VAR_password" }
}
output "word" { value = terraform_data.a.input }
output "made" {
  value     = terraform_data.b.output
  sensitive = true
}
`
	if err := os.WriteFile(filepath.Join(spec.Source.Directory, "main.tf"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	got := r.result()
	want := api.Result{
		Outcome: workflow.Succeeded, Changes: &api.Changes{Add: 2, Outputs: []api.OutputChange{{Name: "made", Action: "create"}, {Name: "word", Action: "create"}}},
		Outputs: []api.Output{{Name: "made", Sensitive: true}, {Name: "word", Value: "hello ***", Masked: true}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(api.Result{}, "LogEnd", "State"), cmpopts.IgnoreFields(api.Changes{}, "Resources"), cmpopts.SortSlices(func(a, b api.Output) bool { return a.Name < b.Name })); diff != "" {
		t.Errorf("%s; log: %s", diff, r.text())
	}
	if found := got.State; found == nil || found.Backend != "local" || found.Lineage == "" || found.Serial == 0 {
		t.Errorf("the run has found the state %+v", found)
	}
	if strings.Contains(string(r.bodies), "correct-horse") {
		t.Errorf("the secret left the runner: %s", r.text())
	}
	var names []string
	for _, s := range r.steps {
		names = append(names, s.Name+" "+string(s.Status))
	}
	if diff := cmp.Diff([]string{"source succeeded", "init succeeded", "plan succeeded", "apply succeeded", "output succeeded"}, names); diff != "" {
		t.Error(diff)
	}
}

// What git LFS keeps elsewhere is not fetched, and the step says so.
func TestRunJob_NamesFilesWithoutTheirContents(t *testing.T) {
	spec, cfg := job(t, `true`)
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:0815\nsize 12345\n"
	if err := os.WriteFile(filepath.Join(spec.Source.Directory, "big.zip"), []byte(pointer), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRelay(t, spec)
	runJob(t, r, cfg)
	if len(r.steps) == 0 || !strings.Contains(r.steps[0].Text, "git LFS keeps the contents of 1 file elsewhere") || !strings.HasSuffix(r.steps[0].Text, ": big.zip") {
		t.Errorf("got the steps %+v", r.steps)
	}
}
