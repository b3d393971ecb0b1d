package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var _ dispatcher.Tasks = launcher.Launcher(nil)

func TestJudgeDeadLetter_EndsOnlyWhatCanHaveNoTask(t *testing.T) {
	claimed := api.JobState{ID: "wf_1", Known: true, State: workflow.Claimed, Attempt: 2, Active: true}
	task := func(attempt int, phase launcher.Phase) []launcher.Task {
		return []launcher.Task{{Ref: "other", Workflow: "wf_9", Attempt: 2, Phase: launcher.Running}, {Ref: "t", Workflow: "wf_1", Attempt: attempt, Phase: phase}}
	}
	for name, tc := range map[string]struct {
		job  func(j *api.JobState)
		seen []launcher.Task
		age  time.Duration
		want string // end, delete, wait
		why  string
	}{
		"nothing of it anywhere":       {age: 20 * time.Minute, want: "end", why: "no launch was tried"},
		"refused before":               {job: func(j *api.JobState) { j.LaunchText = "no room" }, age: 20 * time.Minute, want: "end", why: "no room"},
		"its task has stopped":         {seen: task(2, launcher.Stopped), age: 20 * time.Minute, want: "end"},
		"a task of an earlier attempt": {seen: task(1, launcher.Running), age: 20 * time.Minute, want: "end"},
		"too young to be seen":         {age: 9 * time.Minute, want: "wait", why: "so recent"},
		"a task that nobody reported":  {seen: task(2, launcher.Starting), age: 20 * time.Minute, want: "wait", why: "task t"},
		"a task that was reported":     {job: func(j *api.JobState) { j.Task = "t" }, age: 20 * time.Minute, want: "wait", why: "launched as t"},
		"a launch without an answer":   {job: func(j *api.JobState) { j.PendingPlacement = "b" }, age: 20 * time.Minute, want: "wait", why: "in b"},
		"a later attempt":              {job: func(j *api.JobState) { j.Attempt = 3 }, age: 20 * time.Minute, want: "delete"},
		"started":                      {job: func(j *api.JobState) { j.Started = true }, age: 20 * time.Minute, want: "delete"},
		"cancelled":                    {job: func(j *api.JobState) { j.State, j.Active = workflow.Cancelled, false }, age: 20 * time.Minute, want: "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			job := claimed
			if tc.job != nil {
				tc.job(&job)
			}
			m, err := api.DecodeLaunchMessage(message(t).Body)
			if err != nil {
				t.Fatal(err)
			}
			v := dispatcher.JudgeDeadLetter(m, job, tc.seen, 1000, sent.Add(tc.age))
			got := map[bool]string{true: "delete", false: "wait"}[v.Delete]
			if v.End {
				got = "end"
			}
			if got != tc.want || v.Why == "" || !strings.Contains(v.Why, tc.why) {
				t.Errorf("%s because %q; want %s, %q", got, v.Why, tc.want, tc.why)
			}
		})
	}
}

type listed struct {
	tasks []launcher.Task
	err   error
}

func (l listed) List(context.Context) ([]launcher.Task, error) { return l.tasks, l.err }

func TestDeadLetters_ReportOnceAndKeepTheUndecided(t *testing.T) {
	w := newWorld()
	w.now = sent.Add(20 * time.Minute)
	handle := func(tasks listed, msg queue.Message) dispatcher.Disposition {
		log := slog.New(slog.NewTextHandler(&w.log, nil))
		return dispatcher.NewDeadLetters(reporter{w}, tasks, func() time.Time { return w.now }, log).Handle(t.Context(), msg)
	}
	msg := message(t)
	msg.Receives = 1000
	if out := handle(listed{err: errors.New("throttled")}, msg); out.Delete || len(w.reports) != 0 {
		t.Errorf("without a second witness: %+v, %d reports", out, len(w.reports))
	}
	w.stateErr = workflow.ErrBusy
	if out := handle(listed{}, msg); out.Delete || len(w.reports) != 0 {
		t.Errorf("without the control plane: %+v, %d reports", out, len(w.reports))
	}
	w.stateErr, w.reportErr = nil, func(int) error { return workflow.ErrBusy }
	if out := handle(listed{}, msg); out.Delete {
		t.Errorf("when the report is not taken: %+v", out)
	}
	w.reports, w.reportErr = nil, nil
	if out := handle(listed{}, msg); !out.Delete || len(w.reports) != 1 {
		t.Fatalf("%+v, %d reports; want it ended with one", out, len(w.reports))
	}
	if r := w.reports[0]; r.Kind != api.LaunchFailed || r.Attempt != 2 || r.Placement != "" || !strings.Contains(r.Text, "1000 times") {
		t.Errorf("report %+v", r)
	}
	if out := handle(listed{}, queue.Message{ID: "m9", Body: []byte("{")}); !out.Delete || !strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("poison: %+v\n%s", out, w.log.String())
	}
	if len(w.asked) != 0 {
		t.Errorf("%d launches", len(w.asked))
	}
}
