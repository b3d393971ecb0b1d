// Package queuetest is the suite that every queue is held to. It assumes the promises of package queue
// and no more: no order, no single delivery, an approximate depth. It never sleeps: where a
// message must come back, it waits in the queue's own long poll, so it runs against a queue in
// memory (in a bubble of testing/synctest) and against one behind a network alike.
package queuetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/workflow"
)

// Harness says how to get queues.
type Harness struct {
	// Open makes an empty queue that hides received messages for visibility.
	Open func(t *testing.T, visibility time.Duration) queue.Queue
	// OpenDead makes an empty queue and its dead letters; a message goes there once it was
	// delivered maxReceives times.
	OpenDead func(t *testing.T, visibility time.Duration, maxReceives int) (main, dead queue.Queue)
	// Patience is how long a poll of the suite waits before the queue counts as quiet. It is longer than
	// Visible; 0 means queue.MaxWait.
	Patience time.Duration
	// Parallel runs the tests beside each other: most of them wait.
	Parallel bool
	// Skip has the names of tests that the queue is known to fail, and why.
	Skip map[string]string
	// Bubble runs each test with the clock of testing/synctest. It is for queues that touch no
	// socket.
	Bubble bool
}

// Visible is the visibility that tests wait out.
const Visible = 2 * time.Second

const (
	short = Visible
	long  = 10 * time.Minute // one that none does
	polls = 12               // receives that a test makes before it gives up
)

// Run holds the queues of h to the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*testing.T, Harness)
	}{
		{"EveryMessageArrivesWithItsBodyAndEndsWhenDeleted", everyMessageArrives},
		{"BatchArrivesWhole", batchArrives},
		{"BatchIsTakenButForWhatIsRefused", batchPartly},
		{"BatchOfTooManyIsRefusedWhole", batchTooMany},
		{"BatchEndsWithItsContext", batchEndsWithContext},
		{"DelayedMessageIsHiddenAtFirst", delayed},
		{"ReceivedMessageIsHidden", receivedIsHidden},
		{"MessageThatIsNotDeletedComesBack", comesBack},
		{"StaleReceiptLeavesTheMessageAlone", staleReceipt},
		{"HideZeroGivesBackAtOnce", hideZero},
		{"HideKeepsAMessageAwayForLonger", hideLonger},
		{"ReceiptOfADeletedMessageIsStaleButDeletesWithoutError", deletedReceipt},
		{"LongPollEndsWithItsContext", longPollEndsWithContext},
		{"LongPollIsAnsweredByASend", longPollSeesSend},
		{"EmptyQueueAnswersWithNothing", emptyAnswers},
		{"BoundsAreKept", bounds},
		{"ConcurrentReceiversLoseNothing", concurrent},
		{"TooManyReceivesMakeADeadLetter", deadLetter},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := h.Skip[c.name]; why != "" {
				t.Skip(why)
			}
			if h.Parallel {
				t.Parallel()
			}
			h := h
			h.Patience = cmp.Or(h.Patience, queue.MaxWait)
			if h.Bubble {
				synctest.Test(t, func(t *testing.T) { c.test(t, h) })
				return
			}
			c.test(t, h)
		})
	}
}

func send(t *testing.T, q queue.Queue, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		if err := q.Send(t.Context(), []byte(b), "group"); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
}

// await receives until a message with this body comes. Others are not expected.
func await(t *testing.T, q queue.Queue, body string) queue.Message {
	t.Helper()
	return awaitOther(t, q, body, "")
}

// awaitOther is await for a delivery other than the one that receipt names.
func awaitOther(t *testing.T, q queue.Queue, body, receipt string) queue.Message {
	t.Helper()
	for range polls {
		messages, err := q.Receive(t.Context(), 1, queue.MaxWait)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		for _, m := range messages {
			if got := string(m.Body); got != body {
				t.Fatalf("got body %q, want %q", got, body)
			}
			if m.ID == "" || m.Receipt == "" || m.Receives < 1 {
				t.Fatalf("got a delivery without id, receipt or count: %+v", m)
			}
			if m.Receipt != receipt {
				return m
			}
		}
	}
	t.Fatalf("no delivery of %q after %d receives", body, polls)
	return queue.Message{}
}

// drain receives and deletes until the queue stays quiet for one long poll; it returns how often
// each body came.
func drain(t *testing.T, h Harness, q queue.Queue) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range 500 {
		messages, err := q.Receive(t.Context(), queue.MaxBatch, h.Patience)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if len(messages) == 0 {
			return got
		}
		for _, m := range messages {
			got[string(m.Body)]++
			if err := q.Delete(t.Context(), m.Receipt); err != nil && !errors.Is(err, queue.ErrStale) {
				t.Fatalf("delete: %v", err)
			}
		}
	}
	t.Fatal("the queue never went quiet although everything received was deleted")
	return nil
}

