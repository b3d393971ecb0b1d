package poller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/api"
	"github.com/dayfly-dev/dayfly/internal/poller"
	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/task"
	"github.com/dayfly-dev/dayfly/internal/ticket"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

var _ poller.Queue = queue.Queue(nil)

// world is a control plane with pending jobs, and a queue.
type world struct {
	pending  []api.Job
	claims   []api.Claim
	at       []time.Time // of each claim
	queued   []string
	released []string
	answer   func(api.Claim) (api.Claimed, error) // instead of the pending jobs
	sendErr  func(job string) error
	batches  []int // messages in each batch that was sent
	queueErr error // of Queued
	sent     []api.LaunchMessage
	groups   []string
	delays   []time.Duration
	depth    int
	looks    int // at the depth
	sealErr  func(job string) error
	log      strings.Builder
}

func (w *world) Claim(ctx context.Context, in api.Claim) (api.Claimed, error) {
	w.claims = append(w.claims, in)
	w.at = append(w.at, time.Now())
	if w.answer != nil {
		return w.answer(in)
	}
	if len(w.pending) == 0 && in.WaitSeconds > 0 {
		select {
		case <-time.After(time.Duration(in.WaitSeconds) * time.Second):
		case <-ctx.Done():
			return api.Claimed{}, ctx.Err()
		}
	}
	n := min(in.Max, len(w.pending))
	out := api.Claimed{Jobs: w.pending[:n], Short: n < in.Max}
	w.pending = w.pending[n:]
	return out, nil
}

func (w *world) Queued(_ context.Context, id string, _ api.Attempt) error {
	w.queued = append(w.queued, id)
	return w.queueErr
}

func (w *world) Release(ctx context.Context, id string, in api.Release) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.released = append(w.released, fmt.Sprintf("%s/%d", id, in.Attempt))
	return nil
}

func (w *world) SendBatch(_ context.Context, messages []queue.Outgoing) []error {
	w.batches = append(w.batches, len(messages))
	errs := make([]error, len(messages))
	failed := false
	for i, out := range messages {
		if errs[i] = w.send(out); errs[i] != nil {
			failed = true
		}
	}
	if !failed {
		return nil
	}
	return errs
}

func (w *world) send(out queue.Outgoing) error {
	m, err := api.DecodeLaunchMessage(out.Body)
	if err != nil {
		return err
	}
	if w.sendErr != nil {
		if err := w.sendErr(m.Job); err != nil {
			return err
		}
	}
	w.sent = append(w.sent, m)
	w.groups, w.delays = append(w.groups, out.Group), append(w.delays, out.Delay)
	return nil
}

func (w *world) Depth(context.Context) (int, error) {
	w.looks++
	return w.depth, nil
}

func (w *world) Seal(c ticket.Claims) (string, error) {
	if w.sealErr != nil {
		if err := w.sealErr(c.Job); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("sealed.%s.%d.%d", c.Job, c.Attempt, c.Expires.Unix()), nil
}

func jobs(n int) []api.Job {
	var out []api.Job
	for i := range n {
		out = append(out, api.Job{
			Needs: task.Needs{Attempt: 3, Organization: "default", Workspace: "net", WorkspaceID: "ws_1", Pool: "main", Size: "small", MaxRuntimeSeconds: 1800},
			ID:    fmt.Sprintf("wf_%d", i), Token: "dfj_planted", Type: workflow.Deployment, Operation: workflow.Preview, LaunchSeconds: 3600,
		})
	}
	return out
}

func (w *world) poller(t *testing.T, cfg poller.Config) *poller.Poller {
	t.Helper()
	cfg.Instance = "agent-1"
	cfg.Log = slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p, err := poller.New(w, w, w, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ids(ms []api.LaunchMessage) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.Job)
	}
	return out
}

// endAfter is a context that is cancelled after d, as by a signal: nobody can see it coming.
func endAfter(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(d, cancel)
	t.Cleanup(func() { timer.Stop(); cancel() })
	return ctx
}

// A loop inside a deadline waits for its end instead of asking again and again.
func TestLoop_IsQuietInTheLastSecondsOfItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		w := &world{}
		if err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(w.log.String(), "poll ended"); n > 5 {
			t.Errorf("%d passes in 50 s", n)
		}
	})
}

