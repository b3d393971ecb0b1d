package sqs_test

import (
	"testing"
	"time"
)

func TestHeld_CountsWhatIsHiddenToo(t *testing.T) {
	w := start(t)
	q, _ := open(t, w.client, map[string]string{"VisibilityTimeout": "300"})
	for range 3 {
		if err := q.Send(t.Context(), []byte("x"), "a"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := q.Receive(t.Context(), 2, 0)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	if err := q.Hide(t.Context(), got[0].Receipt, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := q.Delete(t.Context(), got[1].Receipt); err != nil {
		t.Fatal(err)
	}
	depth, err := q.Depth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, err := q.Held(t.Context())
	if err != nil || depth != 1 || held != 2 {
		t.Errorf("%d wait and %d are held, %v; want 1 and 2", depth, held, err)
	}
}
