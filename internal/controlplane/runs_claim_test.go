package controlplane_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/controlplane/catalog"
	"github.com/dayfly-dev/dayfly/internal/controlplane/record"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// R6: a launch message names the secrets of its machine that the run needs, and its directory, but never a value.
func TestClaim_NamesWhatTheRunNeedsOfItsMachine(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("dir", func(ws *api.Workspace) {
		ws.Source.Directory, ws.Source.Path = "/src/dir", "live"
		ws.Secrets = []api.Secret{{Env: "A", Ref: "file:a"}, {File: "b", Ref: "file:a"}, {Env: "C", Ref: "env:C"}, {Env: "D", Ref: "file:" + strings.Repeat("x", 500)}, {Env: "E", Ref: "vault:secret/db#password"}}
	})
	w.submit("dir", workflow.Update)
	job := w.claimOne()
	if job.SourceDirectory != "/src/dir" || job.SourcePath != "live" || !slices.Equal(job.SecretRefs, []string{"file:a", "vault:secret/db#password"}) {
		t.Errorf("got %q and %q", job.SourceDirectory, job.SecretRefs)
	}
	w.workspace("git", func(ws *api.Workspace) {
		ws.Source = api.Source{Git: &api.GitSource{URL: "https://git.example.com/a.git", TokenRef: "file:git"}}
	})
	w.submit("git", workflow.Preview)
	job = w.claimOne()
	if job.SourceDirectory != "" || !slices.Equal(job.SecretRefs, []string{"file:git"}) {
		t.Errorf("got %q and %q", job.SourceDirectory, job.SecretRefs)
	}
}

// Refused entries of one type do not hide those of another, however many there are.
func TestClaim_RefusedTypesDoNotHideOlderWork(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	mine := w.submit("net", "")
	for _, name := range []string{"a", "b"} {
		w.workspace(name, func(ws *api.Workspace) { ws.MaxActive = 1000 })
		for range 600 {
			w.submit(name, workflow.Preview)
		}
	}
	last := w.submit("net", workflow.Preview)
	_, err := w.plane.UpdatePool(w.ctx(), w.admin, "default", api.PoolSettings{AssignedToAll: ptr(false), AssignedWorkspaces: &[]string{"net"}})
	w.must(err)
	for _, want := range []string{mine.ID, last.ID} {
		if job := w.claimOne(); job.ID != want {
			t.Fatalf("claimed %s, want %s", job.ID, want)
		}
	}
}

// C6: of two instances that begin at the same moment one is admitted, and stays admitted.
func TestClaim_AdmitsExactlyOneInstanceOfAPool(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		names := []string{"one", "two", "three", "four"}
		admitted := ""
		for range rounds {
			var polls []func() error
			for _, name := range names {
				polls = append(polls, func() error {
					_, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: name, Max: 1})
					return err
				})
			}
			in := 0
			for i, err := range race(polls...) {
				switch {
				case err != nil:
					wantErr(t, err, workflow.ErrInUse)
				case admitted == "" || admitted == names[i]:
					admitted = names[i]
					in++
				default:
					t.Errorf("%s was let in beside %s", names[i], admitted)
				}
			}
			if in != 1 {
				t.Fatalf("%d of %d were let in, want 1", in, len(names))
			}
			w.clock.advance(30 * time.Second) // a poll this old is recorded again
		}
		for range 3 { // it has no free capacity, and only asks for its claims
			w.clock.advance(catalog.Offline - time.Minute)
			_, err := w.plane.Held(w.ctx(), w.pool, admitted, "")
			w.must(err)
			_, err = w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "five", Max: 1})
			wantErr(t, err, workflow.ErrInUse)
			_, err = w.plane.Held(w.ctx(), w.pool, "five", "")
			w.must(err)
			if pool, err := w.plane.Pool(w.ctx(), w.admin, "default"); err != nil || pool.Status != "healthy" {
				t.Errorf("pool is %s (%v), want healthy", pool.Status, err)
			}
		}
		w.clock.advance(catalog.Offline)
		_, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "five", Max: 1})
		w.must(err) // the other has gone
		_, err = w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: admitted, Max: 1})
		wantErr(t, err, workflow.ErrInUse)
	})
}