func TestPass_QueuesEveryClaimedJobAndReportsIt(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := &world{pending: jobs(12)}
	s, err := w.poller(t, poller.Config{Batch: 5, Now: func() time.Time { return now }}).Pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Claims != 3 || s.Claimed != 12 || s.Sent != 12 || s.Released != 0 {
		t.Errorf("summary %+v: want 12 jobs in 3 claims", s)
	}
	if d := cmp.Diff(ids(w.sent), w.queued); d != "" {
		t.Errorf("reported as queued (-sent +reported):\n%s", d)
	}
	want := api.NewLaunchMessage(jobs(1)[0],
		fmt.Sprintf("sealed.wf_0.3.%d", now.Add(time.Hour+30*time.Minute+workflow.ReportRetention).Unix()), now)
	if d := cmp.Diff(want, w.sent[0]); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
	if w.groups[0] != "default/net" {
		t.Errorf("sent for group %q, want organization and workspace", w.groups[0])
	}
}

func TestPass_LogsNeitherTokenNorTicket(t *testing.T) {
	w := &world{pending: jobs(2), queueErr: workflow.ErrBusy}
	if _, err := w.poller(t, poller.Config{}).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log := w.log.String(); strings.Contains(log, "dfj_planted") || strings.Contains(log, "sealed.") || log == "" {
		t.Errorf("log:\n%s", log)
	}
}

// failing fails for the named jobs.
func failing(err error, jobs ...string) func(string) error {
	return func(job string) error {
		if slices.Contains(jobs, job) {
			return err
		}
		return nil
	}
}

// The queue takes a batch but for some of it: those are released, and the rest is queued.
func TestPass_ReleasesWhatTheQueueDidNotTake(t *testing.T) {
	w := &world{pending: jobs(4), sendErr: failing(errors.New("queue is down"), "wf_1", "wf_2")}
	s, err := w.poller(t, poller.Config{}).Pass(t.Context())
	if err == nil {
		t.Error("a pass whose sends failed is not a success: the loop must back off")
	}
	if s.Sent != 2 || s.Released != 2 {
		t.Errorf("summary %+v: want 2 sent, 2 released", s)
	}
	if d := cmp.Diff([]string{"wf_1/3", "wf_2/3"}, w.released); d != "" {
		t.Errorf("released (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"wf_0", "wf_3"}, w.queued); d != "" {
		t.Errorf("reported as queued (-want +got):\n%s", d)
	}
}

func TestPass_SendsInBatchesAndStopsAtTheFirstThatFails(t *testing.T) {
	w := &world{}
	w.answer = func(api.Claim) (api.Claimed, error) { return api.Claimed{Jobs: jobs(25), Short: true}, nil }
	s, err := w.poller(t, poller.Config{Batch: 25}).Pass(t.Context())
	if err != nil || s.Sent != 25 {
		t.Errorf("summary %+v, %v: want 25 sent", s, err)
	}
	if d := cmp.Diff([]int{10, 10, 5}, w.batches); d != "" {
		t.Errorf("batches (-want +got):\n%s", d)
	}

	w = &world{answer: w.answer, sendErr: failing(errors.New("queue is down"), "wf_11")}
	s, err = w.poller(t, poller.Config{Batch: 25}).Pass(t.Context())
	if err == nil || s.Sent != 19 || s.Released != 6 {
		t.Errorf("summary %+v, %v: want an error, 19 sent and 6 released", s, err)
	}
	if d := cmp.Diff([]int{10, 10}, w.batches); d != "" {
		t.Errorf("batches (-want +got):\n%s", d)
	}
}

func TestPass_ReleasesWhatCannotBeSealed(t *testing.T) {
	w := &world{pending: jobs(3), sealErr: failing(errors.New("no key"), "wf_1")}
	s, err := w.poller(t, poller.Config{}).Pass(t.Context())
	if err == nil {
		t.Error("want an error")
	}
	if d := cmp.Diff([]string{"wf_0", "wf_2"}, ids(w.sent)); d != "" || s.Sent != 2 {
		t.Errorf("sent (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"wf_1/3"}, w.released); d != "" {
		t.Errorf("released (-want +got):\n%s", d)
	}
}

// A stop between claim and send: the claims are given back although the context is over.
func TestPass_ReleasesWhenToldToStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{}
	w.answer = func(api.Claim) (api.Claimed, error) {
		cancel()
		return api.Claimed{Jobs: jobs(3)}, nil
	}
	s, err := w.poller(t, poller.Config{}).Pass(ctx)
	if err != nil || s.Released != 3 || len(w.sent) != 0 {
		t.Errorf("summary %+v, %v, sent %d: want three released and no error", s, err, len(w.sent))
	}
}

func TestPass_ASendThatIsNotReportedIsStillSent(t *testing.T) {
	w := &world{pending: jobs(2), queueErr: workflow.ErrBusy}
	s, err := w.poller(t, poller.Config{}).Pass(t.Context())
	if err != nil || s.Sent != 2 || len(w.released) != 0 {
		t.Errorf("summary %+v, %v, released %v: want both sent, none released", s, err, w.released)
	}
}

// together is a control plane that answers reports only when so many are under way.
type together struct {
	*world
	missing *atomic.Int32
	enough  chan struct{}
}

func (u together) Queued(ctx context.Context, _ string, _ api.Attempt) error {
	if u.missing.Add(-1) == 0 {
		close(u.enough)
	}
	select {
	case <-u.enough:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestPass_ReportsSeveralAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pending: jobs(4)}
		up := together{w, &atomic.Int32{}, make(chan struct{})}
		up.missing.Store(4)
		p, err := poller.New(up, w, w, poller.Config{Instance: "a", Reports: 4})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if s, err := p.Pass(ctx); err != nil || s.Sent != 4 || time.Since(began) != 0 {
			t.Errorf("%+v, %v after %s", s, err, time.Since(began))
		}
	})
}

