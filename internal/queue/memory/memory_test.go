package memory_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/memory"
	"github.com/dayfly-dev/dayfly/internal/queue/queuetest"
	"github.com/dayfly-dev/dayfly/internal/workflow"
	"github.com/dayfly-dev/dayfly/test/awsim/leak"
)

var _ queue.Queue = (*memory.Queue)(nil)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func open(t *testing.T, c memory.Config) *memory.Queue {
	t.Helper()
	q, err := memory.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func harness(duplicate bool) queuetest.Harness {
	return queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, visibility time.Duration) queue.Queue {
			return open(t, memory.Config{Visibility: visibility, Duplicate: duplicate})
		},
		OpenDead: func(t *testing.T, visibility time.Duration, maxReceives int) (queue.Queue, queue.Queue) {
			dead := open(t, memory.Config{Visibility: visibility})
			return open(t, memory.Config{Visibility: visibility, MaxReceives: maxReceives, DeadLetter: dead, Duplicate: duplicate}), dead
		},
	}
}

func TestConformance(t *testing.T) { queuetest.Run(t, harness(false)) }

// The suite must tolerate duplicates, or it could not run against SQS.
func TestConformance_WithDuplicates(t *testing.T) { queuetest.Run(t, harness(true)) }

func send(t *testing.T, q *memory.Queue, group string, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		if err := q.Send(t.Context(), []byte(b), group); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, q *memory.Queue, n int) []queue.Message {
	t.Helper()
	m, err := q.Receive(t.Context(), n, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bodies(messages []queue.Message) []string {
	var out []string
	for _, m := range messages {
		out = append(out, string(m.Body))
	}
	return out
}

func TestReceive_GroupsTakeTurns(t *testing.T) {
	q := open(t, memory.Config{})
	send(t, q, "loud", "l1", "l2", "l3", "l4", "l5")
	send(t, q, "quiet", "q1")
	send(t, q, "calm", "c1", "c2")
	got := bodies(receive(t, q, 2))
	got = append(got, bodies(receive(t, q, 1))...)
	got = append(got, bodies(receive(t, q, 10))...)
	want := []string{"l1", "q1", "c1", "l2", "c2", "l3", "l4", "l5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
}

func TestReceive_NewGroupWaitsOneRoundAtMost(t *testing.T) {
	q := open(t, memory.Config{})
	send(t, q, "loud", "l1", "l2", "l3")
	receive(t, q, 1)
	send(t, q, "late", "x")
	if diff := cmp.Diff([]string{"l2", "x"}, bodies(receive(t, q, 2))); diff != "" {
		t.Errorf("order differs (-want +got):\n%s", diff)
	}
}

func TestDuplicate_DeletedMessagesAreDeliveredTwice(t *testing.T) {
	q := open(t, memory.Config{Duplicate: true})
	send(t, q, "g", "a", "b")
	got := map[string]int{}
	ids := map[string]string{}
	for range 10 {
		for _, m := range receive(t, q, 1) {
			got[string(m.Body)]++
			ids[string(m.Body)+m.ID] = m.ID
			if err := q.Delete(t.Context(), m.Receipt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 2}, got); diff != "" {
		t.Errorf("deliveries differ (-want +got):\n%s", diff)
	}
	if len(ids) != 2 {
		t.Errorf("got %d ids, want the same one for both deliveries of a message", len(ids))
	}
}

func TestVisibility_EndsExactlyAndReceiptsGoStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, memory.Config{Visibility: time.Minute})
		send(t, q, "g", "a")
		first := receive(t, q, 1)[0]
		began := time.Now()
		for {
			m, err := q.Receive(t.Context(), 1, queue.MaxWait)
			if err != nil {
				t.Fatal(err)
			}
			if len(m) == 0 {
				continue
			}
			if got, want := time.Since(began), time.Minute; got != want {
				t.Errorf("came back after %s, want %s", got, want)
			}
			if got, want := m[0].Receives, 2; got != want {
				t.Errorf("receives: got %d, want %d", got, want)
			}
			break
		}
		if err := q.Delete(t.Context(), first.Receipt); !errors.Is(err, queue.ErrStale) {
			t.Errorf("delete: got %v, want ErrStale", err)
		}
		if err := q.Hide(t.Context(), first.Receipt, 0); !errors.Is(err, queue.ErrStale) {
			t.Errorf("hide: got %v, want ErrStale", err)
		}
		if n, err := q.Depth(t.Context()); err != nil || n != 0 {
			t.Errorf("depth: got %d, %v; want 0: the stale receipt must not give the message back", n, err)
		}
	})
}

func TestDelete_OfAVisibleUndeliveredMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, memory.Config{Visibility: time.Second})
		send(t, q, "g", "a")
		m := receive(t, q, 1)[0]
		waitFor(t, 2*time.Second)
		if n, _ := q.Depth(t.Context()); n != 1 {
			t.Fatalf("depth: got %d, want 1", n)
		}
		if err := q.Delete(t.Context(), m.Receipt); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, q, 1); len(got) != 0 {
			t.Errorf("got %v after the delete, want nothing", got)
		}
	})
}

func TestReceive_ReleaseWakesAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, memory.Config{Visibility: time.Hour})
		send(t, q, "g", "a")
		m := receive(t, q, 1)[0]
		began := time.Now()
		done := make(chan []queue.Message)
		go func() {
			got, _ := q.Receive(t.Context(), 1, queue.MaxWait)
			done <- got
		}()
		synctest.Wait()
		if err := q.Hide(t.Context(), m.Receipt, 3*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := <-done; len(got) != 1 || time.Since(began) != 3*time.Second {
			t.Errorf("got %v after %s, want the message after 3s", got, time.Since(began))
		}
	})
}

func TestDeadLetter_KeepsTheMessageAndItsGroup(t *testing.T) {
	dead := open(t, memory.Config{})
	q := open(t, memory.Config{MaxReceives: 1, DeadLetter: dead})
	send(t, q, "g", "a")
	m := receive(t, q, 1)[0]
	if err := q.Hide(t.Context(), m.Receipt, 0); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, q, 1); len(got) != 0 {
		t.Errorf("got %v, want nothing: it is a dead letter", got)
	}
	got := receive(t, dead, 1)
	if len(got) != 1 || string(got[0].Body) != "a" || got[0].ID != m.ID || got[0].Receives != 1 {
		t.Errorf("got %+v, want message %s delivered for the first time", got, m.ID)
	}
	if err := q.Delete(t.Context(), m.Receipt); err != nil {
		t.Errorf("delete of a dead letter: got %v, want nil", err)
	}
}

func TestCancelledContext_NothingHappens(t *testing.T) {
	q := open(t, memory.Config{})
	send(t, q, "g", "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Receive(ctx, 1, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("receive: got %v, want Canceled", err)
	}
	if err := q.Send(ctx, []byte("b"), "g"); !errors.Is(err, context.Canceled) {
		t.Errorf("send: got %v, want Canceled", err)
	}
	if n, err := q.Depth(t.Context()); err != nil || n != 1 {
		t.Errorf("depth: got %d, %v; want 1", n, err)
	}
}

func TestNew_BadConfigIsRefused(t *testing.T) {
	for name, c := range map[string]memory.Config{
		"negative visibility": {Visibility: -time.Second},
		"long visibility":     {Visibility: 13 * time.Hour},
		"negative receives":   {MaxReceives: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := memory.New(c); !errors.Is(err, workflow.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

func TestReceive_WaitsInRealTimeToo(t *testing.T) {
	q := open(t, memory.Config{Visibility: 20 * time.Millisecond})
	send(t, q, "g", strings.Repeat("a", 10))
	receive(t, q, 1)
	got, err := q.Receive(t.Context(), 1, queue.MaxWait)
	if err != nil || len(got) != 1 || got[0].Receives != 2 {
		t.Errorf("got %v, %v; want the second delivery", got, err)
	}
}

// waitFor lets the bubble's clock run.
func waitFor(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
