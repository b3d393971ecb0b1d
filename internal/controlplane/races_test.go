package controlplane_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// race runs functions at the same time and returns their errors.
func race(funcs ...func() error) []error {
	errs := make([]error, len(funcs))
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i, f := range funcs {
		wg.Go(func() {
			<-begin
			errs[i] = f()
		})
	}
	close(begin)
	wg.Wait()
	return errs
}

const rounds = 8

// Each race below has exactly one winner, on every store.

// Two control planes over one store claim, each between what the other reads and commits: no run is handed out twice, and
// every claim counts.
func TestRace_TwoClaims(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 100 })
		for range 20 {
			w.submit("net", workflow.Preview)
		}
		scan := w.submit("net", "")
		st := &between{Store: w.store}
		other := controlplane.New(st, controlplane.Config{Now: w.clock.now})
		handed := map[string]int{}
		claim := func(by *controlplane.Plane, t workflow.Type, n int) int {
			out, err := by.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: n, Types: []workflow.Type{t}})
			w.must(err)
			for _, j := range out.Jobs {
				handed[j.ID]++
			}
			return len(out.Jobs)
		}
		claims := func(ops []store.Op) bool {
			return slices.ContainsFunc(ops, func(op store.Op) bool {
				return op.IsPut() && strings.Contains(string(op.Record().Value), `"state":"claimed"`)
			})
		}
		st.beforeCommit = func(ops []store.Op) func() {
			if !claims(ops) {
				return nil
			}
			return func() { claim(w.plane, workflow.Deployment, 3) } // the same runs
		}
		first := claim(other, workflow.Deployment, 3)
		st.afterRange = func(part string) func() {
			if !strings.HasPrefix(part, "claim/") {
				return nil
			}
			return func() { claim(w.plane, workflow.InsightsScan, 1) } // another one, of the same limits
		}
		second := claim(other, workflow.Deployment, 3)
		if first != 3 || second != 3 || st.beforeCommit != nil || st.afterRange != nil {
			t.Errorf("claimed %d and %d, want 3 each, and a claim in between", first, second)
		}
		if len(handed) != 10 || handed[scan.ID] != 1 {
			t.Errorf("%d jobs were handed out, want 10, with the scan: %v", len(handed), handed)
		}
		for job, n := range handed {
			if n != 1 {
				t.Errorf("%s was handed out %d times", job, n)
			}
		}
		if pool, err := w.plane.Pool(w.ctx(), w.admin, "default"); err != nil || pool.Active != 10 {
			t.Errorf("the pool counts %d active (%v), want 10", pool.Active, err)
		}
	})
}

func TestRace_TwoTasksAndTwoBootsStart(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for range rounds {
			w.submit("net", workflow.Update)
			job := w.claimOne()
			w.launch(job, "task-1"+job.ID)
			w.launch(job, "task-2"+job.ID)
			var starts []func() error
			runs := []api.Run{run(job, "task-1"+job.ID, 'a'), run(job, "task-1"+job.ID, 'b'), run(job, "task-2"+job.ID, 'c'), run(job, "task-2"+job.ID, 'd')}
			for _, r := range runs {
				starts = append(starts, func() error {
					_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
					return err
				})
			}
			won := -1
			for i, err := range race(starts...) {
				switch {
				case err == nil && won < 0:
					won = i
				case err == nil:
					t.Fatalf("boots %d and %d both started", won, i)
				default:
					wantErr(t, err, workflow.ErrAlreadyStarted)
				}
			}
			if won < 0 {
				t.Fatal("no boot started")
			}
			w.must(w.result(job, runs[won], workflow.Succeeded))
		}
	})
}

func TestRace_StartAgainstCancel(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for range rounds {
			wf := w.submit("net", workflow.Update)
			job := w.claimOne()
			w.launch(job, "task-"+job.ID)
			r := run(job, "task-"+job.ID, 'a')
			errs := race(
				func() error {
					_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
					return err
				},
				func() error { _, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{}); return err },
			)
			w.must(errs[1])
			switch got := w.show(wf.ID); {
			case errs[0] == nil && got.State == workflow.Running && got.CancelRequested:
				w.must(w.result(job, r, workflow.Cancelled))
			case errors.Is(errs[0], workflow.ErrOver) && got.State == workflow.Cancelled && !got.SlotHeld:
			default:
				t.Fatalf("start %v, workflow %s", errs[0], got.State)
			}
		}
	})
}

func TestRace_StartAgainstLapsedLease(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for range rounds {
			wf := w.submit("net", workflow.Update)
			job := w.claimOne()
			w.launch(job, "task-"+job.ID)
			w.live(14 * time.Minute)
			w.clock.advance(2 * time.Minute)
			r := run(job, "task-"+job.ID, 'a')
			errs := race(
				func() error {
					_, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
					return err
				},
				func() error { _, err := w.plane.Pass(w.ctx()); return err },
			)
			w.must(errs[1])
			switch got := w.show(wf.ID); {
			case errs[0] == nil && got.State == workflow.Running:
				w.must(w.result(job, r, workflow.Succeeded))
			case errors.Is(errs[0], workflow.ErrOver) && got.State == workflow.Pending:
				_, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{})
				w.must(err)
			default:
				t.Fatalf("start %v, workflow %s", errs[0], got.State)
			}
		}
	})
}