func TestPass_ClaimsNoMoreThanIsFree(t *testing.T) {
	w := &world{pending: jobs(20)}
	free := 7
	s, err := w.poller(t, poller.Config{Batch: 5, Free: func() int { return free - len(w.sent) }}).Pass(t.Context())
	if err != nil || s.Sent != 7 || s.Blocked == "" {
		t.Errorf("summary %+v, %v: want 7 sent and the reason for stopping", s, err)
	}
}

func TestPass_LongPollsOnlyWithItsFirstClaim(t *testing.T) {
	w := &world{pending: jobs(7)}
	if _, err := w.poller(t, poller.Config{Batch: 5, Wait: 20 * time.Second}).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, c := range w.claims {
		got = append(got, c.WaitSeconds)
	}
	if d := cmp.Diff([]int{20, 0}, got); d != "" {
		t.Errorf("waits (-want +got):\n%s", d)
	}
}

// A function that is about to be ended must not claim what it could not send any more.
func TestPass_DoesNotClaimShortlyBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Pass(ctx)
		if err != nil || len(w.claims) != 0 || s.Blocked == "" {
			t.Errorf("summary %+v, %v, %d claims: want none and the reason", s, err, len(w.claims))
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Pass(ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.claims) != 1 || w.claims[0].WaitSeconds != 7 {
			t.Errorf("claims %+v: want one that waits 7 s", w.claims)
		}
	})
}

func TestRoom_SaysWhyThereIsNone(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cfg := poller.Config{Batch: 10, MaxDepth: 300}
	for name, tc := range map[string]struct {
		free, depth int
		hold        time.Time
		want        int
	}{
		"plenty":                   {free: 50, want: 10},
		"little free":              {free: 3, want: 3},
		"none free":                {free: 0},
		"more running than free":   {free: -2},
		"queue nearly full":        {free: 50, depth: 296, want: 4},
		"queue full":               {free: 50, depth: 300},
		"queue overfull":           {free: 50, depth: 999},
		"held":                     {free: 50, hold: now.Add(time.Second)},
		"hold is over this noon":   {free: 50, hold: now, want: 10},
		"hold ended an hour ago":   {free: 50, hold: now.Add(-time.Hour), want: 10},
		"held and nothing is free": {hold: now.Add(time.Minute)},
	} {
		n, why, again := poller.Room(tc.free, tc.depth, tc.hold, now, cfg)
		if n != tc.want {
			t.Errorf("%s: room for %d, want %d", name, n, tc.want)
		}
		if (n == 0) != (why != "") || (n == 0) != (again > 0) {
			t.Errorf("%s: room for %d with reason %q, again in %s", name, n, why, again)
		}
	}
}

