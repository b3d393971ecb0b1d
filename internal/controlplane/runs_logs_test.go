package controlplane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/controlplane"
	"github.com/dayfly-dev/dayfly/internal/store/memory"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// numbered are lines of a log, from one number to before another.
func numbered(from, to int) (out []api.LogLine) {
	for n := from; n < to; n++ {
		out = append(out, api.LogLine{Text: fmt.Sprintf("line %d", n)})
	}
	return out
}

// logOf reads the log of an attempt in pages of a few lines.
func (w *world) logOf(id string, attempt int) (texts []string, done bool) {
	w.t.Helper()
	for offset := int64(0); ; {
		page, err := w.plane.Logs(w.ctx(), w.admin, id, attempt, offset, 3, 0)
		w.must(err)
		for _, l := range page.Lines {
			texts = append(texts, l.Text)
		}
		if page.Next <= offset {
			return texts, page.Done
		}
		offset = page.Next
	}
}

func (w *world) wantLog(id string, attempt int, want ...string) {
	w.t.Helper()
	if got, _ := w.logOf(id, attempt); !slices.Equal(got, want) {
		w.t.Errorf("attempt %d: got %q, want %q", attempt, got, want)
	}
}

func texts(lines []api.LogLine) (out []string) {
	for _, l := range lines {
		out = append(out, l.Text)
	}
	return out
}

// O15: what a runner left of its log is accepted from its pool, only for the task that started the attempt, with the
// runner's own line numbers.
func TestTail_IsTakenForTheTaskThatStarted(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job := w.claimOne()
		_, err := w.plane.AppendTail(w.ctx(), w.pool, job.ID, api.Tail{Attempt: 1, Task: "task", Lines: numbered(0, 1)})
		wantErr(t, err, workflow.ErrConflict) // nothing has started
		w.launch(job, "task")
		r := run(job, "task", 'a')
		_, err = w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		w.must(err)
		_, err = w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: numbered(0, 3)})
		w.must(err)

		tail := func(first, to int) (api.TailTaken, error) {
			return w.plane.AppendTail(w.ctx(), w.pool, job.ID, api.Tail{Attempt: 1, Task: "task", First: int64(first), Lines: numbered(first, to)})
		}
		if got, err := tail(0, 0); err != nil || got != (api.TailTaken{Next: 3}) {
			t.Fatalf("asked which line is wanted: %+v, %v", got, err)
		}
		for _, to := range []int{5, 5, 4} {
			if got, err := tail(1, to); err != nil || got.Next != 5 {
				t.Fatalf("to %d: %+v, %v", to, got, err)
			}
		}
		_, err = tail(9, 10)
		wantErr(t, err, workflow.ErrLogGap)
		_, err = w.plane.AppendTail(w.ctx(), w.pool, job.ID, api.Tail{Attempt: 1, Task: "other", First: 5, Lines: numbered(5, 6)})
		wantErr(t, err, workflow.ErrConflict)
		_, err = w.plane.AppendTail(w.ctx(), w.pool, job.ID, api.Tail{Attempt: 2, Task: "task", First: 5, Lines: numbered(5, 6)})
		wantErr(t, err, workflow.ErrInvalid)
		_, err = w.plane.AppendTail(w.ctx(), w.admin, job.ID, api.Tail{Attempt: 1, Task: "task", First: 5, Lines: numbered(5, 6)})
		wantErr(t, err, workflow.ErrNotFound)
		created, err := w.plane.CreatePool(w.ctx(), w.admin, "", api.PoolSettings{Name: ptr("other")})
		w.must(err)
		stranger, err := w.plane.Authenticate(w.ctx(), created.Token)
		w.must(err)
		_, err = w.plane.AppendTail(w.ctx(), stranger, job.ID, api.Tail{Attempt: 1, Task: "task", First: 5, Lines: numbered(5, 6)})
		wantErr(t, err, workflow.ErrNotFound)
		w.wantLog(wf.ID, 1, texts(numbered(0, 5))...)

		w.lost(job, r, 1)
		if _, err := tail(5, 7); err != nil {
			t.Errorf("after the end: %v", err)
		}
		if got, done := w.logOf(wf.ID, 1); !done || !slices.Equal(got, texts(numbered(0, 7))) {
			t.Errorf("got %q, done %v", got, done)
		}
		w.clock.advance(workflow.ReportRetention + time.Minute)
		_, err = tail(7, 8)
		wantErr(t, err, workflow.ErrOver)
	})
}

