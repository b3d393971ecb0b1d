package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim"
	"github.com/dayfly-dev/dayfly/test/awsim/lambda"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
	"github.com/dayfly-dev/dayfly/test/poolstack"
)

func event(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "events", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func start(t *testing.T, getenv func(string) string) *function {
	t.Helper()
	f, err := build(getenv)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// queued empties the queue of launches and returns the jobs.
func queued(t *testing.T, s *poolstack.Stack) (jobs []string) {
	t.Helper()
	for {
		got := s.Receive(t.Context(), s.Jobs)
		if len(got) == 0 {
			slices.Sort(jobs)
			return jobs
		}
		for _, m := range got {
			launch, err := api.DecodeLaunchMessage([]byte(*m.Body))
			if err != nil {
				t.Fatal(err)
			}
			claims, err := s.Keyring.Open(launch.Ticket, time.Now())
			if err != nil || claims.Job != launch.Job || claims.Attempt != launch.Attempt {
				t.Errorf("the ticket of %s is for %s: %v", launch.Job, claims.Job, err)
			}
			if strings.Contains(*m.Body, claims.Token.Reveal()) {
				t.Errorf("the message of %s shows its token", launch.Job)
			}
			jobs = append(jobs, launch.Job)
		}
	}
}

func TestTrigger_ReadsTheSampleEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		event []byte
		want  string
	}{
		"the schedule":        {event(t, "schedule.json"), bySchedule},
		"a wake":              {event(t, "wake.json"), byWake},
		"nothing":             {nil, ""},
		"null":                {[]byte("null"), ""},
		"an input of its own": {[]byte(`{"trigger":"schedule"}`), ""},
		"a batch of its jobs": {event(t, "sqs-jobs.json"), ""}, // Lambda would delete them
		"a list":              {[]byte(`[]`), ""},
		"no JSON":             {[]byte(`{`), ""},
	} {
		got, err := trigger(tc.event)
		if got != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %s, %v; want %q", name, got, err, tc.want)
		}
	}
}

func TestBuild_TellsEveryMistakeAtOnce(t *testing.T) {
	s := poolstack.New(t, nil)
	_, err := build(s.Env("DAYFLY_SERVICE_URL", "", "DAYFLY_INSTANCE", "", "DAYFLY_POLLING_WINDOW", "61s",
		"DAYFLY_JOBS_QUEUE_URL", "jobs", "DAYFLY_ENABLED_WORKFLOW_TYPES", "drift", "AWS_REGION", ""))
	var mistakes workflow.Mistakes
	if !errors.As(err, &mistakes) || len(mistakes) != 6 {
		t.Errorf("%v\nwant six mistakes", err)
	}
	if _, err := build(s.Env()); err != nil {
		t.Error(err)
	}
}

// A wake of a window poller takes everything at once and does not wait, although the window is long.
func TestHandle_AWakeQueuesEverythingAndReturns(t *testing.T) {
	s := poolstack.New(t, nil)
	ids := s.Submit(t.Context(), "net", 25)
	f := start(t, s.Env("DAYFLY_POLLING_WINDOW", "55s"))
	if err := f.handle(t.Context(), event(t, "wake.json")); err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	if got := queued(t, s); !slices.Equal(got, ids) {
		t.Errorf("queued %d jobs of %d: %v", len(got), len(ids), got)
	}
	for _, id := range ids {
		if st := s.State(t.Context(), id); st.State != workflow.Claimed || st.Instance != "stack" {
			t.Errorf("%s is %s, claimed by %q", id, st.State, st.Instance)
		}
	}
	reads := s.Secrets.Reads()
	if err := f.handle(t.Context(), event(t, "wake.json")); err != nil || s.Secrets.Reads() != reads {
		t.Errorf("a warm invocation: %v, %d further readings of secrets", err, s.Secrets.Reads()-reads)
	}
}

