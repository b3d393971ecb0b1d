package lambdahost_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost"
	"github.com/dayfly-dev/dayfly/test/awsim/lambdahost/hosttest"
)

func TestAsync_ErrorsAreRetriedTwiceThenGivenUp(t *testing.T) {
	clock := lambdahost.NewManualClock(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
	reports := make(chan lambdahost.Report, 10)
	lost := make(chan lambdahost.Failure, 1)
	h := host(t, lambdahost.Config{Clock: clock, Observe: func(r lambdahost.Report) { reports <- r }}, func(f *lambdahost.Function) {
		f.Async.OnFailure = func(f lambdahost.Failure) { lost <- f }
	})
	id, err := h.InvokeAsync("fn", payload(t, do{"do": "fail", "text": "no"}))
	if err != nil {
		t.Fatal(err)
	}
	for i, pause := range []time.Duration{time.Minute, 2 * time.Minute} {
		if r := <-reports; r.RequestID != id || r.FunctionError == "" {
			t.Errorf("attempt %d: %+v, want a failed one of %s", i+1, r, id)
		}
		if err := clock.AwaitTimer(ctxOf(t), pause); err != nil {
			t.Fatal(err)
		}
		clock.Advance(pause - time.Second)
		if n := h.Stats("fn").Invocations; n != i+1 {
			t.Errorf("%d attempts a second before the pause of %s is over, want %d", n, pause, i+1)
		}
		clock.Advance(time.Second)
	}
	<-reports
	f := <-lost
	if f.RequestID != id || f.Condition != "RetriesExhausted" || f.Invokes != 3 {
		t.Errorf("given up as %+v, want RetriesExhausted after 3", f)
	}
	raw, err := f.Record()
	if err != nil {
		t.Fatal(err)
	}
	var record struct {
		Version        string
		RequestContext struct {
			RequestID, FunctionARN, Condition string
			ApproximateInvokeCount            int
		}
		RequestPayload  map[string]string
		ResponseContext struct{ FunctionError string }
		ResponsePayload struct{ ErrorMessage string }
	}
	if err := json.Unmarshal(raw, &record); err != nil {
		t.Fatal(err)
	}
	if record.RequestContext.ApproximateInvokeCount != 3 || record.RequestPayload["text"] != "no" || record.ResponsePayload.ErrorMessage != "no" ||
		record.ResponseContext.FunctionError != "Unhandled" || record.RequestContext.FunctionARN != h.ARN("fn")+":$LATEST" {
		t.Errorf("the destination gets %s", raw)
	}
}

func TestAsync_ThrottledEventsWaitAndAreGivenUpByAge(t *testing.T) {
	none := 0
	clock := lambdahost.NewManualClock(time.Now())
	lost := make(chan lambdahost.Failure, 1)
	h := host(t, lambdahost.Config{Clock: clock}, func(f *lambdahost.Function) {
		f.ReservedConcurrency = &none
		f.Async.MaximumEventAge = 60 * time.Second
		f.Async.OnFailure = func(f lambdahost.Failure) { lost <- f }
	})
	if _, err := h.InvokeAsync("fn", []byte("{}")); err != nil {
		t.Fatalf("a throttle is not an error of an asynchronous call: %v", err)
	}
	total := time.Duration(0)
	for pause := time.Second; total <= time.Minute; pause *= 2 {
		if err := clock.AwaitTimer(ctxOf(t), pause); err != nil {
			t.Fatal(err)
		}
		clock.Advance(pause)
		total += pause
	}
	f := <-lost
	if f.Condition != "EventAgeExceeded" || f.Invokes != 0 || f.Response != nil {
		t.Errorf("given up as %+v, want EventAgeExceeded, never run", f)
	}
	if got := h.Stats("fn"); got.Invocations != 0 || got.Throttled != 6 {
		t.Errorf("stats %+v, want none run and 6 throttled: after 0, 1, 3, 7, 15, 31 s", got)
	}
}

// An event that waits for a place gets it when the function has one again.
func TestAsync_RunsWhenThereIsAPlaceAgain(t *testing.T) {
	none := 0
	clock := lambdahost.NewManualClock(time.Now())
	reports := make(chan lambdahost.Report, 10)
	h := host(t, lambdahost.Config{Clock: clock, Observe: func(r lambdahost.Report) { reports <- r }}, func(f *lambdahost.Function) {
		f.ReservedConcurrency = &none
	})
	id, err := h.InvokeAsync("fn", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := clock.AwaitTimer(ctxOf(t), time.Second); err != nil {
		t.Fatal(err)
	}
	put(t, h)
	clock.Advance(time.Second)
	if r := <-reports; r.RequestID != id || r.FunctionError != "" {
		t.Errorf("ran %+v, want %s", r, id)
	}
}

func TestAsync_DuplicatesHaveOneRequestID(t *testing.T) {
	reports := make(chan lambdahost.Report, 10)
	h := host(t, lambdahost.Config{Observe: func(r lambdahost.Report) { reports <- r }})
	if err := h.Duplicate("fn", 1); err != nil {
		t.Fatal(err)
	}
	id, err := h.InvokeAsync("fn", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := <-reports, <-reports; a.RequestID != id || b.RequestID != id {
		t.Errorf("ran %s and %s, want %s twice", a.RequestID, b.RequestID, id)
	}
}

func TestFault_KillsAtEachMoment(t *testing.T) {
	for _, c := range []struct {
		name     string
		fault    lambdahost.Fault
		heard    bool // the function did its work
		answered bool
	}{
		{"before the event", lambdahost.Fault{Moment: lambdahost.BeforeEvent}, false, false},
		{"before the response", lambdahost.Fault{Moment: lambdahost.BeforeResponse}, true, false},
		{"after the response", lambdahost.Fault{Moment: lambdahost.AfterResponse}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			reports := make(chan lambdahost.Report, 10)
			h := host(t, lambdahost.Config{Observe: func(r lambdahost.Report) { reports <- r }})
			p := hosttest.NewPartner(t)
			talk := payload(t, do{"do": "talk", "text": "worked", "address": p.Address()})
			c.fault.Skip = 1
			if err := h.Inject("fn", c.fault); err != nil {
				t.Fatal(err)
			}
			for i := range 3 { // only the second is struck
				done := make(chan lambdahost.Result)
				go func() {
					r, err := h.Invoke(ctxOf(t), "fn", talk)
					if err != nil {
						t.Error(err)
					}
					done <- r
				}()
				if i != 1 || c.heard {
					p.Hear().Reply(t, "yes")
				}
				r := <-done
				report := <-reports
				if failed := r.FunctionError != ""; failed != (i == 1 && !c.answered) {
					t.Errorf("invocation %d: answered %s %s", i+1, r.FunctionError, r.Payload)
				}
				if r.FunctionError != "" {
					if kind, text := said(t, r); kind != "Runtime.ExitError" || !strings.HasSuffix(text, "signal: killed") {
						t.Errorf("error %s: %s", kind, text)
					}
				}
				if report.Died != (i == 1) || report.Cold != (i != 1) {
					t.Errorf("invocation %d: %+v, want the second to die, warm, and the others to be cold", i+1, report)
				}
			}
		})
	}
}

func TestFault_KillsAfterADuration(t *testing.T) {
	h := host(t, lambdahost.Config{})
	if err := h.Inject("fn", lambdahost.Fault{Moment: lambdahost.After, Delay: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if kind, _ := said(t, invoke(t, h, do{"do": "hang"})); kind != "Runtime.ExitError" {
		t.Errorf("error %s, want Runtime.ExitError", kind)
	}
}

func TestKill_InTheMiddleOfACall(t *testing.T) {
	h := host(t, lambdahost.Config{})
	p := hosttest.NewPartner(t)
	done := make(chan lambdahost.Result)
	go func() {
		r, err := h.Invoke(ctxOf(t), "fn", payload(t, do{"do": "talk", "text": "began", "address": p.Address()}))
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	p.Hear()
	if n := h.Kill("fn"); n != 1 {
		t.Errorf("killed %d, want the one that was busy", n)
	}
	if kind, text := said(t, <-done); kind != "Runtime.ExitError" || !strings.HasSuffix(text, "signal: killed") {
		t.Errorf("error %s: %s", kind, text)
	}
	var s self
	answer(t, h, do{}, &s)
	if s.Calls != 1 {
		t.Errorf("call %d in its process, want the first of a new one", s.Calls)
	}
}

func TestInit_FailuresAreTriedOnceMore(t *testing.T) {
	t.Run("it exits", func(t *testing.T) {
		h := host(t, lambdahost.Config{}, with("AT_INIT", "exit"))
		if kind, text := said(t, invoke(t, h, do{})); kind != "Runtime.ExitError" || !strings.HasSuffix(text, "exit status 7") {
			t.Errorf("error %s: %s", kind, text)
		}
		if n := len(h.Environments("fn")); n != 0 {
			t.Errorf("%d environments are left", n)
		}
	})
	t.Run("it exits once", func(t *testing.T) {
		mark := t.TempDir() + "/mark"
		write(t, mark)
		h := host(t, lambdahost.Config{}, with("AT_INIT", "once", "MARK", mark))
		var s self
		answer(t, h, do{}, &s)
	})
	t.Run("it is too slow", func(t *testing.T) {
		h := host(t, lambdahost.Config{InitTimeout: 10 * time.Millisecond}, with("AT_INIT", "hang"), func(f *lambdahost.Function) { f.Timeout = 20 * time.Millisecond })
		if kind, text := said(t, invoke(t, h, do{})); kind != "Sandbox.Timedout" || !strings.HasSuffix(text, "timed out after 0.02 seconds") {
			t.Errorf("error %s: %s", kind, text)
		}
	})
}

func TestWarm_AnInvocationFindsIt(t *testing.T) {
	reports := make(chan lambdahost.Report, 1)
	h := host(t, lambdahost.Config{Observe: func(r lambdahost.Report) { reports <- r }})
	got, err := h.Warm(ctxOf(t), "fn")
	if err != nil {
		t.Fatal(err)
	}
	if got.Duration <= 0 || got.PeakMemory < 1<<20 {
		t.Errorf("init %+v, want how long it took and what it needed", got)
	}
	invoke(t, h, do{})
	if r := <-reports; r.Cold {
		t.Errorf("%+v, want a warm one", r)
	}
	put(t, h, with("AT_INIT", "exit"))
	if _, err := h.Warm(ctxOf(t), "fn"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("warming what cannot start: %v", err)
	}
}
