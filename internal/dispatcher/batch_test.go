package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/dispatcher"
	"github.com/dayfly-dev/dayfly/internal/launcher"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

func TestOrder_APlacementThatMayHaveBeenTakenComesFirst(t *testing.T) {
	for pending, want := range map[string][]string{
		"": {"a", "b", "c"}, "a": {"a", "b", "c"}, "b": {"b", "a", "c"}, "c": {"c", "a", "b"}, "gone": {"a", "b", "c"},
	} {
		names := []string{"a", "b", "c"}
		if d := cmp.Diff(want, dispatcher.Order(names, pending)); d != "" {
			t.Errorf("pending %q (-want +got):\n%s", pending, d)
		}
		if !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("pending %q: the names were changed to %v", pending, names)
		}
	}
}

// A second placement is not asked for while nobody else could know of it.
func TestHandle_TriesNoOtherPlacementThatIsNotOnRecord(t *testing.T) {
	w := newWorld()
	w.launchErr = func(int, launcher.Request) error { return refuse(workflow.ReasonCapacity) }
	w.reportErr = func(int) error { return workflow.ErrBusy }
	out := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t))
	if out.Delete || !slices.Equal(w.asked, []string{"a"}) {
		t.Errorf("%+v after placements %v: want it back after the first", out, w.asked)
	}
}

// A dispatcher dies in the middle of its second placement; the next one begins with it, and there is one
// task.
func TestHandle_AnotherProcessFinishesAnAbortedLaunch(t *testing.T) {
	w := newWorld()
	w.launchErr = func(_ int, r launcher.Request) error {
		if r.Placement == "a" {
			return refuse(workflow.ReasonCapacity)
		}
		return nil
	}
	reports := 0
	w.reportErr = func(int) error {
		if reports++; reports > 1 {
			return errors.New("the process is dead") // it launched b and told nobody
		}
		return nil
	}
	w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t))
	w.asked, w.reportErr, w.launchErr = nil, nil, nil // a would be taken now
	out := w.dispatcher(t, nil, dispatcher.Config{Placements: three}).Handle(t.Context(), message(t))
	if !slices.Equal(w.asked, []string{"b"}) || len(w.tasks) != 1 || out.Task != "task-wf_1/2/b" {
		t.Errorf("%+v after placements %v with tasks %v: want the one at b", out, w.asked, w.tasks)
	}
}

func TestHandle_ThrottleEndsTheRoundOnly(t *testing.T) {
	w := newWorld()
	w.launchErr = func(int, launcher.Request) error { return refuse(workflow.ReasonThrottled) }
	d := w.dispatcher(t, nil, dispatcher.Config{Placements: three})
	for w.now.Before(sent.Add(time.Hour - time.Second)) {
		if out := d.Handle(t.Context(), message(t)); out.Delete {
			t.Fatalf("%s after it was sent: %+v", w.now.Sub(sent), out)
		}
		w.now = w.now.Add(time.Minute)
	}
	for i, r := range w.reports {
		if r.Kind != api.LaunchRefused || r.Reason != workflow.ReasonThrottled {
			t.Errorf("report %d: %+v", i, r)
		}
	}
	if len(w.asked) != len(w.reports) || slices.Contains(w.asked, "b") {
		t.Errorf("%d calls in %d rounds: want one each", len(w.asked), len(w.reports))
	}
}

func batch(t *testing.T, w *world, n int) []queue.Message {
	t.Helper()
	var msgs []queue.Message
	for i := range n {
		id := fmt.Sprintf("wf_%d", i)
		w.states[id] = api.JobState{ID: id, Known: true, State: workflow.Claimed, Attempt: 2, Active: true}
		msg := message(t, func(m *api.LaunchMessage) { m.Job, m.SentAtMS = id, w.now.UnixMilli() })
		msg.ID, msg.Receipt = "m"+id, "r"+id
		msgs = append(msgs, msg)
	}
	return msgs
}

// counting counts the questions for states.
type counting struct {
	reporter
	questions *int
}