func TestHandle_AScheduledWindowPicksUpLaterWork(t *testing.T) {
	s := poolstack.New(t, nil)
	f := start(t, s.Env("DAYFLY_POLLING_WINDOW", "55s"))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.handle(ctx, event(t, "schedule.json")) }()
	ids := s.Submit(t.Context(), "net", 1)
	for deadline := time.Now().Add(4 * time.Minute); ; {
		if got := queued(t, s); len(got) > 0 {
			if !slices.Equal(got, ids) {
				t.Errorf("queued %v, want %v", got, ids)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was queued")
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the window ended with the first job: %v", err)
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The pool's concurrency of two is normal: what one invocation claims the other does not.
func TestHandle_TwoInvocationsQueueEachJobOnce(t *testing.T) {
	s := poolstack.New(t, nil)
	ids := s.Submit(t.Context(), "net", 40)
	var both errgroup.Group
	for range 2 {
		f := start(t, s.Env())
		both.Go(func() error { return f.handle(t.Context(), event(t, "schedule.json")) })
	}
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	if got := queued(t, s); !slices.Equal(got, ids) {
		t.Errorf("queued %d messages for %d jobs", len(got), len(ids))
	}
}

// What nobody can start is left to other pools and to later.
func TestHandle_ClaimsNothingWhileLaunchesAreHeld(t *testing.T) {
	s := poolstack.New(t, nil)
	ids := s.Submit(t.Context(), "net", 3)
	claimed, err := s.Plane.Claim(t.Context(), s.Pool, api.Claim{Instance: "stack", Max: 1})
	if err != nil {
		t.Fatal(err)
	}
	job := claimed.Jobs[0]
	if err := s.Plane.Launch(t.Context(), s.Pool, job.ID, api.Launch{
		Attempt: 1, Kind: api.LaunchRefused, Reason: workflow.ReasonCapacity, Text: "no room", RetrySeconds: 60,
	}); err != nil {
		t.Fatal(err)
	}
	f := start(t, s.Env())
	if err := f.handle(t.Context(), event(t, "schedule.json")); err != nil {
		t.Fatal(err)
	}
	if got := queued(t, s); len(got) != 0 {
		t.Errorf("queued %v while the pool's launches are refused", got)
	}
	if err := s.Plane.Launch(t.Context(), s.Pool, job.ID, api.Launch{Attempt: 1, Kind: api.LaunchAccepted, Task: "task"}); err != nil {
		t.Fatal(err)
	}
	for range 301 {
		s.Send(t.Context(), s.Jobs, "another launch")
	}
	s.Receive(t.Context(), s.Jobs) // hidden, and still waiting
	f = start(t, s.Env())          // one that has not looked at the queue yet
	if err := f.handle(t.Context(), event(t, "schedule.json")); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if st := s.State(t.Context(), id); id != job.ID && st.State != workflow.Pending {
			t.Errorf("%s is %s although 301 launches wait", id, st.State)
		}
	}
}

// What could not be sealed is not claimed.
func TestHandle_WithoutItsKeysItClaimsNothing(t *testing.T) {
	s := poolstack.New(t, nil)
	ids := s.Submit(t.Context(), "net", 1)
	f := start(t, s.Env("DAYFLY_TICKET_KEYS_SECRET", "elsewhere"))
	if err := f.handle(t.Context(), event(t, "schedule.json")); err == nil || !strings.Contains(err.Error(), "the ticket keys") {
		t.Errorf("%v: want the ticket keys named", err)
	}
	if st := s.State(t.Context(), ids[0]); st.State != workflow.Pending {
		t.Errorf("the workflow is %s", st.State)
	}
}

// A token that cannot be read is asked for once: a claim would only wait for it again.
func TestHandle_WithoutItsTokenItClaimsNothing(t *testing.T) {
	s := poolstack.New(t, nil)
	f := start(t, s.Env("DAYFLY_POOL_TOKEN_SECRET", "elsewhere"))
	if err := f.handle(t.Context(), event(t, "schedule.json")); err == nil || !strings.Contains(err.Error(), "the pool token") {
		t.Errorf("%v: want the token named", err)
	}
	if n := s.Secrets.Reads(); n != 2 {
		t.Errorf("%d readings of secrets, want one of the keys and one of the token", n)
	}
}

// A function is frozen when its handler has returned: nothing may be left that would go on.
func TestHandle_LeavesNothingRunning(t *testing.T) {
	s := poolstack.New(t, nil)
	s.Submit(t.Context(), "net", 12)
	f := start(t, s.Env("DAYFLY_POLLING_WINDOW", "55s"))
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithTimeout(t.Context(), margin+4*time.Second)
	defer cancel()
	if err := f.handle(ctx, event(t, "schedule.json")); err != nil {
		t.Fatal(err)
	}
	leak.None(t, before,
		// Connections that are kept open, here and on the other side.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
	)
}

// The deliverer is invoked once a poll is told that deliveries wait, and not waited for.
func TestHandle_InvokesTheDeliverer(t *testing.T) {
	var mu sync.Mutex
	var got []lambda.Invocation
	s := poolstack.New(t, map[string]awsim.Service{"lambda": &lambda.Service{Invoke: func(_ context.Context, in lambda.Invocation) (lambda.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, in)
		return lambda.Result{}, nil
	}}})
	has := s.Env("DAYFLY_DELIVERER", "arn:aws:lambda:us-east-1:123456789012:function:deliverer")
	f := start(t, has)
	poll := func() {
		t.Helper()
		if err := f.handle(t.Context(), event(t, "wake.json")); err != nil {
			t.Fatal(err)
		}
	}
	if poll(); len(got) != 0 {
		t.Errorf("invoked %d times while nothing waits", len(got))
	}
	_, _, err := s.Plane.Notifications.Put(t.Context(), s.Admin, api.Notification{Name: "on-call", URL: "https://example.com", Format: api.FormatSlack})
	if err != nil {
		t.Fatal(err)
	}
	id := s.Submit(t.Context(), "net", 1)[0]
	poll() // it queues the run
	if err := s.Plane.Launch(t.Context(), s.Pool, id, api.Launch{Attempt: 1, Kind: api.LaunchFailed, Text: "no such image"}); err != nil {
		t.Fatal(err)
	}
	if poll(); len(got) != 1 || got[0].Name != "deliverer" || !got[0].Async || string(got[0].Payload) != "{}" {
		t.Errorf("invoked %+v, want the deliverer once", got)
	}
	f = start(t, s.Env()) // of a stack that has none
	if poll(); len(got) != 1 {
		t.Errorf("invoked %d times", len(got))
	}
	f = start(t, has) // the delivery waits all the time
	if poll(); len(got) != 2 {
		t.Errorf("invoked %d times, want once more", len(got))
	}
}