func TestPause_NeverHotAndNeverBeyondTheInterval(t *testing.T) {
	cfg := poller.Config{PollingInterval: time.Minute, Wait: 20 * time.Second}
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		s           poller.Summary
		err         error
		streak      int
		least, most time.Duration
	}{
		"work":                     {s: poller.Summary{Claims: 1, Claimed: 1}},
		"a long poll ran out":      {s: poller.Summary{Claims: 1, Waited: 20 * time.Second}},
		"answered empty at once":   {s: poller.Summary{Claims: 1}, least: 500 * time.Millisecond, most: time.Second},
		"empty again and again":    {s: poller.Summary{Claims: 1}, streak: 40, least: 30 * time.Second, most: time.Minute},
		"first error":              {err: boom, least: 500 * time.Millisecond, most: time.Second},
		"many errors":              {err: boom, streak: 1 << 30, least: 30 * time.Second, most: time.Minute},
		"error that names a time":  {err: boom, s: poller.Summary{RetryAfter: 2 * time.Minute}, least: 2 * time.Minute, most: 132 * time.Second},
		"work, but asked to wait":  {s: poller.Summary{Claims: 1, Claimed: 1, RetryAfter: 5 * time.Second}, least: 5 * time.Second, most: 6 * time.Second},
		"asked to wait for a year": {s: poller.Summary{RetryAfter: 365 * 24 * time.Hour}, least: 10 * time.Minute, most: 11 * time.Minute},
		"blocked":                  {s: poller.Summary{Blocked: "full", Recheck: 5 * time.Second}, least: 5 * time.Second, most: 5 * time.Second},
		"blocked for long":         {s: poller.Summary{Blocked: "quota", Recheck: time.Hour}, least: time.Minute, most: time.Minute},
	} {
		for _, jitter := range []float64{0, 0.5, 0.999} {
			got, why := poller.Pause(tc.s, tc.err, tc.streak, jitter, cfg)
			if got < tc.least || got > tc.most {
				t.Errorf("%s: pause %s, want %s to %s", name, got, tc.least, tc.most)
			}
			if why == "" {
				t.Errorf("%s: no reason", name)
			}
		}
	}
}

// D3: polling_interval_override wins over what the control plane asks for.
func TestPause_AnOverrideIsKept(t *testing.T) {
	asked := poller.Summary{Claims: 1, RetryAfter: 5 * time.Minute}
	if got, why := poller.Pause(asked, nil, 0, 0, poller.Config{PollingInterval: time.Minute, Override: true}); got != time.Minute {
		t.Errorf("got a pause of %s (%s), want the interval", got, why)
	}
	if got, why := poller.Pause(poller.Summary{Claims: 1, Claimed: 1}, nil, 0, 0, poller.Config{PollingInterval: time.Minute, Override: true}); got != 0 {
		t.Errorf("got a pause of %s (%s) after work, want none", got, why)
	}
}

// C17: the pauses that the control plane asks for are kept.
func TestLoop_HonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := endAfter(t, 95*time.Second)
		w := &world{}
		w.answer = func(api.Claim) (api.Claimed, error) {
			return api.Claimed{}, &workflow.Error{Kind: workflow.ErrTooMany, Message: "slow down", RetryAfter: 30 * time.Second}
		}
		if err := w.poller(t, poller.Config{PollingInterval: time.Second}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.claims) < 2 || len(w.claims) > 4 {
			t.Errorf("%d claims in 95 s: want one each 30 to 33 s", len(w.claims))
		}
	})
}

func TestLoop_BacksOffWhileTheControlPlaneIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := endAfter(t, time.Hour)
		w := &world{}
		w.answer = func(api.Claim) (api.Claimed, error) {
			busy := workflow.Refuse(workflow.ErrBusy, "", "the control plane is busy")
			return api.Claimed{}, fmt.Errorf("%w (request %d)", busy, len(w.claims)) // each time another
		}
		if err := w.poller(t, poller.Config{}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(w.claims); n < 60 || n > 135 {
			t.Errorf("%d claims in an hour of outage: want about one a minute", n)
		}
		if n := strings.Count(w.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings about one outage, want 1", n)
		}
	})
}

func TestLoop_LongPollsWithoutPauseAndPicksUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := endAfter(t, 99*time.Second)
		w := &world{}
		if err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.claims) != 5 {
			t.Errorf("%d claims in 100 s, want 5 of 20 s each", len(w.claims))
		}
	})
}

// A disabled pool is answered at once: that must not become a hot loop.
func TestLoop_SlowsDownWhenAnsweredEmptyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := endAfter(t, 10*time.Minute)
		w := &world{}
		w.answer = func(api.Claim) (api.Claimed, error) {
			return api.Claimed{Short: true, Note: "the pool is disabled"}, nil
		}
		if err := w.poller(t, poller.Config{Wait: 20 * time.Second}).Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if n := len(w.claims); n > 26 {
			t.Errorf("%d claims in 10 minutes", n)
		}
		if gap := w.at[len(w.at)-1].Sub(w.at[len(w.at)-2]); gap > time.Minute {
			t.Errorf("the last pause was %s: the polling interval bounds it", gap)
		}
	})
}

