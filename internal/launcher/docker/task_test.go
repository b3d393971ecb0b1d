package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/launcher/docker"
	"github.com/dayfly-dev/dayfly/internal/launcher/launchertest"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func launch(t *testing.T, l *docker.Launcher, r launcher.Request) launcher.Task {
	t.Helper()
	task, err := l.Launch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func refused(t *testing.T, l *docker.Launcher, r launcher.Request) *launcher.Refusal {
	t.Helper()
	_, err := l.Launch(t.Context(), r)
	refusal, ok := errors.AsType[*launcher.Refusal](err)
	if !ok {
		t.Fatalf("got %v, want a refusal", err)
	}
	return refusal
}

// S4: what a container may do. No engine is asked.
func TestContainer_HasNothingBeyondItsJob(t *testing.T) {
	tools, jobs := filepath.Join(t.TempDir(), "tools"), t.TempDir()
	l, err := docker.New(docker.Config{
		Machine: launcher.Machine{
			Dir: jobs, EnvAllow: []string{"REGION"}, LookupEnv: func(string) (string, bool) { return "planted-value", true },
			EnginePath: []string{"/opt/a", "/opt/b"}, ToolsDir: tools, Downloads: []string{"tofu"},
		},
		Image: "runner", Network: "none", UID: 4711, Instance: "here",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	text, err := docker.Posture(l, launcher.Request{
		Needs:    contract.Needs{Attempt: 2, Organization: "default", Workspace: "network", Pool: "pool", Size: "medium", SourceDirectory: "/c", SourcePath: "live"},
		Workflow: "wf-1", Placement: "default", Ticket: "sealed", Relay: "unix:///data/relay/wf-1-2/relay.sock",
		States: contract.StateDirs{Own: "default/network"}, ReadsState: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "planted-value") {
		t.Error("a forwarded value is in the container's configuration")
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	bind := func(from, to string, readOnly bool) any {
		return map[string]any{"Type": "bind", "Source": from, "Target": to, "ReadOnly": readOnly, "BindOptions": map[string]any{"NonRecursive": true}}
	}
	want := map[string]any{
		"Image": "runner", "User": "4711:4711", "WorkingDir": "/dayfly/work",
		"OpenStdin": true, "StdinOnce": true, "AttachStdin": false, "StopSignal": "SIGTERM",
		"Env": []any{
			"DAYFLY_ATTEMPT=2", "DAYFLY_ENGINE_PATH=/dayfly/engines/0:/dayfly/engines/1", "DAYFLY_ENV_FORWARD_ALLOWLIST=REGION", "DAYFLY_GATE_BUNDLE=true", "DAYFLY_GATE_FD=0", "DAYFLY_JOB=wf-1", "DAYFLY_MAX_PROCESSES=2048",
			"DAYFLY_RELAY=unix:///run/dayfly/relay.sock", "DAYFLY_SOURCE_DIR=/dayfly/work/given", "DAYFLY_STATE_DIR=/dayfly/state",
			"DAYFLY_STOP_GRACE=1m30s", "DAYFLY_TASK=task-x", "DAYFLY_TICKET=sealed", "DAYFLY_TOOLS_DIR=/dayfly/tools", "DAYFLY_UNSAVED=" + launcher.OnThis(filepath.Join(jobs, "unsaved", "task-x")), "DAYFLY_WORK_DIR=/dayfly/work", "HOME=/dayfly/work",
		},
		"Labels": map[string]any{
			"dev.dayfly.launcher": "me", "dev.dayfly.task": "task-x", "dev.dayfly.job": "wf-1", "dev.dayfly.attempt": "2",
			"dev.dayfly.placement": "default", "dev.dayfly.pool": "pool", "dev.dayfly.workspace": "default/network", "dev.dayfly.instance": "here",
		},
		"HostConfig": map[string]any{
			"NetworkMode": "none", "IpcMode": "private", "ReadonlyRootfs": true, "CapDrop": []any{"ALL"}, "SecurityOpt": []any{"no-new-privileges"},
			"Memory": float64(4 << 30), "MemorySwap": float64(4 << 30), "NanoCpus": 1e9, "PidsLimit": 2048.0,
			"Init": false, "AutoRemove": false, "Privileged": false, "RestartPolicy": map[string]any{"Name": "no"},
			"Mounts": []any{
				bind("/w", "/dayfly/work", false), bind("/s", "/dayfly/state", true),
				bind("/opt/a", "/dayfly/engines/0", true), bind("/opt/b", "/dayfly/engines/1", true), bind(tools, "/dayfly/tools", true),
				bind("/data/relay/wf-1-2", "/run/dayfly", true),
			},
			"Tmpfs":     map[string]any{"/tmp": "rw,nosuid,nodev,mode=1777,size=268435456"},
			"Ulimits":   []any{map[string]any{"Name": "core", "Soft": 0.0, "Hard": 0.0}},
			"LogConfig": map[string]any{"Type": "json-file", "Config": map[string]any{"max-size": "1m", "max-file": "1"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("container differs (-want +got):\n%s", diff)
	}
}

// An engine may run on a system that lacks some limits. It refuses a limit of processors and drops the others; the run
// says so.
func TestContainer_LimitsThatTheEngineCannotKeepAreTold(t *testing.T) {
	for said, want := range map[string][]contract.Limit{
		`{"MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":true}`:    nil,
		`{"ID":"an engine that does not say"}`:                        nil,
		`{"MemoryLimit":false,"CpuCfsQuota":false,"PidsLimit":false}`: {contract.LimitCPU, contract.LimitMemory, contract.LimitProcesses},
		`{"MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":false}`:   {contract.LimitProcesses},
	} {
		if got, err := docker.Unkept([]byte(said)); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", said, got, err, want)
		}
	}
	l, err := docker.New(docker.Config{Machine: launcher.Machine{Dir: t.TempDir()}, Image: "runner", Network: "none", UID: 4711})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	text, err := docker.Posture(l, launcher.Request{Workflow: "wf-1", Ticket: "sealed", Relay: "http://relay"}, contract.LimitCPU, contract.LimitProcesses)
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]bool{
		`"NanoCpus":0,`: true, "DAYFLY_MAX_PROCESSES": false,
		"DAYFLY_NOTICE=this machine does not enforce these limits of the size: cpu (1 vCPU), processes (1024); the Docker engine": true,
	} {
		if strings.Contains(string(text), part) != want {
			t.Errorf("got %s, want that it has %s: %t", text, part, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"1.40", "1.41", true}, {"1.41", "1.41", false}, {"1.9", "1.41", true}, {"2.0", "1.41", false}, {"", "1.41", true}} {
		if got := docker.Older(c.a, c.b); got != c.want {
			t.Errorf("older(%q, %q): got %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestLaunch_WithoutAnEngineIsTriedAgain(t *testing.T) {
	l, err := docker.New(docker.Config{Machine: launcher.Machine{Dir: t.TempDir()}, Image: "runner", Socket: filepath.Join(t.TempDir(), "none.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	r := launcher.Request{Workflow: "wf-1", Needs: contract.Needs{Attempt: 1}, Ticket: "sealed", Relay: "http://127.0.0.1:1"}
	if got := refused(t, l, r); got.Permanent || got.Reason != workflow.ReasonUnavailable {
		t.Errorf("got %+v, want a refusal for now", got)
	}
	if _, err := l.List(t.Context()); err == nil {
		t.Error("an engine that does not answer has no tasks: want an error")
	}
}

func TestLaunch_WithoutItsImageIsRefusedForGood(t *testing.T) {
	image(t)
	l := open(t, config(t.TempDir(), "dayfly-test-no-such-image", time.Hour))
	s := launchertest.NewStage(t, nil)
	if got := refused(t, l, s.Request("wf-1", false)); !got.Permanent || !strings.Contains(got.Text, "make image") {
		t.Errorf("got %+v, want a permanent refusal that says what to do", got)
	}
}

// A launcher that died between making a container and letting it go leaves nothing that counts.
func TestLaunch_AfterOneThatWasCutShort(t *testing.T) {
	c := config(t.TempDir(), image(t), time.Hour)
	l := open(t, c)
	s := launchertest.NewStage(t, nil)
	r := s.Request("wf-1", false)
	if err := docker.Create(t.Context(), l, r); err != nil {
		t.Fatal(err)
	}
	// Either the launch finds it and says to try again, or a look has removed it.
	if got := refused(t, l, r); got.Permanent || got.Unknown {
		t.Errorf("got %+v, want a refusal for now", got)
	}
	task := launch(t, l, r)
	s.Next(t).Exit(t, 0)
	launchertest.AwaitStopped(t, l, task.Ref)
	r.Attempt = 2
	if err := docker.Create(t.Context(), l, r); err != nil {
		t.Fatal(err)
	}
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 1 {
		t.Errorf("got %v, %v; want the one that ran", tasks, err)
	}
	if n, err := docker.Containers(t.Context(), l); err != nil || n != 0 {
		t.Errorf("got %d containers, %v; want none", n, err)
	}
	if s.Runners() != 1 {
		t.Errorf("got %d runners, want 1", s.Runners())
	}
}

// A task is known again by its container alone, and its directory goes with it.
func TestRestart_WithoutRecords(t *testing.T) {
	dir := t.TempDir()
	c := config(dir, image(t), time.Hour)
	l := open(t, c)
	s := launchertest.NewStage(t, nil)
	r := s.Request("wf-1", false)
	task := launch(t, l, r)
	p := s.Next(t)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// And what a launcher leaves that dies before it has made a container.
	unused := filepath.Join(dir, "task-"+strings.Repeat("0", 32))
	if err := errors.Join(os.Remove(filepath.Join(dir, "journal-0")), os.MkdirAll(filepath.Join(unused, "sub"), 0o700)); err != nil {
		t.Fatal(err)
	}
	l = open(t, c)
	if got, err := l.List(t.Context()); err != nil || len(got) != 1 || got[0].Ref != task.Ref || got[0].Phase != launcher.Running {
		t.Fatalf("got %+v, %v; want the task", got, err)
	}
	if got := launch(t, l, r); got.Ref != task.Ref {
		t.Errorf("got task %s, want %s", got.Ref, task.Ref)
	}
	if _, err := os.Stat(unused); !os.IsNotExist(err) {
		t.Errorf("the directory of no task: got %v, want that it is gone", err)
	}
	p.Lives(t)
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, l, task.Ref)
	if _, err := os.Stat(filepath.Join(dir, task.Ref)); !os.IsNotExist(err) {
		t.Errorf("the task's directory: got %v, want that it is gone", err)
	}
	if n, err := docker.Containers(t.Context(), l); err != nil || n != 0 {
		t.Errorf("got %d containers, %v; want none", n, err)
	}
}

// Nobody waits for ever for a runner that is deaf, and none is left behind.
func TestEnd_GivesATaskItsTimeAndThenKillsIt(t *testing.T) {
	l := open(t, config(t.TempDir(), image(t), time.Hour))
	s := launchertest.NewStage(t, nil)
	obedient := launch(t, l, s.Request("wf-1", false))
	s.Next(t)
	stubborn := launch(t, l, s.Request("wf-2", true))
	s.Next(t)
	ctx, hurry := context.WithCancel(t.Context())
	defer hurry()
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = l.Watch(ctx, func(_ context.Context, task launcher.Task) {
			if task.Ref == obedient.Ref {
				hurry() // as a second interrupt does
			}
		})
	})
	err := l.End(ctx)
	hurry()
	watching.Wait()
	if err != nil {
		t.Error(err)
	}
	got, err := l.Describe(t.Context(), obedient.Ref, stubborn.Ref)
	if err != nil || len(got) != 2 || got[0].Phase != launcher.Stopped || got[1].Phase != launcher.Stopped {
		t.Fatalf("got %+v, %v; want both stopped", got, err)
	}
	if strings.Contains(got[0].Text, "killed") || !strings.Contains(got[1].Text, "killed before its grace of 1h0m0s was over") {
		t.Errorf("got %q and %q, want that only the deaf one was killed, and when", got[0].Text, got[1].Text)
	}
	if n, err := docker.Containers(t.Context(), l); err != nil || n != 0 {
		t.Errorf("got %d containers, %v; want none", n, err)
	}
}

// C6: that a container is not there proves an end only where the engine is the one that had it.
func TestEnd_OfARemovedContainer(t *testing.T) {
	l := open(t, config(t.TempDir(), image(t), time.Hour))
	s := launchertest.NewStage(t, nil)
	task := launch(t, l, s.Request("wf-1", false))
	s.Next(t)
	ours := docker.Move(l, task.Ref, "another engine")
	if err := docker.Remove(t.Context(), l, task.Ref); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Describe(t.Context(), task.Ref); err != nil || len(got) != 1 || got[0].Phase == launcher.Stopped {
		t.Errorf("with another engine: got %+v, %v; want a task whose end is not known", got, err)
	}
	docker.Move(l, task.Ref, ours)
	if got := launchertest.AwaitStopped(t, l, task.Ref); got.ExitCode != nil || !strings.Contains(got.Text, "removed") {
		t.Errorf("got %+v, want an end without an exit code", got)
	}
}

func TestState_IsTheTasksOwn(t *testing.T) {
	dir := t.TempDir()
	l := open(t, config(dir, image(t), time.Hour))
	s := launchertest.NewStage(t, nil)
	state, outside := filepath.Join(dir, "state/default/network"), filepath.Join(dir, "outside")
	if err := errors.Join(
		os.MkdirAll(state, 0o700),
		os.WriteFile(filepath.Join(state, "terraform.tfstate"), nil, 0o600),
		os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(state, "link")),
	); err != nil {
		t.Fatal(err)
	}
	r := s.Request("wf-1", false)
	r.States.Own = "default/network"
	task := launch(t, l, r)
	if got := s.Next(t).Getenv("DAYFLY_STATE_DIR"); got != "/dayfly/state" {
		t.Errorf("got state directory %q", got)
	}
	if os.Geteuid() == 0 {
		owner := func(path string) int {
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			return int(info.Sys().(*syscall.Stat_t).Uid)
		}
		got := []int{owner(state), owner(filepath.Join(state, "terraform.tfstate")), owner(outside)}
		if diff := cmp.Diff([]int{docker.DefaultUID, docker.DefaultUID, 0}, got); diff != "" {
			t.Errorf("owners differ (-want +got):\n%s", diff)
		}
	}
	if err := l.Stop(t.Context(), task.Ref, "over"); err != nil {
		t.Fatal(err)
	}
	launchertest.AwaitStopped(t, l, task.Ref)
}

// copies are sources of a test: what they copy is one file, and they refuse a directory named bad.
type copies struct {
	giveUp func()     // called in the middle of an endless copy
	ended  chan error // why such a copy ended
}

// Check implements launcher.Sources.
func (copies) Check(dir string) error {
	if filepath.Base(dir) == "bad" {
		return workflow.Refuse(workflow.ErrForbidden, "source.directory", "it is bad")
	}
	return nil
}

// Copy implements launcher.Sources.
func (c copies) Copy(ctx context.Context, dir, _, dest string) error {
	switch filepath.Base(dir) {
	case "unreadable":
		return &os.PathError{Op: "open", Path: dir, Err: syscall.EACCES}
	case "full":
		return &os.PathError{Op: "write", Path: dest, Err: syscall.ENOSPC}
	case "endless":
		c.giveUp()
		<-ctx.Done()
		c.ended <- context.Cause(ctx)
		return context.Cause(ctx)
	}
	return errors.Join(os.Mkdir(dest, 0o700), os.WriteFile(filepath.Join(dest, "code"), nil, 0o600))
}

// A container gets a copy of its source in its work directory, and nothing of the machine is mounted for it.
func TestSource_IsACopyForTheTask(t *testing.T) {
	dir := t.TempDir()
	c := config(dir, image(t), time.Hour)
	ctx, cancel := context.WithCancelCause(t.Context())
	nobody := errors.New("nobody wants it")
	sources := copies{func() { cancel(nobody) }, make(chan error, 1)}
	c.Sources = sources
	l := open(t, c)
	s := launchertest.NewStage(t, nil)
	r := s.Request("wf-1", false)
	for name, want := range map[string]launcher.Refusal{
		"bad":        {Reason: workflow.ReasonLaunchFailed, Permanent: true, Text: "it is bad"},
		"unreadable": {Reason: workflow.ReasonLaunchFailed, Permanent: true, Text: "permission denied"},
		"full":       {Reason: workflow.ReasonCapacity, Text: "no disk space"},
	} {
		r.SourceDirectory = "/srv/" + name
		if got := refused(t, l, r); got.Reason != want.Reason || got.Permanent != want.Permanent || !strings.Contains(got.Text, want.Text) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	r.SourceDirectory = "/srv/endless"
	if _, err := l.Launch(ctx, r); err == nil {
		t.Error("a launch that was given up went on")
	} else if got := <-sources.ended; !errors.Is(got, nobody) {
		t.Errorf("the copy ended for %v", got)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "task-*")); err != nil || len(left) > 0 {
		t.Errorf("refused launches left %v, %v", left, err)
	}

	r.SourceDirectory = "/srv/code"
	task := launch(t, l, r)
	p := s.Next(t)
	if got := p.Getenv("DAYFLY_SOURCE_DIR"); got != "/dayfly/work/given" {
		t.Errorf("got source directory %q", got)
	}
	info, err := os.Stat(filepath.Join(dir, task.Ref, "given", "code"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; os.Geteuid() == 0 && got != docker.DefaultUID {
		t.Errorf("the copy belongs to %d, want the task's user", got)
	}
	p.Exit(t, 0)
	launchertest.AwaitStopped(t, l, task.Ref)
}

// L8: a container whose runner is killed for memory ends for that reason.
func TestEnd_OfATaskThatRanOutOfMemory(t *testing.T) {
	image := image(t)
	s, l := launchertest.NewStage(t, nil), open(t, config(t.TempDir(), image, time.Hour))
	r := s.Request("wf-1", false)
	r.Size = "256/512"
	task := launch(t, l, r)
	s.Next(t).Eat(t)
	if got := launchertest.AwaitStopped(t, l, task.Ref); got.Reason != workflow.ReasonOutOfMemory {
		t.Errorf("got %+v, want out_of_memory", got)
	}
}

// L3: a workspace's image is one of those that the pool names.
func TestLaunch_TheImageIsOneOfThePool(t *testing.T) {
	c := config(t.TempDir(), "nothing-there", time.Hour)
	c.Images = map[string]string{"big": "x:1", "small": "x:2"}
	s, l := launchertest.NewStage(t, nil), open(t, c)
	r := s.Request("wf-1", false)
	r.Image = "huge"
	if got := refused(t, l, r); !got.Permanent || !strings.Contains(got.Text, `"huge"; this pool has big, small`) {
		t.Errorf("got %+v, want a permanent refusal that lists the names", got)
	}
}