// Two processes of one instance would release and report each other's jobs.
func TestClaim_OneProcessOfAnInstanceIsAdmitted(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		as := func(boot, after string) controlplane.Principal {
			who := w.pool
			who.Process = api.Process{Boot: boot, After: after}
			return who
		}
		claim := func(who controlplane.Principal) (jobs []api.Job, err error) {
			out, err := w.plane.Claim(w.ctx(), who, api.Claim{Instance: "one", Max: 1})
			return out.Jobs, err
		}
		held := func(who controlplane.Principal) error {
			_, err := w.plane.Held(w.ctx(), who, "one", "")
			return err
		}
		var calls []func() error
		for _, boot := range []string{"a", "b", "c"} {
			calls = append(calls, func() error { return held(as(boot, "")) })
		}
		admitted := ""
		for i, err := range race(calls...) {
			switch {
			case err != nil:
				wantErr(t, err, workflow.ErrInstanceTaken)
			case admitted != "":
				t.Errorf("the processes %s and %c were admitted", admitted, 'a'+i)
			default:
				admitted = string(rune('a' + i))
			}
		}
		w.submit("net", workflow.Update)
		for range 3 { // it stays admitted; in between it only asks for its claims
			_, err := claim(as("d", ""))
			wantErr(t, err, workflow.ErrInstanceTaken)
			wantErr(t, held(as("d", "")), workflow.ErrInstanceTaken)
			w.clock.advance(catalog.Offline - time.Minute)
			w.must(held(as(admitted, "")))
		}
		if _, err := claim(as("d", "")); err == nil || !strings.Contains(err.Error(), "data directory is a copy") {
			t.Errorf("got %v, want it to say what to do", err)
		}
		if jobs, err := claim(as("next", admitted)); err != nil || len(jobs) != 1 {
			t.Errorf("the next process of the data directory got %v (%v), want the job at once", jobs, err)
		}
		_, err := claim(as(admitted, "before"))
		wantErr(t, err, workflow.ErrInstanceTaken)
		_, err = claim(w.pool) // a pool stack: its functions are many processes
		w.must(err)
		w.clock.advance(catalog.Offline)
		_, err = claim(as("d", ""))
		w.must(err)
	})
}

// A record that cannot be read is skipped and logged, and does not delay other work.
func TestBrokenRecords_AreSkippedAndNamed(t *testing.T) {
	for name, of := range map[string]struct {
		key     func(w *world, wf api.Workflow) store.Key
		claimed bool // before it breaks
	}{
		"entry": {func(w *world, wf api.Workflow) store.Key {
			return w.keyIn(record.ClaimPart(record.PoolRoute(w.poolID()), wf.Type), wf.ID)
		}, false},
		"workflow": {func(_ *world, wf api.Workflow) store.Key { return record.WorkflowKey(wf.ID) }, false},
		"spec":     {func(_ *world, wf api.Workflow) store.Key { return record.SpecKey(wf.ID) }, false},
		"claimed":  {func(_ *world, wf api.Workflow) store.Key { return record.WorkflowKey(wf.ID) }, true},
		"active":   {func(w *world, wf api.Workflow) store.Key { return record.ActiveKey(w.poolID(), wf.ID) }, true},
		"timer": {func(w *world, wf api.Workflow) store.Key {
			return w.keyIn(record.TimerKey("default", "", wf.ID).Part, wf.ID)
		}, true},
		"cursor of reads": {func(w *world, _ api.Workflow) store.Key { return record.CursorKey(w.poolID()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			st := memory.New()
			w := newWorld(t, st)
			w.plane = controlplane.New(st, controlplane.Config{Now: w.clock.now, Log: slog.New(slog.NewTextHandler(&said, nil))})
			w.workspace("bad")
			w.workspace("good")
			bad := w.submit("bad", workflow.Update)
			if of.claimed {
				w.claimOne()
			}
			key := of.key(w, bad)
			w.overwrite(key, "{")
			good := w.submit("good", workflow.Update)
			jobs := w.claim(1)
			if name == "cursor of reads" {
				jobs = append(jobs, w.claim(1)...)
			}
			if len(jobs) == 0 || jobs[len(jobs)-1].ID != good.ID {
				t.Fatalf("claimed %v, want %s", jobs, good.ID)
			}
			held, err := w.plane.Held(w.ctx(), w.pool, "", "")
			w.must(err)
			if !slices.ContainsFunc(held.Items, func(s api.JobState) bool { return s.ID == good.ID }) {
				t.Errorf("held are %+v, want %s among them", held.Items, good.ID)
			}
			states, err := w.plane.States(w.ctx(), w.pool, api.StatesQuery{IDs: []string{bad.ID, good.ID}})
			w.must(err)
			for _, s := range states.Jobs {
				if !s.Known {
					t.Errorf("job %s is called unknown, which stops its task", s.ID)
				}
			}
			w.clock.advance(workflow.FirstLease + time.Second)
			sum, err := w.plane.Pass(w.ctx())
			if err != nil {
				said.WriteString(err.Error())
			}
			if w.is(good.ID, workflow.Pending, ""); (sum.Failed > 0) != (err != nil) {
				t.Errorf("the pass counts %d that failed, and says %v", sum.Failed, err)
			}
			if !strings.Contains(said.String(), key.Sort) {
				t.Errorf("nobody named the record %s: %s", key, said.String())
			}
		})
	}
}

func (w *world) poolID() string {
	w.t.Helper()
	pool, err := w.plane.Pool(w.ctx(), w.admin, "default")
	w.must(err)
	return pool.ID
}

// keyIn finds the record of a workflow in a partition.
func (w *world) keyIn(part, id string) store.Key {
	w.t.Helper()
	page, err := w.store.Range(w.ctx(), store.Scan{Part: part, Limit: 100})
	w.must(err)
	for _, r := range page.Records {
		if strings.Contains(r.Key.Sort, id) {
			return r.Key
		}
	}
	w.t.Fatalf("%s has no record of %s", part, id)
	return store.Key{}
}

func (w *world) overwrite(k store.Key, value string) {
	w.t.Helper()
	old, err := w.store.Get(w.ctx(), k)
	w.must(err)
	version := store.Absent
	if len(old) > 0 {
		version = old[0].Version
	}
	w.must(w.store.Commit(w.ctx(), "broken", store.Put(store.Record{Key: k, Value: []byte(value)}, version)))
}

// L11: a submission wakes a waiting claim.
func TestClaim_WaitsAndIsWokenAtOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		w.workspace("net")
		began := time.Now()
		got := make(chan int, 1)
		wait := func() {
			out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 1, WaitSeconds: 20})
			if err != nil {
				t.Error(err)
			}
			got <- len(out.Jobs)
		}
		go wait()
		if n := <-got; n != 0 || time.Since(began) < 20*time.Second {
			t.Errorf("an idle claim answered %d jobs after %s", n, time.Since(began))
		}
		go wait()
		synctest.Wait()
		began = time.Now()
		w.submit("net", workflow.Update)
		if n := <-got; n != 1 || time.Since(began) > 200*time.Millisecond {
			t.Errorf("a woken claim answered %d jobs after %s", n, time.Since(began))
		}
	})
}