// R5: an attempt's own runner, and what it left, are accepted even after another attempt began; other tasks are not.
func TestLogs_OfAnEarlierAttemptAreTakenOfItsOwnBoot(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", "")
		first, r1 := w.started()
		send := func(job api.Job, r api.Run, from, to int) error {
			_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{First: int64(from), Lines: numbered(from, to)})
			return err
		}
		w.must(send(first, r1, 0, 2))
		w.live(workflow.Silence + time.Minute)
		w.is(wf.ID, workflow.Pending, workflow.ReasonNone)
		w.must(send(first, r1, 2, 3)) // it is not claimed yet
		second, r2 := w.started()
		w.must(send(second, r2, 0, 1))
		w.must(send(first, r1, 3, 4))
		_, err := w.plane.AppendTail(w.ctx(), w.pool, wf.ID, api.Tail{Attempt: 1, Task: r1.Task, First: 4, Lines: numbered(4, 5)})
		w.must(err)
		_, err = w.plane.AppendTail(w.ctx(), w.pool, wf.ID, api.Tail{Attempt: 1, Task: r2.Task, First: 5, Lines: numbered(5, 6)})
		wantErr(t, err, workflow.ErrConflict)
		other := r1
		other.Boot = strings.Repeat("b", 32)
		wantErr(t, send(first, other, 5, 6), workflow.ErrOver)
		_, err = w.plane.Heartbeat(w.ctx(), first.Token, r1, api.Heartbeat{})
		wantErr(t, err, workflow.ErrOver) // its run is over nevertheless
		w.wantLog(wf.ID, 1, texts(numbered(0, 5))...)
		w.wantLog(wf.ID, 2, "line 0")
	})
}

func TestLogEnd_IsThatOfTheAttemptAskedFor(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", "")
		end := func(attempt int) [2]int64 {
			t.Helper()
			n, next, err := w.plane.LogEnd(w.ctx(), w.admin, wf.ID, attempt)
			w.must(err)
			return [2]int64{int64(n), next}
		}
		if got := end(0); got != [2]int64{0, 0} {
			t.Errorf("before the first attempt: %v", got)
		}
		first, r1 := w.started()
		_, err := w.plane.AppendLogs(w.ctx(), first.Token, r1, api.Logs{Lines: numbered(0, 3)})
		w.must(err)
		w.live(workflow.Silence + time.Minute)
		second, r2 := w.started()
		_, err = w.plane.AppendLogs(w.ctx(), second.Token, r2, api.Logs{Lines: numbered(0, 5)})
		w.must(err)
		for attempt, want := range map[int][2]int64{0: {2, 5}, 1: {1, 3}, 2: {2, 5}} {
			if got := end(attempt); got != want {
				t.Errorf("attempt %d: got %v, want %v", attempt, got, want)
			}
		}
		for _, attempt := range []int{-1, 3} {
			_, _, err = w.plane.LogEnd(w.ctx(), w.admin, wf.ID, attempt)
			wantErr(t, err, workflow.ErrNotFound)
		}
		_, _, err = w.plane.LogEnd(w.ctx(), w.pool, wf.ID, 1)
		wantErr(t, err, workflow.ErrForbidden)
	})
}