func (c counting) States(ctx context.Context, in api.StatesQuery) (api.States, error) {
	*c.questions++
	return c.reporter.States(ctx, in)
}

// L2: each message of a batch has its own fate, and one question is asked for all.
func TestBatch_EachMessageHasItsOwnFate(t *testing.T) {
	w := newWorld()
	msgs := batch(t, w, 6)
	msgs[1].Body = []byte("poison")
	w.states["wf_2"] = api.JobState{ID: "wf_2", Known: true, State: workflow.Cancelled, Attempt: 2}
	old := message(t, func(m *api.LaunchMessage) { m.Job, m.SentAtMS = "wf_3", w.now.Add(-2*time.Hour).UnixMilli() })
	msgs[3].Body = old.Body
	w.launchErr = func(_ int, r launcher.Request) error {
		if r.Workflow == "wf_4" {
			return refuse(workflow.ReasonCapacity)
		}
		return nil
	}
	questions := 0
	d, err := dispatcher.New(nil, w, counting{reporter{w}, &questions}, dispatcher.Config{
		Relay: func(string) string { return "r" }, Now: func() time.Time { return w.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	out := d.Batch(t.Context(), msgs)
	var got []string
	for _, o := range out {
		got = append(got, fmt.Sprintf("%v %s", o.Delete, o.Why))
	}
	want := []string{
		"true launched", "true it cannot be read", "true the job is over or waits for a new claim",
		"true the launch window is over", "false the launch was refused for now", "true launched",
	}
	if d := cmp.Diff(want, got); d != "" || questions != 1 {
		t.Errorf("(-want +got):\n%s\n%d questions", d, questions)
	}
	w.stateErr = workflow.ErrBusy
	for i, o := range d.Batch(t.Context(), batch(t, w, 3)) {
		if o.Delete || o.Hide < time.Second {
			t.Errorf("message %d without an answer: %+v", i, o)
		}
	}
}

// Several calls are in flight, and never more than the workers, and they begin no faster than the rate.
func TestBatch_LaunchesAtOnceWithinItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.now = time.Now()
		msgs := batch(t, w, 30)
		var at []time.Time
		w.onLaunch = func(context.Context) {
			w.mu.Lock()
			at = append(at, time.Now())
			w.mu.Unlock()
			<-time.After(300 * time.Millisecond)
		}
		d := w.dispatcher(t, nil, dispatcher.Config{Workers: 5, Rate: 10, Now: time.Now})
		began := time.Now()
		for i, o := range d.Batch(t.Context(), msgs) {
			if !o.Delete {
				t.Errorf("message %d: %+v", i, o)
			}
		}
		// A second's worth, then one each 100 ms; five calls of 300 ms at once would be faster than that.
		if took := time.Since(began); took < 2300*time.Millisecond-time.Millisecond || took > 2310*time.Millisecond {
			t.Errorf("30 launches at 10 a second took %s", took)
		}
		for i, when := range at {
			if earliest := time.Duration(i-9) * 100 * time.Millisecond; when.Sub(began) < earliest-time.Millisecond {
				t.Errorf("launch %d begins after %s, want %s", i, when.Sub(began), earliest)
			}
		}
	})
}

func TestBatch_BeginsNothingShortlyBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.now = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		d := w.dispatcher(t, nil, dispatcher.Config{Workers: 10, Rate: 1, Margin: 10 * time.Second, Now: time.Now})
		launched, returned := 0, 0
		for _, o := range d.Batch(ctx, batch(t, w, 10)) {
			switch {
			case o.Delete:
				launched++
			case o.Why == "too little time remains to launch it":
				returned++
			}
		}
		if launched != 3 || returned != 7 || time.Since(w.now) > 2*time.Second {
			t.Errorf("%d launched, %d returned after %s; want 3 and 7 within 2 s", launched, returned, time.Since(w.now))
		}
		late, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		if o := d.Batch(late, batch(t, w, 1))[0]; o.Delete || o.Hide > time.Second {
			t.Errorf("with 5 s left: %+v; want it back at once", o)
		}
	})
}