// L11: between processes without shared memory, the wake mark does it within a second.
func TestClaim_IsWokenByTheMarkOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		w := &world{t: t, plane: controlplane.New(st, controlplane.Config{}), store: st}
		woken := &waker{}
		other := controlplane.New(st, controlplane.Config{Waker: woken})
		w.signIn()
		target := "dayfly-wake-default"
		_, err := controlplane.New(st, controlplane.Config{Waker: &waker{}}).UpdatePool(t.Context(), w.admin, "default", api.PoolSettings{WakeTarget: &target})
		w.must(err)
		w.workspace("net")
		w.workspace("web")
		got := make(chan int, 1)
		go func() {
			out, err := w.plane.Claim(t.Context(), w.pool, api.Claim{Instance: "one", Max: 1, WaitSeconds: 20})
			if err != nil {
				t.Error(err)
			}
			got <- len(out.Jobs)
		}()
		synctest.Wait()
		began := time.Now()
		for _, ws := range []string{"net", "web"} {
			if _, err := other.Submit(t.Context(), w.admin, "", api.Submit{Workspace: ws, Operation: workflow.Update}); err != nil {
				t.Fatal(err)
			}
		}
		if n := <-got; n != 1 || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("answered %d jobs after %s", n, time.Since(began))
		}
		if got := woken.all(); len(got) != 1 || got[0] != "dayfly-wake-default" {
			t.Errorf("woken %v, want the pool once: the second submission found the mark set", got)
		}
	})
}

// The cache of packages is for programs of Pulumi, and never for the code of a pull request, also where that was approved.
func TestClaim_PackagesAreForTrustedCodeAlone(t *testing.T) {
	for engine, want := range map[string]bool{api.EnginePulumi: true, api.EngineTofu: false} {
		w := newWorld(t, memory.New())
		w.workspace("net", func(ws *api.Workspace) { ws.Engine, ws.Commands, ws.State = engine, nil, &api.State{Workspace: "dev"} })
		w.submit("net", workflow.Preview)
		if job, _ := w.started(); job.Packages != want {
			t.Errorf("%s: got %v", engine, job.Packages)
		}
	}
	w := newWorld(t, memory.New())
	w.repository("net", "https://github.com/acme/infra.git", func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.State = api.EnginePulumi, nil, &api.State{Workspace: "dev"}
	})
	_, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Type: workflow.Deployment, Operation: workflow.Preview, Options: &api.Options{Ref: "refs/pull/7/head"}})
	w.must(err)
	if job, _ := w.started(); job.Packages {
		t.Error("a ref that somebody chose gets it")
	}
	w = newWorld(t, memory.New())
	p := w.pipelines()
	w.repository("net", "https://github.com/acme/infra.git", func(ws *api.Workspace) {
		ws.Engine, ws.Commands, ws.State = api.EnginePulumi, nil, &api.State{Workspace: "dev"}
	})
	_, err = w.plane.Submit(w.ctx(), p.token(pull("17", oneCommit)), "key", ofCommit("net", oneCommit))
	w.must(err)
	if job, _ := w.started(); job.Packages {
		t.Error("the code of a pull request gets it")
	}
}
