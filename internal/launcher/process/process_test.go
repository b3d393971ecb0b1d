package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	"github.com/dayfly-dev/dayfly/internal/launcher/process"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

var (
	_ launcher.Launcher = (*process.Launcher)(nil)
	_ launcher.Watcher  = (*process.Launcher)(nil)
	_ launcher.Spooler  = (*process.Launcher)(nil)
)

const (
	hostVariable   = "PROCESS_TEST_HOST"   // this binary is to run a launcher, which will be killed
	recordVariable = "PROCESS_TEST_RECORD" // the record as it was when the gate opened
	noWait         = "GORACE=atexit_sleep_ms=0"
)

func TestMain(m *testing.M) {
	if fd := os.Getenv("DAYFLY_GATE_FD"); fd != "" && os.Getenv("LAUNCHERTEST_CHILD") == "" {
		waitAtGate(fd)
	}
	if code, ok := launchertest.Play(); ok {
		os.Exit(code)
	}
	if text := os.Getenv(hostVariable); text != "" {
		os.Exit(host(text))
	}
	os.Exit(leak.Main(m))
}

// waitAtGate does as the runner does: nothing, before the launcher says so.
func waitAtGate(fd string) {
	n, _ := strconv.Atoi(fd)
	gate := os.NewFile(uintptr(n), "gate")
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		os.Exit(90)
	}
	_ = gate.Close()
	_ = os.Setenv(recordVariable, onRecord(filepath.Split(os.Getenv("DAYFLY_WORK_DIR"))))
}

// onRecord is the last line about a task in the journal of a directory.
func onRecord(dir, ref string) (last string) {
	files, _ := filepath.Glob(filepath.Join(dir, "journal-*"))
	for _, path := range files {
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, `{"ref":"`+ref+`"`) {
				last = line
			}
		}
	}
	return last
}

// hosted is what the process that runs a launcher is told.
type hosted struct {
	Config  config
	Request launcher.Request
}

// config is the part of process.Config that crosses to another process.
type config struct {
	Dir, StateRoot string
	EngineUIDs     int
	NoCgroup       bool
}

func (c config) open(change ...func(*process.Config)) (*process.Launcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	full := process.Config{
		Machine: launcher.Machine{Dir: c.Dir, StateRoot: c.StateRoot, Grace: time.Hour}, EngineUIDs: c.EngineUIDs, NoCgroup: c.NoCgroup,
		// A binary with the race detector waits a second before it exits, unless it is told not to.
		Command: []string{"/usr/bin/env", noWait, self, "-test.run=^$"},
	}
	for _, f := range change {
		f(&full)
	}
	return process.New(full)
}

// host runs a launcher until it is killed.
func host(text string) int {
	var h hosted
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return 91
	}
	l, err := h.Config.open()
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
func crash(t *testing.T, c config, r launcher.Request, alive func()) launcher.Task {
	t.Helper()
	text, err := json.Marshal(hosted{c, r})
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
	_ = cmd.Wait()
	return task
}

// dir is a directory that users other than its owner can pass through, which t.TempDir is not.
func dir(t *testing.T) string {
	t.Helper()
	d := t.TempDir()
	if err := os.Chmod(filepath.Dir(d), 0o711); err != nil {
		t.Fatal(err)
	}
	return d
}

func open(t *testing.T, c config, change ...func(*process.Config)) *process.Launcher {
	t.Helper()
	l, err := c.open(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, l) })
	return l
}