func TestPace_AllowsABurstOfOneSecond(t *testing.T) {
	p, now := dispatcher.NewPace(10), sent
	calls := 0
	for end := now.Add(10 * time.Second); now.Before(end); {
		if wait, _ := p.Take(now, time.Hour); wait > 0 {
			now = now.Add(wait)
		}
		calls++
	}
	if calls < 109 || calls > 112 {
		t.Errorf("%d calls in 10 s at 10 a second, want one second's worth more than that", calls)
	}
	now = now.Add(time.Hour) // idle: no more than a second's worth is saved up
	burst := 0
	for {
		if wait, _ := p.Take(now, time.Hour); wait > 0 {
			break
		}
		burst++
	}
	if burst != 10 {
		t.Errorf("%d calls at once after an hour", burst)
	}
}

func TestPace_HalvesOnceForAThrottleAndGrowsBack(t *testing.T) {
	now := sent
	p := dispatcher.NewPace(16)
	p.Answered(now, true)
	p.Answered(now.Add(100*time.Millisecond), true) // a call under way at the same time
	if p.Rate() != 8 {
		t.Errorf("rate %g after a throttle, want 8", p.Rate())
	}
	if wait, ok := p.Take(now, 0); ok || wait <= 0 {
		t.Errorf("a call at once after a throttle: %s, %v", wait, ok)
	}
	for i := range 10 {
		p.Answered(now.Add(time.Duration(i+2)*2*time.Second), true)
	}
	if p.Rate() != 1 {
		t.Errorf("rate %g after many throttles, want 1", p.Rate())
	}
	n := 0
	for ; p.Rate() < 16 && n < 1000; n++ {
		p.Answered(now, false)
	}
	if n < 40 || n > 60 {
		t.Errorf("back at the full rate after %d calls", n)
	}
}

func TestPace_WithoutALimitNeverWaits(t *testing.T) {
	p := dispatcher.NewPace(0)
	for range 1000 {
		p.Answered(sent, true)
		if wait, _ := p.Take(sent, 0); wait != 0 {
			t.Fatalf("waits %s", wait)
		}
	}
	if _, ok := p.Take(sent, -time.Second); ok {
		t.Error("a call is promised although its time is over")
	}
}

// A launcher with a token bucket of 20 a second: two dispatchers share it, and the drain is near its rate.
func TestBatch_TwoDispatchersDrainNearTheAccountLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.now = time.Now()
		bucket, filled := 20.0, time.Now()
		throttled := 0
		w.launchErr = func(int, launcher.Request) error {
			now := time.Now()
			bucket, filled = min(20, bucket+20*now.Sub(filled).Seconds()), now
			if bucket < 1 {
				throttled++
				return refuse(workflow.ReasonThrottled)
			}
			bucket--
			return nil
		}
		w.onLaunch = func(context.Context) { <-time.After(250 * time.Millisecond) }
		const jobs = 1000
		todo := make(chan queue.Message, jobs)
		for _, m := range batch(t, w, jobs) {
			todo <- m
		}
		began := time.Now()
		ended := make(chan struct{})
		for range 2 {
			d, err := dispatcher.New(nil, w, reporter{w}, dispatcher.Config{Relay: func(string) string { return "r" }, Workers: 10, Rate: 10})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for len(todo) > 0 {
					var msgs []queue.Message
					for len(msgs) < 10 && len(todo) > 0 {
						msgs = append(msgs, <-todo)
					}
					for i, o := range d.Batch(t.Context(), msgs) {
						if !o.Delete {
							todo <- msgs[i]
						} else if o.Task == "" {
							t.Errorf("a message ended without a task: %s", o.Why)
						}
					}
				}
				ended <- struct{}{}
			}()
		}
		<-ended
		<-ended
		rate := jobs / time.Since(began).Seconds()
		if rate < 19 || len(w.tasks) != jobs {
			t.Errorf("%d tasks at %.1f a second with %d throttles; want %d at 19 or more", len(w.tasks), rate, throttled, jobs)
		}
	})
}