func TestRace_ResultAgainstReaper(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for range rounds {
			wf := w.submit("net", workflow.Update)
			job, r := w.started()
			exit := 1
			for _, err := range race(
				func() error { return w.result(job, r, workflow.Succeeded) },
				func() error {
					return w.plane.Lost(w.ctx(), w.pool, job.ID, api.Lost{Attempt: job.Attempt, Task: r.Task, ExitCode: &exit})
				},
			) {
				w.must(err) // the second of the two is late, which is not an error
			}
			got := w.show(wf.ID)
			if got.SlotHeld || got.State != workflow.Succeeded && (got.State != workflow.Failed || got.Reason != workflow.ReasonTaskStopped) {
				t.Fatalf("workflow = %+v", got)
			}
		}
	})
}

func TestRace_LateResultAgainstStopAfterRunnerLost(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for range rounds {
			wf, next := w.submit("net", workflow.Update), w.submit("net", workflow.Update)
			job, r := w.started()
			w.live(workflow.Silence + time.Minute)
			exit := 0
			for _, err := range race(
				func() error { return w.result(job, r, workflow.Succeeded) },
				func() error {
					return w.plane.Lost(w.ctx(), w.pool, job.ID, api.Lost{Attempt: job.Attempt, Task: r.Task, ExitCode: &exit})
				},
			) {
				w.must(err)
			}
			if got := w.is(wf.ID, workflow.Failed, workflow.ReasonRunnerLost); got.SlotHeld {
				t.Fatal("the slot is still held")
			}
			after, ar := w.started() // exactly one is promoted, once
			if after.ID != next.ID {
				t.Fatalf("claimed %s, want %s", after.ID, next.ID)
			}
			w.must(w.result(after, ar, workflow.Succeeded))
		}
	})
}

func TestRace_StopReportBeforeAQueuedResult(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		for range rounds {
			wf := w.submit("net", workflow.Update)
			job, r := w.started()
			exit := 0
			for _, err := range race(
				func() error {
					return w.plane.Lost(w.ctx(), w.pool, job.ID, api.Lost{Attempt: job.Attempt, Task: r.Task, ExitCode: &exit})
				},
				func() error { return w.result(job, r, workflow.Succeeded) },
			) {
				w.must(err)
			}
			if got := w.is(wf.ID, workflow.Succeeded, ""); got.SlotHeld {
				t.Fatal("the slot is still held")
			}
		}
	})
}

func TestRace_SubmitsOfOneKeyAreOneWorkflow(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		ids := make([]string, 6)
		var subs []func() error
		for i := range ids {
			subs = append(subs, func() error {
				wf, err := w.plane.Submit(w.ctx(), w.admin, "the key", api.Submit{Workspace: "net", Operation: workflow.Update})
				ids[i] = wf.ID
				return err
			})
		}
		for _, err := range race(subs...) {
			w.must(err)
		}
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("ids %v, want one workflow", ids)
			}
		}
	})
}

func TestRace_SubmitsCancelsAndEndsLeaveEveryQueueFree(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net", func(ws *api.Workspace) { ws.MaxActive = 4 })
		worker := func() error {
			for range 6 {
				for _, op := range []workflow.Operation{workflow.Update, workflow.Preview} {
					wf, err := w.plane.Submit(w.ctx(), w.admin, "", api.Submit{Workspace: "net", Operation: op, Priority: new(int(op[0]) % 3)})
					if err != nil {
						return err
					}
					if op == workflow.Preview && wf.ID[len(wf.ID)-1]%2 == 0 {
						if _, err := w.plane.Cancel(w.ctx(), w.admin, wf.ID, api.WithReason{}); err != nil && !errors.Is(err, workflow.ErrConflict) {
							return err
						}
					}
				}
			}
			return nil
		}
		runner := func() error {
			for range 40 {
				out, err := w.plane.Claim(w.ctx(), w.pool, api.Claim{Instance: "one", Max: 2})
				if err != nil {
					return err
				}
				for _, j := range out.Jobs {
					r := run(j, "t"+j.ID, 'a')
					if err := w.plane.Launch(w.ctx(), w.pool, j.ID, api.Launch{Attempt: j.Attempt, Kind: api.LaunchAccepted, Task: r.Task}); err != nil {
						return err
					}
					if _, err := w.plane.Start(w.ctx(), j.Token, r, api.Start{Knows: api.RunnerKnows()}); err != nil {
						if errors.Is(err, workflow.ErrOver) {
							continue // cancelled meanwhile
						}
						return err
					}
					if err := w.result(j, r, workflow.Succeeded); err != nil {
						return err
					}
				}
			}
			return nil
		}
		for _, err := range race(worker, worker, runner, runner) {
			w.must(err)
		}
		w.must(runner()) // the remaining ones, one after the other
		w.must(runner())
		if jobs := w.claim(50); len(jobs) != 0 {
			t.Errorf("%d jobs are left", len(jobs))
		}
		held, err := w.plane.Held(w.ctx(), w.pool, "", "")
		w.must(err)
		if len(held.Items) != 0 {
			t.Errorf("still active: %+v", held.Items)
		}
		// Nothing waits or runs, so the workspace can be deleted: the counts of its queue are back at zero.
		w.must(w.plane.DeleteWorkspace(w.ctx(), w.admin, "net"))
		pool, err := w.plane.Pool(w.ctx(), w.admin, "default")
		w.must(err)
		if pool.Active != 0 {
			t.Errorf("the pool counts %d active", pool.Active)
		}
	})
}