// end closes a launcher without waiting for graces.
func end(t *testing.T, l *process.Launcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func harness(change func(*config)) launchertest.Harness {
	fresh := func(t *testing.T) config {
		d := dir(t)
		c := config{Dir: filepath.Join(d, "jobs"), StateRoot: filepath.Join(d, "state")}
		change(&c)
		return c
	}
	return launchertest.Harness{
		New: func(t *testing.T, grace time.Duration) launcher.Launcher {
			return open(t, fresh(t), func(c *process.Config) { c.Grace = grace })
		},
		Crash: func(t *testing.T, r launcher.Request, alive func()) (launcher.Launcher, launcher.Task) {
			c := fresh(t)
			task := crash(t, c, r, alive)
			return open(t, c), task
		},
	}
}

func TestConformance(t *testing.T) {
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")})
	isolation := l.Isolation()
	t.Run("InSessions", func(t *testing.T) {
		launchertest.Run(t, harness(func(c *config) { c.NoCgroup = true }))
	})
	t.Run("InCgroups", func(t *testing.T) {
		if !isolation.Cgroup {
			t.Skip("no cgroup v2 can be written here")
		}
		launchertest.Run(t, harness(func(*config) {}))
	})
	t.Run("AsTheLaunchersOwnUser", func(t *testing.T) {
		if !isolation.EngineUser {
			t.Skip("engines have no users of their own here anyway")
		}
		launchertest.Run(t, harness(func(c *config) { c.EngineUIDs = -1 }))
	})
}

// The same suite by somebody who may not change users nor, as a rule, write cgroups.
func TestConformance_WithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("TestConformance runs without root already")
	}
	if testing.Short() {
		t.Skip("runs the suite once more")
	}
	const nobody = 65534
	d := dir(t)
	binary := filepath.Join(d, "process.test")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, b, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(d, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chown(tmp, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestConformance$", "-test.v")
	cmd.Dir = tmp
	cmd.Env = []string{"TMPDIR=" + tmp, "HOME=" + tmp, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestConformance/InSessions/RestartKnowsTheTask") {
		t.Errorf("%v\n%s", err, out)
	}
}

func launch(t *testing.T, l launcher.Launcher, r launcher.Request) launcher.Task {
	t.Helper()
	task, err := l.Launch(t.Context(), r)
	if err != nil {
		t.Fatalf("launch: %v", err)
	}
	return task
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestLaunch_EnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("SECRET_OF_THE_AGENT", "1")
	s := launchertest.NewStage(t, nil)
	d := dir(t)
	l := open(t, config{Dir: filepath.Join(d, "jobs"), StateRoot: filepath.Join(d, "state"), EngineUIDs: -1, NoCgroup: true}, func(c *process.Config) {
		c.SourceRoots = []string{"/src/a", "/src/b"}
		c.SecretsStore = "/secrets"
		c.EnginePath = []string{"/opt/engines"}
		c.Path = "/bin"
		c.EnvAllow = []string{"FORWARDED", "NOT_SET", "HOME"}
		c.LookupEnv = func(name string) (string, bool) {
			v, ok := map[string]string{"FORWARDED": "yes", "HOME": "/home/me", "OTHER": "no"}[name]
			return v, ok
		}
	})
	r := s.Request("wf-1", false)
	r.States.Own = "default/network"
	task := launch(t, l, r)
	p := s.Next(t)
	work := filepath.Join(d, "jobs", task.Ref)
	got := slices.DeleteFunc(slices.Clone(p.Env), func(v string) bool { return v == noWait || strings.HasPrefix(v, recordVariable+"=") })
	want := []string{
		"DAYFLY_ATTEMPT=1", "DAYFLY_ENGINE_PATH=/opt/engines", "DAYFLY_ENV_FORWARD_ALLOWLIST=FORWARDED,NOT_SET,HOME",
		"DAYFLY_GATE_FD=3", "DAYFLY_JOB=wf-1",
		"DAYFLY_NOTICE=this machine does not enforce these limits of the size: cpu (1 vCPU), memory (2048 MiB), processes (1024); cgroups are switched off",
		"DAYFLY_RELAY=" + r.Relay, "DAYFLY_SECRETS_STORE=/secrets",
		"DAYFLY_SOURCE_ROOTS=/src/a:/src/b", "DAYFLY_STATE_DIR=" + filepath.Join(d, "state/default/network"),
		"DAYFLY_STOP_GRACE=45m0s",
		"DAYFLY_TASK=" + task.Ref, "DAYFLY_TICKET=" + r.Ticket,
		"DAYFLY_UNSAVED=" + launcher.OnThis(filepath.Join(filepath.Dir(work), "unsaved", task.Ref)), "DAYFLY_WORK_DIR=" + work,
		"FORWARDED=yes", "GOMAXPROCS=1", "HOME=/home/me", "PATH=/bin", "TMPDIR=" + work,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
}

// L6: what holds a workspace must be found again after a restart, so nothing acts before it is on
// disk.
// refusing are sources of which none may be used.
type refusing struct{}

// Check implements launcher.Sources.
func (refusing) Check(string) error { return errors.New("it is a data directory") }

// Copy implements launcher.Sources.
func (refusing) Copy(context.Context, string, string, string) error {
	return errors.New("no copy is made")
}

func TestLaunch_ASourceThatIsRefusedIsRefusedForGood(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	r := s.Request("wf-1", false)
	r.SourceDirectory = "/srv/data"
	for says, change := range map[string]func(*process.Config){
		"it is a data directory":                   func(c *process.Config) { c.Sources = refusing{} },
		"this launcher takes no directory sources": func(*process.Config) {},
	} {
		l, err := config{Dir: filepath.Join(dir(t), "jobs")}.open(change)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Launch(t.Context(), r)
		if got, ok := errors.AsType[*launcher.Refusal](err); !ok || !got.Permanent || !strings.Contains(got.Text, says) {
			t.Errorf("got %v, want %q", err, says)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestLaunch_RecordIsOnDiskBeforeTheRunnerActs(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	jobs := filepath.Join(dir(t), "jobs")
	l := open(t, config{Dir: jobs})
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	var record struct {
		Ref, Workflow, Placement, Boot, Cgroup string
		Attempt, PID                           int
		Start                                  uint64 `json:"pid_start"`
	}
	if err := json.Unmarshal([]byte(p.Getenv(recordVariable)), &record); err != nil {
		t.Fatalf("the record that the runner saw: %v", err)
	}
	if record.Ref != task.Ref || record.Workflow != "wf-1" || record.Attempt != 1 || record.Placement != "here" ||
		record.PID != p.PID || record.Start == 0 || record.Boot == "" || l.Isolation().Cgroup != (record.Cgroup != "") {
		t.Errorf("got %+v, want that of task %s in process %d", record, task.Ref, p.PID)
	}
	if sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(p.PID), 0, 0); int(sid) != p.PID {
		t.Errorf("got session %d, want the runner's own, %d", sid, p.PID)
	}
}

// A shell is at its gate sooner than a record is on disk, so it sees a gate that opens early.
func TestLaunch_GateOpensAfterTheRecord(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")}, func(c *process.Config) {
		c.Command = []string{"/bin/sh", "-c", `x=$(head -c 1 <&3); [ -n "$x" ] && grep -q '"pid":'$$, "$DAYFLY_WORK_DIR"/../journal-*`}
	})
	for i := range 20 {
		task := launch(t, l, s.Request("wf-"+strconv.Itoa(i), false))
		if got := launchertest.AwaitStopped(t, l, task.Ref); got.ExitCode == nil || *got.ExitCode != 0 {
			t.Fatalf("launch %d: got %+v, want exit code 0: the runner passed its gate without a record", i+1, got)
		}
	}
}

func TestStopped_WorkDirectoryIsGoneAndTheRecordStays(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	jobs := filepath.Join(dir(t), "jobs")
	l := open(t, config{Dir: jobs})
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	work := p.Getenv("DAYFLY_WORK_DIR")
	if err := os.MkdirAll(filepath.Join(work, "a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(work, "a/b/c"), nil, 0o400), os.Chmod(filepath.Join(work, "a/b"), 0o500), os.Chmod(filepath.Join(work, "a"), 0)); err != nil {
		t.Fatal(err)
	}
	p.Exit(t, 7)
	launchertest.AwaitStopped(t, l, task.Ref)
	if diff := cmp.Diff([]string{"journal-0", "lock"}, names(t, jobs)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	end(t, l)
	again := open(t, config{Dir: jobs})
	got := launchertest.AwaitStopped(t, again, task.Ref)
	if got.ExitCode == nil || *got.ExitCode != 7 || got.Text != "the runner ended with exit code 7" {
		t.Errorf("after a restart: got %+v, want exit code 7", got)
	}
}

func TestStopped_RunnerThatWasKilledHasNoExitCode(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")})
	task := launch(t, l, s.Request("wf-1", false))
	if err := syscall.Kill(s.Next(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := launchertest.AwaitStopped(t, l, task.Ref)
	if got.ExitCode != nil || !strings.Contains(got.Text, "signal 9") {
		t.Errorf("got %+v, want no exit code and the signal", got)
	}
}

func TestStopped_ProcessThatLeftItsSessionIsDeadToo(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")})
	if !l.Isolation().Cgroup {
		t.Skip("no cgroup v2 can be written here")
	}
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	child := p.Spawn(t, s, launchertest.OwnSession)
	child.Lives(t)
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, l, task.Ref)
	child.Gone(t)
}

func TestStop_SignalsTheRunnerAlone(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")})
	task := launch(t, l, s.Request("wf-1", true))
	p := s.Next(t)
	child := p.Spawn(t, s, launchertest.SameGroup)
	if err := l.Stop(t.Context(), task.Ref, "enough"); err != nil {
		t.Fatal(err)
	}
	p.AwaitTerm(t)
	child.Lives(t)
	if child.Terms() > 0 {
		t.Error("a process beside the runner got the signal: the runner, not the launcher, interrupts its engine")
	}
	p.Exit(t, 0)
	got := launchertest.AwaitStopped(t, l, task.Ref)
	if want := "the runner ended with exit code 0; it was asked to stop: enough"; got.Text != want {
		t.Errorf("got %q, want %q", got.Text, want)
	}
	child.Gone(t)
}

func TestFailure_RunnersLastWordsAreLogged(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	var log buffer
	l := open(t, config{Dir: filepath.Join(dir(t), "jobs")}, func(c *process.Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
	})
	for code, said := range map[int]string{0: "all is well", 1: "cannot go on"} {
		task := launch(t, l, s.Request("wf-"+strconv.Itoa(code), false))
		p := s.Next(t)
		p.Say(t, said)
		p.Exit(t, code)
		launchertest.AwaitStopped(t, l, task.Ref)
	}
	end(t, l) // whatever is logged is logged
	if got := log.String(); !strings.Contains(got, "cannot go on") || strings.Contains(got, "all is well") {
		t.Errorf("got log %s; want what the failed runner said and nothing of the other", got)
	}
}

// Last words are kept although the other end of the pipe is held, and whether or not their reader had its turn.
func TestTail_KeepsWhatIsInThePipe(t *testing.T) {
	for i := range 1000 {
		said := "word " + strconv.Itoa(i)
		if got, err := process.Tail(said); err != nil || got != said {
			t.Fatalf("got %q, %v; want %q", got, err, said)
		}
	}
}

// buffer is written by several goroutines.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestClose_LeavesNothing(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	jobs := filepath.Join(dir(t), "jobs")
	l := open(t, config{Dir: jobs})
	refs := []string{
		launch(t, l, s.Request("wf-obedient", false)).Ref,
		launch(t, l, s.Request("wf-stubborn", true)).Ref,
	}
	players := []*launchertest.Player{s.Next(t), s.Next(t)}
	players = append(players, players[0].Spawn(t, s, launchertest.OwnGroup), players[1].Spawn(t, s, launchertest.OwnGroup))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var obedient sync.WaitGroup
	obedient.Go(func() { // its grace is over when the obedient one has ended by itself
		defer cancel()
		_ = l.Watch(ctx, func(_ context.Context, task launcher.Task) {
			if task.Ref == refs[0] {
				cancel()
			}
		})
	})
	err := l.Close(ctx)
	obedient.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range players {
		p.Gone(t)
	}
	for i, killed := range []bool{false, true} {
		text := onRecord(jobs, refs[i])
		if !strings.Contains(text, "stopped_at") || strings.Contains(text, "killed before its grace of") != killed || strings.Contains(text, "had not ended within") {
			t.Errorf("got record %s; want that only the stubborn one was killed, and before its grace was over", text)
		}
	}
	if diff := cmp.Diff([]string{"journal-0", "lock"}, names(t, jobs)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	tasks, err := l.List(t.Context())
	if err != nil || len(tasks) != 2 || tasks[0].Phase != launcher.Stopped || tasks[1].Phase != launcher.Stopped {
		t.Errorf("got %+v, %v; want both stopped", tasks, err)
	}
	if codes := tasks[0].ExitCode; codes == nil || *codes != 3 {
		t.Errorf("got %+v, want that the obedient one was asked and ended itself", tasks[0])
	}
	_, err = l.Launch(t.Context(), s.Request("wf-late", false))
	if r, ok := errors.AsType[*launcher.Refusal](err); !ok || r.Permanent || r.Reason != workflow.ReasonUnavailable {
		t.Errorf("launch after close: got %v, want a transient refusal", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestRestart_LauncherDiesAndItsRunnerWithIt(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	c := config{Dir: filepath.Join(dir(t), "jobs")}
	var p, child *launchertest.Player
	task := crash(t, c, s.Request("wf-1", true), func() {
		p = s.Next(t)
		child = p.Spawn(t, s, launchertest.OwnGroup)
	})
	p.Gone(t) // although nobody has started the launcher again
	child.Lives(t)
	l := open(t, c)
	// New waited for it, so what is told first is the end.
	tasks, err := l.Describe(t.Context(), task.Ref)
	if err != nil || len(tasks) != 1 || tasks[0].Phase != launcher.Stopped || tasks[0].ExitCode != nil ||
		!strings.Contains(tasks[0].Text, "while the run was in progress") {
		t.Errorf("got %+v, %v; want a stopped task without exit code", tasks, err)
	}
	child.Gone(t)
	if diff := cmp.Diff([]string{"journal-0", "journal-1", "lock"}, names(t, c.Dir)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
}

func TestRestart_OfTheMachineIsAnEndAndNobodyIsKilled(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	c := config{Dir: filepath.Join(dir(t), "jobs"), NoCgroup: true}
	var child *launchertest.Player
	task := crash(t, c, s.Request("wf-1", true), func() { child = s.Next(t).Spawn(t, s, launchertest.OwnGroup) })
	path := filepath.Join(c.Dir, "journal-0")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = regexp.MustCompile(`"boot":"[^"]*"`).ReplaceAll(b, []byte(`"boot":"another"`))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, c)
	got := launchertest.AwaitStopped(t, l, task.Ref)
	if !strings.Contains(got.Text, "machine") {
		t.Errorf("got %q, want that the machine was started again", got.Text)
	}
	child.Lives(t) // a process of this start of the machine is a stranger
}

// The end of a task is added to its record without waiting for the disk.
func TestRestart_AnEndThatIsCutOffIsProvenAgain(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	c := config{Dir: filepath.Join(dir(t), "jobs")}
	l := open(t, c)
	task := launch(t, l, s.Request("wf-1", false))
	s.Next(t).Exit(t, 0)
	first := launchertest.AwaitStopped(t, l, task.Ref)
	end(t, l)
	path := filepath.Join(c.Dir, "journal-0")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	beginning := bytes.IndexByte(whole, '\n') + 1
	for name, cut := range map[string]int{"whole": len(whole), "without its line end": len(whole) - 1, "half": (beginning + len(whole)) / 2, "none": beginning, "one byte": beginning + 1} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(c.Dir), os.Mkdir(c.Dir, 0o711), os.WriteFile(path, whole[:cut], 0o600)); err != nil {
				t.Fatal(err)
			}
			l := open(t, c)
			got := launchertest.AwaitStopped(t, l, task.Ref)
			end(t, l)
			if known := cut >= len(whole)-1; known != (got.ExitCode != nil) || known && got.Text != first.Text || !known && !strings.Contains(got.Text, "while the run was in progress") {
				t.Errorf("got %+v", got)
			}
			l = open(t, c)
			if again := launchertest.AwaitStopped(t, l, task.Ref); !cmp.Equal(again, got) {
				t.Errorf("after another start: got %+v, want %+v", again, got)
			}
			end(t, l)
		})
	}
}

func TestRestart_RemovesLeftoversKeepsBadRecords(t *testing.T) {
	jobs := filepath.Join(dir(t), "jobs")
	end(t, open(t, config{Dir: jobs}))
	bad := "task-" + strings.Repeat("a", 32)
	gone := "task-" + strings.Repeat("b", 32)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(jobs, gone, "x"), 0o700),
		os.WriteFile(filepath.Join(jobs, ".id.x.tmp"), nil, 0o600),
		os.WriteFile(filepath.Join(jobs, "journal-7"), []byte(`{"ref":"`+bad+`","workflow":""}`+"\n"), 0o600),
		os.WriteFile(filepath.Join(jobs, "not-ours"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	l := open(t, config{Dir: jobs})
	if diff := cmp.Diff([]string{"journal-7", "journal-7.broken", "lock", "not-ours"}, names(t, jobs)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 0 {
		t.Errorf("got %v, %v; want no task", tasks, err)
	}
}

func TestNew_DirectoryBelongsToOneLauncher(t *testing.T) {
	c := config{Dir: filepath.Join(dir(t), "jobs")}
	l := open(t, c)
	if _, err := c.open(); !errors.Is(err, workflow.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	end(t, l)
	open(t, c)
}

func TestKeep_TaskIsForgottenLongAfterItsEnd(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	jobs := filepath.Join(dir(t), "jobs")
	var mu sync.Mutex
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func(c *process.Config) {
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	}
	pass := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	l := open(t, config{Dir: jobs}, clock)
	r := s.Request("wf-1", false)
	first := launch(t, l, r)
	s.Next(t).Exit(t, 0)
	launchertest.AwaitStopped(t, l, first.Ref)
	// Down for a day: who was not told of the stop must still be told.
	end(t, l)
	pass(24 * time.Hour)
	l = open(t, config{Dir: jobs}, clock)
	pass(process.Keep - time.Second)
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 1 {
		t.Errorf("got %v, %v; want the task", tasks, err)
	}
	if got := launch(t, l, r); got.Ref != first.Ref {
		t.Errorf("got task %s, want %s", got.Ref, first.Ref)
	}
	pass(time.Second)
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 0 {
		t.Errorf("got %v, %v; want nothing", tasks, err)
	}
	if diff := cmp.Diff([]string{"lock"}, names(t, jobs)); diff != "" {
		t.Errorf("files left (-want +got):\n%s", diff)
	}
	if got := launch(t, l, r); got.Ref == first.Ref {
		t.Error("a reference was used twice")
	}
	if process.Keep < time.Hour {
		t.Error("the contract says an hour at least")
	}
}

func TestRefusal_TransientAndPermanent(t *testing.T) {
	s := launchertest.NewStage(t, nil)
	jobs := filepath.Join(dir(t), "jobs")
	l := open(t, config{Dir: jobs}, func(c *process.Config) { c.Command = []string{filepath.Join(jobs, "absent")} })
	_, err := l.Launch(t.Context(), s.Request("wf-1", false))
	if r, ok := errors.AsType[*launcher.Refusal](err); !ok || !r.Permanent || r.Reason != workflow.ReasonLaunchFailed {
		t.Errorf("missing program: got %v, want a permanent refusal", err)
	}
	if got := names(t, jobs); len(got) != 1 {
		t.Errorf("got files %v, want the lock alone", got)
	}
	for _, bad := range []func(*launcher.Request){
		func(r *launcher.Request) { r.States.Own = "../network" },
		func(r *launcher.Request) { r.States.Own = "default/a/../../b" },
		func(r *launcher.Request) { r.States.Own = "default" },
		func(r *launcher.Request) { r.StateOlds = []string{"default/.."} },
		func(r *launcher.Request) { r.States.Required = true }, // this launcher has no state root
	} {
		r := s.Request("wf-1", false)
		bad(&r)
		_, err := l.Launch(t.Context(), r)
		if r, ok := errors.AsType[*launcher.Refusal](err); !ok || !r.Permanent {
			t.Errorf("got %v, want a permanent refusal", err)
		}
	}
	for errno, want := range map[syscall.Errno]workflow.Reason{
		syscall.EAGAIN: workflow.ReasonCapacity, syscall.ENOMEM: workflow.ReasonCapacity, syscall.EMFILE: workflow.ReasonCapacity,
		syscall.ENFILE: workflow.ReasonCapacity, syscall.ENOSPC: workflow.ReasonCapacity, syscall.EIO: workflow.ReasonUnavailable,
		syscall.ETXTBSY: workflow.ReasonUnavailable, syscall.EACCES: workflow.ReasonUnavailable,
	} {
		r, ok := errors.AsType[*launcher.Refusal](process.Classify(fmt.Errorf("make directory: %w", errno)))
		if !ok || r.Permanent || r.Reason != want {
			t.Errorf("%v: got %+v, want a transient refusal, %s", errno, r, want)
		}
	}
}

func TestNew_EveryMistakeIsToldAtOnce(t *testing.T) {
	_, err := process.New(process.Config{
		Machine: launcher.Machine{Dir: "relative", StateRoot: "relative", EnvAllow: []string{"DAYFLY_TICKET", "a=b"}, Grace: -1},
		Command: []string{"runner"},
	})
	if !errors.Is(err, workflow.ErrInvalid) {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	for _, want := range []string{"dir:", "command:", "state_root:", "DAYFLY_TICKET", "a=b", "nothing gives their values", "grace:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want a word on %s", err, want)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	ref := "task-" + strings.Repeat("0", 32)
	f.Add([]byte(`{"ref":"` + ref + `","workflow":"w","attempt":1,"pid":2,"boot":"b","cgroup":"/sys/fs/cgroup/x/` + ref + `","state_dir":"a/b"}`))
	f.Add([]byte(`{"ref":"` + ref + `","workflow":"w","attempt":1,"pid":2,"boot":"b","cgroup":"/x/../` + ref + `"}`))
	f.Add([]byte(`{"ref":"../x"}`))
	f.Add([]byte(`{"ref":"` + ref + `","workflow":"w","attempt":1,"stopped_at":"2026-01-02T03:04:05Z","exit_code":0}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ref, cgroup, state, err := process.ParseRecord(b)
		if err != nil {
			return
		}
		if !filepath.IsLocal(ref) || strings.Contains(ref, "/") {
			t.Errorf("took reference %q", ref)
		}
		if cgroup != "" && (filepath.Base(cgroup) != ref || filepath.Clean(cgroup) != cgroup) {
			t.Errorf("took cgroup %q of %q", cgroup, ref)
		}
		if state != "" && !filepath.IsLocal(state) {
			t.Errorf("took state %q", state)
		}
	})
}
