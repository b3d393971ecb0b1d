package poller_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var _ poller.Direct = (*dispatcher.Dispatcher)(nil)

// shortcut launches as many jobs directly as it is told to.
type shortcut struct {
	mu       sync.Mutex
	offers   int
	launched []string
	launch   func(ctx context.Context, m api.LaunchMessage) bool // nil: each is taken
}

func (s *shortcut) Offer(api.LaunchMessage) string {
	if s.offers == 0 {
		return ""
	}
	s.offers--
	return "here"
}

func (s *shortcut) Direct(ctx context.Context, m api.LaunchMessage) bool {
	s.mu.Lock()
	s.launched = append(s.launched, m.Job)
	s.mu.Unlock()
	return s.launch == nil || s.launch(ctx, m)
}

func TestPass_LaunchesTheFirstJobsOfAShortQueue(t *testing.T) {
	w := &world{pending: jobs(5)}
	short := &shortcut{offers: 3, launch: func(_ context.Context, m api.LaunchMessage) bool { return m.Job != "wf_1" }}
	s, err := w.poller(t, poller.Config{Direct: short}).Pass(t.Context())
	if err != nil || s.Sent != 5 {
		t.Fatalf("%+v, %v", s, err)
	}
	for i, m := range w.sent {
		placement, delay := "", time.Duration(0)
		if i < 3 {
			placement, delay = "here", 30*time.Second
		}
		if m.Placement != placement || w.delays[i] != delay {
			t.Errorf("%s is sent for %q with a delay of %s; want %q, %s", m.Job, m.Placement, w.delays[i], placement, delay)
		}
	}
	if d := cmp.Diff([]string{"wf_0", "wf_1", "wf_2"}, short.launched); d != "" {
		t.Errorf("launched (-want +got):\n%s", d)
	}
	// A launch tells the control plane as much as a report of the queue does.
	if d := cmp.Diff([]string{"wf_1", "wf_3", "wf_4"}, w.queued); d != "" {
		t.Errorf("reported as queued (-want +got):\n%s", d)
	}
}

func TestPass_LeavesEverythingToAQueueThatIsNotShort(t *testing.T) {
	w := &world{pending: jobs(4), depth: 10}
	short := &shortcut{offers: 10}
	p := w.poller(t, poller.Config{Direct: short, DepthFor: time.Minute})
	if _, err := p.Pass(t.Context()); err != nil || len(short.launched) != 0 || len(w.queued) != 4 {
		t.Errorf("%v launched behind ten that wait, %v queued: %v", short.launched, w.queued, err)
	}
	w.pending, w.depth = jobs(12), 0
	p = w.poller(t, poller.Config{Direct: short, DepthFor: time.Minute, Batch: 4})
	short.offers = 2 // of the first claim; the others are queued, until ten wait
	if _, err := p.Pass(t.Context()); err != nil || len(short.launched) != 2 || len(w.queued) != 14 {
		t.Errorf("%v launched, %d queued: %v", short.launched, len(w.queued), err)
	}
	short.offers, w.pending = 2, jobs(4)
	if _, err := p.Pass(t.Context()); err != nil || len(short.launched) != 2 {
		t.Errorf("%v launched behind what was sent since the last look: %v", short.launched, err)
	}
}

// The message comes thirty seconds after it was sent, and until then nobody else may have made the call.
func TestPass_DirectLaunchEndsBeforeItsMessageArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pending: jobs(2)}
		var took []time.Duration
		short := &shortcut{offers: 2, launch: func(ctx context.Context, _ api.LaunchMessage) bool {
			began := time.Now()
			<-ctx.Done()
			took = append(took, time.Since(began))
			return false
		}}
		if _, err := w.poller(t, poller.Config{Direct: short}).Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		// One after the other, because Reports is 1: what has no time left is not begun.
		if d := cmp.Diff([]time.Duration{10 * time.Second}, took); d != "" || len(w.queued) != 2 {
			t.Errorf("%v are queued; a launch without an answer took (-want +got):\n%s", w.queued, d)
		}
	})
}

func TestPass_LaunchesNothingThatTheQueueDidNotTake(t *testing.T) {
	w := &world{pending: jobs(3), sendErr: failing(workflow.ErrBusy, "wf_1")}
	short := &shortcut{offers: 3}
	_, _ = w.poller(t, poller.Config{Direct: short}).Pass(t.Context())
	slices.Sort(short.launched)
	if d := cmp.Diff([]string{"wf_0", "wf_2"}, short.launched); d != "" {
		t.Errorf("launched (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"wf_1/3"}, w.released); d != "" {
		t.Errorf("released (-want +got):\n%s", d)
	}
}