func TestLoop_WokenWhenRoomAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &world{pending: jobs(1)}
		free, wake := 0, make(chan struct{}, 1)
		p := w.poller(t, poller.Config{Wait: 20 * time.Second, Wake: wake, Free: func() int { return free }})
		ended := make(chan error, 1)
		go func() { ended <- p.Loop(ctx) }()
		synctest.Wait()
		if len(w.claims) != 0 {
			t.Fatal("claimed without room")
		}
		free = 1
		wake <- struct{}{}
		synctest.Wait()
		if len(w.sent) != 1 {
			t.Errorf("%d sent after the wake, want 1 without any time passing", len(w.sent))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestLoop_DoesNotClaimWhileALaunchIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := endAfter(t, 2*time.Minute)
		w := &world{pending: jobs(1)}
		until := time.Now().Add(90 * time.Second)
		p := w.poller(t, poller.Config{Hold: func() time.Time { return until }})
		if err := p.Loop(ctx); err != nil {
			t.Fatal(err)
		}
		if len(w.at) == 0 || w.at[0].Before(until) {
			t.Errorf("claimed at %v, held until %s", w.at, until)
		}
	})
}

// C10: a specialised poller asks for its types only.
func TestPass_AsksForItsTypes(t *testing.T) {
	w := &world{}
	types := []workflow.Type{workflow.InsightsScan}
	if _, err := w.poller(t, poller.Config{Types: types, Version: "1.2.3"}).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := w.claims[0]; !slices.Equal(c.Types, types) || c.Version != "1.2.3" || c.Instance != "agent-1" || c.Max != 10 {
		t.Errorf("claim %+v", c)
	}
}

// The real queue and the real seal: what is sent opens to the job's token.
func TestPass_WithTheRealQueueAndSeal(t *testing.T) {
	w := &world{pending: jobs(1)}
	q, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := ticket.NewKeyring(ticket.GenerateKey())
	if err != nil {
		t.Fatal(err)
	}
	p, err := poller.New(w, q, ring, poller.Config{Instance: "agent-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), 1, 0)
	if err != nil || len(got) != 1 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	m, err := api.DecodeLaunchMessage(got[0].Body)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ring.Open(m.Ticket, time.Now())
	if err != nil || c.Job != "wf_0" || c.Attempt != 3 || c.Token.Reveal() != "dfj_planted" || c.Organization != "default" || c.WorkspaceID != "ws_1" {
		t.Errorf("ticket says %+v, %v", c, err)
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	w := &world{}
	for _, cfg := range []poller.Config{{}, {Instance: "a", Batch: 51}, {Instance: "a", Batch: -1}} {
		if _, err := poller.New(w, w, w, cfg); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("%+v: %v, want it refused", cfg, err)
		}
	}
}

func TestPass_ReusesAYoungDepthOfAQueueBelowHalf(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w := &world{depth: 18}
	p := w.poller(t, poller.Config{Batch: 10, MaxDepth: 60, DepthFor: time.Minute, Now: func() time.Time { return now }})
	pass := func(n, sent, looks int, when string) {
		t.Helper()
		w.pending, w.looks = jobs(n), 0
		s, err := p.Pass(t.Context())
		if err != nil || s.Sent != sent || w.looks != looks {
			t.Errorf("%s: %d sent, %d looks, %v; want %d and %d", when, s.Sent, w.looks, err, sent, looks)
		}
	}
	pass(3, 3, 1, "first")
	now = now.Add(59 * time.Second)
	pass(8, 8, 0, "a minute later")
	pass(5, 5, 0, "with 29 that may be there")
	pass(1, 1, 1, "with 34 that may be there")
	now = now.Add(time.Minute)
	pass(1, 1, 1, "when the look is too old")
	w.depth = 30
	now = now.Add(time.Minute)
	pass(1, 1, 1, "when it is half full")
	pass(1, 1, 1, "as long as it is half full")
	w.depth, now = 60, now.Add(time.Minute)
	pass(1, 0, 1, "when it is full")
	w.depth = 0
	p.Look(t.Context(), time.Minute)
	pass(1, 1, 1, "when it was full at a young look")
	w.looks = 0
	if p.Look(t.Context(), time.Minute); w.looks != 0 {
		t.Error("a young look was repeated")
	}
	now = now.Add(time.Minute)
	p.Look(t.Context(), time.Minute)
	pass(1, 1, 0, "when it was looked at before")
}

func TestPass_TellsThatDeliveriesWait(t *testing.T) {
	w := &world{}
	told := 0
	p := w.poller(t, poller.Config{Deliveries: func() { told++ }})
	for _, wait := range []bool{true, false} {
		w.answer = func(api.Claim) (api.Claimed, error) { return api.Claimed{Short: true, Deliveries: wait}, nil }
		if _, err := p.Pass(t.Context()); err != nil || told != 1 {
			t.Errorf("told %d times after an answer that says %v: %v", told, wait, err)
		}
	}
}
