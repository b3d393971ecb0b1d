// Package launchertest is the suite that every launcher must pass. Its tasks are played: the launcher
// runs a program that calls Play, which connects to the test and obeys it. So the test knows which
// processes live.
package launchertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/launcher"
	contract "github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Harness makes launchers for the suite.
type Harness struct {
	// New makes a launcher that has no tasks, with this grace, and closes it when the test ends. Its
	// tasks run Play.
	New func(t *testing.T, grace time.Duration) launcher.Launcher
	// Reach turns the address of a listener of the test into the one at which tasks find it; nil
	// leaves it as it is.
	Reach func(address string) string
	// Crash launches r with a launcher that dies without closing after alive returned. It returns another
	// launcher on the same storage, and the task as the dead one knew it. nil skips those tests.
	Crash func(t *testing.T, r launcher.Request, alive func()) (launcher.Launcher, launcher.Task)
}

const (
	never = time.Hour              // a grace that no test waits for
	soon  = 100 * time.Millisecond // a grace that a test waits for
)

// Run runs the suite on the launchers of h.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"TaskKnowsWhoItIs", identity},
		{"SameRequestIsTheSameTask", sameRequest},
		{"SameRequestAtOnceIsOneTask", sameRequestAtOnce},
		{"AnotherAttemptOrPlacementIsAnotherTask", anotherTask},
		{"EndIsReportedWithItsExitCode", exitCodes},
		{"EndIsReportedWithItsCauseAndLastWords", lastWords},
		{"ListAndDescribeAgree", listAndDescribe},
		{"StopAsksFirst", stopAsks},
		{"StopKillsAfterTheGrace", stopKills},
		{"StopOfAnUnknownTaskIsNotFound", stopUnknown},
		{"NothingIsLeftOnceStopped", nothingLeft},
		{"NothingIsLeftOnceKilled", nothingLeftOnceKilled},
		{"WatchReportsEveryStop", watch},
		{"RequestThatCanNeverRunIsRefusedForGood", badRequests},
		{"WhatARunnerLeftOfItsLogIsKept", spools},
		{"WhatAnEngineCouldNotWriteStays", unsaved},
		{"RestartKnowsTheTask", restart},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, h) })
	}
}

func launch(t *testing.T, l launcher.Launcher, r launcher.Request) launcher.Task {
	t.Helper()
	task, err := l.Launch(t.Context(), r)
	if err != nil {
		t.Fatalf("launch: %v", err)
	}
	if task.Ref == "" || task.Workflow != r.Workflow || task.Attempt != r.Attempt {
		t.Fatalf("got task %+v, want one of workflow %s attempt %d", task, r.Workflow, r.Attempt)
	}
	return task
}

func stop(t *testing.T, l launcher.Launcher, ref string) {
	t.Helper()
	if err := l.Stop(t.Context(), ref, "the test says so"); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

func describe(t *testing.T, l launcher.Launcher, refs ...string) []launcher.Task {
	t.Helper()
	tasks, err := l.Describe(t.Context(), refs...)
	if err != nil {
		t.Fatalf("describe: %v", err)
	}
	return tasks
}

// AwaitStopped asks until the task is reported as stopped.
func AwaitStopped(t *testing.T, l launcher.Launcher, ref string) launcher.Task {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		tasks := describe(t, l, ref)
		if len(tasks) != 1 || tasks[0].Ref != ref {
			t.Fatalf("describe: got %+v, want task %s", tasks, ref)
		}
		if tasks[0].Phase == launcher.Stopped {
			if tasks[0].Text == "" {
				t.Errorf("task %s stopped without a word why", ref)
			}
			return tasks[0]
		}
	}
	t.Fatalf("task %s was not reported as stopped within %s", ref, patience)
	return launcher.Task{}
}

