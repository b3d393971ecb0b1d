package dispatcher_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// tried is a message whose sender tries it at a placement.
func tried(t *testing.T, placement string) (queue.Message, api.LaunchMessage) {
	t.Helper()
	msg := message(t, func(m *api.LaunchMessage) { m.Placement = placement })
	m, err := api.DecodeLaunchMessage(msg.Body)
	if err != nil {
		t.Fatal(err)
	}
	return msg, m
}

func TestHandle_DropsWhatIsLaunchedAndHasNotStopped(t *testing.T) {
	w := newWorld()
	job := w.states["wf_1"]
	job.Task = "task-of-before"
	w.states["wf_1"] = job
	msg, _ := tried(t, "a")
	out := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), msg)
	if !out.Delete || out.Task != job.Task || len(w.asked) != 0 || len(w.reports) != 0 {
		t.Errorf("%+v after %d launches, %d reports: want it deleted quietly, and its task named", out, len(w.asked), len(w.reports))
	}
}

// The sender may have had other subnets in another order.
func TestHandle_BeginsWithTheSendersPlacement(t *testing.T) {
	for tries, want := range map[string]string{"b": "b", "gone": "a", "": "a"} {
		w := newWorld()
		msg, _ := tried(t, tries)
		w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), msg)
		if d := cmp.Diff([]string{want}, w.asked); d != "" {
			t.Errorf("after a try at %q (-want +got):\n%s", tries, d)
		}
	}
}

// A direct launch that got any other answer than a task is left to its message, and what that does is the same launch.
func TestDirect_ReportsATaskAndNothingElse(t *testing.T) {
	for name, err := range map[string]error{
		"taken":       nil,
		"capacity":    refuse(workflow.ReasonCapacity),
		"throttled":   refuse(workflow.ReasonThrottled),
		"denied":      launcher.Never("not permitted"),
		"lost answer": errors.New("connection reset"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			var requests []launcher.Request
			w.launchErr = func(n int, r launcher.Request) error {
				requests = append(requests, r)
				if n == 0 {
					return err
				}
				return nil
			}
			msg, m := tried(t, "b")
			took := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Direct(t.Context(), m)
			if want := err == nil; took != want || len(w.reports) > 0 != want {
				t.Fatalf("took it: %t, reported %v", took, w.reports)
			}
			out := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), msg) // another process
			if !out.Delete || len(w.tasks) != 1 || len(w.reports) != 1 || w.reports[0].Task != "task-wf_1/2/b" {
				t.Errorf("%+v with tasks %v and reports %v: want one task, reported once", out, w.tasks, w.reports)
			}
			for _, r := range requests {
				if d := cmp.Diff(requests[0], r); d != "" {
					t.Errorf("another request than the first (-want +got):\n%s", d)
				}
			}
		})
	}
}

func TestDirect_FailedReportIsRepeatedWithItsMessage(t *testing.T) {
	w := newWorld()
	w.reportErr = func(n int) error {
		if n == 0 {
			return workflow.ErrBusy
		}
		return nil
	}
	msg, m := tried(t, "b")
	if w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Direct(t.Context(), m) {
		t.Error("it is said to be launched and known")
	}
	w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), msg)
	if len(w.tasks) != 1 || len(w.reports) != 2 || w.reports[0] != w.reports[1] {
		t.Errorf("tasks %v, reports %v: want the same one twice", w.tasks, w.reports)
	}
}

func TestOffer_KeepsTheRateAndPausesAfterARefusal(t *testing.T) {
	w := newWorld()
	d := w.dispatcher(t, nil, dispatcher.Config{Placements: three, Rate: 2})
	_, m := tried(t, "")
	for i, want := range []string{"a", "a", ""} {
		if got := d.Offer(m); got != want {
			t.Errorf("offer %d at once: %q, want %q", i, got, want)
		}
	}
	w.now = w.now.Add(500 * time.Millisecond)
	m.Placement = d.Offer(m)
	w.launchErr = func(int, launcher.Request) error { return refuse(workflow.ReasonCapacity) }
	if m.Placement != "a" || d.Direct(t.Context(), m) {
		t.Fatalf("offered %q and taken", m.Placement)
	}
	for _, tc := range []struct {
		after time.Duration
		want  string
	}{{4 * time.Minute, ""}, {2 * time.Minute, "a"}} {
		w.now = w.now.Add(tc.after)
		if got := d.Offer(m); got != tc.want {
			t.Errorf("%s later: %q, want %q", tc.after, got, tc.want)
		}
	}
	if none := w.dispatcher(t, nil, dispatcher.Config{Placements: func(api.LaunchMessage) []string { return nil }}); none.Offer(m) != "" {
		t.Error("an offer without a placement")
	}
}