func everyMessageArrives(t *testing.T, h Harness) {
	q := h.Open(t, short)
	var want []string
	for i := range 23 {
		want = append(want, fmt.Sprintf(`{"n":%d,"text":"grüße\n"}`, i))
	}
	for i, body := range want {
		buffer := []byte(body)
		if err := q.Send(t.Context(), buffer, fmt.Sprintf("tenant-%d", i%3)); err != nil {
			t.Fatalf("send: %v", err)
		}
		clear(buffer) // the sender may reuse its buffer
	}
	// The long polls of drain outlast the visibility: nothing that was deleted comes back in them.
	got := drain(t, h, q)
	for _, body := range want {
		if got[body] == 0 {
			t.Errorf("%s did not arrive", body)
		}
		delete(got, body)
	}
	if len(got) > 0 {
		t.Errorf("arrived but never sent: %v", got)
	}
}

func batchArrives(t *testing.T, h Harness) {
	q := h.Open(t, short)
	if errs := q.SendBatch(t.Context(), nil); errs != nil {
		t.Errorf("nothing to send: got %v", errs)
	}
	var want []string
	var batch []queue.Outgoing
	for i := range queue.MaxBatch {
		// As long as each may be: together they are more than SQS takes in one call.
		body := fmt.Sprintf("%0*d", queue.MaxBody, i)
		want = append(want, body)
		batch = append(batch, queue.Outgoing{Body: []byte(body), Group: fmt.Sprintf("tenant-%d", i%3)})
	}
	if errs := q.SendBatch(t.Context(), batch); errs != nil {
		t.Fatalf("send: %v", errs)
	}
	for _, m := range batch {
		clear(m.Body) // the sender may reuse its buffers
	}
	got := drain(t, h, q)
	for i, body := range want {
		if got[body] == 0 {
			t.Errorf("message %d did not arrive", i)
		}
		delete(got, body)
	}
	if len(got) > 0 {
		t.Errorf("%d messages arrived that were never sent", len(got))
	}
}

func batchPartly(t *testing.T, h Harness) {
	q := h.Open(t, long)
	errs := q.SendBatch(t.Context(), []queue.Outgoing{
		{Body: []byte("a"), Group: "g"}, {Body: nil, Group: "g"}, {Body: []byte("b"), Group: "g"},
		{Body: []byte(strings.Repeat("x", queue.MaxBody+1)), Group: "g"}, {Body: []byte("c"), Group: "h"},
	})
	want := []error{nil, workflow.ErrInvalid, nil, workflow.ErrTooLarge, nil}
	if len(errs) != len(want) {
		t.Fatalf("got %d errors, want one for each message", len(errs))
	}
	for i, err := range errs {
		if !errors.Is(err, want[i]) || want[i] == nil && err != nil {
			t.Errorf("message %d: got %v, want %v", i, err, want[i])
		}
	}
	got := drain(t, h, q)
	for _, body := range []string{"a", "b", "c"} {
		if got[body] == 0 {
			t.Errorf("%s was taken and did not arrive", body)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d different messages arrived, want 3", len(got))
	}
}

func batchTooMany(t *testing.T, h Harness) {
	q := h.Open(t, short)
	batch := make([]queue.Outgoing, queue.MaxBatch+1)
	for i := range batch {
		batch[i] = queue.Outgoing{Body: []byte("a"), Group: "g"}
	}
	errs := q.SendBatch(t.Context(), batch)
	if len(errs) != len(batch) {
		t.Fatalf("got %d errors, want one for each message", len(errs))
	}
	for i, err := range errs {
		if !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("message %d: got %v, want ErrInvalid", i, err)
		}
	}
	if messages, err := q.Receive(t.Context(), 1, 0); err != nil || len(messages) != 0 {
		t.Errorf("got %v, %v; want nothing: the batch was refused", messages, err)
	}
}

func batchEndsWithContext(t *testing.T, h Harness) {
	q := h.Open(t, short)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := q.SendBatch(ctx, []queue.Outgoing{{Body: []byte("a"), Group: "g"}, {Body: []byte("b"), Group: "g"}})
	if len(errs) != 2 || !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
		t.Errorf("got %v, want Canceled for both", errs)
	}
}