// R5: lines that can no longer come are named in their place, and readers continue after them.
func TestLogs_LostLinesAreNamedInTheirPlace(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		send := func(in api.Logs) (int64, error) {
			out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, in)
			return out.Next, err
		}
		_, err := send(api.Logs{Lines: numbered(0, 2)})
		w.must(err)
		for range 2 { // a repeat changes nothing
			if next, err := send(api.Logs{First: 10, Lines: numbered(10, 12), Lost: true}); err != nil || next != 12 {
				t.Fatalf("next %d, %v", next, err)
			}
		}
		if next, err := send(api.Logs{First: 2, Lines: numbered(2, 13), Lost: true}); err != nil || next != 13 {
			t.Errorf("a late batch is refused: next %d, %v", next, err)
		}
		if next, err := send(api.Logs{First: 14, Lines: numbered(14, 15), Lost: true}); err != nil || next != 15 {
			t.Errorf("next %d, %v", next, err)
		}
		notice := "[dayfly] lines 2 to 9 are missing here: they could not be sent before their task was gone"
		one := "[dayfly] line 13 is missing here: it could not be sent before its task was gone"
		w.wantLog(wf.ID, 1, "line 0", "line 1", notice, "line 10", "line 11", "line 12", one, "line 14")
		for offset, want := range map[int64]string{1: "line 1", 2: notice, 3: "line 10", 9: "line 10", 11: "line 11"} {
			page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 1, offset, 1, 0)
			w.must(err)
			if len(page.Lines) != 1 || page.Lines[0].Text != want {
				t.Errorf("from %d on: got %+v, want %q", offset, page.Lines, want)
			}
		}
		_, err = send(api.Logs{First: 1e12, Lines: numbered(0, 1), Lost: true})
		wantErr(t, err, workflow.ErrInvalid)
	})
}

// O15: a full log says so once, and a runner that sends more is not delayed.
func TestLogs_EndAtTheirQuota(t *testing.T) {
	w := newWorld(t, memory.New())
	w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, DefaultState: api.StateDirectory, LogQuota: 1 << 20})
	w.workspace("net")
	wf := w.submit("net", workflow.Update)
	job, r := w.started()
	if spec, err := w.plane.Spec(w.ctx(), job.Token, r); err != nil || spec.LogQuota != 1<<20 {
		t.Errorf("the runner gets %d, %v", spec.LogQuota, err)
	}
	line := api.LogLine{Text: strings.Repeat("x", 60<<10)}
	next := int64(0)
	for range 30 {
		out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{First: next, Lines: []api.LogLine{line}})
		if err != nil || out.Next != next+1 {
			t.Fatalf("after %d lines: next %d, %v", next, out.Next, err)
		}
		next = out.Next
	}
	got, done := w.logOf(wf.ID, 1)
	const whole = 1 << 20 / (60 << 10)
	if len(got) != whole+1 || !strings.HasPrefix(got[whole], "[dayfly] log_full: a log holds at most 1 MiB") || !done {
		t.Errorf("got %d lines, the last %.80q, done %v", len(got), got[len(got)-1], done)
	}
	if out, err := w.plane.AppendTail(w.ctx(), w.pool, wf.ID, api.Tail{Attempt: 1, Task: r.Task, First: next, Lines: numbered(0, 1)}); err != nil || !out.Full {
		t.Errorf("the remaining lines: %+v, %v", out, err)
	}
	w.must(w.result(job, r, workflow.Succeeded))
}

// O15: each answer tells a runner whether a reader waits for its lines.
func TestLogs_AReaderMakesRunnersSendSooner(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		look := func(p *controlplane.Plane, wait time.Duration) {
			t.Helper()
			_, err := p.Logs(w.ctx(), w.admin, wf.ID, 0, 0, 0, wait)
			w.must(err)
		}
		look(w.plane, time.Nanosecond) // before it starts
		job := w.claimOne()
		w.launch(job, "task")
		r := run(job, "task", 'a')
		c, err := w.plane.Start(w.ctx(), job.Token, r, api.Start{Knows: api.RunnerKnows()})
		if err != nil || c.LogSeconds != 0.5 {
			t.Errorf("start: %+v, %v", c, err)
		}
		wait := func(what string, want float64) {
			t.Helper()
			taken, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: numbered(0, 1)})
			w.must(err)
			beat, err := w.plane.Heartbeat(w.ctx(), job.Token, r, api.Heartbeat{})
			w.must(err)
			steps, err := w.plane.Steps(w.ctx(), job.Token, r, api.Steps{Steps: []api.Step{{Seq: 1, Name: "a", Status: workflow.StepRunning}}})
			w.must(err)
			if got := []float64{taken.LogSeconds, beat.LogSeconds, steps.LogSeconds}; !slices.Equal(got, []float64{want, want, want}) {
				t.Errorf("%s: got %v, want %v", what, got, want)
			}
		}
		wait("at once", 0.5)
		w.clock.advance(31 * time.Second)
		wait("when nobody has asked for long", 0)
		look(w.plane, 0)
		wait("whoever does not wait is not a reader", 0)
		look(controlplane.New(w.store, controlplane.Config{Now: w.clock.now}), time.Nanosecond)
		wait("a reader of another process", 0.5)
		w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, LogWait: 2 * time.Second})
		wait("a slower control plane", 2)
		w.plane = controlplane.New(w.store, controlplane.Config{Now: w.clock.now, LogIdle: 25 * time.Second})
		wait("one that is paid for each call", 0.5)
		w.clock.advance(31 * time.Second)
		wait("and nobody reads", 25)
		w.must(w.result(job, r, workflow.Succeeded))
	})
}

