package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/client"
	"github.com/dayfly-dev/dayfly/internal/config"
	"github.com/dayfly-dev/dayfly/internal/embedded"
	"github.com/dayfly-dev/dayfly/internal/redact"
	"github.com/dayfly-dev/dayfly/internal/runner"
	"github.com/dayfly-dev/dayfly/internal/secrets/local"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

// TestMain plays the runner where the process launcher starts this binary again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		if err := runner.Run(context.Background(), os.Getenv); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A setting that is parsed and never passed on is the lie that users find last: each one must make a
// difference to a part.
func TestSettings_EveryOneIsPassedOn(t *testing.T) {
	describe := func(s config.Config) string {
		t.Helper()
		p, err := embedded.PartsOf(embedded.AgentConfig{Settings: s, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(p.Docker.Image, p.Docker.Network, p.Process.VaultAddress, p.Process.VaultNamespace, p.Process.VaultTokenFile, p.Docker.HostData, p.Docker.Pull, p.Docker.Images, p.Docker.DiskQuota, p.Docker.MaxDisk, p.Agent.PollingOverride, p.Agent.HealthThreshold, p.Agent.Lines != nil, p.Process.Hooks) + fmt.Sprintf("%+v", p.Fargate) + fmt.Sprintf("%q %q %+v %v %v %v %v %v %v %v %v %+v %+v %v %v %v %v", p.Client.URL, p.Client.Token().Reveal(), p.Rest,
			p.Client.RequestTimeout, p.Client.RetryCount, p.Client.RetryWait, p.Client.RetryMaxWait, p.Client.BreakerFailures,
			p.Client.BreakerTimeout, p.Process.SourceRoots, p.Process.EnginePath, p.Process.Downloads, p.Process.EnvAllow, p.Agent.Types, p.Agent.PollingInterval,
			p.Agent.StatusLoopInterval, p.Agent.Concurrency)
	}
	base := describe(config.Default())
	odd := map[reflect.Type]any{
		reflect.TypeFor[string](): "odd", reflect.TypeFor[bool](): true, reflect.TypeFor[int](): 17, reflect.TypeFor[float64](): 1.7,
		reflect.TypeFor[time.Duration](): 17 * time.Second, reflect.TypeFor[[]string](): []string{"odd"},
		reflect.TypeFor[[]workflow.Type](): []workflow.Type{workflow.InsightsScan}, reflect.TypeFor[redact.String](): redact.New("odd"),
		reflect.TypeFor[map[string]string](): map[string]string{"odd": "odd"},
	}
	for i := range reflect.TypeFor[config.Config]().NumField() {
		s := config.Default()
		field := reflect.ValueOf(&s).Elem().Field(i)
		name := reflect.TypeFor[config.Config]().Field(i).Name
		v, ok := odd[field.Type()]
		if !ok {
			t.Fatalf("%s: no odd value for its type %s", name, field.Type())
		}
		switch name {
		case "Listen", "PrivateIssuers":
			continue // the control plane's, which is told by itself
		case "LogLevel", "Syslog":
			continue // the command's, which makes the log
		case "RelayInsecure":
			continue // decides whether settings are accepted
		case "DeployTarget":
			v = config.TargetProcess
		case "VaultAddress":
			v = "https://vault.example.com"
		case "RunnerNetwork":
			v = config.NetworkNone
		}
		base := base
		if name == "PullImage" { // of an image that is named
			s.RunnerImage = "odd"
			base = describe(s)
		}
		field.Set(reflect.ValueOf(v))
		if describe(s) == base {
			t.Errorf("%s makes no difference to any part", name)
		}
	}
	none := config.Default()
	none.RequestRetryCount = 0
	if p, err := embedded.PartsOf(embedded.AgentConfig{Settings: none}); err != nil || p.Client.RetryCount >= 0 {
		t.Errorf("no retries became %d retries, %v", p.Client.RetryCount, err)
	}
}

func TestPath_RelativeDirectoriesAreLeftOut(t *testing.T) {
	p, err := embedded.PartsOf(embedded.AgentConfig{Settings: config.Default(), Path: "/opt/engines:bin::.:/usr/bin"})
	if got, want := p.Process.EnginePath, []string{"/opt/engines", "/usr/bin"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// upstream hands out one job after the other and keeps what it is told.
type upstream struct {
	next  int
	lost  []string
	fails error
}

func (u *upstream) Claim(_ context.Context, in api.Claim) (api.Claimed, error) {
	u.next++
	return api.Claimed{Jobs: []api.Job{{ID: fmt.Sprintf("job-%d", u.next), Needs: task.Needs{Attempt: in.Max}}}}, nil
}
func (u *upstream) Queued(context.Context, string, api.Attempt) error  { return nil }
func (u *upstream) Release(context.Context, string, api.Release) error { return nil }
func (u *upstream) Launch(context.Context, string, api.Launch) error   { return u.fails }
func (u *upstream) Lost(_ context.Context, id string, _ api.Lost) error {
	u.lost = append(u.lost, id)
	return u.fails
}
func (u *upstream) Held(context.Context, string, string) (api.Page[api.JobState], error) {
	return api.Page[api.JobState]{}, nil
}
func (u *upstream) Tail(context.Context, string, api.Tail) (api.TailTaken, error) {
	return api.TailTaken{}, u.fails
}
func (u *upstream) ClaimDeliveries(context.Context, api.DeliveryClaim) (api.DeliveriesClaimed, error) {
	return api.DeliveriesClaimed{Short: true}, nil
}
func (u *upstream) DeliveryDone(context.Context, string, api.DeliveryResult) error { return u.fails }
func (u *upstream) States(context.Context, api.StatesQuery) (api.States, error) {
	return api.States{}, nil
}

func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

func TestSingleRun_OneJobAndNoMore(t *testing.T) {
	ctx := t.Context()
	up := &upstream{}
	s, over := embedded.NewSingleRun(up)
	got, err := s.Claim(ctx, api.Claim{Max: 7})
	if err != nil || len(got.Jobs) != 1 || got.Jobs[0].Attempt != 1 {
		t.Fatalf("claim: got %+v, %v, want one job, asked for as one", got, err)
	}
	short, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	if got, err := s.Claim(short, api.Claim{Max: 1}); err == nil || up.next != 1 {
		t.Errorf("a second claim: got %+v, %v", got, err)
	}

	// A job that was given back was none.
	if err := s.Release(ctx, "job-1", api.Release{}); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Claim(ctx, api.Claim{Max: 1}); err != nil || got.Jobs[0].ID != "job-2" {
		t.Fatalf("claim after the release: got %+v, %v", got, err)
	}
	// The end of another task, a failure that could not be reported and a launch that goes well end nothing.
	up.fails = workflow.ErrBusy
	_ = s.Launch(ctx, "job-2", api.Launch{Attempt: 1, Kind: api.LaunchFailed})
	up.fails = nil
	_ = s.Launch(ctx, "job-2", api.Launch{Attempt: 1, Kind: api.LaunchAccepted})
	embedded.Acknowledged(s, "job-9", 1)
	embedded.Acknowledged(s, "job-2", 2)
	if ended(over) {
		t.Fatal("it ended before its job")
	}
	if embedded.Acknowledged(s, "job-2", 1); !ended(over) {
		t.Error("the end of its job did not end it")
	}

	s, over = embedded.NewSingleRun(&upstream{})
	_, _ = s.Claim(ctx, api.Claim{Max: 1})
	if err := s.Launch(ctx, "job-1", api.Launch{Attempt: 1, Kind: api.LaunchFailed}); err != nil || !ended(over) {
		t.Errorf("a launch that failed for good did not end it: %v", err)
	}
}

// settings are those of a test's agent: nothing waits for long.
func settings(sources string) config.Config {
	s := config.Default()
	s.SourceRoots = []string{sources}
	s.PollingInterval, s.JobStatusLoopInterval = time.Second, time.Second
	return s
}

// person is a client of a server's, as its administrator.
func person(t *testing.T, s *embedded.Server) *client.Client {
	t.Helper()
	token, err := s.AdminToken()
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{URL: s.URL(), HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Token: func() redact.String { return redact.New(token) }})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// finished waits for the end of a workflow.
func finished(t *testing.T, cl *client.Client, id string) api.Workflow {
	t.Helper()
	offset := int64(0)
	for {
		w, err := cl.Workflow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if w.State.Terminal() && !w.SlotHeld {
			return w
		}
		page, err := cl.Logs(t.Context(), id, 0, offset, 100, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		offset = page.Next
	}
}

func put(t *testing.T, cl *client.Client, w api.Workspace) {
	t.Helper()
	if _, _, err := cl.PutWorkspace(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// C8, L9: a workflow goes through all the parts of one process and leaves nothing behind.
func TestUp_RunsAWorkflowEndToEndAndLeavesNothing(t *testing.T) {
	defer leak.None(t, goleak.IgnoreCurrent())
	home := dataDir(t) // that of a user who works there: the code and the data are below it
	sources, data := filepath.Join(home, "code"), filepath.Join(home, "data")
	if err := errors.Join(os.Mkdir(sources, 0o755), os.Mkdir(data, 0o711), os.Chmod(data, 0o711)); err != nil {
		t.Fatal(err)
	}
	u, err := embedded.OpenUp(t.Context(), embedded.UpConfig{
		Server: embedded.ServerConfig{Data: data, Listen: "127.0.0.1:0"},
		Agent:  embedded.AgentConfig{Settings: settings(home)},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- u.Run(ctx) }()

	cl := person(t, u.Server)
	put(t, cl, api.Workspace{
		Name: "one", RunSettings: api.RunSettings{
			Engine: "command", Source: api.Source{Directory: sources},
			Commands: map[string]string{"update": `echo "hello from $DAYFLY_OPERATION"; echo kept >"$DAYFLY_STATE_DIR/mark"`},
		},
	})
	w, err := cl.Submit(t.Context(), api.Submit{Workspace: "one", Operation: workflow.Update})
	if err != nil {
		t.Fatal(err)
	}
	got := finished(t, cl, w.ID)
	if got.State != workflow.Succeeded {
		t.Errorf("got %s (%s): %s", got.State, got.Reason, got.Detail)
	}
	page, err := cl.Logs(t.Context(), w.ID, 0, 0, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, l := range page.Lines {
		text.WriteString(l.Text + "\n")
	}
	if !strings.Contains(text.String(), "hello from update") {
		t.Errorf("got the log\n%s", text.String())
	}
	for _, dir := range []string{home, data, filepath.Join(data, embedded.StateDir)} {
		put(t, cl, api.Workspace{Name: "data", RunSettings: api.RunSettings{Engine: "command", Source: api.Source{Directory: dir}, Commands: map[string]string{"update": "true"}}})
		if _, err := cl.Submit(t.Context(), api.Submit{Workspace: "data", Operation: workflow.Update}); !errors.Is(err, workflow.ErrForbidden) || !strings.Contains(err.Error(), "data directory") {
			t.Errorf("%s: got %v, want it refused as a source", dir, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	if err := u.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// served starts a control plane with a workspace whose update is a script, and returns the settings of an agent for it.
func served(t *testing.T, script string) (cl *client.Client, set config.Config) {
	t.Helper()
	s, _ := serve(t, embedded.ServerConfig{Data: dataDir(t), DefaultState: api.StateDirectory})
	cl = person(t, s)
	token, err := s.Plane().EnsurePoolToken(t.Context(), "default", "default", "test")
	if err != nil {
		t.Fatal(err)
	}
	sources := dataDir(t)
	put(t, cl, api.Workspace{Name: "one", RunSettings: api.RunSettings{Engine: "command", Source: api.Source{Directory: sources}, Commands: map[string]string{"update": script}}})
	set = settings(sources)
	set.ServiceURL, set.Token = s.URL(), redact.New(token)
	return cl, set
}

func TestAgent_SingleRunEndsAfterItsJob(t *testing.T) {
	cl, set := served(t, "exit 3")
	set.WorkingDirectory, set.SingleRun = dataDir(t), true
	a, err := embedded.OpenAgent(t.Context(), embedded.AgentConfig{Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.OpenAgent(t.Context(), embedded.AgentConfig{Settings: set}); !errors.Is(err, workflow.ErrInUse) {
		t.Errorf("a second agent of the directory: got %v", err)
	}
	if text := strings.Join(a.Describe(), "\n"); !strings.Contains(text, "processes of this machine") {
		t.Errorf("got %q", text)
	} else if is := strings.Contains(text, "does not enforce these limits of a job's size: "); is != (len(embedded.Unkept(a)) > 0) {
		t.Errorf("got %q of a machine that does not keep %v", text, embedded.Unkept(a))
	}
	var ids []string
	for range 2 {
		w, err := cl.Submit(t.Context(), api.Submit{Workspace: "one", Operation: workflow.Update})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, w.ID)
	}
	if err := a.Run(t.Context()); err != nil {
		t.Errorf("run: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	first, err := cl.Workflow(t.Context(), ids[0])
	if err != nil || first.State != workflow.Failed || first.Reason != workflow.ReasonStepFailed {
		t.Errorf("the first: got %s (%s), %v", first.State, first.Reason, err)
	}
	second, err := cl.Workflow(t.Context(), ids[1])
	if err != nil || second.State != workflow.Pending || second.Attempt != 0 {
		t.Errorf("the second: got %s, attempt %d, %v", second.State, second.Attempt, err)
	}
}

// A copied data directory, or an image of a machine with one, makes two agents of one name.
func TestAgent_SecondOfItsNameIsRefusedAndARestartIsNot(t *testing.T) {
	cl, set := served(t, "true")
	start := func(dir string) (said chan string, end func() error) {
		t.Helper()
		set, said := set, make(chan string, 1000)
		set.WorkingDirectory = dir
		a, err := embedded.OpenAgent(t.Context(), embedded.AgentConfig{Settings: set, Log: slog.New(slog.NewTextHandler(lines(said), nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- a.Run(ctx) }()
		return said, func() error {
			cancel()
			return errors.Join(<-ran, a.Close())
		}
	}
	works := func(who string) {
		t.Helper()
		w, err := cl.Submit(t.Context(), api.Submit{Workspace: "one", Operation: workflow.Update})
		if err != nil {
			t.Fatal(err)
		}
		if got := finished(t, cl, w.ID); got.State != workflow.Succeeded {
			t.Errorf("the run of %s is %s (%s)", who, got.State, got.Reason)
		}
	}
	one, two := dataDir(t), dataDir(t)
	_, end := start(one)
	works("the first agent")
	name, err := os.ReadFile(filepath.Join(one, "private", "instance"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(two, "private"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(two, "private", "instance"), name, 0o600); err != nil {
		t.Fatal(err)
	}
	said, endSecond := start(two)
	for line := ""; !strings.Contains(line, "instance name refused"); {
		select {
		case line = <-said:
		case <-time.After(time.Minute):
			t.Fatal("the second agent of the name was not refused")
		}
	}
	works("the first agent beside the second")
	if err := end(); err != nil {
		t.Error(err)
	}
	said, end = start(one)
	works("the first agent after its restart")
	if err := errors.Join(end(), endSecond()); err != nil {
		t.Error(err)
	}
	for close(said); len(said) > 0; {
		if line := <-said; strings.Contains(line, "refused") {
			t.Errorf("the first agent after its restart: %s", line)
		}
	}
}

// lines takes what is written as lines of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

// A delivery may name what a run of this machine may name, and nothing else.
func TestSecretsOf_AreThoseOfRuns(t *testing.T) {
	data := t.TempDir()
	if err := local.New(filepath.Join(data, embedded.SecretsDir)).Set(t.Context(), "hook", redact.New("https://example.com/x")); err != nil {
		t.Fatal(err)
	}
	cfg := embedded.AgentConfig{Settings: config.Default(), LookupEnv: func(name string) (string, bool) { return "value of " + name, true }}
	cfg.Settings.EnvForwardAllowlist = []string{"HOOK"}
	of, err := embedded.SecretsOf(cfg, data)
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		"file:hook": "https://example.com/x", "env:HOOK": "value of HOOK",
		"env:HOME": "", "file:other": "", "file:../secrets/hook": "", "arn:aws:secretsmanager:us-east-1:123456789012:secret:x": "", "hook": "",
	} {
		if got, err := of.Resolve(t.Context(), ref); got.Reveal() != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", ref, got.Reveal(), err)
		}
	}
}