func delayed(t *testing.T, h Harness) {
	q := h.Open(t, long)
	began := time.Now()
	if errs := q.SendBatch(t.Context(), []queue.Outgoing{
		{Body: []byte("later"), Delay: Visible}, {Body: []byte("now")}, {Body: []byte("never"), Delay: queue.MaxDelay + 1},
	}); len(errs) != 3 || errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], workflow.ErrInvalid) {
		t.Fatalf("sent: %v; want the last one refused", errs)
	}
	early, err := q.Receive(t.Context(), queue.MaxBatch, 0)
	if err != nil {
		t.Fatal(err)
	}
	isLater := func(m queue.Message) bool { return string(m.Body) == "later" }
	if time.Since(began) < Visible && slices.ContainsFunc(early, isLater) {
		t.Error("the delayed message came at once")
	}
	if got := drain(t, h, q); got["later"] == 0 && !slices.ContainsFunc(early, isLater) { // it waits for the delay
		t.Errorf("received %v, want the delayed message too", got)
	}
}

func receivedIsHidden(t *testing.T, h Harness) {
	q := h.Open(t, long)
	send(t, q, "a")
	first := await(t, q, "a")
	// At least once: a duplicate may be under way, but not one after the other.
	for range polls {
		messages, err := q.Receive(t.Context(), queue.MaxBatch, time.Second)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if len(messages) == 0 {
			return
		}
	}
	t.Errorf("message %s is handed out again and again inside its visibility", first.ID)
}

func comesBack(t *testing.T, h Harness) {
	q := h.Open(t, short)
	send(t, q, "a")
	first := await(t, q, "a")
	var last queue.Message
	for range polls {
		last = awaitOther(t, q, "a", first.Receipt)
		if last.ID != first.ID {
			t.Fatalf("got id %q, want the same as before, %q", last.ID, first.ID)
		}
		if last.Receives > first.Receives {
			return
		}
	}
	t.Errorf("got receive count %d at last, want more than %d", last.Receives, first.Receives)
}

func staleReceipt(t *testing.T, h Harness) {
	q := h.Open(t, short)
	send(t, q, "a")
	first := await(t, q, "a")
	second := awaitOther(t, q, "a", first.Receipt)
	if err := q.Delete(t.Context(), first.Receipt); err != nil && !errors.Is(err, queue.ErrStale) {
		t.Errorf("delete with a stale receipt: got %v, want nil or ErrStale", err)
	}
	third := awaitOther(t, q, "a", second.Receipt)
	if third.ID != first.ID {
		t.Errorf("got id %q, want %q", third.ID, first.ID)
	}
}

func hideZero(t *testing.T, h Harness) {
	q := h.Open(t, long)
	send(t, q, "a")
	first := await(t, q, "a")
	if err := q.Hide(t.Context(), first.Receipt, 0); err != nil {
		t.Fatalf("hide: %v", err)
	}
	awaitOther(t, q, "a", first.Receipt) // the visibility outlasts all the receives
}

func hideLonger(t *testing.T, h Harness) {
	q := h.Open(t, short)
	send(t, q, "a")
	for range polls {
		m := await(t, q, "a")
		hid := time.Now()
		if err := q.Hide(t.Context(), m.Receipt, 4*short); errors.Is(err, queue.ErrStale) {
			continue // its first visibility had passed: the answer was slow
		} else if err != nil {
			t.Fatalf("hide: %v", err)
		}
		awaitOther(t, q, "a", m.Receipt)
		if time.Since(hid) > 2*short {
			return
		}
		// A duplicate came in between; it is none of ours the next time.
	}
	t.Errorf("a message hidden for %s always came back after its first visibility, %s", 4*short, short)
}

func deletedReceipt(t *testing.T, h Harness) {
	q := h.Open(t, long)
	send(t, q, "a")
	m := await(t, q, "a")
	for i := range 2 {
		if err := q.Delete(t.Context(), m.Receipt); err != nil {
			t.Errorf("delete number %d: %v", i+1, err)
		}
	}
	if err := q.Hide(t.Context(), m.Receipt, time.Second); !errors.Is(err, queue.ErrStale) {
		t.Errorf("hide after delete: got %v, want ErrStale", err)
	}
}

func longPollEndsWithContext(t *testing.T, h Harness) {
	q := h.Open(t, short)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	messages, err := q.Receive(ctx, 1, queue.MaxWait)
	if !errors.Is(err, context.DeadlineExceeded) || len(messages) > 0 {
		t.Errorf("got %v, %v; want DeadlineExceeded", messages, err)
	}
	if took := time.Since(began); took >= queue.MaxWait {
		t.Errorf("the poll took %s although its context ended at 1s", took)
	}
	// Whatever the poll had begun, the queue works on.
	send(t, q, "a")
	await(t, q, "a")
}

func longPollSeesSend(t *testing.T, h Harness) {
	q := h.Open(t, long)
	began := time.Now()
	var wg sync.WaitGroup
	var got []queue.Message
	var err error
	wg.Go(func() { got, err = q.Receive(t.Context(), 1, queue.MaxWait) })
	send(t, q, "a")
	wg.Wait()
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v; want the message", got, err)
	}
	if took := time.Since(began); took >= queue.MaxWait {
		t.Errorf("the poll took %s although a message was sent at once", took)
	}
}