func identity(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	r := s.Request("wf-1", false)
	r.Attempt = 4
	task := launch(t, l, r)
	p := s.Next(t)
	want := map[string]string{
		"DAYFLY_JOB": "wf-1", "DAYFLY_ATTEMPT": "4", "DAYFLY_TASK": task.Ref,
		"DAYFLY_TICKET": r.Ticket, "DAYFLY_RELAY": r.Relay,
	}
	got := map[string]string{}
	for name := range want {
		got[name] = p.Getenv(name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
}

func sameRequest(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	r := s.Request("wf-1", false)
	task := launch(t, l, r)
	p := s.Next(t)
	if got := launch(t, l, r); got.Ref != task.Ref {
		t.Errorf("while it lives: got task %s, want %s", got.Ref, task.Ref)
	}
	p.Exit(t, 0)
	AwaitStopped(t, l, task.Ref)
	if got := launch(t, l, r); got.Ref != task.Ref || got.Phase != launcher.Stopped {
		t.Errorf("after its end: got %+v, want the stopped task %s", got, task.Ref)
	}
	if got := s.Runners(); got != 1 {
		t.Errorf("got %d runners, want 1", got)
	}
}

func sameRequestAtOnce(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	r := s.Request("wf-1", false)
	refs := make([]string, 8)
	var wg sync.WaitGroup
	for i := range refs {
		wg.Go(func() {
			task, err := l.Launch(t.Context(), r)
			if err != nil {
				t.Errorf("launch: %v", err)
			}
			refs[i] = task.Ref
		})
	}
	wg.Wait()
	if got := slices.Compact(slices.Clone(refs)); len(got) != 1 {
		t.Errorf("got tasks %v, want one", got)
	}
	s.Next(t).Exit(t, 0)
	AwaitStopped(t, l, refs[0])
	if got := s.Runners(); got != 1 {
		t.Errorf("got %d runners, want 1", got)
	}
}

func anotherTask(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	r := s.Request("wf-1", false)
	refs := map[string]bool{launch(t, l, r).Ref: true}
	r.Attempt = 2
	refs[launch(t, l, r).Ref] = true
	r.Placement = "elsewhere"
	refs[launch(t, l, r).Ref] = true
	r.Workflow = "wf-2"
	refs[launch(t, l, r).Ref] = true
	if len(refs) != 4 {
		t.Errorf("got tasks %v, want 4 different ones", refs)
	}
	tasks := map[string]bool{}
	for range 4 {
		tasks[s.Next(t).Getenv("DAYFLY_TASK")] = true
	}
	if diff := cmp.Diff(refs, tasks); diff != "" {
		t.Errorf("the runners differ from the launched ones (-want +got):\n%s", diff)
	}
}

func exitCodes(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	for _, code := range []int{0, 1, 7} {
		task := launch(t, l, s.Request("wf-"+strconv.Itoa(code), false))
		s.Next(t).Exit(t, code)
		got := AwaitStopped(t, l, task.Ref)
		if got.ExitCode == nil || *got.ExitCode != code {
			t.Errorf("got %+v, want exit code %d", got, code)
		}
	}
}

// L8: a runner that could not reach its relay says so by its exit code, and people read its last words.
func lastWords(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	task := launch(t, l, s.Request("wf-1", false))
	player := s.Next(t)
	_, local := l.(launcher.Spooler) // only a launcher of this machine reads a runner's output
	if local {
		player.Say(t, "no route to the relay")
	}
	player.Exit(t, contract.ExitUnreported)
	got := AwaitStopped(t, l, task.Ref)
	if got.Reason != workflow.ReasonRelayLost || local && !strings.Contains(got.Text, "no route to the relay") {
		t.Errorf("got %+v, want relay_lost with the runner's output", got)
	}
}

func listAndDescribe(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	list := func() map[string]launcher.Phase {
		tasks, err := l.List(t.Context())
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		got := map[string]launcher.Phase{}
		for _, task := range tasks {
			got[task.Ref] = task.Phase
			if d := describe(t, l, task.Ref); len(d) != 1 || d[0].Ref != task.Ref || d[0].Workflow != task.Workflow ||
				d[0].Attempt != task.Attempt || !d[0].CreatedAt.Equal(task.CreatedAt) || d[0].CreatedAt.IsZero() {
				t.Errorf("describe: got %+v, want the listed task %+v", d, task)
			}
		}
		return got
	}
	if got := list(); len(got) != 0 {
		t.Errorf("got %v at first, want nothing", got)
	}
	ended := launch(t, l, s.Request("wf-1", false))
	s.Next(t).Exit(t, 0)
	AwaitStopped(t, l, ended.Ref)
	alive := launch(t, l, s.Request("wf-2", false))
	s.Next(t)
	want := map[string]launcher.Phase{ended.Ref: launcher.Stopped, alive.Ref: launcher.Running}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("list differs (-want +got):\n%s", diff)
	}
	got := describe(t, l, "task-that-never-was", alive.Ref)
	if len(got) != 1 || got[0].Ref != alive.Ref {
		t.Errorf("describe: got %+v, want task %s and nothing of the unknown one", got, alive.Ref)
	}
}

func stopAsks(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	stop(t, l, task.Ref)
	stop(t, l, task.Ref) // again: the end has begun
	p.AwaitTerm(t)
	got := AwaitStopped(t, l, task.Ref)
	if got.ExitCode == nil || *got.ExitCode != termCode {
		t.Errorf("got %+v, want the runner's own exit code %d", got, termCode)
	}
	stop(t, l, task.Ref) // and after it
	p.Gone(t)
}

func stopKills(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, soon)
	task := launch(t, l, s.Request("wf-1", true))
	p := s.Next(t)
	stop(t, l, task.Ref)
	got := AwaitStopped(t, l, task.Ref)
	if got.ExitCode != nil && *got.ExitCode == 0 {
		t.Errorf("got %+v, want no exit code 0: that would say that its result was handed over", got)
	}
	p.Gone(t)
}