// R5: a log is complete and in order, even if lines were sent twice or too early.
func TestLogs_NothingLostNothingDoubled(t *testing.T) {
	everyStore(t, func(t *testing.T, w *world) {
		w.workspace("net")
		wf := w.submit("net", workflow.Update)
		job, r := w.started()
		lines := func(from, n int) api.Logs {
			in := api.Logs{First: int64(from)}
			for i := range n {
				in.Lines = append(in.Lines, api.LogLine{Text: "line " + string(rune('a'+from+i))})
			}
			return in
		}
		send := func(from, n int) (int64, error) {
			out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, lines(from, n))
			return out.Next, err
		}
		for _, step := range []struct{ from, n, next int }{{0, 3, 3}, {0, 3, 3}, {2, 4, 6}, {1, 2, 6}, {6, 1, 7}} {
			if next, err := send(step.from, step.n); err != nil || next != int64(step.next) {
				t.Fatalf("send %+v = %d, %v", step, next, err)
			}
		}
		_, err := send(9, 1)
		wantErr(t, err, workflow.ErrLogGap)
		var text strings.Builder
		var offset int64
		for range 4 {
			page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 0, offset, 2, 0)
			w.must(err)
			for _, l := range page.Lines {
				text.WriteString(strings.TrimPrefix(l.Text, "line "))
			}
			offset = page.Next
			if page.Done {
				t.Error("the log of a running workflow is done")
			}
		}
		if text.String() != "abcdefg" {
			t.Errorf("read %q", text.String())
		}
		_, err = w.plane.Result(w.ctx(), job.Token, r, api.Handover{Result: api.Result{Outcome: workflow.Succeeded, LogEnd: 8}})
		w.must(err)
		if page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 0, 7, 10, 0); err != nil || page.Done {
			t.Errorf("page = %+v, %v: a line is still to come", page, err)
		}
		if _, err := send(7, 1); err != nil { // late lines are accepted
			t.Error(err)
		}
		if page, err := w.plane.Logs(w.ctx(), w.admin, wf.ID, 0, 0, 0, 0); err != nil || !page.Done || len(page.Lines) != 8 {
			t.Errorf("page = %+v, %v", page, err)
		}
		w.clock.advance(workflow.ReportRetention - time.Minute)
		if _, err := send(8, 1); err != nil {
			t.Errorf("as long as its result might have been on its way: %v", err)
		}
		w.clock.advance(time.Minute)
		_, err = send(9, 1)
		wantErr(t, err, workflow.ErrOver)
	})
}

// Lines that do not fit into a call get a refusal that the runner can act on; the call does not fail.
func TestLogs_ThatDoNotFitAreRefused(t *testing.T) {
	w := newWorld(t, memory.New())
	w.workspace("net")
	w.submit("net", workflow.Update)
	job, r := w.started()
	for name, lines := range map[string][]api.LogLine{
		"many": slices.Repeat([]api.LogLine{{Text: strings.Repeat("x", 61)}}, 5050),
		"long": {{Text: strings.Repeat("x", 65<<10)}},
	} {
		_, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: lines})
		if !errors.Is(err, workflow.ErrTooLarge) {
			t.Errorf("%s: %v, want too large", name, err)
		}
	}
	out, err := w.plane.AppendLogs(w.ctx(), job.Token, r, api.Logs{Lines: slices.Repeat([]api.LogLine{{Text: "x"}}, 2000)})
	if err != nil || out.Next != 2000 {
		t.Errorf("2000 short lines: %+v, %v", out, err)
	}
}
