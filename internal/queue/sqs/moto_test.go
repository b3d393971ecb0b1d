package sqs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dayfly-dev/dayfly/internal/queue"
	"github.com/dayfly-dev/dayfly/internal/queue/queuetest"
	"github.com/dayfly-dev/dayfly/test/awsim/moto"
)

// A second opinion on the wire format. The whole suite is not for moto: there a stale receipt
// deletes the message, a poll that was given up steals the next one, and a partial batch failure cannot
// be read by the SDK.
func TestMoto(t *testing.T) {
	slow(t)
	cfg := moto.Start(t)
	client := awssqs.NewFromConfig(cfg, func(o *awssqs.Options) { o.Retryer = aws.NopRetryer{} })
	open := func(t *testing.T, visibility time.Duration) queue.Queue {
		q, _ := open(t, client, map[string]string{"VisibilityTimeout": visible(visibility)})
		return q
	}

	t.Run("batch, receive, hide, delete", func(t *testing.T) {
		q := open(t, time.Hour)
		if errs := q.SendBatch(t.Context(), []queue.Outgoing{{Body: []byte(`{"n":1,"text":"grüße"}`)}, {Body: []byte("b")}}); errs != nil {
			t.Fatal(errs)
		}
		if n, err := q.Depth(t.Context()); err != nil || n != 2 {
			t.Errorf("depth: got %d, %v; want 2", n, err)
		}
		messages, err := q.Receive(t.Context(), queue.MaxBatch, 0)
		if err != nil || len(messages) != 2 {
			t.Fatalf("got %v, %v; want two", messages, err)
		}
		var got []string
		for _, m := range messages {
			got = append(got, string(m.Body))
			if m.Receives != 1 || m.ID == "" {
				t.Errorf("got %+v, want its first delivery", m)
			}
		}
		slices.Sort(got)
		if want := []string{"b", `{"n":1,"text":"grüße"}`}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := q.Delete(t.Context(), messages[0].Receipt); err != nil {
			t.Fatal(err)
		}
		if err := q.Hide(t.Context(), messages[0].Receipt, time.Second); !errors.Is(err, queue.ErrStale) {
			t.Errorf("hide after delete: got %v, want ErrStale", err)
		}
		if err := q.Hide(t.Context(), messages[1].Receipt, 0); err != nil {
			t.Fatal(err)
		}
		again, err := q.Receive(t.Context(), 1, queue.MaxWait)
		if err != nil || len(again) != 1 || again[0].ID != messages[1].ID || again[0].Receives != 2 {
			t.Errorf("got %+v, %v; want the second delivery of %s", again, err, messages[1].ID)
		}
	})

	t.Run("answers", func(t *testing.T) {
		q := open(t, queuetest.Visible)
		if err := q.Send(t.Context(), []byte("a"), ""); err != nil {
			t.Fatal(err)
		}
		for want := 1; want <= 2; want++ {
			m, err := q.Receive(t.Context(), 1, queue.MaxWait)
			if err != nil || len(m) != 1 || m[0].Receives != want {
				t.Fatalf("got %v, %v; want delivery %d", m, err, want)
			}
		}
	})

	t.Run("dead letters", func(t *testing.T) {
		h := harness(func(*testing.T) *awssqs.Client { return client })
		q, dead := h.OpenDead(t, time.Hour, 1)
		if err := q.Send(t.Context(), []byte("poison"), ""); err != nil {
			t.Fatal(err)
		}
		m, err := q.Receive(t.Context(), 1, 0)
		if err != nil || len(m) != 1 {
			t.Fatalf("got %v, %v", m, err)
		}
		if err := q.Hide(t.Context(), m[0].Receipt, 0); err != nil {
			t.Fatal(err)
		}
		if m, err := q.Receive(t.Context(), 1, time.Second); err != nil || len(m) != 0 {
			t.Errorf("got %v, %v; want nothing", m, err)
		}
		if m, err := dead.Receive(t.Context(), 1, time.Second); err != nil || len(m) != 1 || string(m[0].Body) != "poison" {
			t.Errorf("got %v, %v; want the dead letter", m, err)
		}
	})

	t.Run("groups", func(t *testing.T) {
		q := open(t, time.Hour)
		if err := q.Send(t.Context(), []byte("a"), "a-group"); err != nil {
			t.Errorf("a message with a group: %v", err)
		}
	})
}