func stopUnknown(t *testing.T, h Harness) {
	l := h.New(t, never)
	if err := l.Stop(t.Context(), "task-that-never-was", "the test says so"); !errors.Is(err, launcher.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func nothingLeft(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	task := launch(t, l, s.Request("wf-1", false))
	p := s.Next(t)
	child := p.Spawn(t, s, OwnGroup)
	child.Lives(t)
	p.Exit(t, 0)
	AwaitStopped(t, l, task.Ref)
	child.Gone(t)
}

func nothingLeftOnceKilled(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, soon)
	task := launch(t, l, s.Request("wf-1", true))
	p := s.Next(t)
	child := p.Spawn(t, s, OwnGroup)
	stop(t, l, task.Ref)
	AwaitStopped(t, l, task.Ref)
	p.Gone(t)
	child.Gone(t)
}

func watch(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	w, ok := l.(launcher.Watcher)
	if !ok {
		t.Skip("this launcher does not report stops by itself")
	}
	const tasks = 5
	var want []string
	for i := range tasks {
		want = append(want, launch(t, l, s.Request(fmt.Sprintf("wf-%d", i), false)).Ref)
	}
	slices.Sort(want)
	// The first two end before anybody watches, the others while somebody does.
	players := map[string]*Player{}
	for range tasks {
		p := s.Next(t)
		players[p.Getenv("DAYFLY_TASK")] = p
	}
	for _, ref := range want[:2] {
		players[ref].Exit(t, 0)
		AwaitStopped(t, l, ref)
	}
	for round := range 2 { // a second watch gets every stop that the first got
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		reported := map[string]bool{}
		inside := false
		err := w.Watch(ctx, func(_ context.Context, task launcher.Task) {
			if inside {
				t.Error("two calls at a time")
			}
			inside = true
			defer func() { inside = false }()
			if task.Phase != launcher.Stopped || task.ExitCode == nil {
				t.Errorf("got %+v, want a stopped task with its exit code", task)
			}
			reported[task.Ref] = true
			if round == 0 && len(reported) == 2 {
				for _, ref := range want[2:] {
					players[ref].Exit(t, 0)
				}
			}
			if len(reported) == tasks {
				cancel()
			}
		})
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("watch: %v", err)
		}
		for _, ref := range want {
			if !reported[ref] {
				t.Errorf("round %d: the stop of task %s was not reported", round+1, ref)
			}
		}
	}
	for _, ref := range want[:4] {
		w.Acknowledge(ref)
	}
	w.Acknowledge("task-that-never-was")
	CheckAcknowledged(t, l, want[4:], want[:4])
}