func emptyAnswers(t *testing.T, h Harness) {
	q := h.Open(t, short)
	for _, wait := range []time.Duration{0, time.Second} {
		messages, err := q.Receive(t.Context(), queue.MaxBatch, wait)
		if err != nil || len(messages) != 0 {
			t.Errorf("wait %s: got %v, %v; want nothing", wait, messages, err)
		}
	}
	n, err := q.Depth(t.Context())
	if err != nil || n != 0 {
		t.Errorf("depth: got %d, %v; want 0", n, err)
	}
}

func bounds(t *testing.T, h Harness) {
	q := h.Open(t, long)
	ctx := t.Context()
	if err := q.Send(ctx, nil, "group"); !errors.Is(err, workflow.ErrInvalid) {
		t.Errorf("empty body: got %v, want ErrInvalid", err)
	}
	for _, body := range []string{"not \xff UTF-8", "\x00", "a\x1f", "\uFFFE", "\uFFFFa"} {
		if err := q.Send(ctx, []byte(body), "group"); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("body %q: got %v, want ErrInvalid", body, err)
		}
	}
	if err := q.Send(ctx, []byte(strings.Repeat("x", queue.MaxBody+1)), "group"); !errors.Is(err, workflow.ErrTooLarge) {
		t.Errorf("long body: got %v, want ErrTooLarge", err)
	}
	for _, n := range []int{-1, 0, queue.MaxBatch + 1} {
		if _, err := q.Receive(ctx, n, 0); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("receive %d messages: got %v, want ErrInvalid", n, err)
		}
	}
	for _, wait := range []time.Duration{-time.Second, queue.MaxWait + time.Second} {
		if _, err := q.Receive(ctx, 1, wait); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("wait %s: got %v, want ErrInvalid", wait, err)
		}
	}
	const taken = "\t\n\r \x7f\uD7FF\uE000\uFFFD\U00010000\U0010FFFF" // the borders of what SQS takes
	body := taken + strings.Repeat("x", queue.MaxBody-len(taken))
	send(t, q, body)
	m := await(t, q, body)
	for _, d := range []time.Duration{-time.Second, queue.MaxVisibility + time.Second} {
		if err := q.Hide(ctx, m.Receipt, d); !errors.Is(err, workflow.ErrInvalid) {
			t.Errorf("hide for %s: got %v, want ErrInvalid", d, err)
		}
	}
	if err := q.Hide(ctx, "nonsense", time.Second); err == nil {
		t.Error("hide with a receipt that never was: got no error")
	}
	if err := q.Delete(ctx, m.Receipt); err != nil {
		t.Errorf("the receipt after all this: %v", err)
	}
}

func concurrent(t *testing.T, h Harness) {
	q := h.Open(t, long)
	const senders, each = 4, 25
	var mu sync.Mutex
	got := map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var receivers, wg sync.WaitGroup
	for range 4 {
		receivers.Go(func() {
			for ctx.Err() == nil {
				messages, err := q.Receive(ctx, 3, queue.MaxWait)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("receive: %v", err)
					}
					return
				}
				for _, m := range messages {
					if err := q.Delete(t.Context(), m.Receipt); err != nil && !errors.Is(err, queue.ErrStale) {
						t.Errorf("delete: %v", err)
					}
					mu.Lock()
					got[string(m.Body)] = true
					if len(got) == senders*each {
						cancel()
					}
					mu.Unlock()
				}
			}
		})
	}
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				if err := q.Send(t.Context(), fmt.Appendf(nil, "%d/%d", s, i), fmt.Sprint(s)); err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	wg.Wait()
	giveUp := time.AfterFunc(2*time.Minute, cancel)
	receivers.Wait()
	giveUp.Stop()
	cancel()
	if len(got) != senders*each {
		t.Errorf("got %d different messages, want %d", len(got), senders*each)
	}
}

func deadLetter(t *testing.T, h Harness) {
	if h.OpenDead == nil {
		t.Skip("this queue is tested without dead letters: its harness has no OpenDead")
	}
	const maxReceives = 3
	q, dead := h.OpenDead(t, short, maxReceives)
	send(t, q, "poison")
	var counts []int
	for range 10 * maxReceives {
		messages, err := q.Receive(t.Context(), 1, h.Patience)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if len(messages) == 0 {
			break
		}
		counts = append(counts, messages[0].Receives)
	}
	if len(counts) < maxReceives || slices.Max(counts) > maxReceives {
		t.Errorf("got deliveries %v, want at least %d and none beyond number %d", counts, maxReceives, maxReceives)
	}
	await(t, dead, "poison")
}