// CheckAcknowledged fails the test unless the launcher lists and reports the pending ones of these ended tasks alone,
// and also knows the acknowledged ones.
func CheckAcknowledged(t *testing.T, l launcher.Launcher, pending, acknowledged []string) {
	t.Helper()
	w, ok := l.(launcher.Watcher)
	if !ok {
		t.Fatal("this launcher does not report stops by itself")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var reported, listed []string
	if len(pending) == 0 {
		cancel()
	}
	if err := w.Watch(ctx, func(_ context.Context, task launcher.Task) {
		if reported = append(reported, task.Ref); len(reported) == len(pending) {
			cancel()
		}
	}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("watch: %v", err)
	}
	tasks, err := l.List(t.Context())
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, task := range tasks {
		if task.Phase == launcher.Stopped {
			listed = append(listed, task.Ref)
		}
	}
	slices.Sort(reported)
	slices.Sort(listed)
	if !slices.Equal(reported, pending) || !slices.Equal(listed, pending) {
		t.Errorf("reported %v and listed %v, want %v", reported, listed, pending)
	}
	for _, task := range describe(t, l, acknowledged...) {
		if task.Phase != launcher.Stopped || task.Text == "" {
			t.Errorf("acknowledged: got %+v, want a stopped task", task)
		}
	}
	if got := len(describe(t, l, acknowledged...)); got != len(acknowledged) {
		t.Errorf("%d of %d acknowledged tasks are known", got, len(acknowledged))
	}
}

func badRequests(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	for name, change := range map[string]func(*launcher.Request){
		"no workflow":  func(r *launcher.Request) { r.Workflow = "" },
		"attempt 0":    func(r *launcher.Request) { r.Attempt = 0 },
		"no ticket":    func(r *launcher.Request) { r.Ticket = "" },
		"no relay":     func(r *launcher.Request) { r.Relay = "" },
		"unknown size": func(r *launcher.Request) { r.Size = "gigantic" },

		"an image that the pool does not have": func(r *launcher.Request) { r.Image = "missing" },
		"a disk below nothing":                 func(r *launcher.Request) { r.DiskGiB = -1 },
	} {
		r := s.Request("wf-1", false)
		change(&r)
		_, err := l.Launch(t.Context(), r)
		refusal, ok := errors.AsType[*launcher.Refusal](err)
		if !ok || !refusal.Permanent || refusal.Reason != workflow.ReasonLaunchFailed || refusal.Text == "" {
			t.Errorf("%s: got %v, want a permanent refusal with its sentence", name, err)
		}
	}
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 0 {
		t.Errorf("got tasks %v, %v; want none", tasks, err)
	}
}

// left returns the log that a runner left; empty means none.
func left(t *testing.T, l launcher.Spooler, ref string) string {
	t.Helper()
	f, err := l.Spool(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatalf("spool: %v", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatalf("spool: %v", err)
	}
	return string(b)
}

func spools(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	kept, ok := l.(launcher.Spooler)
	if !ok {
		t.Skip("the disks of this launcher's tasks end with them")
	}
	tasks := map[string]string{}
	for _, file := range []string{"", "a log", "->/etc/passwd"} {
		task := launch(t, l, s.Request("wf-"+strconv.Itoa(len(tasks)), false))
		p := s.Next(t)
		if file != "" {
			p.Leave(t, contract.SpoolName, file)
		}
		p.Exit(t, 1)
		AwaitStopped(t, l, task.Ref)
		tasks[file] = task.Ref
	}
	refs, err := kept.Spools()
	if err != nil || !slices.Equal(refs, []string{tasks["a log"]}) {
		t.Errorf("got logs of %v, %v; want that of %s", refs, err, tasks["a log"])
	}
	for file, ref := range tasks {
		want := file
		if file != "a log" {
			want = ""
		}
		if got := left(t, kept, ref); got != want {
			t.Errorf("left %q: got %q, want %q", file, got, want)
		}
		for range 2 {
			if err := kept.DropSpool(ref); err != nil {
				t.Errorf("drop: %v", err)
			}
		}
		if got := left(t, kept, ref); got != "" {
			t.Errorf("dropped and still there: %q", got)
		}
	}
}

const unsavedState = contract.UnsavedName + "/errored.tfstate"

// stays checks that the one state is there alone, and for its owner alone.
func stays(t *testing.T, said, want string) {
	t.Helper()
	dir, _, _ := strings.Cut(said, " on ")
	got, err := os.ReadFile(filepath.Join(dir, "errored.tfstate"))
	if string(got) != want || want != "" && err != nil {
		t.Errorf("got the state %q (%v), want %q", got, err, want)
	}
	if info, err := os.Stat(filepath.Dir(dir)); want != "" && (err != nil || info.Mode().Perm() != 0o700) {
		t.Errorf("the directory of such states is %v, %v", info.Mode(), err)
	}
}

func unsaved(t *testing.T, h Harness) {
	s, l := NewStage(t, h.Reach), h.New(t, never)
	said := map[string]string{}
	for _, state := range []string{"the state", ""} {
		task := launch(t, l, s.Request("wf-"+strconv.Itoa(len(said)), false))
		p := s.Next(t)
		if said[state] = p.Getenv("DAYFLY_UNSAVED"); said[state] == "" {
			t.Skip("the disks of this launcher's tasks end with them")
		}
		if state != "" {
			p.Leave(t, unsavedState, state)
		}
		p.Exit(t, 1)
		AwaitStopped(t, l, task.Ref)
	}
	for state, dir := range said {
		stays(t, dir, state)
	}
}

func restart(t *testing.T, h Harness) {
	if h.Crash == nil {
		t.Skip("this launcher is tested without a restart: its harness has no Crash")
	}
	s := NewStage(t, h.Reach)
	r := s.Request("wf-1", true)
	var players []*Player
	var unsaved string
	l, task := h.Crash(t, r, func() {
		p := s.Next(t)
		if p.Getenv("DAYFLY_WORK_DIR") != "" {
			p.Leave(t, contract.SpoolName, "kept")
		}
		if unsaved = p.Getenv("DAYFLY_UNSAVED"); unsaved != "" {
			p.Leave(t, unsavedState, "the state")
		}
		players = append(players, p, p.Spawn(t, s, OwnGroup))
	})
	if got := launch(t, l, r); got.Ref != task.Ref || !got.CreatedAt.Equal(task.CreatedAt) {
		t.Errorf("the same request after the restart: got %+v, want task %+v", got, task)
	}
	if tasks, err := l.List(t.Context()); err != nil || len(tasks) != 1 {
		t.Errorf("got tasks %v, %v; want the one", tasks, err)
	}
	stop(t, l, task.Ref)
	AwaitStopped(t, l, task.Ref)
	for _, p := range players {
		p.Gone(t)
	}
	if kept, ok := l.(launcher.Spooler); ok && left(t, kept, task.Ref) != "kept" {
		t.Errorf("the runner's file is gone")
	}
	if unsaved != "" {
		stays(t, unsaved, "the state")
	}
	if got := s.Runners(); got != 1 {
		t.Errorf("got %d runners, want 1", got)
	}
	if got := launch(t, l, r); got.Ref != task.Ref || got.Phase != launcher.Stopped {
		t.Errorf("the same request after the end: got %+v, want the stopped task %s", got, task.Ref)
	}
}
